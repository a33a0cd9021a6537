//! Contract of every driver that QEMU has.

#![allow(clippy::unwrap_used)]

use vmio_model::cell::Options;

use super::*;
use crate::disks::drivers::{self, example::LSI53C810};

const QEMU: QemuVersion = QemuVersion { major: 9, minor: 0 };

fn made(model: &Model, asked: &Attachment, iothreads: &[String], qemu: QemuVersion) -> Vec<Device> {
    model.devices(&Disk { id: "disk0", node: "node0", serial: "VMIO-1", iothreads, asked, qemu })
}

fn asked(driver: &str, iothread: bool) -> Attachment {
    Attachment::new(driver, Cache::None, Aio::Native).iothread(iothread)
}

fn with(driver: &str, options: Options) -> Attachment {
    Attachment { options, ..asked(driver, false) }
}

#[test]
fn contract_of_every_model() {
    for (i, model) in ALL.iter().enumerate() {
        let (driver, name) = (model.driver, model.driver.name);
        assert_eq!(drivers::find(name), Some(driver));
        assert!(ALL[..i].iter().all(|m| m.driver != driver), "{name} twice");
        assert_eq!(find(name).map(|m| m.disk), Some(model.disk));
    }
    let example = Model { controller: Some("lsi53c810"), ..Model::of(&LSI53C810, "scsi-hd") };
    for model in ALL.iter().chain([&example]) {
        let (driver, name) = (model.driver, model.driver.name);
        assert_eq!(model.vhost_user.is_some(), driver.fits_vhost_user, "{name}");
        let threads: Vec<String> = model.has_iothread.then(|| "io0".to_owned()).into_iter().collect();
        for cache in Cache::ALL {
            let asked = Attachment::new(name, cache, Aio::Threads).iothread(model.has_iothread);
            model.fits(&asked).unwrap();
            let devices = made(model, &asked, &threads, QEMU);
            let types: Vec<&str> = devices.iter().map(Device::model).collect();
            assert_eq!(types, model.controller.into_iter().chain([model.disk]).collect::<Vec<_>>(), "{name}");
            let disk = devices.last().unwrap();
            for (key, value) in [("id", "disk0"), ("drive", "node0"), ("serial", "VMIO-1")] {
                assert_eq!(disk.get(key).unwrap(), value, "{name}: {disk}");
            }
            let on = if cache.write_cache() { "on" } else { "off" };
            assert_eq!(disk.get("write-cache").unwrap(), on, "{name}");
            // QEMU's nvme has no such property: it never pauses the guest.
            assert_eq!(disk.get("werror").is_some(), name != "nvme", "{name}");
            let thread = devices.iter().find_map(|device| device.get("iothread"));
            assert_eq!(thread.is_some(), model.has_iothread, "{name}");
            assert_eq!(needs(&asked), None);
        }
        assert_eq!(model.fits(&asked(name, true)).is_ok(), model.has_iothread, "{name}");
        model.fits(&asked(name, false)).unwrap();
    }
    assert!(find("xvd").is_none());
}

#[test]
fn queues_over_several_io_threads_need_qemu_9() {
    let options = Options { queues: Some(4), mapped_iothreads: Some(2), ..Options::default() };
    let asked = Attachment { options, ..Attachment::new("virtio-blk", Cache::None, Aio::Native) };
    find("virtio-blk").unwrap().fits(&asked).unwrap();
    let need = needs(&asked).unwrap();
    let said = QemuVersion { major: 7, minor: 2 }.meets(need).unwrap_err().to_string();
    assert!(said.contains("needs QEMU 9.0") && said.contains("7.2"), "{said}");
    QEMU.meets(need).unwrap();
    let threads = ["io0-0".to_owned(), "io0-1".to_owned()];
    let devices = made(find("virtio-blk").unwrap(), &asked, &threads, QEMU);
    assert_eq!(
        devices[0].to_string(),
        r#"{"drive":"node0","driver":"virtio-blk-pci","id":"disk0","iothread-vq-mapping":[{"iothread":"io0-0"},{"iothread":"io0-1"}],"num-queues":4,"serial":"VMIO-1","share-rw":true,"werror":"report","write-cache":"on"}"#
    );
}

#[test]
fn nvme_without_ioeventfd_where_qemu_knows_it() {
    let asked = Attachment::new("nvme", Cache::None, Aio::Native);
    let of = |major, minor| {
        let devices = made(find("nvme").unwrap(), &asked, &[], QemuVersion { major, minor });
        devices[0].get("ioeventfd").cloned()
    };
    assert_eq!((of(7, 0), of(7, 1), of(10, 2)), (None, Some(false.into()), Some(false.into())));
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
fn a_vhost_user_server_fits_virtio_blk_alone() {
    let storage = Storage::VhostUserBlk { socket: "/run/s".into() };
    for model in ALL {
        let asked = asked(model.driver.name, false);
        let fits = model.fits_storage(&asked, &storage);
        assert_eq!(fits.is_ok(), model.driver.name == "virtio-blk", "{fits:?}");
        model.fits_storage(&asked, &Storage::Nbd { socket: "/run/s".into(), export: "e".into() }).unwrap();
        model.fits_storage(&asked, &Storage::File("/f".into())).unwrap();
        assert!(model.fits_storage(&asked, &Storage::Aoe { shelf: 0, slot: 0 }).is_err());
        let server = "198.18.255.3:4420".parse().unwrap();
        let nvme = Storage::NvmeTcp { server, nqn: "nqn.x".into() };
        assert!(model.fits_storage(&asked, &nvme).unwrap_err().to_string().contains("NVMe over TCP"));
    }
    let model = find("virtio-blk").unwrap();
    let refused = |asked: &Attachment| model.fits_storage(asked, &storage).unwrap_err().to_string();
    let said = refused(&asked("virtio-blk", true));
    assert!(said.contains("I/O thread"), "{said}");
    let through = Attachment { cache: Cache::Writethrough, ..asked("virtio-blk", false) };
    assert!(refused(&through).contains("cache=writethrough"));
}

#[test]
fn a_device_that_is_passed_through_is_nvme_alone() {
    let storage = Storage::PassedThrough { address: "0000:03:00.0".into() };
    for model in ALL {
        let fits = model.fits_storage(&asked(model.driver.name, false), &storage);
        assert_eq!(fits.is_ok(), model.driver.name == "nvme", "{fits:?}");
    }
    let through = Attachment { cache: Cache::Writeback, ..asked("nvme", false) };
    let said = find("nvme").unwrap().fits_storage(&through, &storage).unwrap_err().to_string();
    assert!(said.contains("cache=writeback"), "{said}");
    // So a guest has it by one attachment.
    for other in [
        Attachment { aio: Aio::Threads, ..asked("nvme", false) },
        with("nvme", Options { discard: true, ..Options::default() }),
    ] {
        let said = find("nvme").unwrap().fits_storage(&other, &storage).unwrap_err().to_string();
        assert!(said.contains("leave aio"), "{said}");
    }
}
