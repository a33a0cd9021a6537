//! What a class owes does not outlive the rate at which it came to owe it (`planes::linux::htb`), whatever brings the
//! next rate; and after any policy and load another policy gives what `exact` allocates.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fmt::Write as _;
use std::net::UdpSocket;
use std::time::Duration;

use crate::common::flood::{Load, Look, flood, stream_of, under, while_full};
use crate::common::test_host::{SINK, TestHost, test_host};
use crate::root_plane::{counts, policy};
use crate::root_takeover::start;
use vmio_guard::core::Core;
use vmio_guard::planes::linux::{Linux, Netlink, htb};
use vmio_model::allocate::{Demand, exact};
use vmio_model::policy::{Abilities, compile};
use vmio_model::rate::BitRate;
use vmio_testbed::net::{apart_with_bpffs, run};
use vmio_testbed::{Random, poll_until};

/// The first tenant's class.
const T1: u16 = 16;

/// A tenant's, in Mbit/s.
#[derive(Debug, Clone, Copy)]
struct Contract {
    min: u64,
    max: u64,
    priority: u8,
    weight: u32,
    hard: bool,
}

const fn soft(min: u64, max: u64, priority: u8) -> Contract {
    Contract { min, max, priority, weight: 1, hard: false }
}

/// Of 20 Mbit/s: the first has no minimum, and the largest in the second policy.
const BEFORE: [Contract; 3] = [soft(0, 15, 2), soft(2, 15, 2), soft(4, 20, 2)];
const AFTER: [Contract; 3] = [soft(6, 15, 4), soft(2, 15, 3), soft(4, 20, 3)];

fn text(capacity: u64, contracts: &[Contract]) -> String {
    let mut text = format!("[uplink.u0]\ncapacity = \"{capacity}Mbit\"\n");
    for (i, contract) in (1..).zip(contracts) {
        let Contract { min, max, priority, weight, hard } = contract;
        let reserve = if *hard { "hard" } else { "soft" };
        let class = format!("priority = {priority}\nmin = \"{min}Mbit\"\nmax = \"{max}Mbit\"\nweight = {weight}");
        let _ = write!(text, "[class.c{i}]\n{class}\nreserve = \"{reserve}\"\n");
        let _ = write!(text, "[[interface]]\nmatch = {{ name = \"t{i}\" }}\nclass = \"c{i}\"\n");
    }
    text
}

/// Seconds that a class at the uplink owes before it sends on its own rate.
fn owes(host: &TestHost, minor: u16) -> f64 {
    let read = htb::read(&mut Netlink::open().unwrap(), &host.uplink).unwrap();
    let htb::Root::Ours(there) = read else { panic!("it is ours") };
    f64::from(there.classes[&minor].debt.rate) * 64e-9
}

/// The first tenant sends large packets until one that it sent on 8 kbit/s of its own is not paid for for long.
fn go_into_debt(host: &TestHost) {
    under(stream_of(host, 0, 9), || poll_until("a debt of seconds", || owes(host, T1) > 3.0));
}

/// These tenants (from 1) send the sink what they can, each with some 300 kB that wait.
fn floods<'a>(host: &'a TestHost, who: &[usize]) -> Vec<Load<'a>> {
    let one = |member: &usize| -> Load<'a> {
        let namespace = &host.tenants[member - 1].namespace;
        Box::new(move |done| namespace.inside(|| flood(SINK, 1400, 1 << 18, done)))
    };
    who.iter().map(one).collect()
}

/// While these flood for so long after so long, each member's share is within so much of what `exact` allocates.
fn is_exact(core: &mut Core<Linux>, host: &TestHost, who: &[usize], times: [u64; 2], within: f64) {
    let pool = &core.desired().pools[0].pool;
    let members = pool.members();
    let demand = |i: usize| if who.contains(&i) { Demand::Unbounded } else { Demand::Rate(BitRate::ZERO) };
    let demands: Vec<Demand> = (0..members.len()).map(demand).collect();
    let grants = exact(compile::shared(pool, &Abilities::HTB), &members, &demands);
    let rates: Vec<f64> = grants.iter().map(|grant| grant.rate.bits() as f64).collect();
    let sum: f64 = rates.iter().sum();
    let [settle, enough] = times.map(Duration::from_millis);
    let look = |time: Duration| {
        if !time.is_zero() {
            core.tick(time).unwrap();
        }
        counts(core).iter().map(|c| Look { passed: c.passed_bytes, waiting: c.waiting_bytes }).collect()
    };
    let shares = under(floods(host, who), || while_full(who, (settle, enough), look)).shares();
    let right: Vec<f64> = rates.iter().map(|rate| rate / sum).collect();
    let close = shares.iter().zip(&right).all(|(got, want)| (got - want).abs() < within);
    assert!(close, "{who:?} flood and have {shares:.3?}, where {right:.3?} is right: {members:?}");
}

fn drained(core: &mut Core<Linux>) {
    poll_until("empty queues", || counts(core).iter().all(|count| count.waiting_bytes == 0));
}

