//! A modelled disk from its making to its end: its server is this very program, run again as one ignored test.

#![allow(clippy::unwrap_used)]

use crate::common;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use vmio_look::backing::Backing;
use vmio_model::modelled::ModelledDisk;
use vmio_node::helper::Helper;
use vmio_node::{Journal, Local};
use vmio_rig::disks::modelled::{Modelled, server};
use vmio_rig::disks::targets::{self, Given, State, TargetCtx};

const MIB: usize = 1 << 20;

/// This program as the server. libtest takes the order, which is its last argument, for the name of a test.
fn helper() -> Helper {
    let args = ["--ignored", "--exact", "--nocapture", "root_modelled::helper_server"];
    Helper { program: std::env::current_exe().unwrap(), ..Helper::new(c"vmio-modelled", &args) }
}

#[test]
#[ignore = "helper of the others"]
fn helper_server() {
    if let Some(order) = std::env::args().next_back().filter(|last| last.starts_with('{')) {
        std::process::exit(server::serve_as(&order));
    }
}

fn make(journal: &Arc<Journal>, dir: &Path, text: &str) -> Modelled {
    let node = Local::owned(Arc::clone(journal));
    let disk = ModelledDisk::parse(text).unwrap();
    Modelled::make((&node, journal), &disk, (disk.bytes.unwrap(), 32 << 20), dir, helper()).unwrap()
}

/// Requests and bytes of a whole disk so far: reads, then writes (kernel document ABI/stable/sysfs-block, `stat`).
fn counters(device: &Path) -> [u64; 4] {
    let name = device.file_name().unwrap().to_str().unwrap();
    let text = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
    let all: Vec<u64> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
    [all[0], all[2] * 512, all[4], all[6] * 512]
}

fn direct(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).custom_flags(libc_direct()).open(path).unwrap()
}

fn libc_direct() -> i32 {
    rustix::fs::OFlags::DIRECT.bits().cast_signed()
}

/// A megabyte at an address that direct I/O takes.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn of(byte: u8) -> Self {
        let bytes = vec![byte; MIB + 4096];
        let start = bytes.as_ptr().align_offset(4096);
        Self(bytes, start)
    }
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.0[self.1..self.1 + MIB]
    }
}

/// What of a disk is still there.
fn traces(dir: &Path) -> Vec<String> {
    let below = dir.display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|l| l.contains(&below)).map(str::to_owned);
    let loops = common::loops_over(dir).into_iter().map(|l| l.display().to_string());
    let left = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).filter(|p| !p.ends_with("journals"));
    mounts.chain(loops).chain(left.map(|p| p.display().to_string())).collect()
}

fn bed() -> tempfile::TempDir {
    vmio_testbed::must_be_root();
    vmio_testbed::scratch()
}

#[test]
#[ignore = "root"]
fn requests_take_what_the_model_says() {
    let bed = bed();
    let dir = bed.path().canonicalize().unwrap();
    let journal = Arc::new(Journal::open(&dir.join("journals"), "run").unwrap());
    let mut made = make(&journal, &dir, "50MB/s,overhead=200us,seek=2ms,size=192MiB");
    let node = Local::owned(Arc::clone(&journal));
    // What lies on it is followed down to the loop device, which counts where FUSE has nothing.
    let file = made.dir.join("data");
    let open = direct(&file);
    let backing = Backing::below(&node, &file).unwrap();
    let name = made.device.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!((backing.leaves.keys().collect::<Vec<_>>(), &backing.not_visible), (vec![&name], &None));
    assert!(backing.describe().contains("own counters, for fuse.vmio"), "{}", backing.describe());

    let mut data = Aligned::of(7);
    let before = (counters(&made.device), made.kept().unwrap(), Instant::now());
    for at in 0..16 {
        open.write_all_at(data.bytes(), (at * MIB) as u64).unwrap();
    }
    open.sync_all().unwrap();
    for at in (0..16).rev() {
        data.bytes().fill(0);
        open.read_exact_at(data.bytes(), (at * MIB) as u64).unwrap();
        assert!(data.bytes().iter().all(|b| *b == 7), "what was written is read");
    }
    let seconds = before.2.elapsed().as_secs_f64();
    let (after, kept) = (counters(&made.device), made.kept().unwrap());
    let [reads, read_bytes, writes, written_bytes] = std::array::from_fn(|i| after[i] - before.0[i]);
    let moved = read_bytes + written_bytes;
    assert!(read_bytes >= 16 << 20 && written_bytes >= 16 << 20, "{after:?}");
    // The kernel may split a request of the disk's on its way to the server, and merges none.
    let served = kept.requests - before.1.requests;
    assert!(served >= reads + writes, "{served} of {}", reads + writes);
    // Deadlines are a lower bound, whatever else the machine does.
    let least = moved as f64 / 50e6 + (reads + writes) as f64 * 200e-6 + 16.0 * 2e-3;
    assert!(seconds >= least, "{seconds} s for {moved} bytes in {} requests: {least} s", reads + writes);

    // A target of the place that holds files, on it, in a scratch directory that the journal holds as in a run.
    let scratch = made.dir.join("scratch");
    journal.scratch_dir_in(&File::open(&made.dir).unwrap().into(), &scratch).unwrap();
    let ctx = TargetCtx {
        node: &node,
        journal: &journal,
        dir: scratch,
        pool: None,
        bytes: 32 << 20,
        device: None,
        force: false,
        pace: None,
        native: true,
        host: None,
        peer: None,
    };
    let mut target = targets::find("sparse").unwrap().prepare(&ctx).unwrap();
    assert_eq!(target.reset(State::Filled).unwrap(), 32 << 20);
    target.remove(&journal).unwrap();
    drop(open);

    // The target `device` lies on the same disk, with no file system between: each request is one of the server's, and
    // a flush writes nothing else.
    let ctx = TargetCtx { device: Some(Given::Served(made.whole.clone())), ..ctx };
    let mut target = targets::find("device").unwrap().prepare(&ctx).unwrap();
    assert_eq!((target.bytes(), target.reset(State::Filled).unwrap()), (32 << 20, 0), "memory needs no filling");
    let device = target.native().to_owned();
    let backing = Backing::below(&node, &device).unwrap();
    assert!(backing.not_visible.is_none() && !backing.leaves.contains_key(&name), "{backing:?}");
    let below = made.kept().unwrap().requests;
    let before = counters(&device);
    let open = direct(&device);
    for at in 0..16 {
        open.write_all_at(&data.bytes()[..65536], at * 65536).unwrap();
        open.sync_all().unwrap();
    }
    let after = counters(&device);
    // The kernel counts flushes among writes.
    assert_eq!((after[2] - before[2], after[3] - before[3]), (32, 16 * 65536));
    assert_eq!(made.kept().unwrap().requests - below, 32, "as many writes as flushes");
    drop(open);
    target.remove(&journal).unwrap();
    let kept = made.remove(&journal).unwrap();
    assert!(kept.requests > served && kept.late_requests <= kept.requests, "{kept:?}");
    assert_eq!(journal.close(), Vec::<String>::new());
    assert_eq!(traces(&dir), Vec::<String>::new());
}

