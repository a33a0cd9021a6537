//! Every network workload between a guest and its host, each over one card, each card with one, and another host behind the uplink with
//! larger packets: one boot, by the way of a study. What a program says arrived is less than the wire carried.
//! Run with `cargo test -- --ignored`; the agent must have been built (`make agent`).

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeSet;
use std::fs;

use crate::common::{Bed, cells, guest};
use vmio_model::cell::Arch;
use vmio_model::figure::Unit;
use vmio_model::result::{Sample, Watched};
use vmio_node::linux::net;
use vmio_node::machine;
use vmio_rig::engine::measure::Event;
use vmio_rig::nics;
use vmio_testbed::must_be_root;

/// The headers of a TCP segment in its Ethernet frame, without options.
const HEADERS: f64 = 54.0;

/// What the cell's one link counted, seen from the host: what the guest sends is received there.
fn counted(sample: &Sample, figure: &str, way: &str) -> f64 {
    let links: Vec<_> = sample.seen.iter().filter(|s| matches!(s.watched, Watched::Link(_))).collect();
    let [link] = links.as_slice() else { panic!("{} links in {}", links.len(), sample.cell.key()) };
    assert!(matches!(&link.watched, Watched::Link(name) if name.starts_with("tap")), "{:?}", link.watched);
    let reading = link.figures.iter().find(|r| r.figure == figure && r.labels["way"] == way);
    reading.unwrap().value.typical()
}

/// Network namespaces that this process holds open, and interfaces of its own.
fn held() -> (BTreeSet<String>, Vec<String>) {
    let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|e| fs::read_link(e.ok()?.path()).ok());
    let namespaces = links.map(|l| l.display().to_string()).filter(|l| l.starts_with("net:")).collect();
    let text = fs::read_to_string("/proc/self/net/dev").unwrap();
    (namespaces, net::names(&text).map(str::to_owned).collect())
}

fn is_plausible(sample: &Sample) {
    let (key, workload, figure) = (sample.cell.key(), sample.cell.workload(), |name| sample.result.figure(name));
    let wire = |way| (counted(sample, "bytes", way), counted(sample, "packets", way));
    let (from_guest, to_guest) = (wire("received"), wire("sent"));
    println!("{key}: {:?}, from the guest {from_guest:?}, to it {to_guest:?}", sample.result.figures);
    // Acknowledgements or answers went the other way.
    assert!(from_guest.1 > 0.0 && to_guest.1 > 0.0, "{key}");
    if workload == "sockperf-tcp" {
        let (trips, half) = (figure("round-trips").unwrap(), sample.result.distribution("half-round-trip").unwrap());
        assert!(trips > 0.0 && half.mean > 1e-6 && half.at(99.0).unwrap() < 1.0, "{key}: {half:?}");
        for (bytes, packets) in [from_guest, to_guest] {
            assert!(packets >= trips && bytes >= trips * (14.0 + HEADERS), "{key}: {packets} packets, {trips} trips");
        }
        return;
    }
    let (moved, rate) = (figure("moved").unwrap(), figure("bandwidth").unwrap());
    // Over a link that drops what is large next to nothing comes through.
    let drops = sample.cell.settings.get("mtu").is_some_and(|mtu| mtu.contains("-over-"));
    let small = workload.contains("-64-");
    let least = if drops {
        0.0
    } else if small {
        1e5
    } else {
        1e6
    };
    assert!(rate > least && (rate * sample.result.seconds / (moved * 8.0) - 1.0).abs() < 1e-6, "{key}: {rate} bit/s");
    let carried = if workload == "iperf3-tcp-reverse" { to_guest } else { from_guest };
    assert!(carried.0 >= moved, "{key}: {} bytes on the wire, {moved} in the program", carried.0);
    // What was lost went over the wire too, or else less of it did; where a rate drops, the sender repeats.
    let sent = moved / (1.0 - figure("loss").unwrap_or(0.0));
    let repeats = drops || sample.cell.settings.contains_key("rate");
    // Of the smallest packets the headers of Ethernet, IP and UDP (42 bytes) are a large part.
    let most = if small { sent * (1.0 + 42.0 / 64.0) * 1.1 } else { sent * 1.25 };
    assert!(repeats || carried.0 < most, "{key}: {} bytes on the wire, {sent} sent", carried.0);
    if workload.starts_with("udp-") {
        let (sender, receiver) = (&sample.result.raw["sender"], &sample.result.raw["receiver"]["senders"][0]);
        let number = |of: &serde_json::Value| of.as_u64().unwrap_or_else(|| panic!("{of} in {}", sample.result.raw));
        assert_eq!(number(&receiver["received"]) + number(&receiver["lost"]), number(&sender["sent"]), "{key}");
        let bytes = if small { 64.0 } else { 1472.0 };
        assert!(carried.1 >= moved / bytes, "{key}: {} packets on the wire, {moved} bytes arrived", carried.1);
        // A guest has a clock of its own, and its processes are root's.
        assert!(receiver["delay_on_one_clock"].is_null() && sender["real_time"] == true, "{key}: {sender} {receiver}");
    }
    if workload == "iperf3-udp" {
        let packets = moved / 1472.0;
        assert!(figure("jitter").unwrap() > 0.0 && (0.0..1.0).contains(&figure("loss").unwrap()), "{key}");
        assert!(carried.1 >= packets, "{key}: {} packets on the wire, {packets} arrived", carried.1);
    }
}

