//! Contract of every driver.

#![allow(clippy::unwrap_used)]

use vmio_model::cell::{Cache, Options};

use super::*;

fn asked(driver: &str, iothread: bool) -> Attachment {
    Attachment::new(driver, Cache::None, Aio::Native).iothread(iothread)
}

fn with(driver: &str, options: Options) -> Attachment {
    Attachment { options, ..asked(driver, false) }
}

#[test]
fn contract_of_every_driver() {
    for (i, driver) in ALL.iter().enumerate() {
        assert!(ALL[..i].iter().all(|d| d.name != driver.name), "{} twice", driver.name);
        assert_eq!(find(driver.name), Some(*driver));
    }
    for driver in ALL.iter().copied().chain([&example::LSI53C810]) {
        let name = driver.name;
        assert!(!name.contains([' ', ',', '/', '+']), "{name}: cell keys use these characters");
        assert!(!driver.about.is_empty() && !driver.guest_modules.is_empty(), "{name}");
        for module in driver.guest_modules {
            let devices = crate::image::device_modules(driver.arches[0]);
            let carried = crate::image::BASE_MODULES.contains(module) || devices.contains(module);
            assert!(carried, "{name}: the image does not carry {module}");
        }
        for cache in Cache::ALL {
            driver.fits(&Attachment { cache, aio: Aio::Threads, ..asked(name, driver.supports_iothread) }).unwrap();
        }
        assert_eq!(driver.fits(&asked(name, true)).is_ok(), driver.supports_iothread, "{name}");
        driver.fits(&asked(name, false)).unwrap();
    }
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
    for driver in ALL {
        let asked = asked(driver.name, false);
        let fits = driver.fits_storage(&asked, &storage);
        assert_eq!(fits.is_ok(), driver.name == "virtio-blk", "{fits:?}");
        driver.fits_storage(&asked, &Storage::Nbd { socket: "/run/s".into(), export: "e".into() }).unwrap();
        driver.fits_storage(&asked, &Storage::File("/f".into())).unwrap();
    }
    let driver = find("virtio-blk").unwrap();
    let refused = |asked: &Attachment| driver.fits_storage(asked, &storage).unwrap_err().to_string();
    let said = refused(&asked("virtio-blk", true));
    assert!(said.contains("I/O thread"), "{said}");
    let through = Attachment { cache: Cache::Writethrough, ..asked("virtio-blk", false) };
    assert!(refused(&through).contains("cache=writethrough"));
}
