//! A tap's send buffer, set while another process holds the tap: the excess stays with that process.

#![allow(clippy::unwrap_used, clippy::disallowed_types)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::common::holder::{self, Flood, Holder};
use crate::common::test_host::{TestHost, test_host};
use crate::common::{M, leaf, three, tree};
use vmio_guard::planes::linux::tap::{self, Held, Process, UNLIMITED, Undone};
use vmio_guard::planes::linux::{Device, Netlink, counters, htb, links};
use vmio_model::holding::send_buffer_bytes;
use vmio_model::policy::program::Hierarchy;
use vmio_node::linux::process;
use vmio_node::{Local, io_worker};
use vmio_testbed::net::{Namespace, apart, run};
use vmio_testbed::poll_until;
use vmio_testbed::process::Companion;

const MBIT: u64 = 20;
const DEFAULT: u16 = 2;
/// What the kernel may charge beyond the limit: one packet with its own data.
const ONE_MORE: u32 = 4096;

#[test]
#[ignore = "root"]
fn helper_holder() {
    holder::live();
}

/// Called before main: where this program is started as a worker, it is one.
extern "C" fn serve_tasks() {
    if std::env::args_os().nth(1).is_some_and(|word| word == "errands-of-a-vmio") {
        io_worker::serve();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static IO_WORKER: extern "C" fn() = serve_tasks;

/// A tap `t1` on a bridge whose uplink lets 20 Mbit/s through.
fn held_host(queues: usize) -> (TestHost, Holder, Device) {
    let mut host = test_host(0);
    let holder = Holder::start("t1", queues);
    run(&[
        "ip link set t1 master br0",
        "ip link set t1 up",
        "bridge fdb replace 02:00:00:00:00:09 dev u0 master static",
    ]);
    let limited = Hierarchy { rate_bps: MBIT * M, leaves: vec![leaf("default", MBIT, MBIT)], ..three() };
    let uplink = host.uplink.clone();
    htb::put(&mut host.netlink, &uplink, &tree(&limited), false).unwrap();
    let tap = links::find(&mut host.netlink, "t1").unwrap();
    (host, holder, tap)
}

/// What a flood came to, with packets dropped at the uplink and the most bytes that waited there.
fn flooded(host: &TestHost, holder: &mut Holder) -> (Flood, u32, u32) {
    let uplink = host.uplink.clone();
    let counts = || counters::read(&mut Netlink::open().unwrap(), &uplink).unwrap()[&DEFAULT];
    poll_until("an empty queue", || counts().waiting_packets == 0);
    let dropped = counts().dropped_packets;
    let mut most = 0;
    let flood =
        holder.flood("flood", || counts().dropped_packets > dropped, || most = most.max(counts().waiting_bytes));
    (flood, counts().dropped_packets - dropped, most)
}

fn kept(host: &TestHost, holder: &mut Holder, queues: u32, bytes: u32) {
    let (flood, dropped, most) = flooded(host, holder);
    assert_eq!(dropped, 0, "of {} packets", flood.written);
    assert!(flood.again > 0 && flood.written > 0);
    assert!(most > 0 && most <= queues * (bytes + ONE_MORE), "{most} bytes waited, {bytes} may for each queue");
}

#[test]
#[ignore = "root"]
fn excess_stays_with_the_process() {
    apart(|| {
        let (host, mut holder, device) = held_host(1);
        let (flood, dropped, _) = flooded(&host, &mut holder);
        assert!(dropped > 0 && flood.again == 0, "{dropped} of {} packets dropped", flood.written);

        let process = tap::find(&device, &[std::process::id(), holder.child.id()]).unwrap().unwrap();
        assert_eq!(process, holder.process());
        let bytes = send_buffer_bytes(MBIT * M);
        let held = tap::plan(&device, process, bytes).unwrap();
        assert_eq!((held.before_bytes, held.replaces_bytes, held.bytes), (UNLIMITED, UNLIMITED, bytes));
        assert_eq!(holder.sizes(), [UNLIMITED], "a plan changes nothing");
        assert!(!tap::in_force(&held).unwrap());
        for _ in 0..2 {
            tap::hold(&held).unwrap();
            assert!(tap::in_force(&held).unwrap());
            assert_eq!(holder.sizes(), [bytes]);
        }
        kept(&host, &mut holder, 1, bytes);

        // A wider one keeps what was there before; renamed, it is the same tap.
        let wider = held.resized(2 * bytes).unwrap();
        run(&["ip link set t1 down", "ip link set t1 name t9", "ip link set t9 up"]);
        tap::hold(&wider).unwrap();
        assert!(tap::in_force(&wider).unwrap() && !tap::in_force(&held).unwrap());
        // Written down, and not in force yet when vmio died: undone all the same.
        assert_eq!(tap::undo(&wider.resized(3 * bytes).unwrap()).unwrap(), Undone::Restored);
        assert_eq!(holder.sizes(), [UNLIMITED]);
        assert_eq!(tap::undo(&wider).unwrap(), Undone::Restored);
        let (_, dropped, _) = flooded(&host, &mut holder);
        assert!(dropped > 0);

        // What somebody else has set since is neither taken off nor written over.
        tap::hold(&tap::plan(&device, process, 77_000).unwrap()).unwrap();
        assert_eq!(tap::undo(&held).unwrap(), Undone::Others(77_000));
        let error = tap::hold(&held).unwrap_err().to_string();
        assert!(error.contains("77000 bytes") && error.contains("belongs to another program"), "{error}");
        assert_eq!(holder.sizes(), [77_000]);
    });
}

#[test]
#[ignore = "root"]
fn multiqueue_tap() {
    apart(|| {
        let (host, mut holder, device) = held_host(2);
        let (_, dropped, _) = flooded(&host, &mut holder);
        assert!(dropped > 0);
        let bytes = send_buffer_bytes(MBIT * M);
        let held = tap::plan(&device, holder.process(), bytes).unwrap();
        holder.tell("off 1");
        tap::hold(&held).unwrap();
        assert_eq!(holder.sizes(), [bytes, UNLIMITED]);
        assert!(tap::in_force(&held).unwrap());
        holder.tell("on 1");
        assert_eq!(holder.sizes(), [bytes, UNLIMITED], "as it was opened");
        assert!(!tap::in_force(&held).unwrap());
        tap::hold(&held).unwrap();
        assert_eq!(holder.sizes(), [bytes; 2]);
        kept(&host, &mut holder, 2, bytes);

        holder.tell("open");
        assert_eq!(holder.sizes(), [bytes, bytes, UNLIMITED]);
        assert!(!tap::in_force(&held).unwrap());
        tap::hold(&held).unwrap();
        assert_eq!(holder.sizes(), [bytes; 3]);
        holder.tell("off 1");
        assert_eq!(tap::undo(&held).unwrap(), Undone::Except(1));
        assert_eq!(holder.sizes(), [UNLIMITED, bytes, UNLIMITED]);
        holder.tell("on 1");
        assert_eq!(tap::undo(&held).unwrap(), Undone::Restored);
        assert_eq!(holder.sizes(), [UNLIMITED; 3]);
    });
}

fn refused(device: &Device, process: Process, why: &str) {
    let error = tap::plan(device, process, 25_000).unwrap_err().to_string();
    assert!(error.contains(&format!("tap {device}")) && error.contains(why), "{error}");
    let (index, interface) = (device.index, device.name.clone());
    let held = Held { process, index, interface, before_bytes: UNLIMITED, replaces_bytes: UNLIMITED, bytes: 25_000 };
    let error = tap::hold(&held).unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

fn gone(held: &Held) {
    assert_eq!(tap::undo(held).unwrap(), Undone::Gone);
    assert!(!tap::in_force(held).unwrap());
}

#[test]
#[ignore = "root"]
fn only_the_holder_of_the_tap() {
    apart(|| {
        let mut netlink = Netlink::open().unwrap();
        let (mut one, mut two) = (Holder::start("t1", 1), Holder::start("t2", 1));
        let device = links::find(&mut netlink, "t1").unwrap();
        // Of the same name and index, in another namespace.
        let elsewhere = Namespace::make();
        let (mut twin, index) = elsewhere.inside(|| {
            let twin = Holder::start("t1", 1);
            (twin, links::find(&mut Netlink::open().unwrap(), "t1").unwrap().index)
        });
        assert_eq!(index, device.index);
        refused(&device, two.process(), "does not hold it");
        refused(&device, twin.process(), "does not hold it");
        refused(&device, Process { start_ticks: 1, ..one.process() }, "is now used by another process");
        assert_eq!(tap::find(&device, &[two.child.id(), twin.child.id()]).unwrap(), None);
        let others = [two.child.id(), twin.child.id(), one.child.id()];
        assert_eq!(tap::find(&device, &others).unwrap(), Some(one.process()));
        let of = |holder: &Holder| tap::plan(&device, holder.process(), 25_000).unwrap();

        // It holds another tap of that name by now, or none.
        let held = of(&one);
        tap::hold(&held).unwrap();
        run(&["ip link del t1"]);
        refused(&device, one.process(), "does not hold it");
        gone(&held);
        for holder in [&mut two, &mut twin] {
            assert_eq!(holder.sizes(), [UNLIMITED]);
        }
        // Ended, and waiting to be reaped; then reaped.
        let process = one.process();
        one.child.kill().unwrap();
        poll_until("its end", || tap::plan(&device, process, 25_000).unwrap_err().to_string().contains("has ended"));
        refused(&device, process, "has ended");
        one.child.wait().unwrap();
        refused(&device, process, "has ended");
        gone(&held);
    });
}

#[test]
#[ignore = "root"]
fn tap_among_thousands_of_descriptors() {
    apart(|| {
        let mut holder = Holder::start("t1", 1);
        let device = links::find(&mut Netlink::open().unwrap(), "t1").unwrap();
        // Those of the tap come behind them.
        holder.tell("many 5000");
        let held = tap::plan(&device, holder.process(), 25_000).unwrap();
        tap::hold(&held).unwrap();
        assert_eq!(holder.sizes(), [25_000]);
        assert_eq!(tap::undo(&held).unwrap(), Undone::Restored);
    });
}

#[test]
#[ignore = "root"]
fn qemu_with_an_unused_queue() {
    apart(|| {
        let netdev = "tap,id=n,ifname=t1,script=no,downscript=no,queues=2";
        // The guest stands still before its first instruction.
        let qemu = Command::new("qemu-system-x86_64")
            .args(["-S", "-nodefaults", "-display", "none", "-m", "64", "-netdev", netdev])
            .args(["-device", "virtio-net-pci,netdev=n,mq=on,romfile=", "-qmp", "stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut qemu = Companion(qemu.unwrap());
        // It answers when its devices are there: only then it has switched the second queue off.
        let said = BufReader::new(qemu.0.stdout.take().unwrap()).lines();
        writeln!(qemu.0.stdin.as_mut().unwrap(), "{{\"execute\":\"qmp_capabilities\"}}").unwrap();
        assert!(said.map_while(Result::ok).any(|line| line.contains("return")));
        let mut netlink = Netlink::open().unwrap();
        let device = links::find(&mut netlink, "t1").unwrap();
        let process = tap::find(&device, &[qemu.pid()]).unwrap().unwrap();
        let held = tap::plan(&device, process, 25_000).unwrap();
        assert_eq!(held.before_bytes, UNLIMITED);
        tap::hold(&held).unwrap();
        assert!(tap::in_force(&held).unwrap());
        assert_eq!(tap::undo(&held).unwrap(), Undone::Restored);
        assert!(!tap::in_force(&held).unwrap());
        tap::hold(&held).unwrap();
        qemu.0.kill().unwrap();
        qemu.0.wait().unwrap();
        assert_eq!(links::look(&mut netlink, "t1").unwrap(), None);
        gone(&held);
    });
}

#[test]
#[ignore = "root"]
fn worker_keeps_no_copy() {
    // Tasks go to other processes from here on; those that wait end with this.
    struct Sent;
    impl Drop for Sent {
        fn drop(&mut self) {
            io_worker::end();
        }
    }
    io_worker::serve();
    let _sent = Sent;
    for _ in 0..2 {
        // The one that was kept is of the first namespace the second time.
        apart(|| {
            let mut holder = Holder::start("t1", 1);
            let mut netlink = Netlink::open().unwrap();
            let device = links::find(&mut netlink, "t1").unwrap();
            let held = tap::plan(&device, holder.process(), 25_000).unwrap();
            tap::hold(&held).unwrap();
            assert_eq!(holder.sizes(), [25_000]);
            let local = Local::new();
            let by = process::children(&local, std::process::id()).into_iter();
            let by = by.filter(|pid| process::comm(&local, *pid).is_ok_and(|comm| comm == "vmio-errand"));
            assert_eq!(by.count(), 1);
            assert_eq!(tap::undo(&held).unwrap(), Undone::Restored);
            tap::hold(&held).unwrap();
            // Nobody holds it beside the process: with that the tap goes.
            holder.child.kill().unwrap();
            holder.child.wait().unwrap();
            assert_eq!(links::look(&mut netlink, "t1").unwrap(), None);
            gone(&held);
        });
    }
}
