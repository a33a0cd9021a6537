//! Networks natively: each is built in namespaces of our own, carries what iperf3 and the generator send, is counted by
//! the link probe, and goes with whoever built it.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crate::common::Bed;
use vmio_model::figure::scalar;
use vmio_model::result::{ProbeResult, WorkloadResult};
use vmio_node::{Exec, Node, machine};
use vmio_rig::nets::{self, Namespace, NetCtx, NetEnd, NetPath};
use vmio_rig::nodes::Nodes;
use vmio_rig::probes::{ProbePoint, ProbeSubject, Watch};
use vmio_rig::workloads::{self, At, End, Stage};
use vmio_testbed::must_be_root;
use vmio_testbed::poll_until;

/// Interfaces of the namespace that the test itself is in, by `/proc/net/dev`.
fn interfaces() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/net/dev").unwrap();
    vmio_node::linux::net::names(&text).map(str::to_owned).collect()
}

fn built(bed: &Bed, network: &str, number: u8) -> (Namespace, NetPath) {
    let host = Namespace::make(&bed.node).unwrap();
    let nodes = &Nodes::default();
    let ctx = NetCtx { node: &bed.node, host: &host, number, guest: None, actor: None, first: None, nodes };
    let path = nets::find(network).unwrap().build(&ctx).unwrap();
    (host, path)
}

fn end(node: &Arc<dyn Node>, end: &NetEnd) -> End {
    End { enter: end.enter.clone(), ..End::here(node.clone(), At::address(end.address)) }
}

/// Runs a workload over a path, with its link watched.
fn carry(bed: &Bed, path: &NetPath, peer: &str, workload: &str) -> (WorkloadResult, Option<ProbeResult>) {
    let (result, seen) = tried(bed, path, peer, workload);
    (result.unwrap(), seen)
}

fn tried(
    bed: &Bed,
    path: &NetPath,
    peer: &str,
    workload: &str,
) -> (Result<WorkloadResult, workloads::Error>, Option<ProbeResult>) {
    let node: Arc<dyn Node> = Arc::new(vmio_node::Local::owned(bed.journal.clone()));
    let (native, peer) = (path.native.as_ref().unwrap(), &path.peers[peer]);
    let workload = workloads::find(workload).unwrap();
    let [server, client] = workload.roles() else { panic!("one serves the other") };
    let ends = BTreeMap::from([(server.name, end(&node, peer)), (client.name, end(&node, native))]);
    let stage = Stage { ends, seconds: 1.0, span: None, place: 0 };
    let link = ProbeSubject::Link { name: native.interface.clone(), enter: native.enter.clone() };
    let watch = Watch::start(vec![ProbePoint::here(node, link)]).unwrap();
    let result = workload.perform(&stage);
    let seen = watch.stop().unwrap();
    assert_eq!(seen.notes, [""; 0]);
    (result, seen.seen.into_iter().next())
}

fn counted(seen: &ProbeResult, way: &str) -> f64 {
    let is = |r: &&vmio_model::figure::Reading| r.figure == "bytes" && r.labels["way"] == way;
    seen.figures.iter().find(is).unwrap().value.typical()
}

const WORKLOADS: [&str; 5] = ["iperf3-tcp", "iperf3-udp", "dd-nc", "iperf3-tcp-reverse", "sockperf-tcp"];
const STREAMS: [&str; 2] = ["udp-100mbit-1472", "udp-1mbit-64-within100ms-blocking"];

/// Each network with each of its peers carries one workload, and each workload goes over one of them.
#[test]
#[ignore = "root"]
fn every_network_carries_every_workload() {
    let mut next = WORKLOADS.into_iter().cycle();
    let pairs = over_all(|bed, path, at| is_carried(bed, path, at, next.next().unwrap()));
    assert!(pairs >= WORKLOADS.len(), "each workload has its turn");
}

/// All over all takes a minute.
#[test]
#[ignore = "root"]
fn long_every_network_carries_every_workload() {
    over_all(|bed, path, at| WORKLOADS.into_iter().for_each(|workload| is_carried(bed, path, at, workload)));
}

/// Builds each network, and does this with each of its peers (network and peer are named to it); how many there are.
fn over_all(mut with: impl FnMut(&Bed, &NetPath, (&'static str, &'static str))) -> usize {
    must_be_root();
    let before = interfaces();
    let bed = Bed::new();
    let mut pairs = 0;
    for (i, network) in nets::ALL.iter().filter(|network| network.is_ours()).enumerate() {
        let (host, path) = built(&bed, network.name(), i as u8);
        assert_eq!(path.peers.keys().copied().collect::<Vec<_>>(), network.peers(), "{}", network.name());
        for peer in network.peers() {
            with(&bed, &path, (network.name(), peer));
            pairs += 1;
        }
        assert_eq!(interfaces(), before, "nothing is added to the host's own network");
        drop((host, path));
    }
    assert_eq!(interfaces(), before);
    pairs
}

