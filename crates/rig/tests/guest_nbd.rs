//! A disk whose server and client are on two hosts, the targets `nbd`, `aoe`, `iscsi` and `nvme-tcp`, from the plan to the results.
//! Run with `cargo test -- --ignored`; the agent must have been built (`make agent`).

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Bed, cells, guest};
use vmio_look::require::find_program;
use vmio_model::result::{Sample, Watched};
use vmio_node::linux::process;
use vmio_node::machine;
use vmio_rig::engine::measure::Event;
use vmio_rig::engine::plan::Planned;
use vmio_testbed::{must_be_root, skip};

/// The process of this run that serves a disk by NBD.
pub fn server(bed: &Bed) -> Option<u32> {
    process_of(bed, "qemu-storage-daemon")
}

/// The process of this run that is this program.
fn process_of(bed: &Bed, name: &str) -> Option<u32> {
    let owner = bed.journal.cookie();
    let serves = |pid: &u32| {
        let words = process::command_line(&bed.node, *pid).unwrap_or_default();
        words.first().is_some_and(|program| program.ends_with(name))
    };
    machine::marked_processes(|cookie| cookie == owner).iter().map(|process| process.pid).find(serves)
}

/// Roles whose processor time a sample tells.
fn roles(sample: &Sample) -> Vec<String> {
    let of_qemu = sample.seen.iter().filter(|seen| matches!(seen.watched, Watched::Hypervisor(_)));
    of_qemu.flat_map(|seen| &seen.figures).filter_map(|reading| reading.labels.get("role").cloned()).collect()
}

/// Its cell is told with the server's end; the guest that is booted for the next one finds the server there again.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_killed_remote_server_is_back_for_the_next_cell() {
    must_be_root();
    let bed = Bed::new();
    let state = guest::state();
    let text = "baseline = 'none'\n[[matrix]]\nsides = ['qemu']\n\
                disks = { targets = ['nbd'], drivers = ['virtio-blk'], caches = ['none'], aios = ['threads'] }\n\
                workloads = ['seq-write', 'seq-read']\n";
    let planned = cells::planned(text, &bed.dir(), &state);
    assert_eq!(planned.skipped(), []);

    let (mut killed, mut told) = (None, Vec::new());
    let run = cells::measure_by(cells::one_round, &planned, &state, &bed.journal, &mut |event| match event {
        Event::Cell(cell, _) if killed.is_none() => {
            let pid = server(&bed).unwrap();
            kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
            killed = Some((cell.key(), pid));
        }
        Event::Stored(_) => assert_ne!(server(&bed), killed.as_ref().map(|(_, pid)| *pid), "another one serves"),
        Event::Retry(cell, why) | Event::GaveUp(cell, why) | Event::LeftOut(cell, why) => {
            told.push((cell.key(), (*why).to_owned()));
        }
        _ => {}
    });
    println!("{told:#?}");
    let [(first, why)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(Some(first), killed.as_ref().map(|(key, _)| key));
    assert!(why.contains("vmio-nbd.raw") && why.contains("killed by signal 9"), "{why}");
    assert_eq!((run.samples.len(), run.skipped.len()), (2, 0), "{:?}", run.skipped);
    for sample in &run.samples {
        let key = sample.cell.key();
        println!("{key}: {:.0} MB/s", sample.result.figure("bandwidth").unwrap() / 1e6);
        let place = &run.effective[key.rsplit_once('/').unwrap().0];
        assert!(place["server"].ends_with("NBD over TCP") && place["server.cache.direct"] == "true", "{place:?}");
        // CPU time of the other host is not counted here.
        let roles = roles(sample);
        assert!(roles.iter().any(|role| role == "vcpu") && !roles.iter().any(|role| role == "server"), "{roles:?}");
    }
    assert_eq!(bed.journal.undo_all(), [""; 0]);
    assert_eq!((bed.files(), server(&bed)), (Vec::new(), None));
}

