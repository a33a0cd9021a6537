#![allow(clippy::unwrap_used)]

use vmio_model::facts::{Overridden, RateLimit};
use vmio_model::rate::BitRate;
use vmio_model::result::Accel;
use vmio_node::Exec;
use vmio_node::fake::{Fake, fails, says};

use super::*;

mod daemons;
mod memory;

const LIST: &str = include_str!("../../../tests/fixtures/managers/recorded/list.txt");
const SESSION: &str = include_str!("../../../tests/fixtures/managers/recorded/session.txt");
const DOMSTATS: &str = include_str!("../../../tests/fixtures/managers/recorded/domstats.txt");
const QUERY_BLOCK: &str = include_str!("../../../tests/fixtures/managers/recorded/db1.query-block.json");
const CMDLINE: &str = include_str!("../../../tests/fixtures/managers/recorded/db1.cmdline.txt");

/// A host with a daemon that answers as recorded.
fn host() -> Fake {
    host_with(|script| Some(says(if script.starts_with("list") { LIST } else { SESSION })))
}

fn host_with(described: impl Fn(&str) -> Option<vmio_node::Output> + Send + Sync + 'static) -> Fake {
    host_of(described, QUERY_BLOCK.to_owned())
}

fn host_of(described: impl Fn(&str) -> Option<vmio_node::Output> + Send + Sync + 'static, query_block: String) -> Fake {
    Fake::new("fake")
        .installed("virsh")
        .file("/run/libvirt/libvirt-sock-ro", "")
        .file("/proc/700/comm", "libvirtd\n")
        .file("/proc/self/mountinfo", "22 1 254:1 / / rw - ext4 /dev/vda1 rw\n")
        .file("/run/libvirt/qemu/db1.pid", "812\n")
        .command(move |exec: &Exec| match String::from_utf8_lossy(&exec.stdin) {
            script if script.starts_with("domstats") => Some(says(DOMSTATS)),
            script if script.is_empty() => Some(says(query_block.clone())),
            script => described(&script),
        })
}

/// The same with a readable command line of db1.
fn host_with_process() -> Fake {
    host().file("/proc/812/comm", "qemu-system-x86\n").file("/proc/812/cmdline", CMDLINE.replace('\n', "\0"))
}

fn of(fake: &Fake, name: &str) -> Guest {
    let managed = Libvirt.guests(&HostView::new(fake));
    assert_eq!(managed.unread, []);
    managed.guests.into_iter().find(|g| g.name == name).unwrap()
}

fn written(text: &str) -> Guest {
    let from = |_: &str| vmio_model::facts::Provenance::Transcript { name: "test".into() };
    xml::guest(text, &from).unwrap()
}

fn changed(overridden: &[Overridden]) -> Vec<(&str, &str, &str)> {
    overridden.iter().map(|o| (o.setting.name(), &*o.asked, &*o.found)).collect()
}