#[test]
#[ignore = "root"]
fn a_disk_in_use_goes_with_its_owner() {
    let bed = bed();
    let dir = bed.path().canonicalize().unwrap();
    let journal = Arc::new(Journal::open(&dir.join("journals"), "run").unwrap());
    let made = make(&journal, &dir, "1MB/s,size=64MiB");
    let (file, _) = journal.scratch_file(&made.dir.join("data")).unwrap();
    file.write_all_at(&vec![1; 8 * MIB], 0).unwrap();
    drop(file);
    // Eight seconds of the model are still to be written.
    assert_eq!(journal.close(), Vec::<String>::new());
    assert_eq!(traces(&dir), Vec::<String>::new());
}

/// What a child does that is killed: makes a disk, has a request under way that takes the model 10 s, and waits.
#[test]
#[ignore = "helper of the others"]
fn helper_inner() {
    let Ok(dir) = std::env::var("VMIO_TEST_MODELLED") else { return };
    let dir = PathBuf::from(dir);
    let journal = Arc::new(Journal::open(&dir.join("journals"), "run").unwrap());
    let made = make(&journal, &dir, "100kB/s,overhead=1s,seek=1s,size=64MiB");
    let (file, _) = journal.scratch_file(&made.dir.join("data")).unwrap();
    file.write_all_at(&vec![1; MIB], 0).unwrap();
    std::thread::spawn(move || file.sync_all());
    std::thread::sleep(Duration::from_millis(300));
    let mut out = std::io::stdout();
    writeln!(out, "made {}", made.pid()).unwrap();
    out.flush().unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

/// A child with a disk, and its server's number.
fn child(dir: &Path) -> (Child, u32) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "root_modelled::helper_inner", "--nocapture"])
        .env("VMIO_TEST_MODELLED", dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let pid = lines.find_map(|l| l.split_once("made ")?.1.trim().parse().ok()).expect("no disk was made");
    (child, pid)
}

#[test]
#[ignore = "root"]
fn after_a_kill_the_next_start_takes_the_disk_away() {
    let bed = bed();
    let dir = bed.path().canonicalize().unwrap();
    let (mut child, server) = child(&dir);
    assert_ne!(traces(&dir), Vec::<String>::new());
    // As its reaper does: while the server lives, what the model has under way holds the dying owner.
    child.kill().unwrap();
    assert!(Command::new("kill").args(["-9", &server.to_string()]).status().unwrap().success());
    child.wait().unwrap();
    let done = vmio_node::recover(&dir.join("journals"));
    assert_eq!(done.failed, Vec::<String>::new(), "{done:?}");
    assert!(done.undone.iter().any(|u| u.contains("disk of vmio's own on")), "{done:?}");
    assert_eq!(traces(&dir), Vec::<String>::new());
    assert_eq!(vmio_node::leftovers(&dir.join("journals")), Vec::<String>::new());
}

#[test]
#[ignore = "root"]
fn a_dead_server_holds_nobody() {
    let bed = bed();
    let dir = bed.path().canonicalize().unwrap();
    let journal = Arc::new(Journal::open(&dir.join("journals"), "run").unwrap());
    let mut made = make(&journal, &dir, "1MB/s,size=64MiB");
    let file = direct(&made.dir.join("data"));
    assert!(Command::new("kill").args(["-9", &made.pid().to_string()]).status().unwrap().success());
    // Fails, and does not hang: the connection ended with the server.
    assert!(file.write_all_at(Aligned::of(1).bytes(), 0).and_then(|()| file.sync_all()).is_err());
    assert!(made.kept().is_err());
    drop(file);
    drop(made);
    assert_eq!(journal.close(), Vec::<String>::new());
    assert_eq!(traces(&dir), Vec::<String>::new());
}