/// The guest's kernel is the client, over a card of its own, on a link that carries what it is set to.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_reaches_the_server_by_itself() {
    must_be_root();
    let bed = Bed::new();
    if find_program(&bed.node, "nbd-client").is_none() {
        skip("no nbd-client");
        return;
    }
    let state = guest::state();
    let text = "baseline = 'none'\n[[matrix]]\nsides = ['qemu']\ndisks = { targets = ['nbd'] }\n\
                workloads = ['seq-write', 'seq-read']\nsettings = { rate = ['200mbit'], mtu = ['9000'] }\n";
    let planned = cells::planned(text, &bed.dir(), &state);
    assert_eq!(planned.skipped(), []);
    let run = cells::measure_by(cells::one_round, &planned, &state, &bed.journal, &mut |_| {});
    assert_eq!((run.samples.len(), run.skipped.len()), (2, 0), "{:?}", run.skipped);
    let place = &run.effective["nbd/qemu"];
    println!("{place:?}");
    assert_eq!(place["client"], "NBD over TCP, in the guest");
    assert!(place.contains_key("client nbd-client") && place["server"].ends_with("NBD over TCP"), "{place:?}");
    for sample in &run.samples {
        let bandwidth = sample.result.figure("bandwidth").unwrap();
        println!("{}: {:.1} MB/s", sample.cell.key(), bandwidth / 1e6);
        assert!(bandwidth < 25e6 * 1.1, "the link carries 25 MB/s with all headers: {bandwidth}");
        let uplink = |seen: &Watched| matches!(seen, Watched::Link(name) if name.starts_with("up"));
        assert!(sample.seen.iter().any(|seen| uplink(&seen.watched)), "{:?}", sample.seen);
    }
    assert_eq!(bed.journal.undo_all(), [""; 0]);
    assert_eq!((bed.files(), server(&bed)), (Vec::new(), None));
}

/// Where this host has what it needs for it, as a lab host does: the kernel's own client, whose device goes with the run.
#[test]
#[ignore = "guest: needs QEMU"]
fn this_host_reaches_the_server_by_its_own_kernel() {
    must_be_root();
    let bed = Bed::new();
    let text = "baseline = 'none'\n[[matrix]]\nsides = ['native']\ndisks = { targets = ['nbd'] }\n\
                workloads = ['seq-write', 'seq-read']\nsettings = { rate = ['200mbit'] }\n";
    let planned = cells::planned(text, &bed.dir(), &guest::state());
    if let [first, ..] = planned.skipped().as_slice() {
        assert!(first.reason.contains("kernel's NBD client") || first.reason.contains("nbd-client"), "{first:?}");
        skip(&first.reason);
        return;
    }
    let run = cells::measure_by(cells::one_round, &planned, &guest::state(), &bed.journal, &mut |_| {});
    assert_eq!((run.samples.len(), run.skipped.len()), (2, 0), "{:?}", run.skipped);
    for sample in &run.samples {
        let bandwidth = sample.result.figure("bandwidth").unwrap();
        println!("{}: {:.1} MB/s", sample.cell.key(), bandwidth / 1e6);
        assert!(bandwidth < 25e6 * 1.1, "the link carries 25 MB/s with all headers: {bandwidth}");
    }
    assert_eq!(bed.journal.undo_all(), [""; 0]);
    assert_eq!((bed.files(), server(&bed)), (Vec::new(), None));
    let connected = (0..16).filter(|n| std::path::Path::new(&format!("/sys/block/nbd{n}/pid")).exists());
    assert_eq!(connected.count(), 0, "no device of this host is connected any more");
}

