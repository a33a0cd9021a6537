//! What counting events of the guest's block layer costs (`--layers`): requests a second of fio in a guest, with and
//! without it in turns: `cargo bench -p vmio-rig --bench block_events [-- PAIRS [SECONDS]]`.
//!
//! The host's page cache has the whole disk, and one request is under way at a time, so that nothing else makes fio
//! wait: what counting takes is as large a share as it gets. Prints figures, judges nothing.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use vmio_model::cell::{Aio, Attachment, Cache};
use vmio_model::stats::{Pair, paired_ratio};
use vmio_node::linux::block::{self, Counters, Device};
use vmio_node::{Exec, Journal, Local, Node};
use vmio_rig::disks::Storage;
use vmio_rig::guests::{self, DiskSpec, GuestSpec, LaunchCtx};
use vmio_rig::image::Image;
use vmio_rig::nodes::Nodes;
use vmio_rig::probes::block_events::BlockEvents;
use vmio_rig::probes::{ByItself, ProbeSubject};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const FILE_BYTES: usize = 256 << 20;
/// Time to wait after fio or counting began.
const SETTLE: Duration = Duration::from_millis(500);

/// Requests of the guest's disk that ended, and when that was so, by the guest's clock.
fn ended(guest: &dyn Node, disk: &str) -> Result<(f64, f64)> {
    let text = guest.reader().read_text(&Device::stat_file(disk))?;
    let counters = Counters::parse(&text).ok_or("the disk's counters cannot be read")?;
    Ok((counters.reads.ios as f64, guest.reader().clock_seconds()?))
}

/// Requests a second.
fn measure(guest: &Arc<dyn Node>, disk: &str, seconds: u32, counted: bool) -> Result<f64> {
    let subject = ProbeSubject::Driver(disk.to_owned());
    let counting = counted.then(|| BlockEvents.start(&subject, guest)).transpose()?;
    sleep(SETTLE);
    let before = ended(&**guest, disk)?;
    sleep(Duration::from_secs(seconds.into()));
    let after = ended(&**guest, disk)?;
    drop(counting);
    Ok((after.0 - before.0) / (after.1 - before.1))
}

fn main() -> Result<()> {
    if !std::env::args().any(|a| a == "--bench") {
        return Ok(()); // `cargo test --all-targets` runs this too
    }
    let mut numbers = std::env::args().filter_map(|a| a.parse::<u32>().ok());
    let (pairs, seconds) = (numbers.next().unwrap_or(12), numbers.next().unwrap_or(3));
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let file = dir.path().join("disk.raw");
    std::fs::write(&file, vec![0x5au8; FILE_BYTES])?;
    // Sockets need a short path.
    let sockets = tempfile::tempdir()?;
    let journal = Arc::new(Journal::open(&sockets.path().join("journal"), "bench")?);
    let node: Arc<dyn Node> = Arc::new(Local::owned(Arc::clone(&journal)));
    let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-state");
    let image = Image::load_or_build(node.as_ref(), &state, &|what| println!("{what}"))?;
    let run_dir = sockets.path().join("run");
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
    let attachment = Attachment::new("virtio-blk", Cache::Writeback, Aio::Threads);
    let disk = DiskSpec { id: "d0".into(), storage: Storage::File(file), attachment: Some(attachment) };
    let spec = GuestSpec { disks: vec![disk], ..GuestSpec::of("guest0", 1, 256) };
    let guest = guests::find("qemu").ok_or("no entry qemu")?.launch(&ctx, &spec)?;
    let path = guest.disk_path("d0")?;
    let name = block::name_at(&path).ok_or("the disk has no name")?;
    let fio = Exec::new("fio").args(["--name=load", "--thread", "--rw=randread", "--bs=4k", "--direct=1"]);
    let fio = fio.args(["--ioengine=psync", "--readonly", "--time_based", "--runtime=36000"]);
    let mut load = guest.node().spawn(&fio.args([format!("--filename={}", path.display())]))?;
    // fio measures its clock before it reads.
    sleep(Duration::from_secs(5));
    let mut all = Vec::new();
    for pair in 0..pairs {
        // The order alternates, so that a drift affects both alike.
        let first = measure(&guest.node(), &name, seconds, pair % 2 == 1)?;
        let second = measure(&guest.node(), &name, seconds, pair % 2 == 0)?;
        let (base, test) = if pair % 2 == 1 { (second, first) } else { (first, second) };
        all.push(Pair { boot: pair, base, test });
    }
    load.kill()?;
    guest.stop()?;
    let mean = |side: fn(&Pair) -> f64| all.iter().map(side).sum::<f64>() / f64::from(pairs);
    let ratio = paired_ratio(&all).ok_or("no requests")?;
    let interval = ratio.interval.map(|i| format!("{:.4} to {:.4}", i.low, i.high)).unwrap_or_default();
    println!("4 KiB reads from the host's page cache, one at a time, {pairs} pairs of {seconds} s:");
    println!(
        "  {:.0} requests/s without, {:.0} with, ratio {:.4} ({interval})",
        mean(|p| p.base),
        mean(|p| p.test),
        ratio.value
    );
    Ok(())
}
