//! QEMU's options: a study's disk as a whole, with placeholders; for a guest's own disk only the keys to set and to
//! remove, since its options may hold others: rewritten without `snapshot=on`, a throw-away guest would write to its
//! image for good.
//!
//! Syntax: QEMU's manual, "Block device options" (`-blockdev`, `-drive`) and "-device".

use super::names::{Names, option, shell};
use super::to::DiskChange;
use crate::cell::{Attachment, Cache, DetectZeroes};
use crate::facts::{Disk, Source};

/// All options of a study's disk. Its format is a placeholder: QEMU has no driver `FORMAT` and refuses to start.
pub(super) fn whole(a: &Attachment) -> String {
    let mut drive = format!("file=/dev/DISK,format=FORMAT,if=none,id=disk0,cache={},aio={}", a.cache, a.aio);
    if a.options.discard {
        drive.push_str(",discard=unmap");
    }
    if a.options.detect_zeroes != DetectZeroes::Off {
        drive.push_str(&format!(",detect-zeroes={}", a.options.detect_zeroes));
    }
    let thread = a.iothread.then_some("iothread0");
    let object = thread.map(|id| format!("-object iothread,id={id} \\\n")).unwrap_or_default();
    let served: String = served(&a.driver, thread, a.options.queues).iter().map(|key| format!(",{key}")).collect();
    let under = |controller: &str, more: &str, disk: &str| {
        format!("-device {controller},id=hba0{more} \\\n-device {disk},bus=hba0.0,drive=disk0")
    };
    let device = match &*a.driver {
        "virtio-scsi" => under("virtio-scsi-pci", &served, "scsi-hd"),
        "lsi53c895a" => under("lsi53c895a", "", "scsi-hd"),
        "ahci" | "sata" => under("ahci", "", "ide-hd"),
        "ide" => "-device ide-hd,drive=disk0".to_owned(),
        "nvme" => "-device nvme,serial=disk0,drive=disk0".to_owned(),
        "virtio-blk" => format!("-device virtio-blk-pci,drive=disk0{served}"),
        other => format!("-device {other},drive=disk0"),
    };
    format!("{object}-drive {drive} \\\n{device}")
}

/// Keys for the disk's queues: of its own device, or of virtio-scsi's controller.
fn served(driver: &str, thread: Option<&str>, queues: Option<u32>) -> Vec<String> {
    let name = if driver == "virtio-scsi" { "num_queues" } else { "num-queues" };
    let thread = thread.map(|thread| format!("iothread={}", option(thread)));
    thread.into_iter().chain(queues.map(|n| format!("{name}={n}"))).collect()
}

/// Edits in the options of a guest's own disk.
pub(super) fn edit(disk: &Disk, to: &DiskChange) -> String {
    let mut lines = Vec::new();
    if to.iothread {
        lines.push(format!("# one more option\n-object iothread,id={}", new_thread(disk)));
    }
    match disk.place.given.as_deref() {
        Some([given]) => lines.push(replaced(disk, to, given)),
        _ => {
            lines.extend(backend(disk, to));
            lines.extend(device(disk, to));
        }
    }
    lines.join("\n")
}

/// `-drive`, and a device where the driver changes, in place of an old option (`-hda FILE`, or the file's name alone),
/// which has no keys.
fn replaced(disk: &Disk, to: &DiskChange, given: &str) -> String {
    let (name, file) = match given.strip_prefix('-').and_then(|text| text.split_once(' ')) {
        Some((name, file)) => (name, file),
        None => ("", given),
    };
    let own = match name {
        "" => format!("the image without an option, {}", shell(file)),
        name => format!("its own -{name} {}", shell(file)),
    };
    let id = format!("disk-{}", Names(&disk.place).part_of_id());
    let mut keys = vec![format!("file={}", option(file))];
    keys.extend(disk.details.format.as_deref().map(|format| format!("format={}", option(format))));
    let device = to.new_driver(disk).map(|driver| new_device(driver, to, disk, &id));
    match (&device, name) {
        (Some(_), _) => keys.extend(["if=none".to_owned(), format!("id={id}")]),
        (None, "sd") => keys.push("if=sd".to_owned()),
        // Disks a to d of the machine's own controller.
        (None, name) => {
            let index = ["hda", "hdb", "hdc", "hdd"].iter().position(|n| *n == name).unwrap_or(0);
            keys.extend([format!("index={index}"), "media=disk".to_owned()]);
        }
    }
    keys.extend(to.cache.map(|cache| format!("cache={cache}")));
    keys.extend(to.aio.map(|aio| format!("aio={aio}")));
    keys.extend(to.discard.then(|| "discard=unmap".to_owned()));
    keys.extend(l2_cache(disk, to));
    let device = device.map(|device| format!(" \\\n{device}")).unwrap_or_default();
    format!("# in place of {own}: this\n-drive {}{device}", shell(&keys.join(",")))
}

/// `-device` for the drive of this id, for a disk that had none of its own.
fn new_device(driver: &str, to: &DiskChange, disk: &Disk, id: &str) -> String {
    let thread = to.iothread.then(|| new_thread(disk));
    let served: String = served(driver, thread.as_deref(), to.queues).iter().map(|key| format!(",{key}")).collect();
    match driver {
        "virtio-scsi" => format!(
            "-device {} \\\n-device {}",
            shell(&format!("virtio-scsi-pci,id=hba-{id}{served}")),
            shell(&format!("scsi-hd,bus=hba-{id}.0,drive={id}"))
        ),
        "virtio-blk" => format!("-device {}", shell(&format!("virtio-blk-pci,drive={id}{served}"))),
        other => format!("-device {}", shell(&format!("{other},drive={id}"))),
    }
}

