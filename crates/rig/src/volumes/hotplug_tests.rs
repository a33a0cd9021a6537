//! Volumes of guests, by a monitor that keeps what QEMU would.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use vmio_node::Local;

use super::tests::{name, pool};
use super::*;

/// What a QEMU has, and what it was asked.
#[derive(Default)]
pub struct Qemu {
    pub nodes: BTreeSet<String>,
    pub devices: BTreeSet<String>,
    pub objects: BTreeSet<String>,
    pub changes: Vec<String>,
    /// What it was told of the last node.
    pub node: Value,
    /// It has no place for a device.
    pub is_full: bool,
    /// Requests that it was told to make, and how many it takes until it has found the next server.
    requests: u32,
    finds_at: u32,
    /// The size that it showed its guest.
    bytes: u64,
}

impl Qemu {
    fn answer(&mut self, question: &Value) -> Value {
        let arguments = &question["arguments"];
        let named = |key: &str| arguments[key].as_str().unwrap_or_default().to_owned();
        let command = question["execute"].as_str().unwrap();
        if ["blockdev", "device", "object"].iter().any(|of| command.starts_with(of)) {
            self.changes.push(command.to_owned());
        }
        let all =
            |names: &BTreeSet<String>, key: &str| -> Value { names.iter().map(|name| json!({ key: name })).collect() };
        let refused = |why: &str| json!({"error": {"class": "GenericError", "desc": why}, "id": question["id"]});
        let answer = match command {
            "query-named-block-nodes" => all(&self.nodes, "node-name"),
            "qom-list" if named("path") == "/objects" => all(&self.objects, "name"),
            "qom-list" => all(&self.devices, "name"),
            "object-add" => json!(self.objects.insert(named("id"))),
            "object-del" => json!(self.objects.remove(&named("id"))),
            "blockdev-add" => {
                self.node = arguments.clone();
                json!(self.nodes.insert(named("node-name")))
            }
            "device_add" if self.is_full => return refused("no slot"),
            "human-monitor-command" => {
                self.requests += 1;
                json!("")
            }
            "block_resize" if self.requests < self.finds_at => return refused("Cannot grow NBD nodes"),
            "block_resize" => {
                self.bytes = arguments["size"].as_u64().unwrap();
                json!({})
            }
            "device_add" => json!(self.devices.insert(named("id"))),
            "device_del" => json!(self.devices.remove(&named("id"))),
            "blockdev-del" => json!(self.nodes.remove(&named("node-name"))),
            _ => json!({}),
        };
        json!({"return": answer, "id": question["id"]})
    }
}

/// A guest in this process, with its monitor.
pub fn guest(at: &Path) -> (Running, Arc<Mutex<Qemu>>) {
    let (listener, qemu) = (UnixListener::bind(at).unwrap(), Arc::new(Mutex::new(Qemu::default())));
    let kept = Arc::clone(&qemu);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let version = json!({"qemu": {"major": 7, "minor": 2, "micro": 22}, "package": ""});
            let greeting = json!({"QMP": {"version": version, "capabilities": []}});
            let mut said = greeting.to_string();
            loop {
                let mut line = String::new();
                // Some leave without a word.
                let told = writeln!(stream.get_mut(), "{said}");
                if told.and_then(|()| stream.read_line(&mut line)).unwrap_or(0) == 0 {
                    break;
                }
                said = qemu.lock().unwrap().answer(&serde_json::from_str(&line).unwrap()).to_string();
            }
        }
    });
    let guest = Running { name: "web1".into(), pid: std::process::id(), monitor: at.into() };
    (guest, kept)
}

/// Says what a server says first, to whoever connects.
fn greet(at: &Path) {
    let listener = UnixListener::bind(at).unwrap();
    thread::spawn(move || {
        listener.incoming().for_each(|stream| stream.unwrap().write_all(b"NBDMAGICIHAVEOPT").unwrap())
    });
}

fn serving(dir: &Path) -> std::fs::File {
    let file = std::fs::File::create(dir.join(".served")).unwrap();
    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    file
}

/// Another holder than the guest here: with these fields instead.
pub fn other(changes: Value) -> Holder {
    let mut holder = serde_json::to_value(Holder::of("other", std::process::id()).unwrap()).unwrap();
    holder.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    serde_json::from_value(holder).unwrap()
}

pub const PLAIN: (Driver, Option<&str>) = (Driver::VirtioBlk, None);

