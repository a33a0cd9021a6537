//! What can be tried without tracefs: finding it and the disks, whose a request is, and events
//! as a kernel wrote them. `tests/root_watch.rs` tries the rest.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::gentle::fake::Fake;
use crate::gentle::neighbours::Kind;

fn traced(fake: Fake, place: &str) -> Fake {
    EVENTS
        .iter()
        .fold(fake, |f, e| f.file(&format!("{place}/events/block/{e}/enable"), "0"))
        .file(&format!("{place}/trace_pipe"), "")
        .file(&format!("{place}/instances/other/trace_pipe"), "")
}

fn disk() -> Fake {
    Fake::default().file("/sys/dev/block/254:0/dev", "254:0\n")
}

fn why(result: Result<Plan, WatchError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn tracefs_is_found_in_both_places_and_its_lack_is_told() {
    let plan = Plan::new(&traced(disk(), TRACEFS[1]), "c1", (254, 0)).unwrap();
    assert_eq!(plan.instance(), Path::new("/sys/kernel/debug/tracing/instances/vmio-c1"));
    let plan = Plan::new(&traced(traced(disk(), TRACEFS[1]), TRACEFS[0]), "c1", (254, 0)).unwrap();
    assert_eq!(plan.instance(), Path::new("/sys/kernel/tracing/instances/vmio-c1"));
    assert!(why(Plan::new(&disk(), "c1", (254, 0))).contains("mount -t tracefs nodev /sys/kernel/tracing"));
    let no_events = disk().file("/sys/kernel/tracing/trace_pipe", "").file("/sys/kernel/tracing/instances/x/y", "");
    assert!(why(Plan::new(&no_events, "c1", (254, 0))).contains("no tracepoint block:block_bio_queue"));
    for cookie in ["", "../x", "a b"] {
        assert!(why(Plan::new(&traced(disk(), TRACEFS[0]), cookie, (254, 0))).contains("cookie"));
    }
}

#[test]
fn partitions_and_layers_lead_to_disks() {
    let fake = traced(disk(), TRACEFS[0])
        .file("/sys/dev/block/254:1/partition", "1\n")
        .file("/sys/dev/block/254:1/../dev", "254:0\n")
        .file("/sys/dev/block/8:0/dev", "8:0\n")
        .file("/sys/dev/block/253:0/slaves/vda1/dev", "254:1\n")
        .file("/sys/dev/block/253:0/slaves/sda/dev", "8:0\n")
        .file("/sys/dev/block/253:1/slaves/dm-0/dev", "253:0\n");
    let disks = |dev| Plan::new(&fake, "c", dev).unwrap().disks().to_vec();
    assert_eq!(disks((254, 0)), [(254, 0)]);
    assert_eq!(disks((254, 1)), [(254, 0)]);
    assert_eq!(disks((253, 1)), [(8, 0), (254, 0)]);
    assert!(why(Plan::new(&fake, "c", (0, 45))).contains("0:45 is no block device"));
}

#[test]
fn only_instances_of_vmio_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    for wrong in ["instances/other", "vmio-x", "elsewhere/vmio-x"] {
        let path = dir.path().join(wrong);
        fs::create_dir_all(&path).unwrap();
        assert_eq!(remove_instance(&path).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(path.exists());
    }
    let path = dir.path().join("instances/vmio-x");
    fs::create_dir(&path).unwrap();
    remove_instance(&path).unwrap();
    assert!(!path.exists());
    remove_instance(&path).unwrap();
}

/// Lines as Linux 6.18 wrote them for fio (4 KiB at depth 8, then 1 MiB at depth 2, which the
/// device splits into 2040 and 8 sectors), with a loss early on.
#[test]
fn recorded_events_give_latencies() {
    let text = include_str!("../../tests/fixtures/block_trace_6.18.txt");
    let guest = |pid: u32| Neighbour { pid, kind: Kind::Qemu, name: String::new(), threads: vec![pid] };
    let mut state = State { guests: vec![guest(24802), guest(24808)], ..State::default() };
    let limits = Limits::default();
    let queued = text.lines().filter(|l| l.contains("block_bio_queue") && l.contains("fio-2480")).count() as u64;
    for event in text.lines().filter_map(parse_line) {
        state.take(&event, &limits);
    }
    // Nothing is pending at the end but what the depths allow, and nothing went astray.
    let pending = state.matcher.forget() as u64;
    assert!(pending <= 10, "{pending}");
    assert!(state.counts.given_up > 0, "{:?}", state.counts);
    assert!(state.counts.requests > 100, "{:?}", state.counts);
    assert_eq!(state.counts.requests + state.counts.given_up + pending, queued);
    assert_eq!(state.counts.foreign, text.lines().filter(|l| l.contains("fio-24798")).count() as u64);
}

#[test]
fn a_thread_is_its_processes() {
    let me = std::process::id();
    let guest = Neighbour { pid: me, kind: Kind::Qemu, name: String::new(), threads: vec![] };
    let mut state = State { guests: vec![guest], ..State::default() };
    let tid = thread::spawn(|| u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap());
    let mine = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
    assert_ne!(mine, me, "tests run in threads of their own");
    assert_eq!(state.owner_of(mine, 0.0), Some(0));
    assert_eq!(state.owner_of(1, 0.0), None);
    // One that has ended cannot be asked any more.
    let gone = tid.join().unwrap();
    assert_eq!(state.owner_of(gone, 0.0), None);
    // A thread named beforehand (Xen's back end has no process of its own) needs no asking.
    state.guests[0].threads.push(gone);
    assert_eq!(state.owner_of(gone, 1.0), None, "remembered for a while");
    assert_eq!(state.owner_of(gone, REMEMBER), Some(0));
}
