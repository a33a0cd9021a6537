//! What is set around a cell, on real devices of this kernel: it is in force, it is taken back, and after SIGKILL
//! the next start takes it back.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Bed, loops_over};
use vmio_model::cell::{Actor, Cell, Side, Subject};
use vmio_node::linux::block;
use vmio_node::linux::net::NETFILTER;
use vmio_node::{Exec, Journal, Local, Node, recover};
use vmio_rig::disks::targets::{self, Pinned, TargetCtx};
use vmio_rig::nets::{self, Namespace, NetCtx, Port};
use vmio_rig::nodes::Nodes;
use vmio_rig::settings::{self, Error, Undos, Where};
use vmio_rig::workloads::{At, End};
use vmio_testbed::{must_be_root, skip};

fn actor(target: &str) -> Actor {
    Cell::on("native", target, None, "seq-read").lead
}

fn read_ahead(node: Arc<dyn Node>, journal: &Journal, path: &Path, value: &str) -> settings::Result<(String, Undos)> {
    let end = End::here(node, At::Path(path.into()));
    let setting = settings::find("read-ahead").unwrap();
    let mut undos = Undos::default();
    let on = Where {
        actor: &actor("device"),
        end: &end,
        balloon: None,
        ports: &[],
        card: None,
        cell: (&[], 0),
        guards: &BTreeMap::new(),
        run_dir: Path::new(""),
        journal,
    };
    Ok((setting.apply(value, &on, &mut undos)?, undos))
}

fn in_force(path: &Path) -> u64 {
    block::read_ahead_kib(&Local::new(), path).unwrap()
}

/// What is in force of a loop device, by its name: also when nothing is attached to it any more.
fn of_loop(device: &Path) -> String {
    let name = device.file_name().unwrap().to_str().unwrap();
    std::fs::read_to_string(format!("/sys/block/{name}/queue/read_ahead_kb")).unwrap().trim().to_owned()
}

#[test]
#[ignore = "root"]
fn read_ahead_of_own_devices_is_set_and_set_back() {
    must_be_root();
    let bed = Bed::new();
    let target = targets::find("device").unwrap().prepare(&bed.ctx(8)).unwrap();
    let device = target.native().to_owned();
    let before = of_loop(&device);
    for value in ["0k", "4096k", "128k", "1048576k"] {
        let (found, undos) = read_ahead(bed.shared(), &bed.journal, &device, value).unwrap();
        assert_eq!(found, value);
        assert_eq!(format!("{}k", of_loop(&device)), value);
        assert_eq!(in_force(&device).to_string() + "k", value, "as the result has it");
        undos.take_back(&bed.journal).unwrap();
        assert_eq!(of_loop(&device), before);
    }
    // What was not undone is undone by the journal, before the device goes.
    let _left = read_ahead(bed.shared(), &bed.journal, &device, "4k").unwrap();
    assert_eq!(of_loop(&device), "4");
    drop(target);
    assert_eq!(bed.journal.undo_all(), [""; 0]);
    assert_eq!(loops_over(&bed.dir()).len(), 0);
    // Another test may have taken the device by now: then it is that one's.
    let after = of_loop(&device);
    let taken = vmio_node::loops::loop_devices().iter().any(|other| other.device == device);
    assert!(taken || after == before, "{after}, {before} before");
}

