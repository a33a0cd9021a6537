//! Taps whose process does what it likes: it takes back its send buffer, and reads nothing of what is sent to it.

#![allow(clippy::unwrap_used)]

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::flood::{Load, Look, floods, under, while_full};
use crate::common::holder::Holder;
use crate::common::nic;
use crate::common::test_host::{SINK, test_host};
use crate::root_held::OPEN;
use crate::root_plane::{counts, interfaces, policy};
use vmio_guard::core::Core;
use vmio_guard::interface::DiscoveredInterface;
use vmio_guard::planes::linux::{Linux, links};
use vmio_model::holding::QueueingPoint;
use vmio_model::policy::assign::Interface;
use vmio_testbed::net::{apart, run};
use vmio_testbed::{poll_for, poll_until};

/// The tap has the first priority, its neighbour the last.
const POLICY: &str = "\
[uplink.u0]
capacity = \"20Mbit\"
[class.neighbour]
priority = 8
min = \"8Mbit\"
[class.attacker]
priority = 1
[[interface]]
match = { name = \"t1\" }
class = \"neighbour\"
[[interface]]
match = { name = \"t9\" }
class = \"attacker\"
";
const MIN: f64 = 8e6;
/// Of the members: `host`, t1, t9, `default`.
const NEIGHBOUR: usize = 1;
const TAP: usize = 2;

/// The neighbour's packets to the tap go the way of all that nobody reads.
#[test]
#[ignore = "root"]
fn a_process_that_ignores_its_buffer_and_never_reads_costs_others_nothing() {
    apart(|| {
        let mut host = test_host(1);
        let mut holder = Holder::start("t9", 1);
        run(&[
            "ip link set t9 master br0",
            "ip link set t9 up",
            "bridge fdb replace 02:00:00:00:00:09 dev u0 master static",
            "bridge fdb replace 02:00:00:00:00:77 dev t9 master static",
        ]);
        host.tenants[0].namespace.run(&["ip neigh replace 10.9.0.77 lladdr 02:00:00:00:00:77 dev g0 nud permanent"]);
        let index = links::find(&mut host.netlink, "t9").unwrap().index;
        let tap = DiscoveredInterface {
            pids: vec![holder.child.id()],
            nic: Some(nic("virtio-net", "tap")),
            paths: [("u0".to_owned(), OPEN)].into(),
            ..Interface { index, name: "t9".into(), ..Interface::default() }.into()
        };
        let there = [interfaces(&host), vec![tap]].concat();
        let mut core = Core::start(Linux::open(false).unwrap(), policy(POLICY), there).unwrap();
        poll_until("a tap held", || {
            core.status().unwrap()[0].members[TAP].held.as_ref().unwrap().waits == QueueingPoint::Held
        });
        let _listener = host.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap());
        let unread: Load<'_> = Box::new(|done: &AtomicBool| {
            host.tenants[0].namespace.inside(|| {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                socket.set_nonblocking(true).unwrap();
                while !done.load(Ordering::Relaxed) {
                    for _ in 0..8 {
                        let _ = socket.send_to(&[7; 1400], "10.9.0.77:9");
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            });
        });
        let process = &mut holder;
        let unlimited: Load<'_> = Box::new(move |done: &AtomicBool| {
            while !done.load(Ordering::Relaxed) {
                process.tell("widen");
                process.flood("flood", || true, || ());
            }
        });
        let dropped = counts(&mut core)[TAP].dropped_packets;
        let loads = [unread, unlimited].into_iter().chain(floods(&host, &[NEIGHBOUR]));
        let times = (Duration::from_secs(1), Duration::from_secs(1));
        let full = under(loads, || {
            let full = while_full(&[NEIGHBOUR], times, |time| {
                if !time.is_zero() {
                    core.tick(time).unwrap();
                }
                counts(&mut core).iter().map(|c| Look { passed: c.passed_bytes, waiting: c.waiting_bytes }).collect()
            });
            // Set again at each look, and set back before the next one.
            poll_for("it is told as not held", || {
                let held = core.status().unwrap()[0].members[TAP].held.clone().unwrap();
                let told = held.waits == QueueingPoint::Queued
                    && held.reason.contains("keeps setting its tap's send buffer back");
                if told && held.send_buffer_bytes.is_none() { Ok(()) } else { Err(held) }
            });
            full
        });
        let rate = full.moved[NEIGHBOUR] as f64 * 8.0 / full.time.as_secs_f64();
        // A queue is served late where the processors are busy, and makes up for it outside of what was counted.
        assert!(rate > 0.95 * MIN, "{rate:.0} bit/s of {MIN}: {full:?}");
        assert!(counts(&mut core)[TAP].dropped_packets > dropped, "what is too much is dropped in its own class");
        core.undo().unwrap();
    });
}
