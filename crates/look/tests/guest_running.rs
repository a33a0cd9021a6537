//! Running QEMU processes (without an operating system) are read from /proc and /sys, with taps in the network
//! namespace of the test. Run with `cargo test -- --ignored`.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::reads;
use crate::stand_in::StandIn;
use vmio_look::HostView;
use vmio_look::kinds::find;
use vmio_look::scan::scan;
use vmio_model::facts::Guest;
use vmio_model::result::Accel;
use vmio_node::Local;
use vmio_testbed::{poll_until, scratch};

/// A process that is killed when dropped.
struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts QEMU, stopped before its first instruction, in a mount namespace with a sysfs of the test's network
/// namespace, and waits for its threads.
fn start(dir: &Path, name: &str, prepare: &str, args: &[&str]) -> Qemu {
    let pidfile = dir.join(format!("{name}.pid"));
    let script = format!("mount -t sysfs sysfs /sys && {prepare} exec \"$@\"");
    let child = Command::new("unshare")
        .args(["--mount", "--", "sh", "-c", &script, "sh", "qemu-system-x86_64"])
        .args(["-accel", "tcg,thread=multi", "-display", "none", "-S", "-nodefaults", "-m", "64"])
        .args(["-name", &format!("guest={name},debug-threads=on"), "-pidfile", &pidfile.display().to_string()])
        .args(args)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut qemu = Qemu(child);
    let named =
        |tid: &std::fs::DirEntry| std::fs::read_to_string(tid.path().join("comm")).is_ok_and(|c| c.starts_with("CPU "));
    let task = format!("/proc/{}/task", qemu.0.id());
    let vcpus = args.iter().skip_while(|a| **a != "-smp").nth(1).map_or(1, |n| n.parse().unwrap());
    poll_until(&format!("QEMU of {name} comes up"), || {
        assert!(qemu.0.try_wait().unwrap().is_none(), "QEMU of {name} did not start");
        pidfile.exists() && std::fs::read_dir(&task).unwrap().flatten().filter(named).count() == vcpus
    });
    qemu
}

fn of(guests: &[Guest], pid: u32) -> &Guest {
    guests.iter().find(|g| g.pid == Some(pid)).unwrap()
}

#[test]
#[ignore = "guest: needs QEMU"]
fn real_guests_are_read_as_they_were_started() {
    let dir = scratch();
    let image = |name: &str| {
        let path = dir.path().join(name);
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        path.display().to_string()
    };
    let (a, b, c, d) = (image("a.raw"), image("b.raw"), image("c.raw"), image("d.raw"));
    let tap = "ip link add br7 type bridge && ip link set br7 mtu 1400 && ip tuntap add tap7 mode tap && \
               ip link set tap7 mtu 1300 master br7 &&";

    let tuned = start(
        dir.path(),
        "tuned",
        tap,
        &[
            "-machine",
            "q35",
            "-smp",
            "2",
            "-object",
            "iothread,id=iothread-of-vda",
            "-blockdev",
            &format!(
                r#"{{"driver":"raw","node-name":"n0","cache":{{"direct":true}},"discard":"unmap","file":{{"driver":"file","filename":"{a}","aio":"native","cache":{{"direct":true}}}}}}"#
            ),
            "-device",
            r#"{"driver":"virtio-blk-pci","drive":"n0","id":"vda","iothread":"iothread-of-vda","num-queues":2}"#,
            "-netdev",
            "tap,id=h0,ifname=tap7,script=no,downscript=no,sndbuf=20000",
            "-device",
            "virtio-net-pci,netdev=h0,id=net0,mac=52:54:00:00:00:01,host_tso4=off",
        ],
    );
    // A manager opens the tap and passes its descriptor; here the kernel chooses the name.
    let plain = start(
        dir.path(),
        "plain",
        "",
        &[
            "-machine",
            "pc-i440fx-7.2",
            "-drive",
            &format!("file={b},format=raw"),
            "-drive",
            &format!("file={c},if=none,id=d1,format=raw,cache=writethrough"),
            "-device",
            "lsi53c895a,id=s0",
            "-device",
            "scsi-hd,bus=s0.0,drive=d1",
            "-drive",
            &format!("file={d},if=virtio,snapshot=on,format=raw"),
            "-netdev",
            "tap,id=h0,script=no,downscript=no",
            "-device",
            "e1000,netdev=h0",
            "-nic",
            "user,model=virtio-net-pci",
        ],
    );

    let node = Local::new();
    let (tuned_pid, plain_pid) = (tuned.0.id(), plain.0.id());
    let look = HostView::new(&node);
    let found = scan(&look);
    let own = of(&found.guests, tuned_pid);
    assert_eq!((own.name.as_str(), own.kind.as_str()), ("tuned", "qemu"));
    let disk = &own.disks[0];
    assert_eq!(disk.subject.to_string(), "guest tuned, disk vda");
    assert_eq!((disk.driver.as_deref(), disk.cache.as_deref()), (Some("virtio-blk"), Some("none")));
    assert_eq!((disk.aio.as_deref(), *disk.iothread), (Some("native"), Some(true)));
    assert_eq!((*disk.details.discard, *disk.details.queues), (Some(true), Some(2)));
    assert_eq!((disk.place.source.as_deref(), disk.place.block_device), (Some(a.as_str()), Some(false)));
    let nic = &own.nics[0];
    assert_eq!((nic.model.as_deref(), nic.backend.as_deref()), (Some("virtio-net"), Some("tap")));
    assert_eq!((nic.interface.as_deref(), nic.bridge.as_deref()), (Some("tap7"), Some("br7")), "{:?}", own.unread);
    assert_eq!((*nic.mtu_bytes, *nic.bridge_mtu_bytes, *nic.send_buffer_bytes), (Some(1300), Some(1400), Some(20000)));
    assert_eq!((*nic.vhost, &nic.offloads_off[..]), (Some(false), &["host_tso4".to_owned()][..]));
    let processors = own.processors.as_ref().unwrap();
    assert_eq!((*processors.vcpus, *processors.accel), (Some(2), Some(Accel::Tcg)));
    assert_eq!(processors.memory_bytes, Some(64 << 20));
    let threads = |role: &str| processors.threads.iter().filter(|t| t.role == role).collect::<Vec<_>>();
    assert_eq!((threads("vcpu").len(), threads("main").len()), (2, 1));
    assert!(!threads("iothread").is_empty(), "{:?}\n{:?}", processors.threads, own.unread);
    assert_eq!(threads("iothread")[0].name, "iothread-of-vda"); // the kernel has only 12 bytes of it
    assert!(threads("vcpu").iter().all(|t| !t.cpus.is_empty() && t.tid > 0));
    assert!(processors.memory_by_node.values().sum::<u64>() > 1 << 20);

    let own = of(&found.guests, plain_pid);
    let disks: Vec<_> = own
        .disks
        .iter()
        .map(|d| (d.driver.as_deref().unwrap(), d.cache.as_deref().unwrap(), d.details.format.as_deref().unwrap()))
        .collect();
    assert_eq!(
        disks,
        [("ide", "writeback", "raw"), ("virtio-blk", "unsafe", "raw"), ("lsi53c895a", "writethrough", "raw")]
    );
    assert_eq!(own.disks[1].details.queues, Some(1));
    let nics: Vec<_> = own.nics.iter().map(|n| (n.model.as_deref().unwrap(), n.backend.as_deref().unwrap())).collect();
    assert_eq!(nics, [("e1000", "tap"), ("virtio-net", "user")]);
    assert_eq!(own.nics[0].interface.as_deref(), Some("tap0"), "{:?}", own.unread);
    drop((tuned, plain));
    let gone = scan(&HostView::new(&node));
    assert!(gone.guests.iter().all(|g| ![Some(tuned_pid), Some(plain_pid)].contains(&g.pid)));
    let _ = Command::new("ip").args(["link", "del", "br7"]).status();
    let _ = Command::new("ip").args(["link", "del", "tap7"]).status();
}

