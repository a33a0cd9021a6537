//! Contract of every driver that QEMU has.

#![allow(clippy::unwrap_used)]

use vmio_model::cell::{Aio, Cache, Options};

use super::*;
use crate::disks::drivers;

const QEMU: QemuVersion = QemuVersion { major: 9, minor: 0 };

fn made(model: &Model, asked: &Attachment, iothreads: &[String], qemu: QemuVersion) -> Vec<Device> {
    model.devices(&Disk { id: "disk0", node: "node0", serial: "VMIO-1", iothreads, asked, qemu })
}

#[test]
fn contract_of_every_model() {
    for (i, model) in ALL.iter().enumerate() {
        let (driver, name) = (model.driver, model.driver.name);
        assert_eq!(drivers::find(name), Some(driver));
        assert!(ALL[..i].iter().all(|m| m.driver != driver), "{name} twice");
        assert_eq!(find(name).map(|m| m.disk), Some(model.disk));
        assert_eq!(model.vhost_user.is_some(), driver.fits_vhost_user, "{name}");
        let threads: Vec<String> = driver.supports_iothread.then(|| "io0".to_owned()).into_iter().collect();
        for cache in Cache::ALL {
            let asked = Attachment::new(name, cache, Aio::Threads).iothread(driver.supports_iothread);
            let devices = made(model, &asked, &threads, QEMU);
            let types: Vec<&str> = devices.iter().map(Device::model).collect();
            assert_eq!(types, model.controller.into_iter().chain([model.disk]).collect::<Vec<_>>(), "{name}");
            let disk = devices.last().unwrap();
            for (key, value) in [("id", "disk0"), ("drive", "node0"), ("serial", "VMIO-1")] {
                assert_eq!(disk.get(key).unwrap(), value, "{name}: {disk}");
            }
            let on = if cache.write_cache() { "on" } else { "off" };
            assert_eq!(disk.get("write-cache").unwrap(), on, "{name}");
            let thread = devices.iter().find_map(|device| device.get("iothread"));
            assert_eq!(thread.is_some(), driver.supports_iothread, "{name}");
            assert_eq!(needs(&asked), None);
        }
    }
    assert!(find("xvd").is_none());
}

#[test]
fn queues_over_several_io_threads_need_qemu_9() {
    let options = Options { queues: Some(4), mapped_iothreads: Some(2), ..Options::default() };
    let asked = Attachment { options, ..Attachment::new("virtio-blk", Cache::None, Aio::Native) };
    VIRTIO_BLK.fits(&asked).unwrap();
    let need = needs(&asked).unwrap();
    let said = QemuVersion { major: 7, minor: 2 }.meets(need).unwrap_err().to_string();
    assert!(said.contains("needs QEMU 9.0") && said.contains("7.2"), "{said}");
    QEMU.meets(need).unwrap();
    let threads = ["io0-0".to_owned(), "io0-1".to_owned()];
    let devices = made(find("virtio-blk").unwrap(), &asked, &threads, QEMU);
    assert_eq!(
        devices[0].to_string(),
        r#"{"drive":"node0","driver":"virtio-blk-pci","id":"disk0","iothread-vq-mapping":[{"iothread":"io0-0"},{"iothread":"io0-1"}],"num-queues":4,"serial":"VMIO-1","share-rw":true,"write-cache":"on"}"#
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
