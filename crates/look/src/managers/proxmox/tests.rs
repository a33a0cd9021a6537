#![allow(clippy::unwrap_used)]

use std::path::Path;

use vmio_model::facts::{Disk, Setting};
use vmio_node::fake::Fake;

use super::*;

/// The tree of files; the processes of all but guest 199 run.
fn host() -> Fake {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/managers/written/proxmox");
    let mut fake = Fake::new("fake").tree(&tree).unwrap();
    for vmid in [101, 102, 103] {
        let args = format!("/usr/bin/kvm\0-id\0{vmid}\0-name\0x\0");
        fake = fake.file(format!("/proc/4{vmid}/comm"), "kvm\n").file(format!("/proc/4{vmid}/cmdline"), args);
    }
    fake
}

fn of(vmid: &str) -> Guest {
    let managed = Proxmox.guests(&HostView::new(&host()));
    assert_eq!(managed.unread, []);
    managed.guests.into_iter().find(|g| g.ids["vmid"] == vmid).unwrap()
}

fn disk<'a>(guest: &'a Guest, slot: &str) -> &'a Disk {
    guest.disks.iter().find(|d| d.place.slot.as_deref() == Some(slot)).unwrap()
}

#[test]
fn only_guests_that_run() {
    let fake = host();
    let names: Vec<_> =
        Proxmox.guests(&HostView::new(&fake)).guests.iter().map(|g| (g.name.clone(), g.pid.unwrap())).collect();
    assert_eq!(names, [("web1".into(), 4101), ("rds".into(), 4102), ("db1".into(), 4103)]);
    // The pid of a killed guest belongs to another process now.
    let fake = host().file("/proc/4199/comm", "kvm\n").file("/proc/4199/cmdline", "kvm\0-id\x00105\0");
    assert_eq!(Proxmox.guests(&HostView::new(&fake)).guests.len(), 3);
}

#[test]
fn a_guest_as_it_is_created() {
    let guest = of("101");
    assert_eq!(
        (guest.name.as_str(), guest.os.as_deref(), guest.manager.as_deref()),
        ("web1", Some("linux"), Some("proxmox"))
    );
    assert_eq!(guest.uuid.as_deref(), Some("0b8d5b0a-6c1e-4a5d-8b58-54d6a2a5c101"));
    let disk = disk(&guest, "scsi0");
    // Without `scsihw` it is the LSI controller.
    assert_eq!(
        (disk.driver.as_deref(), disk.cache.as_deref(), disk.aio.as_deref()),
        (Some("lsi53c895a"), Some("none"), Some("io_uring"))
    );
    assert_eq!(
        (disk.cache.source().unwrap(), disk.aio.source().unwrap()),
        (&"Proxmox VE's default".into(), &"Proxmox VE's default".into())
    );
    assert_eq!(disk.from.place(), "/etc/pve/qemu-server/101.conf");
    assert_eq!(
        (disk.details.storage.as_deref(), *disk.details.thin, disk.details.format.as_deref()),
        (Some("lvm-thin"), Some(true), Some("raw"))
    );
    assert_eq!((*disk.details.virtual_bytes, *disk.details.discard), (Some(32 << 30), None));
    let place = &disk.place;
    assert_eq!(
        (place.vmid.as_deref(), place.volume.as_deref(), place.device_id.as_deref()),
        (Some("101"), Some("local-lvm:vm-101-disk-0"), Some("scsi0"))
    );
    assert_eq!((place.source.as_deref(), place.block_device), (Some("/dev/pve/vm-101-disk-0"), Some(true)));
    let nic = &guest.nics[0];
    assert_eq!(
        (nic.model.as_deref(), nic.interface.as_deref(), nic.bridge.as_deref()),
        (Some("virtio-net"), Some("tap101i0"), Some("vmbr0"))
    );
    assert_eq!((nic.place.slot.as_deref(), nic.place.target.as_deref()), (Some("net0"), Some("bc:24:11:8a:2b:3c")));
    let processors = guest.processors.unwrap();
    assert_eq!(
        (*processors.vcpus, *processors.memory_bytes, processors.model.as_deref()),
        (Some(2), Some(2 << 30), None)
    );
}

