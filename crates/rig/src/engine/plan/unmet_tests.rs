//! Cells on made-up hosts: which cannot run, and what is said of them.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use vmio_model::cell::{Aio, Attachment, Cache, Millis, Shape, Side, State};
use vmio_node::fake::{Fake, says};

use crate::elf::tests::elf_with_section;
use crate::engine::environment;
use crate::nodes::{GuestScan, Is, Machine, Measured, Nodes};

use super::*;

fn guest(target: &str, workload: &str) -> Cell {
    Cell::on("qemu", target, Some(Attachment::new("virtio-blk", Cache::None, Aio::Native)), workload)
}

fn native(target: &str, workload: &str) -> Cell {
    Cell::on("native", target, None, workload)
}

fn with(mut cell: Cell, other: Cell) -> Cell {
    cell.beside.push(other.lead);
    cell
}

fn setting(mut cell: Cell, name: &str, value: &str) -> Cell {
    cell.settings.insert(name.into(), value.into());
    cell
}

#[test]
fn nobody_writes_to_what_another_one_works_on() {
    let way = |cell: &Cell| in_each_others_way(cell);
    assert_eq!(way(&native("sparse", "seq-write")), None);
    assert_eq!(way(&with(native("sparse", "seq-write"), native("preallocated", "seq-write"))), None);
    assert_eq!(way(&with(guest("device", "seq-read"), native("device", "rand-read-4k-d2"))), None, "two readers");
    let machine = Cell::of(Side::native(), Subject::Machine, "openssl");
    assert_eq!(way(&with(with(machine.clone(), native("device", "seq-write")), machine)), None);
    for (one, other) in [("seq-write", "seq-read"), ("seq-read", "rand-write-4k-d2"), ("seq-write", "dd-write")] {
        let said = way(&with(guest("device", one), native("device", other))).unwrap().to_string();
        assert!(said.contains("the target device at once") && said.contains("writes to it"), "{said}");
    }
    // In states of their own each would find that of the other.
    let mut filled = native("device", "seq-read");
    let Subject::Disk { state, .. } = &mut filled.lead.subject else { panic!("it is on a disk") };
    *state = Some(State::Filled);
    let said = way(&with(native("device", "seq-read"), filled)).unwrap().to_string();
    assert!(said.contains("in different states"), "{said}");
    let said = way(&with(native("dm-cache", "seq-read"), native("dm-cache", "seq-read"))).unwrap().to_string();
    assert!(said.contains("for one actor of a cell"), "{said}");
    // Whoever comes first.
    let three = with(with(native("device", "seq-read"), native("device", "seq-read")), guest("device", "seq-write"));
    assert!(way(&three).is_some());
}

#[test]
fn a_setting_that_is_refused_to_one_or_means_nothing_to_any_cannot_be_set() {
    let ahead = |cell| unsettable(&setting(cell, "read-ahead", "4096k"), &host());
    assert_eq!(ahead(guest("sparse", "seq-read")), None);
    assert_eq!(ahead(native("device", "seq-read")), None);
    let said = ahead(native("sparse", "seq-read")).unwrap().to_string();
    assert!(said.starts_with("read-ahead: ") && said.contains("works on a file"), "{said}");
    let machine = Cell::of(Side::of("qemu"), Subject::Machine, "openssl");
    assert_eq!(ahead(with(guest("sparse", "seq-read"), machine.clone())), None, "it is for the other one");
    assert!(ahead(with(guest("sparse", "seq-read"), native("served", "seq-read"))).is_some());
    assert!(ahead(machine.clone()).unwrap().to_string().contains("no actor uses one"));
    assert!(unsettable(&setting(machine, "warp", "9"), &host()).unwrap().to_string().contains("unknown setting warp"));
}

