//! Memory of guests on a machine of the tests: who gives, who gets, and what undo leaves.

#![allow(clippy::unwrap_used)]

use vmio_model::memory::Why;
use vmio_model::policy::assign::Interface;

use super::fake::{Fake, FakeGuest, MIB};
use super::*;
use crate::testing::form_stays;

/// Leaves memory unused.
const GIVER: u32 = 10;
/// Reads from the host's cache.
const READER: u32 = 11;
/// Between two checks.
const STEP: Duration = Duration::from_secs(10);

fn policy(of_giver: &str, of_reader: &str) -> Policy {
    crate::testing::policy(&format!(
        "[uplink.eth0]\ncapacity = \"1Gbit\"\n[class.giver]\n{of_giver}[class.reader]\n{of_reader}\
         [[interface]]\nmatch = {{ name = \"tap{GIVER}\" }}\nclass = \"giver\"\n\
         [[interface]]\nmatch = {{ name = \"tap{READER}\" }}\nclass = \"reader\"\n"
    ))
}

const MOVED: &str = "memory_min = \"256MiB\"\nmemory_move = true\n";
const TOLD: &str = "memory_min = \"256MiB\"\n";

fn guests() -> Vec<GuestInfo> {
    let guest = |pid: u32, name: &str| GuestInfo {
        name: name.into(),
        interfaces: vec![Interface { index: pid, name: format!("tap{pid}"), ..Interface::default() }],
        pids: vec![pid],
        memory_bytes: None,
    };
    vec![guest(GIVER, "giver"), guest(READER, "reader")]
}

/// A host with nothing to spare: its reserve is all that is available. The reader has half of what it was started with.
fn host() -> Fake {
    let mut reader = FakeGuest::of(2048, 700);
    (reader.actual_bytes, reader.cache_bytes) = (1024 * MIB, 300 * MIB);
    Fake::with(&[(GIVER, FakeGuest::of(2048, 300)), (READER, reader)], 1024)
}

/// Checks so often, with the reader reading from the host's cache between two of them.
fn run(memory: &mut Memory<Fake>, host: &Fake, policy: &Policy, from: &mut Duration, times: usize) {
    for _ in 0..times {
        host.change(READER, |guest| guest.reads.asked_bytes += 1 << 30);
        *from += STEP;
        memory.check(policy, &guests(), *from);
    }
}

#[test]
fn what_is_unused_goes_to_whom_it_helps_and_comes_back() {
    let (host, log, mut now) = (host(), UndoLog::memory(), Duration::ZERO);
    let policy = policy(MOVED, MOVED);
    let mut memory = Memory::over(host.clone(), &log, true).unwrap();
    run(&mut memory, &host, &policy, &mut now, 60);
    let (giver, reader) = (host.actual_mib(GIVER), host.actual_mib(READER));
    assert!(giver < 2048 && reader > 1024, "{giver} {reader}");
    // Never below what it works in, nor beyond what it was started with.
    assert!(giver >= 300 && reader <= 2048, "{giver} {reader}");
    assert!(memory.status().moves >= 2 && memory.holds());
    // It is in need: it gets all back, whatever the other one reads.
    host.change(GIVER, |guest| (guest.used_bytes, guest.major_faults) = (1900 * MIB, 100_000));
    for _ in 0..60 {
        host.change(GIVER, |guest| guest.major_faults += 100_000);
        run(&mut memory, &host, &policy, &mut now, 1);
    }
    assert_eq!(host.actual_mib(GIVER), 2048);
    // Undo, by another process.
    drop(memory);
    let mut memory = Memory::over(host.clone(), &log, true).unwrap();
    assert_eq!(memory.undo(), [] as [String; 0]);
    assert_eq!((host.actual_mib(GIVER), host.actual_mib(READER)), (2048, 1024));
    assert!(!memory.holds() && log.is_empty());
    assert!(host.guests.borrow().values().all(|guest| guest.polling_seconds == 0));
}

