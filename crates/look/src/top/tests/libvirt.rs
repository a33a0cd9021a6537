//! Disk figures by libvirt.

use std::sync::{Arc, Mutex};

use vmio_node::fake::{fails, says};

use super::*;

fn domstats(n: u64) -> String {
    format!(
        "Domain: 'a'\n  block.count=1\n  block.0.name=vda\n  block.0.path=/images/a.qcow2\n  block.0.rd.reqs={n}\n  \
         block.0.rd.bytes={}\n  block.0.rd.times={}\n  block.0.wr.reqs=0\n  block.0.wr.bytes=0\n  block.0.wr.times=0\n\n",
        n * 4096,
        n * 1_000_000
    )
}

/// A machine whose libvirt knows both guests; `a` has a disk of its own at `source`. Returns the commands that libvirt
/// received.
fn with_libvirt(source: &str) -> (Fake, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let drive = format!("-drive\0file={source},format=raw,if=virtio");
    let fake = machine().file("/proc/700/comm", "libvirtd\n").installed("virsh").command(move |cmd| {
        let command = String::from_utf8(cmd.stdin.clone()).unwrap();
        let mut asked = asked.lock().unwrap();
        let before = asked.iter().filter(|c: &&String| c.starts_with("domstats")).count() as u64;
        asked.push(command.trim().to_owned());
        if command.starts_with("list") {
            return Some(says(format!("{}\n{}\n", uuid("a"), uuid("b"))));
        }
        Some(says(domstats(500 * before)))
    });
    for (name, pid, more) in [("a", 100, drive.as_str()), ("b", 200, "")] {
        let line = TAP.replace("NAME", name).replace("UUID", &uuid(name));
        fake.set(format!("/proc/{pid}/cmdline"), format!("qemu-system-x86_64\0-name\0{line}\0{more}\0"));
        fake.set(
            format!("/proc/{pid}/mountinfo"),
            "1 1 8:1 / / rw - ext4 /dev/vda rw\n2 1 0:40 / /nfs rw - nfs4 srv:/vms rw\n",
        );
    }
    (fake.symlink("/proc/100/fd/9", source).symlink("/proc/200/fd/9", "/dev/null"), seen)
}

#[test]
fn libvirt_is_asked_now_and_then() {
    let (fake, asked) = with_libvirt("/images/a.raw");
    let mut sampler = Sampler::new(&fake, false, untraced());
    let mut last = None;
    for n in 0..7 {
        work(&fake, n);
        last = sampler.tick();
    }
    let interval = last.unwrap();
    let domstats = format!("domstats --block --nowait {} {}", uuid("a"), uuid("b"));
    let twice = ["list --uuid", &domstats, "list --uuid", &domstats];
    assert_eq!(*asked.lock().unwrap(), twice, "not at every look");
    let a = named(&interval, "a");
    assert_eq!(a.disk_source, DiskSource::Libvirt);
    // 500 requests in five seconds.
    assert_eq!((a.disks[0].reads.requests, a.disks[0].reads.bytes), (Some(100), 409_600));
    assert!((a.disks[0].reads.device_seconds.unwrap() - 0.1).abs() < 1e-9);
    assert_eq!(named(&interval, "b").disk_source, DiskSource::None);
}

#[test]
fn libvirt_is_not_asked_about_what_tracing_sees_nor_about_files_on_a_server() {
    let asked = |source: &str, traced: bool| {
        let (fake, asked) = with_libvirt(source);
        let flows = if traced { scripted(vec![vec![]; 9]) } else { untraced() };
        Sampler::new(&fake, false, flows).tick();
        let asked = asked.lock().unwrap();
        asked.last().is_some_and(|c| c.contains(&uuid("a")))
    };
    assert!(asked("/images/a.raw", false) && !asked("/images/a.raw", true));
    assert!(!asked("/nfs/a.raw", false) && !asked("/nfs/a.raw", true));
    assert!(asked("rbd:vms/a", false) && asked("rbd:vms/a", true));
    assert!(asked("/dev/zvol/tank/a", true));
}

#[test]
fn a_libvirt_that_refuses_is_left_alone_for_a_while() {
    let fake = machine()
        .file("/proc/700/comm", "libvirtd\n")
        .file("/proc/100/mountinfo", "1 1 8:1 / / rw - ext4 /dev/vda rw\n")
        .symlink("/proc/100/fd/9", "/images/a.raw")
        .installed("virsh")
        .program("virsh", fails(1, "error: Permission denied"));
    let mut sampler = Sampler::new(&fake, false, untraced());
    for n in 0..9 {
        work(&fake, n);
        sampler.tick();
    }
    assert_eq!(fake.ran().len(), 1);
}

#[test]
fn guests_of_one_name_are_told_apart_and_libvirts_figures_are_those_of_its_own() {
    let (fake, _) = with_libvirt("/images/a.raw");
    // Another guest with the name of libvirt's, started by hand.
    let fake =
        fake.file("/proc/300/comm", "qemu-system-x86\n").file("/proc/300/cmdline", "qemu-system-x86_64\0-name\0a\0");
    fake.set("/proc/300/task/300/schedstat", "0 0 1\n");
    let mut sampler = Sampler::new(&fake, false, untraced());
    let mut last = None;
    for n in 0..7 {
        work(&fake, n);
        last = sampler.tick();
    }
    let interval = last.unwrap();
    assert_eq!(named(&interval, "a (pid 100)").disk_source, DiskSource::Libvirt);
    assert_eq!(named(&interval, "a (pid 300)").disk_source, DiskSource::None);
}
