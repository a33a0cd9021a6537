//! The device target and its safety, on real loop devices.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::common::{Bed, loops_over};
use vmio_look::backing::Backing;
use vmio_model::cell::{Aio, Attachment, Cache};
use vmio_node::Change;
use vmio_rig::disks::targets::{self, Error, Given, Pinned, Prepared, State, TargetCtx};
use vmio_rig::disks::{Storage, space};
use vmio_testbed::{must_be_root, skip};

const O_EXCL: i32 = 0o200;

fn device(ctx: &TargetCtx<'_>) -> targets::Result<Box<dyn Prepared>> {
    targets::find("device").unwrap().prepare(ctx)
}

fn pinned(bed: &Bed, path: &Path) -> targets::Result<Arc<Pinned>> {
    Ok(Arc::new(Pinned::of(&bed.node, path)?))
}

fn refused(ctx: &TargetCtx<'_>) -> String {
    match device(ctx) {
        Err(e @ Error::Refused { .. }) => e.to_string(),
        Err(e) => panic!("another error: {e}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[test]
#[ignore = "root"]
fn a_loop_device_goes_round_the_page_cache_and_leaves_nothing() {
    must_be_root();
    let bed = Bed::new();
    let mut target = device(&bed.ctx(8)).unwrap();
    let path = target.native().to_owned();
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let sysfs = |file: &str| std::fs::read_to_string(format!("/sys/block/{name}/{file}")).unwrap().trim().to_owned();
    assert_eq!(sysfs("loop/dio"), "1");
    assert_eq!(sysfs("size"), (8 * 2048).to_string());
    assert_eq!(target.effective()["direct_io"], "true");
    assert_eq!(target.demands().logical_block_bytes.to_string(), sysfs("queue/logical_block_size"));
    let busy = OpenOptions::new().read(true).write(true).custom_flags(O_EXCL).open(&path).unwrap_err();
    assert_eq!(busy.kind(), std::io::ErrorKind::ResourceBusy, "held with O_EXCL");
    target.share().unwrap();
    // As mount does; it is attached all the same.
    OpenOptions::new().read(true).write(true).custom_flags(O_EXCL).open(&path).unwrap();
    assert_eq!(sysfs("loop/dio"), "1");
    // The leaves are those of its file, not the loop device.
    let below = Backing::of(&bed.node, &path).unwrap();
    assert_eq!(below.leaves, Backing::of(&bed.node, &bed.dir()).unwrap().leaves);
    assert!(!below.leaves.keys().any(|l| l.starts_with("loop")));
    for state in [State::Fresh, State::Filled] {
        target.reset(state).unwrap();
    }
    let data = std::fs::read(&path).unwrap();
    assert!(data.len() == 8 << 20 && data.chunks(4096).all(|b| b.iter().any(|&x| x != 0)), "written out");
    target.remove(&bed.journal).unwrap();
    assert_eq!((loops_over(&bed.dir()).len(), bed.files().len()), (0, 0));
}

#[test]
#[ignore = "root"]
fn a_cached_loop_device_lies_on_the_disk_of_guests() {
    must_be_root();
    let bed = Bed::new();
    let mut target = targets::find("loop").unwrap().prepare(&bed.ctx(8)).unwrap();
    assert_eq!((target.effective()["direct_io"].as_str(), target.bytes()), ("false", 8 << 20));
    assert_eq!(bed.files().len(), 1, "a guest's disk is made for a guest");
    let asked = Attachment::new("virtio-blk", Cache::None, Aio::Threads);
    let Storage::File(disk) = target.attach(&asked).unwrap() else { panic!() };
    assert_eq!(target.attach(&asked).unwrap(), Storage::File(disk.clone()), "one for all");
    let copy = bed.dir().join("copy");
    bed.run(
        "debugfs",
        &["-R", &format!("dump {} {}", target.inside().unwrap(), copy.display()), disk.to_str().unwrap()],
    );
    bed.run("fsck.ext4", &["-fn", disk.to_str().unwrap()]);
    let data = std::fs::read(target.native()).unwrap();
    assert!(data.len() == 8 << 20 && data.iter().any(|&x| x != 0) && data == std::fs::read(&copy).unwrap());
    std::fs::remove_file(copy).unwrap();
    target.reset(State::Filled).unwrap();
    target.remove(&bed.journal).unwrap();
    assert_eq!((loops_over(&bed.dir()).len(), bed.files().len()), (0, 0));
}

#[test]
#[ignore = "root"]
fn a_flash_disk_in_memory_counts_itself_and_leaves_nothing() {
    must_be_root();
    let bed = Bed::new();
    if space::demand(&bed.node, Path::new("/dev/shm"), 8 << 20).is_err() {
        return skip("/dev/shm has no room for a disk");
    }
    let mut target = targets::find("flash-disk").unwrap().prepare(&bed.ctx(8)).unwrap();
    let device = target.native().to_owned();
    let data = std::fs::read(&device).unwrap();
    assert!(data.len() == 8 << 20 && data.chunks(4096).all(|b| b.iter().any(|&x| x != 0)), "written out");
    // Its reads are proved by its own counters.
    let name = device.file_name().unwrap().to_str().unwrap();
    let below = Backing::of(&bed.node, &device).unwrap();
    assert!(below.leaves.keys().eq([name]) && below.own_counters[name] == "tmpfs", "{below:?}");
    assert_eq!(target.reset(State::Filled).unwrap(), 0);
    target.remove(&bed.journal).unwrap();
    assert!(!Path::new(&format!("/dev/shm/vmio-flash-disk-{}", bed.journal.cookie())).exists());
    assert_eq!(bed.journal.undo_all(), [""; 0]);
}

/// Without a cell: the kernel needs no device mapper for it.
#[test]
#[ignore = "root"]
fn a_cache_of_the_hosts_own_has_two_disks_that_nobody_holds_and_leaves_nothing() {
    must_be_root();
    let bed = Bed::new();
    if space::demand(&bed.node, Path::new("/dev/shm"), 16 << 20).is_err() {
        return skip("/dev/shm has no room for a cache");
    }
    for killed in [false, true] {
        let target = targets::find("dm-cache").unwrap().prepare(&bed.ctx(4)).unwrap();
        let [slow, fast] = [target.native(), target.native_cache().unwrap()].map(Path::to_owned);
        let sysfs = |device: &Path, file: &str| {
            let name = device.file_name().unwrap().to_str().unwrap();
            std::fs::read_to_string(format!("/sys/block/{name}/{file}")).map(|text| text.trim().to_owned())
        };
        for (device, mib, dio) in [(&slow, 4, "1"), (&fast, 16, "0")] {
            assert_eq!(sysfs(device, "size").unwrap(), (mib * 2048).to_string());
            assert_eq!(sysfs(device, "loop/dio").unwrap(), dio);
            // As the device mapper does.
            OpenOptions::new().read(true).write(true).custom_flags(O_EXCL).open(device).unwrap();
        }
        let cache = sysfs(&fast, "loop/backing_file").unwrap();
        assert!(cache.starts_with("/dev/shm/vmio-dm-cache-") && Path::new(&cache).exists(), "{cache}");
        if killed {
            std::mem::forget(target);
            assert_eq!(bed.journal.undo_all(), [""; 0]);
        } else {
            target.remove(&bed.journal).unwrap();
        }
        assert_eq!((loops_over(&bed.dir()).len(), bed.files().len()), (0, 0));
        assert!(!Path::new(&cache).parent().unwrap().exists());
        assert_ne!(sysfs(&fast, "loop/backing_file").ok().as_deref(), Some(cache.as_str()), "it is attached no more");
    }
}

#[test]
#[ignore = "root"]
fn loop_devices_made_at_the_same_time_do_not_collide() {
    must_be_root();
    let beds: Vec<Bed> = (0..6).map(|_| Bed::new()).collect();
    let paths: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = beds
            .iter()
            .map(|bed| {
                scope.spawn(move || {
                    let target = device(&bed.ctx(1)).unwrap();
                    let path = target.native().to_owned();
                    assert_eq!(loops_over(&bed.dir()), [path.as_path()]);
                    // The journal alone must do: the handle goes, as when its owner is killed.
                    drop(target);
                    path
                })
            })
            .collect();
        started.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let mut unique = paths.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), paths.len(), "{paths:?}");
    for bed in &beds {
        assert_eq!(bed.journal.undo_all(), [""; 0]);
        assert_eq!((loops_over(&bed.dir()).len(), bed.files().len()), (0, 0));
    }
}

#[test]
#[ignore = "root"]
fn a_device_that_holds_something_is_refused_unless_forced() {
    must_be_root();
    let bed = Bed::new();
    let (path, file) = bed.losetup("other", 16);
    let mut ctx = bed.ctx(8);
    ctx.device = Some(Given::Own(pinned(&bed, &path).unwrap()));
    // Empty: it is taken, and held.
    let target = device(&ctx).unwrap();
    assert!(refused(&ctx).contains("has it open"), "held by the first");
    target.remove(&bed.journal).unwrap();
    // Opened as a guest's QEMU does, without O_EXCL: refused even when forced.
    let guest = std::fs::File::open(&path).unwrap();
    ctx.force = true;
    let said = refused(&ctx);
    assert!(said.contains("has it open") && said.contains("--force does not change that"), "{said}");
    drop(guest);
    ctx.force = false;
    assert_eq!(loops_over(&bed.dir()), [path.as_path()], "the user's own device stays");

    bed.run("mkfs.ext4", &["-q", "-F", path.to_str().unwrap()]);
    let said = refused(&ctx);
    assert!(said.contains("ext4") && said.contains("--force"), "{said}");
    let kept = std::fs::read(&file).unwrap();
    assert!(bed.run("fsck.ext4", &["-n", path.to_str().unwrap()]).contains("clean"), "nothing was written");

    // Mounted: refused even when forced.
    let mount = bed.dir().join("mnt");
    bed.journal.scratch_dir(&mount).unwrap();
    let change = bed.journal.record(Change::Mount { target: mount.clone() }).unwrap();
    bed.run("mount", &["-o", "ro,noload", path.to_str().unwrap(), mount.to_str().unwrap()]);
    ctx.force = true;
    let said = refused(&ctx);
    assert!(said.contains("is mounted on") && said.contains("--force does not change that"), "{said}");
    bed.journal.undo(change).unwrap();
    assert!(std::fs::read(&file).unwrap() == kept, "nothing was written");

    // Forced, it is overwritten.
    device(&ctx).unwrap().remove(&bed.journal).unwrap();
    ctx.force = false;
    let ok = device(&ctx);
    assert!(ok.is_ok(), "the file system is gone: {:?}", ok.err().map(|e| e.to_string()));
}

#[test]
#[ignore = "root"]
fn an_exchanged_device_is_not_written() {
    must_be_root();
    let bed = Bed::new();
    let ((meant, _), (other, file)) = (bed.losetup("meant", 16), bed.losetup("other", 16));
    let link = bed.dir().join("by-id");
    let point_at = |to: &Path| {
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(to, &link).unwrap();
    };
    point_at(&meant);
    let mut ctx = bed.ctx(8);
    ctx.device = Some(Given::Own(pinned(&bed, &link).unwrap()));
    point_at(&other);
    let said = refused(&ctx);
    assert!(said.contains("names another device now") && said.contains(meant.to_str().unwrap()), "{said}");
    std::fs::remove_file(&link).unwrap();
    assert!(refused(&ctx).contains("it no longer exists"));
    assert!(std::fs::read(&file).unwrap().iter().all(|b| *b == 0), "nothing was written");

    // Back where it was: what is handed out is what was opened, wherever the link leads from then on.
    point_at(&meant);
    let mut target = device(&ctx).unwrap();
    point_at(&other);
    let opened = std::fs::read(target.native()).unwrap();
    assert!(opened[..8 << 20].chunks(4096).all(|b| b.iter().any(|&x| x != 0)), "the one that was meant is written out");
    assert!(std::fs::read(&file).unwrap().iter().all(|b| *b == 0), "the other one is not");
    let as_qemu = format!("driver=host_device,cache.direct=on,filename={}", target.native().display());
    bed.run("qemu-io", &["--image-opts", &as_qemu, "-c", "write -P 7 0 4096", "-c", "flush"]);
    let opened = std::fs::read(target.native()).unwrap();
    assert!(opened[..4096].iter().all(|b| *b == 7), "QEMU writes to what was opened");
    target.share().unwrap();
    OpenOptions::new().read(true).write(true).custom_flags(O_EXCL).open(target.native()).unwrap();
    let opened = std::fs::read(target.native()).unwrap();
    assert!(opened[..4096].iter().all(|b| *b == 7), "what is shared is the same one");
    target.remove(&bed.journal).unwrap();

    // Grown meanwhile, it is not what was confirmed.
    point_at(&meant);
    ctx.force = true;
    ctx.device = Some(Given::Own(pinned(&bed, &link).unwrap()));
    std::fs::OpenOptions::new().write(true).open(bed.dir().join("meant")).unwrap().set_len(32 << 20).unwrap();
    bed.run("losetup", &["--set-capacity", meant.to_str().unwrap()]);
    let said = refused(&ctx);
    assert!(said.contains("its size was 16777216 and is 33554432"), "{said}");
    std::fs::remove_file(&link).unwrap();
}

#[test]
#[ignore = "root"]
fn what_is_no_device_is_refused() {
    must_be_root();
    let bed = Bed::new();
    let mut ctx = bed.ctx(1);
    for path in [Path::new("/dev/null"), Path::new("/etc/hostname")] {
        let said = pinned(&bed, path).unwrap_err();
        assert!(matches!(said, Error::Refused { .. }) && said.to_string().contains("not a block device"), "{said}");
    }
    let said = pinned(&bed, Path::new("/dev/vmio-missing")).unwrap_err().to_string();
    assert!(said.contains("/dev/vmio-missing") && said.contains("No such file"), "{said}");
    let (path, _) = bed.losetup("small", 4);
    ctx.device = Some(Given::Own(pinned(&bed, &path).unwrap()));
    ctx.bytes = 8 << 20;
    let said = device(&ctx).err().unwrap().to_string();
    assert!(said.contains("size.target_mib"), "{said}");
}

#[test]
#[ignore = "root"]
fn a_full_file_system_gives_a_clear_error_and_nothing_stays() {
    must_be_root();
    let bed = Bed::new();
    let (path, _) = bed.losetup("small", 32);
    bed.run("mkfs.ext4", &["-q", path.to_str().unwrap()]);
    let mount = bed.dir().join("mnt");
    bed.journal.scratch_dir(&mount).unwrap();
    bed.journal.record(Change::Mount { target: mount.clone() }).unwrap();
    bed.run("mount", &[path.to_str().unwrap(), mount.to_str().unwrap()]);
    let mut ctx = bed.ctx(64);
    ctx.dir = mount.clone();
    for name in ["sparse", "preallocated", "device"] {
        let said = targets::find(name).unwrap().prepare(&ctx).err().unwrap().to_string();
        assert!(said.contains("not enough space"), "{name}: {said}");
    }
    // Space that goes while the file is filled.
    ctx.bytes = 12 << 20;
    let mut target = targets::find("sparse").unwrap().prepare(&ctx).unwrap();
    let eater = mount.join("eater");
    let left = bed.run("df", &["-B1", "--output=avail", mount.to_str().unwrap()]);
    let left: u64 = left.lines().last().unwrap().trim().parse().unwrap();
    bed.run("fallocate", &["-l", &(left - (4 << 20)).to_string(), eater.to_str().unwrap()]);
    let said = target.reset(State::Filled).unwrap_err().to_string();
    assert!(said.contains("No space left") && said.contains("size.target_mib"), "{said}");
    target.remove(&bed.journal).unwrap();
    assert!(!mount.join("vmio-sparse.raw").exists());
}