#[test]
fn a_volume_is_attached_once_and_detached_in_order() {
    let (dir, pool) = pool();
    let (data, local) = (name("data"), Local::new());
    pool.create(&data, 4096).unwrap();
    let (guest, qemu) = guest(&dir.path().join("m"));
    let not_served = attach(&local, &pool, &data, &guest, PLAIN);
    assert!(matches!(not_served, Err(Error::NotServed { .. })) && pool.attached().unwrap().is_empty());
    assert!(matches!(check(&local, &pool, &data, &guest), Err(Error::NotServed { .. })));
    let _served = serving(dir.path());
    check(&local, &pool, &data, &guest).unwrap();
    assert!(pool.attached().unwrap().is_empty() && qemu.lock().unwrap().changes.is_empty());
    let claimed = pool.claim(&data, &Holder::of("web1", std::process::id()).unwrap()).unwrap();
    greet(&pool.socket(&claimed).unwrap());
    // The second time as after a crash, when all was done but told.
    for _ in 0..2 {
        assert_eq!(attach(&local, &pool, &data, &guest, PLAIN).unwrap(), claimed);
    }
    assert_eq!(qemu.lock().unwrap().changes, ["blockdev-add", "device_add"]);
    assert_eq!(pool.attached().unwrap(), [(data.clone(), claimed.clone())]);
    let in_use = [pool.delete(&data), pool.snapshot(&data, &name("b")).map(drop), pool.resize(&data, 8192).map(drop)];
    assert!(in_use.iter().all(|refused| matches!(refused, Err(Error::Attached { .. }))), "{in_use:?}");
    let running = detach(&local, &pool, &data, &claimed, None);
    assert!(matches!(running, Err(Error::Attached { .. })), "a guest that runs is asked");
    detach(&local, &pool, &data, &claimed, Some(&guest)).unwrap();
    assert_eq!(qemu.lock().unwrap().changes[2..], ["device_del", "blockdev-del"]);
    assert!(pool.attached().unwrap().is_empty());
    pool.delete(&data).unwrap();
}

/// vmio is ended between any two of its steps: the next command finds only the record, or a node or a device beside.
#[test]
fn what_was_ended_in_the_middle_is_finished_or_undone() {
    let (dir, pool) = pool();
    let (data, local) = (name("data"), Local::new());
    pool.create(&data, 4096).unwrap();
    let (guest, qemu) = guest(&dir.path().join("m"));
    let _served = serving(dir.path());
    for (has_node, has_device) in [(false, false), (true, false), (true, true)] {
        for finishes in [true, false] {
            let claimed = pool.claim(&data, &Holder::of("web1", std::process::id()).unwrap()).unwrap();
            greet(&pool.socket(&claimed).unwrap());
            let has = |is: bool| BTreeSet::from_iter(is.then(|| claimed.id()));
            *qemu.lock().unwrap() = Qemu { nodes: has(has_node), devices: has(has_device), ..Qemu::default() };
            if finishes {
                attach(&local, &pool, &data, &guest, PLAIN).unwrap();
                let qemu = qemu.lock().unwrap();
                assert_eq!((&qemu.nodes, &qemu.devices), (&has(true), &has(true)));
            }
            detach(&local, &pool, &data, &claimed, Some(&guest)).unwrap();
            let qemu = qemu.lock().unwrap();
            assert!(qemu.nodes.is_empty() && qemu.devices.is_empty() && pool.attached().unwrap().is_empty());
        }
    }
}

#[test]
fn what_a_guest_refuses_is_attached_to_nobody() {
    let (dir, pool) = pool();
    let (data, local) = (name("data"), Local::new());
    pool.create(&data, 4096).unwrap();
    let (guest, qemu) = guest(&dir.path().join("m"));
    let _served = serving(dir.path());
    let claimed = pool.claim(&data, &Holder::of("web1", std::process::id()).unwrap()).unwrap();
    greet(&pool.socket(&claimed).unwrap());
    qemu.lock().unwrap().is_full = true;
    let refused = attach(&local, &pool, &data, &guest, PLAIN).unwrap_err();
    assert!(matches!(&refused, Error::Monitor(why) if why.reason == "no slot"), "{refused}");
    assert!(qemu.lock().unwrap().nodes.is_empty() && pool.attached().unwrap().is_empty());
    let stranger = Running { pid: 1, ..guest };
    assert!(matches!(attach(&local, &pool, &data, &stranger, PLAIN), Err(Error::NotItsMonitor { .. })));
}

