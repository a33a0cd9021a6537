//! Limits outlive their process, are taken over by the next one, and are undone by one without memory.

#![allow(clippy::unwrap_used)]

use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::state::{State, pins, programs};
use crate::common::test_host::{SINK, TestHost, plug, send, test_host};
use crate::root_classifier::kernels_mode;
use crate::root_plane::{interfaces, policy};
use crate::root_receive::{LIMITED, T1, arrives, counts, only, received_by, tenants};
use vmio_guard::core::Core;
use vmio_guard::planes::linux::classifier::AttachMode;
use vmio_guard::planes::linux::{Linux, Netlink, counters, htb, links};
use vmio_guard::planes::{Options, Plane, Scope};
use vmio_guard::undo_log::UndoLog;
use vmio_testbed::net::{apart_with_bpffs, run, tried};
use vmio_testbed::{poll_until, skip};

/// One whose ledger is there, as a daemon has it.
pub fn kept(ledger: &Path) -> Linux {
    Linux::with(&Options { takeover: true, log: UndoLog::open(ledger).unwrap() }).unwrap()
}

pub fn start(host: &TestHost, ledger: &Path, text: &str) -> Core<Linux> {
    Core::start(kept(ledger), policy(text), interfaces(host)).unwrap()
}

/// Where there is a bpffs, links are pinned in it if the kernel has any.
fn by_tcx(pinned: bool) -> bool {
    pinned && kernels_mode() == AttachMode::Tcx
}

/// A program at each tenant, and two at the uplink: once, whoever attached it.
pub fn attached_once(host: &TestHost, pinned: bool) {
    let state = State::now();
    let wanted = host.tenants.len() + 2;
    let pinned = by_tcx(pinned);
    let (by_tcx, by_clsact) = if pinned { (wanted, 0) } else { (0, wanted) };
    assert_eq!(state.programs, by_tcx);
    assert_eq!(state.filters("handle 0x766d69"), by_clsact, "{state:?}");
    assert_eq!(state.filters("mirred"), usize::from(!pinned));
}

/// In the tenant's class at the uplink, by what the kernel has alone.
fn classified(host: &mut TestHost) {
    let _listener = host.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap());
    let uplink = host.uplink.clone();
    let passed = |netlink: &mut Netlink| counters::read(netlink, &uplink).unwrap()[&16].packets;
    let before = passed(&mut host.netlink);
    poll_until("packets in their class", || {
        host.tenants[0].namespace.inside(|| send(10));
        passed(&mut host.netlink) >= before + 10
    });
}

/// While a tenant sends, none of its packets is in another's class or in none.
fn without_a_gap(host: &mut TestHost, tenant: usize, take: impl FnOnce(&TestHost) -> Core<Linux>) -> Core<Linux> {
    let number = 16 + tenant as u16;
    let _listener = host.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap());
    let mut netlink = Netlink::open().unwrap();
    let mut passed = |class: u16| counters::read(&mut netlink, &host.uplink).unwrap()[&class].packets;
    let (own, default) = (passed(number), passed(3));
    let enough = AtomicBool::new(false);
    let taken = thread::scope(|s| {
        s.spawn(|| {
            host.tenants[tenant].namespace.inside(|| {
                while !enough.load(Ordering::Relaxed) {
                    send(1);
                }
            });
        });
        poll_until("packets", || passed(number) > own + 100);
        let taken = take(host);
        let after = passed(number);
        poll_until("packets afterwards", || passed(number) > after + 100);
        enough.store(true, Ordering::Relaxed);
        taken
    });
    let strays = passed(3) - default;
    // What the tenants' own stacks say to all neighbours.
    assert!(strays < 20, "{strays} packets in the default class");
    taken
}

