//! What a guest waits for most, and how near it is to a limit.

use super::super::rows::{GuardRow, GuestRow, WaitFor, rows};
use super::super::waits::{add_guard, fill};
use super::wires::{packets, wire};
use super::*;
use crate::policy::Direction;
use crate::rate::BitRate;

pub(super) fn filled(interval: &Interval, history: &History) -> Vec<GuestRow> {
    let mut guests = rows(interval).guests;
    fill(&mut guests, interval, &verdicts(interval, history));
    guests
}

pub(super) fn words(row: &GuestRow) -> (Option<WaitFor>, &str) {
    row.worst_wait.as_ref().map_or((None, ""), |wait| (Some(wait.what), wait.words.as_str()))
}

#[test]
fn the_worst_of_several_waits_is_told() {
    let rows = filled(&flooded(), &seen(&[quiet()]));
    // The victim waits for the disk, and the culprit is nearest to its end.
    assert_eq!(words(&rows[0]), (Some(WaitFor::Disk), "disk p99 3.84ms"));
    assert!(rows[1].load_ratio > Some(0.9) && rows[0].load_ratio < Some(0.1));
    let mut interval = flooded();
    interval.guests[0].throttled_ratio = Some(0.2);
    assert_eq!(words(&filled(&interval, &History::default())[0]).0, Some(WaitFor::Disk));
    interval.guests[0].disks.clear();
    assert_eq!(words(&filled(&interval, &History::default())[0]), (Some(WaitFor::Quota), "quota 20 %"));
    let vcpu = ThreadTime { run_seconds: 0.5, wait_seconds: 0.5 };
    interval.guests[0].cpu = Some(CpuLoad { vcpus: 1, vcpu, ..CpuLoad::default() });
    assert_eq!(words(&filled(&interval, &History::default())[0]), (Some(WaitFor::Processor), "cpu 50 %"));
    // Of next to nothing a large part is soon waited for.
    let vcpu = ThreadTime { run_seconds: 0.002, wait_seconds: 0.03 };
    interval.guests[0].cpu = Some(CpuLoad { vcpus: 1, vcpu, ..CpuLoad::default() });
    assert_eq!(words(&filled(&interval, &History::default())[0]), (Some(WaitFor::Quota), "quota 20 %"));
}

#[test]
fn drops_threads_swap_and_limits() {
    let none = Packets::default();
    let mut interval = second(vec![wire("a", none, packets(960, 40)), wire("b", packets(500, 500), none)], vec![]);
    let rows = filled(&interval, &History::default());
    assert_eq!(words(&rows[0]), (Some(WaitFor::DropsReceived), "drops in 40/s"));
    assert_eq!(words(&rows[1]), (Some(WaitFor::DropsSent), "drops out 500/s"));
    let busiest = Some(("the main loop".into(), 0.95));
    interval.guests[0].cpu = Some(CpuLoad { vcpus: 1, busiest, ..CpuLoad::default() });
    assert_eq!(words(&filled(&interval, &History::default())[0]), (Some(WaitFor::IoThread), "main loop full"));
    // Memory in swap costs something while much is read from there.
    interval.guests[1].nics.clear();
    interval.guests[1].memory = Some(Memory { resident_bytes: 1 << 30, swapped_bytes: Some(1 << 30), limit: None });
    for pages in [None, Some(9)] {
        interval.host_memory.swapped_in_pages = pages;
        assert_eq!(words(&filled(&interval, &History::default())[1]), (None, ""));
    }
    interval.host_memory.swapped_in_pages = Some(900);
    let mut rows = filled(&interval, &History::default());
    assert_eq!(words(&rows[1]), (Some(WaitFor::Swap), "swap 1.0G"));
    let limit = |held_ratio| GuardRow {
        interface: "tap-b".into(),
        uplink: "eth0".into(),
        direction: Direction::GuestTx,
        class: "gold".into(),
        min_bps: BitRate::new(1),
        max_bps: BitRate::new(1),
        limit_bps: None,
        waits: None,
        waiting_bytes: 0,
        held_ratio,
        drops_per_second: None,
    };
    rows[1].guard = Some(vec![limit(Some(0.8)), limit(None)]);
    add_guard(&mut rows[1]);
    assert_eq!((words(&rows[1]), rows[1].load_ratio), ((Some(WaitFor::Guard), "held 80 %"), Some(0.8)));
}
