//! How long a guest takes from QEMU's start to the agent's first answer, and fio in it to start:
//! `cargo bench -p vmio-rig --bench boot [-- BOOTS]`. Prints figures, judges nothing.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vmio_node::{Exec, Journal, Local, Node};
use vmio_rig::guests::{self, GuestSpec, LaunchCtx};
use vmio_rig::image::Image;
use vmio_rig::nodes::Nodes;

fn main() -> Result<(), Box<dyn Error>> {
    if !std::env::args().any(|a| a == "--bench") {
        return Ok(()); // `cargo test --all-targets` runs this too
    }
    let boots = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(5);
    let dir = tempfile::tempdir()?;
    let journal = Arc::new(Journal::open(&dir.path().join("journal"), "bench")?);
    let node: Arc<dyn Node> = Arc::new(Local::owned(Arc::clone(&journal)));
    let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-state");
    let started = Instant::now();
    let image = Image::load_or_build(node.as_ref(), &state, &|what| println!("{what}"))?;
    println!(
        "image ready after {:.2} s: {} ({})",
        started.elapsed().as_secs_f64(),
        image.kernel_release,
        image.kernel_origin
    );
    if let Some(why) = &image.compressed_because {
        println!("compressed kernel, because {why}");
    }
    let run_dir = dir.path().join("run");
    let ctx = LaunchCtx {
        enter: Vec::new(),
        node: Arc::clone(&node),
        journal,
        image: Some(&image),
        run_dir: &run_dir,
        state_dir: &state,
        accel: None,
        nodes: &Nodes::default(),
        boot_limit: Duration::from_secs(60),
        oom_score_adj: 1000,
        cgroup_procs: Vec::new(),
        progress: &|what| println!("{what}"),
    };
    for _ in 0..boots {
        let spec = GuestSpec::of("guest0", 1, 256);
        let guest = guests::find("qemu").ok_or("no entry qemu")?.launch(&ctx, &spec)?;
        let fio = || -> Result<f64, Box<dyn Error>> {
            let started = Instant::now();
            guest.node().exec(&Exec::new("fio").args(["--version"]))?;
            Ok(started.elapsed().as_secs_f64())
        };
        let (cold, warm) = (fio()?, fio()?);
        let memory = guest.node().read_text(Path::new("/proc/meminfo"))?;
        let available = memory.lines().find(|l| l.starts_with("MemAvailable")).unwrap_or_default();
        println!(
            "ready after {:.2} s; fio --version {cold:.2} s, again {warm:.2} s; {available} of 256 MiB; {}",
            guest.boot_seconds().unwrap_or_default(),
            guest.accelerator().map(|a| a.reason.as_str()).unwrap_or_default(),
        );
        guest.stop()?;
    }
    Ok(())
}