/// `foreign`: what stands at the uplink, and what filters others have.
fn outlives_and_is_taken_over(pinned: bool, foreign: &[&str]) {
    apart_with_bpffs(pinned, || {
        let mut host = test_host(2);
        run(foreign);
        let before = State::now();
        let ledger = tempfile::tempdir().unwrap();
        let mut first = start(&host, ledger.path(), LIMITED);
        let notes = first.notes();
        assert_eq!(notes.iter().any(|note| note.contains("bpffs is not mounted")), !pinned, "{notes:?}");
        assert_eq!(first.reconcile().unwrap(), 0);
        let there = State::now();
        attached_once(&host, pinned);
        // With a word, and without one as when it is killed.
        first.leave();
        assert_eq!(State::now(), there);
        classified(&mut host);
        arrives(&host, 0);
        drop(kept(ledger.path()));
        assert_eq!(State::now(), there, "opening touches nothing");
        let second = without_a_gap(&mut host, 0, |host| start(host, ledger.path(), LIMITED));
        attached_once(&host, pinned);
        drop(second);
        attached_once(&host, pinned);
        classified(&mut host);
        let mut third = start(&host, ledger.path(), LIMITED);
        assert_eq!(third.reconcile().unwrap(), 0);
        assert_eq!(received_by(&mut third, &host, tenants(1)), only(T1));
        assert!(counts(&mut third)[T1].passed_bytes > 0);
        // A tenant that is there no more and one that is nobody's, an uplink that is limited one way alone.
        drop(third);
        let one = LIMITED.replace("rx_class = \"any\"", "").replace("rx_class = \"low\"", "");
        let mut fourth = Core::start(kept(ledger.path()), policy(&one), interfaces(&host)[..1].to_vec()).unwrap();
        assert_eq!(fourth.reconcile().unwrap(), 0);
        assert!(fourth.notes().iter().all(|note| !note.contains("the ledger")), "{:?}", fourth.notes());
        let left = State::now();
        assert_eq!((left.programs, left.filters("0x766d69")), if by_tcx(pinned) { (2, 0) } else { (0, 2) });
        assert_eq!(links::look(&mut host.netlink, &format!("vmiorx{:x}", host.uplink.index)).unwrap(), None);
        drop(fourth);
        let mut undo = kept(ledger.path());
        undo.undo().unwrap();
        assert_eq!(State::now(), before, "as it was, bit by bit");
        undo.undo().unwrap();
        assert_eq!(undo.observe(Scope::Plane).unwrap().notes, [""; 0]);
    });
}

#[test]
#[ignore = "root"]
fn pinned_links_are_taken_over() {
    outlives_and_is_taken_over(true, &["tc qdisc add dev u0 root handle 11: tbf rate 90mbit burst 20k limit 100k"]);
}

#[test]
#[ignore = "root"]
fn filters_are_taken_over() {
    outlives_and_is_taken_over(false, &["tc qdisc add dev u0 root handle 11: pfifo limit 5000"]);
}

#[test]
#[ignore = "root"]
fn filters_beside_foreign_ones_are_taken_over() {
    let theirs = "tc filter add dev u0 egress protocol 0x88b5 prio 5 u32 match u32 0 0 classid 1:1";
    outlives_and_is_taken_over(false, &["tc qdisc add dev u0 clsact", theirs]);
}

/// Once a guard's queues stood there: what stood there before them is put back. Counters go on where they were.
#[test]
#[ignore = "root"]
fn a_queue_that_comes_later_is_not_taken_over() {
    apart_with_bpffs(true, || {
        let mut host = test_host(2);
        run(&["tc qdisc add dev u0 root handle 11: pfifo limit 5000"]);
        let before = State::now();
        let ledger = tempfile::tempdir().unwrap();
        let mut core = start(&host, ledger.path(), LIMITED);
        classified(&mut host);
        let passed = |core: &mut Core<Linux>| core.status().unwrap()[0].members[1].count.passed_bytes;
        let first = passed(&mut core);
        assert!(first > 0);
        run(&["tc qdisc replace dev u0 root handle 12: bfifo limit 90000"]);
        core.reconcile().unwrap();
        assert!(core.status().unwrap()[0].interruptions.now.is_some());
        assert_eq!(passed(&mut core), first);
        run(&["tc qdisc del dev u0 root"]);
        core.reconcile().unwrap();
        assert_eq!(core.status().unwrap()[0].interruptions.now, None);
        assert!(passed(&mut core) >= first);
        core.undo().unwrap();
        assert_eq!(State::now(), before);
    });
}