#[test]
fn a_guest_is_what_its_description_says_and_no_more() {
    let guest = of(&host(), "db1");
    assert_eq!((guest.pid, guest.ids["title"].as_str()), (Some(812), "orders database"));
    let [vda, sda] = &guest.disks[..] else { panic!("{:?}", guest.disks) };
    assert_eq!(
        (vda.driver.as_deref(), vda.cache.as_deref(), vda.aio.as_deref()),
        (Some("virtio-blk"), Some("none"), Some("native"))
    );
    assert_eq!((*vda.iothread, vda.details.iothread_name.as_deref()), (Some(true), Some("iothread1")));
    assert_eq!(
        (*vda.details.queues, *vda.details.discard, vda.details.detect_zeroes.as_deref()),
        (Some(2), Some(true), Some("unmap"))
    );
    assert_eq!(*vda.details.limits, ["50.0 write MB/s by QEMU's throttle", "2000 IOPS by QEMU's throttle"]);
    // Read from the image: libvirt would query the guest's monitor.
    assert_eq!((*vda.details.virtual_bytes, vda.details.virtual_bytes.source()), (None, None));
    assert_eq!(vda.from.place(), "virsh dumpxml db1");
    let place = &vda.place;
    assert_eq!(
        (place.domain.as_deref(), place.target.as_deref(), place.device_id.as_deref()),
        (Some("db1"), Some("vda"), Some("virtio-disk0"))
    );
    assert_eq!((place.source.as_deref(), place.block_device), (Some("/var/lib/libvirt/images/db1.raw"), Some(false)));
    // A SCSI disk has its controller's queues and I/O thread.
    assert_eq!(
        (sda.driver.as_deref(), *sda.details.queues, sda.details.iothread_name.as_deref()),
        (Some("virtio-scsi"), Some(2), Some("iothread2"))
    );
    assert_eq!((sda.aio.as_deref(), *sda.details.discard), (None, None));

    let nic = &guest.nics[0];
    assert_eq!(
        (nic.model.as_deref(), nic.backend.as_deref(), nic.bridge.as_deref()),
        (Some("virtio-net"), Some("tap"), Some("virbr0"))
    );
    assert_eq!((*nic.vhost, *nic.queues, *nic.mtu_bytes, *nic.vcpus), (Some(false), Some(2), Some(9000), Some(2)));
    assert_eq!(*nic.offloads_off, ["host_csum", "host_tso4", "guest_tso4"]);
    assert!(nic.interface.as_deref().unwrap().starts_with("vnet"));
    assert_eq!(nic.place.target.as_deref(), Some("52:54:00:aa:01:02"));

    let processors = guest.processors.unwrap();
    assert_eq!(
        (*processors.vcpus, *processors.accel, processors.model.as_deref()),
        (Some(2), Some(Accel::Tcg), Some("max"))
    );
    assert_eq!(processors.memory_bytes, Some(256 << 20));
    let threads: Vec<_> = processors.threads.iter().map(|t| (&*t.role, &*t.name, &t.cpus[..])).collect();
    assert_eq!(
        threads,
        [("vcpu", "0", &[0][..]), ("vcpu", "1", &[1]), ("iothread", "iothread1", &[1]), ("main", "", &[0, 1])]
    );
}

#[test]
fn what_is_not_said_is_not_asked_for() {
    let guest = of(&host(), "debian12");
    let [disk] = &guest.disks[..] else { panic!("the empty CD drive is no disk: {:?}", guest.disks) };
    assert_eq!(
        (disk.cache.as_deref(), disk.aio.as_deref(), *disk.iothread, *disk.details.discard),
        (None, None, None, None)
    );
    assert_eq!((disk.details.format.as_deref(), *disk.details.backing_files), (Some("qcow2"), Some(0)));
    assert_eq!((guest.os.as_deref(), *guest.nics[0].vhost), (Some("linux"), None));
    // The empty drive's name is taken too, and the guest boots from the first disk.
    assert_eq!((&disk.place.taken[..], disk.place.boots_as_first), (&["vda".to_owned(), "sda".into()][..], Some(true)));
    assert_eq!(*guest.processors.unwrap().flags, ["+hypervisor", "+lahf_lm"]);

    let windows = of(&host(), "win11");
    assert_eq!(windows.os.as_deref(), Some("windows"));
    assert_eq!((windows.disks[0].driver.as_deref(), windows.nics[0].model.as_deref()), (Some("ahci"), Some("e1000e")));
    let processors = windows.processors.unwrap();
    assert_eq!(*processors.flags, ["hv_relaxed", "hv_vapic", "hv_spinlocks", "hv_time"]);
    assert_eq!((processors.os_release.as_deref(), *processors.hpet), (Some("microsoft.com/win/11"), Some(false)));

    let old = of(&host(), "oldbox");
    assert_eq!(
        (old.disks[0].driver.as_deref(), old.nics[0].model.as_deref(), old.nics[0].backend.as_deref()),
        (Some("ide"), Some("rtl8139"), Some("user"))
    );
    assert_eq!((old.os, old.nics[0].interface.as_deref()), (None, None));
}

#[test]
fn what_waits_for_a_restart_is_asked_for_and_not_in_force() {
    // `aio` of the running guest is unknown without its command line.
    let blind = of(&host(), "db1");
    assert_eq!(changed(&blind.disks[1].details.overridden), [("cache", "none", "writeback")]);
    assert_eq!(blind.disks[1].aio, None);
    assert_eq!(changed(&blind.processors.unwrap().overridden), [("vcpus", "4", "2")]);
    assert_eq!(blind.disks[0].details.overridden, []);

    let seen = of(&host_with_process(), "db1");
    assert_eq!(seen.disks[1].aio.as_deref(), Some("native"));
    assert_eq!(seen.disks[1].read()["aio"], "virsh dumpxml --inactive db1");
}

