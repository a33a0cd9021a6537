//! The command line as recorded, for each kind of disk.

#![allow(clippy::unwrap_used)]

use vmio_model::cell::{Aio, Cache, Nic, Options};

use super::super::{cards, drivers};
use super::*;
use crate::guests::NicSpec;

/// A line for each option.
fn lines(plan: &Plan<'_>) -> String {
    arguments(plan).join("\n").replace("\n-", "\n\u{1}-").replace('\n', " ").replace(" \u{1}", "\n")
}

fn plan<'a>(disks: &'a [(Storage, Attachment)], qemu: (u32, u32)) -> Plan<'a> {
    let disk = |(storage, attachment): &'a (Storage, Attachment)| PlannedDisk {
        storage,
        attachment,
        model: drivers::find(&attachment.driver).unwrap(),
    };
    Plan {
        nics: Vec::new(),
        name: "guest0",
        qemu: QemuVersion { major: qemu.0, minor: qemu.1 },
        accel: Accel::Tcg,
        arch: Arch::X86_64,
        vcpus: 1,
        memory_mib: 256,
        kernel: "/s/kernel".into(),
        tools: "/s/tools.ext2".into(),
        paths: Paths::below(Path::new("/run/v,mio/g")),
        disks: disks.iter().map(disk).collect(),
        balloon: false,
    }
}

fn assert_recorded(made: &str, golden: &str) {
    assert_eq!(made.lines().collect::<Vec<_>>(), golden.lines().collect::<Vec<_>>(), "made:\n{made}\n");
}

fn disk(driver: &str, cache: Cache, aio: Aio) -> Attachment {
    Attachment::new(driver, cache, aio)
}

fn file() -> Storage {
    Storage::File("/scratch/a,b.raw".into())
}

#[test]
fn command_line_is_as_recorded() {
    let disks = [
        (file(), disk("lsi53c895a", Cache::Writeback, Aio::Threads)),
        (Storage::BlockDevice("/dev/loop7".into()), disk("virtio-blk", Cache::None, Aio::IoUring).iothread(true)),
    ];
    let plan = plan(&disks, (7, 2));
    assert_recorded(&lines(&plan), include_str!("../../../tests/fixtures/qemu/arguments.txt"));

    let with = arguments(&Plan { balloon: true, ..plan.clone() });
    assert!(with.contains(&"virtio-balloon-pci,id=balloon0,addr=05.0".to_owned()), "{with:?}");
    let kvm = arguments(&Plan { accel: Accel::Kvm, ..plan });
    let after = |option: &str| kvm[kvm.iter().position(|a| a == option).unwrap() + 1].as_str();
    assert_eq!(
        (after("-accel"), after("-cpu"), after("-append")),
        ("kvm", "host", &*format!("console=ttyS0 {KERNEL}"))
    );
    assert_eq!(after("-smp"), "1");
}

/// What is on the PCI bus has an address there, in the order of all; what is on none has none.
#[test]
fn a_guest_of_64_bit_arm_has_virtio_with_and_without_a_bus() {
    let disks = [
        (file(), disk("virtio-blk-mmio", Cache::None, Aio::Native)),
        (file(), disk("virtio-blk", Cache::None, Aio::Native)),
    ];
    let nic = |model: &str, tap: &str| NicSpec { nic: Nic::new(model), tap: tap.into(), mac: "m".into() };
    let specs = [nic("virtio-net-mmio", "t0"), nic("virtio-net", "t1")];
    let nics = specs.iter().map(|spec| PlannedNic { spec, card: cards::find(&spec.nic.model).unwrap() });
    let args = arguments(&Plan { arch: Arch::Aarch64, nics: nics.collect(), ..plan(&disks, (7, 2)) });
    let after = |option: &str| -> Vec<&str> {
        args.windows(2).filter(|pair| pair[0] == option).map(|pair| pair[1].as_str()).collect()
    };
    assert_eq!(
        (after("-machine"), after("-cpu"), after("-global"), after("-smp")),
        (vec!["virt"], vec!["cortex-a57"], vec!["virtio-mmio.force-legacy=false"], vec!["1,maxcpus=2"])
    );
    assert_eq!(after("-append"), [format!("console=ttyAMA0 {KERNEL} nr_cpus=1")]);
    let devices = after("-device");
    let of = |start: &str| *devices.iter().find(|device| device.starts_with(start)).unwrap();
    assert!(!of("virtio-blk-device,id=disk0").contains("addr="), "{devices:?}");
    assert!(of("virtio-blk-pci,id=disk1").ends_with("addr=04.0"), "{devices:?}");
    assert!(!of("virtio-net-device,id=net0").contains("addr="), "{devices:?}");
    assert!(of("virtio-net-pci,id=net1").ends_with("addr=06.0"), "{devices:?}");
}