/// The key for the cache of L2 tables, of a qcow2 image.
fn l2_cache(disk: &Disk, to: &DiskChange) -> Option<String> {
    let bytes = to.l2_cache.filter(|_| disk.details.format.as_deref() == Some("qcow2"))?;
    Some(format!("l2-cache-size={bytes}"))
}

fn new_thread(disk: &Disk) -> String {
    format!("iothread-{}", Names(&disk.place).part_of_id())
}

/// Keys of the `-drive`, or of the nodes of `-blockdev`; both where it is not known which the disk has.
fn backend(disk: &Disk, to: &DiskChange) -> Vec<String> {
    let sources = disk.sources();
    let comes_from = |name: &str| sources.values().filter_map(Source::option).any(|option| option.name == name);
    let (drive, nodes) = match (comes_from("drive"), comes_from("blockdev")) {
        (false, false) => (true, true),
        known => known,
    };
    let aio = to.aio.map(|aio| format!("aio={aio}"));
    let discard = to.discard.then(|| "discard=unmap".to_owned());
    let mut lines = Vec::new();
    let mut say = |place: &str, keys: Vec<String>| {
        if !keys.is_empty() {
            lines.push(format!("# in {place}, keep all else\n{}", keys.join(",")));
        }
    };
    if drive {
        // A cache.direct=off beside cache=none would override it.
        let place = match to.cache {
            Some(_) => "its own -drive: set these in place of its cache= and cache.*=",
            None => "its own -drive: set these",
        };
        let keys = to.cache.map(|cache| format!("cache={cache}"));
        let tables = l2_cache(disk, to);
        say(place, keys.into_iter().chain(aio.clone()).chain(discard.clone()).chain(tables).collect());
    }
    if nodes {
        let on = |on: bool| if on { "on" } else { "off" };
        let keys = to.cache.map(|c| format!("cache.direct={},cache.no-flush={}", on(c.direct()), on(c.no_flush())));
        say("each of its own -blockdev: set these", keys.into_iter().chain(discard).collect());
        say(
            "that of driver file or host_device (where it is written as file.driver=, with file. before it): set this",
            aio.into_iter().collect(),
        );
        say("that of driver qcow2: set this", l2_cache(disk, to).into_iter().collect());
    }
    lines
}

/// Keys of the `-device` and of its controller.
fn device(disk: &Disk, to: &DiskChange) -> Vec<String> {
    let name = Names(&disk.place).part_of_id();
    let driver = to.driver_after(disk).unwrap_or_default();
    let new = to.new_driver(disk);
    // -drive if=virtio creates its device.
    let deviceless = disk.driver.source().and_then(Source::option).is_some_and(|o| o.name == "drive");
    let controller = driver == "virtio-scsi" && (new.is_some() || to.shares_controller(disk));
    // A machine without PCI has other virtio devices.
    let bus = if disk.details.transport.as_deref() == Some("mmio") { "device" } else { "pci" };

    let kept = disk.details.iothread_name.as_deref().filter(|_| controller);
    let thread = to.iothread.then(|| new_thread(disk));
    let queues = to.queues.or(disk.details.queues.filter(|_| controller));
    let keys = served(driver, thread.as_deref().or(kept), queues);

    let mut lines = Vec::new();
    let mut own = Vec::new();
    if controller {
        let all: String = keys.iter().map(|key| format!(",{key}")).collect();
        lines.push(format!(
            "# one more option, before its own -device\n-device {}",
            shell(&format!("virtio-scsi-{bus},id=hba-{name}{all}"))
        ));
        own.extend(new.map(|_| "scsi-hd".to_owned()));
        own.push(format!("bus=hba-{name}.0"));
    } else if driver == "virtio-scsi" {
        lines.extend((!keys.is_empty()).then(|| {
            format!(
                "# in the -device virtio-scsi-{bus} that its bus= names: set these, keep all else\n{}",
                keys.join(",")
            )
        }));
    } else {
        let model = if driver == "virtio-blk" { format!("virtio-blk-{bus}") } else { driver.to_owned() };
        let any = !keys.is_empty() || to.physical_block.is_some();
        own.extend((new.is_some() || (deviceless && any)).then_some(model));
        own.extend(keys);
    }
    own.extend(to.physical_block.map(|bytes| format!("physical_block_size={bytes}")));
    if deviceless {
        lines.extend((!own.is_empty()).then(|| {
            own.insert(1, format!("drive=disk-{name}"));
            format!(
                "# in its own -drive: these in place of its if=, index=, bus=, unit= and id=, keep all else\n\
                 if=none,id=disk-{name}\n# one more option\n-device {}",
                shell(&own.join(","))
            )
        }));
        return lines;
    }
    let through = matches!(disk.cache.as_deref(), Some("writethrough" | "directsync"));
    own.extend((through && to.cache.is_some_and(Cache::write_cache)).then(|| "write-cache=on".to_owned()));
    if !own.is_empty() {
        let place = match new {
            Some(_) => {
                "this in place of its driver and what belongs to that (bus=, addr=, unit=, scsi-id=, lun=, wwn=,\n\
                 # rotation_rate=, iothread=, num-queues=); keep drive=, id=, serial=, bootindex= and all else"
            }
            None => "set these, keep all else",
        };
        lines.push(format!("# in its own -device: {place}\n{}", own.join(",")));
    }
    lines
}
