//! Networks natively: each is built in namespaces of our own, carries what iperf3 sends, is counted by the link
//! probe, and goes with whoever built it.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use crate::common::{Bed, must_be_root};
use vmio_model::figure::scalar;
use vmio_model::result::{Seen, WorkloadResult};
use vmio_node::{Exec, Node};
use vmio_rig::nets::{self, Namespace, NetCtx, NetEnd, NetPath};
use vmio_rig::probes::{Subject, Thing, Watch};
use vmio_rig::workloads::{self, At, End, Stage};

/// Interfaces of the namespace that the test itself is in, by `/proc/net/dev`.
fn interfaces() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/net/dev").unwrap();
    vmio_node::linux::net::names(&text).map(str::to_owned).collect()
}

fn built(bed: &Bed, network: &str, number: u8) -> (Namespace, NetPath) {
    let host = Namespace::make(&bed.node).unwrap();
    let ctx = NetCtx { node: &bed.node, host: &host, number, guest: None };
    let path = nets::find(network).unwrap().build(&ctx).unwrap();
    (host, path)
}

fn end(node: &Arc<dyn Node>, end: &NetEnd) -> End {
    End { node: node.clone(), at: At::Address(end.address), enter: end.enter.clone(), exec_base: Exec::default() }
}

/// Runs a workload over a path, with its link watched.
fn carry(bed: &Bed, path: &NetPath, peer: &str, workload: &str) -> (WorkloadResult, Option<Seen>) {
    let node: Arc<dyn Node> = Arc::new(vmio_node::Local::owned(bed.journal.clone()));
    let (native, peer) = (path.native.as_ref().unwrap(), &path.peers[peer]);
    let ends = BTreeMap::from([("server", end(&node, peer)), ("client", end(&node, native))]);
    let stage = Stage { ends, seconds: 1.0, span: None, place: 0 };
    let link = Thing::Link { name: native.interface.clone(), enter: native.enter.clone() };
    let watch = Watch::start(vec![Subject::here(node, link)]).unwrap();
    let result = workloads::find(workload).unwrap().perform(&stage).unwrap();
    let seen = watch.stop().unwrap();
    assert_eq!(seen.notes, [""; 0]);
    (result, seen.seen.into_iter().next())
}

fn counted(seen: &Seen, way: &str) -> f64 {
    let is = |r: &&vmio_model::figure::Reading| r.figure == "bytes" && r.labels["way"] == way;
    seen.figures.iter().find(is).unwrap().value.typical().unwrap()
}

#[test]
#[ignore = "root"]
fn every_network_carries_every_workload_and_leaves_nothing() {
    must_be_root();
    let before = interfaces();
    let bed = Bed::new();
    for (i, network) in nets::ALL.iter().enumerate() {
        let (host, path) = built(&bed, network.name(), i as u8);
        assert_eq!(path.peers.keys().copied().collect::<Vec<_>>(), network.peers(), "{}", network.name());
        for peer in network.peers() {
            for workload in ["iperf3-tcp", "iperf3-tcp-reverse", "iperf3-udp"] {
                let (result, seen) = carry(&bed, &path, peer, workload);
                let (name, seen) = (network.name(), seen.unwrap());
                let moved = scalar(&result.figures, "moved").unwrap();
                assert!(scalar(&result.figures, "bandwidth").unwrap() > 1e6 && moved > 1e5, "{name} {workload}");
                // What the program says went over the wire did so, with the headers of its packets.
                let way = if workload.ends_with("reverse") { "received" } else { "sent" };
                let wire = counted(&seen, way);
                assert!(wire >= moved, "{name} {workload}: {wire} bytes on the wire, {moved} in the program");
                // On a loopback interface both directions are one, and datagrams may be lost at the receiver.
                if name != "loopback" && workload != "iperf3-udp" {
                    assert!(wire < moved * 1.25, "{name} {workload}: {wire} bytes on the wire, {moved} in the program");
                }
            }
        }
        assert_eq!(interfaces(), before, "nothing is added to the host's own network");
        drop((host, path));
    }
    assert_eq!(interfaces(), before);
}

/// The namespace is held by nothing but the descriptor: closing it takes the interfaces down.
#[test]
#[ignore = "root"]
fn a_path_goes_with_its_owner() {
    must_be_root();
    let bed = Bed::new();
    let (host, path) = built(&bed, "veth", 7);
    let alive = |end: &NetEnd| {
        let [first, rest @ ..] = &end.enter[..] else { panic!("it enters nothing") };
        let show = Exec::new(first).args(rest.to_vec()).args(["ip", "-o", "link"]);
        let output = bed.node.exec(&show).unwrap();
        output.ok().then(|| output.out())
    };
    let native = path.native.clone().unwrap();
    assert!(alive(&native).unwrap().contains("eth0@"));
    drop(path);
    assert_eq!(alive(&native), None, "its descriptor is closed");
    // The pair goes with its other end; the kernel takes it down after a moment.
    let end = NetEnd { enter: host.enter(), ..native };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while alive(&end).unwrap().contains("veth7") {
        assert!(std::time::Instant::now() < until, "its end on the host is still there");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
#[ignore = "root"]
fn what_ip_refuses_is_told_with_its_line() {
    must_be_root();
    let bed = Bed::new();
    let host = Namespace::make(&bed.node).unwrap();
    let said =
        host.ip(&bed.node, &["link add one type veth peer name two", "link set none up"]).unwrap_err().to_string();
    assert!(said.contains("`ip link set none up` failed") && said.contains("none"), "{said}");
}