/// One processor and never more lets TCG drop the guest's barriers: requests are lost then.
#[test]
fn under_emulation_one_processor_keeps_its_barriers() {
    let after = |accel: Accel, vcpus: u32, option: &str| {
        let args = arguments(&Plan { accel, vcpus, ..plan(&[], (7, 2)) });
        args[args.iter().position(|a| a == option).unwrap() + 1].clone()
    };
    assert_eq!(after(Accel::Tcg, 1, "-smp"), "1,maxcpus=2");
    assert!(after(Accel::Tcg, 1, "-append").ends_with(" nr_cpus=1"));
    for (accel, vcpus) in [(Accel::Tcg, 2), (Accel::Kvm, 1)] {
        assert_eq!(after(accel, vcpus, "-smp"), vcpus.to_string());
        assert!(!after(accel, vcpus, "-append").contains("nr_cpus"));
    }
}

/// Every driver, cache mode, option and kind of storage; of the lines those that concern disks.
#[test]
fn disks_are_as_recorded() {
    let with = |attachment: Attachment, options| Attachment { options, ..attachment };
    let queues = |n| Options { queues: Some(n), ..Options::default() };
    let zeroes = Options { discard: true, detect_zeroes: DetectZeroes::Unmap, ..Options::default() };
    let qcow2 = Storage::Image {
        path: "/scratch/d.qcow2".into(),
        format: "qcow2",
        options: json!({"l2-cache-size": 1 << 20}).as_object().unwrap().clone(),
    };
    let nbd = || Storage::Nbd { socket: "/run/x,y/nbd".into(), export: "disk".into() };
    let rbd = |conf: Option<&str>| Storage::Rbd {
        pool: "rbd".into(),
        image: "vm-1".into(),
        conf: conf.map(PathBuf::from),
        user: conf.map(|_| "vmio".into()),
    };
    let disks = [
        (file(), disk("ahci", Cache::Writethrough, Aio::Threads)),
        (file(), disk("nvme", Cache::Directsync, Aio::Native)),
        (file(), with(disk("virtio-scsi", Cache::Unsafe, Aio::IoUring).iothread(true), queues(4))),
        (qcow2, with(disk("virtio-blk", Cache::None, Aio::Native), zeroes)),
        (nbd(), disk("lsi53c895a", Cache::None, Aio::Threads)),
        (nbd(), disk("virtio-blk", Cache::Directsync, Aio::Threads)),
        (rbd(None), disk("virtio-blk", Cache::Writeback, Aio::Threads)),
        (rbd(Some("/etc/ceph/ceph.conf")), disk("virtio-scsi", Cache::None, Aio::Threads)),
        (
            Storage::VhostUserBlk { socket: "/run/x,y/vhost".into() },
            with(disk("virtio-blk", Cache::None, Aio::Threads), queues(2)),
        ),
    ];
    let made = lines(&plan(&disks, (7, 2)));
    let of_disks: Vec<&str> =
        made.lines().filter(|l| ["disk", "node", "memory", "io2"].iter().any(|word| l.contains(word))).collect();
    assert_recorded(&of_disks.join("\n"), include_str!("../../../tests/fixtures/qemu/disks.txt"));
}