/// What cannot be known without a ledger is said; what can be found is off.
#[test]
#[ignore = "root"]
fn undo_without_the_ledger() {
    for pinned in [true, false] {
        apart_with_bpffs(pinned, || {
            let host = test_host(2);
            let before = State::now();
            let ledger = tempfile::tempdir().unwrap();
            start(&host, ledger.path(), LIMITED).leave();
            let mut undo = kept(tempfile::tempdir().unwrap().path());
            undo.undo().unwrap();
            let notes = undo.observe(Scope::Plane).unwrap().notes;
            assert!(notes.iter().any(|note| note.contains("the ledger has no record of what")), "{notes:?}");
            let unknown: Vec<&String> = notes.iter().filter(|note| note.contains("tc qdisc del dev")).collect();
            assert_eq!(unknown.len(), if by_tcx(pinned) { 0 } else { 3 }, "{notes:?}");
            for note in unknown {
                run(&[note.split_once("needs it: ").unwrap().1]);
            }
            assert_eq!(State::now(), before);
        });
    }
}

/// Interfaces go, get other names, and their indexes go to others, while nobody looks.
#[test]
#[ignore = "root"]
fn takeover_after_interfaces_changed() {
    for pinned in [true, false] {
        apart_with_bpffs(pinned, || {
            let host = test_host(2);
            run(&["tc qdisc add dev u0 root handle 11: bfifo limit 90000"]);
            let before = State::now();
            let ledger = tempfile::tempdir().unwrap();
            start(&host, ledger.path(), LIMITED).leave();
            run(&["ip link set u0 down", "ip link set u0 name u9", "ip link set u9 up"]);
            run(&["ip link set t1 down", "ip link set t1 name t9", "ip link set t9 up"]);
            // Another has the index of t2, and a clsact qdisc of its own that nobody takes off.
            run(&["ip link del t2"]);
            let index = host.tenants[1].device.index;
            run(&[&format!("ip link add x2 index {index} type veth peer name y2"), "tc qdisc add dev x2 clsact"]);
            let mut undo = kept(ledger.path());
            undo.undo().unwrap();
            assert_eq!(programs(&host.uplink), 0);
            assert!(tried("tc qdisc show dev x2").1.contains("clsact"), "another's stays");
            assert!(!tried("tc qdisc show dev t9").1.contains("clsact"));
            run(&["ip link del x2", "ip link set u9 down", "ip link set u9 name u0", "ip link set u0 up"]);
            run(&["ip link set t9 down", "ip link set t9 name t1", "ip link set t1 up"]);
            plug(2, &host.tenants[1].namespace, &format!(" index {index}"));
            assert_eq!(State::now(), before);
        });
    }
}

/// Somebody takes the pins away: with the process the links would go.
#[test]
#[ignore = "root"]
fn removed_pins_are_restored() {
    if kernels_mode() != AttachMode::Tcx {
        return skip("this kernel has no TCX, and so no pins");
    }
    apart_with_bpffs(true, || {
        let host = test_host(1);
        let before = State::now();
        let ledger = tempfile::tempdir().unwrap();
        let mut core = start(&host, ledger.path(), LIMITED);
        let there = State::now();
        let one = pins().into_iter().find(|path| path.contains("classify-")).unwrap();
        for taken in [one.as_str(), "/sys/fs/bpf/vmio"] {
            run(&[&format!("rm -r {taken}")]);
            assert!(core.reconcile().unwrap() > 0);
            assert_eq!(core.reconcile().unwrap(), 0);
            assert_eq!(State::now(), there);
        }
        drop(core);
        assert_eq!(State::now(), there);
        kept(ledger.path()).undo().unwrap();
        assert_eq!(State::now(), before);
    });
}