#[test]
#[ignore = "root"]
fn read_ahead_is_set_of_whole_given_disks() {
    must_be_root();
    let bed = Bed::new();
    let (device, file) = bed.losetup("given", 64);
    let before = of_loop(&device);
    let pinned = Arc::new(Pinned::of(&bed.node, &device).unwrap());
    let target = targets::find("device")
        .unwrap()
        .prepare(&TargetCtx { device: Some(targets::Given::Own(pinned)), ..bed.ctx(8) })
        .unwrap();
    assert!(target.native().starts_with("/proc"), "it is opened by what holds it");
    let (_, undos) = read_ahead(bed.shared(), &bed.journal, target.native(), "512k").unwrap();
    assert_eq!(of_loop(&device), "512");
    undos.take_back(&bed.journal).unwrap();
    assert_eq!(of_loop(&device), before);
    target.remove(&bed.journal).unwrap();

    let refused = |path: &Path| match read_ahead(bed.shared(), &bed.journal, path, "512k") {
        Err(Error::Refused(why)) => why,
        other => panic!("{:?}", other.map(|(found, _)| found)),
    };
    let below = in_force(&file);
    assert!(refused(&file).contains("works on a file"));
    assert_eq!(in_force(&file), below, "the disk below is as it was");

    // A partition has no read-ahead of its own.
    let added = bed.node.exec(&Exec::new("addpart").args([device.to_str().unwrap(), "1", "2048", "16384"])).unwrap();
    if !added.ok() {
        skip(&format!("no partitions on loop devices: {}", added.err()));
        return;
    }
    let name = device.file_name().unwrap().to_str().unwrap();
    let number = std::fs::read_to_string(format!("/sys/block/{name}/{name}p1/dev")).unwrap();
    let part = bed.dir().join("part");
    let (major, minor) = number.trim().split_once(':').unwrap();
    bed.run("mknod", &[part.to_str().unwrap(), "b", major, minor]);
    let said = refused(&part);
    assert_eq!(in_force(&part).to_string(), before, "its disk's");
    bed.run("delpart", &[device.to_str().unwrap(), "1"]);
    std::fs::remove_file(part).unwrap();
    assert!(said.contains("is a partition") && said.contains("whole disk"), "{said}");
    assert_eq!(of_loop(&device), before);
}

/// The owner that gets killed: this very test program, started again for this one "test".
#[test]
#[ignore = "started by the other test"]
fn helper_victim() {
    let Ok(dir) = std::env::var("VMIO_TEST_DIR").map(PathBuf::from) else { return };
    let journal = Arc::new(Journal::open(&dir.join("state"), "victim").unwrap());
    let node: Arc<dyn Node> = Arc::new(Local::owned(journal.clone()));
    journal.scratch_dir(&dir.join("scratch")).unwrap();
    let ctx = TargetCtx {
        node: &*node,
        journal: &journal,
        dir: dir.join("scratch"),
        pool: None,
        bytes: 4 << 20,
        device: None,
        force: false,
        pace: None,
        native: true,
        host: None,
        peer: None,
    };
    let target = targets::find("device").unwrap().prepare(&ctx).unwrap();
    let before = of_loop(target.native());
    let _applied = read_ahead(node.clone(), &journal, target.native(), "2048k").unwrap();
    println!("\nready {before} {}", target.native().display());
    std::thread::sleep(Duration::from_secs(1000));
}

#[test]
#[ignore = "root"]
fn after_a_kill_the_next_start_sets_it_back() {
    must_be_root();
    let bed = Bed::new();
    let (dir, state) = (bed.dir(), bed.dir().join("state"));
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["root_settings::helper_victim", "--exact", "--ignored", "--nocapture"])
        .env("VMIO_TEST_DIR", &dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let ready = lines.map_while(Result::ok).find_map(|l| l.strip_prefix("ready ").map(str::to_owned)).unwrap();
    let (before, device) = ready.split_once(' ').unwrap();
    let device = Path::new(device);
    assert_eq!((of_loop(device).as_str(), loops_over(&dir)), ("2048", vec![device.to_owned()]));
    assert_ne!(before, "2048");
    assert_eq!(recover(&state).undone, [""; 0], "while the owner lives, nobody touches what is its own");

    victim.kill().unwrap();
    victim.wait().unwrap();
    assert_eq!(of_loop(device), "2048", "SIGKILL leaves it");
    let recovered = recover(&state);
    assert_eq!(recovered.failed, [""; 0]);
    assert!(recovered.undone.iter().any(|what| what.contains("read_ahead_kb")), "{:?}", recovered.undone);
    // Another test may have taken the device by now: then it is that one's.
    let after = of_loop(device);
    let taken = vmio_node::loops::loop_devices().iter().any(|other| other.device == device);
    assert!((taken || after == before) && loops_over(&dir).is_empty(), "{after}, {before} before");
    assert!(!dir.join("scratch").exists() && !state.join("victim.journal").exists());
}

/// What is in force in a namespace, as the kernel tells it there.
fn netfilter(node: &dyn Node, namespace: &Namespace) -> Vec<String> {
    let told = node.exec(&namespace.exec("cat").args(NETFILTER)).unwrap();
    told.out().lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "root"]
