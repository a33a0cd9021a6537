//! The latency watch on the real kernel: fio plays another guest on a loop device. Needs root and fio. Where tracefs is not
//! mounted, each test mounts it in a mount namespace of its own, which ends with it.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::Bed;
use vmio_look::neighbours::{Kind, Neighbour};
use vmio_rig::gentle::events::Op;
use vmio_rig::gentle::history::{GuestLatency, Limits, Verdict};
use vmio_rig::gentle::instance::Plan;
use vmio_rig::gentle::watch::LatencyWatch;
use vmio_testbed::{poll_for, poll_until};

/// Mounts tracefs where it is not, for this thread and what it starts only.
fn tracefs() {
    let place = "/sys/kernel/tracing";
    if Path::new(place).join("trace_pipe").exists() {
        return;
    }
    // SAFETY: a mount namespace of its own changes no memory and no file descriptor of this thread.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.expect("needs root");
    let mount = |args: &[&str]| assert!(Command::new("mount").args(args).status().unwrap().success(), "mount {args:?}");
    mount(&["--make-rprivate", "/"]);
    mount(&["-t", "tracefs", "nodev", place]);
}

/// A disk of two parts, 64 MiB each, that only this test uses, and a watch of it.
struct Watched {
    bed: Bed,
    disk: PathBuf,
    plan: Plan,
}

/// Where on the disk somebody works.
#[derive(Clone, Copy)]
enum Part {
    Guest,
    Other,
}

impl Watched {
    fn new(name: &str) -> Self {
        tracefs();
        let bed = Bed::new();
        let (disk, _) = bed.losetup("disk", 128);
        let number = fs::metadata(&disk).unwrap().rdev();
        let dev = (rustix::fs::major(number), rustix::fs::minor(number));
        let plan = Plan::new(&bed.node, &format!("test-{name}-{}", std::process::id()), &[dev]).unwrap();
        Self { bed, disk, plan }
    }

    /// Starts at once.
    fn fio(&self, part: Part, args: &[&str]) -> Fio {
        let mut fio = self.fio_later(part, args);
        fio.go();
        fio
    }

    /// Its process is there, and becomes fio when it is told.
    fn fio_later(&self, part: Part, args: &[&str]) -> Fio {
        let (file, offset) = match part {
            Part::Guest => ("guest.json", "--offset=0"),
            Part::Other => ("other.json", "--offset=64m"),
        };
        let json = self.bed.dir().join(file);
        let child = Command::new("sh")
            .args(["-c", "read go; exec fio \"$@\"", "sh"])
            .args(["--name=x", "--thread", "--direct=1", "--time_based", "--group_reporting", "--norandommap"])
            .arg(format!("--filename={}", self.disk.display()))
            .args(["--size=64m", offset, "--output-format=json", "--lat_percentiles=1"])
            .arg(format!("--output={}", json.display()))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Fio { child, json }
    }

    fn watch(&self, fio: &Fio, limits: Limits) -> LatencyWatch {
        let pid = fio.child.id();
        let guest = Neighbour { pid, kind: Kind::Qemu, name: "fio".into(), threads: vec![] };
        let watch = LatencyWatch::start(&self.plan, vec![guest], limits, &self.bed.journal).unwrap();
        assert!(self.plan.instance().exists());
        watch
    }
}

const OPS: [Op; 2] = [Op::Read, Op::Write];

/// How many requests of this direction were seen.
fn requests(seen: &[GuestLatency], op: Op) -> u64 {
    seen.iter().find(|s| s.op == op).map_or(0, |s| s.summary.requests)
}

struct Fio {
    child: Child,
    json: PathBuf,
}

impl Fio {
    fn go(&mut self) {
        self.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }

