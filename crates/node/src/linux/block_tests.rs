#![allow(clippy::unwrap_used)]
use super::*;
use crate::{Fake, Local};

#[test]
fn a_device_says_what_it_is() {
    let fake = Fake::new("fake")
        .file("/sys/dev/block/104:0/uevent", "MAJOR=104\nDEVNAME=cciss/c0d0\nDEVTYPE=disk\n")
        .file("/sys/dev/block/104:1/uevent", "MAJOR=104\n")
        .file("/sys/block/sda/dev", "8:0\n")
        .file("/sys/block/sda/size", "2048\n")
        .file("/sys/block/sda/ro", "1\n")
        .file("/sys/block/sda/queue/logical_block_size", "4096\n")
        .file("/sys/block/sda/queue/rotational", "0\n")
        .file("/sys/block/sda/queue/write_cache", "write back\n")
        .file("/sys/block/sda/queue/discard_max_bytes", "0\n")
        .file("/sys/block/sda/queue/scheduler", "none [mq-deadline] kyber bfq\n")
        .file("/sys/block/sda/mq/0/cpu_list", "0\n")
        .file("/sys/block/sda/sda1/partition", "1\n")
        .file("/sys/block/sda/sda1/holders/dm-0", "")
        .file("/sys/class/block/sda1/dev", "8:1\n")
        .file("/sys/block/dm-0/dm/name", "vg0-root\n")
        .file("/sys/block/dm-0/dm/uuid", "LVM-x\n")
        .file("/sys/block/dm-1/dm/uuid", "\n")
        .file("/sys/block/dm-0/slaves/sda1", "");
    let numbered = |number| Device::numbered(&fake, number).node_name();
    assert_eq!(numbered((104, 0)).unwrap().as_deref(), Some("cciss/c0d0"));
    assert_eq!((numbered((104, 1)).unwrap(), numbered((104, 2)).is_err()), (None, true));
    assert_eq!((&*sysfs_name("cciss/c0d0"), node_path("cciss!c0d0")), ("cciss!c0d0", "/dev/cciss/c0d0".into()));
    let disk = Device::named(&fake, "sda");
    assert_eq!((disk.number(), disk.size_bytes(), disk.is_read_only()), (Some((8, 0)), Some(1 << 20), true));
    assert_eq!((disk.logical_block_bytes(), disk.is_rotational(), disk.queues()), (Some(4096), Some(false), Some(1)));
    assert_eq!((disk.write_cache().as_deref(), disk.discard_max_bytes()), (Some("write back"), Some(0)));
    assert_eq!((disk.partitions(), disk_of(&fake, "sda1").as_deref()), (vec!["sda1".to_owned()], Some("sda")));
    assert_eq!((disk.inner("sda1").holders(), disk_of(&fake, "queue")), (vec!["dm-0".to_owned()], None));
    assert_eq!((disk.scheduler().as_deref(), disk.inner("sda1").scheduler()), (Some("mq-deadline"), None));
    let partition = Device::named(&fake, "sda1");
    assert_eq!((partition.number(), partition.dir.to_str()), (Some((8, 1)), Some("/sys/class/block/sda1")));
    let mapped = Device::whole(&fake, "dm-0");
    assert_eq!((mapped.mapper_name().as_deref(), mapped.mapper_uuid().as_deref()), (Some("vg0-root"), Some("LVM-x")));
    assert_eq!((mapped.slaves(), mapped.size_bytes(), mapped.write_cache()), (vec!["sda1".to_owned()], None, None));
    assert_eq!((Device::whole(&fake, "dm-1").mapper_uuid().as_deref(), disk.mapper_uuid()), (Some(""), None));
    assert!(!Device::whole(&fake, "sdb").is_there() && disk.slaves().is_empty());
}

