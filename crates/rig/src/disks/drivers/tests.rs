//! Contract of every driver.

#![allow(clippy::unwrap_used)]

use vmio_model::cell::{Cache, Options};

use super::*;

const QEMU: QemuVersion = QemuVersion { major: 9, minor: 0 };

fn asked(driver: &str, iothread: bool) -> Attachment {
    Attachment::new(driver, Cache::None, Aio::Native).iothread(iothread)
}

fn with(driver: &str, options: Options) -> Attachment {
    Attachment { options, ..asked(driver, false) }
}

/// What a QEMU and a guest say that did as asked.
fn found(driver: &dyn Driver, asked: &Attachment) -> BTreeMap<String, String> {
    let (device, controller) = driver.qom_types();
    let through = !asked.cache.write_cache() && driver.shows_write_through();
    let mut map: BTreeMap<String, String> = [
        (effective::DEVICE, device.to_owned()),
        (effective::CACHE_DIRECT, asked.cache.direct().to_string()),
        (effective::CACHE_NO_FLUSH, asked.cache.no_flush().to_string()),
        (effective::CACHE_WRITEBACK, asked.cache.write_cache().to_string()),
        (effective::DETECT_ZEROES, asked.options.detect_zeroes.to_string()),
        (effective::AIO, asked.aio.to_string()),
        (effective::QUEUES, asked.options.queues.unwrap_or(1).to_string()),
        (effective::IOEVENTFD, (!driver.avoids_ioeventfd()).to_string()),
        (effective::GUEST_WRITE_CACHE, if through { "write through" } else { "write back" }.to_owned()),
        (effective::GUEST_DISCARD_BYTES, "2147483136".to_owned()),
    ]
    .map(|(k, v)| (k.to_owned(), v))
    .into();
    map.extend(controller.map(|c| (effective::CONTROLLER.to_owned(), c.to_owned())));
    if asked.iothread {
        map.insert(effective::IOTHREAD.into(), "io0".into());
    }
    map
}

fn args(driver: &dyn Driver, asked: &Attachment, iothreads: &[String], qemu: QemuVersion) -> DeviceArgs {
    driver.device_args(&Disk { id: "disk0", node: "node0", serial: "VMIO-1", iothreads, asked, qemu })
}

#[test]
fn contract_of_every_driver() {
    for (i, driver) in ALL.iter().enumerate() {
        let name = driver.name();
        assert!(!name.contains([' ', ',', '/', '+']), "{name}: cell keys use these characters");
        assert!(ALL[..i].iter().all(|d| d.name() != name), "{name} twice");
        assert!(!driver.about().is_empty() && !driver.guest_modules().is_empty(), "{name}");
        for module in driver.guest_modules() {
            let devices = crate::image::device_modules(driver.arches()[0]);
            let carried = crate::image::BASE_MODULES.contains(module) || devices.contains(module);
            assert!(carried, "{name}: the image does not carry {module}");
        }
        let threads: Vec<String> = driver.supports_iothread().then(|| "io0".to_owned()).into_iter().collect();
        for cache in Cache::ALL {
            let asked = Attachment { cache, aio: Aio::Threads, ..asked(name, driver.supports_iothread()) };
            let args = args(*driver, &asked, &threads, QEMU);
            let (device, controller) = driver.qom_types();
            assert_eq!(args.device.model(), device, "{name}");
            assert_eq!(args.controller.as_ref().map(Device::model), controller, "{name}");
            for (key, value) in [("id", "disk0"), ("drive", "node0"), ("serial", "VMIO-1")] {
                assert_eq!(args.device.get(key).unwrap(), value, "{name}: {}", args.device);
            }
            let on = if cache.write_cache() { "on" } else { "off" };
            assert_eq!(args.device.get("write-cache").unwrap(), on, "{name}");
            let thread = args.device.get("iothread").or_else(|| args.controller.as_ref()?.get("iothread"));
            assert_eq!(thread.is_some(), driver.supports_iothread(), "{name}");
            driver.fits(&asked).unwrap();
            driver.readback(&asked, &found(*driver, &asked)).unwrap();
        }
        assert_eq!(driver.fits(&asked(name, true)).is_ok(), driver.supports_iothread(), "{name}");
        driver.fits(&asked(name, false)).unwrap();
    }
}

