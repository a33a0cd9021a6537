//! The guests of `crates/vmio/tests/guest_guard_memory.rs`, by the figures of emulated ones: what they use beside their
//! page cache, what their hypervisors have for themselves, and what the host has for them.

use super::{MIB, TICK};
use crate::facts::CachedReads;
use crate::memory::*;

type Seen = BTreeMap<String, Guest>;

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

/// What is seen at a check, where guests have so much. The reader may just have dropped its page cache; its monitor may
/// answer at neither this check nor the one before.
fn look(check: u32, has: &[u64; 3], is_dropped: bool, is_silent: impl Fn(u32) -> bool) -> (Host, Seen) {
    let most = GUESTS.iter().enumerate().map(|(i, (.., has, _))| resident_mib(i, *has).max(*has));
    let total_mib = (most.sum::<u64>() + SPARE_MIB) * HOST_KEEPS / (HOST_KEEPS - 1);
    let resident = has.iter().enumerate().map(|(i, has)| resident_mib(i, *has));
    let available_bytes = (total_mib - resident.sum::<u64>()) * MIB;
    let answers = |i: &usize| *i != READER || !is_silent(check);
    // Reads are counted from one check to the next.
    let counted = |i: usize| check > 1 && (i != READER || !is_silent(check - 1));
    let guest = |i: usize| (GUESTS[i].0.to_owned(), seen(i, has[i], counted(i), is_dropped));
    let host = Host { total_bytes: total_mib * MIB, available_bytes, swaps: false };
    (host, (0..3).filter(answers).map(guest).collect())
}

/// Five minutes: the moves with their check, and what each guest has then, in MiB.
fn course(is_dropped: impl Fn(u32) -> bool, is_silent: impl Fn(u32) -> bool) -> (Vec<(u32, Move)>, [u64; 3]) {
    let mut has = GUESTS.map(|(_, _, has, _)| has);
    let (mut balance, mut moves) = (Balance::default(), Vec::new());
    for check in 1..=30 {
        let (host, guests) = look(check, &has, is_dropped(check), &is_silent);
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

#[test]
fn each_guest_that_stays_has_its_reason() {
    let has = GUESTS.map(|(_, _, has, _)| has);
    let mut balance = Balance::default();
    let mut reasons = |check: u32, change: &dyn Fn(&mut Host, &mut Seen)| {
        let (mut host, mut guests) = look(check, &has, check == 3, |_| false);
        change(&mut host, &mut guests);
        balance.due(TICK * check, &host, &guests);
        GUESTS.map(|(name, ..)| balance.stays(name))
    };
    let of = |guests: &mut Seen, i: usize, change: fn(&mut Guest)| change(guests.get_mut(GUESTS[i].0).unwrap());
    let uses_all = Some(Stays::UsesAll { free_bytes: 156 * MIB, least_bytes: 256 * MIB });
    let unused = |seconds: u64| Some(Stays::UnusedTooShort { wait: Duration::from_secs(seconds) });
    let reads = |seconds: u64| Some(Stays::ReadsTooShort { wait: Duration::from_secs(seconds) });
    // Before it is known what the reader reads.
    let full = Some(Stays::UsesAll { free_bytes: KEPT_MIB * MIB, least_bytes: 256 * MIB });
    assert_eq!(reasons(1, &|_, _| {}), [unused(60), full, uses_all]);
    assert_eq!(reasons(2, &|_, _| {}), [unused(50), reads(60), uses_all]);
    assert_eq!(reasons(3, &|_, _| {}), [unused(40), Some(Stays::HasFree { free_bytes: 284 * MIB }), uses_all]);
    let silent = reasons(4, &|_, guests| (0..3).for_each(|i| of(guests, i, |guest| guest.report = None)));
    assert_eq!(silent, [Some(Stays::Silent); 3]);
    let hardly = reasons(5, &|_, guests| of(guests, READER, |guest| guest.host_cached_bytes = MIB));
    assert_eq!(hardly, [unused(60), Some(Stays::LittleCached { bytes: MIB }), uses_all]);
    let most = reasons(6, &|_, guests| of(guests, READER, |guest| guest.whole_bytes = guest.actual_bytes));
    assert_eq!(most, [unused(50), Some(Stays::HasMost), uses_all]);
    let faults = reasons(7, &|_, guests| {
        of(guests, GIVER, |guest| guest.report = guest.report.map(|report| Report { major_faults: 100, ..report }));
    });
    assert_eq!(faults, [Some(Stays::ReadsBack), reads(10), uses_all]);
    // The reader's minute is over, the giver's begins.
    let [giver, reader, other] = reasons(8, &|_, _| {});
    assert_eq!((giver, other), (unused(60), uses_all));
    let lacks = |spare_bytes: u64| spare_bytes > 90 * MIB && spare_bytes < STEP_BYTES;
    let is_short = |stays: Stays| match stays {
        Stays::NoSpare { spare_bytes, room_bytes } => lacks(spare_bytes) && room_bytes == STEP_BYTES,
        _ => false,
    };
    assert!(reader.is_some_and(is_short), "{reader:?}");
    let poor = reasons(9, &|host, guests| {
        host.swaps = true;
        of(guests, READER, |guest| guest.contract = guest.contract.map(|own| Contract { min_bytes: 512 * MIB, ..own }));
    });
    assert_eq!(poor[READER], Some(Stays::Owed { bytes: 128 * MIB }));
    // Nobody wants what is unused for a minute by then.
    let quiet = |_: &mut Host, guests: &mut Seen| of(guests, READER, |guest| guest.host_cached_bytes = 0);
    let last: Vec<_> = (10..=14).map(|check| reasons(check, &quiet)[GIVER]).collect();
    assert_eq!(last[3..], [unused(10), Some(Stays::Unwanted)]);
}

#[test]
fn who_is_moved_has_no_reason_and_then_is_on_its_way() {
    let has = GUESTS.map(|(_, _, has, _)| has);
    let mut balance = Balance::default();
    for check in 1..=9 {
        let (host, guests) = look(check, &has, false, |_| false);
        let moves = balance.check(TICK * check, &host, &guests);
        assert_eq!(moves.iter().any(|planned| planned.guest == "gold"), check == 8, "{moves:?}");
        let on_its_way = Some(Stays::OnItsWay { to_bytes: 512 * MIB });
        match check {
            8 => assert_eq!(balance.stays("gold"), None),
            9 => assert_eq!(balance.stays("gold"), on_its_way),
            _ => assert!(balance.stays("gold").is_some()),
        }
    }
}
