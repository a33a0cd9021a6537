#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use vmio_model::allocate::dba::Measures;
use vmio_model::policy::assign::Interface;
use vmio_model::policy::{Abilities, Direction, Form};
use vmio_model::rate::{BitRate, MBIT as M};

use super::*;
use crate::planes::fake::Fake;
use crate::testing::{policy, tap};

const PERIOD: Duration = Duration::from_millis(10);

const POLICY: &str = "\
[uplink.eth0]
capacity = \"100Mbit\"
[class.gold]
priority = 2
min = \"40Mbit\"
reserve = \"hard\"
[class.rest]
[[interface]]
match = { name = \"tap*\" }
class = \"rest\"
[[interface]]
match = { vm = \"web1\" }
class = \"gold\"
";

fn web1() -> DiscoveredInterface {
    Interface { index: 50, name: "vnet50".into(), vms: vec!["web1".into()], ..Interface::default() }.into()
}

fn tx() -> PoolKey {
    PoolKey { uplink: "eth0".into(), direction: Direction::GuestTx }
}

fn core(interfaces: Vec<DiscoveredInterface>) -> Core<Fake> {
    by(Allocator::Exact, interfaces)
}

fn by(allocator: Allocator, interfaces: Vec<DiscoveredInterface>) -> Core<Fake> {
    Core::start_by(allocator, Fake::new(Abilities::HTB), policy(POLICY), interfaces).unwrap()
}

fn names(core: &Core<Fake>) -> Vec<(String, u16)> {
    let pool = core.desired().pools.iter().find(|p| p.key == tx()).unwrap();
    pool.seats.iter().map(|s| (s.name.clone(), s.number)).collect()
}

fn named(all: &[(&str, u16)]) -> Vec<(String, u16)> {
    all.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
}

#[test]
fn numbers_of_interfaces_that_come_and_go() {
    let mut core = core(vec![tap(1), web1()]);
    assert_eq!(names(&core), named(&[("host", 2), ("tap1", 16), ("vnet50", 17), ("default", 3)]));
    core.set_interfaces(vec![web1(), tap(2), tap(3)]).unwrap();
    let came = [("host", 2), ("tap2", 18), ("tap3", 19), ("vnet50", 17), ("default", 3)];
    assert_eq!(names(&core), named(&came), "not the number of one that goes at the same time");
    // What nothing matches is no member of its own.
    core.set_interfaces(vec![web1(), Interface { index: 9, name: "eth7".into(), ..Interface::default() }.into()])
        .unwrap();
    assert_eq!(names(&core), named(&[("host", 2), ("vnet50", 17), ("default", 3)]));
    let before = core.plane().changes;
    core.set_interfaces(vec![web1(), Interface { index: 9, name: "eth7".into(), ..Interface::default() }.into()])
        .unwrap();
    assert_eq!(core.plane().changes, before, "nothing changed, nothing is done");
    core.set_interfaces(vec![Interface { index: 51, ..web1().interface }.into()]).unwrap();
    assert_eq!(names(&core)[1], ("vnet50".to_owned(), 18), "an interface made anew is another one");
}

#[test]
fn failed_reload_changes_nothing() {
    // Two pools, so that the second can fail when the first is in force.
    let both = POLICY.replace("class = \"rest\"", "class = \"rest\"\nrx_class = \"rest\"");
    let mut core = Core::start(Fake::new(Abilities::HTB), policy(&both), vec![tap(1)]).unwrap();
    assert_eq!(core.desired().pools.len(), 2);
    let before = core.desired().clone();
    let before_program = core.plane().program(&tx()).unwrap().clone();
    // Refused before anything is touched.
    let slow = both.replace("[class.rest]", "[class.rest]\nmax = \"1kbit\"");
    let error = core.reload(policy(&slow)).unwrap_err();
    assert!(
        matches!(&error, CoreError::Refused(_)) && error.to_string().contains("tap1 has a maximum of 1 kbit/s"),
        "{error}"
    );
    assert_eq!(*core.desired(), before);
    // Failed on the way: put back.
    let faster = policy(&both.replace("100Mbit", "200Mbit"));
    for after in [0, 1] {
        core.plane().fail_after(after);
        let error = core.reload(faster.clone()).unwrap_err();
        assert!(matches!(error, CoreError::PutBack(_)), "{error}");
        assert_eq!((core.desired(), core.plane.program(&tx())), (&before, Some(&before_program)));
    }
    core.reload(faster).unwrap();
    assert_ne!(core.plane().program(&tx()), Some(&before_program));
}

/// After a change that could be neither made nor put back, the next look restores what is desired, though the
/// interfaces are the same as before.
#[test]
fn torn_limits_are_restored() {
    let both = POLICY.replace("class = \"gold\"", "class = \"gold\"\nrx_class = \"gold\"");
    let mut core = Core::start(Fake::new(Abilities::HTB), policy(&both), vec![tap(1), web1()]).unwrap();
    let (program, limits) = (core.plane.program(&tx()).cloned(), core.plane.limits(&tx()).cloned());
    for good in 0..3 {
        core.plane.stays_broken = true;
        core.plane.fail_after(good);
        let error = core.reload(policy(&both.replace("100Mbit", "200Mbit"))).unwrap_err();
        assert!(matches!(error, CoreError::Torn { .. }), "{error}");
        assert!(core.reconcile().is_err() && core.disturbed());
        core.plane.stays_broken = false;
        core.plane.fail_after(usize::MAX);
        core.set_interfaces(vec![tap(1), web1()]).unwrap();
        assert!(!core.torn);
        assert_eq!((core.plane.program(&tx()), core.plane.limits(&tx())), (program.as_ref(), limits.as_ref()));
    }
}

#[test]
fn removed_pool_is_restored_and_counted() {
    let mut core = core(vec![tap(1)]);
    assert_eq!(core.reconcile().unwrap(), 0, "applying twice changes nothing");
    core.plane().forget(&tx());
    assert_eq!(core.reconcile().unwrap(), 1);
    assert!(core.plane().program(&tx()).is_some());
}

/// The plane and the loop never mean different limits: not when somebody took them off, nor with other members.
#[test]
fn loop_limits_are_restored() {
    let mut core = core(vec![tap(1), web1()]);
    core.tick(PERIOD).unwrap();
    core.plane().count(&tx(), passed(&[0, 60, 0, 0]));
    core.tick(PERIOD).unwrap();
    let set = core.in_force(&tx()).unwrap().clone();
    assert_eq!(set.root, 60 * M);
    core.plane().forget(&tx());
    core.reconcile().unwrap();
    assert_eq!(core.plane.limits(&tx()), Some(&set));
    core.set_interfaces(vec![tap(1), tap(2), web1()]).unwrap();
    assert_eq!(core.plane.limits(&tx()), core.in_force(&tx()), "begun anew, both");
    assert_eq!(core.in_force(&tx()).unwrap().root, 100 * M);
}

#[test]
fn failed_set_of_a_period_is_put_right() {
    let mut core = core(vec![tap(1), web1()]);
    core.tick(PERIOD).unwrap();
    core.plane().count(&tx(), passed(&[0, 60, 0, 0]));
    core.plane().fail_after(0);
    assert!(core.tick(PERIOD).is_err() && core.torn && core.disturbed());
    assert_eq!(core.reconcile().unwrap(), 0, "nobody else changed anything");
    assert_eq!((core.torn, core.plane.limits(&tx())), (false, core.in_force(&tx())));
}

/// Bytes of a period of 10 ms at so many Mbit/s.
fn bytes(mbit: u64) -> u64 {
    (mbit * M).bytes().bytes() / 100
}

fn passed(mbit: &[u64]) -> Vec<Count> {
    mbit.iter().map(|m| Count { passed_bytes: bytes(*m), ..Count::default() }).collect()
}

/// `host`, `tap1`, `vnet50` (gold, hard minimum of 40), `default`.
#[test]
fn idle_hard_minimum_reduces_the_root() {
    let mut core = core(vec![tap(1), web1()]);
    core.tick(PERIOD).unwrap();
    assert_eq!(core.plane().limits(&tx()).unwrap().root, 100 * M, "a first look says nothing of the time before");
    let mut counts = passed(&[0, 60, 0, 0]);
    counts[1].waiting_bytes = 5000;
    core.plane().count(&tx(), counts.clone());
    core.tick(PERIOD).unwrap();
    assert_eq!(core.plane().limits(&tx()).unwrap().root, 60 * M);
    // What has waited at two looks is held back.
    counts[1].passed_bytes += bytes(60);
    counts[2] = Count { passed_bytes: bytes(40), waiting_bytes: 3000, dropped_packets: 1, ..Count::default() };
    core.plane().count(&tx(), counts.clone());
    core.tick(PERIOD).unwrap();
    assert_eq!(core.plane().limits(&tx()).unwrap().root, 100 * M);
    // Counters that begin anew say nothing.
    let changes = core.plane().changes;
    core.plane().count(&tx(), passed(&[0, 1, 1, 0]));
    core.tick(PERIOD).unwrap();
    assert_eq!(core.plane().changes, changes);
    assert!(core.in_force(&tx()).is_some());
    core.undo().unwrap();
}

#[test]
fn policy_without_a_loop() {
    let text = POLICY.replace("reserve = \"hard\"\n", "");
    let mut core = Core::start(Fake::new(Abilities::HTB), policy(&text), vec![tap(1), web1()]).unwrap();
    let changes = core.plane().changes;
    for mbit in [10, 90, 5] {
        core.plane().count(&tx(), passed(&[0, mbit, mbit, 0]));
        core.tick(PERIOD).unwrap();
    }
    assert_eq!(core.plane().changes, changes);
}

/// What passes and waits there at each look -> what waits after it. What was there a look ago and has not passed since
/// is thrown away.
#[test]
fn default_is_purged_after_a_second() {
    let mut core = core(vec![tap(1)]);
    let mut look = |passed_bytes, waiting_bytes| {
        let mut counts = passed(&[0, 1, 0]);
        counts[2] = Count { passed_bytes, waiting_bytes, ..Count::default() };
        core.plane().count(&tx(), counts);
        core.count().unwrap();
        core.plane().observe(Scope::Counts(&tx())).unwrap().counts[2].waiting_bytes
    };
    assert_eq!(look(0, 3000), 3000, "it has just come");
    assert_eq!(look(3000, 9000), 9000, "that is what has come since");
    assert_eq!(look(11_000, 5000), 0, "1000 bytes are left of what waited then");
    assert_eq!(look(11_000, 4000), 4000, "these have come since");
    assert_eq!(look(0, 4000), 4000, "it counts anew");
    assert_eq!(look(3999, 1), 0);
}

#[test]
fn limits_only_plane_keeps_minima() {
    let plane = Fake::new(Abilities { plane: "limits", form: Form::Limits, ..Abilities::HTB });
    let mut core = Core::start(plane, policy(POLICY), vec![tap(1), web1()]).unwrap();
    core.plane().count(&tx(), passed(&[0, 0, 0, 0]));
    core.tick(PERIOD).unwrap();
    let mut counts = passed(&[0, 50, 0, 0]);
    counts[1].dropped_packets = 1;
    core.plane().count(&tx(), counts);
    core.tick(PERIOD).unwrap();
    let caps = core.plane().limits(&tx()).unwrap().caps.clone();
    assert!(caps[1] == 60 * M && caps[2] >= 40 * M, "{caps:?}");
}

/// Nothing can put back what an earlier guard's policy was, so nothing takes it off either.
#[test]
fn failed_start_leaves_earlier_limits() {
    let fail = |earlier| {
        let mut plane = Fake::new(Abilities::HTB);
        plane.earlier = earlier;
        plane.fail_after(1);
        Core::start(plane, policy(POLICY), vec![tap(1), web1()]).err().unwrap()
    };
    assert!(matches!(fail(false), CoreError::Nothing(_)));
    assert!(matches!(fail(true), CoreError::Inherited(_)));
    let mut plane = Fake::new(Abilities::HTB);
    plane.earlier = true;
    let mut core = Core::start(plane, policy(POLICY), vec![tap(1)]).unwrap();
    core.plane().fail_after(0);
    let later = core.reload(policy(&POLICY.replace("100Mbit", "200Mbit"))).unwrap_err();
    assert!(matches!(later, CoreError::PutBack(_)), "{later}");
}

/// Counters that a daemon recorded give the same limits when they are played to the loop alone, whoever sets them.
#[test]
fn replayed_counters_give_the_same_limits() {
    for allocator in [Allocator::Exact, Allocator::Dba(Measures::Passed), Allocator::Dba(Measures::Offered)] {
        let mut core = by(allocator, vec![tap(1), web1()]);
        let pool = core.desired().pools.iter().find(|p| p.key == tx()).unwrap().clone();
        let mut alone = Running::new(&pool, &Abilities::HTB, allocator);
        alone.sample(passed(&[0; 4]).into());
        core.tick(PERIOD).unwrap();
        let mut recorded = passed(&[0; 4]);
        let mut different = std::collections::BTreeSet::new();
        for step in 1..200u64 {
            for (member, count) in recorded.iter_mut().enumerate() {
                let bytes = (step * (member as u64 + 3)).wrapping_mul(2_654_435_761) % self::bytes(100);
                count.passed_bytes += bytes;
                count.dropped_packets += u64::from(bytes.is_multiple_of(7));
                count.waiting_bytes = if bytes.is_multiple_of(3) { bytes } else { 0 };
            }
            core.plane().count(&tx(), recorded.clone());
            core.tick(PERIOD).unwrap();
            let samples = alone.sample(recorded.as_slice().into()).unwrap();
            alone.control.tick(&samples, 10_000_000_000);
            assert_eq!(core.in_force(&tx()), Some(alone.control.in_force()), "{} step {step}", allocator.label());
            different.insert(format!("{:?}", alone.control.in_force()));
        }
        assert!(different.len() > 3, "{}: {} different limits", allocator.label(), different.len());
    }
}

/// `host`, `tap1`, `vnet50` (gold, minimum of 40), `default`.
#[test]
fn dba_shares_by_minima_and_priority() {
    let caps = |measures, offered: Option<u64>| {
        let mut core = by(Allocator::Dba(measures), vec![tap(1), web1()]);
        assert_eq!(core.in_force(&tx()).unwrap().caps[2], 40 * M, "it begins with minima");
        let mut counts = passed(&[0, 1, 40, 0]);
        // Both flood: what a guest tried to send is known where its interface counts.
        for (member, arrived) in [(1, offered), (2, offered)] {
            counts[member].dropped_packets = 100;
            counts[member].arrived_bytes = arrived.map(bytes);
        }
        let before = counts.iter().map(|c| Count { arrived_bytes: c.arrived_bytes.map(|_| 0), ..Count::default() });
        core.plane().count(&tx(), before.collect());
        core.tick(PERIOD).unwrap();
        core.plane().count(&tx(), counts);
        core.tick(PERIOD).unwrap();
        core.plane.limits(&tx()).unwrap().caps.clone()
    };
    // Two classes of guests: what neither minimum takes goes two to one, whoever else has a class.
    let offered = caps(Measures::Offered, Some(500));
    assert!(offered.iter().copied().sum::<BitRate>() <= 100 * M, "{offered:?}");
    let spare = |caps: &[BitRate]| (caps[2] - 40 * M).bits() as f64 / caps[1].bits() as f64;
    assert!((1.9..2.1).contains(&spare(&offered)), "{offered:?}");
    // Who has no minimum passes nothing at first: a thousandth shared by all is for being noticed.
    let passed = caps(Measures::Passed, None);
    assert!(passed.iter().copied().sum::<BitRate>() <= 100 * M && passed[2] > 90 * M, "{passed:?}");
    assert_eq!(passed[1], BitRate::new(25_000));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes and goes, and whatever fails: numbers are nobody else's, and what the plane has is what is
    /// desired.
    #[test]
    fn churn_with_failures(
        steps in prop::collection::vec((prop::collection::btree_set(0u32..30, 0..20), prop::option::of(0usize..3)), 1..20)
    ) {
        let mut core = core(Vec::new());
        for (there, fails) in steps {
            if let Some(after) = fails {
                core.plane().fail_after(after);
            }
            let result = core.set_interfaces(there.iter().map(|i| tap(*i)).collect());
            let torn = matches!(result, Err(CoreError::Torn { .. }));
            prop_assert!(!torn, "what was in force could be put back");
            let numbers = names(&core);
            let different: std::collections::BTreeSet<u16> = numbers.iter().map(|n| n.1).collect();
            prop_assert_eq!(different.len(), numbers.len());
            if result.is_ok() {
                prop_assert_eq!(numbers.len(), there.len() + 2);
            }
            let desired = core.desired().clone();
            for pool in &desired.pools {
                prop_assert_eq!(core.plane().program(&pool.key), Some(&pool.compiled.program.program));
            }
            // A failure that was not used up must not hit the next look.
            core.plane().fail_after(usize::MAX);
        }
        core.undo().unwrap();
    }
}
