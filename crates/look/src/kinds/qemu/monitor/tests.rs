#![allow(clippy::unwrap_used)]
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};
use vmio_model::facts::Disk;
use vmio_model::result::Accel;
use vmio_node::Fake;

use super::*;

mod memory;

const STARTED: &str = include_str!("../../../../tests/fixtures/qmp/qemu-7.2.json");
const CHANGED: &str = include_str!("../../../../tests/fixtures/qmp/qemu-7.2-changed.json");
const TEN: &str = include_str!("../../../../tests/fixtures/qmp/qemu-10-by-qapi.json");

const PATH: &str = "/run/web1.qmp";
const TABLE: &str = "Num               RefCount Protocol Flags    Type St Inode Path\n\
    0000000061a9d172: 00000002 00000000 00010000 0001 01 77 /run/web1.qmp\n\
    0000000061a9d173: 00000003 00000000 00000000 0001 03 78 /run/other\n\
    0000000061a9d174: 00000003 00000000 00000000 0001 03 79\n";

const LOCAL: &str = "22 1 254:1 / / rw - ext4 /dev/vda1 rw\n";

/// The command line with which the recorded guest was started.
const ARGS: &[&str] = &[
    "qemu-system-x86_64",
    "-name",
    "web1",
    "-machine",
    "q35",
    "-smp",
    "2",
    "-object",
    "iothread,id=io0",
    "-blockdev",
    r#"{"driver":"qcow2","node-name":"n0","cache":{"direct":true},"file":{"driver":"file","filename":"/images/web.qcow2","aio":"native","cache":{"direct":true}}}"#,
    "-device",
    "virtio-blk-pci,drive=n0,id=vd0,iothread=io0",
    "-drive",
    "file=/images/data.raw,format=raw,if=none,id=d1,cache=writeback,iops=1000,bps_wr=1048576",
    "-device",
    "virtio-scsi-pci,id=sc0",
    "-device",
    "scsi-hd,drive=d1,id=sd1,bus=sc0.0",
    "-drive",
    "file=/images/scratch.raw,format=raw,if=virtio,cache=unsafe",
    "-device",
    "ide-cd,id=cd0",
    "-qmp",
    "unix:/run/web1.qmp,server=on,wait=off",
];

/// A machine that runs this QEMU; `table` is its socket table.
fn host(args: &[&str], table: &str) -> Fake {
    Fake::new("fake")
        .file("/proc/8/comm", "qemu-system-x86\n")
        .file("/proc/8/cmdline", args.join("\0") + "\0")
        .file("/proc/8/net/unix", table)
        .file("/proc/8/task/8/comm", "qemu-system-x86\n")
        .symlink("/proc/8/fd/3", "socket:[77]")
        .symlink("/proc/8/fd/9", "/images/base.qcow2")
        .file("/proc/8/mountinfo", LOCAL)
}

/// Plays QEMU from a recording: recorded replies, and its own error for any other command.
fn play(recording: &'static str) -> impl Fn(UnixStream) + Send + Sync + 'static {
    let recording: Value = serde_json::from_str(recording).unwrap();
    move |stream| {
        let mut stream = BufReader::new(stream);
        let say = |stream: &mut BufReader<UnixStream>, value: &Value| {
            // The client may have disconnected.
            stream.get_mut().write_all(format!("{value}\n").as_bytes()).is_ok()
        };
        say(&mut stream, &recording["greeting"]);
        let mut line = String::new();
        while stream.read_line(&mut line).is_ok_and(|n| n > 0) {
            let asked: Value = serde_json::from_str(&line).unwrap();
            line.clear();
            let same = |a: &&Value| a["execute"] == asked["execute"] && a["arguments"] == asked["arguments"];
            let found = recording["answers"].as_array().unwrap().iter().find(same);
            let mut answer = match found {
                Some(answer) => answer.clone(),
                None if asked["execute"] == "qmp_capabilities" => json!({"return": {}}),
                None if asked["execute"] == "qom-get" => {
                    json!({"error": {"class": "GenericError", "desc": "Property not found"}})
                }
                // Recorded before it was asked for.
                None if asked["execute"] == "query-blockstats" => {
                    json!({"error": {"class": "GenericError", "desc": "not in the recording"}})
                }
                None => panic!("{asked} is not in the recording"),
            };
            answer.as_object_mut().unwrap().retain(|key, _| key == "return" || key == "error");
            answer["id"] = asked["id"].clone();
            if !say(&mut stream, &answer) {
                return;
            }
        }
    }
}

/// The guest by its command line and its monitor, without a time limit.
fn asked(fake: &Fake) -> Guest {
    asked_within(Duration::from_secs(60), fake)
}

fn asked_within(limit: Duration, fake: &Fake) -> Guest {
    let mut look = HostView::new(fake);
    look.monitor_limit = limit;
    let mut guest = super::super::running(&look).guests.remove(0);
    ask(&look, &mut guest);
    guest
}

fn disk<'a>(guest: &'a Guest, id: &str) -> &'a Disk {
    guest.disks.iter().find(|d| d.place.device_id.as_deref() == Some(id)).unwrap()
}