#[test]
fn read_ahead_of_devices_and_file_systems() {
    let stat = |mode, dev, rdev| crate::FileStat { mode, size: 0, allocated: 0, dev, rdev };
    let fake = Fake::new("fake")
        .node("/dev/vda", stat(0o060_600, (0, 5), (254, 0)))
        .node("/dev/vda1", stat(0o060_600, (0, 5), (254, 1)))
        .node("/srv/file", stat(0o100_600, (254, 1), (0, 0)))
        .node("/mnt/nfs/file", stat(0o100_600, (0, 52), (0, 0)))
        .node("/tmp/file", stat(0o100_600, (0, 30), (0, 0)))
        .file("/sys/dev/block/254:0/queue/read_ahead_kb", "128\n")
        .file("/sys/dev/block/254:1/partition", "1\n")
        .file("/sys/dev/block/254:1/../queue/read_ahead_kb", "256\n")
        .file("/sys/class/bdi/0:52/read_ahead_kb", "15360\n");
    let of = |path: &str| read_ahead_kib(&fake, Path::new(path));
    assert_eq!((of("/dev/vda"), of("/dev/vda1"), of("/srv/file")), (Some(128), Some(256), Some(256)));
    assert_eq!((of("/mnt/nfs/file"), of("/tmp/file"), of("/not/there")), (Some(15_360), None, None));
    assert_eq!(Device::numbered(&fake, (254, 0)).read_ahead_kib(), Some(128));
}

#[test]
fn counters_may_be_switched_off() {
    for (iostats, queues, counts) in [("1\n", true, Some(true)), ("0\n", true, Some(false)), ("0\n", false, None)] {
        let mut fake = Fake::new("fake").file("/sys/block/sda/queue/iostats", iostats);
        if queues {
            fake = fake.file("/sys/block/sda/mq/0/cpu_list", "0\n");
        }
        assert_eq!(Device::whole(&fake, "sda").counts(), counts, "{iostats:?} {queues}");
    }
}

#[test]
fn a_senseless_block_size_is_not_known() {
    for (text, bytes) in [("512\n", Some(512)), ("0\n", None), ("513\n", None), ("", None), ("-1\n", None)] {
        let fake = Fake::new("fake").file("/sys/block/sda/queue/logical_block_size", text);
        assert_eq!(Device::whole(&fake, "sda").logical_block_bytes(), bytes, "{text:?}");
    }
}

#[test]
fn numbered_device_names() {
    assert!(is_zvol("zd16") && is_numbered("zram0", "zram"));
    for other in ["zd", "zd1p1", "zdx", "sda", "azd1"] {
        assert!(!is_zvol(other), "{other}");
    }
}

#[test]
fn the_file_behind_a_loop_device() {
    let of = |text: &[u8]| {
        let fake = Fake::new("fake").file("/sys/block/loop3/loop/backing_file", text);
        Device::whole(&fake, "loop3").loop_file()
    };
    let there = of(b"/images/a b\n").unwrap();
    assert_eq!((there.shown.to_str(), there.path.to_str()), (Some("/images/a b"), Some("/images/a b")));
    let gone = of(b"/images/a (deleted)\n").unwrap();
    assert_eq!((gone.shown.to_str(), gone.path.to_str()), (Some("/images/a (deleted)"), Some("/images/a")));
    // A name of which each byte counts.
    assert_eq!(of(b"/x\xff \n\n").unwrap().path.into_os_string().into_vec(), b"/x\xff \n");
    assert_eq!(Device::whole(&Fake::new("fake"), "loop3").loop_file(), None);
}

#[test]
fn control_characters_are_removed() {
    assert_eq!(printable(b"  S3Z8 \x1b[31mNB0K  \n").as_deref(), Some("S3Z8 [31mNB0K"));
    assert_eq!(printable("\u{202e}a".as_bytes()).as_deref(), Some("a"));
    assert_eq!((printable(b" \n"), printable(b"\xff\xfe")), (None, None));
    assert_eq!(printable(&[b'a'; 99]).unwrap().len(), 64);
}

