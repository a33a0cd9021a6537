#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use vmio_model::cell::{Cache, Options};
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

/// From query-block of QEMU 7.2, shortened.
fn blocks() -> Value {
    json!([{"device": "", "inserted": {"node-name": "tools", "cache": {"direct": false}}},
        {"device": "", "qdev": "disk0", "inserted": {"node-name": "node0", "drv": "raw", "file": "/d.raw", "bps": 0,
          "iops": 0, "detect_zeroes": "off", "cache": {"no-flush": false, "direct": true, "writeback": false}}}])
}

/// From its query-named-block-nodes, with the node of the file.
fn nodes(file: &str, direct: bool) -> Value {
    json!([{"node-name": "node0", "cache": {"no-flush": false, "direct": true, "writeback": true}},
        {"node-name": file, "cache": {"no-flush": false, "direct": direct, "writeback": true}}])
}

/// What is read of both.
fn block_settings(nodes: &Value, node: &str) -> Settings {
    let mut found = Settings::new();
    block(&blocks(), nodes, node, &mut found);
    found
}

#[test]
fn block_settings_are_those_of_both_nodes() {
    let found = block_settings(&nodes("node0-file", true), "node0");
    for (name, value) in [
        (key::CACHE_DIRECT, "true"),
        (key::CACHE_NO_FLUSH, "false"),
        (key::CACHE_WRITEBACK, "false"),
        (key::DETECT_ZEROES, "off"),
        (FILE, "/d.raw"),
    ] {
        assert_eq!(found[name], value, "{name}");
    }
    assert_eq!(block_settings(&nodes("node0-file", false), "node0")[key::CACHE_DIRECT], "true above false");
    assert!(block_settings(&nodes("node0-file", true), "node7").is_empty());
}

#[test]
fn after_an_exchange_the_settings_are_found_just_the_same() {
    for direct in [true, false] {
        let of = |file: &str| block_settings(&nodes(file, direct), "node0");
        assert_eq!(of("node0-file-2"), of("node0-file"));
    }
}

