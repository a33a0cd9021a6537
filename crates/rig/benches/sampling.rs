//! What watching costs: all probes at their rate, on this machine's disk and on a process with
//! as many threads as a QEMU has: `cargo bench -p vmio-rig --bench sampling [-- SECONDS]`.
//! Prints figures, judges nothing.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use vmio_look::backing::Backing;
use vmio_node::{Local, Node, Reader};
use vmio_rig::guests::Hypervisor;
use vmio_rig::probes::{HERTZ, ProbePoint, ProbeSubject, Watch};

/// CPU seconds of this process, to the nanosecond where the kernel counts them.
fn spent() -> f64 {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    usage.tv_sec as f64 + usage.tv_nsec as f64 * 1e-9
}

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(10);
    let node = Arc::new(Local::new());
    let backing = Backing::of(&*node, &std::env::current_dir()?)?;
    println!("backing: {}", backing.describe());
    // Six threads stand for vcpu, iothread and main of a guest.
    let pid = std::process::id();
    for _ in 0..5 {
        std::thread::spawn(|| std::thread::sleep(Duration::from_secs(3600)));
    }
    let tids = node.list(Path::new("/proc/self/task"))?;
    let roles = tids.iter().filter_map(|t| Some((t.parse().ok()?, "vcpu".to_owned()))).collect();
    let own = Hypervisor { pid, roles, ..Hypervisor::default() };
    let subjects =
        [ProbeSubject::Processors, ProbeSubject::Hypervisor("guest".into(), own), ProbeSubject::Disk(backing)];
    let here: Arc<dyn Node> = node;
    let points = subjects.map(|subject| ProbePoint::here(Arc::clone(&here), subject));
    let before = spent();
    let watch = Watch::start(points.into())?;
    std::thread::sleep(Duration::from_secs(seconds));
    let seen = watch.stop()?;
    let share = (spent() - before) / seen.seconds;
    println!(
        "{HERTZ} samples a second of {} threads for {:.1} s: {:.3} % of a core",
        tids.len(),
        seen.seconds,
        share * 100.0
    );
    Ok(())
}