/// A request is a frame: far more passes with frames of 9000 bytes than of 1500.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_reaches_a_server_of_ata_over_ethernet() {
    must_be_root();
    let bed = Bed::new();
    if find_program(&bed.node, "vblade").is_none() {
        skip("no vblade");
        return;
    }
    let text = "baseline = 'none'\n[[matrix]]\nsides = ['qemu']\ndisks = { targets = ['aoe'] }\n\
                workloads = ['seq-write', 'seq-read']\nsettings = { rate = ['200mbit'], mtu = ['1500', '9000'] }\n";
    let planned = cells::planned(text, &bed.dir(), &guest::state());
    assert_eq!(planned.skipped(), []);
    let run = cells::measure_by(cells::one_round, &planned, &guest::state(), &bed.journal, &mut |_| {});
    assert_eq!((run.samples.len(), run.skipped.len()), (4, 0), "{:?}", run.skipped);
    let place = &run.effective["aoe/qemu"];
    assert!(place["server"].starts_with("vblade") && place["client"].starts_with("ATA over Ethernet"), "{place:?}");
    let mut of = BTreeMap::new();
    for sample in &run.samples {
        let (key, sectors) = (sample.cell.key(), sample.device().unwrap().request_bytes / 512.0);
        let bandwidth = sample.result.figure("bandwidth").unwrap();
        println!("{key}: {:.1} MB/s, {sectors:.1} sectors", bandwidth / 1e6);
        of.insert((sample.cell.lead.workload.as_str(), sample.cell.settings["mtu"].as_str()), bandwidth);
    }
    // Others write to the server's disk meanwhile, so the size of its requests is only shown.
    for workload in ["seq-write", "seq-read"] {
        assert!(of[&(workload, "9000")] > 1.5 * of[&(workload, "1500")], "{workload}: {of:?}");
    }
    assert_eq!(bed.journal.undo_all(), [""; 0]);
    assert_eq!((bed.files(), process_of(&bed, "vblade")), (Vec::new(), None));
}

/// A study of a guest that has the disk of `iscsi` by its hypervisor's client, then by its kernel's.
const BY_ISCSI: &str = "baseline = 'none'\n[[matrix]]\nsides = ['qemu']\n\
    disks = { targets = ['iscsi'], drivers = ['virtio-blk'], caches = ['none'], aios = ['threads'] }\n\
    workloads = ['seq-write', 'seq-read']\nsettings = { rate = ['200mbit'], mtu = ['9000'] }\n\
    [[matrix]]\nsides = ['qemu']\ndisks = { targets = ['iscsi'] }\n\
    workloads = ['seq-write', 'seq-read']\nsettings = { rate = ['200mbit'], mtu = ['9000'] }\n";

/// What a run of this study would be; `None` where this machine lacks what has one of these words in it, which is told.
fn planned_if(bed: &Bed, text: &str, parts: &[&str]) -> Option<Planned> {
    let planned = cells::planned(text, &bed.dir(), &guest::state());
    let Some(first) = planned.skipped().into_iter().next() else { return Some(planned) };
    assert!(parts.iter().any(|part| first.reason.contains(*part)), "{first:?}");
    skip(&first.reason);
    None
}

/// Parts of what a disk by iSCSI needs.
const ISCSI: &[&str] = &["tgt", "iscsi"];

/// In one guest, on a link that carries what it is set to.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_has_a_disk_by_iscsi_through_its_hypervisor_and_by_itself() {
    must_be_root();
    let bed = Bed::new();
    let Some(planned) = planned_if(&bed, BY_ISCSI, ISCSI) else { return };
    let run = cells::measure_by(cells::one_round, &planned, &guest::state(), &bed.journal, &mut |_| {});
    assert_eq!((run.samples.len(), run.skipped.len()), (4, 0), "{:?}", run.skipped);
    let (host_side, guest_side) = (&run.effective["iscsi/qemu/virtio-blk,none,threads"], &run.effective["iscsi/qemu"]);
    println!("{host_side:?}\n{guest_side:?}");
    assert_eq!((host_side["served_by"].as_str(), host_side["aio"].as_str()), ("iSCSI", "server's"));
    assert_eq!(guest_side["client"], "iSCSI, in the guest");
    assert!(guest_side["client iscsistart"].contains("version"), "{guest_side:?}");
    for place in [host_side, guest_side] {
        assert!(place["server"].starts_with("tgtd ") && place["server.cache.direct"] == "true", "{place:?}");
    }
    for sample in &run.samples {
        let bandwidth = sample.result.figure("bandwidth").unwrap();
        println!("{}: {:.1} MB/s", sample.cell.key(), bandwidth / 1e6);
        assert!(bandwidth < 25e6 * 1.1, "the link carries 25 MB/s with all headers: {bandwidth}");
    }
    assert_eq!(bed.journal.undo_all(), [""; 0]);
    assert_eq!((bed.files(), process_of(&bed, "tgtd")), (Vec::new(), None));
}