#[test]
#[ignore = "guest: needs QEMU"]
fn every_network_workload_and_every_card_work_in_a_guest() {
    must_be_root();
    let before = held();
    let bed = Bed::new();
    let state = guest::state();
    // These two have other work.
    let others: Vec<_> = nics::of(Arch::X86_64).filter(|nic| !["virtio-net", "e1000"].contains(&nic.name)).collect();
    let names: Vec<&str> = others.iter().map(|nic| nic.name).collect();
    let text = "baseline = 'none'\n\
        [[matrix]]\nsides = ['qemu']\n\
        paths = { networks = ['bridge'], peers = ['host'], nics = ['virtio-net'] }\n\
        workloads = ['iperf3-tcp', 'iperf3-udp', 'udp-1mbit-64-within100ms']\n\
        [[matrix]]\nsides = ['qemu']\n\
        paths = { networks = ['bridge'], peers = ['host'], nics = ['e1000'] }\n\
        workloads = ['iperf3-tcp-reverse', 'sockperf-tcp', 'udp-2mbit-1472']\n\
        [[matrix]]\nsides = ['qemu']\n\
        paths = { networks = ['uplink'], peers = ['remote'], nics = ['virtio-net'] }\n\
        workloads = ['iperf3-tcp']\nsettings = { mtu = ['9000', '9000-over-1500'] }\n\
        [[matrix]]\nsides = ['qemu']\n\
        paths = { networks = ['uplink'], peers = ['remote'], nics = ['virtio-net'] }\n\
        workloads = ['iperf3-tcp']\nsettings = { rate = ['20mbit'] }\n\
        [[matrix]]\nsides = ['qemu']\n\
        paths = { networks = ['bridge'], peers = ['host'], nics = ['virtio-net'], rings = [1024] }\n\
        workloads = ['iperf3-tcp']\nsettings = { offloads = ['off'], bridge-netfilter = ['on'] }\n\
        [[matrix]]\nsides = ['qemu']\n\
        paths = { networks = ['bridge'], peers = ['host'], nics = OTHERS }\n\
        workloads = ['dd-nc']\n";
    let text = text.replace("OTHERS", &format!("{names:?}"));
    let planned = cells::planned(&text, &bed.dir(), &state);
    assert_eq!(planned.skipped(), []);
    let (mut boots, mut void) = (0, 0);
    let run = cells::measure_by(cells::one_round, &planned, &state, &bed.journal, &mut |event| {
        boots += u32::from(matches!(event, Event::Boot(_)));
        if let Event::Retry(cell, why) | Event::GaveUp(cell, why) = event {
            // A guest on a busy host may not send on time, or for long, and then must not be measured.
            assert!(why.contains("the run is invalid"), "{}: {why}", cell.key());
            println!("{}: {why}", cell.key());
            void += 1;
        }
    });
    let cells = 10 + others.len();
    assert_eq!(run.skipped.len() + run.samples.len(), cells);
    assert!(void > 0 || (boots, run.samples.len()) == (1, cells), "all of it in one boot: {:?}", run.skipped);
    for sample in &run.samples {
        is_plausible(sample);
        let hypervisor = sample.seen.iter().find(|s| s.watched == Watched::Hypervisor("qemu".into()));
        let seconds = hypervisor.unwrap().figures.iter().map(|r| r.value.typical()).sum::<f64>();
        assert!(seconds > 0.0 && sample.cpu().host_seconds > 0.0, "{}", sample.cell.key());
        // Someone who reads the result can type the command; the namespaces have no name that lasts.
        let command = &sample.result.command;
        assert!(!command.contains("/proc/") && !command.contains("nsenter"), "{command}");
    }
    for (place, key, value) in [
        ("uplink.remote/qemu/virtio-net [mtu=9000]", "mtu", "9000"),
        ("uplink.remote/qemu/virtio-net [mtu=9000-over-1500]", "mtu", "9000-over-1500"),
        ("uplink.remote/qemu/virtio-net [rate=20mbit]", "rate", "20mbit"),
        ("uplink/qemu/virtio-net", "guest_driver", "virtio_net"),
        ("bridge/qemu/e1000", "guest_driver", "e1000"),
        ("bridge/qemu/virtio-net+r1024", "receive_ring", "1024"),
        ("bridge.host/qemu/virtio-net+r1024 [offloads=off]", "offloads", "off"),
        ("bridge.host/qemu/virtio-net+r1024 [bridge-netfilter=on]", "bridge-netfilter", "on"),
        ("bridge.host/qemu/virtio-net (iperf3-tcp)", "bridge-netfilter", "off"),
        ("bridge/qemu/virtio-net", "guest_queues", "1"),
    ] {
        let found = run.effective.get(place).and_then(|settings| settings.get(key));
        assert_eq!(found.map(String::as_str), Some(value), "{place}: {:?}", run.effective);
    }
    for nic in others {
        let found = &run.effective[&format!("bridge/qemu/{}", nic.name)];
        assert_eq!(found["guest_driver"], nic.driver, "{}", nic.name);
    }
    // What is asked for is a fifth and less of what this path carries without.
    let rate = |set: &str, value: &str| {
        let of = run.samples.iter().find(|s| s.cell.settings.get(set).is_some_and(|v| v == value)).unwrap();
        of.result.figure("bandwidth").unwrap()
    };
    let (limited, lossy, free) = (rate("rate", "20mbit"), rate("mtu", "9000-over-1500"), rate("mtu", "9000"));
    println!("{limited} bit/s with a rate, {lossy} over a link that drops what is large, {free} without");
    assert!((1e6..=21e6).contains(&limited), "{limited}");
    // Only what is cut on the way in or out, and the packets of the first windows, come through: nothing is repeated
    // in another size (tcp(7), tcp_mtu_probing).
    assert!(lossy < free / 4.0, "{lossy} of {free}");
    for name in ["iperf3", "sockperf", "vmio-udp"] {
        assert!(run.environment.programs.contains_key(name), "{:?}", run.environment.programs);
    }
    let bandwidth = run.workloads.iter().find(|w| w.name == "iperf3-udp").unwrap();
    assert_eq!(bandwidth.figures[0].unit, Unit::BitsPerSecond);

    assert_eq!(machine::marked_processes(|owner| owner == bed.journal.cookie()).len(), 0);
    assert_eq!((held(), bed.files()), (before, Vec::new()), "neither namespaces nor interfaces nor files");
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_sends_to_another_guest() {
    must_be_root();
    let before = held();
    let bed = Bed::new();
    let state = guest::state();
    let text = "baseline = 'none'\n\
        [[matrix]]\nsides = ['qemu']\n\
        paths = { networks = ['shared'], peers = ['neighbour'], nics = ['virtio-net'] }\n\
        workloads = ['iperf3-tcp-reverse']\n\
        [[matrix]]\nsides = ['qemu']\n\
        paths = { networks = ['shared'], peers = ['neighbour', 'remote'], nics = ['e1000'] }\n\
        workloads = ['iperf3-tcp']\n\
        [[matrix]]\nsides = ['qemu']\n\
        paths = { networks = ['shared'], peers = ['neighbour'], nics = ['virtio-net'] }\n\
        workloads = ['iperf3-tcp']\nsettings = { mtu = ['9000'] }\n";
    let planned = cells::planned(text, &bed.dir(), &state);
    // Only one of the two guests would have it.
    let [left_out] = &planned.left_out[..] else { panic!("{:?}", planned.left_out) };
    assert!(left_out.why.to_string().contains("vmio sets nothing between two guests"), "{}", left_out.why);
    let run = cells::measure_by(cells::one_round, &planned, &state, &bed.journal, &mut |event| match event {
        Event::Retry(_, why) if why.contains("the run is invalid") => {}
        Event::Retry(cell, why) | Event::GaveUp(cell, why) => panic!("{}: {why}", cell.key()),
        _ => {}
    });
    assert_eq!(run.samples.len(), 3);
    for sample in &run.samples {
        let (key, is_near) = (sample.cell.key(), sample.cell.lead.neighbour().is_some());
        println!("{key}: {:?}", sample.result.figures);
        // Both work for it.
        for guest in if is_near { &["qemu", "qemu#2"][..] } else { &["qemu"] } {
            let hypervisor = sample.seen.iter().find(|s| s.watched == Watched::Hypervisor((*guest).into())).unwrap();
            assert!(hypervisor.figures.iter().map(|r| r.value.typical()).sum::<f64>() > 0.1, "{key}: {guest}");
        }
        // What the guest sent came to the host by the card that is meant, though it has two there, and nothing of what
        // goes to a neighbour left by the uplink.
        let bytes = |link: &str| -> f64 {
            let link = sample.seen.iter().find(|s| matches!(&s.watched, Watched::Link(name) if name.starts_with(link)));
            let figures = &link.unwrap_or_else(|| panic!("{key}: no {link:?}")).figures;
            figures.iter().filter(|r| r.figure == "bytes").map(|r| r.value.typical()).sum()
        };
        let moved = sample.result.figure("moved").unwrap_or(1400.0);
        let (tap, wire) = (bytes("tap"), bytes("wire"));
        let left = if is_near { wire < moved / 100.0 + 1e4 } else { wire >= moved };
        assert!(tap >= moved && left, "{key}: {tap} bytes by its port, {wire} by the uplink, {moved} in the program");
    }
    for place in ["shared/qemu/virtio-net", "shared/qemu#2/virtio-net", "shared/qemu/e1000", "shared/qemu#2/e1000"] {
        assert!(run.effective.contains_key(place), "{place}: {:?}", run.effective);
    }
    assert_eq!(machine::marked_processes(|owner| owner == bed.journal.cookie()).len(), 0);
    assert_eq!(held(), before);
}