#[test]
fn a_server_on_another_host_is_reached_by_its_address() {
    let server = "198.18.255.2:10809".parse().unwrap();
    let storage = Storage::NbdTcp { server, export: "disk".into() };
    let made = lines(&plan(&[(storage, disk("virtio-blk", Cache::None, Aio::Threads))], (7, 2)));
    let server = r#""server":{"host":"198.18.255.2","port":"10809","type":"inet"}"#;
    for part in [
        r#""driver":"nbd""#,
        r#""node-name":"node0-file""#,
        r#""cache":{"direct":true"#,
        r#""reconnect-delay":5"#,
        server,
    ] {
        assert!(made.contains(part), "no {part} in {made}");
    }
}

#[test]
fn a_server_with_tls_is_reached_by_the_key_of_a_file() {
    let storage = |server: &str| Storage::NbdTls {
        server: server.parse().unwrap(),
        export: "disk".into(),
        keys: "/dev/shm/x,y".into(),
    };
    let asked = || disk("virtio-blk", Cache::None, Aio::Threads);
    let disks = [(storage("192.0.2.7:10809"), asked()), (storage("192.0.2.7:10809"), asked())];
    let made = lines(&plan(&disks, (7, 2)));
    for node in ["node0", "node1"] {
        let key = format!("-object tls-creds-psk,id={node}-tls,endpoint=client,dir=/dev/shm/x,,y,username=vmio");
        assert!(made.lines().any(|line| line == key), "no {key} in {made}");
        assert!(made.contains(&format!(r#""tls-creds":"{node}-tls""#)), "{made}");
    }
}

#[test]
fn a_disk_of_an_iscsi_target_is_reached_by_its_portal() {
    let portal = "198.18.255.3:3260".parse().unwrap();
    let storage = Storage::Iscsi { portal, target: "iqn.2026-11.invalid.vmio:disk".into(), lun: 1 };
    let made = lines(&plan(&[(storage, disk("virtio-blk", Cache::None, Aio::Threads))], (7, 2)));
    for part in [
        r#""driver":"iscsi","lun":1,"node-name":"node0-file","portal":"198.18.255.3:3260""#,
        r#""target":"iqn.2026-11.invalid.vmio:disk","timeout":15,"transport":"tcp""#,
        r#""driver":"raw","file":"node0-file","node-name":"node0""#,
    ] {
        assert!(made.contains(part), "no {part} in {made}");
    }
}

/// Above it stands the node whose child is exchanged, as above a disk image.
#[test]
fn a_server_with_a_cache_can_be_exchanged() {
    let storage = Storage::CachedNbd { socket: "/dev/shm/d/0-hits.sock".into() };
    let made = lines(&plan(&[(storage, disk("virtio-blk", Cache::None, Aio::Threads))], (7, 2)));
    for part in [
        r#""driver":"nbd","node-name":"node0-file","server":{"path":"/dev/shm/d/0-hits.sock","type":"unix"}"#,
        r#""driver":"raw","file":"node0-file","node-name":"node0-image""#,
        r#""driver":"raw","file":"node0-image","node-name":"node0""#,
    ] {
        assert!(made.contains(part), "no {part} in {made}");
    }
}

/// It has no block node: no request of it goes through QEMU.
#[test]
fn a_device_of_the_hosts_is_given_by_its_address() {
    let storage = Storage::PassedThrough { address: "0000:03:00.0".into() };
    let made = lines(&plan(&[(storage, disk("nvme", Cache::None, Aio::Native))], (7, 2)));
    assert!(made.contains("-device vfio-pci,id=disk0,host=0000:03:00.0,addr=03.0"), "{made}");
    assert!(!made.contains("node0"), "{made}");
}

/// `iothread-vq-mapping`, which no QEMU before 9.0 reads.
#[test]
fn queues_over_io_threads_are_as_recorded() {
    let options = Options { queues: Some(4), mapped_iothreads: Some(2), ..Options::default() };
    let disks = [(file(), Attachment { options, ..disk("virtio-blk", Cache::None, Aio::Native) })];
    let made = lines(&plan(&disks, (9, 0)));
    let of_disks: Vec<&str> = made.lines().filter(|l| l.contains("disk0") || l.contains("iothread")).collect();
    assert_recorded(&of_disks.join("\n"), include_str!("../../../tests/fixtures/qemu/mapped.txt"));
}

#[test]
fn network_devices_have_the_places_after_the_disks() {
    let disks: Vec<_> = (0..28).map(|_| (file(), disk("virtio-blk", Cache::None, Aio::Threads))).collect();
    let many = Nic { vhost: true, queues: Some(4), ..Nic::new("virtio-net") };
    let specs = [many, Nic::new("e1000")].map(|nic| NicSpec {
        tap: format!("tap-{}", nic.model),
        mac: "52:54:00:00:00:01".into(),
        nic,
    });
    let planned = |spec| PlannedNic { spec, card: cards::find(&spec.nic.model).unwrap() };
    let nics = specs.iter().map(planned).collect();
    let made = arguments(&Plan { nics, ..plan(&disks, (7, 2)) });
    let after = |words: &str| {
        let at = made.iter().position(|a| a.starts_with(words)).unwrap_or_else(|| panic!("no {words}: {made:?}"));
        (made[at - 1].as_str(), made[at].as_str())
    };
    let tap = "tap,id=path0,ifname=tap-virtio-net,script=no,downscript=no,vhost=on,vhostforce=on,queues=4";
    assert_eq!(after("tap,id=path0"), ("-netdev", tap));
    let device = "virtio-net-pci,id=net0,netdev=path0,mac=52:54:00:00:00:01,mq=on,vectors=10,addr=03.1";
    assert_eq!(after("virtio-net-pci"), ("-device", device));
    assert_eq!(after("e1000"), ("-device", "e1000,id=net1,netdev=path1,mac=52:54:00:00:00:01,addr=04.1"));
    assert_eq!(after("tap,id=path1").1, "tap,id=path1,ifname=tap-e1000,script=no,downscript=no");
    let shared: Vec<&String> = made.iter().filter(|a| a.contains("multifunction=on")).collect();
    assert_eq!(shared.len(), 2, "the disks whose slots they are in: {shared:?}");
}

#[test]
fn more_disks_than_slots_share_them() {
    let disks: Vec<_> = (0..60).map(|_| (file(), disk("virtio-blk", Cache::None, Aio::Threads))).collect();
    let made = arguments(&plan(&disks, (7, 2)));
    let of = |i: usize| made.iter().find(|a| a.contains(&format!("id=disk{i},"))).unwrap().as_str();
    assert!(of(0).ends_with(",addr=03.0,multifunction=on"), "{}", of(0));
    assert!(of(27).ends_with(",addr=1e.0,multifunction=on"), "{}", of(27));
    assert!(of(28).ends_with(",addr=03.1"), "{}", of(28));
    assert!(of(59).ends_with(",addr=06.2"), "{}", of(59));
    let mut places: Vec<String> = (0..MOST_DEVICES).map(|i| PciAddress::of(i).to_string()).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), MOST_DEVICES);
    assert_eq!((places[0].as_str(), places[MOST_DEVICES - 1].as_str()), ("03.0", "1e.7"));
}

#[test]
fn the_raw_node_keeps_the_disks_name_and_settings() {
    let layers = vec![
        json!({"driver": "file", "node-name": "node3-file", "filename": "/a"}),
        json!({"driver": "qcow2", "node-name": "node3", "file": "node3-file", "cache": {"direct": true},
               "discard": "unmap", "detect-zeroes": "unmap"}),
    ];
    let made = under_raw(layers, "node3", 2);
    assert_eq!(made[0]["node-name"], "node3-file-2");
    assert_eq!((&made[1]["node-name"], &made[1]["file"]), (&json!("node3-image-2"), &json!("node3-file-2")));
    assert_eq!(made[1]["discard"], "unmap");
    assert!(made[1].get("detect-zeroes").is_none());
    let top = json!({"driver": "raw", "node-name": "node3", "file": "node3-image-2", "cache": {"direct": true},
                     "discard": "unmap", "detect-zeroes": "unmap"});
    assert_eq!(made[2], top);
}
