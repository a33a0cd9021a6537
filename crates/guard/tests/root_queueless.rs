//! Uplinks without queues: a policy of maxima alone, by token buckets, beside whatever queue is there.

#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::net::UdpSocket;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::flood::{floods, under};
use crate::common::state::State;
use crate::common::test_host::{SINK, TestHost, carried, send, test_host};
use crate::root_excess::is_at;
use crate::root_plane::{counts, interfaces, policy};
use crate::root_takeover::{kept, start};
use vmio_guard::core::Core;
use vmio_guard::planes::Plane;
use vmio_guard::planes::linux::{Linux, Netlink, htb, stands};
use vmio_testbed::net::{apart, apart_with_bpffs, run, tried};
use vmio_testbed::{poll_for, poll_until};

/// A queue of another program, which can be taken over.
const FOREIGN: &str = "tc qdisc add dev u0 root handle 11: pfifo limit 5000";

/// Of 40 Mbit/s; t1 has a maximum, t2 none.
pub fn alone(max: u64) -> String {
    format!(
        "[uplink.u0]\ncapacity = \"40Mbit\"\n[class.host]\nmin = \"0bit\"\npriority = 4\n[class.default]\npriority = 4\n\
         [class.low]\nmax = \"{max}Mbit\"\nexcess = \"drop\"\n[class.open]\n\
         [[interface]]\nmatch = {{ name = \"t1\" }}\nclass = \"low\"\n\
         [[interface]]\nmatch = {{ name = \"t2\" }}\nclass = \"open\"\n"
    )
}

/// The same with a minimum of t2, which needs queues.
fn shared(max: u64) -> String {
    alone(max).replace("[class.open]\n", "[class.open]\nmin = \"24Mbit\"\n")
}

/// The queues at the uplink, without the qdisc that takes programs.
fn queues() -> String {
    let all = tried("tc qdisc show dev u0").1;
    let lines = all.lines().filter(|line| !line.contains("clsact"));
    // How many hold it is no matter.
    lines.filter_map(|line| line.split(" refcnt").next()).collect()
}

fn has_ours(host: &TestHost) -> bool {
    matches!(htb::read(&mut Netlink::open().unwrap(), &host.uplink).unwrap(), htb::Root::Ours(_))
}

fn sink(host: &TestHost) -> UdpSocket {
    host.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap())
}

/// A flood of t1 arrives at this maximum, and is counted so.
fn holds(host: &TestHost, core: &mut Core<Linux>, what: &str, max: f64) {
    let core = RefCell::new(core);
    let of = |member: usize| counts(&mut core.borrow_mut())[member];
    under(floods(host, &[1]), || {
        is_at(what, max, || carried(host).1, || of(1).dropped_packets);
        is_at(what, max, || of(1).passed_bytes, || of(1).dropped_packets);
    });
}

/// Another program's queue is in nobody's way.
#[test]
#[ignore = "root"]
fn a_maximum_is_held_without_a_queue() {
    let none: &[&str] = &[];
    for foreign in [none, &[FOREIGN]] {
        apart(|| {
            let host = test_host(2);
            run(&["ip addr add 10.9.0.1/24 dev br0"]);
            run(&[&format!("ip neigh replace {SINK} lladdr 02:00:00:00:00:09 dev br0 nud permanent")]);
            run(foreign);
            let (before, found) = (State::now(), queues());
            let _sink = sink(&host);
            let mut core = Core::start(Linux::open(false).unwrap(), policy(&alone(10)), interfaces(&host)).unwrap();
            assert_eq!(core.reconcile().unwrap(), 0, "applying twice changes nothing");
            assert_eq!(queues(), found);
            holds(&host, &mut core, "the maximum", 10e6);
            core.reload(policy(&alone(4))).unwrap();
            holds(&host, &mut core, "another maximum", 4e6);
            // Who has no maximum may have more than the policy takes the uplink for, and is counted, as the host is.
            under(floods(&host, &[2]), || {
                poll_for("more than the capacity", || {
                    let (began, first) = (Instant::now(), counts(&mut core)[2].passed_bytes);
                    thread::sleep(Duration::from_millis(500));
                    let rate = (counts(&mut core)[2].passed_bytes - first) as f64 * 8.0 / began.elapsed().as_secs_f64();
                    if rate > 45e6 { Ok(()) } else { Err(rate) }
                });
            });
            let hosts = counts(&mut core)[0].passed_bytes;
            poll_until("the host's own", || {
                send(100);
                counts(&mut core)[0].passed_bytes > hosts + 100 * 400
            });
            let status = core.status().unwrap().remove(0);
            assert_eq!((status.queue, status.members[1].count.waiting_bytes), (None, 0));
            assert_eq!(queues(), found, "as it was found all the time");
            core.undo().unwrap();
            assert_eq!(State::now(), before);
        });
    }
}