/// Where this kernel has an NVMe target, and is the client of the one that a guest has by a driver.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_has_a_disk_of_an_nvme_subsystem_by_itself_and_through_this_kernel() {
    must_be_root();
    let bed = Bed::new();
    let by_itself = "disks = { targets = ['nvme-tcp'] }";
    let through = "disks = { targets = ['nvme-tcp'], drivers = ['virtio-blk'], caches = ['none'], aios = ['threads'] }";
    let matrix = |disks: &str| {
        format!(
            "[[matrix]]\nsides = ['qemu']\n{disks}\nworkloads = ['seq-write', 'seq-read']\n\
             settings = {{ rate = ['200mbit'], mtu = ['9000'] }}\n"
        )
    };
    let text = format!("baseline = 'none'\n{}{}", matrix(by_itself), matrix(through));
    let Some(planned) = planned_if(&bed, &text, &["NVMe"]) else { return };
    let run = cells::measure_by(cells::one_round, &planned, &guest::state(), &bed.journal, &mut |_| {});
    assert_eq!((run.samples.len(), run.skipped.len()), (4, 0), "{:?}", run.skipped);
    let clients =
        [("nvme-tcp/qemu", "in the guest"), ("nvme-tcp/qemu/virtio-blk,none,threads", "in this host's kernel")];
    for (place, client) in clients {
        let found = &run.effective[place];
        println!("{place}: {found:?}");
        assert_eq!(found["client"], format!("NVMe over TCP, {client}"));
        assert!(found["server"].starts_with("nvmet of Linux ") && found["server.cache.direct"] == "true", "{found:?}");
    }
    for sample in &run.samples {
        let bandwidth = sample.result.figure("bandwidth").unwrap();
        println!("{}: {:.1} MB/s", sample.cell.key(), bandwidth / 1e6);
        assert!(bandwidth < 25e6 * 1.1, "the link carries 25 MB/s with all headers: {bandwidth}");
    }
    assert_eq!(bed.journal.undo_all(), [""; 0]);
    assert_eq!(bed.files(), [""; 0]);
    let ours = bed.journal.cookie();
    let mut served = std::fs::read_dir("/sys/kernel/config/nvmet/subsystems").unwrap().map(|entry| entry.unwrap());
    assert!(!served.any(|entry| entry.file_name().to_string_lossy().contains(ours)));
    let connected = std::fs::read_dir("/sys/class/nvme").unwrap().map(|entry| entry.unwrap().path().join("subsysnqn"));
    let connected = connected.filter(|file| std::fs::read_to_string(file).is_ok_and(|nqn| nqn.contains(ours)));
    assert_eq!(connected.count(), 0, "this kernel is connected no more");
}

/// The guest's kernel gives its requests up, and the guest that is booted for the next cell finds the server there again.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_a_killed_iscsi_server_is_back_for_the_next_cell() {
    must_be_root();
    let bed = Bed::new();
    let text = "baseline = 'none'\n[[matrix]]\nsides = ['qemu']\ndisks = { targets = ['iscsi'] }\n\
                workloads = ['seq-write', 'seq-read']\n";
    let Some(planned) = planned_if(&bed, text, ISCSI) else { return };
    let (mut killed, mut told) = (None, Vec::new());
    let run = cells::measure_by(cells::one_round, &planned, &guest::state(), &bed.journal, &mut |event| match event {
        Event::Cell(cell, _) if killed.is_none() => {
            let pid = process_of(&bed, "tgtd").unwrap();
            kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
            killed = Some(cell.key());
        }
        Event::Retry(cell, why) | Event::GaveUp(cell, why) | Event::LeftOut(cell, why) => {
            told.push((cell.key(), (*why).to_owned()));
        }
        _ => {}
    });
    let [(first, why)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(Some(first), killed.as_ref());
    assert!(why.contains("vmio-iscsi.raw") && why.contains("killed by signal 9"), "{why}");
    assert_eq!((run.samples.len(), run.skipped.len()), (2, 0), "{:?}", run.skipped);
    assert_eq!(bed.journal.undo_all(), [""; 0]);
    assert_eq!((bed.files(), process_of(&bed, "tgtd")), (Vec::new(), None));
}