/// A host that has all that fio in a guest on a scratch file needs.
fn host() -> Fake {
    Fake::new("fake")
        .installed("fio")
        .installed("qemu-system-x86_64")
        .installed("taskset")
        .command(|cmd| cmd.program.ends_with("x86_64").then(|| says("QEMU emulator version 7.2.22\n")))
        .file("/proc/self/status", "Name:\tvmio\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t0-1\n")
        .file("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        .file("/sys/fs/cgroup/cgroup.subtree_control", "cpuset cpu memory\n")
        .file("/proc/swaps", "Filename Type Size Used Priority\n")
        .file("/usr/lib/vmio/vmio-agent", elf_with_section("x", b""))
        .file("/sys/fs/cgroup/cpuset.cpus.effective", "0-1\n")
}

#[test]
fn a_shape_that_a_host_does_not_have_is_told() {
    let backend = PlaceBackend::Files("/srv".into());
    let told = |host: &Fake, shape: Shape, gentle: bool| {
        let mut actor = guest("sparse", "seq-read").lead;
        actor.side.shape = shape;
        why_not(&actor, host, gentle, &PlanOptions::default(), Some(&backend))
    };
    let pins = |pins: &[u32]| Shape { pins: pins.to_vec(), ..Shape::default() };
    assert_eq!(told(&host(), Shape::default(), true), None);
    let bare = host();
    bare.remove("/usr/lib/vmio/vmio-agent");
    let said = told(&bare, Shape::default(), false).unwrap().to_string();
    assert!(said.starts_with("vmio-agent: no vmio-agent") && said.contains("`make agent`"), "{said}");
    assert_eq!(told(&host(), Shape { vcpus: Some(2), memory_mib: Some(512), ..pins(&[1]) }, false), None);
    assert!(told(&host(), pins(&[2]), false).unwrap().to_string().contains("processor 2: vmio may use 0, 1"));
    let said = told(&host(), pins(&[1]), true).unwrap().to_string();
    assert!(said.contains("pinning is not possible") && said.contains("--no-gentle"), "{said}");
    assert!(
        told(&host(), Shape { machine: Some("pc".into()), ..Shape::default() }, false)
            .unwrap()
            .to_string()
            .contains("q35")
    );
    let native = |shape: Shape, gentle: bool| {
        let actor = Actor { side: Side { shape, ..Side::native() }, ..native_actor() };
        why_not(&actor, &host(), gentle, &PlanOptions::default(), Some(&backend))
    };
    assert_eq!(native(Shape { vcpus: Some(2), memory_mib: Some(512), ..pins(&[1]) }, false), None);
    assert!(native(pins(&[2]), false).unwrap().to_string().contains("processor 2"));
    assert!(native(pins(&[1]), true).unwrap().to_string().contains("--no-gentle"));
    assert!(native(Shape { machine: Some("q35".into()), ..Shape::default() }, false).is_some());
}

#[test]
fn what_a_run_may_fetch_is_not_missing() {
    let told = |workload: &str, host: &Fake, maven: Option<&str>| {
        let maven = maven.map(|url| url.parse().unwrap());
        let options = PlanOptions { maven, device: Some("/dev/sdx".into()), ..PlanOptions::default() };
        let backend = PlaceBackend::Files("/srv".into());
        let why = why_not(&native("device", workload).lead, host, false, &options, Some(&backend));
        why.map(|why| why.to_string()).unwrap_or_default()
    };
    let programs = ["mount", "unshare", "dd", "ip", "nsenter"];
    let host = programs.iter().fold(host(), |host, program| host.installed(program));
    let host = host.file("/usr/sbin/mke2fs", "");
    let url = Some("https://repository.example/maven");
    let workloads = ["dfsio", "dfsio-hdfs"];
    assert!(workloads.iter().all(|workload| told(workload, &host, url).contains("java is missing")));
    let host = host.file("/usr/lib/jvm/java-17-openjdk-amd64/bin/java", "");
    for workload in workloads {
        let without = told(workload, &host, None);
        assert!(without.contains("--maven URL"), "{without}");
        assert!(told(workload, &host, url).contains("no program curl"), "{}", told(workload, &host, url));
    }
    let host = host.installed("curl").installed("prlimit");
    assert_eq!(workloads.map(|workload| told(workload, &host, url)), ["", ""]);
}

#[test]
fn an_hdfs_is_where_nobody_else_reaches_it_and_has_one_path() {
    let backend = PlaceBackend::Files("/srv".into());
    let told = |side: &str, target: &str, workload: &str| {
        let cell = Cell::on(side, target, None, workload);
        let why = why_not(&cell.lead, &host(), false, &PlanOptions::default(), Some(&backend));
        why.map(|why| why.to_string()).unwrap_or_default()
    };
    let said = told("container", "device", "dfsio-hdfs");
    assert!(said.contains("others may reach a container's network"), "{said}");
    assert!(!told("native", "device", "dfsio-hdfs").contains("a container's"));
    let said = told("native", "nbd", "dfsio-hdfs-remote");
    assert!(said.contains("the workload has one of its own"), "{said}");
}

#[test]
fn what_another_machine_cannot_do_is_told_with_its_name() {
    let ssh = |target: &str, workload: &str| Cell::on("ssh", target, None, workload);
    let afar = |node: Fake| {
        let own = Measured { dir: "/srv".into(), device: None, force: false, scan: GuestScan::default() };
        Machine { address: "ssh://away".into(), node: Arc::new(node), is: Is::Measured(own) }
    };
    let options = |other: Option<Machine>| {
        let nodes = other.map(Nodes::from).unwrap_or_default();
        PlanOptions { nodes, ..PlanOptions::default() }
    };
    let told = |cell: &Cell, afar: Option<Machine>| why_not(&cell.lead, &host(), true, &options(afar), None);
    let (bare, able) = (|| Some(afar(Fake::new("away"))), || Some(afar(Fake::new("away").installed("fio"))));
    let cell = ssh("preallocated", "seq-write");
    assert_eq!(told(&cell, able()), None, "nobody is spared here for it");
    assert_eq!(told(&ssh("preallocated", "durable-append"), able()), None);
    let says = |cell: &Cell, afar, words: &str| {
        let said = told(cell, afar).unwrap().to_string();
        assert!(said.contains(words), "{said}");
    };
    says(&cell, None, "--on ssh://");
    says(&cell, bare(), "on ssh://away: fio: no program fio in PATH; apt install fio");
    says(&ssh("sparse", "seq-write"), able(), "use preallocated or device");
    says(&ssh("device", "seq-write"), able(), "name twice, --device");
    says(&ssh("preallocated", "dd-read"), able(), "page cache");
    says(&native("preallocated", "seq-write"), able(), "made on ssh://away");
    let path = Subject::path("wire", "peer", None);
    says(&Cell::of(Side::of("ssh"), path.clone(), "iperf3-tcp"), able(), "the side native");
    assert!(
        unsettable(&setting(cell, "read-ahead", "4096k"), &host()).unwrap().to_string().contains("another machine")
    );
    let wire = |side: &str, peer: Option<Fake>| {
        let ends = ([192, 0, 2, 7].into(), [192, 0, 2, 1].into());
        let peer = peer.map(|node| environment::peer("ssh://b", Arc::new(node), ends, &[]));
        let actor = Cell::of(Side::of(side), path.clone(), "iperf3-tcp").lead;
        elsewhere::why_not_wire(&actor, &host().installed("iperf3"), &options(peer))
    };
    assert_eq!(wire("native", Some(Fake::new("b").installed("iperf3"))), None);
    assert!(wire("native", None).unwrap().to_string().contains("--peer ssh://"));
    assert!(wire("native", Some(Fake::new("b"))).unwrap().to_string().starts_with("on ssh://b: iperf3"));
    assert!(wire("container", Some(Fake::new("b"))).unwrap().to_string().contains("only the host itself"));
}

/// A client of the kernel's own natively, and in a guest that has no driver; QEMU's for a guest that has one.
#[test]
fn whoever_is_a_client_needs_what_makes_it_one() {
    let host = ["ip", "nsenter", "unshare", "qemu-storage-daemon"].iter().fold(host(), |all, one| all.installed(one));
    let backend = PlaceBackend::Files("/srv".into());
    let told = |cell: Cell| {
        let why = why_not(&cell.lead, &host, false, &PlanOptions::default(), Some(&backend));
        why.map(|why| why.to_string()).unwrap_or_default()
    };
    let by_itself = |workload: &str| Cell::on("qemu", "nbd", None, workload);
    assert_eq!(told(guest("nbd", "seq-read")), "");
    assert!(told(native("nbd", "seq-read")).contains("kernel's NBD client: this kernel has no module nbd loaded"));
    assert!(told(by_itself("seq-read")).contains("no program nbd-client in PATH; apt install nbd-client"));
    assert!(told(Cell::on("qemu", "aoe", None, "seq-read")).contains("no program vblade in PATH"));
    let host = host.installed("vblade").file("/dev/net/tun", "");
    let told = |cell: &Cell| {
        let why = why_not(&cell.lead, &host, false, &PlanOptions::default(), Some(&backend));
        why.map(|why| why.to_string()).unwrap_or_default()
    };
    assert!(told(&guest("aoe", "seq-read")).contains("leave the driver out"));
    assert_eq!(told(&Cell::on("qemu", "aoe", None, "seq-read")), "");
    let said = told(&native("aoe", "seq-read"));
    assert!(said.starts_with("lab host: ") && said.contains("where vmio adds nothing; have a lab host"), "{said}");
    let mut warm = by_itself("dd-read");
    if let Subject::Disk { state, .. } = &mut warm.lead.subject {
        *state = Some(State::WarmGuest);
    }
    assert!(told(&warm).contains("reaches it by itself"));
}

/// QEMU's own is in a package of its own, a guest's is a program of its image, and this host's kernel is none.
#[test]
fn each_client_of_iscsi_needs_what_makes_it_one() {
    let programs = ["ip", "nsenter", "unshare", "tgtd", "tgtadm"];
    let host = programs.iter().fold(host(), |all, one| all.installed(one));
    let module = |name: &str| format!("/usr/lib/x86_64-linux-gnu/qemu/{name}.so");
    let host = host.file("/dev/net/tun", "").file("/dev/shm", "").file(module("accel-tcg-x86_64"), "");
    let backend = PlaceBackend::Files("/srv".into());
    let told = |host: &Fake, cell: Cell| {
        let why = why_not(&cell.lead, host, false, &PlanOptions::default(), Some(&backend));
        why.map(|why| why.to_string()).unwrap_or_default()
    };
    let by_itself = || Cell::on("qemu", "iscsi", None, "seq-read");
    let said = told(&host, guest("iscsi", "seq-read"));
    assert!(said.contains("no block-iscsi.so") && said.contains("apt install qemu-block-extra"), "{said}");
    assert!(told(&host, by_itself()).contains("no program iscsistart in PATH; apt install open-iscsi"));
    assert!(told(&host, native("iscsi", "seq-read")).contains("in its first network namespace alone"));
    let host = host.file(module("block-iscsi"), "").installed("iscsistart");
    assert_eq!((told(&host, guest("iscsi", "seq-read")), told(&host, by_itself())), (String::new(), String::new()));
}

/// The kernel that serves it is this host's, and so is the client natively and of a hypervisor.
#[test]
fn nvme_over_tcp_needs_a_kernel_that_serves_it_and_one_that_is_a_client() {
    let programs = ["ip", "nsenter", "unshare", "ln", "tee"];
    let host = programs.iter().fold(host(), |all, one| all.installed(one)).file("/dev/net/tun", "");
    let backend = PlaceBackend::Files("/srv".into());
    let told = |host: &Fake, cell: Cell| {
        let why = why_not(&cell.lead, host, false, &PlanOptions::default(), Some(&backend));
        why.map(|why| why.to_string()).unwrap_or_default()
    };
    let by_itself = || Cell::on("qemu", "nvme-tcp", None, "seq-read");
    assert!(told(&host, by_itself()).contains("modprobe nvmet_tcp"));
    let host = host.file("/sys/kernel/config/nvmet/x", "").file("/sys/module/nvmet_tcp/refcnt", "0\n");
    assert_eq!(told(&host, by_itself()), "");
    let by_host = || [native("nvme-tcp", "seq-read"), guest("nvme-tcp", "seq-read")];
    for cell in by_host() {
        assert!(told(&host, cell.clone()).contains("modprobe nvme_tcp"), "{}", cell.key());
    }
    let host = host.file("/dev/nvme-fabrics", "").file("/sys/module/nvme_tcp/refcnt", "0\n");
    for cell in by_host() {
        assert_eq!(told(&host, cell.clone()), "", "{}", cell.key());
    }
}

#[test]
fn a_part_of_a_second_is_refused_where_the_cell_itself_asks_for_it() {
    let repeat = serde_json::json!({
        "min_pairs": 2, "max_pairs": 9, "min_boots": 1, "half_width": 0.05, "seconds": 0.5, "max_minutes": 5.0,
    });
    let study = serde_json::json!({
        "name": "x", "title": "", "cites": "", "guest": {"vcpus": 1, "memory_mib": 256}, "repeat": repeat,
    });
    let study: Study = serde_json::from_value(study).unwrap();
    let mut actor = Cell::of(Side::native(), Subject::Machine, "openssl-aes-256-cbc").lead;
    let mut told = |duration| {
        actor.duration = duration;
        too_much_asked(&actor, &study, None)
    };
    assert_eq!((told(None), told(Some(Millis(2000)))), (None, None), "the study's half second is rounded up");
    assert!(matches!(told(Some(Millis(1500))), Some(WhyNot::Tick { .. })));
}

fn native_actor() -> Actor {
    native("sparse", "seq-read").lead
}

#[test]
fn a_program_that_the_host_lacks_keeps_its_workloads_from_running_on_both_sides() {
    let backend = PlaceBackend::Files("/srv".into());
    let told = |host: &Fake, cell: Cell| why_not(&cell.lead, host, false, &PlanOptions::default(), Some(&backend));
    for cell in [guest("sparse", "dd-read"), native("sparse", "dd-read")] {
        let said = told(&host(), cell).unwrap().to_string();
        assert!(said.contains("no program dd in PATH; apt install coreutils"), "{said}");
    }
    let host = host().installed("dd");
    assert_eq!((told(&host, guest("sparse", "dd-read")), told(&host, native("sparse", "dd-read"))), (None, None));
}