/// A monitor of a QEMU with this disk, which is on virtio-blk.
fn monitor() -> Qmp {
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        let say = |said: Value| (&theirs).write_all(format!("{said}\n").as_bytes()).unwrap();
        say(json!({"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 22}}}}));
        for line in BufReader::new(&theirs).lines().map_while(Result::ok) {
            let asked: Value = serde_json::from_str(&line).unwrap();
            let (id, of) = (&asked["id"], &asked["arguments"]);
            say(match asked["execute"].as_str().unwrap() {
                "qmp_capabilities" => json!({"id": id, "return": {}}),
                "query-block" => json!({"id": id, "return": blocks()}),
                "query-named-block-nodes" => json!({"id": id, "return": nodes("node0-file", true)}),
                "qom-get" if of["path"] == "/machine/peripheral/disk0" && of["property"] == "type" => {
                    json!({"id": id, "return": "virtio-blk-pci"})
                }
                _ => json!({"id": id, "error": {"class": "GenericError", "desc": "not found"}}),
            });
        }
    });
    Qmp::over("qemu", ours).unwrap()
}

#[test]
fn a_disk_that_is_not_as_asked_is_refused() {
    let (host, guest) =
        (Fake::new("host"), Fake::new("guest").file("/sys/block/vdb/queue/write_cache", "write through\n"));
    let from = Sources { host: &host, guest: &guest, pid: 9 };
    let mut qmp = monitor();
    let mut read_with = |cache: Cache| {
        let mut disk = asked(Aio::Threads, false, Storage::File("/d.raw".into()));
        disk.attachment.cache = cache;
        read(&mut qmp, &from, &[disk])
    };
    assert_eq!(read_with(Cache::Directsync).unwrap()[""][key::DEVICE], "virtio-blk-pci");
    let refused = read_with(Cache::None).unwrap_err();
    assert!(matches!(refused, Error::NotAsAsked { .. }), "{refused}");
    assert!(refused.to_string().contains("cache.writeback is false instead of true"), "{refused}");
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

fn with(driver: &str, options: Options) -> Attachment {
    Attachment { options, ..Attachment::new(driver, Cache::None, Aio::Native) }
}

/// What a QEMU and a guest say that did as asked.
fn found(model: &Model, asked: &Attachment) -> Settings {
    let through = !asked.cache.write_cache() && model.shows_write_through;
    let mut map: Settings = [
        (key::DEVICE, model.disk.to_owned()),
        (key::CACHE_DIRECT, asked.cache.direct().to_string()),
        (key::CACHE_NO_FLUSH, asked.cache.no_flush().to_string()),
        (key::CACHE_WRITEBACK, asked.cache.write_cache().to_string()),
        (key::DETECT_ZEROES, asked.options.detect_zeroes.to_string()),
        (key::AIO, asked.aio.to_string()),
        (key::QUEUES, asked.options.queues.unwrap_or(1).to_string()),
        (key::IOEVENTFD, (!model.avoids_ioeventfd).to_string()),
        (key::GUEST_WRITE_CACHE, if through { "write through" } else { "write back" }.to_owned()),
        (key::GUEST_DISCARD_BYTES, "2147483136".to_owned()),
    ]
    .map(|(k, v)| (k.to_owned(), v))
    .into();
    map.extend(model.controller.map(|c| (key::CONTROLLER.to_owned(), c.to_owned())));
    if asked.iothread {
        map.insert(key::IOTHREAD.into(), "io0".into());
    }
    map
}

#[test]
fn each_difference_is_named() {
    for model in drivers::ALL {
        let name = model.driver.name;
        for cache in Cache::ALL {
            let asked = Attachment::new(name, cache, Aio::Threads).iothread(model.has_iothread);
            compare(model, &asked, &found(model, &asked)).unwrap();
        }
        let plain = with(name, Options::default());
        let mut keys = vec![
            key::DEVICE,
            key::CACHE_DIRECT,
            key::CACHE_NO_FLUSH,
            key::CACHE_WRITEBACK,
            key::DETECT_ZEROES,
            key::AIO,
            key::GUEST_WRITE_CACHE,
        ];
        keys.extend(model.avoids_ioeventfd.then_some(key::IOEVENTFD));
        keys.extend(model.controller.map(|_| key::CONTROLLER));
        for key in keys {
            let mut map = found(model, &plain);
            map.insert(key.into(), "other".into());
            let reason = compare(model, &plain, &map).unwrap_err().to_string();
            assert!(reason.contains(key) && reason.contains("other"), "{name}: {reason}");
        }
        let threaded = plain.clone().iothread(true);
        let reason = compare(model, &threaded, &found(model, &plain)).unwrap_err().to_string();
        assert!(reason.contains("iothread"), "{name}: {reason}");
        let reason = compare(model, &plain, &found(model, &threaded)).unwrap_err().to_string();
        assert!(reason.contains("no I/O thread"), "{name}: {reason}");
        let discards = with(name, Options { discard: true, ..Options::default() });
        let mut map = found(model, &discards);
        map.insert(key::GUEST_DISCARD_BYTES.into(), "0".into());
        assert!(compare(model, &discards, &map).unwrap_err().to_string().contains("cannot discard"), "{name}");
    }
    let scsi = drivers::find("virtio-scsi").unwrap();
    let four = with("virtio-scsi", Options { queues: Some(4), ..Options::default() });
    let reason = compare(scsi, &four, &found(scsi, &with("virtio-scsi", Options::default()))).unwrap_err();
    assert_eq!(reason.to_string(), "num-queues is 1 instead of 4");
}

#[test]
fn as_many_threads_as_are_mapped_and_what_a_server_has_is_not_compared() {
    let blk = drivers::find("virtio-blk").unwrap();
    let mapped = with("virtio-blk", Options { queues: Some(4), mapped_iothreads: Some(2), ..Options::default() });
    let mut map = found(blk, &mapped);
    let reason = compare(blk, &mapped, &map).unwrap_err();
    assert_eq!(reason.to_string(), "iothread is nothing instead of 2 I/O threads");
    map.insert(key::IOTHREAD.into(), "io0-0,io0-1".into());
    compare(blk, &mapped, &map).unwrap();

    // What QEMU cannot say of a disk on a vhost-user server is not compared, what it can say is.
    let plain = with("virtio-blk", Options::default());
    let mut found: Settings = [
        (key::DEVICE, "vhost-user-blk-pci"),
        (key::SERVED_BY, "vhost-user-blk"),
        (key::AIO, key::SERVERS),
        (key::GUEST_WRITE_CACHE, "write back"),
    ]
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .into();
    compare(blk, &plain, &found).unwrap();
    found.remove(key::SERVED_BY);
    assert!(compare(blk, &plain, &found).unwrap_err().to_string().contains("virtio-blk-pci"));
}

/// A device of the host's has no block node, and a write cache of its own.
#[test]
fn of_a_device_that_is_passed_through_the_device_alone_is_compared() {
    let asked = Attachment::new("nvme", Cache::None, Aio::Native);
    let nvme = drivers::find("nvme").unwrap();
    let found = |device: &str| -> Settings {
        let all = [(key::DEVICE, device), (key::SERVED_BY, "the device itself"), (key::AIO, key::SERVERS)];
        all.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    };
    compare(nvme, &asked, &found("vfio-pci")).unwrap();
    assert!(compare(nvme, &asked, &found("nvme")).is_err(), "nothing is known of its cache");
}