fn refusal(guest: &Guest) -> &Unread {
    guest.unread.iter().find(|u| u.what.starts_with("monitor ")).unwrap()
}

#[test]
fn a_guest_as_it_was_started_is_the_same_by_its_monitor() {
    let fake = host(ARGS, TABLE).socket("/proc/8/root/run/web1.qmp", play(STARTED));
    let guest = asked(&fake);
    assert!(!guest.unread.iter().any(|u| u.what.starts_with("monitor")), "{:?}", guest.unread);
    assert_eq!(guest.version.as_deref(), Some("QEMU 7.2.22"));
    assert_eq!(guest.disks.len(), 3, "{:?}", guest.disks);
    let seen: Vec<_> = ["vd0", "sd1", "virtio0"]
        .map(|id| disk(&guest, id))
        .map(|d| (d.driver.as_deref().unwrap(), d.cache.as_deref().unwrap(), d.iothread.unwrap(), *d.details.queues))
        .into();
    let expected = [
        ("virtio-blk", "none", true, Some(2)),
        ("virtio-scsi", "writeback", false, Some(2)),
        ("virtio-blk", "unsafe", false, Some(2)),
    ];
    assert_eq!(seen, expected);
    let web = disk(&guest, "vd0");
    assert_eq!((web.details.format.as_deref(), *web.details.backing_files), (Some("qcow2"), Some(1)));
    assert_eq!((*web.details.virtual_bytes, *web.details.cluster_bytes), (Some(1 << 30), Some(65536)));
    assert_eq!(web.details.iothread_name.as_deref(), Some("io0"));
    assert_eq!(web.read()["cache"], "monitor /run/web1.qmp, query-block");
    let limits = &disk(&guest, "sd1").details.limits;
    assert_eq!(limits[..], ["1000 IOPS by QEMU's throttle", "1048576 bytes/s of writes by QEMU's throttle"]);
    let own = guest.processors.as_ref().unwrap();
    assert_eq!((*own.accel, *own.vcpus), (Some(Accel::Tcg), Some(2)));
    let roles: Vec<&str> = own.threads.iter().filter(|t| t.role != "main").map(|t| t.role.as_str()).collect();
    assert_eq!(roles, ["vcpu", "vcpu", "iothread"]);
    assert!(guest.monitor_held_seconds.is_some(), "{guest:?}");
    assert!(HostView::new(&fake).monitor_limit < Duration::from_millis(50), "its owner would wait");
}

