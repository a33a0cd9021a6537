//! Guests of Incus, whose devices are on no command line.

use vmio_model::facts::Unread;
use vmio_node::FileStat;

use super::*;

const CONF: &str = include_str!("../../../../tests/fixtures/incus/qemu.conf");
const LOG: &str = include_str!("../../../../tests/fixtures/incus/qemu.qmp.log");
const UNPLUGGED: &str = include_str!("../../../../tests/fixtures/incus/unplugged.log");
const DIRECTORY: &str = "/run/incus/shop_web1";
const LOG_FILE: &str = "/var/log/incus/shop_web1/qemu.qmp.log";

/// The instance with this number in its file and this log.
fn instance(pid: &str, log: &str) -> Fake {
    host(&args("incus"))
        .file(format!("{DIRECTORY}/qemu.conf"), CONF)
        .file(format!("{DIRECTORY}/qemu.pid"), pid)
        .file(LOG_FILE, log)
}

fn told<'a>(guest: &'a Guest, what: &str) -> Vec<&'a Unread> {
    guest.unread.iter().filter(|unread| unread.what.contains(what)).collect()
}

#[test]
fn options_of_the_file_and_devices_of_the_log() {
    let own = read(&instance("812\n", LOG));
    assert_eq!(
        disks(&own),
        [
            "dev-incus_root virtio-scsi none io_uring main q- discard raw on block /dev/fdset/0",
            "dev-incus_data virtio-blk writeback threads main q- discard raw on file /dev/fdset/1",
        ]
    );
    assert_eq!(nics(&own), ["dev-incus_eth0 virtio-net tap vhost q2"]);
    let limits = ["104857600 bytes/s of reads by QEMU's throttle", "500 IOPS of writes by QEMU's throttle"];
    assert_eq!(*own.disks[0].details.limits, limits);
    assert_eq!(own.disks[0].read()["cache"], LOG_FILE);
    assert_eq!(own.disks[0].place.monitor, None, "it is the daemon's");
    let cpu = own.processors.as_ref().unwrap();
    assert_eq!((*cpu.vcpus, *cpu.accel, *cpu.memory_bytes), (Some(2), Some(Accel::Kvm), Some(2 << 30)));
    assert_eq!(cpu.read()["vcpus"], format!("{DIRECTORY}/qemu.conf"));
    assert_eq!((*cpu.windows, text(&cpu.model)), (None, "host"));
    assert!(told(&own, "settings in").is_empty() && told(&own, "plugged").is_empty(), "{:?}", own.unread);
    let without = read(&instance("812", &format!("{LOG}{UNPLUGGED}")));
    assert_eq!(without.disks.len(), 1);
}

#[test]
fn the_one_device_that_is_open_is_the_disk_that_was_handed_over() {
    let block = |rdev| FileStat { mode: 0o060_660, size: 0, allocated: 0, dev: (0, 5), rdev };
    let open = |fake: Fake| {
        fake.symlink("/proc/812/fd/20", "/dev/zd16")
            .symlink("/proc/812/fd/21", "/dev/zd16")
            .node("/dev/zd16", block((230, 16)))
            .symlink("/proc/812/fd/5", "/usr/share/OVMF/CODE.fd")
            .file("/usr/share/OVMF/CODE.fd", "")
            .symlink("/proc/812/fd/30", "/dev/net/tun")
            .file("/proc/812/fdinfo/30", "pos:\t0\niff:\ttap9\n")
    };
    let own = read(&open(instance("812", LOG)));
    assert_eq!((text(&own.disks[0].place.source), text(&own.disks[0].details.storage)), ("/dev/zd16", "block"));
    assert_eq!((text(&own.disks[1].place.source), text(&own.nics[0].interface)), ("/dev/fdset/1", "tap9"));
    let two = open(instance("812", LOG)).symlink("/proc/812/fd/22", "/dev/sdb").node("/dev/sdb", block((8, 16)));
    assert_eq!(text(&read(&two).disks[0].place.source), "/dev/fdset/0");
    let file = open(instance("812", LOG)).symlink("/proc/812/fd/23", "/srv/data.img").file("/srv/data.img", "");
    assert_eq!(text(&read(&file).disks[1].place.source), "/srv/data.img");
}

#[test]
fn what_is_not_the_process_s_own_is_not_believed() {
    let other = read(&instance("900\n", LOG));
    assert!(other.disks.is_empty() && other.nics.is_empty());
    let why = &told(&other, "settings in /run/incus/shop_web1/qemu.conf")[0].why;
    assert!(why.contains("another process"), "{why}");
    let refused = read(&instance("812", LOG).refused(format!("{DIRECTORY}/qemu.conf")));
    assert_eq!((refused.disks.len(), told(&refused, "settings in").len()), (0, 1));
    assert_eq!(told(&refused, "settings in")[0].mend, Remedy::Root);
    let mut elsewhere = args("incus");
    let file = elsewhere.iter_mut().find(|arg| arg.ends_with("qemu.conf")).unwrap();
    *file = "/home/me/qemu.conf".into();
    let foreign = read(&host(&elsewhere).file("/home/me/qemu.conf", CONF));
    assert_eq!(*foreign.processors.as_ref().unwrap().memory_bytes, Some(128 << 20));
    assert_eq!(told(&foreign, "settings in /home/me/qemu.conf").len(), 1);
}

#[test]
fn what_the_log_does_not_have_is_told() {
    let silent = read(&instance("812", "[x] QUERY: device_add map[id:a]\n"));
    assert_eq!((silent.disks.len(), told(&silent, "that its monitor plugged in").len()), (0, 1));
    assert!(told(&silent, "plugged")[0].mend.contains("incus config show --expanded web1"));
    let cut = read(&instance("812", &format!("{LOG}{}", " ".repeat(1 << 20))));
    assert_eq!((cut.disks.len(), told(&cut, "plugged in or out later").len()), (2, 1));
}

#[test]
fn files_that_guests_of_proxmox_share_are_read() {
    let path = "/usr/share/qemu-server/pve-q35-4.0.cfg";
    let line = ["/usr/bin/kvm", "-id", "101", "-name", "a", "-nodefaults", "-readconfig", path].map(str::to_owned);
    let with = host(&line).file(path, "[device \"ehci\"]\n  driver = \"ich9-usb-ehci1\"\n");
    assert_eq!(told(&read(&with), "settings in"), [] as [&Unread; 0]);
    assert_eq!(told(&read(&host(&line)), "settings in").len(), 1);
}
