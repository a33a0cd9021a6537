//! Targets behind QEMU's tools, without a guest: the storage daemon and disk images.
//! Run with `cargo test -- --ignored`; needs qemu-img, qemu-io and qemu-storage-daemon.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use crate::common::Bed;
use vmio_look::images::info::{self, Image};
use vmio_model::cell::{Aio, Attachment, Cache};
use vmio_rig::disks::Storage;
use vmio_rig::disks::targets::{self, Prepared, State};
use vmio_testbed::{limit, poll_for};

const MIB: u64 = 1 << 20;

fn asked(driver: &str, cache: Cache, aio: Aio) -> Attachment {
    Attachment::new(driver, cache, aio)
}

/// `qemu-io` on an NBD export: what it says, and whether it went well.
fn io(storage: &Storage, command: &str) -> (String, bool) {
    let Storage::Nbd { socket, export } = storage else { panic!("{storage:?}") };
    let uri = format!("nbd+unix:///{export}?socket={}", socket.display());
    let out = Command::new("qemu-io").args(["-f", "raw", "-c", command, &uri]).output().unwrap();
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    let good = out.status.success() && !said.contains("failed");
    (said, good)
}

fn served(bed: &Bed) -> Box<dyn Prepared> {
    targets::find("served").unwrap().prepare(&bed.ctx(4)).unwrap()
}

#[test]
#[ignore = "guest: needs QEMU"]
fn nbd_serves_the_file_in_the_cache_mode_asked_for() {
    let bed = Bed::new();
    let mut target = served(&bed);
    let lsi = |cache, aio| asked("lsi53c895a", cache, aio);
    for a in [
        lsi(Cache::None, Aio::Native),
        lsi(Cache::Writeback, Aio::Threads),
        lsi(Cache::Directsync, Aio::IoUring),
        lsi(Cache::Unsafe, Aio::Threads),
    ] {
        let storage = target.attach(&a).unwrap();
        let facts = target.attached(&a);
        assert_eq!(facts["server.cache.direct"], a.cache.direct().to_string(), "{}", a.label());
        assert_eq!(facts["server.aio"], a.aio.to_string());
        assert!(facts["server"].starts_with("qemu-storage-daemon ") && facts["server"].contains("NBD"), "{facts:?}");
        // Clients come and go.
        for _ in 0..2 {
            let (said, good) = io(&storage, "write -P 0x5a 1M 64k");
            assert!(good, "{said}");
        }
        target.reset(State::Fresh).unwrap();
        let data = std::fs::read(target.native()).unwrap();
        let at = MIB as usize;
        assert!(data[at..at + 65536].iter().all(|&b| b == 0x5a) && data[at + 65536] != 0x5a, "{}", a.label());
        assert_eq!(target.attach(&a).unwrap(), storage, "asked again it is the same");
        assert_eq!(target.servers(&a).len(), 1);
    }
    let pids: Vec<u32> = [lsi(Cache::None, Aio::Native), lsi(Cache::Unsafe, Aio::Threads)]
        .iter()
        .flat_map(|a| target.servers(a))
        .collect();
    target.remove(&bed.journal).unwrap();
    assert!(pids.iter().all(|p| !Path::new(&format!("/proc/{p}")).exists()), "{pids:?}");
    assert_eq!(bed.files(), [""; 0]);
}

