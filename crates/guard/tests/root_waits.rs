//! How long packets wait, as it is measured in the kernel and by the packets themselves.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::flood::{Load, floods, under};
use crate::common::state::State;
use crate::common::test_host::{SINK, TestHost, test_host};
use crate::root_plane::{interfaces, policy};
use vmio_guard::core::Core;
use vmio_guard::planes::linux::{Linux, Netlink, counters};
use vmio_guard::planes::{DelayCount, Plane, Scope};
use vmio_testbed::net::apart;
use vmio_testbed::{limit, poll_for};

/// While the queue fills up.
const FIRST: usize = 250;
const ENOUGH: usize = 500;
/// Places of the tenants in the pool, behind the host.
const T1: usize = 1;
const T2: usize = 2;

/// Of t1 128 KiB may wait, which take 105 ms; t2 has all the rest for itself.
const POLICY: &str = "[guard]\nmeasure_delay = true\n[uplink.u0]\ncapacity = \"100Mbit\"\n\
                      [class.slow]\nmax = \"10Mbit\"\nqueue = \"100ms\"\n[class.quiet]\nmin = \"20Mbit\"\n\
                      [[interface]]\nmatch = { name = \"t1\" }\nclass = \"slow\"\n\
                      [[interface]]\nmatch = { name = \"t2\" }\nclass = \"quiet\"\n";

/// A tenant sends a small packet every 2 ms that says when it was sent. It finds room in a queue that is full for
/// large ones.
fn probe(host: &TestHost, tenant: usize, port: u16, began: Instant) -> Load<'_> {
    Box::new(move |done: &AtomicBool| {
        host.tenants[tenant - 1].namespace.inside(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            while !done.load(Ordering::Relaxed) {
                let sent = u64::try_from(began.elapsed().as_nanos()).unwrap();
                let _ = socket.send_to(&sent.to_be_bytes(), (SINK, port));
                thread::sleep(Duration::from_millis(2));
            }
        });
    })
}

/// How long that many of them were under way, the shortest time first.
fn arrive(socket: &UdpSocket, began: Instant, enough: usize) -> Vec<Duration> {
    let (mut waits, mut sent, start) = (Vec::new(), [0; 8], Instant::now());
    while waits.len() < enough {
        assert!(start.elapsed() < limit(), "{} probes arrived", waits.len());
        if socket.recv(&mut sent).is_ok() {
            waits.push(began.elapsed().saturating_sub(Duration::from_nanos(u64::from_be_bytes(sent))));
        }
    }
    waits.sort_unstable();
    waits
}

fn measured(core: &mut Core<Linux>) -> Vec<Option<Arc<DelayCount>>> {
    let pool = core.desired().pools[0].key.clone();
    core.plane().observe(Scope::Pool(&pool)).unwrap().delays
}

#[test]
#[ignore = "root"]
fn measured_waits_are_those_of_packets() {
    apart(|| {
        let host = test_host(2);
        let before = State::now();
        let mut core = Core::start(Linux::open(false).unwrap(), policy(POLICY), interfaces(&host)).unwrap();
        assert!(core.notes().iter().all(|note| !note.contains("not measured")), "{:?}", core.notes());
        let mut netlink = Netlink::open().unwrap();
        let classes = core.desired().pools[0].seats.iter().map(|seat| seat.number).collect::<Vec<_>>();
        let mut packets = || counters::read(&mut netlink, &host.uplink).unwrap()[&classes[T1]].packets;
        // Again where the machine was too busy for the probes, or for the queue to be full.
        poll_for("what is measured is what packets tell", || {
            let began = Instant::now();
            let [one, two, _floods] =
                host.sink.inside(|| [10, 11, 9].map(|port| UdpSocket::bind((SINK, port)).unwrap()));
            for socket in [&one, &two] {
                socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            }
            let probes = [probe(&host, T1, 10, began), probe(&host, T2, 11, began)];
            let (waits, counts, passed) = under(floods(&host, &[T1]).into_iter().chain(probes), || {
                arrive(&one, began, FIRST);
                let (passed, counts) = (packets(), measured(&mut core));
                let waits = thread::scope(|s| {
                    let two = s.spawn(|| {
                        // What came before waited in the socket.
                        arrive(&two, began, FIRST);
                        arrive(&two, began, ENOUGH)
                    });
                    [arrive(&one, began, ENOUGH), two.join().unwrap()]
                });
                let passed = packets() - passed;
                (waits, counts.into_iter().zip(measured(&mut core)).collect::<Vec<_>>(), passed)
            });
            let within = |member: usize| {
                let (before, now) = &counts[member];
                now.as_ref().unwrap().since(before.as_ref().unwrap()).unwrap()
            };
            let [slow, quiet] = [T1, T2].map(within);
            let told = waits.map(|all| all[ENOUGH / 2].as_secs_f64());
            println!("measured {slow:?} {quiet:?}, told {told:?} s");
            let [median, of_quiet] = [&slow, &quiet].map(|seen| seen.quantile_seconds(0.5).unwrap());
            let is_full = told[0] > 0.06;
            // A bucket is known to an eighth, and the two are not of the same packets.
            let is_told = (0.75..1.3).contains(&(median / told[0])) && of_quiet < 1e-3;
            // Those that were drawn stand for all; of one that sends little every packet is.
            let (all, drawn) = (passed as f64, slow.requests() as f64);
            let stand = (0.8..1.25).contains(&(drawn / all)) && quiet.requests() as usize >= ENOUGH * 9 / 10;
            if is_full && is_told && stand {
                Ok(())
            } else {
                let probes = quiet.requests();
                Err(format!("{median} and {of_quiet} s, told {told:?}; {drawn} of {all}; {probes} of {ENOUGH} probes"))
            }
        });
        core.undo().unwrap();
        assert_eq!(State::now(), before);
    });
}

#[test]
#[ignore = "root"]
fn nothing_is_measured_where_the_policy_says_so() {
    apart(|| {
        let host = test_host(2);
        let off = POLICY.replace("true", "false");
        let mut core = Core::start(Linux::open(false).unwrap(), policy(&off), interfaces(&host)).unwrap();
        assert!(measured(&mut core).is_empty());
        core.reload(policy(POLICY)).unwrap();
        assert!(measured(&mut core).iter().all(Option::is_some));
        core.reload(policy(&off)).unwrap();
        assert!(measured(&mut core).is_empty());
        core.undo().unwrap();
    });
}