fn is_carried(bed: &Bed, path: &NetPath, (name, peer): (&str, &str), workload: &str) {
    let (result, seen) = carry(bed, path, peer, workload);
    let seen = seen.unwrap();
    if workload == "sockperf-tcp" {
        // A message of 14 bytes and its answer, each in a frame of its own.
        let trips = scalar(&result.figures, "round-trips").unwrap();
        let half = result.distribution("half-round-trip").unwrap();
        assert!(trips > 0.0 && half.mean > 0.0 && half.at(99.0) >= half.at(50.0), "{name}: {half:?}");
        assert!(counted(&seen, "sent") >= trips * (14.0 + 54.0), "{name}: {trips} round trips, {seen:?}");
        return;
    }
    let moved = scalar(&result.figures, "moved").unwrap();
    assert!(scalar(&result.figures, "bandwidth").unwrap() > 0.0 && moved > 1e5, "{name} {workload}");
    // What the program says went over the wire did so, with the headers of its packets.
    let way = if workload.ends_with("reverse") { "received" } else { "sent" };
    let wire = counted(&seen, way);
    assert!(wire >= moved, "{name} {workload}: {wire} bytes on the wire, {moved} in the program");
    // On a loopback interface both directions are one, and datagrams may be lost at the receiver.
    if name != "loopback" && workload != "iperf3-udp" {
        assert!(wire < moved * 1.25, "{name} {workload}: {wire} bytes on the wire, {moved} in the program");
    }
}

/// As the disk's server is reached: each has an address and a port of its own, and all leave by one uplink.
#[test]
#[ignore = "root"]
fn actors_that_join_the_link_to_another_host_share_its_uplink() {
    must_be_root();
    let bed = Bed::new();
    let host = Namespace::make(&bed.node).unwrap();
    let (link, nodes) = (nets::beside(&bed.node, &host).unwrap(), &Nodes::default());
    let joined = |number: u8| {
        let ctx = NetCtx { node: &bed.node, host: &host, number, guest: None, actor: None, first: None, nodes };
        nets::join(&ctx, &link, usize::from(number)).unwrap()
    };
    let paths = [0, 1].map(joined);
    for (path, last) in paths.iter().zip([".10", ".11"]) {
        assert!(path.native.as_ref().unwrap().address.to_string().ends_with(last), "{:?}", path.native);
        let ports = path.ports(&bed.shared(), &host, nets::REMOTE);
        assert!(ports.iter().any(|port| port.is_plug) && ports.iter().any(|port| port.is_link), "{}", ports.len());
        is_carried(&bed, path, ("joined", nets::REMOTE), "iperf3-tcp");
    }
    assert!(paths[0].port != paths[1].port && paths[0].uplink == paths[1].uplink && paths[0].uplink == link.uplink);
}

/// As a lab host's kernel reaches the disk's server: in vmio's own namespace, which is the test's here.
#[test]
#[ignore = "root"]
fn an_end_in_vmios_own_namespace_leads_to_the_other_host_and_goes_with_the_link() {
    must_be_root();
    let before = interfaces();
    let bed = Bed::new();
    let host = Namespace::make(&bed.node).unwrap();
    let mut link = nets::beside(&bed.node, &host).unwrap();
    nets::join_first(&bed.node, &host, &mut link).unwrap();
    let own = link.native.as_ref().unwrap().interface.clone();
    assert!(!before.contains(&own) && interfaces().contains(&own), "{own}");
    is_carried(&bed, &link, ("first", nets::REMOTE), "iperf3-tcp");
    drop((link, host));
    poll_until("vmio's own namespace is as it was", || interfaces() == before);
}

/// A stream over each network, in turn large and fast or small and slow.
#[test]
#[ignore = "root"]
fn every_network_carries_a_stream_or_says_that_it_is_void() {
    let mut next = STREAMS.into_iter().cycle();
    let mut kept = 0;
    over_all(|bed, path, at| kept += u32::from(stream(bed, path, at, next.next().unwrap())));
    println!("{kept} streams were on time");
    // However busy this machine is: a packet each half millisecond may be 100 ms late.
    assert!(kept > 0, "no stream was measured");
}