    /// Requests done and their median latency in seconds, of reads and of writes; 0 of none. The whole one: a request
    /// may be done before `io_submit(2)` has come back, with which the completion latency begins.
    fn end(mut self) -> [(f64, f64); 2] {
        assert!(self.child.wait().unwrap().success(), "fio failed");
        let json: serde_json::Value = serde_json::from_slice(&fs::read(&self.json).unwrap()).unwrap();
        ["read", "write"].map(|op| {
            let of = &json["jobs"][0][op];
            (of["total_ios"].as_f64().unwrap(), of["lat_ns"]["percentile"]["50.000000"].as_f64().unwrap_or(0.0) * 1e-9)
        })
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All requests of a guest are seen, with the latency that it sees itself, and nobody else's;
/// also those that io_uring hands to its worker threads.
#[test]
#[ignore = "root"]
fn a_guests_requests_are_seen_as_it_sees_them() {
    let bed = Watched::new("seen");
    for engine in [&["--ioengine=libaio"][..], &["--ioengine=io_uring", "--force_async=1"]] {
        let pattern = ["--rw=randrw", "--bs=4k", "--iodepth=4", "--runtime=4", "--rate_iops=2000"];
        // The watch is there before its first request.
        let mut guest = bed.fio_later(Part::Guest, &[engine, &pattern].concat());
        let watch = bed.watch(&guest, Limits::default());
        guest.go();
        let stranger =
            bed.fio(Part::Other, &["--ioengine=psync", "--rw=randread", "--bs=4k", "--runtime=3", "--rate_iops=2000"]);
        let [strange, _] = stranger.end();
        let told = guest.end();
        let seen = poll_for("most of the guest's requests were seen", || {
            let seen = watch.latencies();
            let share = |op, ios| requests(&seen, op) as f64 / ios;
            let enough = OPS.into_iter().zip(told).all(|(op, (ios, _))| share(op, ios) >= 0.9);
            if enough { Ok(seen) } else { Err((seen, watch.counts())) }
        });
        poll_for("the stranger's requests are foreign", || {
            let counts = watch.counts();
            if counts.foreign as f64 >= strange.0 * 0.9 { Ok(()) } else { Err((counts, strange)) }
        });
        let verdict = watch.verdict();
        let counts = watch.stop().unwrap();
        println!("{engine:?}: fio {told:?}, seen {seen:?}, {counts:?}, {verdict:?}");
        let each = counts.cpu_seconds / (counts.requests + counts.foreign) as f64;
        println!(
            "the watch took {:.1} us of processor time a request, {:.1} % of a core at 10,000 a second",
            each * 1e6,
            each * 1e6
        );
        assert!(!bed.plan.instance().exists(), "the trace instance was left behind");
        for (op, (ios, median)) in OPS.into_iter().zip(told) {
            let of = seen.iter().find(|s| s.op == op).unwrap().summary;
            let share = of.requests as f64 / ios;
            assert!(share <= 1.02, "{op:?}: {share} of fio's requests were seen");
            // A request is a part of what fio waits for; the rest is fio's own way there and back, which grows where
            // processors are busy.
            let ratio = of.median_seconds / median;
            assert!((0.02..=1.5).contains(&ratio), "{op:?}: {} s against fio's {median} s", of.median_seconds);
        }
    }
}

/// A guest whose requests wait behind a flood is seen to suffer.
#[test]
#[ignore = "root"]
fn a_flood_doubles_the_latency_of_a_guest() {
    let bed = Watched::new("flood");
    let guest =
        bed.fio(Part::Guest, &["--ioengine=psync", "--rw=randread", "--bs=4k", "--runtime=900", "--rate_iops=400"]);
    let watch = bed.watch(&guest, Limits::default());
    poll_until("its latency is known", || requests(&watch.latencies(), Op::Read) >= 1000);
    watch.mark_load();
    let before = watch.latencies();
    // More than a disk takes at once, also where other work leaves fio little time: it ends when it was seen.
    let jobs = ["--ioengine=libaio", "--rw=randrw", "--bs=1m", "--iodepth=64", "--numjobs=4", "--runtime=900"];
    let flood = bed.fio(Part::Other, &jobs);
    let slower = poll_for("the flood is seen", || match watch.verdict() {
        Verdict::Doubled(slower) => Ok(slower),
        other => Err(other),
    });
    drop(flood);
    let counts = watch.counts();
    println!("before {before:?}, then {slower:?}, {counts:?}");
    assert!(watch.label(slower.who).contains("QEMU guest fio"));
    drop(watch);
    assert!(!bed.plan.instance().exists(), "the trace instance was left behind");
}

/// An instance whose owner was killed is taken away by its path alone.
#[test]
#[ignore = "root"]
fn what_a_killed_owner_left_is_removed_by_its_path() {
    let bed = Watched::new("killed");
    let instance = bed.plan.instance();
    fs::create_dir(instance).unwrap();
    for event in ["block_bio_queue", "block_rq_complete"] {
        fs::write(instance.join("events/block").join(event).join("enable"), "1").unwrap();
    }
    let refused = LatencyWatch::start(&bed.plan, vec![], Limits::default(), &bed.bed.journal);
    assert!(refused.is_err_and(|e| e.to_string().contains("cannot create")), "took over what it did not make");
    assert!(instance.exists());
    vmio_node::remove_trace_instance(instance).unwrap();
    assert!(!instance.exists());
}