#[test]
#[ignore = "root"]
fn a_minimum_holds_whatever_its_class_owes() {
    apart_with_bpffs(true, || {
        let host = test_host(3);
        let ledger = tempfile::tempdir().unwrap();
        let (before, after) = (text(20, &BEFORE), text(20, &AFTER));
        let _listener = host.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap());
        let holds = |core: &mut Core<Linux>| {
            is_exact(core, &host, &[1, 2, 3], [300, 700], 0.06);
            drained(core);
        };
        // Another policy.
        let mut core = start(&host, ledger.path(), &before);
        go_into_debt(&host);
        let passed = counts(&mut core)[1].passed_bytes;
        core.reload(policy(&after)).unwrap();
        assert!(owes(&host, T1) < 0.1 && counts(&mut core)[1].passed_bytes >= passed);
        holds(&mut core);
        // Another guard, with another policy.
        core.reload(policy(&before)).unwrap();
        go_into_debt(&host);
        drop(core);
        let mut core = start(&host, ledger.path(), &after);
        holds(&mut core);
        // One that finds what it wants, in a class that somebody has changed in place.
        core.reload(policy(&before)).unwrap();
        go_into_debt(&host);
        drop(core);
        let settings = "htb rate 6mbit ceil 15mbit burst 128k cburst 128k prio 3 quantum 65536";
        run(&[&format!("tc class change dev u0 parent 7a00:1 classid 7a00:10 {settings}")]);
        assert!(owes(&host, T1) > 1.0);
        let mut core = start(&host, ledger.path(), &after);
        holds(&mut core);
        assert_eq!(core.reconcile().unwrap(), 0);
        core.undo().unwrap();
    });
}

/// Leaves send on their own rates whatever the root has.
#[test]
#[ignore = "root"]
fn a_capacity_that_rises_is_there_at_once() {
    apart_with_bpffs(true, || {
        let host = test_host(3);
        let ledger = tempfile::tempdir().unwrap();
        let _listener = host.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap());
        let same = [soft(0, 20, 4); 3];
        let mut core = start(&host, ledger.path(), &text(2, &same));
        under(floods(&host, &[1, 2, 3]), || {
            poll_until("a debt", || owes(&host, htb::ROOT_CLASS) > 0.4);
            core.reload(policy(&text(20, &same))).unwrap();
            assert!(owes(&host, htb::ROOT_CLASS) < 0.2);
        });
        is_exact(&mut core, &host, &[1, 2, 3], [300, 700], 0.06);
        core.undo().unwrap();
    });
}

fn one_of<const N: usize>(random: &mut Random, all: [u64; N]) -> u64 {
    all[random.below(N as u64) as usize]
}

fn contract(random: &mut Random, weights: u64) -> Contract {
    Contract {
        min: one_of(random, [0, 0, 2, 4, 6]),
        max: one_of(random, [6, 10, 15, 20]),
        priority: 2 + random.below(3) as u8,
        weight: 1 + random.below(weights) as u32,
        hard: random.below(4) == 0,
    }
}

/// One, two or all of the tenants.
fn some(random: &mut Random) -> Vec<usize> {
    let bits = 1 + random.below(7);
    (1..=3).filter(|i| (bits >> (i - 1)) & 1 == 1).collect()
}

/// Random policies, one after the other; before each change one of the tenants sends large packets.
fn sequence(seed: u64, policies: usize, weights: u64, times: [u64; 2], within: f64) {
    apart_with_bpffs(true, || {
        let (mut random, host) = (Random::new(seed), test_host(3));
        let ledger = tempfile::tempdir().unwrap();
        let _listener = host.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap());
        let mut core = start(&host, ledger.path(), &text(20, &BEFORE));
        for i in 1..=policies {
            let tenant = random.below(3) as usize;
            let passed = |core: &mut Core<Linux>| counts(core)[tenant + 1].passed_bytes;
            let enough = passed(&mut core) + 300_000;
            under(stream_of(&host, tenant, 9), || poll_until("large packets", || passed(&mut core) > enough));
            drained(&mut core);
            let contracts: [Contract; 3] = std::array::from_fn(|_| contract(&mut random, weights));
            let who = some(&mut random);
            println!("seed {seed}, policy {i}: tenant {} before, {who:?} flood, {contracts:?}", tenant + 1);
            core.reload(policy(&text(20, &contracts))).unwrap();
            is_exact(&mut core, &host, &who, times, within);
            drained(&mut core);
        }
        core.undo().unwrap();
    });
}

#[test]
#[ignore = "root"]
fn any_policy_is_held_after_any_other() {
    // In a second a class's turn of two weights is 5 %.
    sequence(1, 4, 2, [300, 1000], 0.08);
}

#[test]
#[ignore = "root"]
fn long_any_policy_is_held_after_any_other() {
    for seed in 2..6 {
        sequence(seed, 10, 4, [300, 5000], 0.05);
    }
}
