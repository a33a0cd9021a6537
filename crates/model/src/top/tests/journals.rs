//! Waits in fsync on a file system that several use: whose, and who fills its journal.

use super::super::journal::{loads, rows as journal_rows};
use super::super::load::JournalFlow;
use super::super::rows::{GuestRow, WaitFor, rows};
use super::super::waits::fill;
use super::*;

/// What a process did, and the guest that it is of.
type Use = (JournalFlow, Option<usize>);

fn used(comm: &str, guest: Option<usize>, syncs: u64, [wait, worst]: [f64; 2], dirtied_mb: f64) -> Use {
    let flow = JournalFlow {
        pid: 70,
        comm: comm.into(),
        device: (8, 1),
        syncs,
        wait_seconds: wait,
        worst_seconds: worst,
        dirtied_bytes: (dirtied_mb * 1e6) as u64,
        ..JournalFlow::default()
    };
    (flow, guest)
}

/// A guest that appends and calls fsync four times.
fn victim() -> Use {
    used("qemu-system-x86", Some(0), 4, [0.96, 0.448], 0.004)
}

fn flooder() -> Use {
    used("qemu-system-x86", Some(1), 0, [0.0, 0.0], 40.0)
}

/// On the disk of `interval`, of which a flush takes 0.5 ms.
fn with(mut interval: Interval, uses: &[Use]) -> Interval {
    for (guest, pid) in interval.guests.iter_mut().zip(1..) {
        guest.pid = Some(pid);
    }
    let (flows, owners): (Vec<JournalFlow>, Vec<Option<usize>>) = uses.iter().cloned().unzip();
    interval.journals = loads(&flows, &owners, &interval);
    for load in &mut interval.journals {
        (load.name, load.disks) = ("/srv".into(), vec![VDA]);
    }
    interval.devices[0].flushes = Requests { requests: 10, bytes: 0, request_seconds: 5e-3 };
    interval
}

fn idle() -> Interval {
    second(vec![guest("db", vec![]), guest("flood", vec![])], vec![])
}

fn worst(interval: &Interval) -> Option<(WaitFor, String)> {
    let mut guests: Vec<GuestRow> = rows(interval).guests;
    fill(&mut guests, interval, &verdicts(interval, &History::default()));
    guests[0].worst_wait.as_ref().map(|wait| (wait.what, wait.words.clone()))
}

#[test]
fn who_waits_in_fsync_and_who_fills_the_page_cache_are_named() {
    let interval = with(idle(), &[victim(), flooder()]);
    let verdict = the_one(verdicts(&interval, &History::default()));
    assert_eq!((verdict.resource, verdict.name.as_str()), (Resource::Journal, "/srv"));
    assert_eq!(
        verdict.line,
        "fsync on /srv is slow while the page cache there is filled by guest flood (100 % of what was written there): \
         40 MB of pages dirtied lately, a flush of the disk takes 500 µs; db waits 240 ms each time, 448 ms at worst; \
         give each a file system or volume of its own, or limit what guest flood writes"
    );
    let culprit = &verdict.culprits[0];
    assert_eq!((culprit.guest.as_deref(), culprit.pid), (Some("flood"), Some(2)));
    assert_eq!((verdict.costs[0].guest.as_str(), verdict.costs[0].fsync_worst_seconds), ("db", Some(0.448)));
    assert_eq!(worst(&interval), Some((WaitFor::Fsync, "fsync 448ms".to_owned())));
    let rows = journal_rows(&interval);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.name.as_str(), row.users.len(), row.flush_mean_seconds), ("/srv", 2, 5e-4));
    let db = row.users.iter().find(|u| u.guest.as_deref() == Some("db")).unwrap();
    assert_eq!((db.fsyncs_per_second, db.fsync_mean_seconds), (4.0, Some(0.24)));
    assert!(db.fsync_wait_ratio.is_some_and(|ratio| (ratio - 0.956).abs() < 1e-9), "{db:?}");
}

#[test]
fn a_burst_that_is_still_being_written_is_named_later() {
    let burst = with(idle(), &[flooder()]);
    let later = with(idle(), &[victim()]);
    assert_eq!(verdicts(&later, &History::default()), [], "by nobody that is known");
    let verdict = the_one(verdicts(&later, &seen(std::slice::from_ref(&burst))));
    assert_eq!(verdict.culprits[0].guest.as_deref(), Some("flood"));
    // Not for ever.
    let mut history = seen(std::slice::from_ref(&burst));
    (0..60).for_each(|_| history.remember(&idle()));
    assert_eq!(verdicts(&later, &history), []);
}