#[test]
fn what_was_changed_since_the_start_is_in_force() {
    let mut args = ARGS.to_vec();
    let gone =
        ["-drive", "file=/images/gone.raw,format=raw,if=none,id=d9", "-device", "virtio-blk-pci,drive=d9,id=gone0"];
    args.extend(gone);
    let fake = host(&args, TABLE).socket("/proc/8/root/run/web1.qmp", play(CHANGED));
    let guest = asked(&fake);
    assert!(guest.disks.iter().all(|d| d.place.device_id.as_deref() != Some("gone0")), "it was unplugged");
    let web = disk(&guest, "vd0");
    // The snapshot's cache mode is unknown; the device is the same.
    assert_eq!((web.aio.as_deref(), *web.details.discard, web.driver.as_deref()), (None, None, Some("virtio-blk")));
    assert_eq!(disk(&guest, "sd1").aio.as_deref(), Some("threads"));
    assert_eq!(web.place.source.as_deref(), Some("/images/snap.qcow2"));
    assert_eq!((*web.details.backing_files, web.details.storage.as_deref()), (Some(2), Some("file")));
    let hot = disk(&guest, "hot0");
    assert_eq!((hot.driver.as_deref(), hot.details.format.as_deref()), (Some("virtio-blk"), Some("raw")));
    assert_eq!((hot.place.source.as_deref(), *hot.details.backing_files), (Some("/images/hot.raw"), Some(0)));
    assert_eq!(hot.details.limits[..], ["500 IOPS by QEMU's throttle"]);
    // The empty drive is no disk.
    assert_eq!(guest.disks.len(), 4);
    assert_eq!(disk(&guest, "sd1").details.limits[..], ["250 IOPS by QEMU's throttle"]);
}

#[test]
fn queues_of_qemu_10_are_spread_over_io_threads() {
    let fake = host(ARGS, TABLE).socket("/proc/8/root/run/web1.qmp", play(TEN));
    let guest = asked(&fake);
    let web = disk(&guest, "vd0");
    assert_eq!((*web.iothread, *web.details.mapped_iothreads), (Some(true), Some(2)));
    assert_eq!(guest.processors.unwrap().accel, Some(Accel::Kvm));
    assert_eq!(guest.version.as_deref(), Some("QEMU 10.1.0"));
}

/// Plays the recording with a changed reply.
fn play_with(change: impl Fn(&mut Value)) -> impl Fn(UnixStream) + Send + Sync + 'static {
    let mut recording: Value = serde_json::from_str(STARTED).unwrap();
    recording["answers"].as_array_mut().unwrap().iter_mut().for_each(change);
    play(recording.to_string().leak())
}

fn cache_by(change: impl Fn(&mut Value)) -> [Option<String>; 3] {
    let guest = asked(&host(ARGS, TABLE).socket("/proc/8/root/run/web1.qmp", play_with(change)));
    ["vd0", "sd1", "virtio0"].map(|id| disk(&guest, id).cache.value().clone())
}

#[test]
fn a_write_cache_that_the_guest_turned_off_is_none_of_the_hosts_settings() {
    let off = cache_by(|answer| {
        if answer["execute"] == "query-block" {
            answer["return"].as_array_mut().unwrap().iter_mut().for_each(|block| {
                if let Some(back) = block.pointer_mut("/inserted/cache/writeback") {
                    *back = json!(false);
                }
            });
        }
    });
    assert_eq!(off, ["none", "writeback", "unsafe"].map(|mode| Some(mode.to_owned())));
}

#[test]
fn how_storage_was_opened_is_told_by_its_own_node_alone() {
    // The node above has no cache.direct, and the nodes below were not reported in time.
    let late = cache_by(|answer| {
        if answer["execute"] == "query-named-block-nodes" {
            answer.as_object_mut().unwrap().remove("return");
            answer["error"] = json!({"class": "GenericError", "desc": "late"});
        } else if answer["execute"] == "query-block" {
            answer["return"][2]["inserted"]["cache"]["direct"] = json!(false);
        }
    });
    assert_eq!(late, ["none", "writeback", "unsafe"].map(|mode| Some(mode.to_owned())));
}

