//! The latency watch on the real kernel: fio plays another guest on a modelled disk of the test's own, whose requests take
//! a known time at least and which nobody else works on. Needs root and fio. Where tracefs is not mounted, each test mounts it, in
//! the mount namespace that it has.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use vmio_look::neighbours::{Kind, Neighbour};
use vmio_model::modelled::ModelledDisk;
use vmio_node::{Journal, Local, Servant};
use vmio_rig::disks::modelled::{Modelled, server};
use vmio_rig::disks::targets::{self, Given, Prepared, TargetCtx};
use vmio_rig::gentle::events::Op;
use vmio_rig::gentle::history::{Limits, Verdict};
use vmio_rig::gentle::instance::Plan;
use vmio_rig::gentle::watch::LatencyWatch;
use vmio_testbed::net::run;
use vmio_testbed::{poll_for, poll_until};

/// Seconds that each request takes on the disk, beside the time of its bytes.
const OVERHEAD: f64 = 500e-6;
/// A guest's and another's part of the disk, in MiB.
const PART: u64 = 16;

#[test]
#[ignore = "helper of the others: the disk's server"]
fn helper_server() {
    if let Some(order) = std::env::args().next_back().filter(|last| last.starts_with('{')) {
        std::process::exit(server::serve_as(&order));
    }
}

/// tracefs, mounted where it is not; gone with this.
struct Tracefs(bool);

impl Tracefs {
    fn mounted() -> Self {
        vmio_testbed::must_be_root();
        let lacks = !Path::new("/sys/kernel/tracing/trace_pipe").exists();
        if lacks {
            run(&["mount -t tracefs nodev /sys/kernel/tracing"]);
        }
        Self(lacks)
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        if self.0 {
            run(&["umount /sys/kernel/tracing"]);
        }
    }
}

/// A modelled disk of its own, and what a watch of it needs.
struct Bed {
    journal: Arc<Journal>,
    made: Modelled,
    target: Box<dyn Prepared>,
    plan: Plan,
    dir: tempfile::TempDir,
    _tracefs: Tracefs,
}

impl Bed {
    fn new(name: &str) -> Self {
        let tracefs = Tracefs::mounted();
        let dir = vmio_testbed::scratch();
        let journal = Arc::new(Journal::open(&dir.path().join("state"), "watch").unwrap());
        let node = Local::owned(Arc::clone(&journal));
        let disk = ModelledDisk::parse("200MB/s,overhead=500us,seek=0us,size=128MiB").unwrap();
        let args = ["--ignored", "--exact", "--nocapture", "helper_server"].map(Into::into).to_vec();
        let servant = Servant { program: std::env::current_exe().unwrap(), shown: "vmio-modelled", args };
        let bytes = (2 * PART) << 20;
        let made = Modelled::make((&node, &journal), &disk, (disk.bytes.unwrap(), bytes), dir.path(), servant).unwrap();
        let ctx = TargetCtx {
            node: &node,
            journal: &journal,
            dir: made.dir.clone(),
            pool: None,
            bytes,
            device: Some(Given::Served(made.whole.clone())),
            force: false,
            pace: None,
        };
        let target = targets::find("device").unwrap().prepare(&ctx).unwrap();
        let number = fs::metadata(target.native()).unwrap().rdev();
        let number = (rustix::fs::major(number), rustix::fs::minor(number));
        let plan = Plan::new(&node, &format!("test-{name}-{}", std::process::id()), &[number]).unwrap();
        assert_eq!(plan.disks(), [number], "nobody else's");
        Self { journal, made, target, plan, dir, _tracefs: tracefs }
    }

    /// fio on a part of the disk. It waits until it is told to begin.
    fn fio(&self, part: u64, args: &[&str]) -> Fio {
        let json = self.dir.path().join(format!("{part}.json"));
        let child = Command::new("sh")
            .args(["-c", "read _ && exec fio \"$@\"", "sh"])
            .args(["--name=x", "--thread", "--direct=1", "--group_reporting", "--norandommap", "--lat_percentiles=1"])
            .arg(format!("--filename={}", self.target.native().display()))
            .args([format!("--offset={}m", part * PART), format!("--size={PART}m")])
            .args(["--output-format=json".to_owned(), format!("--output={}", json.display())])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Fio { child, json }
    }

    fn watch(&self, fio: &Fio) -> LatencyWatch {
        let pid = fio.child.id();
        let guest = Neighbour { pid, kind: Kind::Qemu, name: "fio".into(), threads: vec![] };
        let watch = LatencyWatch::start(&self.plan, vec![guest], Limits::default(), &self.journal).unwrap();
        assert!(self.plan.instance().exists());
        watch
    }

    fn remove(self) {
        self.target.remove(&self.journal).unwrap();
        self.made.remove(&self.journal).unwrap();
        assert_eq!(self.journal.close(), [""; 0]);
    }
}

struct Fio {
    child: Child,
    json: PathBuf,
}