fn bridge_netfilter_is_set_in_one_namespace() {
    must_be_root();
    if !Path::new(NETFILTER[0]).exists() {
        skip("no br_netfilter");
        return;
    }
    let bed = Bed::new();
    let here = || NETFILTER.map(|path| std::fs::read_to_string(path).unwrap());
    let before = here();
    let host = Namespace::make(&bed.node).unwrap();
    let nodes = &Nodes::default();
    let ctx = NetCtx { node: &bed.node, host: &host, number: 0, guest: None, actor: None, first: None, nodes };
    let path = nets::find("bridge").unwrap().build(&ctx).unwrap();
    let found = netfilter(&bed.node, &host);
    let ports = path.ports(&bed.shared(), &host, "host");
    let subject = Subject::path("bridge", "host", None);
    let actor = Cell::of(Side::native(), subject, "iperf3-tcp").lead;
    let native = path.native.as_ref().unwrap();
    let end = End { enter: native.enter.clone(), ..End::here(bed.shared(), At::address(native.address)) };
    let apply = |ports: &[Port], value: &str, undos: &mut Undos| {
        let on = Where {
            actor: &actor,
            end: &end,
            balloon: None,
            ports,
            card: None,
            cell: (&[], 0),
            guards: &BTreeMap::new(),
            run_dir: Path::new(""),
            journal: &bed.journal,
        };
        settings::find("bridge-netfilter").unwrap().apply(value, &on, undos)
    };
    for (value, number) in [("on", "1"), ("off", "0")] {
        let mut undos = Undos::default();
        assert_eq!(apply(&ports, value, &mut undos).unwrap(), value);
        assert_eq!(netfilter(&bed.node, &host), [number; 3], "{value}");
        assert_eq!(here(), before, "the namespace that vmio is in is not touched");
        undos.take_back(&bed.journal).unwrap();
        assert_eq!(netfilter(&bed.node, &host), found);
    }
    // A bridge of the host's own.
    let own: Vec<Port> = ports.into_iter().map(|port| Port { enter: Vec::new(), ..port }).collect();
    let said = apply(&own, "off", &mut Undos::default()).unwrap_err();
    assert!(matches!(&said, Error::Refused(why) if why.contains("vmio does not change its firewall")), "{said}");
    assert_eq!(here(), before);
}

/// Nobody is plugged in: it is both ends of the link, and the bridge before it.
#[test]
#[ignore = "root"]
fn rate_and_mtu_are_set_of_the_link_to_a_disks_server() {
    must_be_root();
    let bed = Bed::new();
    let host = Namespace::make(&bed.node).unwrap();
    let link = nets::beside(&bed.node, &host).unwrap();
    let ports = link.ports(&bed.shared(), &host, nets::REMOTE);
    let (on_nbd, end) = (actor("nbd"), End::here(bed.shared(), At::Nothing));
    let mut undos = Undos::default();
    for (name, value) in [("mtu", "1500"), ("bridge-netfilter", "off"), ("rate", "200mbit")] {
        let on = Where {
            actor: &on_nbd,
            end: &end,
            balloon: None,
            ports: &ports,
            card: None,
            cell: (&[], 0),
            guards: &BTreeMap::new(),
            run_dir: Path::new(""),
            journal: &bed.journal,
        };
        let setting = settings::find(name).unwrap();
        assert_eq!(setting.fits(value, &on_nbd), settings::Fit::Sets, "{name}");
        assert_eq!(setting.apply(value, &on, &mut undos).unwrap(), value, "{name}");
    }
    let count = |program: &str, args: &[&str], word: &str| {
        let told = |port: &Port| {
            let command = Exec::new(program).args(args.iter().copied().chain([&*port.interface])).behind(&port.enter);
            bed.node.exec(&command).unwrap().out()
        };
        ports.iter().filter(|port| told(port).contains(word)).count()
    };
    let in_force = || {
        let mtus = count("ip", &["-oneline", "link", "show", "dev"], "mtu 1500 ");
        (mtus, count("tc", &["qdisc", "show", "dev"], "tbf"))
    };
    assert_eq!((ports.len(), in_force()), (3, (3, 2)), "it stands at {}", nets::LINK_MTU);
    undos.take_back(&bed.journal).unwrap();
    assert_eq!(in_force(), (0, 0));
}