/// The first check has drivers report, the second is the first that knows; from then on it is a minute.
#[test]
fn a_guest_that_was_never_moved_does_not_rest_first() {
    let (host, log, mut now) = (host(), UndoLog::memory(), Duration::ZERO);
    let policy = policy(MOVED, MOVED);
    let mut memory = Memory::over(host.clone(), &log, true).unwrap();
    run(&mut memory, &host, &policy, &mut now, 7);
    assert!(host.aims.borrow().is_empty());
    let stay = |memory: &Memory<Fake>| [0, 1].map(|at: usize| memory.status().guests[at].stays);
    let (unused, reads) = (Stays::UnusedTooShort { wait: STEP }, Stays::ReadsTooShort { wait: STEP });
    assert_eq!(stay(&memory), [Some(unused), Some(reads)]);
    run(&mut memory, &host, &policy, &mut now, 1);
    assert_eq!(*host.aims.borrow(), [(GIVER, (2048 - 128) * MIB)]);
    assert_eq!(stay(&memory), [None, Some(Stays::NoSpare { spare_bytes: 0, room_bytes: 128 * MIB })]);
    run(&mut memory, &host, &policy, &mut now, 1);
    assert_eq!(host.aims.borrow().last(), Some(&(READER, (1024 + 128) * MIB)));
    // One that the next guard finds in the ledger may have been moved just before: it rests.
    drop(memory);
    let mut memory = Memory::over(host.clone(), &log, true).unwrap();
    let rest = vmio_model::memory::REST.as_secs() / STEP.as_secs();
    run(&mut memory, &host, &policy, &mut now, usize::try_from(rest).unwrap());
    assert_eq!(host.aims.borrow().iter().filter(|(pid, _)| *pid == GIVER).count(), 1);
}

#[test]
fn a_monitor_that_is_in_use_once_does_not_begin_the_minute_anew() {
    for pid in [GIVER, READER] {
        let (host, log, mut now) = (host(), UndoLog::memory(), Duration::ZERO);
        let policy = policy(MOVED, MOVED);
        let mut memory = Memory::over(host.clone(), &log, true).unwrap();
        for (busy, times) in [(false, 3), (true, 1), (false, 1)] {
            host.change(pid, |guest| guest.is_busy = busy);
            run(&mut memory, &host, &policy, &mut now, times);
        }
        // Since it was last told.
        assert_eq!(memory.status().guests[1].hits_percent, Some(100));
        run(&mut memory, &host, &policy, &mut now, 3);
        assert_eq!(*host.aims.borrow(), [(GIVER, (2048 - 128) * MIB)], "{pid}");
    }
}

#[test]
fn without_the_policys_word_nothing_is_changed_and_all_is_told() {
    let (host, log, mut now) = (host(), UndoLog::memory(), Duration::ZERO);
    for pid in [GIVER, READER] {
        host.change(pid, |guest| guest.polling_seconds = 10);
    }
    let mut memory = Memory::over(host.clone(), &log, true).unwrap();
    run(&mut memory, &host, &policy(TOLD, TOLD), &mut now, 12);
    let due = |memory: &Memory<Fake>| memory.status().guests.iter().find_map(|guest| guest.due.clone());
    let planned = due(&memory).unwrap();
    assert_eq!((planned.guest.as_str(), planned.why), ("giver", Why::Idle));
    assert_eq!(memory.status().guests[1].hits_percent, Some(100));
    // A guard that only observes moves nobody either, whatever the policy says.
    let mut observing = Memory::over(host.clone(), &log, false).unwrap();
    run(&mut observing, &host, &policy(MOVED, MOVED), &mut now, 12);
    assert!(due(&observing).is_some());
    for memory in [memory, observing] {
        assert_eq!((memory.status().moves, memory.holds()), (0, false));
    }
    assert!(host.aims.borrow().is_empty() && log.is_empty());
}