/// Both over all.
#[test]
#[ignore = "root"]
fn long_every_network_carries_every_stream() {
    over_all(|bed, path, at| {
        for name in STREAMS {
            stream(bed, path, at, name);
        }
    });
}

/// What was due is sent or not, what was sent arrived or not, and the wire carried it. Where this machine is too busy to
/// send it on time the run is void, and says so; whether it was kept.
fn stream(bed: &Bed, path: &NetPath, (name, peer): (&str, &str), stream: &str) -> bool {
    let (result, seen) = tried(bed, path, peer, stream);
    let result = match result {
        Err(void) if void.to_string().contains("the run is invalid") => {
            println!("{name} {stream}: {void}");
            return false;
        }
        other => other.unwrap(),
    };
    let (sender, receiver) = (&result.raw["sender"], &result.raw["receiver"]);
    let count = |of: &serde_json::Value| of.as_u64().unwrap_or_else(|| panic!("{of} in {}", result.raw));
    let never: u64 = sender["never_sent"].as_object().unwrap().values().map(count).sum();
    assert_eq!(count(&sender["scheduled"]), count(&sender["sent"]) + never, "{name} {stream}: {sender}");
    assert!(count(&receiver["greetings"]) >= 1, "{name} {stream}: {receiver}");
    let [mine] = receiver["senders"].as_array().unwrap().as_slice() else { panic!("{receiver}") };
    let (received, lost) = (count(&mine["received"]), count(&mine["lost"]));
    assert_eq!(received + lost, count(&sender["sent"]), "{name} {stream}: {mine}");
    assert!(lost <= count(&receiver["buffer_drops"]), "the path loses nothing: {name} {stream}: {mine}");
    // Both ends are on this machine.
    assert_eq!(count(&mine["delay_on_one_clock"]["packets"]), received, "{name} {stream}");
    let figure = |name: &str| scalar(&result.figures, name).unwrap();
    assert_eq!(figure("loss"), 1.0 - received as f64 / count(&sender["sent"]) as f64);
    let asked = if stream.contains("100mbit") { 100e6 } else { 1e6 };
    assert!(figure("bandwidth") <= asked * 1.01 && figure("late") <= 0.01, "{:?}", result.figures);
    assert!(counted(&seen.unwrap(), "sent") >= figure("moved"), "{name} {stream}");
    true
}

/// No machine sends 195 million packets a second: no figure comes of it, and what to do is told.
#[test]
#[ignore = "root"]
fn a_stream_that_is_not_offered_is_void() {
    must_be_root();
    let bed = Bed::new();
    let (_host, path) = built(&bed, "veth", 0);
    let (result, _) = tried(&bed, &path, "host", "udp-100gbit-64");
    let said = result.unwrap_err().to_string();
    for words in
        ["udp-100gbit-64 cannot run here: the run is invalid", "of 195312500 packets", "lower rate or larger packets"]
    {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(machine::marked_processes(|owner| owner == bed.journal.cookie()).len(), 0, "its receiver is ended");
}

/// The namespace is held by nothing but the descriptor: closing it takes the interfaces down.
#[test]
#[ignore = "root"]
fn a_path_goes_with_its_owner() {
    must_be_root();
    let bed = Bed::new();
    let (host, path) = built(&bed, "veth", 7);
    let links = |end: &NetEnd| {
        let [first, rest @ ..] = &end.enter[..] else { panic!("it enters nothing") };
        bed.node.exec(&Exec::new(first).args(rest.to_vec()).args(["ip", "-o", "link"])).unwrap().out()
    };
    // Namespaces that this process holds, as nsfs numbers them. Its numbers for descriptors are used again, and where
    // the kernel has pidfs (6.9+), nsenter takes a descriptor of a process for that process's namespace.
    let held = || -> Vec<(u64, u64)> {
        let files = fs::read_dir("/proc/self/fd").unwrap();
        files.filter_map(|file| fs::metadata(file.ok()?.path()).ok()).map(|file| (file.dev(), file.ino())).collect()
    };
    let native = path.native.clone().unwrap();
    assert!(links(&native).contains("eth0@"));
    let [space] = &path.held[..] else { panic!("one namespace beside the host's") };
    let space = fs::metadata(space.path()).unwrap();
    let space = (space.dev(), space.ino());
    assert!(held().contains(&space));
    drop(path);
    assert!(!held().contains(&space), "its descriptor is closed");
    // The pair goes with its other end. The kernel takes namespaces down one after another.
    let end = NetEnd { enter: host.enter(), ..native };
    poll_until("its end on the host is gone", || !links(&end).contains("veth7"));
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