/// The command line and libvirt's description differ only in settings that wait for the next start.
#[test]
fn the_process_and_its_description_agree() {
    let fake = host_with_process();
    let scan = crate::scan::scan(&HostView::new(&fake));
    let guest = scan.guests.iter().find(|g| g.name == "db1").unwrap();
    assert_eq!((guest.pid, guest.manager.as_deref(), guest.disks.len()), (Some(812), Some("libvirt"), 2));
    assert_eq!(changed(&guest.disks[0].details.overridden), []);
    assert_eq!(guest.disks[0].details.iothread_name.as_deref(), Some("iothread1"));
    assert_eq!(guest.disks[0].place.target.as_deref(), Some("vda"));
    let waits = [("cache", "none", "writeback"), ("aio", "native", "threads")];
    let mut found = changed(&guest.disks[1].details.overridden);
    found.sort_by_key(|(setting, ..)| *setting != "cache");
    assert_eq!(found, waits);
    assert_eq!((guest.nics.len(), changed(&guest.nics[0].overridden)), (1, vec![]));
    assert_eq!(guest.nics[0].place.domain.as_deref(), Some("db1"));
    assert_eq!(changed(&guest.processors.as_ref().unwrap().overridden), [("vcpus", "4", "2")]);
}

#[test]
fn a_monitor_is_asked_only_when_told_so_and_for_gaps() {
    let description = SESSION.replace(" cache='none' io='native' discard", " discard");
    let host = |query_block: String| {
        let description = description.clone();
        let described = move |script: &str| {
            Some(says(if script.starts_with("list") { LIST.to_owned() } else { description.clone() }))
        };
        host_of(described, query_block)
    };
    let fake = host(QUERY_BLOCK.replacen("\"writeback\":false", "\"writeback\":true", 1));
    let mut look = HostView::new(&fake);
    assert_eq!(Libvirt.guests(&look).guests[3].disks[0].cache, None);
    assert!(fake.ran().iter().all(|exec| !exec.stdin.is_empty()));
    look.monitor = true;
    let disk = &Libvirt.guests(&look).guests[3].disks[0];
    assert_eq!(disk.cache.as_deref(), Some("none"));
    assert!(disk.read()["cache"].contains("tainted"), "{:?}", disk.read());
    // The recorded guest turned its write cache off, so the mode is unknown.
    let off = host(QUERY_BLOCK.to_owned());
    let mut look = HostView::new(&off);
    look.monitor = true;
    assert_eq!(Libvirt.guests(&look).guests[3].disks[0].cache, None);
    assert!(off.ran().iter().any(|exec| exec.args.contains(&"qemu-monitor-command".to_owned())));

    // What the command line says is not queried.
    let fake = fake.file("/proc/812/comm", "qemu-system-x86\n").file("/proc/812/cmdline", CMDLINE.replace('\n', "\0"));
    let mut look = HostView::new(&fake);
    look.monitor = true;
    let before = fake.ran().len();
    assert_eq!(Libvirt.guests(&look).guests[3].disks[0].cache, None);
    let domain = "9a3f7f54-2f3a-4a1b-9a59-0d3a5b0c7c21".to_owned();
    assert!(fake.ran()[before..].iter().all(|exec| !exec.args.contains(&domain)));
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_is_there() {
    let denied = host_with(|_| Some(fails(1, "error: authentication unavailable: no polkit agent available")));
    let managed = Libvirt.guests(&HostView::new(&denied));
    assert_eq!(managed.guests, []);
    assert!(
        managed.unread[0].mend.contains("group libvirt") && managed.unread[0].what.contains("qemu:///system"),
        "{:?}",
        managed.unread
    );

    // One ended between the two queries, and one description is no XML.
    let end = SESSION.rfind("<domain type='qemu' id=").unwrap();
    let cut = SESSION[..end].replace("<name>oldbox</name>", "<name>old&box</name>");
    let fake =
        host_with(move |script| Some(says(if script.starts_with("list") { LIST.to_owned() } else { cut.clone() })));
    let managed = Libvirt.guests(&HostView::new(&fake));
    assert_eq!(managed.guests.len(), 2);
    let said: Vec<&str> = managed.unread.iter().map(|u| u.why.as_str()).collect();
    assert_eq!(said.iter().filter(|why| why.contains("ended meanwhile")).count(), 2, "{said:?}");
    assert_eq!(said.iter().filter(|why| why.contains("not XML")).count(), 2, "{said:?}");
}

/// db1's disk is a volume of a pool; its process has these mounts.
fn host_with_volume(mounts: &str) -> Fake {
    let file = "<source file='/var/lib/libvirt/images/db1.raw' index='2'/>";
    assert!(SESSION.contains(file));
    let description = SESSION.replace(file, "<source pool='fast' volume='db1'/>").replace(
        "<disk type='file' device='disk'>\n      <driver name='qemu' type='raw' cache='none'",
        "<disk type='volume' device='disk'>\n      <driver name='qemu' type='raw' cache='none'",
    );
    host_with(move |script| Some(says(if script.starts_with("list") { LIST.to_owned() } else { description.clone() })))
        .file("/proc/812/mountinfo", mounts)
        .symlink("/proc/812/fd/5", "/srv/fast/db1")
}

#[test]
fn sizes_that_no_file_shows_are_asked_where_no_server_can_halt_the_guest() {
    let root = "22 1 254:1 / / rw - ext4 /dev/vda1 rw\n";
    let local = host_with_volume(root);
    let vda = &of(&local, "db1").disks[0];
    assert_eq!((vda.place.source.as_deref(), vda.place.volume.as_deref()), (None, Some("fast/db1")));
    assert_eq!(
        (*vda.details.virtual_bytes, vda.details.virtual_bytes.source()),
        (Some(4 << 30), Some(&"virsh domstats db1".into()))
    );
    let script = String::from_utf8(local.ran()[2].stdin.clone()).unwrap();
    assert_eq!(script, "domstats --block --nowait 9a3f7f54-2f3a-4a1b-9a59-0d3a5b0c7c21\n");
    let served = host_with_volume(&format!("{root}23 22 0:50 / /srv/fast rw - nfs4 filer:/vm rw\n"));
    assert_eq!(of(&served, "db1").disks[0].details.virtual_bytes, None);
    assert_eq!(served.ran().len(), 2);
}

#[test]
fn numbers_in_a_description_take_no_more_memory_than_a_host_can_have() {
    let huge = "<domain type='kvm'><name>a</name><vcpu cpuset='0-8191'>4294967295</vcpu></domain>";
    let threads = written(huge).processors.unwrap().threads;
    assert_eq!(threads.iter().map(|t| t.cpus.len()).sum::<usize>(), 1 << 22);
    let many = "<domain type='kvm'><name>a</name><vcpu cpuset='1'>4294967295</vcpu></domain>";
    assert_eq!(written(many).processors.unwrap().threads.len(), 8192);
}

/// A default that nobody asked for: it is told with who set it, in libvirt's numbers.
#[test]
fn bandwidth_of_cloudstack() {
    let mut guest = written(include_str!("../../../tests/fixtures/managers/written/cloudstack.xml"));
    let unread = crate::limits::settle(&HostView::new(&Fake::new("fake")), std::slice::from_mut(&mut guest));
    assert_eq!(unread, []);
    let found = vmio_model::rules::findings(&guest.facts());
    let found = found.iter().find(|f| f.rule == "limit-in-force").unwrap();
    for words in ["25600", "204.8 Mbit/s", "to the guest", "from the guest", "CloudStack", "excess is dropped"] {
        assert!(found.cause.contains(words), "{words}: {}", found.cause);
    }
    assert!(found.evidence[0].value.starts_with("inbound average 25600 peak 25600 (204.8 Mbit/s)"), "{found:?}");
}

#[test]
fn instances_of_openstack() {
    let guest = written(include_str!("../../../tests/fixtures/managers/written/nova-rbd.xml"));
    assert_eq!(
        (guest.name.as_str(), guest.ids["openstack"].as_str(), guest.ids["flavor"].as_str()),
        ("instance-0000002a", "shop-db-1", "m1.large")
    );
    let vda = &guest.disks[0];
    assert_eq!((vda.details.storage.as_deref(), vda.place.block_device), (Some("rbd"), None));
    assert_eq!(vda.place.source.as_deref(), Some("rbd:vms/f1c6a2d7-8c8d-4e0f-9c51-6f0e0c3b9c55_disk"));
    assert_eq!(vda.details.limits[0], "104.9 read MB/s by QEMU's throttle");
    let nic = &guest.nics[0];
    assert_eq!(
        (*nic.vhost, *nic.queues, nic.interface.as_deref(), *nic.mtu_bytes),
        (Some(true), Some(4), Some("tapa3d9b2f4-2c"), Some(1450))
    );
    let processors = guest.processors.unwrap();
    assert_eq!((processors.model.as_deref(), *processors.quota_cpus), (Some("Cascadelake-Server"), Some(2.0)));
    assert_eq!(*processors.flags, ["+ss", "+hypervisor", "-mpx"]);
    assert_eq!(processors.threads.len(), 4);
    assert!(processors.threads.iter().all(|t| t.cpus == [2, 3, 5]));

    let guest = written(include_str!("../../../tests/fixtures/managers/written/nova-file.xml"));
    assert_eq!(guest.disks[0].details.backing_files, Some(1));
    assert_eq!(guest.processors.unwrap().huge_pages, Some(true));
    let nics: Vec<_> = guest
        .nics
        .iter()
        .map(|n| (n.model.as_deref().unwrap(), n.backend.as_deref(), n.interface.as_deref()))
        .collect();
    assert_eq!(nics, [("virtio-net", Some("vhost-user"), None), ("vfio", None, None)]);
}

#[test]
fn guests_of_virt_manager() {
    let linux = written(include_str!("../../../tests/fixtures/managers/written/virt-manager-linux.xml"));
    assert_eq!((linux.nics[0].backend.as_deref(), linux.nics[0].bridge.as_deref()), (Some("tap"), Some("virbr0")));
    assert_eq!((*linux.disks[0].details.discard, linux.disks[0].cache.as_deref()), (Some(true), None));
    let processors = linux.processors.unwrap();
    assert_eq!(
        (processors.model.as_deref(), *processors.accel, *processors.windows),
        (Some("host"), Some(Accel::Kvm), Some(false))
    );

    let windows = written(include_str!("../../../tests/fixtures/managers/written/virt-manager-win11.xml"));
    assert_eq!((windows.disks.len(), windows.disks[0].driver.as_deref()), (1, Some("ahci")));
    assert_eq!(
        (*windows.nics[0].windows, windows.nics[0].place.target.as_deref()),
        (Some(true), Some("52:54:00:9a:4f:6e"))
    );
    assert!(!windows.processors.unwrap().flags.contains(&"hv_evmcs".to_owned()));
}

/// The clock of Windows with Hyper-V's one alone, and a guest whose timers the description leaves to QEMU.
#[test]
fn timers_and_systems() {
    let of = |inner: &str| written(&format!("<domain type='kvm'><name>a</name>{inner}</domain>"));
    let timed = of("<clock offset='localtime'><timer name='hypervclock' present='yes'/></clock>").processors.unwrap();
    assert_eq!(timed.flags.join(" "), "hv_time");
    let plain = of("<features><hyperv><relaxed state='on'/><vapic state='off'/></hyperv></features>");
    let plain = plain.processors.unwrap();
    assert_eq!((plain.flags.join(" ").as_str(), *plain.hpet), ("hv_relaxed", None));
    let space = "http://libosinfo.org/xmlns/libvirt/domain/1.0";
    let bsd = of(&format!(
        "<metadata><l:libosinfo xmlns:l='{space}'><l:os id='http://freebsd.org/freebsd/14.0'/></l:libosinfo></metadata>\
         <devices><interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='br0'/>\
         <model type='virtio'/></interface></devices>"
    ));
    assert_eq!((bsd.os.as_deref(), bsd.nics[0].os.as_deref()), (Some("bsd"), Some("bsd")));
}

#[test]
fn odd_descriptions() {
    let with = |devices: &str| {
        written(&format!("<domain type='kvm'><name>a</name><vcpu>2</vcpu><devices>{devices}</devices></domain>"))
    };
    let threads = "<disk type='block'><driver cache='default' io='io_uring'><iothreads><iothread id='2'/><iothread id='3'/></iothreads></driver>\
                   <source dev='/dev/vg/a'/><target dev='vda' bus='virtio'/></disk>";
    let disk = &with(threads).disks[0];
    assert_eq!(
        (*disk.iothread, *disk.details.mapped_iothreads, disk.details.iothread_name.as_deref()),
        (Some(true), Some(2), None)
    );
    assert_eq!(
        (disk.cache.as_deref(), disk.aio.as_deref(), disk.place.block_device),
        (None, Some("io_uring"), Some(true))
    );
    let remote = "<disk type='network'><source protocol='nbd' name='a'><host transport='unix' socket='/run/n'/></source><target dev='sda' bus='scsi'/></disk>\
                  <disk type='network'><source protocol='iscsi' name='iqn.x/1'><host name='h' port='3260'/></source><target dev='sdb' bus='scsi'/>\
                  <address type='drive' controller='1'/></disk><controller type='scsi' index='1' model='lsilogic'/>";
    let disks = with(remote).disks;
    assert_eq!(
        (disks[0].place.source.as_deref(), disks[0].driver.as_deref()),
        (Some("nbd+unix:///a?socket=/run/n"), None)
    );
    assert_eq!(
        (disks[1].place.source.as_deref(), disks[1].driver.as_deref()),
        (Some("iscsi://h:3260/iqn.x/1"), Some("lsi53c895a"))
    );
    let nic = "<interface type='direct'><mac address='52:54:00:00:00:01'/><source dev='eth0' mode='bridge'/><target dev='macvtap0'/>\
               <bandwidth><inbound average='1000'/><outbound average='2500' peak='5000'/></bandwidth><tune><sndbuf>20000</sndbuf></tune></interface>";
    let nic = &with(nic).nics[0];
    assert_eq!(
        (nic.backend.as_deref(), nic.interface.as_deref(), nic.bridge.as_deref()),
        (Some("macvtap"), Some("macvtap0"), None)
    );
    assert_eq!(*nic.send_buffer_bytes, Some(20000));
    // The host sees a macvtap from the guest's side, a tap from its own.
    type Told = (&'static str, u64, Option<u64>, Option<u64>, bool);
    let limits = |nic: &vmio_model::facts::Nic| -> Vec<Told> {
        let all = nic.rate_limits.iter();
        let peak = |l: &RateLimit| l.peak_bps.map(BitRate::bits);
        all.map(|l| (l.direction.word(), l.rate_bps.bits(), peak(l), l.burst_bytes, l.drops)).collect()
    };
    assert_eq!(
        limits(nic),
        [
            ("guest_rx", 8_000_000, None, Some(1000 << 10), true),
            ("guest_tx", 20_000_000, Some(40_000_000), None, false)
        ]
    );
    let tap = "<interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='br0'/><target dev='vnet0'/>\
               <bandwidth><inbound average='1000' peak='5000' burst='1024'/><outbound average='125' peak='250'/></bandwidth></interface>";
    assert_eq!(
        limits(&with(tap).nics[0]),
        [
            ("guest_rx", 8_000_000, Some(40_000_000), Some(1 << 20), false),
            ("guest_tx", 1_000_000, None, Some(125 << 10), true)
        ]
    );

    let xen = written("<domain type='xen' id='3'><name>a</name></domain>");
    assert_eq!((xen.kind.as_str(), xen.ids["domid"].as_str()), ("xen", "3"));

    let from = |_: &str| vmio_model::facts::Provenance::Transcript { name: "test".into() };
    assert!(xml::guest("<domain><name> </name></domain>", &from).unwrap_err().to_string().contains("without a name"));
    assert!(xml::guest("<network/>", &from).unwrap_err().to_string().contains("a network"));
    assert_eq!(xml::cpu_set("0-2,^1,7"), Some(vec![0, 2, 7]));
    for wrong in ["", "a", "3-1", "0-4294967295", "0-3,x", "0-3,^x"] {
        assert_eq!(xml::cpu_set(wrong), None, "{wrong}");
    }
}
