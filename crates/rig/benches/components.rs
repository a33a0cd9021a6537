//! What sampling by component (`--components`) costs: requests a second, and processor time of a request, with and
//! without it in turns: `cargo bench -p vmio-rig --bench components [-- PAIRS [SECONDS]]`, as root; needs dd and fio.
//!
//! `dd` from /dev/zero is nearly always in the kernel, fio reads a file from the page cache: no disk makes either wait.
//! Their requests are counted by /proc/PID/io, which is there either way. Other load on the machine changes the rate; the
//! processor time of a request hardly depends on it, and includes the interrupts where the kernel does not count those
//! apart (CONFIG_IRQ_TIME_ACCOUNTING). What vmio itself takes to read the samples comes on top. Prints figures, judges
//! nothing.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs::DirEntry;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use vmio_model::stats::{Pair, paired_ratio};
use vmio_node::{Local, Node};
use vmio_rig::probes::{ProbePoint, ProbeSubject, Watch, Workers};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes of a request.
const REQUEST: f64 = 4096.0;
const FILE_BYTES: usize = 256 << 20;
/// Time to wait after sampling began.
const SETTLE: Duration = Duration::from_millis(200);

/// A program at work, ended when dropped.
struct Load(Child);

impl Load {
    fn start(command: &mut Command) -> Result<Self> {
        let load = Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
        // fio measures its clock before it reads.
        sleep(Duration::from_secs(2));
        Ok(load)
    }

    /// Requests so far (`rchar` of proc_pid_io(5)).
    fn requests(&self) -> Result<f64> {
        let io = std::fs::read_to_string(format!("/proc/{}/io", self.0.id()))?;
        let bytes = io.lines().find_map(|line| line.strip_prefix("rchar: ")).ok_or("no rchar in /proc/PID/io")?;
        Ok(bytes.parse::<f64>()? / REQUEST)
    }

    /// Nanoseconds on a processor so far, of all its threads (Documentation/scheduler/sched-stats.rst).
    fn nanoseconds(&self) -> Result<f64> {
        let ran = |thread: DirEntry| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<f64>().ok()
        };
        Ok(std::fs::read_dir(format!("/proc/{}/task", self.0.id()))?.flatten().filter_map(ran).sum())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// CPU seconds of this process, which reads the samples.
fn own_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 * 1e-9
}

/// Requests a second, nanoseconds of processor time a request, and the share of a processor that this process took.
fn measure(load: &Load, seconds: u32, sampled: bool) -> Result<[f64; 3]> {
    let node: Arc<dyn Node> = Arc::new(Local::new());
    let point = ProbePoint::here(node, ProbeSubject::Components(Workers::of(std::process::id())));
    let watch = sampled.then(|| Watch::start(vec![point])).transpose()?;
    sleep(SETTLE);
    let (start, before) = (Instant::now(), (load.requests()?, load.nanoseconds()?, own_seconds()));
    sleep(Duration::from_secs(seconds.into()));
    let (requests, nanoseconds) = (load.requests()? - before.0, load.nanoseconds()? - before.1);
    let (own, elapsed) = (own_seconds() - before.2, start.elapsed().as_secs_f64());
    if let Some(seen) = watch.map(Watch::stop).transpose()?
        && seen.seen.is_empty()
    {
        return Err(seen.notes.join("; ").into());
    }
    Ok([requests / elapsed, nanoseconds / requests.max(1.0), own / elapsed])
}

fn main() -> Result<()> {
    let mut numbers = std::env::args().filter_map(|a| a.parse::<u32>().ok());
    let (pairs, seconds) = (numbers.next().unwrap_or(12), numbers.next().unwrap_or(3));
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let file = dir.path().join("load");
    std::fs::write(&file, vec![0x5au8; FILE_BYTES])?;
    let (mut dd, mut fio) = (Command::new("dd"), Command::new("fio"));
    dd.args(["if=/dev/zero", "of=/dev/null", "bs=4k", "status=none"]);
    fio.args(["--name=load", "--thread", "--rw=randread", "--bs=4k", "--ioengine=psync", "--invalidate=0"])
        .args(["--time_based", "--runtime=36000"])
        .args([format!("--size={FILE_BYTES}"), format!("--filename={}", file.display())]);
    for (what, command) in [("dd from /dev/zero", &mut dd), ("fio from the page cache", &mut fio)] {
        let load = Load::start(command)?;
        let mut all = [Vec::new(), Vec::new()];
        let mut own = 0.0;
        for pair in 0..pairs {
            // The order alternates, so that a drift affects both alike.
            let first = measure(&load, seconds, pair % 2 == 1)?;
            let second = measure(&load, seconds, pair % 2 == 0)?;
            let (base, test) = if pair % 2 == 1 { (second, first) } else { (first, second) };
            own += (test[2] - base[2]) / f64::from(pairs);
            for (figures, (base, test)) in all.iter_mut().zip(base.into_iter().zip(test)) {
                figures.push(Pair { boot: pair, base, test });
            }
        }
        println!("4 KiB requests of {what}, {pairs} pairs of {seconds} s:");
        for (what, figures) in ["requests/s", "processor ns a request"].iter().zip(&all) {
            let mean = |side: fn(&Pair) -> f64| figures.iter().map(side).sum::<f64>() / f64::from(pairs);
            let ratio = paired_ratio(figures).ok_or("no requests")?;
            let interval = ratio.interval.map(|i| format!("{:.4} to {:.4}", i.low, i.high)).unwrap_or_default();
            let (base, test) = (mean(|p| p.base), mean(|p| p.test));
            println!("  {what:<24} {base:9.0} without, {test:9.0} with, ratio {:.4} ({interval})", ratio.value);
        }
        println!("  vmio itself, to read them: {:.2} % of a processor", own * 100.0);
    }
    Ok(())
}
