#![allow(clippy::unwrap_used)]

use vmio_model::cell::Cache;
use vmio_node::fake::Fake;

use super::*;

fn asked(aio: Aio, iothread: bool, storage: Storage) -> Asked {
    let attachment = Attachment::new("virtio-blk", Cache::None, aio).iothread(iothread);
    Asked { id: String::new(), attachment, storage, guest: "/dev/vdb".into() }
}

#[test]
fn an_engine_without_its_ring_is_threads() {
    let file = || Storage::File("/d.raw".into());
    let disks = [
        asked(Aio::Native, false, file()),
        asked(Aio::Native, true, file()),
        asked(Aio::IoUring, false, file()),
        asked(Aio::Threads, false, file()),
        asked(Aio::Native, false, file()),
        // The I/O is the server's: it needs no ring of this QEMU and says nothing of one.
        asked(Aio::IoUring, true, Storage::Nbd { socket: "/s".into(), export: "e".into() }),
    ];
    let ring = "7f00-7f01 rw-s 00000000 00:0f 1 /[aio] (deleted)\n";
    let host = |rings: usize, uring: &str| {
        Fake::new("fake")
            .file("/proc/9/maps", ring.repeat(rings))
            .file("/proc/9/fdinfo/5", format!("pos:\t0\nflags:\t02\n{uring}"))
    };
    let engines = |fake: &Fake| {
        let rings = Rings::of(fake, 9);
        (0..disks.len()).map(|i| engine(rings, i, &disks)).collect::<Vec<_>>()
    };
    let (native, threads) = (Some(Aio::Native), Some(Aio::Threads));
    // Two event loops use Linux AIO: the main one (disks 0 and 4) and that of disk 1.
    let uring = "SqMask:\t0xff\nCqMask:\t0x1ff\n";
    assert_eq!(engines(&host(2, uring)), [native, native, Some(Aio::IoUring), threads, native, None]);
    assert_eq!(engines(&host(1, "")), [threads, threads, threads, threads, threads, None]);
}

#[test]
fn block_settings_are_those_of_both_nodes() {
    // From query-block and query-named-block-nodes of QEMU 7.2, shortened.
    let blocks = json!([{"device": "", "inserted": {"node-name": "tools", "cache": {"direct": false}}},
        {"device": "", "qdev": "disk0", "inserted": {"node-name": "node0", "drv": "raw", "file": "/d.raw", "bps": 0,
          "iops": 0, "detect_zeroes": "off", "cache": {"no-flush": false, "direct": true, "writeback": false}}}]);
    let nodes = |direct: bool| {
        json!([{"node-name": "node0", "cache": {"no-flush": false, "direct": true, "writeback": true}},
            {"node-name": "node0-file", "cache": {"no-flush": false, "direct": direct, "writeback": true}}])
    };
    let read = |nodes: &Value, node: &str| {
        let mut found = Settings::new();
        block(&blocks, nodes, node, &mut found);
        found
    };
    let found = read(&nodes(true), "node0");
    for (name, value) in [
        (key::CACHE_DIRECT, "true"),
        (key::CACHE_NO_FLUSH, "false"),
        (key::CACHE_WRITEBACK, "false"),
        (key::DETECT_ZEROES, "off"),
        (FILE, "/d.raw"),
    ] {
        assert_eq!(found[name], value, "{name}");
    }
    assert_eq!(read(&nodes(false), "node0")[key::CACHE_DIRECT], "true above false");
    assert!(read(&nodes(true), "node7").is_empty());
}

#[test]
fn what_the_guest_made_of_a_disk() {
    let guest = Fake::new("guest")
        .file("/sys/block/vdb/queue/write_cache", "write through\n")
        .file("/sys/block/vdb/queue/discard_max_bytes", "2147483136\n")
        .file("/sys/block/vdb/mq/0/cpu_list", "0\n")
        .file("/sys/block/vdb/mq/1/cpu_list", "1\n");
    let mut found = Settings::new();
    seen_by_guest(&guest, Path::new("/dev/vdb"), &mut found);
    assert_eq!(found[key::GUEST_WRITE_CACHE], "write through");
    assert_eq!(found[key::GUEST_DISCARD_BYTES], "2147483136");
    assert_eq!(found[key::GUEST_QUEUES], "2");
}

#[test]
fn threads_of_mapped_queues_are_listed() {
    // QAPI IOThreadVirtQueueMappingList of QEMU 9.0, as qom-get gives it.
    let list = json!([{"iothread": "io0-0", "vqs": [0, 2]}, {"iothread": "io0-1", "vqs": [1, 3]}]);
    assert_eq!(mapped_threads(&list).unwrap(), "io0-0,io0-1");
    assert_eq!(mapped_threads(&json!([])).unwrap(), "");
    assert_eq!(last_part("/objects/io3").unwrap(), "io3");
}

#[test]
fn controllers_of_the_command_line_are_found() {
    let bus = "/machine/peripheral/disk0-hba/disk0-hba.0";
    assert_eq!(controller_of(bus).unwrap(), "/machine/peripheral/disk0-hba");
    assert_eq!(controller_of("/machine/q35/pcie.0"), None);
}
