//! Block tracing against fio's own report and the kernel's own counters (/sys/block/DEVICE/stat).

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::Bed;
use libbpf_rs::query::ProgInfoIter;
use vmio_look::backing::Backing;
use vmio_look::trace::{BlockTrace, Error};
use vmio_model::top::{Flow, latency};
use vmio_testbed::{must_be_root, poll_until, skip};

/// Tracing, or the reason why this machine has none, which is then no fault of vmio's.
pub fn tracing() -> Option<BlockTrace> {
    match BlockTrace::start(&vmio_node::Local::new()) {
        Ok(trace) => Some(trace),
        Err(Error::Unmet(why)) => {
            skip(&why.to_string());
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Counters of a disk (Documentation/block/stat.rst): for reads and for writes, requests, bytes and
/// the milliseconds that they took.
fn counters(name: &str) -> [[f64; 3]; 2] {
    let text = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
    let n: Vec<f64> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
    [[n[0], n[2] * 512.0, n[3]], [n[4], n[6] * 512.0, n[7]]]
}

fn device_of(name: &str) -> (u32, u32) {
    let numbers = std::fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap();
    let (major, minor) = numbers.trim().split_once(':').unwrap();
    (major.parse().unwrap(), minor.parse().unwrap())
}

/// `part` of `whole` at most apart.
fn close(what: &str, ours: f64, theirs: f64, part: f64) {
    println!("{what:32} theirs {theirs:14.3}  vmio {ours:14.3}");
    assert!(theirs > 0.0, "{what}: a load that is not there proves nothing");
    assert!((ours - theirs).abs() <= part * theirs, "{what}: theirs {theirs} vmio {ours}");
}

/// The middle of each bucket times its count.
fn mean_of_histogram(flow: &Flow) -> f64 {
    let middle = |b: usize| (latency::floor_us(b) + latency::floor_us(b + 1)) as f64 / 2.0 * 1e-6;
    let sum: f64 = flow.latency.counts.iter().enumerate().map(|(b, &n)| n as f64 * middle(b)).sum();
    sum / flow.requests as f64
}

#[test]
#[ignore = "root"]
fn flows_agree_with_fio_and_with_diskstats() {
    must_be_root();
    let Some(mut trace) = tracing() else { return };
    let bed = Bed::new();
    let (path, _) = bed.losetup("load", 64);
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    // Written out first, so that every read finds its block.
    let mut whole = std::fs::File::options().write(true).open(&path).unwrap();
    whole.write_all(&vec![0x5a; 64 << 20]).unwrap();
    whole.sync_all().unwrap();
    drop(whole);
    for (case, job) in [
        ("mixed at a rate", ["--rw=randrw", "--bs=8k", "--iodepth=4", "--rate_iops=600,300"]),
        ("as fast as it goes", ["--rw=randread", "--bs=4k", "--iodepth=16", "--rate_iops=0"]),
    ] {
        println!("{case}:");
        sleep(Duration::from_millis(500));
        trace.take().unwrap();
        let before = counters(&name);
        let began = Instant::now();
        // One process: what the job's thread does is the process's.
        let fio = Command::new("fio")
            .args(["--name=load", "--thread", "--direct=1", "--ioengine=libaio", "--time_based", "--runtime=3"])
            .args(["--output-format=json", "--lat_percentiles=1", &format!("--filename={}", path.display())])
            .args(job)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = fio.id();
        let output = fio.wait_with_output().unwrap();
        // At most so long: a busy machine lets it end late.
        let most = began.elapsed().as_secs_f64();
        let flows = trace.take().unwrap();
        let after = counters(&name);
        assert!(trace.lost() < 100, "{} lost", trace.lost());
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();

        for (write, key) in [(false, "read"), (true, "write")] {
            let theirs = &report["jobs"][0][key];
            let figure = |path: &str| theirs.pointer(path).unwrap().as_f64().unwrap();
            let own = flows.iter().find(|f| f.pid == pid && f.device == device_of(&name) && f.write == write);
            if figure("/total_ios") == 0.0 {
                assert!(own.is_none_or(|f| f.bytes == 0), "{own:?}");
                continue;
            }
            let own = own.unwrap_or_else(|| panic!("no flow of fio {pid}: {flows:#?}"));
            assert_eq!(own.comm, "fio");
            // fio looks at the device before it starts (a few reads), and leaves out of its report
            // what was in flight at the end.
            close(&format!("{key}: requests, fio"), own.requests as f64, figure("/total_ios"), 0.02);
            close(&format!("{key}: bytes, fio"), own.bytes as f64, figure("/io_bytes"), 0.02);
            let mean = (own.device_seconds + own.queued_seconds) / own.requests as f64;
            // From before fio hands a request over until it has looked at its end. Its completion latency begins only
            // after io_submit(2) has come back, which a request that is on its way does not wait for.
            let whole = figure("/lat_ns/mean") * 1e-9;
            println!("{key}: mean latency             fio    {whole:14.6}  vmio {mean:14.6}");
            assert!(mean < whole * 1.1, "fio {whole} vmio {mean}");
            let [ours, theirs] =
                [own.latency.quantile_seconds(0.5).unwrap(), figure("/lat_ns/percentile/50.000000") * 1e-9];
            assert!(ours > theirs * 0.02, "fio {theirs} vmio {ours}");
            for (share, percentile) in [(0.5, "50.000000"), (0.99, "99.000000")] {
                let ours = own.latency.quantile_seconds(share).unwrap();
                let theirs = figure(&format!("/lat_ns/percentile/{percentile}")) * 1e-9;
                println!("{key}: p{:<27} fio    {theirs:14.6}  vmio {ours:14.6}", share * 100.0);
                assert!(ours <= theirs * 1.3 + 20e-6, "{percentile}: fio {theirs} vmio {ours}");
            }
            assert_eq!(own.latency.requests(), own.requests);
            close(&format!("{key}: mean of the histogram"), mean_of_histogram(own), mean, 0.15);

            // The kernel's own counters hold the requests of everybody.
            let all = flows.iter().filter(|f| f.device == device_of(&name) && f.write == write);
            let sum = |of: fn(&Flow) -> f64| all.clone().map(of).sum::<f64>();
            let kernel: Vec<f64> = (0..3).map(|i| after[write as usize][i] - before[write as usize][i]).collect();
            close(&format!("{key}: requests, diskstats"), sum(|f| f.requests as f64), kernel[0], 0.01);
            close(&format!("{key}: bytes, diskstats"), sum(|f| f.bytes as f64), kernel[1], 0.01);
            // The kernel's clock runs on until it has done its own accounts: a moment a request.
            let seconds = sum(|f| f.device_seconds + f.queued_seconds);
            let slack = 0.05 * seconds + kernel[0] * 10e-6 + 0.05;
            println!("{key}: time in flight           kernel {:14.3}  vmio {seconds:14.3}", kernel[2] / 1000.0);
            assert!((seconds - kernel[2] / 1000.0).abs() <= slack, "kernel {} vmio {seconds}", kernel[2] / 1000.0);
            // Little's law: never more at the device than fio has in flight.
            let depth: f64 = job[2].trim_start_matches("--iodepth=").parse().unwrap();
            assert!(own.device_seconds / most <= depth * 1.1, "{} of {depth} at the device", own.device_seconds / most);
        }
    }
}

/// What a process left in the page cache is written by the kernel.
#[test]
#[ignore = "root"]
fn buffered_writes_are_a_kernel_threads() {
    must_be_root();
    let Some(mut trace) = tracing() else { return };
    let bed = Bed::new();
    let backing = Backing::of(&bed.node, &bed.dir()).unwrap();
    let Some(&disk) = backing.leaves.values().next() else {
        skip("no disk is visible below the test's directory");
        return;
    };
    let file = bed.dir().join("buffered");
    trace.take().unwrap();
    std::fs::write(&file, vec![1; 24 << 20]).unwrap();
    // syncfs(2) wakes the kernel's flusher and waits for it.
    bed.run("sync", &["-f", file.to_str().unwrap()]);
    let flows = trace.take().unwrap();
    std::fs::remove_file(&file).unwrap();
    let flushed: Vec<&Flow> =
        flows.iter().filter(|f| f.pid == 0 && f.write && f.comm.contains("+flush-") && f.device == disk).collect();
    let bytes: u64 = flushed.iter().map(|f| f.bytes).sum();
    println!("{} MiB of 24 by {:?}", bytes >> 20, flushed.iter().map(|f| &f.comm).collect::<Vec<_>>());
    assert!(bytes >= 20 << 20, "{flows:#?}");
}

/// Programs that a process holds.
fn held_by(pid: u32) -> BTreeSet<u32> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = descriptors.filter_map(|d| std::fs::read_to_string(d.path()).ok());
    texts.filter_map(|t| t.lines().find_map(|l| l.strip_prefix("prog_id:")?.trim().parse().ok())).collect()
}

fn in_kernel(programs: &BTreeSet<u32>) -> bool {
    ProgInfoIter::default().any(|p| programs.contains(&p.id))
}

/// The kernel frees them a moment after the last descriptor is closed.
fn are_gone(programs: &BTreeSet<u32>) {
    poll_until("the kernel has freed them", || !in_kernel(programs));
}

const HOLD: &str = "VMIO_TEST_HOLD_TRACE";

/// Not a test of its own: the process that the next one kills.
#[test]
#[ignore = "root"]
fn holds_a_trace_when_asked() {
    if std::env::var_os(HOLD).is_some() {
        let _trace = BlockTrace::start(&vmio_node::Local::new()).unwrap();
        sleep(Duration::from_secs(60));
    }
}

#[test]
#[ignore = "root"]
fn nothing_stays_attached() {
    must_be_root();
    let before = held_by(std::process::id());
    let Some(trace) = tracing() else { return };
    let own: BTreeSet<u32> = held_by(std::process::id()).difference(&before).copied().collect();
    assert!(own.len() >= 3 && in_kernel(&own), "{own:?}");
    drop(trace);
    are_gone(&own);

    let test = std::env::current_exe().unwrap();
    let mut child = Command::new(test)
        .args(["--ignored", "--exact", "root_blocktrace::holds_a_trace_when_asked"])
        .env(HOLD, "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut held = BTreeSet::new();
    poll_until("another process holds as many", || {
        held = held_by(child.id());
        held.len() >= own.len()
    });
    assert!(in_kernel(&held), "{held:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!Path::new(&format!("/proc/{}", child.id())).exists());
    are_gone(&held);
}
