#![allow(clippy::unwrap_used)]

mod emulated;
mod properties;

use super::*;
use crate::facts::CachedReads;

pub(super) const MIB: u64 = 1 << 20;
/// Time between two checks.
const TICK: Duration = Duration::from_secs(10);

/// A guest as it would go on by itself: programs, then the page cache, take what there is.
#[derive(Debug, Clone)]
struct Inside {
    contract: Option<Contract>,
    actual: u64,
    whole: u64,
    /// What it has touched of its memory.
    touched: u64,
    /// What its programs use.
    programs: u64,
    /// What it reads again and again of its disk.
    files: u64,
    /// Whether its driver reports.
    reports: bool,
}

impl Inside {
    fn of(actual_mib: u64, programs_mib: u64, files_mib: u64) -> Self {
        let contract = Some(Contract { min_bytes: 256 * MIB, max_bytes: 4096 * MIB });
        Self {
            contract,
            actual: actual_mib * MIB,
            whole: 2048 * MIB,
            touched: 0,
            programs: programs_mib * MIB,
            files: files_mib * MIB,
            reports: true,
        }
    }

    fn cache(&self) -> u64 {
        self.files.min(self.actual.saturating_sub(self.programs))
    }

    /// What is seen of it; what its own cache lacks of its files the host's has.
    fn seen(&mut self) -> Guest {
        let used = self.programs + self.cache();
        self.touched = self.touched.max(used).min(self.actual);
        let lacks = self.files - self.cache();
        let report = Report {
            free_bytes: self.actual.saturating_sub(used),
            available_bytes: self.actual.saturating_sub(self.programs),
            major_faults: 0,
            swapped_in_bytes: self.programs.saturating_sub(self.actual),
        };
        Guest {
            contract: self.contract,
            actual_bytes: self.actual,
            whole_bytes: self.whole,
            resident_bytes: self.touched,
            report: self.reports.then_some(report),
            reads: Some(CachedReads { asked_bytes: lacks, storage_bytes: 0 }),
            host_cached_bytes: self.files,
        }
    }
}

/// A host with guests that go where they are moved, until the next check.
struct World {
    total: u64,
    guests: BTreeMap<String, Inside>,
    balance: Balance,
    now: Duration,
    moves: Vec<Move>,
}

impl World {
    fn of(total_mib: u64, guests: &[(&str, Inside)]) -> Self {
        let guests = guests.iter().map(|(name, inside)| ((*name).to_owned(), inside.clone())).collect();
        Self { total: total_mib * MIB, guests, balance: Balance::default(), now: TICK, moves: Vec::new() }
    }

    fn guest(&mut self, name: &str) -> &mut Inside {
        self.guests.get_mut(name).unwrap()
    }

    fn available(&self) -> u64 {
        self.guests.values().fold(self.total, |left, guest| left.checked_sub(guest.touched).expect("the host swaps"))
    }

    fn seen(&mut self) -> (Host, BTreeMap<String, Guest>) {
        let seen = self.guests.iter_mut().map(|(name, inside)| (name.clone(), inside.seen())).collect();
        (Host { total_bytes: self.total, available_bytes: self.available(), swaps: false }, seen)
    }

    /// So many checks.
    fn run(&mut self, checks: u32) -> Vec<Move> {
        let first = self.moves.len();
        for _ in 0..checks {
            let (host, seen) = self.seen();
            for planned in self.balance.check(self.now, &host, &seen) {
                self.guest(&planned.guest).actual = planned.to_bytes;
                self.moves.push(planned);
            }
            self.now += TICK;
        }
        self.moves[first..].to_vec()
    }
}

fn whys(moves: &[Move], guest: &str) -> Vec<Why> {
    let mut all: Vec<Why> = moves.iter().filter(|m| m.guest == guest).map(|m| m.why).collect();
    all.dedup();
    all
}

/// A guest that has touched 2 GiB and uses 300 MiB, one of 512 MiB that reads 1.5 GiB, and one of 1 GiB whose programs
/// have touched little so far.
fn three() -> World {
    let idle = Inside { touched: 2048 * MIB, ..Inside::of(2048, 300, 0) };
    World::of(3840, &[("idle", idle), ("reader", Inside::of(512, 150, 1536)), ("hog", Inside::of(1024, 200, 0))])
}