#[test]
fn a_windows_guest_with_old_devices() {
    let guest = of("102");
    assert_eq!((guest.os.as_deref(), guest.disks.len()), (Some("windows"), 2));
    let ide = disk(&guest, "ide0");
    // Its machine type is of QEMU 5.1, without io_uring; Linux AIO needs O_DIRECT.
    assert_eq!(
        (ide.driver.as_deref(), ide.cache.as_deref(), ide.aio.as_deref()),
        (Some("ide"), Some("writeback"), Some("threads"))
    );
    assert!(ide.cache.source().is_none());
    // Slots of empty drives are taken too.
    assert_eq!(ide.place.taken, ["ide0", "ide2", "sata0"]);
    assert_eq!((ide.details.format.as_deref(), ide.place.block_device), (Some("qcow2"), Some(false)));
    assert_eq!(ide.place.source.as_deref(), Some("/var/lib/vz/images/102/vm-102-disk-0.qcow2"));
    // An I/O thread that SATA cannot have is ignored.
    let sata = disk(&guest, "sata0");
    assert_eq!(
        (sata.driver.as_deref(), sata.aio.as_deref(), *sata.iothread),
        (Some("ahci"), Some("native"), Some(false))
    );
    assert_eq!(sata.details.overridden[0].setting, Setting::Iothread);
    let nic = &guest.nics[0];
    assert_eq!((nic.model.as_deref(), *nic.windows), (Some("e1000"), Some(true)));
    let limits: Vec<(&str, u64, bool)> =
        nic.rate_limits.iter().map(|l| (l.direction.word(), l.rate_bps.bits(), l.drops)).collect();
    assert_eq!(limits, [("guest_tx", 104_857_600, true), ("guest_rx", 104_857_600, false)]);
    let processors = guest.processors.unwrap();
    assert_eq!((processors.model.as_deref(), processors.flags.join(" ").as_str()), (Some("kvm64"), "+aes -pcid"));
}

#[test]
fn a_tuned_guest_with_a_change_that_waits() {
    let guest = of("103");
    let zvol = disk(&guest, "scsi0");
    assert_eq!(
        (zvol.driver.as_deref(), zvol.aio.as_deref(), *zvol.iothread),
        (Some("virtio-scsi"), Some("native"), Some(true))
    );
    assert_eq!((zvol.details.iothread_name.as_deref(), *zvol.details.queues), (Some("iothread-virtioscsi0"), Some(4)));
    assert_eq!((zvol.details.storage.as_deref(), *zvol.details.thin), (Some("zvol"), Some(true)));
    assert_eq!((*zvol.details.discard, zvol.details.detect_zeroes.as_deref()), (Some(true), Some("unmap")));
    assert_eq!(*zvol.details.limits, ["209.7 MB/s by QEMU's throttle", "2000 read IOPS by QEMU's throttle"]);
    let rbd = disk(&guest, "scsi1");
    assert_eq!(
        (rbd.details.storage.as_deref(), rbd.place.source.as_deref(), rbd.place.block_device),
        (Some("rbd"), Some("rbd:vms/vm-103-disk-1"), None)
    );
    assert_eq!(rbd.details.detect_zeroes.as_deref(), Some("off"));
    let waits = &rbd.details.overridden;
    assert_eq!(waits.len(), 1, "{waits:?}");
    assert_eq!((waits[0].setting.name(), &*waits[0].asked, &*waits[0].found), ("cache", "none", "writeback"));
    let nvme = disk(&guest, "virtio2");
    assert_eq!(
        (nvme.driver.as_deref(), nvme.details.storage.as_deref(), nvme.details.iothread_name.as_deref()),
        (Some("virtio-blk"), Some("block"), Some("iothread-virtio2"))
    );
    assert_eq!((*guest.nics[0].queues, *guest.nics[0].mtu_bytes), (Some(4), Some(9000)));
    assert_eq!((guest.nics[1].backend.as_deref(), guest.nics[1].interface.as_deref()), (Some("user"), None));
    let processors = guest.processors.unwrap();
    assert_eq!((*processors.vcpus, *processors.huge_pages, *processors.quota_cpus), (Some(4), Some(true), Some(3.5)));
    assert_eq!((processors.threads.len(), &processors.threads[4].cpus[..]), (5, &[2, 3, 4, 5, 8][..]));
    let waits = &processors.overridden[..];
    assert_eq!((waits.len(), waits[0].setting.name(), &*waits[0].asked), (1, "vcpus", "8"));
}