#[test]
fn what_the_disk_or_its_own_data_explains_is_no_wait_for_the_journal() {
    let mut slow = with(idle(), &[victim(), flooder()]);
    slow.devices[0].flushes.request_seconds = 1.2;
    let told = verdicts(&slow, &History::default());
    assert!(told.iter().all(|v| v.resource == Resource::Disk), "its flushes are as slow: {told:?}");
    assert_eq!(worst(&slow), None);
    let quick = used("qemu-system-x86", Some(0), 400, [0.6, 0.004], 0.4);
    let quick = with(idle(), &[quick, flooder()]);
    assert_eq!((verdicts(&quick, &History::default()), worst(&quick)), (vec![], None), "none of them is long");
    // A spinning disk takes so long for one that is alone.
    let turns = with(idle(), &[used("qemu-system-x86", Some(0), 20, [0.8, 0.09], 0.1), flooder()]);
    assert_eq!(
        (verdicts(&turns, &History::default()), worst(&turns).map(|(what, _)| what)),
        (vec![], Some(WaitFor::Fsync))
    );
    let own = used("qemu-system-x86", Some(0), 4, [0.96, 0.448], 30.0);
    let own = with(idle(), &[own, flooder()]);
    assert_eq!(verdicts(&own, &History::default()), [], "it wrote nearly as much itself");
    assert_eq!(worst(&own).map(|(what, _)| what), Some(WaitFor::Fsync));
    let alone = with(idle(), &[victim()]);
    assert_eq!(verdicts(&alone, &History::default()), []);
}

#[test]
fn processes_of_the_host_are_victims_and_culprits_of_guests_alone() {
    let postgres = || used("postgres", None, 4, [0.96, 0.448], 0.004);
    let verdict = the_one(verdicts(&with(idle(), &[postgres(), flooder()]), &History::default()));
    assert!(verdict.line.contains("; process (postgres) waits 240 ms each time"), "{}", verdict.line);
    let rsync = || used("rsync", None, 0, [0.0, 0.0], 40.0);
    let verdict = the_one(verdicts(&with(idle(), &[victim(), rsync()]), &History::default()));
    assert!(verdict.line.contains("filled by backup (rsync) (100 %"), "{}", verdict.line);
    assert_eq!((verdict.culprits[0].pid, &verdict.culprits[0].guest), (Some(70), &None));
    let hosts = with(idle(), &[postgres(), rsync()]);
    assert_eq!(verdicts(&hosts, &History::default()), []);
    assert_eq!(journal_rows(&hosts).len(), 1, "but they are shown");
    let quick = used("postgres", None, 400, [0.6, 0.004], 0.4);
    assert_eq!(journal_rows(&with(idle(), &[quick])), [], "none waits, and no guest is there");
}

#[test]
fn on_a_saturated_disk_a_volume_does_not_help() {
    let rsync = used("rsync", None, 0, [0.0, 0.0], 40.0);
    let all = verdicts(&with(flooded(), &[victim(), rsync]), &seen(&[quiet()]));
    let [_, journal] = &all[..] else { panic!("{all:?}") };
    assert!(
        journal.line.ends_with(
            "; limit what backup (rsync) writes (disk vda is saturated, too), or give each a file system on a disk of \
             its own"
        ),
        "{}",
        journal.line
    );
}

#[test]
fn one_incident_has_one_line() {
    // The disk is saturated by who fills the page cache.
    let disk = the_one(verdicts(&with(flooded(), &[victim(), flooder()]), &seen(&[quiet()])));
    assert_eq!(disk.resource, Resource::Disk);
    assert!(disk.line.ends_with("; in fsync on /srv: db waits 240 ms each time, 448 ms at worst"), "{}", disk.line);
    assert!(disk.costs.iter().any(|cost| cost.fsync_worst_seconds == Some(0.448)), "{disk:?}");
    // Its flushes are slow, too, and no guest is seen to wait for them alone.
    let mut flushes = with(idle(), &[victim(), flooder()]);
    flushes.devices[0].flushes = Requests { requests: 16, bytes: 0, request_seconds: 0.48 };
    let journal = the_one(verdicts(&flushes, &History::default()));
    assert_eq!(journal.resource, Resource::Journal);
    assert!(journal.line.contains("a flush of the disk takes 30.0 ms"), "{}", journal.line);
}

#[test]
fn processes_of_one_name_and_of_one_guest_count_together() {
    let none = [0.0, 0.0];
    let mut worker = used("kworker/u8:1+loop0", None, 1, none, 1.0);
    worker.0.pid = 0;
    let mut other = used("kworker/u8:2+loop0", None, 2, none, 1.0);
    other.0.pid = 0;
    let uses = [worker, other, used("dd", None, 0, none, 1.0), used("dd", None, 0, none, 1.0)];
    let more =
        [used("a", Some(1), 1, none, 1.0), used("b", Some(1), 1, none, 1.0), used("gone", Some(9), 1, none, 1.0)];
    let interval = with(idle(), &[uses.as_slice(), more.as_slice()].concat());
    let mut users: Vec<(String, u64)> =
        interval.journals[0].users.iter().map(|u| (u.label(), u.syncs * 10 + u.dirtied_bytes / 1_000_000)).collect();
    users.sort();
    let wanted = [
        ("guest flood", 22),
        ("loop device, passes on (kworker/u8:1+loop0)", 32),
        ("process (dd)", 2),
        ("process (gone)", 11),
    ];
    assert_eq!(users, wanted.map(|(label, n)| (label.to_owned(), n)));
}