#[test]
fn a_guest_that_leaves_the_policy_gets_back_what_it_had() {
    let (host, log, mut now) = (host(), UndoLog::memory(), Duration::ZERO);
    let mut memory = Memory::over(host.clone(), &log, true).unwrap();
    run(&mut memory, &host, &policy(MOVED, MOVED), &mut now, 60);
    assert!(host.actual_mib(GIVER) < 2048);
    *host.available_bytes.borrow_mut() = 8 << 30;
    run(&mut memory, &host, &policy("", MOVED), &mut now, 4);
    assert_eq!(host.actual_mib(GIVER), 2048);
    assert!(memory.entry(GIVER).is_none() && memory.entry(READER).is_some());
    // One that has ended needs nothing back.
    host.change(READER, |guest| guest.runs = false);
    run(&mut memory, &host, &policy("", ""), &mut now, 1);
    assert!(!memory.holds());
}

#[test]
fn what_a_guest_had_is_known_though_it_was_not_seen_for_a_while() {
    let (host, log, mut now) = (host(), UndoLog::memory(), Duration::ZERO);
    let mut memory = Memory::over(host.clone(), &log, true).unwrap();
    let policy = policy(MOVED, MOVED);
    run(&mut memory, &host, &policy, &mut now, 60);
    let moved = host.actual_mib(GIVER);
    for busy in [true, false, true, false] {
        host.change(GIVER, |guest| guest.is_busy = busy);
        // For more than a minute.
        run(&mut memory, &host, &policy, &mut now, 7);
        let status = &memory.status().guests[0];
        assert_eq!((status.before_bytes, status.why_not.is_some()), (Some(2048 * MIB), busy));
    }
    assert!(moved < 2048 && host.actual_mib(GIVER) <= moved);
    assert_eq!(memory.undo(), [] as [String; 0]);
    assert_eq!(host.actual_mib(GIVER), 2048);
}

#[test]
fn a_report_of_before_a_guest_was_given_memory_does_not_keep_it_there() {
    let (host, log, mut now) = (host(), UndoLog::memory(), Duration::ZERO);
    let mut memory = Memory::over(host.clone(), &log, true).unwrap();
    run(&mut memory, &host, &policy(MOVED, MOVED), &mut now, 9);
    let given = host.actual_mib(READER) - 1024;
    assert!(given > 0);
    host.change(READER, |guest| guest.late_bytes = 2048 * MIB);
    assert_eq!(memory.undo(), [] as [String; 0]);
    assert_eq!(host.actual_mib(READER), 1024);
}

#[test]
fn what_cannot_be_put_back_is_told_and_stays_recorded() {
    let (host, log, mut now) = (host(), UndoLog::memory(), Duration::ZERO);
    let mut memory = Memory::over(host.clone(), &log, true).unwrap();
    run(&mut memory, &host, &policy(MOVED, MOVED), &mut now, 60);
    host.change(GIVER, |guest| guest.is_stuck = true);
    let left = memory.undo();
    assert!(left.len() == 1 && left[0].starts_with("memory of giver is not put back: it has "), "{left:?}");
    assert!(memory.entry(GIVER).is_some() && memory.entry(READER).is_none());
    host.change(GIVER, |guest| guest.is_stuck = false);
    assert_eq!(Memory::over(host.clone(), &log, true).unwrap().undo(), [] as [String; 0]);
    assert_eq!(host.actual_mib(GIVER), 2048);
}

#[test]
fn minima_that_the_host_does_not_have_move_nobody() {
    let (host, log, mut now) = (host(), UndoLog::memory(), Duration::ZERO);
    let mut memory = Memory::over(host.clone(), &log, true).unwrap();
    let much = "memory_min = \"10GiB\"\nmemory_move = true\n";
    run(&mut memory, &host, &policy(much, much), &mut now, 12);
    let notes = &memory.status().notes;
    assert!(notes.iter().any(|note| note.contains("minima add up to")), "{notes:?}");
    let guests = &memory.status().guests;
    let is_told = |guest: &GuestStatus| guest.why_not.as_deref().is_some_and(|why| why.contains("minima add up to"));
    assert!(guests.len() == 2 && guests.iter().all(is_told), "{guests:?}");
    assert!(host.aims.borrow().is_empty());
}

#[test]
fn the_form_of_entries_stays() {
    form_stays::<Before>(
        "memory",
        r#"{"balloon":{"guest":"a","monitor":"/m","pid":1,"start_ticks":2},"bytes":3,"polling_seconds":0,"to_bytes":4}"#,
    );
}