#[test]
fn unused_memory_goes_to_who_reads_from_the_hosts_cache_and_comes_back() {
    let mut world = three();
    let moves = world.run(200);
    assert_eq!(whys(&moves, "reader"), [Why::Reads]);
    assert_eq!((whys(&moves, "idle"), whys(&moves, "hog")), (vec![Why::Idle], vec![Why::Idle]));
    assert!(world.guest("reader").actual > 1536 * MIB && world.guest("idle").actual < 1536 * MIB, "{moves:?}");
    // A memory hog in one of them: it has all of its own within a minute, and the host never swaps.
    world.guest("hog").programs = 1000 * MIB;
    let moves = world.run(6);
    assert_eq!((world.guest("hog").actual, whys(&moves, "hog")), (1024 * MIB, vec![Why::Returned]), "{moves:?}");
    assert_eq!(whys(&moves, "reader"), [Why::Needed]);
    // In the other one, too: the reader has no more than its own then.
    world.guest("idle").programs = 1990 * MIB;
    let moves = world.run(30);
    assert_eq!((world.guest("idle").actual, whys(&moves, "idle")), (2048 * MIB, vec![Why::Returned]), "{moves:?}");
    assert_eq!(world.guest("reader").actual, 512 * MIB);
}

#[test]
fn what_is_only_told_stays_due() {
    let mut world = three();
    let mut told = Vec::new();
    for _ in 0..12 {
        let (host, seen) = world.seen();
        told.push(world.balance.due(world.now, &host, &seen));
        world.now += TICK;
    }
    let last = &told[11];
    assert!(told[0].is_empty() && !last.is_empty() && told[10] == *last, "{told:?}");
    // A guest that was not seen is forgotten, unless somebody else knows of it.
    let mut balance = Balance::resumed([("idle".to_owned(), 2048 * MIB)]);
    let (host, mut seen) = world.seen();
    seen.remove("idle");
    balance.check(world.now, &host, &seen);
    assert!(!balance.bases().any(|(name, _)| name == "idle"));
    balance.hold("idle", 2048 * MIB);
    balance.hold("idle", MIB);
    assert!(balance.bases().any(|held| held == ("idle", 2048 * MIB)));
}

#[test]
fn nothing_moves_where_nobody_wants_it_or_nobody_may() {
    let mut world = three();
    world.guest("reader").files = 0;
    assert_eq!(world.run(100), []);
    let mut world = three();
    world.guests.values_mut().for_each(|guest| guest.contract = None);
    assert_eq!(world.run(100), []);
    // Of a guest that reports nothing, nothing is taken.
    let mut world = three();
    world.guest("idle").reports = false;
    assert_eq!(whys(&world.run(100), "idle"), []);
}

#[test]
fn a_minimum_is_owed_and_a_maximum_is_kept() {
    let mut world = World::of(8192, &[("a", Inside::of(256, 100, 1536))]);
    world.guest("a").contract = Some(Contract { min_bytes: 512 * MIB, max_bytes: 700 * MIB });
    let first = world.run(1);
    assert_eq!((first[0].to_bytes, first[0].why), (512 * MIB, Why::Minimum));
    world.run(100);
    assert_eq!(world.guest("a").actual, 700 * MIB);
    world.guest("a").contract = Some(Contract { min_bytes: 256 * MIB, max_bytes: 400 * MIB });
    let down = world.run(100);
    assert_eq!((world.guest("a").actual, whys(&down, "a")), (400 * MIB, vec![Why::Maximum]));
}

#[test]
fn who_leaves_the_policy_gets_back_what_it_had() {
    let mut world = three();
    world.run(200);
    world.guests.values_mut().for_each(|guest| guest.contract = None);
    world.guest("idle").programs = 1800 * MIB;
    world.run(60);
    let had = ["idle", "reader", "hog"].map(|name| world.guest(name).actual / MIB);
    assert_eq!(had, [2048, 512, 1024]);
}

