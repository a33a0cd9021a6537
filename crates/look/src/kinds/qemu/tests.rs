#![allow(clippy::unwrap_used)]

use vmio_model::facts::{Disk, Facts, Nic, Processors, Remedy};
use vmio_model::result::Accel;
use vmio_model::rules::findings;
use vmio_node::fake::Fake;

use super::*;

mod host;
mod incus;

const PID: u32 = 812;

/// A recorded command line, an argument a line.
fn args(fixture: &str) -> Vec<String> {
    let path = format!("{}/tests/fixtures/cmdlines/{fixture}.txt", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

/// A machine with one process of that command line.
fn host(args: &[String]) -> Fake {
    let line: String = args.iter().flat_map(|a| [a, "\0"]).collect();
    let comm: String = args[0].rsplit('/').next().unwrap().chars().take(15).collect();
    Fake::new("fake").file(format!("/proc/{PID}/comm"), comm + "\n").file(format!("/proc/{PID}/cmdline"), line)
}

/// A thread of the process.
fn thread(fake: Fake, tid: u32, comm: &str, cpus: &str) -> Fake {
    let dir = format!("/proc/{PID}/task/{tid}");
    fake.file(format!("{dir}/status"), format!("Name:\t{comm}\nState:\tS\nCpus_allowed_list:\t{cpus}\n"))
        .file(format!("{dir}/comm"), format!("{comm}\n"))
}

fn read(fake: &Fake) -> Guest {
    let mut found = running(&HostView::new(fake));
    assert_eq!((found.guests.len(), &found.unread[..]), (1, &[][..]));
    found.guests.remove(0)
}

fn fixture(name: &str) -> Guest {
    read(&host(&args(name)))
}

fn text(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or("-")
}

/// The main settings of a disk, in one line.
fn disk(d: &Disk) -> String {
    let thread = match (*d.iothread, *d.details.mapped_iothreads) {
        (_, Some(n)) => format!("{n} threads"),
        (Some(true), _) => text(&d.details.iothread_name).to_owned(),
        (Some(false), _) => "main".to_owned(),
        (None, _) => "-".to_owned(),
    };
    let queues = d.details.queues.map_or("-".to_owned(), |n| n.to_string());
    let discard = d.details.discard.map_or("-", |on| if on { "discard" } else { "keep" });
    format!(
        "{} {} {} {} {thread} q{queues} {discard} {} on {} {}",
        text(&d.place.device_id),
        text(&d.driver),
        text(&d.cache),
        text(&d.aio),
        text(&d.details.format),
        text(&d.details.storage),
        text(&d.place.source)
    )
}

fn nic(n: &Nic) -> String {
    let vhost = n.vhost.map_or("-", |on| if on { "vhost" } else { "qemu" });
    let queues = n.queues.map_or("-".to_owned(), |n| n.to_string());
    format!("{} {} {} {vhost} q{queues}", text(&n.place.device_id), text(&n.model), text(&n.backend))
}

fn disks(guest: &Guest) -> Vec<String> {
    guest.disks.iter().map(disk).collect()
}

fn nics(guest: &Guest) -> Vec<String> {
    guest.nics.iter().map(nic).collect()
}

#[test]
fn sectors_are_of_512_bytes_unless_the_device_says_otherwise() {
    let told = |device: &str, more: &[&str]| {
        let drive = "file=/dev/x,format=raw,if=none,id=d0";
        let base = ["/usr/bin/qemu-system-x86_64", "-name", "a", "-nodefaults", "-drive", drive, "-device", device];
        let args: Vec<String> = base.iter().chain(more).map(|arg| (*arg).to_owned()).collect();
        let guest = read(&host(&args));
        let below = &guest.disks[0].details.below;
        (*below.guest_logical_block_bytes, *below.guest_physical_block_bytes)
    };
    let device = "virtio-blk-pci,drive=d0,id=v0";
    assert_eq!(told(device, &[]), (Some(512), Some(512)));
    assert_eq!(told(&format!("{device},physical_block_size=4096"), &[]), (Some(512), Some(4096)));
    assert_eq!(told(device, &["-set", "device.v0.physical_block_size=4k"]), (Some(512), Some(4096)));
    // The disk's own, which are not asked.
    assert_eq!(told("scsi-block,drive=d0,id=v0", &[]), (None, None));
    assert_eq!(told("scsi-generic,drive=d0,id=v0", &[]), (None, None));
}

#[test]
fn libvirt_9_with_its_defaults() {
    let own = fixture("libvirt-9-q35");
    assert_eq!((own.name.as_str(), own.pid, own.os.as_deref()), ("web1", Some(PID), None));
    assert_eq!(own.uuid.as_deref(), Some("1b5b2c54-7a55-4b9f-9d40-5ce9b9d1a3e0"));
    assert_eq!(own.ids.get("domain").map(String::as_str), Some("web1"));
    let image = "/var/lib/libvirt/images/web1.qcow2";
    assert_eq!(
        disks(&own),
        [format!("virtio-disk0 virtio-blk writeback threads main q4 discard qcow2 on file {image}")]
    );
    let read = &own.disks[0].read();
    assert_eq!(read["driver"], "/proc/812/cmdline, -device");
    assert_eq!(read["cache"], "QEMU's default, not on the command line");
    assert_eq!(read["discard"], "/proc/812/cmdline, -blockdev");
    assert_eq!(nics(&own), ["net0 virtio-net tap vhost q1"]);
    assert_eq!(own.nics[0].place.target.as_deref(), Some("52:54:00:5e:9a:01"));
    let cpu = own.processors.unwrap();
    assert_eq!((*cpu.vcpus, *cpu.accel, text(&cpu.model)), (Some(4), Some(Accel::Kvm), "host"));
    assert_eq!(
        (cpu.flags.value().clone(), *cpu.memory_bytes, *cpu.huge_pages),
        (vec!["+migratable".into()], Some(4 << 30), Some(false))
    );
}

#[test]
fn libvirt_8_with_threads_huge_pages_and_queues() {
    let fake = host(&args("libvirt-8-tuned"))
        .file("/proc/self/mountinfo", "31 23 0:28 / /dev/hugepages rw - hugetlbfs hugetlbfs rw\n")
        .file("/sys/bus/pci/devices/0000:3b:02.1/class", "0x020000\n");
    let own = read(&fake);
    assert_eq!(
        disks(&own),
        [
            "virtio-disk0 virtio-blk none native iothread1 q4 keep raw on block /dev/vg0/db1",
            "scsi0-0-0-0 virtio-scsi directsync io_uring iothread2 q4 discard raw on file /srv/images/log,1.raw",
            // The CD-ROM is left out.
        ]
    );
    assert_eq!(own.disks[0].place.block_device, Some(true));
    assert_eq!(nics(&own), ["net0 virtio-net tap vhost q4", "hostdev0 vfio vfio - q-"]);
    assert_eq!(*own.nics[0].offloads_off, ["csum", "guest_tso4"]);
    assert_eq!(own.nics[0].place.target.as_deref(), Some("52:54:00:aa:01:02"));
    let cpu = own.processors.unwrap();
    assert_eq!((*cpu.vcpus, *cpu.accel, *cpu.huge_pages), (Some(4), Some(Accel::Kvm), Some(true)));
    assert_eq!((text(&cpu.model), &cpu.flags[4]), ("Skylake-Server-IBRS", &"-mpx".to_owned()));
}

#[test]
fn a_windows_guest_of_virt_manager() {
    let own = fixture("virt-manager-win11");
    let image = "/var/lib/libvirt/images/win11.qcow2";
    assert_eq!(disks(&own), [format!("sata0-0-0 ahci writeback threads main q- discard qcow2 on file {image}")]);
    assert_eq!(nics(&own), ["net0 e1000e tap qemu q1"]);
    assert_eq!(own.os.as_deref(), Some("windows"));
    let cpu = own.processors.unwrap();
    assert_eq!((*cpu.windows, &cpu.flags[4]), (Some(true), &"hv_spinlocks=0x1fff".to_owned()));
}

#[test]
fn proxmox_7_with_drives() {
    let own = fixture("proxmox-7");
    assert_eq!((own.name.as_str(), own.ids.get("vmid").map(String::as_str)), ("mail", Some("101")));
    assert_eq!(own.uuid.as_deref(), Some("5c7f2b0e-7b4c-4e3a-8d0b-5f9c2f3d8a11"));
    let qcow2 = "/mnt/pve/nas/images/101/vm-101-disk-1.qcow2";
    assert_eq!(
        disks(&own),
        [
            // Whether the file of a -drive is a device depends on its path.
            "scsi0 virtio-scsi none io_uring iothread-virtioscsi0 q4 discard raw on - /dev/pve/vm-101-disk-0"
                .to_owned(),
            format!("virtio1 virtio-blk writeback io_uring iothread-virtio1 q4 keep qcow2 on - {qcow2}"),
            "sata0 ahci none - main q- keep raw on rbd rbd:ceph-vm/vm-101-disk-2".to_owned(),
        ]
    );
    let slots: Vec<_> = own.disks.iter().map(|d| text(&d.place.slot)).collect();
    assert_eq!(slots, ["scsi0", "virtio1", "sata0"]);
    assert_eq!(
        *own.disks[1].details.limits,
        ["500 IOPS by QEMU's throttle", "1048576 bytes/s of reads by QEMU's throttle"]
    );
    assert!(own.unread.iter().any(|u| u.what == "what /dev/pve/vm-101-disk-0 is"), "{:?}", own.unread);
    assert_eq!(nics(&own), ["net0 virtio-net tap vhost q2"]);
    assert_eq!((text(&own.nics[0].interface), text(&own.nics[0].place.slot)), ("tap101i0", "net0"));
    let cpu = own.processors.unwrap();
    assert_eq!((*cpu.vcpus, text(&cpu.model), *cpu.memory_bytes), (Some(4), "kvm64", Some(2 << 30)));
    assert_eq!(cpu.flags[1], "+kvm_pv_eoi");
}

#[test]
fn proxmox_9_with_nodes_inside_of_nodes() {
    let own = fixture("proxmox-9");
    assert_eq!(
        disks(&own),
        ["scsi0 lsi53c895a none io_uring main q- keep raw on block /dev/zvol/rpool/data/vm-205-disk-0"]
    );
    assert_eq!(*own.disks[0].details.limits, ["2000 IOPS by QEMU's throttle"]);
    assert_eq!((own.os.as_deref(), text(&own.disks[0].place.slot)), (Some("windows"), "scsi0"));
    assert_eq!(nics(&own), ["net0 e1000 tap qemu q1"]);
}

#[test]
fn openstack_nova_on_ceph_with_a_switch_in_user_space() {
    let own = fixture("nova-rbd");
    let image = "rbd:vms/f1c6a2d7-8c8d-4e0f-9c51-6f0e0c3b9c55_disk";
    assert_eq!(disks(&own), [format!("virtio-disk0 virtio-blk writeback - main q4 discard raw on rbd {image}")]);
    assert_eq!(nics(&own), ["net0 virtio-net vhost-user - q4"]);
    assert!(!serde_json::to_string(&own).unwrap().contains("c2VjcmV0"), "a secret has no place in facts");
}

#[test]
fn kubevirt_with_its_defaults() {
    let own = fixture("kubevirt");
    let image = "/var/run/kubevirt-private/vmi-disks/rootdisk/disk.img";
    // Red Hat's machine types do not name a QEMU version.
    assert_eq!(disks(&own), [format!("ua-rootdisk virtio-blk none threads main q- keep raw on file {image}")]);
    assert_eq!(nics(&own), ["ua-default virtio-net tap vhost q1"]);
    let cpu = own.processors.unwrap();
    assert_eq!((*cpu.vcpus, *cpu.memory_bytes, *cpu.huge_pages), (Some(1), Some(2 << 30), Some(true)));
}

#[test]
fn old_options_by_hand() {
    let own = fixture("plain-old");
    assert_eq!(own.name, "pid 812");
    assert_eq!(
        disks(&own),
        [
            "ide0-hd0 ahci writeback threads main q- keep - on - /vm/old.img",
            "virtio0 virtio-blk unsafe native main q- keep - on - /vm/data.raw",
            "stick usb-storage writeback - main q- keep raw on nbd nbd://10.0.0.9:10809/export",
        ]
        .map(|line| line.replace("keep raw on nbd", "keep - on nbd"))
    );
    assert_eq!(nics(&own), ["- virtio-net user - q1", "- rtl8139 tap qemu q1"]);
    assert_eq!(text(&own.nics[1].interface), "tap3");
    let cpu = own.processors.unwrap();
    assert_eq!((*cpu.vcpus, *cpu.accel, text(&cpu.model)), (Some(4), Some(Accel::Kvm), "qemu64"));
    assert_eq!(cpu.memory_bytes, Some(1536 << 20));
}

#[test]
fn new_options_by_hand() {
    let own = fixture("plain-new");
    assert_eq!(
        disks(&own),
        [
            "served virtio-blk - - - q- - - on vhost-user /run/vhost/blk.sock",
            "spread virtio-blk none io_uring 2 threads q4 discard qcow2 on file /vm/a,b.qcow2",
            "fast nvme writeback - main q- keep raw on nvme 0000:01:00.0",
        ]
    );
    assert_eq!(own.disks[1].details.l2_cache_bytes, Some(16 << 20));
    assert_eq!(nics(&own), ["- virtio-net passt - q1"]);
}

#[test]
fn what_is_no_guest_and_what_cannot_be_read() {
    let line = |parts: &[&str]| parts.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>();
    for none in [
        line(&["/usr/bin/qemu-system-x86_64", "--version"]),
        line(&["/usr/bin/qemu-system-x86_64", "-S", "-machine", "none,accel=kvm:tcg", "-qmp", "unix:/x,server"]),
        line(&["/usr/bin/qemu-system-i386", "-xen-domid", "4"]),
    ] {
        let found = running(&HostView::new(&host(&none)));
        assert_eq!((found.guests.len(), found.unread.len()), (0, 0), "{none:?}");
    }
    let hidden = Fake::new("fake").file("/proc/9/comm", "qemu-system-x86\n");
    let found = running(&HostView::new(&hidden));
    assert_eq!((found.guests.len(), &found.unread[0].mend), (0, &Remedy::Root));
}

#[test]
fn a_guest_of_vmio_itself_says_so() {
    let own = read(&host(&args("plain-old")).file("/proc/812/environ", "HOME=/\0VMIO_OWNER=1-2-3\0"));
    assert_eq!(own.ids.get("owner").map(String::as_str), Some("vmio"));
}

/// The processors of a guest with this program and these options.
fn processors_of(program: &str, more: &[&str]) -> Processors {
    let line: Vec<String> = [program].iter().chain(more).map(|arg| (*arg).to_owned()).collect();
    read(&host(&line)).processors.unwrap()
}

#[test]
fn what_says_windows_and_what_does_not() {
    let windows = |more: &[&str]| *processors_of("/usr/bin/qemu-system-x86_64", more).windows;
    assert_eq!(windows(&["-cpu", "host,hv_relaxed,hv_vapic,hv_spinlocks=0x1fff,hv_time"]), Some(true));
    assert_eq!(windows(&["-cpu", "host,kvm=off,hv_vendor_id=whatever"]), Some(true));
    // Incus gives it to all its guests.
    assert_eq!(windows(&["-cpu", "host,hv_passthrough"]), None);
    assert_eq!(windows(&["-cdrom", "/iso/virtio-win-0.1.240.iso"]), Some(true));
    assert_eq!((windows(&["-rtc", "base=localtime"]), windows(&["-name", "win10"])), (None, None));
    assert_eq!(windows(&["-rtc", "base=localtime", "-name", "win10"]), Some(true));
    assert_eq!(windows(&["-localtime", "-drive", "file=/iso/Win11_23H2.iso,media=cdrom"]), Some(true));
    assert_eq!(windows(&["-device", "isa-applesmc,osk=x", "-cpu", "host,hv_vendor_id=x"]), Some(false));
}

/// Case 01 of operators: enlightenments without timers, and a vendor id alone.
#[test]
fn windows_without_timers_is_told_which() {
    let found = |cpu: &str| {
        let own = processors_of("/usr/bin/qemu-system-x86_64", &["-accel", "kvm", "-smp", "4", "-cpu", cpu]);
        let facts = Facts { processors: vec![own], ..Facts::default() };
        findings(&facts).into_iter().map(|f| (f.rule, f.change)).collect::<Vec<_>>()
    };
    for cpu in ["host,hv_relaxed,hv_vapic,hv_spinlocks=0x1fff,hv_time", "host,kvm=off,hv_vendor_id=whatever"] {
        let told = found(cpu);
        let [(rule, change)] = &told[..] else { panic!("{cpu}: {told:?}") };
        assert_eq!(rule, "windows-no-enlightenments");
        assert!(change.qemu.contains("hv_stimer") && change.libvirt.contains("<stimer state='on'/>"), "{change:?}");
    }
    assert_eq!(found("host"), []);
}

#[test]
fn a_pc_has_an_hpet_unless_it_is_taken_away() {
    let hpet = |program: &str, more: &[&str]| *processors_of(program, more).hpet;
    let qemu = "/usr/bin/qemu-system-x86_64";
    assert_eq!((hpet(qemu, &[]), hpet(qemu, &["-machine", "pc-q35-8.2,usb=off"])), (Some(true), Some(true)));
    assert_eq!((hpet(qemu, &["-machine", "q35,hpet=off"]), hpet(qemu, &["-no-hpet"])), (Some(false), Some(false)));
    assert_eq!(hpet("/usr/libexec/qemu-kvm", &["-machine", "q35"]), None);
    assert_eq!(hpet("/usr/libexec/qemu-kvm", &["-machine", "q35,hpet=on"]), Some(true));
    assert_eq!((hpet(qemu, &["-machine", "microvm"]), hpet("/usr/bin/qemu-system-aarch64", &[])), (None, None));
}

proptest::proptest! {
    /// Any arguments are read without a panic.
    #[test]
    fn any_guest_is_read(
        more in proptest::collection::vec("(-(device|blockdev|drive|netdev|nic|net|smp|m|object|cpu|machine))|((virtio-blk-pci|scsi-hd|tap|q35|pc-q35-5|iothread|throttle)?[,=.:{}a-f0-9\u{e9}-]{0,20})|(drive=a|id=a|node-name=a|file=a|file.file=a)", 0..10)
    ) {
        let mut args = vec!["/usr/bin/qemu-system-x86_64".to_owned()];
        args.extend(more.into_iter().map(|a| a.replace(['\n', '\0'], "")));
        let _ = running(&HostView::new(&host(&args)));
    }
}

#[test]
fn a_file_on_a_server_is_left_to_those_who_can_give_it_up() {
    let line: Vec<String> =
        ["qemu-system-x86_64", "-name", "a", "-nodefaults", "-drive", "file=/srv/a.raw,format=raw,if=virtio"]
            .map(Into::into)
            .into();
    let disk = |mountinfo: &str| {
        let fake = host(&line).file("/srv/a.raw", "").file(format!("/proc/{PID}/mountinfo"), mountinfo);
        read(&fake).disks.remove(0)
    };
    let served = disk("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:21 / /srv rw - nfs4 nas:/vm rw\n");
    assert_eq!((served.details.storage.as_deref(), served.place.block_device), (None, None));
    let here = disk("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
    assert_eq!((here.details.storage.as_deref(), here.place.block_device), (Some("file"), Some(false)));
}

#[test]
fn what_a_guest_may_only_read_is_no_disk() {
    let of = |more: &[&str]| {
        let line: Vec<String> = ["qemu-system-x86_64"].iter().chain(more).map(|a| (*a).to_owned()).collect();
        read(&host(&line)).disks.len()
    };
    assert_eq!(of(&["-drive", "file=/a.raw,if=virtio,readonly=on"]), 0);
    assert_eq!(of(&["-drive", "file=/a.raw,if=virtio,readonly=off"]), 1);
    let node = |read_only: bool| {
        format!(
            r#"{{"driver":"raw","node-name":"n","read-only":{read_only},"file":{{"driver":"file","filename":"/a"}}}}"#
        )
    };
    for (read_only, disks) in [(true, 0), (false, 1)] {
        assert_eq!(of(&["-blockdev", &node(read_only), "-device", "virtio-blk-pci,drive=n"]), disks);
    }
}
