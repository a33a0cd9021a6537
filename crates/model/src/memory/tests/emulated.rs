//! The guests of `crates/vmio/tests/guest_guard_memory.rs`, by the figures of emulated ones: what they use beside their
//! page cache, what their hypervisors have for themselves, and what the host has for them.

use super::{MIB, TICK};
use crate::facts::CachedReads;
use crate::memory::*;

const GIVER: usize = 0;
const READER: usize = 1;
/// Name, what each is started with, what its balloon leaves it at first, and its minimum, in MiB.
const GUESTS: [(&str, u64, u64, u64); 3] = [("gold", 640, 640, 256), ("silver", 768, 384, 256), ("tin", 256, 256, 192)];
/// What the kernel, the agent and their files take of each.
const USED_MIB: u64 = 100;
/// What the kernel keeps free where the page cache has all else.
const KEPT_MIB: u64 = 18;
/// What a hypervisor that emulates takes beside its guest's memory.
const HYPERVISOR_MIB: u64 = 90;
/// What the reader reads between two checks.
const READ_MIB: u64 = 512;
/// What the host has beyond all that its guests could touch.
const SPARE_MIB: u64 = 96;

/// What its process has of the host's memory: the reader has touched all.
fn resident_mib(guest: usize, has_mib: u64) -> u64 {
    HYPERVISOR_MIB + if guest == READER { has_mib } else { USED_MIB }
}

/// What is seen of a guest; its reads where they are counted.
fn seen(guest: usize, has_mib: u64, counted: bool, dropped: bool) -> Guest {
    let (_, started_mib, _, min_mib) = GUESTS[guest];
    let left_mib = has_mib - USED_MIB;
    let free_mib = if guest == READER && !dropped { KEPT_MIB } else { left_mib };
    let report =
        Report { free_bytes: free_mib * MIB, available_bytes: left_mib * MIB, major_faults: 0, swapped_in_bytes: 0 };
    let asked_bytes = if guest == READER { READ_MIB * MIB } else { 0 };
    Guest {
        contract: Some(Contract { min_bytes: min_mib * MIB, max_bytes: started_mib * MIB }),
        actual_bytes: has_mib * MIB,
        whole_bytes: started_mib * MIB,
        resident_bytes: resident_mib(guest, has_mib) * MIB,
        report: Some(report),
        reads: counted.then_some(CachedReads { asked_bytes, storage_bytes: 0 }),
        host_cached_bytes: asked_bytes,
    }
}

/// Five minutes: the moves with their check, and what each guest has then, in MiB. At some checks the reader has just
/// dropped its page cache, at others its monitor does not answer.
fn course(is_dropped: impl Fn(u32) -> bool, is_silent: impl Fn(u32) -> bool) -> (Vec<(u32, Move)>, [u64; 3]) {
    let mut has = GUESTS.map(|(_, _, has, _)| has);
    let each = |has: &[u64; 3], of: fn(usize, u64) -> u64| (0..3).map(|i| of(i, has[i])).sum::<u64>();
    let total_mib = (each(&has, |i, has| has.max(resident_mib(i, has))) + SPARE_MIB) * HOST_KEEPS / (HOST_KEEPS - 1);
    let (mut balance, mut moves) = (Balance::default(), Vec::new());
    for check in 1..=30 {
        let available_bytes = (total_mib - each(&has, resident_mib)) * MIB;
        let host = Host { total_bytes: total_mib * MIB, available_bytes, swaps: false };
        let answers = |i: &usize| *i != READER || !is_silent(check);
        // Reads are counted from one check to the next.
        let counted = |i: usize| check > 1 && (i != READER || !is_silent(check - 1));
        let guests: BTreeMap<String, Guest> = (0..3)
            .filter(answers)
            .map(|i| (GUESTS[i].0.to_owned(), seen(i, has[i], counted(i), is_dropped(check))))
            .collect();
        for planned in balance.check(TICK * check, &host, &guests) {
            let i = GUESTS.iter().position(|(name, ..)| *name == planned.guest).unwrap();
            has[i] = planned.to_bytes / MIB;
            moves.push((check, planned));
        }
    }
    (moves, has)
}

/// Check, guest, MiB and reason of the first two moves.
fn first_two(moves: &[(u32, Move)]) -> Vec<(u32, &str, u64, Why)> {
    moves.iter().take(2).map(|(check, m)| (*check, m.guest.as_str(), m.to_bytes / MIB, m.why)).collect()
}

/// It reads a raw device: as it closes that, its kernel drops what was cached of it.
#[test]
fn a_reader_that_drops_its_page_cache_at_times_is_given_memory_all_the_same() {
    let expected = [(8, "gold", 512, Why::Idle), (10, "silver", 512, Why::Reads)];
    let (moves, has) = course(|check| check.is_multiple_of(3), |_| false);
    assert_eq!(first_two(&moves), expected, "{moves:?}");
    assert!(has[GIVER] >= 256 && (512..=768).contains(&has[READER]) && has[2] == 256, "{has:?}: {moves:?}");
    // One that keeps it is given at the next check.
    let (moves, _) = course(|_| false, |_| false);
    assert_eq!(first_two(&moves), [(8, "gold", 512, Why::Idle), (9, "silver", 512, Why::Reads)], "{moves:?}");
    // One that uses nothing of what it has needs no more.
    assert_eq!(course(|_| true, |_| false).0, []);
}

#[test]
fn a_monitor_that_does_not_answer_at_times_keeps_nobody_from_memory() {
    let expected = [(10, "gold", 512, Why::Idle), (11, "silver", 512, Why::Reads)];
    let (moves, _) = course(|_| false, |check| check.is_multiple_of(4));
    assert_eq!(first_two(&moves), expected, "{moves:?}");
}