#[test]
fn undo_brings_back_what_each_had_before_the_first_move() {
    let mut world = three();
    world.run(200);
    let (_, seen) = world.seen();
    let undo = world.balance.undo(&seen);
    let shown: Vec<(&str, u64)> = undo.iter().map(|m| (m.guest.as_str(), m.to_bytes / MIB)).collect();
    assert_eq!(shown, [("reader", 512), ("hog", 1024), ("idle", 2048)], "those down first");
    assert!(undo.iter().all(|m| m.why == Why::Undone && m.from_bytes == seen[&m.guest].actual_bytes));
    assert_eq!(Balance::default().undo(&seen), []);
    // What programs work in by now stays.
    world.guest("reader").programs = 900 * MIB;
    let (_, seen) = world.seen();
    let reader = world.balance.undo(&seen).into_iter().find(|m| m.guest == "reader");
    assert!(reader.is_none_or(|m| m.to_bytes >= 900 * MIB));
}

#[test]
fn the_next_one_knows_what_each_had() {
    let mut world = three();
    world.run(200);
    let bases: Vec<(String, u64)> = world.balance.bases().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    assert_eq!(bases.iter().map(|(_, bytes)| bytes / MIB).collect::<Vec<_>>(), [1024, 2048, 512]);
    world.balance = Balance::resumed(bases);
    let (_, seen) = world.seen();
    assert_eq!(world.balance.undo(&seen).len(), 3, "before its first check, too");
    world.guest("idle").programs = 1990 * MIB;
    assert_eq!(whys(&world.run(60), "idle"), [Why::Returned]);
    assert_eq!(world.guest("idle").actual, 2048 * MIB);
}

#[test]
fn what_somebody_else_sets_is_what_a_guest_has() {
    let mut world = three();
    world.run(200);
    world.guest("idle").actual = 1000 * MIB;
    // Nothing is taken from it for a while, and what it had before is forgotten.
    let rested = u32::try_from(REST.as_secs() / TICK.as_secs()).unwrap();
    assert_eq!(whys(&world.run(rested), "idle"), []);
    let (_, seen) = world.seen();
    assert!(world.balance.undo(&seen).iter().all(|m| m.guest != "idle"));
}

/// Its driver writes the number.
#[test]
fn what_a_guest_says_that_it_has_is_no_claim_to_more() {
    let mut world = World { total: 8192 * MIB, ..three() };
    world.run(1);
    world.guest("reader").actual = 2000 * MIB;
    world.run(1);
    let (_, seen) = world.seen();
    let undo = world.balance.undo(&seen);
    assert_eq!(undo.iter().map(|m| (m.guest.as_str(), m.to_bytes / MIB)).collect::<Vec<_>>(), [("reader", 512)]);
}

#[test]
fn a_move_that_a_guest_does_not_finish_is_stopped() {
    let mut world = three();
    let (mut stopped, mut aimed) = (Vec::new(), 0);
    for _ in 0..40 {
        let (host, seen) = world.seen();
        for planned in world.balance.check(world.now, &host, &seen) {
            match planned.why {
                _ if planned.guest != "idle" => {}
                Why::Stopped => stopped.push((planned.from_bytes, planned.to_bytes)),
                _ => aimed += 1,
            }
        }
        world.now += TICK;
    }
    assert_eq!((stopped, aimed), (vec![(2048 * MIB, 2048 * MIB)], 1));
}

/// Of 20 MiB that are read in 10 s, and of 20 that are read in 30, since its monitor did not answer at two checks.
#[test]
fn what_is_counted_is_of_the_time_since_the_guest_was_seen() {
    let stays = |silent: u32| {
        let mut world = World::of(8192, &[("reader", Inside::of(1024, 300, 0))]);
        world.run(1);
        let (host, mut seen) = world.seen();
        for _ in 0..silent {
            assert_eq!(world.balance.check(world.now, &host, &BTreeMap::new()), []);
            world.now += TICK;
        }
        let reader = seen.get_mut("reader").unwrap();
        reader.reads = Some(CachedReads { asked_bytes: 20 * MIB, storage_bytes: 0 });
        reader.host_cached_bytes = 512 * MIB;
        assert_eq!(world.balance.check(world.now, &host, &seen), []);
        world.balance.stays("reader").unwrap()
    };
    assert_eq!(stays(0), Stays::HasFree { free_bytes: 724 * MIB });
    assert_eq!(stays(2), Stays::UnusedTooShort { wait: PATIENCE - 3 * TICK });
}