impl Fio {
    fn begin(&mut self) {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
    }

    /// Requests done and their median latency in seconds, of reads and of writes.
    fn end(mut self) -> [(u64, f64); 2] {
        assert!(self.child.wait().unwrap().success(), "fio failed");
        let json: serde_json::Value = serde_json::from_slice(&fs::read(&self.json).unwrap()).unwrap();
        ["read", "write"].map(|op| {
            let of = &json["jobs"][0][op];
            (of["total_ios"].as_u64().unwrap(), of["lat_ns"]["percentile"]["50.000000"].as_f64().unwrap_or(0.0) * 1e-9)
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
    let bed = Bed::new("seen");
    for engine in [&["--ioengine=libaio"][..], &["--ioengine=io_uring", "--force_async=1"]] {
        let pattern = ["--rw=randrw", "--bs=4k", "--iodepth=4", "--number_ios=600"];
        let mut guest = bed.fio(0, &[engine, &pattern].concat());
        let watch = bed.watch(&guest);
        let mut stranger = bed.fio(1, &["--ioengine=psync", "--rw=randread", "--bs=4k", "--number_ios=200"]);
        guest.begin();
        stranger.begin();
        let [(strange, _), _] = stranger.end();
        let told = guest.end();
        let all = told[0].0 + told[1].0;
        poll_for("all of the guest's requests are seen", || {
            let counts = watch.counts();
            if counts.requests + counts.given_up >= all { Ok(()) } else { Err(counts) }
        });
        let seen = watch.seen();
        let counts = watch.stop().unwrap();
        println!("{engine:?}: fio {told:?}, seen {seen:?}, {counts:?}");
        assert!(!bed.plan.instance().exists(), "the trace instance was left behind");
        assert_eq!(counts.lost_events, 0, "the buffer holds them all");
        assert!(counts.foreign >= strange, "the stranger's requests are foreign");
        // Two at the same place at the same time cannot be told apart.
        assert!(counts.requests <= all && counts.given_up <= all / 50, "{counts:?} of {all}");
        for (op, (ios, median)) in [Op::Read, Op::Write].into_iter().zip(told) {
            let of = seen.iter().find(|s| s.op == op).expect("a direction was not seen").summary;
            assert!(of.requests <= ios && of.requests + counts.given_up >= ios, "{op:?}: {} of {ios}", of.requests);
            // No request is quicker than the disk, and none ends before the kernel says so; a median is known to 4.5 %.
            let known = OVERHEAD * 0.95..=median * 1.06;
            assert!(known.contains(&of.median_seconds), "{op:?}: {} and not in {known:?}", of.median_seconds);
        }
    }
    bed.remove();
}

/// A guest whose requests wait behind a flood is seen to suffer.
#[test]
#[ignore = "root"]
fn a_flood_doubles_the_latency_of_a_guest() {
    let bed = Bed::new("flood");
    let endless = ["--time_based", "--runtime=3600"];
    let own = ["--ioengine=psync", "--rw=randread", "--bs=4k", "--rate_iops=200"];
    let mut guest = bed.fio(0, &[&own[..], &endless].concat());
    let watch = bed.watch(&guest);
    guest.begin();
    // The time compared with must hold some.
    let enough = 2 * Limits::default().before_requests;
    poll_until("the guest works", || watch.counts().requests >= enough);
    watch.mark_load();
    let before = watch.seen();
    // Each request of the guest waits for 32 of the flood's.
    let jobs = ["--ioengine=libaio", "--rw=randrw", "--bs=64k", "--iodepth=32"];
    let mut flood = bed.fio(1, &[&jobs[..], &endless].concat());
    flood.begin();
    let slower = poll_for("the guest is seen to suffer", || match watch.verdict() {
        Verdict::Doubled(slower) => Ok(slower),
        other => Err((other, watch.seen(), watch.counts())),
    });
    println!("before {before:?}, then {slower:?}");
    assert!(watch.label(slower.who).contains("QEMU guest fio"));
    drop((flood, guest, watch));
    assert!(!bed.plan.instance().exists(), "the trace instance was left behind");
    bed.remove();
}

/// An instance whose owner was killed is taken away by its path alone.
#[test]
#[ignore = "root"]
fn what_a_killed_owner_left_is_removed_by_its_path() {
    let bed = Bed::new("killed");
    let instance = bed.plan.instance();
    fs::create_dir(instance).unwrap();
    for event in ["block_bio_queue", "block_rq_complete"] {
        fs::write(instance.join("events/block").join(event).join("enable"), "1").unwrap();
    }
    let refused = LatencyWatch::start(&bed.plan, vec![], Limits::default(), &bed.journal);
    assert!(refused.is_err_and(|e| e.to_string().contains("cannot create")), "took over what it did not make");
    assert!(instance.exists());
    vmio_node::remove_trace_instance(instance).unwrap();
    assert!(!instance.exists());
    bed.remove();
}