#[test]
fn what_others_use_or_wait_for_is_not_touched() {
    let touched = |_| panic!("connected");
    let line = |flags: &str, state: &str, inode: u32| {
        format!("0000000061a9d175: 00000003 00000000 {flags} 0001 {state} {inode} {PATH}\n")
    };
    let swap = |from: &str, to: &str| -> Vec<String> { ARGS.iter().map(|a| a.replace(from, to)).collect() };
    let same: Vec<String> = ARGS.iter().map(|a| (*a).to_owned()).collect();
    let mut passed = same.clone();
    passed.extend(["-add-fd".into(), "fd=20,set=1".into()]);
    let cases: [(&str, Vec<String>, String); 6] = [
        ("it is in use", same.clone(), TABLE.to_owned() + &line("00000000", "03", 80)),
        ("it is in use", same.clone(), TABLE.to_owned() + &line("00000000", "02", 0)),
        ("several sockets", same.clone(), TABLE.to_owned() + &line("00010000", "01", 81)),
        ("no process listens", same.clone(), String::new()),
        ("wait=on", swap(",server=on,wait=off", ",server=on"), TABLE.to_owned()),
        ("given descriptors", passed, TABLE.to_owned()),
    ];
    for (word, args, table) in cases {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let fake = host(&args, &table).socket("/proc/8/root/run/web1.qmp", touched);
        let guest = asked(&fake);
        let unread = refusal(&guest);
        assert!(unread.why.contains(word) && unread.what == "monitor /run/web1.qmp", "{word}: {unread:?}");
        assert_eq!(guest.monitor_held_seconds, None, "{word}");
        assert_eq!(disk(&guest, "vd0").cache.as_deref(), Some("none"), "{word}");
    }
    // The socket at that path is another process's.
    let fake = host(ARGS, &TABLE.replace(" 77 ", " 70 ")).socket("/proc/8/root/run/web1.qmp", touched);
    assert!(refusal(&asked(&fake)).why.contains("another process"));
    // A guest that waited for a connection and runs now: it has vCPUs.
    let args: Vec<String> = swap(",wait=off", "");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let fake = host(&args, TABLE).file("/proc/8/task/12/comm", "CPU 0/TCG\n");
    let guest = asked(&fake.socket("/proc/8/root/run/web1.qmp", play(STARTED)));
    assert!(guest.monitor_held_seconds.is_some(), "{:?}", guest.unread);
}

#[test]
fn a_guest_with_a_file_on_a_server_is_not_asked() {
    let touched = |_| panic!("connected");
    let mounted = format!("{LOCAL}23 22 0:50 / /images rw - nfs4 filer:/vm rw\n");
    let fake = host(ARGS, TABLE).file("/proc/8/mountinfo", mounted).socket("/proc/8/root/run/web1.qmp", touched);
    let guest = asked(&fake);
    assert!(refusal(&guest).why.contains("/images/base.qcow2 is on NFS server filer:/vm"), "{:?}", refusal(&guest));
    // A mount table that is too long to be read completely may hold a network mount.
    let mounted = LOCAL.repeat((4 << 20) / LOCAL.len() + 1) + "23 22 0:50 / /images rw - nfs4 filer:/vm rw\n";
    let fake = host(ARGS, TABLE).file("/proc/8/mountinfo", mounted).socket("/proc/8/root/run/web1.qmp", touched);
    let guest = asked(&fake);
    assert!(refusal(&guest).why.contains("more mounts or open files"), "{:?}", refusal(&guest));
    let mut args = ARGS.to_vec();
    args.extend(["-drive", "file=nfs://filer/vm/b.raw,format=raw,if=virtio"]);
    let guest = asked(&host(&args, TABLE).socket("/proc/8/root/run/web1.qmp", touched));
    assert!(refusal(&guest).why.contains("by nfs"), "{:?}", refusal(&guest));
}