#[test]
fn readback_names_each_difference() {
    for driver in ALL {
        let name = driver.name();
        let plain = asked(name, false);
        let mut keys = vec![
            effective::DEVICE,
            effective::CACHE_DIRECT,
            effective::CACHE_NO_FLUSH,
            effective::CACHE_WRITEBACK,
            effective::DETECT_ZEROES,
            effective::AIO,
            effective::GUEST_WRITE_CACHE,
        ];
        keys.extend(driver.avoids_ioeventfd().then_some(effective::IOEVENTFD));
        keys.extend(driver.qom_types().1.map(|_| effective::CONTROLLER));
        for key in keys {
            let mut map = found(*driver, &plain);
            map.insert(key.into(), "other".into());
            let reason = driver.readback(&plain, &map).unwrap_err().to_string();
            assert!(reason.contains(key) && reason.contains("other"), "{name}: {reason}");
        }
        let reason = driver.readback(&asked(name, true), &found(*driver, &plain)).unwrap_err().to_string();
        assert!(reason.contains("iothread"), "{name}: {reason}");
        let reason = driver.readback(&plain, &found(*driver, &asked(name, true))).unwrap_err().to_string();
        assert!(reason.contains("no I/O thread"), "{name}: {reason}");
        let discards = with(name, Options { discard: true, ..Options::default() });
        let mut map = found(*driver, &discards);
        map.insert(effective::GUEST_DISCARD_BYTES.into(), "0".into());
        assert!(driver.readback(&discards, &map).unwrap_err().to_string().contains("cannot discard"), "{name}");
    }
    let scsi = find("virtio-scsi").unwrap();
    let four = with("virtio-scsi", Options { queues: Some(4), ..Options::default() });
    let reason = scsi.readback(&four, &found(scsi, &asked("virtio-scsi", false))).unwrap_err();
    assert_eq!(reason.to_string(), "num-queues is 1 instead of 4");
}

#[test]
fn what_cannot_be_had_is_refused_with_the_mend() {
    let refused = |asked: &Attachment| find(&asked.driver).unwrap().fits(asked).unwrap_err().to_string();
    let bad = Attachment { cache: Cache::Writeback, ..asked("virtio-blk", false) };
    assert!(refused(&bad).contains("O_DIRECT"));
    assert!(refused(&asked("ahci", true)).contains("use virtio-scsi or virtio-blk"));
    let queues = |n| Options { queues: Some(n), ..Options::default() };
    for driver in ["lsi53c895a", "ahci", "nvme"] {
        let said = refused(&with(driver, queues(4)));
        assert!(said.contains(driver) && said.contains("use virtio-scsi or virtio-blk"), "{said}");
    }
    for driver in ["virtio-scsi", "virtio-blk"] {
        find(driver).unwrap().fits(&with(driver, queues(4))).unwrap();
        assert!(refused(&with(driver, queues(0))).contains("1 to 1022"));
        assert!(refused(&with(driver, queues(1023))).contains("1 to 1022"));
    }
    let zeroes = Options { detect_zeroes: DetectZeroes::Unmap, ..Options::default() };
    assert!(refused(&with("virtio-blk", zeroes)).contains("discard = true"));

    let mapped = |queues| Options { queues, mapped_iothreads: Some(2), ..Options::default() };
    assert!(refused(&with("virtio-scsi", mapped(Some(2)))).contains("use virtio-blk"));
    assert!(refused(&with("virtio-blk", mapped(None))).contains("set `queues`"));
    assert!(refused(&with("virtio-blk", mapped(Some(1)))).contains("set `queues`"));
    let both = Attachment { iothread: true, ..with("virtio-blk", mapped(Some(2))) };
    assert!(refused(&both).contains("drop `iothread`"));
}