/// From queues to none and back: what was replaced for queues comes back with each, and counters go on.
#[test]
#[ignore = "root"]
fn a_new_policy_brings_queues_and_removes_them() {
    apart(|| {
        let host = test_host(2);
        run(&[FOREIGN]);
        let (before, found) = (State::now(), queues());
        let _sink = sink(&host);
        let ledger = tempfile::tempdir().unwrap();
        let mut core = start(&host, ledger.path(), &shared(10));
        let mut passed = 0;
        for max in [10, 4] {
            assert!(has_ours(&host));
            holds(&host, &mut core, "with queues", max as f64 * 1e6);
            for (text, ours) in [(alone(max), false), (shared(4), true)] {
                let last = std::mem::replace(&mut passed, counts(&mut core)[1].passed_bytes);
                assert!(passed > last, "{passed} after {last}");
                core.reload(policy(&text)).unwrap();
                assert_eq!(core.reconcile().unwrap(), 0);
                assert_eq!((has_ours(&host), queues() == found), (ours, !ours));
                let now = counts(&mut core)[1];
                assert!(now.passed_bytes >= passed && now.passed_bytes < passed + 10_000_000, "{passed}: {now:?}");
                if !ours {
                    holds(&host, &mut core, "without queues", max as f64 * 1e6);
                }
            }
        }
        core.undo().unwrap();
        assert_eq!(State::now(), before);
    });
}

/// Without leave to take it over, another program's queue is in the way of the first queues, and of nothing else.
#[test]
#[ignore = "root"]
fn queues_that_find_no_place_leave_the_maxima() {
    apart(|| {
        let host = test_host(2);
        run(&[FOREIGN]);
        let (before, found) = (State::now(), queues());
        let _sink = sink(&host);
        for on_conflict in ["report", "restore"] {
            let with = |text: String| format!("[guard]\non_conflict = \"{on_conflict}\"\n{text}");
            let plane = Linux::open(false).unwrap();
            let mut core = Core::start(plane, policy(&with(alone(4))), interfaces(&host)).unwrap();
            let refused = core.reload(policy(&with(shared(4)))).unwrap_err().to_string();
            assert!(refused.contains("qdisc pfifo 11: belongs to another program"), "{refused}");
            assert!(refused.contains("the previous limits are in force again"), "{refused}");
            assert_eq!((core.status().unwrap()[0].interruptions.total, queues()), (0, found.clone()));
            assert_eq!(core.reconcile().unwrap(), 0);
            holds(&host, &mut core, "the maximum", 4e6);
            core.undo().unwrap();
            assert_eq!(State::now(), before);
        }
    });
}

/// A guard that takes over finds the other form, and an undo without memory removes either.
#[test]
#[ignore = "root"]
fn either_form_is_taken_over() {
    for pinned in [true, false] {
        apart_with_bpffs(pinned, || {
            let host = test_host(2);
            run(&[FOREIGN]);
            let (before, found) = (State::now(), queues());
            let _sink = sink(&host);
            let ledger = tempfile::tempdir().unwrap();
            let again = |directory: &Path, text: &str, ours: bool| {
                let mut core = start(&host, directory, text);
                assert_eq!((core.reconcile().unwrap(), has_ours(&host)), (0, ours));
                assert_eq!(queues() == found, !ours);
                core.leave();
                assert!(stands().unwrap());
            };
            again(ledger.path(), &alone(4), false);
            again(ledger.path(), &shared(4), true);
            again(ledger.path(), &alone(4), false);
            let mut core = start(&host, ledger.path(), &alone(4));
            holds(&host, &mut core, "taken over", 4e6);
            core.leave();
            kept(ledger.path()).undo().unwrap();
            assert_eq!(State::now(), before);
            assert!(!stands().unwrap());
        });
    }
}