#[test]
fn serial_numbers_by_kind_of_disk() {
    let serial = |file: &str, content: &[u8]| {
        let fake = Fake::new("fake").file(format!("/sys/block/x/{file}"), content).file("/sys/block/x/size", "1");
        Device::whole(&fake, "x").serial()
    };
    assert_eq!(serial("serial", b"vmio-0\n").as_deref(), Some("vmio-0"));
    assert_eq!(serial("device/serial", b"S3Z8NB0K    \n").as_deref(), Some("S3Z8NB0K"));
    assert_eq!(serial("device/vpd_pg80", b"\0\x80\0\x08  WD-1234").as_deref(), Some("WD-1234"));
    // The head's first byte is the type of device (0x14: a zoned disk), and its length may be a letter's number.
    assert_eq!(serial("device/vpd_pg80", b"\x14\x80\0\x2812345678").as_deref(), Some("12345678"));
    assert_eq!((serial("device/vpd_pg80", b"\0\x83\0\x041234"), serial("device/vpd_pg80", b"\0\x80")), (None, None));
    // One that is there and empty is none: the next place is looked at.
    let fake = Fake::new("fake").file("/sys/block/x/serial", "\n").file("/sys/block/x/device/serial", "S1\n");
    assert_eq!(Device::whole(&fake, "x").serial().as_deref(), Some("S1"));
}

#[test]
fn counters_of_every_kernel() {
    let now = Counters::parse(
        "56229 8337 4633746 18951 15800 22175 5681624 16921 0 11388 36359 4366 31 598176 414 1912 71\n",
    );
    let now = now.unwrap();
    assert_eq!(now.reads, Requests { ios: 56_229, bytes: 4_633_746 * 512, ms: 18_951 });
    assert_eq!(now.writes, Requests { ios: 15_800, bytes: 5_681_624 * 512, ms: 16_921 });
    assert_eq!(now.discards, Requests { ios: 4366, bytes: 598_176 * 512, ms: 414 });
    assert_eq!(now.flushes, Requests { ios: 1912, bytes: 0, ms: 71 });
    assert_eq!((now.busy_ms, now.queue_ms), (11_388, 36_359));
    let before = Counters { reads: Requests { ios: 56_000, ..now.reads }, ..now };
    let done = Counters { reads: Requests { ios: 229, ..Requests::default() }, ..Counters::default() };
    assert_eq!((now.since(&before), before.since(&now)), (Some(done), None));
    let old = Counters::parse("1 0 8 2 3 0 16 4 0 5 6").unwrap();
    assert_eq!(
        (old.reads.ios, old.queue_ms, old.discards, old.flushes),
        (1, 6, Requests::default(), Requests::default())
    );
    for none in [
        "",
        "1 2 3",
        "1 0 8 2 3 0 16 4 0 5 x",
        "1 0 8 2 3 0 16 4 0 5 6 7 8 -1",
        "1 0 99999999999999999 2 3 0 16 4 0 5 6",
    ] {
        assert_eq!(Counters::parse(none), None, "{none}");
    }
}

#[test]
fn a_network_block_device_names_its_client_while_it_has_one() {
    let host = Fake::new("host").file("/sys/block/nbd0/pid", "1234\n").file("/sys/block/nbd1/size", "0\n");
    let client = |name: &str| Device::whole(&host, name).nbd_client();
    assert_eq!((client("nbd0"), client("nbd1"), client("nbd2")), (Some(1234), None, None));
    assert_eq!(name_at(Path::new("/dev/nbd0")).as_deref(), Some("nbd0"));
    assert_eq!(name_at(Path::new("/dev/etherd/e0.0")).as_deref(), Some("etherd!e0.0"));
    assert_eq!(name_at(Path::new("/proc/7/fd/9")), None);
}

#[test]
fn lines_of_diskstats() {
    let text = " 254       0 vda 10 1 80\n   8 16 sdb 1 0 8\nx 0 sdc 1\n 7 0 loop0\n";
    assert_eq!(diskstats(text).collect::<Vec<_>>(), [((254, 0), "vda", "10 1 80"), ((8, 16), "sdb", "1 0 8")]);
    // Of this machine: a disk's line holds what its `stat` holds, and no counter goes back.
    let local = Local::new();
    let all = local.read_text(Path::new("/proc/diskstats")).unwrap_or_default();
    for (number, name, fields) in diskstats(&all) {
        let device = Device::numbered(&local, number);
        let now = local.read_text(&device.dir.join("stat")).unwrap();
        let (then, now) = (Counters::parse(fields).unwrap(), Counters::parse(&now).unwrap());
        assert!(now.reads.ios >= then.reads.ios && now.busy_ms >= then.busy_ms, "{name}");
        assert_eq!(device.node_name().unwrap().map(|n| sysfs_name(&n)).as_deref(), Some(name));
    }
}
