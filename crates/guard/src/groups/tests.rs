//! Tests on a fake machine; `tests/root_groups.rs` has those on the kernel.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::fake::Machine;
use super::*;

const HEAD: &str = "\
[uplink.eth0]
capacity = \"1Gbit\"
[[interface]]
match = { name = \"a*\" }
class = \"gold\"
[[interface]]
match = { name = \"b*\" }
class = \"tin\"
";
const GOLD: &str = "cpu_weight = 400\ncpu_max = \"150%\"\nmemory_max = \"4GiB\"\n";
const MIB: u64 = 1 << 20;

fn policy(gold: &str, tin: &str) -> Policy {
    crate::testing::policy(&format!("{HEAD}[class.gold]\n{gold}[class.tin]\n{tin}"))
}

fn guest(name: &str, pid: u32) -> GuestInfo {
    let interface = |i: u32| Interface { index: i, name: format!("{name}{i}"), ..Interface::default() };
    GuestInfo { name: name.into(), interfaces: vec![interface(0), interface(1)], pids: vec![pid], memory_bytes: None }
}

/// A machine with the guests `a` and `b`, each in a group of its own.
fn machine(v2: bool) -> Machine {
    let machine = Machine::new(v2);
    for (name, pid) in [("a", 100), ("b", 200)] {
        machine.process(pid, 1, name);
        machine.group(name, &[pid]);
    }
    machine
}

fn groups(machine: &Machine, log: &UndoLog) -> Groups<Machine> {
    Groups::over(machine.clone(), machine.hierarchies(), log).unwrap()
}

/// Why limits are not in force.
fn refusals(groups: &Groups<Machine>) -> Vec<String> {
    let limits = groups.status().iter().flat_map(|guest| &guest.limits);
    limits.filter_map(|limit| if let State::Not(why) = &limit.state { Some(why.to_string()) } else { None }).collect()
}

fn changes(set: usize, put_right: usize, put_back: usize) -> Changes {
    Changes { set, put_right, put_back, notes: Vec::new() }
}

#[test]
fn limits_are_set_repaired_and_restored() {
    for v2 in [false, true] {
        let (machine, log) = (machine(v2), UndoLog::memory());
        let (before, guests) = (machine.all(), [guest("a", 100)]);
        let mut groups = groups(&machine, &log);
        let gold = policy(GOLD, "");
        assert_eq!(groups.reconcile(&gold, &guests), changes(3, 0, 0), "{:?}", groups.status());
        let [weight, quota, memory] = if v2 {
            ["/cg/a/cpu.weight", "/cg/a/cpu.max", "/cg/a/memory.max"]
        } else {
            ["/cg/cpu/a/cpu.shares", "/cg/cpu/a/cpu.cfs_quota_us", "/cg/memory/a/memory.limit_in_bytes"]
        };
        let wanted = if v2 { ["400", "150000 100000"] } else { ["4096", "150000"] };
        assert_eq!([weight, quota].map(|file| machine.file(file)), wanted);
        assert_eq!(machine.file(memory), (4u64 << 30).to_string());
        assert_eq!((refusals(&groups).len(), groups.held(), machine.writes()), (0, 3, 3));
        for _ in 0..2 * LOOKS {
            assert_eq!(groups.reconcile(&gold, &guests), changes(0, 0, 0));
        }
        assert_eq!(machine.writes(), 3);
        // Somebody sets something over it.
        machine.put("a", weight.rsplit('/').next().unwrap(), "77");
        assert_eq!(groups.reconcile(&gold, &guests), changes(0, 1, 0));
        assert_eq!(machine.file(weight), wanted[0]);
        // The class says something else, then nothing.
        let other = policy("cpu_weight = 100\ncpu_max = \"50%\"\n", "");
        assert_eq!(groups.reconcile(&other, &guests), changes(2, 0, 1));
        assert_eq!(machine.file(quota), if v2 { "50000 100000" } else { "50000" });
        assert_eq!(groups.held(), 2);
        assert_eq!(groups.reconcile(&policy("", ""), &guests).notes, [""; 0]);
        assert_eq!((machine.all(), groups.held(), groups.status().len()), (before, 0, 0));
    }
}

#[test]
fn guests_that_leave_or_change_group() {
    let (machine, log) = (machine(true), UndoLog::memory());
    let before = machine.all();
    let mut groups = groups(&machine, &log);
    let both = policy(GOLD, "cpu_weight = 10\n");
    assert_eq!(groups.reconcile(&both, &[guest("a", 100), guest("b", 200)]).set, 4);
    assert_eq!(groups.reconcile(&both, &[guest("b", 200)]), changes(0, 0, 3));
    assert_eq!(machine.file("/cg/a/cpu.weight"), "100");
    groups.reconcile(&both, &[guest("a", 100), guest("b", 200)]);
    // Its group is made anew under the same name; another guest's is gone.
    machine.remove("a");
    machine.group("a", &[100]);
    machine.remove("b");
    assert_eq!(groups.reconcile(&both, &[guest("a", 100), guest("b", 200)]), changes(0, 0, 0));
    assert!(refusals(&groups).iter().all(|why| why.contains("at the next check")), "{:?}", groups.status());
    assert_eq!(groups.reconcile(&both, &[guest("a", 100), guest("b", 200)]), changes(3, 0, 0));
    assert_eq!((groups.held(), refusals(&groups).len()), (3, 1));
    // A new process in a new group.
    machine.process(101, 1, "a2");
    machine.group("a2", &[101]);
    assert_eq!(groups.reconcile(&both, &[guest("a", 101)]), changes(3, 0, 3));
    assert_eq!((machine.file("/cg/a2/cpu.weight"), machine.file("/cg/a/cpu.weight")), ("400".into(), "100".into()));
    groups.undo();
    machine.remove("a2");
    machine.group("b", &[200]);
    assert_eq!(machine.all(), before);
}

#[test]
fn undo_after_a_crash() {
    for v2 in [false, true] {
        let (machine, log) = (machine(v2), UndoLog::memory());
        let before = machine.all();
        let mut first = groups(&machine, &log);
        first.reconcile(&policy(GOLD, ""), &[guest("a", 100)]);
        drop(first);
        machine.rename("a", "renamed");
        let mut second = groups(&machine, &log);
        assert_eq!((second.held(), second.undo()), (3, changes(0, 0, 3)));
        machine.rename("renamed", "a");
        assert_eq!((machine.all(), groups(&machine, &log).held()), (before, 0));
    }
}

#[test]
fn foreign_value_is_left_and_reported() {
    let (machine, log) = (machine(true), UndoLog::memory());
    let mut first = groups(&machine, &log);
    first.reconcile(&policy(GOLD, ""), &[guest("a", 100)]);
    machine.put("a", "cpu.weight", "250");
    let undone = first.undo();
    assert_eq!((undone.put_back, first.held()), (2, 0));
    assert_eq!(undone.notes, ["cpu_weight of a stays at 250, which another program has set since"]);
    assert_eq!(machine.file("/cg/a/cpu.weight"), "250");
}

#[test]
fn next_daemon_takes_limits_over_without_a_write() {
    let (machine, log) = (machine(false), UndoLog::memory());
    let (before, gold) = (machine.all(), policy(GOLD, ""));
    groups(&machine, &log).reconcile(&gold, &[guest("a", 100)]);
    let mut second = groups(&machine, &log);
    assert_eq!((second.reconcile(&gold, &[guest("a", 100)]), machine.writes()), (changes(0, 0, 0), 3));
    assert_eq!(second.reconcile(&policy("", ""), &[]), changes(0, 0, 3));
    assert_eq!(machine.all(), before);
}

#[test]
fn no_memory_limit_that_kills() {
    for v2 in [false, true] {
        let (machine, log) = (machine(v2), UndoLog::memory());
        let limit = if v2 { "memory.max" } else { "memory.limit_in_bytes" };
        let small = policy("memory_max = \"256MiB\"\n", "");
        let mut groups = groups(&machine, &log);
        machine.used("a", 300 * MIB);
        assert_eq!(groups.reconcile(&small, &[guest("a", 100)]), changes(0, 0, 0));
        assert!(refusals(&groups)[0].contains("300 MiB are in use"), "{:?}", groups.status());
        assert_eq!(machine.writes(), 0);
        // The guest's own memory counts, used or not.
        machine.used("a", MIB);
        let big = GuestInfo { memory_bytes: Some(512 * MIB), ..guest("a", 100) };
        groups.reconcile(&small, std::slice::from_ref(&big));
        assert!(refusals(&groups)[0].contains("512 MiB"), "{:?}", groups.status());
        // The same holds for the value before.
        machine.put("a", limit, &(64 * MIB).to_string());
        assert_eq!(groups.reconcile(&small, &[guest("a", 100)]).set, 1);
        machine.used("a", 200 * MIB);
        let undone = groups.undo();
        assert_eq!((undone.put_back, groups.held()), (0, 1));
        assert!(undone.notes[0].starts_with("memory_max of a is not put back"), "{undone:?}");
        machine.used("a", MIB);
        assert_eq!((groups.undo(), groups.held()), (changes(0, 0, 1), 0));
        assert_eq!(machine.killed(), [""; 0].map(PathBuf::from));
    }
}

#[test]
fn shared_groups_are_not_limited() {
    let (machine, log) = (machine(true), UndoLog::memory());
    let (before, gold) = (machine.all(), policy(GOLD, "cpu_weight = 7\n"));
    let mut groups = groups(&machine, &log);
    let refused = |groups: &mut Groups<Machine>, guests: &[GuestInfo], part: &str| {
        let put = groups.reconcile(&gold, guests);
        assert_eq!((put.set, groups.held()), (0, 0));
        let refusals = refusals(groups);
        assert!(!refusals.is_empty() && refusals.iter().all(|why| why.contains(part)), "{part}: {refusals:?}");
    };
    machine.process(1, 0, "");
    refused(&mut groups, &[guest("a", 1)], "the root control group");
    refused(&mut groups, &[guest("a", 4711)], "its processes have ended");
    // Two guests in one group.
    machine.process(300, 1, "a");
    machine.put("a", "cgroup.procs", "100\n300");
    refused(&mut groups, &[guest("a", 100), guest("b", 300)], "is not the guest's");
    let one = GuestInfo { pids: vec![100, 300], ..guest("a", 100) };
    let other = GuestInfo { pids: vec![300, 100], ..guest("b", 0) };
    groups.reconcile(&gold, &[one, other]);
    assert_eq!(refusals(&groups), ["it shares its control group with a"]);
    groups.undo();
    // One that cannot be seen from here.
    machine.put("a", "cgroup.procs", "100\n0");
    refused(&mut groups, &[guest("a", 100)], "cannot be seen from here");
    // What the guest's process started is its own, and what the kernel put there for it.
    machine.process(301, 100, "a");
    machine.proc.set("/proc/302/comm", "vhost-100\n");
    machine.proc.set("/proc/302/stat", "302 (vhost-100) S 2 0 0 0 -1 2129984 0 0\n");
    machine.put("a", "cgroup.procs", "100\n301\n302");
    assert_eq!(groups.reconcile(&gold, &[guest("a", 100)]).set, 3);
    groups.undo();
    machine.put("a", "cgroup.procs", "100");
    // A stranger below it comes later: the limits go.
    assert_eq!(groups.reconcile(&gold, &[guest("a", 100)]).set, 3);
    machine.process(400, 1, "a/x");
    machine.group("a/x", &[400]);
    let put_back: usize = (0..=LOOKS).map(|_| groups.reconcile(&gold, &[guest("a", 100)]).put_back).sum();
    assert_eq!(put_back, 3);
    machine.remove("a/x");
    assert_eq!(machine.all(), before);
}

#[test]
fn missing_controllers_and_failed_writes() {
    let (machine, log) = (machine(true), UndoLog::memory());
    machine.take("a", "cpu.weight");
    machine.put("a", "cpu.max", "max 500");
    let mut groups = groups(&machine, &log);
    assert_eq!(groups.reconcile(&policy(GOLD, ""), &[guest("a", 100)]).set, 1);
    let why = refusals(&groups);
    assert!(why[0].contains("the controller `cpu` is not enabled") && why[1].contains("too short"), "{why:?}");
    machine.set_read_only(true);
    let more = policy("memory_max = \"5GiB\"\n", "");
    groups.reconcile(&more, &[guest("a", 100)]);
    assert!(refusals(&groups)[0].contains("the kernel refuses"), "{:?}", groups.status());
    let undone = groups.undo();
    assert_eq!((undone.notes.len(), groups.held()), (1, 1), "{undone:?}");
    machine.set_read_only(false);
    assert_eq!(groups.undo(), changes(0, 0, 1));
}

#[test]
fn refused_limit_whose_entry_cannot_be_struck_out() {
    let (machine, log) = (machine(true), UndoLog::memory());
    let (mut groups, weight, guests) = (groups(&machine, &log), policy("cpu_weight = 400\n", ""), [guest("a", 100)]);
    machine.set_read_only(true);
    groups.entries.strikes_fail.store(true, Ordering::Relaxed);
    assert_eq!((groups.reconcile(&weight, &guests), groups.held()), (changes(0, 0, 0), 1));
    groups.entries.strikes_fail.store(false, Ordering::Relaxed);
    machine.set_read_only(false);
    // Counted as set: it was never in force before.
    assert_eq!((groups.reconcile(&weight, &guests), groups.held()), (changes(1, 0, 0), 1));
    assert_eq!((groups.undo(), groups.held()), (changes(0, 0, 1), 0));

    // Still not struck out when the limit is set: then it is the limit's entry.
    machine.set_read_only(true);
    groups.entries.strikes_fail.store(true, Ordering::Relaxed);
    assert_eq!((groups.reconcile(&weight, &guests), groups.held()), (changes(0, 0, 0), 1));
    machine.set_read_only(false);
    assert_eq!((groups.reconcile(&weight, &guests), groups.held()), (changes(1, 0, 0), 1));
    groups.entries.strikes_fail.store(false, Ordering::Relaxed);
    assert_eq!((groups.reconcile(&weight, &guests), groups.held()), (changes(0, 0, 0), 1));
    assert_eq!((groups.undo(), groups.held()), (changes(0, 0, 1), 0));
}

/// libvirt puts the threads of a guest into groups below the guest's scope, which gets the limit.
#[test]
fn libvirt_scope_is_the_guests_group() {
    for v2 in [false, true] {
        let (machine, log) = (Machine::new(v2), UndoLog::memory());
        let scope = "machine.slice/machine-qemu.scope";
        machine.group("machine.slice", &[]);
        for (name, pids) in [("", &[][..]), ("/libvirt", &[500]), ("/libvirt/emulator", &[]), ("/libvirt/vcpu0", &[])] {
            machine.group(&format!("{scope}{name}"), pids);
        }
        machine.process(500, 1, &format!("{scope}/libvirt/emulator"));
        machine.thread(500, 501, &format!("{scope}/libvirt/vcpu0"));
        let mut groups = groups(&machine, &log);
        assert_eq!(groups.reconcile(&policy(GOLD, ""), &[guest("a", 500)]).set, 3, "{:?}", groups.status());
        let file = if v2 { format!("/cg/{scope}/cpu.max") } else { format!("/cg/cpu/{scope}/cpu.cfs_quota_us") };
        assert!(machine.file(&file).starts_with("150000"), "{:?}", machine.all());
    }
}

#[test]
fn foreign_period_is_kept() {
    for v2 in [false, true] {
        let (machine, log) = (machine(v2), UndoLog::memory());
        let mut groups = groups(&machine, &log);
        let gold = policy("cpu_max = \"150%\"\n", "");
        groups.reconcile(&gold, &[guest("a", 100)]);
        if v2 {
            machine.put("a", "cpu.max", "150000 50000");
        } else {
            machine.put("a", "cpu.cfs_period_us", "50000");
        }
        assert_eq!(groups.reconcile(&gold, &[guest("a", 100)]).count(), 1);
        let file = if v2 { "/cg/a/cpu.max" } else { "/cg/cpu/a/cpu.cfs_quota_us" };
        assert_eq!(machine.file(file), if v2 { "75000 50000" } else { "75000" });
        assert_eq!(groups.undo(), changes(0, 0, 1));
        assert_eq!(machine.file(file), if v2 { "max 50000" } else { "-1" });
    }
}

#[derive(Debug, Clone)]
enum Event {
    Policy(usize),
    Guests(bool, bool),
    Crash,
    Used(bool, u64),
    Other(bool, usize, u32),
    Anew(bool),
}

fn events(others: bool) -> impl Strategy<Value = Vec<Event>> {
    let own = prop_oneof![
        (0usize..4).prop_map(Event::Policy),
        any::<(bool, bool)>().prop_map(|(a, b)| Event::Guests(a, b)),
        Just(Event::Crash),
        (any::<bool>(), 0u64..700).prop_map(|(a, mib)| Event::Used(a, mib * MIB)),
    ];
    let foreign = prop_oneof![
        (any::<bool>(), 0usize..3, 1u32..9).prop_map(|(a, which, n)| Event::Other(a, which, n)),
        any::<bool>().prop_map(Event::Anew),
    ];
    if !others {
        return prop::collection::vec(own, 0..24).boxed();
    }
    prop::collection::vec(prop_oneof![own, foreign], 0..24).boxed()
}

/// Plays events, each with three looks, the last of which changes nothing; then all is undone with little memory in
/// use.
fn play(machine: &Machine, events: &[Event], others: bool) -> Result<(), TestCaseError> {
    let log = UndoLog::memory();
    let policies = [
        policy(GOLD, "cpu_weight = 10\nmemory_max = \"300MiB\"\n"),
        policy("memory_max = \"200MiB\"\n", GOLD),
        policy("cpu_max = \"1%\"\n", ""),
        policy("", ""),
    ];
    let before = machine.all();
    let (mut at, mut there) = (0, (true, true));
    let mut now = groups(machine, &log);
    let name = |a: bool| if a { "a" } else { "b" };
    for event in events {
        match event {
            Event::Policy(other) => at = *other,
            Event::Guests(a, b) => there = (*a, *b),
            Event::Crash => now = groups(machine, &log),
            Event::Used(a, bytes) => machine.used(name(*a), *bytes),
            Event::Other(a, which, n) => {
                let files = ["cpu.weight", "cpu.shares", "cpu.cfs_quota_us"];
                machine.put(name(*a), files[*which], &(u64::from(*n) * 1000).to_string());
            }
            Event::Anew(a) => {
                machine.remove(name(*a));
                machine.group(name(*a), &[if *a { 100 } else { 200 }]);
            }
        }
        let all = [guest("a", 100), guest("b", 200)];
        let guests: Vec<GuestInfo> =
            all.into_iter().zip([there.0, there.1]).filter_map(|(guest, there)| there.then_some(guest)).collect();
        now.reconcile(&policies[at], &guests);
        // The second look finds a group that was made anew.
        now.reconcile(&policies[at], &guests);
        let writes = machine.writes();
        prop_assert_eq!(now.reconcile(&policies[at], &guests).count(), 0);
        prop_assert_eq!(machine.writes(), writes);
        prop_assert_eq!(machine.killed().len(), 0);
    }
    for name in ["a", "b"] {
        machine.used(name, MIB);
    }
    let mut last = groups(machine, &log);
    let undone = last.undo();
    prop_assert_eq!(last.held(), 0);
    if !others {
        prop_assert_eq!(&undone.notes, &Vec::<String>::new());
        prop_assert_eq!(machine.all(), before);
    }
    prop_assert_eq!(groups(machine, &log).held(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_values_are_restored(v2 in any::<bool>(), events in events(false)) {
        play(&machine(v2), &events, false)?;
    }

    #[test]
    fn foreign_changes_leave_no_ledger_entry(v2 in any::<bool>(), events in events(true)) {
        play(&machine(v2), &events, true)?;
    }
}
