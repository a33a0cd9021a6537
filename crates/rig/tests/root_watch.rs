//! The latency watch on the real kernel: fio plays another guest on the disk of the root file
//! system. Needs root and fio. Where tracefs is not mounted, each test mounts it in a mount
//! namespace of its own, which ends with it.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use vmio_look::neighbours::{Kind, Neighbour};
use vmio_node::{Error, FileIdentity, FileStat, Journal, Local, Reader, Result, SamplePlan, Sampling};
use vmio_rig::gentle::events::Op;
use vmio_rig::gentle::history::{Limits, Verdict};
use vmio_rig::gentle::instance::Plan;
use vmio_rig::gentle::watch::LatencyWatch;

/// This machine, as far as finding tracefs and disks needs it.
struct Here;

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { node: "here".into(), what, path, source }
}

impl Reader for Here {
    vmio_node::made_up_others!();

    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>> {
        Local::new().identity(path)
    }

    fn name(&self) -> &str {
        "here"
    }
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        fs::read(path).map_err(failed("read", path))
    }
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let entries = fs::read_dir(dir).map_err(failed("list", dir))?;
        Ok(entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
    }
    fn stat(&self, path: &Path) -> Result<Option<FileStat>> {
        Ok(fs::metadata(path).ok().map(|m| {
            let dev = (rustix::fs::major(m.dev()), rustix::fs::minor(m.dev()));
            FileStat { mode: m.permissions().mode(), size: m.size(), allocated: m.blocks() * 512, dev, rdev: (0, 0) }
        }))
    }
    fn link(&self, path: &Path) -> Result<Option<std::path::PathBuf>> {
        Ok(fs::read_link(path).ok())
    }
    fn clock_seconds(&self) -> Result<f64> {
        Ok(0.0)
    }
    fn sample(&self, _: &SamplePlan) -> Result<Box<dyn Sampling>> {
        Err(Error::Gone { node: "here".into(), reason: "not needed".into() })
    }
}

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

/// A file of 64 MiB on disk, and a watch of that disk.
struct Bed {
    journal: Journal,
    dir: tempfile::TempDir,
    plan: Plan,
}

impl Bed {
    fn new(name: &str) -> Self {
        tracefs();
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        for file in ["guest", "other"] {
            let path = dir.path().join(file);
            fs::write(&path, vec![0x5a; 64 << 20]).unwrap();
            fs::File::open(&path).unwrap().sync_all().unwrap();
        }
        let dev = Here.stat(dir.path()).unwrap().unwrap().dev;
        let plan = Plan::new(&Here, &format!("test-{name}-{}", std::process::id()), &[dev]).unwrap();
        let journal = Journal::open(&dir.path().join("state"), "watch").unwrap();
        Self { journal, dir, plan }
    }

    fn fio(&self, file: &str, args: &[&str]) -> Fio {
        let json = self.dir.path().join(format!("{file}.json"));
        let child = Command::new("fio")
            .args(["--name=x", "--thread", "--direct=1", "--time_based", "--group_reporting", "--norandommap"])
            .arg(format!("--filename={}", self.dir.path().join(file).display()))
            .args(["--size=64m", "--output-format=json"])
            .arg(format!("--output={}", json.display()))
            .args(args)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Fio { child, json }
    }

    fn watch(&self, fio: &Fio, limits: Limits) -> LatencyWatch {
        let pid = fio.child.id();
        let guest = Neighbour { pid, kind: Kind::Qemu, name: "fio".into(), threads: vec![] };
        let watch = LatencyWatch::start(&self.plan, vec![guest], limits, &self.journal).unwrap();
        assert!(self.plan.instance().exists());
        watch
    }
}

struct Fio {
    child: Child,
    json: PathBuf,
}

impl Fio {
    /// Requests done and their mean completion latency in seconds, of reads and of writes.
    fn end(mut self) -> [(f64, f64); 2] {
        assert!(self.child.wait().unwrap().success(), "fio failed");
        let json: serde_json::Value = serde_json::from_slice(&fs::read(&self.json).unwrap()).unwrap();
        ["read", "write"].map(|op| {
            let of = &json["jobs"][0][op];
            (of["total_ios"].as_f64().unwrap(), of["clat_ns"]["mean"].as_f64().unwrap() * 1e-9)
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
        let pattern = ["--rw=randrw", "--bs=4k", "--iodepth=4", "--runtime=4", "--rate_iops=2000"];
        // It waits for 1 s, so that the watch is there before its first request.
        let guest = bed.fio("guest", &[engine, &pattern, &["--startdelay=1"]].concat());
        let watch = bed.watch(&guest, Limits::default());
        let stranger = bed.fio("other", &["--ioengine=psync", "--rw=randread", "--bs=4k", "--runtime=3"]);
        let [strange, _] = stranger.end();
        let told = guest.end();
        std::thread::sleep(Duration::from_millis(700));
        let seen = watch.seen();
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
        assert!(counts.foreign as f64 >= strange.0 * 0.9, "the stranger's requests are foreign");
        for (op, (ios, mean)) in [Op::Read, Op::Write].into_iter().zip(told) {
            let of = seen.iter().find(|s| s.op == op).expect("a direction was not seen").summary;
            let share = of.requests as f64 / ios;
            assert!((0.9..=1.02).contains(&share), "{op:?}: {share} of fio's requests were seen");
            let ratio = of.median_seconds / mean;
            assert!((0.1..=2.0).contains(&ratio), "{op:?}: median {} against fio's mean {mean}", of.median_seconds);
        }
    }
}

/// A guest whose requests wait behind a flood is seen to suffer.
#[test]
#[ignore = "root"]
fn a_flood_doubles_the_latency_of_a_guest() {
    let bed = Bed::new("flood");
    let guest = bed.fio("guest", &["--ioengine=psync", "--rw=randread", "--bs=4k", "--runtime=40", "--rate_iops=400"]);
    let watch = bed.watch(&guest, Limits::default());
    std::thread::sleep(Duration::from_secs(5));
    watch.mark_load();
    let before = watch.seen();
    // More than a disk takes at once, also where other work leaves fio little time: it ends when it was seen.
    let jobs = ["--ioengine=libaio", "--rw=randrw", "--bs=1m", "--iodepth=64", "--numjobs=4", "--runtime=30"];
    let flood = bed.fio("other", &jobs);
    let mut verdict = watch.verdict();
    for _ in 0..250 {
        if matches!(verdict, Verdict::Doubled(_)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        verdict = watch.verdict();
    }
    drop(flood);
    let counts = watch.counts();
    println!("before {before:?}, then {verdict:?}, {counts:?}");
    let Verdict::Doubled(slower) = verdict else { panic!("not seen: {verdict:?}") };
    assert!(watch.label(slower.who).contains("QEMU guest fio"));
    drop(watch);
    assert!(!bed.plan.instance().exists(), "the trace instance was left behind");
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
}