#[test]
fn monitors_are_found_in_each_way_to_write_them() {
    let found = |args: &[&str]| {
        let args: Vec<String> = ["qemu"].iter().chain(args).map(|a| (*a).to_owned()).collect();
        monitors(&CommandLine::parse(&args))
            .into_iter()
            .map(|m| (m.path.unwrap_or("-".into()), m.waits))
            .collect::<Vec<_>>()
    };
    let at = |path: &str, waits: bool| vec![(path.to_owned(), waits)];
    assert_eq!(found(&["-qmp", "unix:/a,server,nowait"]), at("/a", false));
    assert_eq!(found(&["-qmp-pretty", "unix:/a,server=on"]), at("/a", true));
    let proxmox = "socket,id=qmp,path=/var/run/qemu-server/101.qmp,server=on,wait=off";
    let event = "socket,id=qmp-event,path=/var/run/qmeventd.sock,reconnect=5";
    let both = [
        "-chardev",
        proxmox,
        "-mon",
        "chardev=qmp,mode=control",
        "-chardev",
        event,
        "-mon",
        "chardev=qmp-event,mode=control",
    ];
    assert_eq!(found(&both), at("/var/run/qemu-server/101.qmp", false));
    let libvirt = [
        "-chardev",
        "socket,id=charmonitor,fd=22,server=on,wait=off",
        "-mon",
        "chardev=charmonitor,id=monitor,mode=control",
    ];
    assert_eq!(found(&libvirt), at("-", false));
    let json =
        r#"{"id":"m","backend":{"type":"socket","data":{"addr":{"type":"unix","data":{"path":"/a"}},"wait":true}}}"#;
    assert_eq!(found(&["-chardev", json, "-mon", "chardev=m,mode=control"]), at("/a", true));
    // HMP, a client, a terminal, TCP: not usable.
    for none in [
        vec!["-monitor", "unix:/a,server,nowait"],
        vec!["-chardev", "socket,id=m,path=/a,server=on", "-mon", "chardev=m,mode=readline"],
        vec!["-qmp", "unix:/a"],
        vec!["-qmp", "stdio"],
        vec!["-qmp", "tcp:localhost:4444,server=on,wait=off"],
    ] {
        assert_eq!(found(&none), [], "{none:?}");
    }
    let mut args = ARGS.to_vec();
    args.truncate(args.len() - 2);
    args.extend(libvirt);
    let guest = asked(&host(&args, TABLE));
    assert_eq!(
        (refusal(&guest).why.as_str(), &*refusal(&guest).mend),
        ("libvirt uses the monitor", "--monitor queries it through libvirt")
    );
}

#[test]
fn a_monitor_that_is_silent_or_mad_or_dies_leaves_the_command_line() {
    let dies = |stream: UnixStream| {
        // It greets, reads the commands and disconnects in the middle of its first reply.
        let mut stream = BufReader::new(stream);
        let greeting = serde_json::from_str::<Value>(STARTED).unwrap()["greeting"].clone();
        stream.get_mut().write_all(format!("{greeting}\n").as_bytes()).unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        stream.get_mut().write_all(b"{\"return\": {}, \"id\": 1}\n").unwrap();
        for _ in 0..5 {
            stream.read_line(&mut line).unwrap();
        }
        stream.get_mut().write_all(b"{\"return\": [{").unwrap();
    };
    // Until the client gives up.
    let silent = |mut stream: UnixStream| drop(stream.read_to_end(&mut Vec::new()));
    let mad = |mut stream: UnixStream| drop(stream.write_all(b"HELLO\n"));
    type Play = Box<dyn Fn(UnixStream) + Send + Sync>;
    let (short, long) = (Duration::from_millis(30), Duration::from_secs(60));
    let cases: [(&str, Play, Duration); 3] = [
        ("closed the monitor", Box::new(dies), long),
        ("no answer", Box::new(silent), short),
        ("no JSON", Box::new(mad), long),
    ];
    for (word, play, limit) in cases {
        let guest = asked_within(limit, &host(ARGS, TABLE).socket("/proc/8/root/run/web1.qmp", play));
        let unread = refusal(&guest);
        assert!(unread.why.contains(word), "{word}: {unread:?}");
        assert_eq!(disk(&guest, "vd0").cache.as_deref(), Some("none"), "{word}");
        // It is not occupied for longer than allowed.
        assert!(guest.monitor_held_seconds.unwrap() < 50.0, "{word}: {guest:?}");
    }
}
