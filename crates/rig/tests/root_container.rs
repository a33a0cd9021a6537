//! A container by itself: what it is held to is in force, its disks are the host's own, and nothing is left of it.
//! The agent must have been built (`make agent`).

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use crate::common::Bed;
use vmio_node::{End, Exec, Node};
use vmio_rig::disks::Storage;
use vmio_rig::guests::{self, DiskSpec, Guest, GuestSpec, LaunchCtx};
use vmio_rig::limits::{Limits, OOM_SCORE_ADJ, Share};
use vmio_rig::nodes::Nodes;
use vmio_testbed::{limit, must_be_root};

const MIB: u64 = 1 << 20;

fn launch(bed: &Bed, limits: &Limits, disks: Vec<DiskSpec>) -> guests::Result<Box<dyn Guest>> {
    let run_dir = bed.dir().join("run");
    let ctx = LaunchCtx {
        node: bed.shared(),
        journal: bed.journal.clone(),
        image: None,
        run_dir: &run_dir,
        state_dir: &bed.dir(),
        accel: None,
        nodes: &Nodes::default(),
        boot_limit: limit(),
        oom_score_adj: OOM_SCORE_ADJ,
        cgroup_procs: limits.procs_files(),
        enter: Vec::new(),
        progress: &|_| {},
    };
    let spec = GuestSpec { disks, ..GuestSpec::of("container-0", 1, 64) };
    guests::find("container").unwrap().launch(&ctx, &spec)
}

fn said(node: &dyn Node, script: &str) -> (End, String) {
    // As workloads run.
    let sh = Exec { oom_score_adj: Some(OOM_SCORE_ADJ), ..Exec::new("sh") };
    let output = node.exec(&sh.args(["-c", script]).limit(limit())).unwrap();
    (output.end, output.out().trim().to_owned())
}

#[test]
#[ignore = "root"]
fn a_containers_limits_are_in_force_and_go() {
    must_be_root();
    let bed = Bed::new();
    let name = format!("vmio-test-{}", std::process::id());
    let limits = Limits::create(&bed.node, &bed.journal, &name, &Share::of(1, 64 * MIB)).unwrap();
    let file = bed.dir().join("disk");
    fs::write(&file, "of the host").unwrap();
    let disk = DiskSpec { id: "d0".into(), storage: Storage::File(file.clone()), attachment: None };
    let container = launch(&bed, &limits, vec![disk]).unwrap();
    let node = container.node();
    let own = container.processes().unwrap();
    assert_eq!(said(&*node, "nproc").1, "1", "one of this host's processors");
    assert_eq!(said(&*node, "hostname").1, "container-0");
    assert_eq!(said(&*node, "ls /sys/class/net").1, "lo", "a network of its own");
    assert_eq!(said(&*node, "ping -c1 -W2 127.0.0.1 >/dev/null || ip -o link show lo | grep -c UP").0, End::Exit(0));
    // More memory than that is not to be had: who takes it is ended, and the container goes on.
    let (end, _) = said(&*node, "head -c 200M /dev/zero | exec tail -c 200M | wc -c | grep -qx 209715200");
    assert_ne!(end, End::Exit(0), "200 MiB of memory were had in 64");
    assert_ne!(said(&*node, "exec head -c 200M /dev/zero > /tmp/big").0, End::Exit(0), "/tmp has a size");
    assert_eq!(said(&*node, "rm -f /tmp/big; head -c 8M /dev/zero > /tmp/small").0, End::Exit(0));
    // Its disk is the host's file, whatever it is called there.
    let path = container.disk_path("d0").unwrap();
    assert_eq!(node.reader().read_text(&path).unwrap(), "of the host");
    assert_eq!(said(&*node, &format!("echo changed > {}", path.display())).0, End::Exit(0));
    assert_eq!(fs::read_to_string(&file).unwrap(), "changed\n");
    // Nothing else of the host's can be written to.
    let (end, _) = said(&*node, "touch /etc/vmio-was-here /usr/vmio-was-here /root/vmio-was-here");
    assert_ne!(end, End::Exit(0));
    container.stop().unwrap();
    assert!(
        !Path::new(&format!("/proc/{}", own.first)).exists() && !Path::new(&format!("/proc/{}", own.agent)).exists()
    );
    limits.remove(&bed.journal).unwrap();
    assert!(!bed.dir().join("run/container-0").exists());
}

#[test]
#[ignore = "root"]
fn one_that_cannot_come_up_says_why_and_leaves_nothing() {
    must_be_root();
    let bed = Bed::new();
    let name = format!("vmio-test-not-{}", std::process::id());
    let limits = Limits::create(&bed.node, &bed.journal, &name, &Share::of(1, 64 * MIB)).unwrap();
    let storage = Storage::File(bed.dir().join("missing"));
    let why = launch(&bed, &limits, vec![DiskSpec { id: "d0".into(), storage, attachment: None }]);
    let why = why.err().unwrap().to_string();
    assert!(why.contains("cannot bind") && why.contains("missing"), "{why}");
    let storage = Storage::Nbd { socket: "/nowhere".into(), export: "x".into() };
    let why = launch(&bed, &limits, vec![DiskSpec { id: "d0".into(), storage, attachment: None }]);
    assert!(why.err().unwrap().to_string().contains("served to a hypervisor"));
    limits.remove(&bed.journal).unwrap();
    assert!(!bed.dir().join("run/container-0").exists());
}