/// In a bpffs that everybody may write, what somebody else has put in the place is not followed.
#[test]
#[ignore = "root"]
fn pin_directory_of_another_user_is_not_used() {
    for planted in
        ["mkdir -m 777 /sys/fs/bpf/vmio", "ln -s /tmp /sys/fs/bpf/vmio", "install -d -o 1 -m 700 /sys/fs/bpf/vmio"]
    {
        apart_with_bpffs(true, || {
            let host = test_host(1);
            run(&[planted]);
            let (before, there) = (State::now(), pins());
            let ledger = tempfile::tempdir().unwrap();
            let mut core = start(&host, ledger.path(), LIMITED);
            let notes = core.notes();
            assert!(notes.iter().any(|note| note.contains("must be a directory of this user's")), "{notes:?}");
            assert_eq!(pins(), there);
            attached_once(&host, false);
            core.undo().unwrap();
            assert_eq!(State::now(), before);
        });
    }
}

/// A first policy that the plane cannot put in force leaves the earlier one's limits.
#[test]
#[ignore = "root"]
fn failed_start_leaves_earlier_limits() {
    apart_with_bpffs(true, || {
        let mut host = test_host(1);
        let before = State::now();
        let ledger = tempfile::tempdir().unwrap();
        start(&host, ledger.path(), LIMITED).leave();
        let there = State::now();
        let gone = LIMITED.replace("uplink.u0", "uplink.u8");
        let failed = Core::start(kept(ledger.path()), policy(&gone), interfaces(&host)).err().unwrap().to_string();
        assert!(
            failed.contains("no such interface") && failed.contains("that were not replaced yet stay in force"),
            "{failed}"
        );
        assert_eq!(State::now(), there);
        classified(&mut host);
        let uplink = host.uplink.clone();
        assert!(matches!(htb::read(&mut host.netlink, &uplink).unwrap(), htb::Root::Ours(_)));
        kept(ledger.path()).undo().unwrap();
        assert_eq!(State::now(), before);
    });
}

/// Who came before an interface may be gone when the next one takes over, and another may have come: what is there
/// keeps its number, and with it its class, all the time.
fn numbers_are_handed_on(pinned: bool) {
    apart_with_bpffs(pinned, || {
        let mut host = test_host(3);
        let before = State::now();
        let ledger = tempfile::tempdir().unwrap();
        let numbers = |core: &Core<Linux>| -> Vec<(String, u16)> {
            let seats = core.desired().pools[0].seats.iter().filter(|seat| seat.interface.is_some());
            seats.map(|seat| (seat.name.clone(), seat.number)).collect()
        };
        let all = LIMITED.replace("name = \"t2\"", "name = \"t[23]\"");
        let first = Core::start(kept(ledger.path()), policy(&all), interfaces(&host)[..2].to_vec()).unwrap();
        assert_eq!(numbers(&first), [("t1".to_owned(), 16), ("t2".to_owned(), 17)]);
        first.leave();
        // The first of them is gone, and the third comes: one that begins to count would give it and the second
        // others'.
        let there = interfaces(&host)[1..].to_vec();
        let second =
            without_a_gap(&mut host, 1, |_| Core::start(kept(ledger.path()), policy(&all), there.clone()).unwrap());
        assert_eq!(numbers(&second), [("t2".to_owned(), 17), ("t3".to_owned(), 18)]);
        drop(second);
        // Killed, and with all of them there again.
        let third = without_a_gap(&mut host, 1, |host| {
            Core::start(kept(ledger.path()), policy(&all), interfaces(host)).unwrap()
        });
        assert_eq!(numbers(&third), [("t1".to_owned(), 16), ("t2".to_owned(), 17), ("t3".to_owned(), 18)]);
        third.undo().unwrap();
        assert_eq!(State::now(), before);
        // Nothing of it is left for who begins anew.
        let fresh = Core::start(kept(ledger.path()), policy(&all), there).unwrap();
        assert_eq!(numbers(&fresh), [("t2".to_owned(), 16), ("t3".to_owned(), 17)]);
        fresh.undo().unwrap();
    });
}

#[test]
#[ignore = "root"]
fn numbers_survive_takeover_with_pins() {
    numbers_are_handed_on(true);
}

#[test]
#[ignore = "root"]
fn numbers_survive_takeover_by_clsact() {
    numbers_are_handed_on(false);
}