#[test]
fn a_guest_sees_the_new_size_as_soon_as_its_server_has_it() {
    let (dir, pool) = pool();
    let (data, local) = (name("data"), Local::new());
    pool.create(&data, 4096).unwrap();
    let (guest, qemu) = guest(&dir.path().join("m"));
    let claimed = pool.claim(&data, &Holder::of("web1", std::process::id()).unwrap()).unwrap();
    let grow = |bytes| resize(&local, &pool, &data, &claimed, &guest, bytes);
    assert!(matches!(grow(8192), Err(Error::NotServed { .. })));
    let _served = serving(dir.path());
    greet(&pool.socket(&claimed).unwrap());
    // As after an attachment that was cut off: the guest has no disk that could show a size.
    assert_eq!(grow(8192).unwrap().bytes, 8192);
    assert_eq!(qemu.lock().unwrap().bytes, 0);
    attach(&local, &pool, &data, &guest, PLAIN).unwrap();
    qemu.lock().unwrap().finds_at = 3;
    assert_eq!(grow(12288).unwrap(), Volume { name: data.clone(), bytes: 12288 });
    let told = |qemu: &Qemu| (qemu.requests, qemu.bytes);
    assert_eq!(told(&qemu.lock().unwrap()), (3, 12288));
    assert!(matches!(grow(4096), Err(Error::Smaller { bytes: 12288, .. })));
    assert!(matches!(grow(12289), Err(Error::Size(12289))));
    // As after a command that was ended before it told the guest.
    assert_eq!(grow(12288).unwrap().bytes, 12288);
    assert_eq!(told(&qemu.lock().unwrap()), (4, 12288));
    pool.release(&data, &claimed).unwrap();
    assert!(matches!(grow(16384), Err(Error::Detached(_))));
    assert_eq!(pool.list().unwrap()[0].bytes, 12288);
}

#[test]
fn one_guest_has_a_volume_until_it_has_ended() {
    let (dir, pool) = pool();
    let data = name("data");
    pool.create(&data, 4096).unwrap();
    let first = pool.claim(&data, &Holder::of("web1", std::process::id()).unwrap()).unwrap();
    assert!(first.id().len() <= 31, "{}", first.id());
    let second = Holder::of("web2", std::os::unix::process::parent_id()).unwrap();
    assert!(matches!(pool.claim(&data, &second), Err(Error::Attached { guest, .. }) if guest == "web1"));
    pool.release(&data, &first).unwrap();
    // A process of the same number that began at another time, and one of another boot of this machine.
    let machine = json!({"boot_id": "earlier", "machine_id": "m"});
    let ended = pool.claim(&data, &other(json!({"start_ticks": 1}))).unwrap();
    assert_eq!(ended.holder.state(), State::Ended);
    let second = pool.claim(&data, &second).unwrap();
    assert_ne!(second.export, ended.export, "no server knows the export of the guest that had it");
    assert!(matches!(pool.release(&data, &ended), Err(Error::Attached { .. })));
    pool.release(&data, &second).unwrap();
    let afar = pool.claim(&data, &other(machine)).unwrap();
    assert_eq!(afar.holder.state(), State::Elsewhere);
    assert!(matches!(pool.claim(&data, &second.holder), Err(Error::Elsewhere { .. })));
    assert!(matches!(pool.delete(&data), Err(Error::Elsewhere { .. })));
    assert!(dir.path().join("data.attached").exists());
    assert!(matches!(pool.claim(&name("none"), &second.holder), Err(Error::Missing(_))));
    assert!(matches!(Holder::of("gone", u32::MAX), Err(Error::Ended { .. })));
}

#[test]
fn a_guest_cannot_spoil_a_record_by_its_name() {
    let (_dir, pool) = pool();
    let data = name("data");
    pool.create(&data, 4096).unwrap();
    let long = format!("web\n{}", "x".repeat(1 << 20));
    let claimed = pool.claim(&data, &Holder::of(&long, std::process::id()).unwrap()).unwrap();
    assert_eq!(claimed.holder.guest.chars().count(), 200);
    assert!(!claimed.holder.guest.contains('\n'));
    assert_eq!(pool.attached().unwrap(), [(data, claimed)]);
}

#[test]
fn a_long_name_is_no_serial_number_of_a_virtio_disk() {
    let (_dir, pool) = pool();
    let (short, long) = (name("db-1"), name(&"d".repeat(21)));
    for volume in [&short, &long] {
        pool.create(volume, 4096).unwrap();
        let claimed = pool.claim(volume, &other(json!({}))).unwrap();
        let wanted = if *volume == short { "db-1".to_owned() } else { claimed.export.clone() };
        assert_eq!(serial(volume, &claimed), wanted);
    }
}
