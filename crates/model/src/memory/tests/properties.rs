//! Whatever is seen, and whether guests follow, stand still or are set by somebody else.

use proptest::prelude::*;

use super::MIB;
use crate::facts::CachedReads;
use crate::memory::*;

/// What is seen of a guest at a check, in parts of what it has, and what became of its last move.
#[derive(Debug, Clone)]
struct Draw {
    fate: u8,
    set_mib: u64,
    resident: u64,
    free: u64,
    available: u64,
    faults: u64,
    swapped: bool,
    reports: bool,
    asked_mib: u64,
    storage_mib: u64,
    cached_mib: u64,
}

fn draw() -> impl Strategy<Value = Draw> {
    let parts = (0u8..12, 128u64..4096, 0u64..=100, 0u64..=100, 0u64..=100);
    let rest = (0u64..400, prop::bool::weighted(0.1), prop::bool::weighted(0.9), 0u64..2000, 0u64..500, 0u64..4000);
    (parts, rest).prop_map(|((fate, set_mib, resident, free, available), rest)| {
        let (faults, swapped, reports, asked_mib, storage_mib, cached_mib) = rest;
        Draw { fate, set_mib, resident, free, available, faults, swapped, reports, asked_mib, storage_mib, cached_mib }
    })
}

impl Draw {
    fn guest(&self, contract: Option<Contract>, actual_bytes: u64, whole_bytes: u64) -> Guest {
        let part = |percent: u64| actual_bytes / 100 * percent;
        let report = Report {
            free_bytes: part(self.free),
            available_bytes: part(self.available.max(self.free)),
            major_faults: self.faults,
            swapped_in_bytes: u64::from(self.swapped) * MIB,
        };
        let (asked_bytes, storage_bytes) = (self.asked_mib * MIB, self.storage_mib * MIB);
        Guest {
            contract,
            actual_bytes,
            whole_bytes,
            resident_bytes: part(self.resident),
            report: self.reports.then_some(report),
            reads: Some(CachedReads { asked_bytes, storage_bytes }),
            host_cached_bytes: self.cached_mib * MIB,
        }
    }
}

/// A guest: minimum, what it may have beyond, whether the policy knows it; what it has, and could have beyond.
type Born = (u64, u64, bool, u64, u64);
/// A check: seconds since the one before, MiB that the host has available, whether it swaps, and the guests.
type Check = (u64, u64, bool, Vec<Draw>);

const NAMES: [&str; 3] = ["a", "b", "c"];

fn born() -> impl Strategy<Value = Born> {
    (128u64..1500, 0u64..2500, prop::bool::weighted(0.8), 128u64..3000, 0u64..2000)
}

fn checks() -> impl Strategy<Value = Vec<Check>> {
    let one = (1u64..90, 0u64..12_000, prop::bool::weighted(0.1), prop::collection::vec(draw(), 3));
    prop::collection::vec(one, 1..60)
}

const HOST_MIB: u64 = 16_384;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_guest_loses_what_it_works_in_and_the_host_never_promises_what_it_has_not(
        born in prop::collection::vec(born(), 3), checks in checks(),
    ) {
        let contract = |(min, more, known, ..): &Born| {
            known.then_some(Contract { min_bytes: min * MIB, max_bytes: (min + more) * MIB })
        };
        let mut actual: Vec<u64> = born.iter().map(|(.., has, _)| has * MIB).collect();
        let whole: Vec<u64> = born.iter().map(|(.., has, more)| (has + more) * MIB).collect();
        let (mut balance, mut now) = (Balance::default(), Duration::ZERO);
        let mut aims: [Option<u64>; 3] = [None; 3];
        let mut raised: [Option<Duration>; 3] = [None; 3];
        for (seconds, available_mib, swaps, draws) in &checks {
            now += Duration::from_secs(*seconds);
            for (i, draw) in draws.iter().enumerate() {
                match (draw.fate, aims[i]) {
                    (0, _) => actual[i] = (draw.set_mib * MIB).min(whole[i]),
                    // It stands still.
                    (1, _) | (_, None) => {}
                    (_, Some(aim)) => actual[i] = aim,
                }
            }
            let guests: BTreeMap<String, Guest> = (0..3)
                .map(|i| (NAMES[i].to_owned(), draws[i].guest(contract(&born[i]), actual[i], whole[i])))
                .collect();
            let host = Host { total_bytes: HOST_MIB * MIB, available_bytes: available_mib * MIB, swaps: *swaps };
            let same = balance.clone().check(now, &host, &guests);
            let moves = balance.check(now, &host, &guests);
            prop_assert_eq!(&moves, &same);
            let mut given = 0;
            for planned in &moves {
                let i = NAMES.iter().position(|name| *name == planned.guest).unwrap();
                let (guest, Move { from_bytes, to_bytes, why, .. }) = (&guests[&planned.guest], planned);
                prop_assert_eq!(*from_bytes, guest.actual_bytes);
                prop_assert!(to_bytes.is_multiple_of(PAGE_BYTES), "{:?}", planned);
                let Some(own) = guest.contract else {
                    return Err(TestCaseError::fail(format!("{planned:?} of a guest that the policy does not know")));
                };
                if to_bytes < from_bytes {
                    let (report, taken) = (guest.report.unwrap(), from_bytes - to_bytes);
                    prop_assert!(taken <= STEP_BYTES && *to_bytes >= LEAST_BYTES.max(own.min_bytes), "{:?}", planned);
                    let spares = if *why == Why::Idle { report.free_bytes } else { report.available_bytes };
                    prop_assert!(taken < spares, "{:?} of {:?}", planned, guest);
                    let rested = raised[i].is_none_or(|at| now - at >= REST);
                    prop_assert!(*why != Why::Idle || rested, "{:?} at {:?} after {:?}", planned, now, raised[i]);
                }
                if to_bytes > from_bytes {
                    prop_assert!(!swaps && *to_bytes <= own.max_bytes.min(guest.whole_bytes), "{:?}", planned);
                    given += to_bytes - from_bytes;
                    raised[i] = Some(now);
                }
            }
            // All that guests could touch, and what is given now, fits beside the reserve.
            let untouched: u64 = guests.values().map(|g| g.actual_bytes.saturating_sub(g.resident_bytes)).sum();
            let promised = untouched + given + host.total_bytes / HOST_KEEPS;
            prop_assert!(given == 0 || promised <= host.available_bytes, "{} of {:?}", promised, host);
            let names: Vec<&String> = moves.iter().map(|planned| &planned.guest).collect();
            prop_assert!(names.windows(2).all(|two| two[0] < two[1]), "{:?}", moves);
            for (i, name) in NAMES.iter().enumerate() {
                if let Some(planned) = moves.iter().find(|planned| planned.guest == *name) {
                    aims[i] = Some(planned.to_bytes);
                } else if aims[i] == Some(actual[i]) {
                    aims[i] = None;
                }
            }
        }
    }
}