/// Stand-ins: waiting shells with QEMU's command line.
#[test]
#[ignore = "guest: needs QEMU"]
#[allow(clippy::print_stdout)]
fn two_hundred_guests_are_read_with_what_each_of_fifty_takes() {
    const GUESTS: usize = 200;
    let dir = scratch();
    let line = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/cmdlines/libvirt-9-q35.txt");
    let line = std::fs::read_to_string(line).unwrap();
    let one = dir.path().join("one.qcow2").display().to_string();
    assert!(Command::new("qemu-img").args(["create", "-q", "-f", "qcow2", &one, "1M"]).status().unwrap().success());
    let stand_ins = |count: usize| -> Vec<StandIn> {
        let start = |i| {
            let image = dir.path().join(format!("{i}.qcow2")).display().to_string();
            std::fs::copy(&one, &image).unwrap();
            let own = line
                .replace("/var/lib/libvirt/images/web1.qcow2", &image)
                .replace("guest=web1", &format!("guest=g{i}"));
            StandIn::holding("/usr/bin/qemu-system-x86_64", &[Path::new(&image)], own.lines().skip(1))
        };
        (0..count).map(start).collect()
    };
    let node = Local::new();
    let from_proc = || reads::during(|| find("qemu").unwrap().running(&HostView::new(&node)), |seen| seen.guests.len());
    let all = || reads::during(|| scan(&HostView::new(&node)), |seen| seen.guests.len());
    let few = stand_ins(GUESTS / 4);
    let (few_reads, few_scanned) = (from_proc().1, all().1);
    drop(few);
    let guests = stand_ins(GUESTS);
    let (start, before) = (Instant::now(), cpu_seconds());
    let (running, reads) = from_proc();
    let reading = (start.elapsed(), cpu_seconds() - before);
    let before = cpu_seconds();
    let (found, scanned) = all();
    let whole = (found.seconds.unwrap(), cpu_seconds() - before);
    let count = HostView::new(&node).processes().len();
    println!("{count} processes; {GUESTS} guests from /proc {reading:?}, whole scan {whole:?}: wall, CPU seconds");
    let ours = |g: &&Guest| guests.iter().any(|q| Some(q.0.id()) == g.pid);
    assert_eq!(running.guests.iter().filter(ours).count(), GUESTS);
    assert_eq!(found.guests.iter().filter(ours).count(), GUESTS);
    let disk = &found.guests.iter().find(ours).unwrap().disks[0];
    assert_eq!((disk.details.format.as_deref(), *disk.details.virtual_bytes), (Some("qcow2"), Some(1 << 20)));
    reads::are_the_same_for_each(few_reads, reads);
    reads::are_the_same_for_each(few_scanned, scanned);
}

/// CPU time of this process and of its children (proc_pid_stat(5), fields 14 to 17).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(4);
    let ticks: u64 = fields.map(|f| f.parse::<u64>().unwrap()).sum();
    ticks as f64 / 100.0 // USER_HZ, the same on every machine that vmio builds for
}
