//! The published loop in force by the Linux plane: tenants that flood get what the loop alone makes of the same
//! counters, and nothing is left behind.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::flood::{floods, under};
use crate::common::state::State;
use crate::common::test_host::{SINK, TestHost, test_host};
use crate::root_plane::{interfaces, policy, tx};
use crate::root_stage::behind_a_firewall;
use crate::root_takeover::kept;
use vmio_guard::core::Core;
use vmio_guard::desired::{Desired, PoolKey};
use vmio_guard::planes::linux::{Device, Linux, Netlink, htb, ifb};
use vmio_guard::planes::{Count, Observation, Plane, PlaneError, Scope, Setting};
use vmio_model::allocate::Member;
use vmio_model::allocate::dba::Measures;
use vmio_model::control::{Allocator, Control, PeriodSample};
use vmio_model::policy::Abilities;
use vmio_model::policy::compile::shared;
use vmio_model::policy::pool::MemberKind;
use vmio_model::rate::{BitRate, ByteRate};
use vmio_testbed::net::{apart, apart_with_bpffs};
use vmio_testbed::{poll_for, poll_until};

const PERIOD: Duration = Duration::from_millis(50);
/// Periods.
const SETTLED: usize = 20;
/// Periods after which it is begun anew.
const LONGEST: usize = 6 * SETTLED;