/// One round of the vhost-user protocol: GET_FEATURES (docs/interop/vhost-user.rst of QEMU).
fn features(socket: &Path) -> u64 {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(limit())).unwrap();
    let message: Vec<u8> = [1u32, 1, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
    stream.write_all(&message).unwrap();
    let mut answer = [0u8; 20];
    stream.read_exact(&mut answer).unwrap();
    u64::from_le_bytes(answer[12..].try_into().unwrap())
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_dead_vhost_user_server_is_started_again() {
    let bed = Bed::new();
    let mut target = served(&bed);
    let a = asked("virtio-blk", Cache::None, Aio::Native);
    let storage = target.attach(&a).unwrap();
    let Storage::VhostUserBlk { socket } = &storage else { panic!("{storage:?}") };
    assert!(socket.as_os_str().len() <= 107);
    for _ in 0..2 {
        // VIRTIO_F_VERSION_1 (bit 32) and VHOST_USER_F_PROTOCOL_FEATURES (bit 30).
        let bits = features(socket);
        assert!(bits & (1 << 32) != 0 && bits & (1 << 30) != 0, "{bits:#x}");
    }
    target.sound(&a).unwrap();
    let pid = target.servers(&a)[0];
    let died = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(died, rustix::process::Signal::KILL).unwrap();
    let gone = poll_for("it is noticed", || target.sound(&a).err().ok_or("it is sound"));
    let said = gone.to_string();
    assert!(said.contains("vmio-served.raw") && said.contains("killed by signal 9"), "{said}");
    let again = target.attach(&a).unwrap();
    assert_eq!(again, storage);
    assert_ne!(target.servers(&a)[0], pid);
    features(socket);
    // The journal alone must do, too.
    let dir = socket.parent().unwrap().to_owned();
    std::mem::forget(target);
    assert_eq!(bed.journal.undo_all(), [""; 0]);
    assert!(!dir.exists() && bed.files().is_empty());
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_server_that_refuses_is_an_error_with_its_own_words() {
    let bed = Bed::new();
    let mut target = served(&bed);
    let mut a = asked("virtio-blk", Cache::None, Aio::Native);
    a.options.queues = Some(0);
    let said = target.attach(&a).err().unwrap().to_string();
    assert!(said.contains("the storage server of") && said.contains("exit code 1") && said.contains("num"), "{said}");
    // Linux AIO needs O_DIRECT.
    let said = target.attach(&asked("ahci", Cache::Writeback, Aio::Native)).err().unwrap().to_string();
    assert!(said.contains("cache.direct") || said.contains("O_DIRECT"), "{said}");
    target.remove(&bed.journal).unwrap();
    assert_eq!(bed.files(), [""; 0]);
}

fn image(storage: &Storage) -> &Path {
    let Storage::Image { path, format, .. } = storage else { panic!("{storage:?}") };
    assert_eq!(*format, "qcow2");
    path
}

/// Bytes of an image's disk that are mapped to data in the image itself.
fn mapped(bed: &Bed, path: &Path) -> u64 {
    let map = bed.run("qemu-img", &["map", "--output=json", path.to_str().unwrap()]);
    let map: serde_json::Value = serde_json::from_str(&map).unwrap();
    let own = map.as_array().unwrap().iter().filter(|e| e["depth"] == 0 && e["data"] == true);
    own.map(|e| e["length"].as_u64().unwrap()).sum()
}

#[test]
#[ignore = "guest: needs QEMU"]
fn images_are_as_their_names_say_and_go_without_a_trace() {
    for target in targets::ALL.iter().filter(|t| t.name().starts_with("qcow2")) {
        let bed = Bed::new();
        let name = target.name();
        let mut prepared = target.prepare(&bed.ctx(24)).unwrap();
        let (a, b) = (asked("virtio-blk", Cache::None, Aio::Native), asked("ahci", Cache::Writeback, Aio::Threads));
        let (one, other) = (prepared.attach(&a).unwrap(), prepared.attach(&b).unwrap());
        assert_ne!(image(&one), image(&other), "{name}: two writers would corrupt one image");
        assert_eq!(prepared.attach(&a).unwrap(), one, "{name}: asked again it is the same");
        let chain = chain(image(&one)).unwrap();
        let facts = prepared.attached(&a);
        let top = &chain[0];
        assert_eq!(top.virtual_bytes, 24 * MIB);
        assert_eq!(chain.len(), if name == "qcow2-chain" { 3 } else { 1 }, "{name}");
        assert_eq!(top.cluster_bytes, Some(if name == "qcow2-2m" { 2 * MIB } else { 64 << 10 }), "{name}");
        assert_eq!(facts["image.cluster_bytes"], top.cluster_bytes.unwrap().to_string());
        let (old, tables) = (name.ends_with("-l2"), name == "qcow2-metadata");
        let new = if tables { 24 * MIB } else { 0 };
        assert_eq!(mapped(&bed, image(&one)), if old { 24 * MIB } else { new }, "{name}");
        // Tables map clusters that take no space until they are written.
        assert_eq!(top.allocated_bytes < 24 * MIB, !old, "{name}: {top:?}");
        if let Some(base) = chain.get(2) {
            assert_eq!((mapped(&bed, &base.path), mapped(&bed, &chain[1].path)), (24 * MIB, 0));
        }

        // A writing cell takes what is new; a reading one gets every block.
        assert!(prepared.exchange(&a, State::Fresh).unwrap().is_none(), "{name}: it is new");
        let second = prepared.exchange(&a, State::Fresh).unwrap();
        assert_eq!(second.is_none(), old, "{name}: the cell before has written");
        if let Some(second) = second {
            let (first, second) = (image(&one), image(&second.storage).to_owned());
            assert!(first.exists() && second.exists(), "{name}: a guest still has the first one open");
            prepared.exchanged(&a).unwrap();
            assert!(!first.exists(), "{name}");
            assert_eq!(mapped(&bed, &second), new, "{name}");
            let filled = prepared.exchange(&a, State::Filled).unwrap().unwrap();
            let full = image(&filled.storage).to_owned();
            prepared.exchanged(&a).unwrap();
            if name != "qcow2-chain" {
                assert_eq!((mapped(&bed, &full), filled.wrote_bytes), (24 * MIB, 24 * MIB), "{name}");
                assert!(prepared.exchange(&a, State::Filled).unwrap().is_none(), "{name}: reading changes nothing");
                // There and back: the full one is kept.
                prepared.exchange(&a, State::Fresh).unwrap().unwrap();
                prepared.exchanged(&a).unwrap();
                let back = prepared.exchange(&a, State::Filled).unwrap().unwrap();
                assert_eq!((image(&back.storage), back.wrote_bytes), (full.as_path(), 0), "{name}");
            }
        }
        prepared.reset(State::Fresh).unwrap();
        if name.contains("small") {
            assert_eq!(facts["image.l2_cache_bytes"], "8192", "two pieces at least");
        }
        prepared.remove(&bed.journal).unwrap();
        assert_eq!(bed.files(), [""; 0], "{name}");
    }
}

/// An image and those below it, as `qemu-img info` has them.
fn chain(top: &Path) -> Result<Vec<Image>, info::Error> {
    let info = |path: &Path, format: Option<&str>| {
        let mut command = Command::new("qemu-img");
        command.args(["info", "-U", "--output=json"]).args(format.iter().flat_map(|f| ["-f", f])).arg(path);
        let output = command.output().unwrap();
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            info::parse(path, std::str::from_utf8(&output.stdout).unwrap())
        } else if path.exists() {
            Err(info::Error::NotReadable { path: path.into(), why, mend: None })
        } else {
            Err(info::Error::Missing { path: path.into() })
        }
    };
    info::follow(top, None, info, &Ok)
}

#[test]
#[ignore = "guest: needs QEMU"]
fn an_image_whose_backing_file_is_gone_is_named_with_it() {
    let bed = Bed::new();
    let at = |name: &str| bed.dir().join(name);
    let (overlay, middle, base) = (at("overlay.qcow2"), at("middle.qcow2"), at("base.qcow2"));
    bed.run("qemu-img", &["create", "-q", "-f", "qcow2", base.to_str().unwrap(), "1M"]);
    for (above, below) in [(&middle, &base), (&overlay, &middle)] {
        let (above, below) = (above.to_str().unwrap(), below.to_str().unwrap());
        bed.run("qemu-img", &["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", below, above]);
    }
    let all = chain(&overlay).unwrap();
    assert_eq!([&all[0].path, &all[1].path, &all[2].path], [&overlay, &middle, &base]);
    let aside = base.with_extension("aside");
    std::fs::rename(&base, &aside).unwrap();
    let said = chain(&overlay).unwrap_err().to_string();
    for word in [middle.to_str().unwrap(), base.to_str().unwrap(), "is missing", "qemu-img rebase -u"] {
        assert!(said.contains(word), "no {word} in {said}");
    }
    std::fs::rename(&aside, &base).unwrap();
    chain(&overlay).unwrap();

    // A loop, as a wrong rebase makes it.
    let (m, b) = (middle.to_str().unwrap(), base.to_str().unwrap());
    bed.run("qemu-img", &["rebase", "-u", "-F", "qcow2", "-b", m, b]);
    let said = chain(&overlay).unwrap_err().to_string();
    assert!(said.contains("loops back to") && said.contains(m), "{said}");
    std::fs::write(&base, b"no image at all").unwrap();
    let said = chain(&overlay).unwrap_err().to_string();
    assert!(said.contains(b) && said.contains("not in qcow2 format"), "{said}");
}

#[test]
#[ignore = "guest: needs QEMU"]
fn memory_file_systems_are_refused() {
    let bed = Bed::new();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut ctx = bed.ctx(1);
    ctx.dir = memory.path().into();
    for target in targets::ALL.iter().filter(|t| t.name() == "served" || t.name().starts_with("qcow2")) {
        let refused = target.prepare(&ctx).err().unwrap();
        assert!(matches!(refused, targets::Error::NoDirect { .. }), "{}: {refused}", target.name());
    }
    assert_eq!(std::fs::read_dir(memory.path()).unwrap().count(), 0);
}