#[test]
fn addresses_of_cards() {
    let of = |drive: &str, firewall: &str| {
        let conf = format!(
            "net0: virtio=BC:24:11:00:02:03,bridge=vmbr0\nnet1: virtio=BC:24:11:00:02:04,bridge=vmbr1\n{drive}\
             ipconfig0: ip=192.0.2.7/24,gw=192.0.2.1,ip6=2001:db8::7/64\nipconfig1: ip=dhcp,ip6=auto\n\
             [PENDING]\nipconfig1: ip=192.0.2.9/24\n"
        );
        let fake = Fake::new("fake").file("/run/qemu-server/7.pid", "77").file("/proc/77/comm", "kvm\n");
        let fake = fake.file("/etc/pve/qemu-server/7.conf", conf).file("/etc/pve/firewall/7.fw", firewall);
        let guest = Proxmox.guests(&HostView::new(&fake)).guests.remove(0);
        let shown = |nic: &vmio_model::facts::Nic| {
            nic.place.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        guest.nics.iter().map(shown).collect::<Vec<_>>()
    };
    let drive = "ide2: local-lvm:vm-7-cloudinit,media=cdrom\n";
    assert_eq!(of("", ""), ["", ""], "nothing hands them to the guest");
    assert_eq!(of(drive, ""), ["192.0.2.7 2001:db8::7", ""]);
    assert_eq!(of("ide2: local:7/vm-7-cloudinit.qcow2,media=cdrom\n", "")[0], "192.0.2.7 2001:db8::7");
    assert_eq!(of("ide2: local:iso/cloudinit-seed.iso,media=cdrom\n", ""), ["", ""], "an image of another kind");
    let firewall = "[OPTIONS]\nenable: 1\n\n[IPSET ipfilter-net1] # its own\n\n192.0.2.20 # web\n192.0.2.21/32\n\
                    192.0.2.0/28\n2001:db8::/32\n2001:db8::20/128\ndc/web1\n!192.0.2.22\nfe80::1\n\n\
                    [ipset other]\n192.0.2.30\n\n[RULES]\nIN ACCEPT\n";
    assert_eq!(of("", firewall), ["", "192.0.2.20 192.0.2.21 2001:db8::20"]);
    assert_eq!(of(drive, firewall)[0], "192.0.2.7 2001:db8::7");
    // Changed since the drive was made: the guest has the one before until it restarts.
    let changed = "ipconfig1: ip=192.0.2.31/24\n\n[special:cloudinit]\nipconfig1: ip=192.0.2.30/24\n\n[PENDING]\n";
    assert_eq!(of(&format!("{drive}{changed}"), "")[1], "192.0.2.31 192.0.2.30");
}

#[test]
fn a_system_that_is_neither_linux_nor_windows() {
    let of = |ostype: &str| {
        let fake = Fake::new("fake").file("/run/qemu-server/7.pid", "77").file("/proc/77/comm", "kvm\n").file(
            "/etc/pve/qemu-server/7.conf",
            format!("{ostype}net0: virtio=BC:24:11:00:02:03,bridge=vmbr0,queues=4\n"),
        );
        Proxmox.guests(&HostView::new(&fake)).guests.remove(0)
    };
    // Windows whose owner chose no system is not told from FreeBSD.
    let other = of("ostype: other\n");
    assert_eq!((other.os.as_deref(), *other.nics[0].windows), (Some("other"), None));
    assert_eq!(other.processors.unwrap().os_release.as_deref(), Some("other"));
    assert_eq!((of("").os, of("ostype: win11\n").os.as_deref()), (None, Some("windows")));
    // Case 03 of operators.
    let rules = |ostype: &str| {
        let found = vmio_model::rules::findings(&of(ostype).facts());
        found.into_iter().map(|f| f.rule).collect::<Vec<String>>()
    };
    assert_eq!((rules("ostype: other\n"), rules("ostype: l26\n")), (vec!["bsd-queues".to_owned()], vec![]));
}

#[test]
fn a_guest_whose_configuration_cannot_be_read_is_still_there() {
    let fake = Fake::new("fake").file("/run/qemu-server/7.pid", "77").file("/proc/77/comm", "kvm\n");
    let managed = Proxmox.guests(&HostView::new(&fake));
    let guest = &managed.guests[0];
    assert_eq!((guest.name.as_str(), guest.pid, guest.ids["vmid"].as_str()), ("vm7", Some(77), "7"));
    assert!(guest.unread[0].mend.contains("root"), "{:?}", guest.unread);
}

/// As `qm showcmd 101` prints it.
const COMMAND: &str = "/usr/bin/kvm -id 101 -name web1,debug-threads=on -no-shutdown \
    -chardev socket,id=qmp,path=/var/run/qemu-server/101.qmp,server=on,wait=off -mon chardev=qmp,mode=control \
    -pidfile /var/run/qemu-server/101.pid -daemonize -smbios type=1,uuid=0b8d5b0a-6c1e-4a5d-8b58-54d6a2a5c101 \
    -smp 2,sockets=1,cores=2,maxcpus=2 -nodefaults -cpu kvm64,enforce,+kvm_pv_eoi,+kvm_pv_unhalt,+lahf_lm,+sep \
    -m 2048 -device lsi,id=scsihw0,bus=pci.0,addr=0x5 \
    -drive file=/dev/pve/vm-101-disk-0,if=none,id=drive-scsi0,format=raw,cache=none,aio=io_uring,detect-zeroes=on \
    -device scsi-hd,bus=scsihw0.0,scsi-id=0,drive=drive-scsi0,id=scsi0,bootindex=100 \
    -netdev type=tap,id=net0,ifname=tap101i0,script=/var/lib/qemu-server/pve-bridge,vhost=on \
    -device virtio-net-pci,mac=BC:24:11:8A:2B:3C,netdev=net0,bus=pci.0,addr=0x12,id=net0 -machine type=pc+pve0";

#[test]
fn a_guest_that_runs_as_configured_differs_in_nothing() {
    let words: Vec<&str> = COMMAND.split_whitespace().collect();
    let fake = host().file("/proc/4101/cmdline", words.join("\0") + "\0");
    let scan = crate::scan::scan(&HostView::new(&fake));
    let guest = scan.guests.iter().find(|g| g.name == "web1").unwrap();
    assert_eq!((guest.manager.as_deref(), guest.os.as_deref(), guest.disks.len()), (Some("proxmox"), Some("linux"), 1));
    let disk = &guest.disks[0];
    assert_eq!((disk.driver.as_deref(), disk.aio.as_deref()), (Some("lsi53c895a"), Some("io_uring")));
    assert_eq!(disk.details.overridden, []);
    assert_eq!(disk.place.volume.as_deref(), Some("local-lvm:vm-101-disk-0"));
    assert_eq!((disk.details.storage.as_deref(), *disk.details.thin), (Some("lvm-thin"), Some(true)));
    let nic = &guest.nics[0];
    assert_eq!((*nic.vhost, nic.overridden.len(), nic.place.slot.as_deref()), (Some(true), 0, Some("net0")));
    assert_eq!(nic.place.vmid.as_deref(), Some("101"));
    assert_eq!(guest.processors.as_ref().unwrap().overridden, []);

    // Started with other settings than Proxmox VE's.
    let changed = words.join("\0").replace("cache=none,aio=io_uring", "cache=unsafe,aio=threads") + "\0";
    let fake = host().file("/proc/4101/cmdline", changed);
    let scan = crate::scan::scan(&HostView::new(&fake));
    let disk = &scan.guests.iter().find(|g| g.name == "web1").unwrap().disks[0];
    let settings: Vec<_> = disk.details.overridden.iter().map(|o| (o.setting.name(), &*o.asked, &*o.found)).collect();
    assert_eq!(settings, [("cache", "none", "unsafe"), ("aio", "io_uring", "threads")]);
}

#[test]
fn a_number_of_processors_that_no_guest_has_costs_nothing() {
    let conf = "cores: 4000000000\nsockets: 4\naffinity: 0-8191\n";
    let fake = Fake::new("fake")
        .file("/run/qemu-server/7.pid", "77")
        .file("/proc/77/comm", "kvm\n")
        .file("/etc/pve/qemu-server/7.conf", conf);
    let guests = Proxmox.guests(&HostView::new(&fake)).guests;
    let processors = guests[0].processors.as_ref().unwrap();
    assert_eq!((*processors.vcpus, processors.threads.len()), (Some(u32::MAX), 513));
}

#[test]
fn containers_that_run_have_their_names() {
    let fake = Fake::new("fake")
        .file(
            "/etc/pve/lxc/105.conf",
            "arch: amd64\nhostname: proxy\nnet0: name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:05,rate=12.5,type=veth\n",
        )
        .file("/etc/pve/lxc/106.conf", "hostname: stopped\n")
        .file("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        .file("/sys/fs/cgroup/lxc/105/cgroup.procs", "");
    let guests = Proxmox.guests(&HostView::new(&fake)).guests;
    let [guest] = &guests[..] else { panic!("{guests:?}") };
    assert_eq!(
        (guest.name.as_str(), guest.kind.as_str(), guest.ids["hostname"].as_str()),
        ("105", "container", "proxy")
    );
    let nic = &guest.nics[0];
    let limits: Vec<String> = nic.rate_limits.iter().map(|limit| limit.words()).collect();
    let way = |way: &str| format!("104.8576 Mbit/s {way} the guest by Proxmox VE");
    assert_eq!(limits, [way("from"), way("to")]);
    let names = [&nic.place.slot, &nic.place.device_id, &*nic.interface].map(|name| name.as_deref());
    assert_eq!(names, [Some("net0"), Some("eth0"), Some("veth105i0")]);
}
