//! What can be tried without tracefs: whose a request is, and events as a kernel wrote them. `tests/root_watch.rs` tries the rest.
#![allow(clippy::unwrap_used)]

use vmio_look::neighbours::Kind;

use super::*;

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
