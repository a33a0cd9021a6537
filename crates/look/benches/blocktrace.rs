//! What block tracing costs: requests a second with and without it, in turns, while one fio runs:
//! `cargo bench -p vmio-look --bench blocktrace [-- PAIRS [SECONDS] [calls]]`, as root. With `calls` the same of the
//! programs that time a hypervisor's system calls, while they watch fio: each request is a call.
//!
//! The worst case is a loop device over a file in the page cache: no disk makes a request wait, so
//! each is as short as a request can be. Beside it, a file on the disk of the build directory. The
//! requests are counted by /sys/block/DEVICE/stat, which is there either way; while tracing is on
//! its counts are taken once a second, as `vmio top` does. Prints figures, judges nothing.
//!
//! Other load on the machine changes the rate. The processor time of a request (of fio and of the kernel's workers,
//! which completions on a loop device keep busy) hardly depends on it, and bounds the loss: where only processors limit
//! the rate, it falls at most by as much as the time of a request rises.

// The bench starts programs, which the crate itself must not.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]
#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::ffi::OsString;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use vmio_look::backing::Backing;
use vmio_look::trace::BlockTrace;
use vmio_look::trace::calls::CallTrace;
use vmio_model::stats::{Pair, paired_ratio};
use vmio_node::Local;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const FILE_BYTES: u64 = 256 << 20;
/// Time to wait after programs start or end.
const SETTLE: Duration = Duration::from_millis(200);

/// A loop device, detached when dropped.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> Result<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output()?;
        if !output.status.success() {
            return Err(format!("losetup: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(Self(String::from_utf8(output.stdout)?.trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// fio, ended when dropped.
struct Load(Child);

impl Load {
    fn on(file: &Path, engine: &str, depth: u32) -> Result<Self> {
        let child = Command::new("fio")
            .args(["--name=load", "--thread", "--rw=randread", "--bs=4k", "--direct=1", "--time_based"])
            .args(["--runtime=3600".to_owned(), format!("--iodepth={depth}"), format!("--size={FILE_BYTES}")])
            .args([format!("--ioengine={engine}"), format!("--filename={}", file.display())])
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads that a disk has completed: the first figure of Documentation/block/stat.rst.
fn reads(disk: &str) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/sys/block/{disk}/stat"))?;
    Ok(stat.split_whitespace().next().ok_or("empty stat")?.parse()?)
}

/// Nanoseconds on a processor so far, by thread: of fio's threads and of the kernel's workers
/// (schedstat in proc(5) and Documentation/scheduler/sched-stats.rst).
fn on_processor(fio: u32) -> Result<BTreeMap<OsString, f64>> {
    let mut all = BTreeMap::new();
    let mut add = |thread: DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        all.extend(text.split(' ').next().and_then(|n| n.parse().ok()).map(|ns| (thread.file_name(), ns)));
    };
    std::fs::read_dir(format!("/proc/{fio}/task"))?.flatten().for_each(&mut add);
    for process in std::fs::read_dir("/proc")?.flatten() {
        let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        if name.starts_with("kworker/") {
            add(process);
        }
    }
    Ok(all)
}

/// What is loaded meanwhile.
enum Tracing {
    Blocks(BlockTrace),
    Calls(CallTrace),
}

impl Tracing {
    fn start(fio: u32, calls: bool) -> Result<Self> {
        let here = Local::new();
        if !calls {
            return Ok(Self::Blocks(BlockTrace::start(&here)?));
        }
        let mut trace = CallTrace::start(&here)?;
        trace.watch(&BTreeSet::from([fio]))?;
        Ok(Self::Calls(trace))
    }

    fn take(&mut self) -> Result<()> {
        match self {
            Self::Blocks(trace) => drop(trace.take()?),
            Self::Calls(trace) => drop(trace.take()?),
        }
        Ok(())
    }

    fn lost(&self) -> u64 {
        match self {
            Self::Blocks(trace) => trace.lost(),
            Self::Calls(trace) => trace.lost(),
        }
    }
}

/// Requests a second, and nanoseconds of processor time a request.
fn measure(disk: &str, fio: u32, seconds: u32, mut trace: Option<Tracing>) -> Result<[f64; 2]> {
    sleep(SETTLE);
    let (start, before, cpu) = (Instant::now(), reads(disk)?, on_processor(fio)?);
    for _ in 0..seconds {
        sleep(Duration::from_secs(1));
        if let Some(trace) = &mut trace {
            trace.take()?;
        }
    }
    let (requests, elapsed) = (reads(disk)? - before, start.elapsed());
    // A worker that ended takes its earlier time with it.
    let spent = on_processor(fio)?.iter().map(|(thread, ns)| ns - cpu.get(thread).unwrap_or(&0.0)).sum::<f64>();
    if let Some(lost) = trace.map(|t| t.lost()).filter(|n| *n > 0) {
        println!("lost: {lost}");
    }
    Ok([requests / elapsed.as_secs_f64(), spent / requests.max(1.0)])
}

fn main() -> Result<()> {
    let mut numbers = std::env::args().filter_map(|a| a.parse::<u32>().ok());
    let (pairs, seconds) = (numbers.next().unwrap_or(12), numbers.next().unwrap_or(3));
    let calls = std::env::args().any(|word| word == "calls");
    let (engine, depths): (&str, &[u32]) = if calls { ("psync", &[1]) } else { ("libaio", &[32, 1]) };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let file = dir.path().join("load");
    std::fs::write(&file, vec![0x5a; FILE_BYTES as usize])?;
    let device = Loop::over(&file)?;
    let loop_disk = device.0.file_name().and_then(|n| n.to_str()).ok_or("losetup names no device")?.to_owned();
    let backing = Backing::of(&Local::new(), &file)?;
    let disk = backing.leaves.keys().next().ok_or("the disk of this directory is not visible")?.clone();

    for (what, path, disk) in
        [("page cache behind a loop device", &device.0, &loop_disk), (&*format!("direct on {disk}"), &file, &disk)]
    {
        for &depth in depths {
            let load = Load::on(path, engine, depth)?;
            let fio = load.0.id();
            let tracing = |on: bool| on.then(|| Tracing::start(fio, calls)).transpose();
            sleep(Duration::from_secs(2));
            let mut all = [Vec::new(), Vec::new()];
            for pair in 0..pairs {
                // The order alternates, so that a drift affects both alike.
                let first = measure(disk, fio, seconds, tracing(pair % 2 == 1)?)?;
                let second = measure(disk, fio, seconds, tracing(pair % 2 == 0)?)?;
                let (base, test) = if pair % 2 == 1 { (second, first) } else { (first, second) };
                for (i, figures) in all.iter_mut().enumerate() {
                    figures.push(Pair { boot: pair, base: base[i], test: test[i] });
                }
            }
            println!("4 KiB random reads, depth {depth}, {what}, {pairs} pairs of {seconds} s:");
            for (what, figures) in ["requests/s", "processor ns a request"].iter().zip(&all) {
                let mean = |side: fn(&Pair) -> f64| figures.iter().map(side).sum::<f64>() / f64::from(pairs);
                let ratio = paired_ratio(figures).ok_or("no requests")?;
                let interval = ratio.interval.map(|i| format!("{:.4} to {:.4}", i.low, i.high)).unwrap_or_default();
                let (base, test) = (mean(|p| p.base), mean(|p| p.test));
                println!("  {what:<24} {base:8.0} without, {test:8.0} with, ratio {:.4} ({interval})", ratio.value);
            }
        }
    }
    Ok(())
}