/// Of 20 Mbit/s half is somebody's minimum; the rest goes three to two to one.
const POLICY: &str = "\
[uplink.u0]
capacity = \"20Mbit\"
[class.gold]
priority = 2
min = \"6Mbit\"
[class.silver]
priority = 4
min = \"3Mbit\"
[class.bronze]
priority = 6
min = \"1Mbit\"
[[interface]]
match = { name = \"t1\" }
class = \"gold\"
[[interface]]
match = { vm = \"db\" }
class = \"silver\"
[[interface]]
match = { mac = \"02:00:00:00:01:03\" }
class = \"bronze\"
";

/// The Linux plane, and what it counted.
struct Recorder {
    linux: Linux,
    recorded: Vec<Vec<Count>>,
}

impl Plane for Recorder {
    fn abilities(&self) -> Abilities {
        self.linux.abilities()
    }
    fn reconcile(&mut self, desired: &Desired) -> Result<usize, PlaneError> {
        self.linux.reconcile(desired)
    }
    fn set(&mut self, pool: &PoolKey, setting: Setting<'_>) -> Result<(), PlaneError> {
        self.linux.set(pool, setting)
    }
    fn observe(&mut self, scope: Scope<'_>) -> Result<Observation, PlaneError> {
        let seen = self.linux.observe(scope)?;
        if let Scope::Counts(_) = scope {
            self.recorded.push(seen.counts.to_vec());
        }
        Ok(seen)
    }
    fn undo(&mut self) -> Result<(), PlaneError> {
        self.linux.undo()
    }
}

/// What a period shows by what passed: nobody is held back but who lost packets, or had to wait at both ends.
fn seen(before: &[Count], now: &[Count]) -> Vec<PeriodSample> {
    let one = |(before, now): (&Count, &Count)| PeriodSample {
        offered: 0,
        passed: (now.passed_bytes - before.passed_bytes) * 8,
        held_back: now.dropped_packets > before.dropped_packets || (before.waiting_bytes > 0 && now.waiting_bytes > 0),
    };
    before.iter().zip(now).map(one).collect()
}

/// What happened while three flooded: what was counted at the end of each period, how long that was, and the limits
/// since.
struct Run {
    counts: Vec<Vec<Count>>,
    told: Vec<(Duration, Vec<BitRate>)>,
}

impl Run {
    /// Periods at the end in which all three had something waiting, or lost packets: they wanted all, all the time; and
    /// in which limits were fair.
    fn settled(&self, members: &[Member]) -> usize {
        let wanted = |two: &[Vec<Count>]| seen(&two[0], &two[1])[1..4].iter().all(|seen| seen.held_back);
        let periods = self.counts.windows(2).zip(&self.told[1..]).rev();
        periods.take_while(|(two, (_, caps))| wanted(two) && is_fair(caps, members)).count()
    }
}

/// Until limits are fair, and for two seconds more: in the first what a pause let gather is spent. Where one of the
/// three pauses, the published loop gives what is its to the others and never takes it back while these want it: then
/// `None`.
fn flooded(core: &mut Core<Recorder>, host: &TestHost, members: &[Member]) -> Option<Run> {
    let mut run = Run { counts: Vec::new(), told: Vec::new() };
    under(floods(host, &[1, 2, 3]), || {
        // Who comes first is nobody's matter here: all have more than their minimum lets through before the loop
        // begins.
        let waiting = |core: &mut Core<Recorder>| core.plane().linux.observe(Scope::Counts(&tx())).unwrap().counts;
        poll_until("floods", || waiting(core)[1..4].iter().all(|count| count.waiting_bytes > 0));
        let mut ticked = Instant::now();
        while run.told.len() < LONGEST {
            thread::sleep(PERIOD);
            let now = Instant::now();
            let time = now - std::mem::replace(&mut ticked, now);
            core.tick(time).unwrap();
            run.counts.push(core.plane().recorded.last().unwrap().clone());
            run.told.push((time, core.in_force(&tx()).unwrap().caps.clone()));
            if run.settled(members) >= 2 * SETTLED {
                return Some(run);
            }
        }
        None
    })
}

#[test]
#[ignore = "root"]
fn limits_follow_from_recorded_counters() {
    apart(|| {
        let mut host = test_host(3);
        let (uplink, there) = (host.uplink.clone(), interfaces(&host));
        let before = htb::settings(&mut host.netlink, &uplink).unwrap();
        let _listener = host.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap());
        let allocator = Allocator::Dba(Measures::Passed);
        let (mut core, run) = poll_for("three that flood all the time, and fair limits", || {
            let plane = Recorder { linux: Linux::open(false).unwrap(), recorded: Vec::new() };
            let mut core = Core::start_by(allocator, plane, policy(POLICY), there.clone()).unwrap();
            assert_eq!(core.reconcile().unwrap(), 0, "applying twice changes nothing");
            let members = core.desired().pools[0].pool.members();
            match flooded(&mut core, &host, &members) {
                Some(run) => Ok((core, run)),
                None => {
                    let last = core.in_force(&tx()).unwrap().clone();
                    core.undo().unwrap();
                    Err(last)
                }
            }
        });
        let pool = core.desired().pools[0].pool.clone();
        let (shared, members) = (shared(&pool, &Abilities::HTB), pool.members());
        // The loop alone, with the counters that the plane gave.
        let apart: Vec<bool> = pool.seats.iter().map(|seat| seat.who != MemberKind::Interface).collect();
        let mut alone = Control::of_limits(shared, members, allocator, 1514 * 8).ranked_without(&apart);
        assert_eq!(core.plane().recorded.len(), run.told.len());
        for (counts, (time, caps)) in run.counts.windows(2).zip(&run.told[1..]) {
            alone.tick(&seen(&counts[0], &counts[1]), time.as_nanos() as u64 * 1000);
            assert_eq!(*caps, alone.in_force().caps);
            assert!(caps.iter().copied().sum::<BitRate>() <= shared, "{caps:?}");
        }
        given(&run);
        // Somebody deletes the queues: they come back with what the loop has set.
        vmio_testbed::net::run(&["tc qdisc del dev u0 root"]);
        assert!(core.reconcile().unwrap() > 0);
        assert_eq!(core.reconcile().unwrap(), 0);
        let limit = core.in_force(&tx()).unwrap().caps[1].bytes();
        assert_eq!(leaves(&mut host.netlink, &uplink)[&16], (limit, limit));
        core.undo().unwrap();
        assert_eq!(htb::settings(&mut host.netlink, &uplink).unwrap(), before, "as it was, bit by bit");
    });
}

/// Minima, and what is left three to two to one.
fn is_fair(caps: &[BitRate], members: &[Member]) -> bool {
    let more: Vec<f64> = (1..4).map(|i| (caps[i].bits() as f64 - members[i].min.bits() as f64) / 1e6).collect();
    (more[0] / more[2] - 3.0).abs() < 0.2 && (more[1] / more[2] - 2.0).abs() < 0.2
}

/// What passed at the end is what the limits let through meanwhile.
fn given(run: &Run) {
    let begin = run.counts.len() - SETTLED;
    let (first, last) = (&run.counts[begin], &run.counts[run.counts.len() - 1]);
    for i in 1..4 {
        let passed = (last[i].passed_bytes - first[i].passed_bytes) as f64 * 8.0;
        // Those of a period were set at the end of the one before.
        let let_through = run.told[begin..].windows(2).map(|two| two[0].1[i].bits() as f64 * two[1].0.as_secs_f64());
        let part = passed / let_through.sum::<f64>();
        assert!((0.9..1.1).contains(&part), "member {i}: {part:.3} of what its limits let through");
    }
}

/// Own rate and ceiling of each class there, by number.
fn leaves(netlink: &mut Netlink, at: &Device) -> BTreeMap<u16, (ByteRate, ByteRate)> {
    let htb::Root::Ours(ours) = htb::read(netlink, at).unwrap() else { panic!("our queue") };
    let leaves = ours.classes.iter().filter(|(_, found)| found.parent != u32::MAX);
    leaves.map(|(number, found)| (*number, (found.class.rate, found.class.ceil))).collect()
}

/// One kind of loop takes over what the other has left in force, at an uplink and in a stage before it, and what both
/// put there goes.
#[test]
#[ignore = "root"]
fn allocators_take_over_from_each_other() {
    for staged in [false, true] {
        apart_with_bpffs(true, || {
            let mut host = test_host(3);
            let (before, ledger) = (State::now(), tempfile::tempdir().unwrap());
            let there = if staged { behind_a_firewall(interfaces(&host)) } else { interfaces(&host) };
            let by = |allocator| Core::start_by(allocator, kept(ledger.path()), policy(POLICY), there.clone()).unwrap();
            let uplink = host.uplink.clone();
            let lends = |host: &mut TestHost| {
                let ifb = format!("vmiotx{:x}", uplink.index);
                let at = if staged { ifb::find(&mut host.netlink, &ifb).unwrap().unwrap() } else { uplink.clone() };
                leaves(&mut host.netlink, &at).range(16..).all(|(_, (rate, ceil))| rate != ceil)
            };
            by(Allocator::Exact).leave();
            assert!(lends(&mut host), "a hierarchy lends");
            let mut core = by(Allocator::Dba(Measures::Offered));
            assert!(!lends(&mut host), "a limit is a limit");
            assert_eq!(core.reconcile().unwrap(), 0, "applying twice changes nothing");
            core.leave();
            let core = by(Allocator::Exact);
            assert!(lends(&mut host), "and back");
            core.undo().unwrap();
            assert_eq!(State::now(), before);
        });
    }
}