#[test]
fn queues_over_several_io_threads_need_qemu_9() {
    let driver = find("virtio-blk").unwrap();
    let asked = with("virtio-blk", Options { queues: Some(4), mapped_iothreads: Some(2), ..Options::default() });
    driver.fits(&asked).unwrap();
    let said = driver.fits_qemu(&asked, QemuVersion { major: 7, minor: 2 }).unwrap_err().to_string();
    assert!(said.contains("needs QEMU 9.0") && said.contains("7.2"), "{said}");
    driver.fits_qemu(&asked, QEMU).unwrap();
    for driver in ALL {
        driver.fits_qemu(&self::asked(driver.name(), false), QemuVersion { major: 2, minor: 0 }).unwrap();
    }
    let threads = ["io0-0".to_owned(), "io0-1".to_owned()];
    let device = args(driver, &asked, &threads, QEMU).device;
    assert_eq!(
        device.to_string(),
        r#"{"drive":"node0","driver":"virtio-blk-pci","id":"disk0","iothread-vq-mapping":[{"iothread":"io0-0"},{"iothread":"io0-1"}],"num-queues":4,"serial":"VMIO-1","share-rw":true,"write-cache":"on"}"#
    );
    let mut map = found(driver, &asked);
    let reason = driver.readback(&asked, &map).unwrap_err();
    assert_eq!(reason.to_string(), "iothread is nothing instead of 2 I/O threads");
    map.insert(effective::IOTHREAD.into(), "io0-0,io0-1".into());
    driver.readback(&asked, &map).unwrap();
}

#[test]
fn nvme_without_ioeventfd_where_qemu_knows_it() {
    let nvme = find("nvme").unwrap();
    let of = |major, minor| {
        let device = args(nvme, &asked("nvme", false), &[], QemuVersion { major, minor }).device;
        device.get("ioeventfd").cloned()
    };
    assert_eq!((of(7, 0), of(7, 1), of(10, 2)), (None, Some(false.into()), Some(false.into())));
}

#[test]
fn a_vhost_user_server_fits_virtio_blk_alone() {
    let storage = Storage::VhostUserBlk { socket: "/run/s".into() };
    for driver in ALL {
        let asked = asked(driver.name(), false);
        let fits = driver.fits_storage(&asked, &storage);
        assert_eq!(fits.is_ok(), driver.name() == "virtio-blk", "{fits:?}");
        driver.fits_storage(&asked, &Storage::Nbd { socket: "/run/s".into(), export: "e".into() }).unwrap();
        driver.fits_storage(&asked, &Storage::File("/f".into())).unwrap();
    }
    let driver = find("virtio-blk").unwrap();
    let refused = |asked: &Attachment| driver.fits_storage(asked, &storage).unwrap_err().to_string();
    let said = refused(&asked("virtio-blk", true));
    assert!(said.contains("I/O thread"), "{said}");
    let through = Attachment { cache: Cache::Writethrough, ..asked("virtio-blk", false) };
    assert!(refused(&through).contains("cache=writethrough"));

    // What QEMU cannot say of such a disk is not compared, what it can say is.
    let mut found: BTreeMap<String, String> = [
        (effective::DEVICE, "vhost-user-blk-pci"),
        (effective::SERVED_BY, "vhost-user-blk"),
        (effective::AIO, effective::SERVERS),
        (effective::GUEST_WRITE_CACHE, "write back"),
    ]
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .into();
    driver.readback(&asked("virtio-blk", false), &found).unwrap();
    found.remove(effective::SERVED_BY);
    let said = driver.readback(&asked("virtio-blk", false), &found).unwrap_err().to_string();
    assert!(said.contains("virtio-blk-pci"));
}
