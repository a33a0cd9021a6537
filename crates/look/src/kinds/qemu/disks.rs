//! Disks of a running QEMU, by its command line: devices with a drive, and the devices that QEMU makes of `-drive` with
//! an interface. CD-ROMs, floppies and firmware are left out.

use std::path::PathBuf;

use vmio_model::facts::{Disk, Fact, Source, Subject, Unread};

use super::super::process::{DEFAULT, Process, unread};
use super::blocks::{Chain, limits_of};
use super::{MOST_DEVICES, fdset, names, plain};
use crate::qemu::commands::THROTTLE;
use crate::qemu::options::{Opt, size};
use crate::require::Fix;

/// Devices with a drive that are no disks, by the start of their names.
const NO_DISKS: [&str; 7] = ["scsi-cd", "ide-cd", "floppy", "isa-fdc", "cfi.pflash", "nvdimm", "pflash"];
/// Devices that hand the guest's commands to the disk, which tells its own sectors (QEMU, hw/scsi/scsi-disk.c,
/// `scsi_block_realize`; scsi-generic.c).
const PASSED_ON: [&str; 2] = ["scsi-block", "scsi-generic"];
/// Devices that have as many queues as the guest has vCPUs, since machine type 5.2 (QEMU, hw/core/machine.c).
const QUEUES_SINCE: (u32, u32) = (5, 2);

/// The disks of a process. What is unreadable is added to `missing`.
pub fn disks(process: &Process<'_>, vcpus: Option<u32>, missing: &mut Vec<Unread>) -> Vec<Disk> {
    let line = &process.line;
    let mut disks = Vec::new();
    let mut at = Slots::default();
    for drive in line.all("drive") {
        if disks.len() > MOST_DEVICES {
            break;
        }
        let interface = drive.get("if").unwrap_or(default_interface(process));
        let slot = at.next(drive, interface, process);
        let chain = Chain::of_drive(line, drive);
        if drive.get("media") == Some("cdrom") || chain.read_only() {
            continue;
        }
        let driver = match interface {
            "virtio" => "virtio-blk",
            "ide" if is_q35(process) => "ahci",
            "ide" => "ide",
            "scsi" => "lsi53c895a",
            "sd" => "sd",
            _ => continue, // none: a device names it; pflash, mtd, floppy, xen: no disk of QEMU's own
        };
        let id = drive.id().map_or(slot, str::to_owned);
        let mut disk = Disk::unknown(Subject::disk(&process.name, &id), process.provenance());
        disk.place.drive = Some(id.clone());
        disk.place.device_id = Some(id);
        let none = Opt::default();
        let option = drive.old().map_or("drive", |(name, _)| name);
        disk.place.given = drive
            .old()
            .map(|(name, file)| vec![if name.is_empty() { file.to_owned() } else { format!("-{name} {file}") }]);
        settings(process, &mut disk, Model { driver, device: &none, controller: None, option, vcpus });
        sectors(process, &mut disk, &none, option);
        storage(process, &mut disk, chain, &none, missing);
        disks.push(disk);
    }
    for device in line.all("device") {
        if disks.len() > MOST_DEVICES {
            break;
        }
        disks.extend(of_device(process, device, vcpus, missing));
    }
    if disks.len() > MOST_DEVICES {
        disks.truncate(MOST_DEVICES);
        missing.push(super::too_many("disks", process, MOST_DEVICES));
    }
    for (i, disk) in disks.iter_mut().enumerate() {
        if disk.place.device_id.is_none() {
            disk.subject = Subject::disk(&process.name, i.to_string());
        }
    }
    disks
}

fn of_device(process: &Process<'_>, device: &Opt, vcpus: Option<u32>, missing: &mut Vec<Unread>) -> Option<Disk> {
    let line = &process.line;
    let kind = device.get("driver")?;
    let served = kind.starts_with("vhost-user-blk").then(|| device.get("chardev")).flatten();
    let drive = device.get("drive").filter(|d| !d.is_empty());
    if (drive.is_none() && served.is_none()) || NO_DISKS.iter().any(|n| kind.starts_with(n)) {
        return None;
    }
    let of_drive = drive.and_then(|id| line.find("drive", id));
    let cdrom = of_drive.is_some_and(|d| d.get("media") == Some("cdrom") || d.get("if") == Some("pflash"));
    let chain = match of_drive {
        Some(drive) => Some(Chain::of_drive(line, drive)),
        None => drive.and_then(|name| Chain::of_node(line, name)),
    };
    // A read-only disk has no writes to lose or wait for: like a CD-ROM, it is left out.
    if cdrom || chain.as_ref().is_some_and(|c| c.read_only() || c.protocol() == Some("host_cdrom")) {
        return None;
    }
    let controller = controller(process, device, kind);
    let driver = driver(process, kind, device, controller);
    let id = device.id().or(drive);
    let mut disk = Disk::unknown(Subject::disk(&process.name, id.unwrap_or_default()), process.provenance());
    disk.place.device_id = id.map(str::to_owned);
    disk.place.drive = drive.filter(|_| of_drive.is_some()).map(str::to_owned);
    disk.place.qom = names::qom(line, device);
    settings(process, &mut disk, Model { driver: &driver, device, controller, option: "device", vcpus });
    if served.is_none() && !PASSED_ON.contains(&kind) {
        sectors(process, &mut disk, device, "device");
    }
    if let (true, Some(id), Some(drive)) = (process.line.all("id").next().is_some(), device.id(), drive)
        && drive.strip_prefix("drive-") == Some(id)
    {
        disk.place.slot = Some(id.to_owned()); // Proxmox's naming (PVE/QemuServer.pm)
    }
    match (chain, served) {
        (Some(chain), _) => {
            storage(process, &mut disk, chain, device, missing);
            let set = device.id().and_then(|id| line.find(THROTTLE, id)).map(limits_of).unwrap_or_default();
            if !set.is_empty() {
                disk.details.limits = Fact::read(set, process.option(THROTTLE));
            }
        }
        (None, Some(chardev)) => {
            disk.details.storage = Fact::read(Some("vhost-user".into()), process.option("device"));
            disk.iothread = Fact::default(); // the server takes the requests, not QEMU
            let socket = line.find("chardev", chardev).and_then(|c| c.get("path"));
            disk.place.source = socket.map(str::to_owned).into();
        }
        (None, None) => {}
    }
    Some(disk)
}

/// The device of a disk.
struct Model<'a> {
    driver: &'a str,
    device: &'a Opt,
    controller: Option<&'a Opt>,
    option: &'a str,
    vcpus: Option<u32>,
}

/// Driver, I/O thread and queues, by the device and its controller.
fn settings(process: &Process<'_>, disk: &mut Disk, model: Model<'_>) {
    let said = process.option(model.option);
    disk.driver = Fact::read(Some(model.driver.to_owned()), &said);
    let own_queues = matches!(model.driver, "virtio-blk" | "virtio-scsi");
    let holder = if model.driver == "virtio-scsi" { model.controller } else { Some(model.device) };
    let thread = holder.and_then(|h| h.get("iothread")).filter(|t| !t.is_empty());
    let mut mapped: Vec<&str> = holder.map_or_else(Vec::new, |h| {
        let threads = h.keys.iter().filter(|(k, _)| k.starts_with("iothread-vq-mapping.") && k.ends_with(".iothread"));
        threads.map(|(_, thread)| thread.as_str()).collect()
    });
    mapped.dedup();
    let old = holder.and_then(|h| h.on("x-data-plane")).unwrap_or(false);
    let threaded = thread.is_some() || !mapped.is_empty() || old;
    disk.iothread = Fact::read(Some(threaded), if threaded { &said } else { &DEFAULT });
    let carrier = holder.and_then(|h| h.get("driver")).unwrap_or_default();
    disk.details.transport =
        (carrier.starts_with("virtio-") && carrier.ends_with("-device")).then(|| "mmio".to_owned());
    disk.details.iothread_name = thread.or(mapped.first().copied()).map(str::to_owned).into();
    disk.details.mapped_iothreads = u32::try_from(mapped.len()).ok().filter(|n| *n > 0).into();
    if !own_queues {
        return;
    }
    let queues = holder.and_then(|h| h.number("num-queues").or(h.number("num_queues"))).filter(|n| *n > 0);
    let (queues, from) = match queues.and_then(|q| u32::try_from(q).ok()) {
        Some(queues) => (Some(queues), said),
        None => match machine_version(process) {
            Some(version) if version >= QUEUES_SINCE => (model.vcpus, format!("{DEFAULT}: one a vCPU").into()),
            Some(_) => (Some(1), DEFAULT),
            None => (None, DEFAULT),
        },
    };
    if queues.is_some() {
        disk.details.queues = Fact::read(queues, from);
    }
}

/// The sectors that the guest is told: 512 bytes where the device's options do not say otherwise (QEMU,
/// hw/block/block.c, `blkconf_blocksizes`), but for s390's disks, whose sizes QEMU asks (block/file-posix.c,
/// `hdev_probe_blocksizes`).
fn sectors(process: &Process<'_>, disk: &mut Disk, device: &Opt, option: &str) {
    let told = |key: &str| match device.get(key).and_then(|text| size(text, 1)).filter(|bytes| *bytes > 0) {
        Some(bytes) => Fact::read(Some(bytes), process.option(option)),
        None if machine(process).starts_with("s390") => Fact::default(),
        None => Fact::read(Some(512), DEFAULT),
    };
    disk.details.below.guest_logical_block_bytes = told("logical_block_size");
    disk.details.below.guest_physical_block_bytes = told("physical_block_size");
}

/// The storage below the device.
fn storage(process: &Process<'_>, disk: &mut Disk, chain: Chain, device: &Opt, missing: &mut Vec<Unread>) {
    let drive = chain.drive.as_ref();
    let said = process.option(drive.map_or("blockdev", |d| d.old().map_or("drive", |(name, _)| name)));
    let protocol = chain.protocol();
    let local = matches!(protocol, Some("file" | "host_device"));
    let absolute = |path: String| match fdset::file(process, &path, protocol) {
        Some(open) => open,
        None if local => process.absolute(&path).unwrap_or(path),
        None => path,
    };
    let source = chain.source().map(absolute);

    if let (true, Some(path)) = (local, &source) {
        let what = format!("what {path} is");
        let mut looked_at = None;
        if chain.drive.is_none() {
            // The driver says which: `file`, or `host_device`.
            disk.place.block_device = Some(protocol == Some("host_device"));
            looked_at = Some(said.clone());
        }
        // A dead server would block the system call; images/ reads such files.
        let served = process.server(path).is_some();
        // Relative to a directory that may not be read.
        let unknown = !path.starts_with('/');
        let (file, looked) = if served || unknown { (PathBuf::new(), Ok(None)) } else { process.stat(path) };
        match looked {
            _ if served => {}
            _ if unknown => missing.push(Unread {
                what,
                why: "it is relative to the working directory of the guest's process, which may not be read".into(),
                mend: Fix::Root.remedy(process.reader()),
            }),
            Ok(Some(stat)) => {
                disk.place.block_device = Some(stat.is_block());
                looked_at = Some(Source::Place(format!("stat {}", file.display())));
            }
            Ok(None) if chain.drive.is_some() => missing.push(Unread {
                what,
                why: "it does not exist as seen by this process".into(),
                mend: Fix::RootIn("the mount namespace of the guest's process").remedy(process.reader()),
            }),
            Err(e) if chain.drive.is_some() => missing.push(unread(process.reader(), what, &e)),
            _ => {}
        }
        let storage = disk.place.block_device.map(|b| (if b { "block" } else { "file" }).to_owned());
        disk.details.storage = looked_at.map_or_else(Fact::default, |from| Fact::read(storage, from));
    } else if let Some(protocol) = protocol {
        let storage = match protocol {
            "https" | "ftp" | "ftps" => "http".to_owned(),
            "null-aio" => "null-co".to_owned(),
            other => other.to_owned(),
        };
        disk.details.storage = Fact::read(Some(storage), &said);
    }
    disk.place.source = source.into();

    let temporary = drive.and_then(|d| d.on("snapshot")).unwrap_or(process.line.all("snapshot").next().is_some());
    if let (true, Some(drive)) = (temporary, drive) {
        // Writes go to a temporary image, opened without flushes (block.c, bdrv_temp_snapshot_options).
        let option = match drive.on("snapshot") {
            Some(_) => process.option_by("drive", None, Some("snapshot=on")),
            None => process.option("snapshot"),
        };
        disk.cache = Fact::read(Some("unsafe".into()), option);
    } else {
        let through = matches!(drive.and_then(|d| d.get("cache")), Some("writethrough" | "directsync"))
            || drive.and_then(|d| d.on("cache.writeback")) == Some(false);
        let write_cache = device.on("write-cache").unwrap_or(!through);
        let direct = chain.switch("cache.direct");
        let cache = match (direct, chain.switch("cache.no-flush"), write_cache) {
            (_, true, _) => "unsafe",
            (true, false, true) => "none",
            (true, false, false) => "directsync",
            (false, false, true) => "writeback",
            (false, false, false) => "writethrough",
        };
        let is_set = ["cache", "cache.writeback"].iter().any(|k| drive.is_some_and(|d| d.get(k).is_some()))
            || drive.unwrap_or(&Opt::default()).get("cache.direct").is_some()
            || (drive.is_none() && chain.inherited("cache.direct").is_some())
            || (drive.is_none() && chain.inherited("cache.no-flush").is_some());
        disk.cache = Fact::read(Some(cache.to_owned()), if is_set { &said } else { &DEFAULT });
    }
    if let Some(format) = chain.format() {
        disk.details.format = Fact::read(Some(format.to_owned()), &said);
    }
    if local {
        let aio = chain.inherited("aio");
        let from = if aio.is_some() { &said } else { &DEFAULT };
        disk.aio = Fact::read(Some(aio.unwrap_or("threads").to_owned()), from);
    }
    let (discard, is_set) = chain.discard();
    let discard = discard && device.on("discard") != Some(false);
    disk.details.discard = Fact::read(Some(discard), if is_set { &said } else { &DEFAULT });
    if let Some(bytes) = chain.l2_cache_bytes() {
        disk.details.l2_cache_bytes = Fact::read(Some(bytes), &said);
    }
    disk.details.limits = chain.limits(&process.line).into();
    disk.details.limit_keys = chain.limit_keys(&process.line);
    disk.details.throttle_group = chain.throttle_group().map(str::to_owned);
    disk.place.node = chain.image_node().map(str::to_owned);
}

/// A disk's controller: by the name of its bus, else the first of a fitting kind.
fn controller<'a>(process: &'a Process<'_>, device: &'a Opt, kind: &str) -> Option<&'a Opt> {
    let line = &process.line;
    if let Some(bus) = device.get("bus") {
        let id = bus.rsplit_once('.').map_or(bus, |(id, _)| id);
        return line.find("device", id).or_else(|| line.find("device", bus));
    }
    let fits: fn(&str) -> bool = match kind {
        "ide-hd" | "ide-drive" => |d| d.contains("ahci") || d.ends_with("-ide"),
        _ if kind.starts_with("scsi-") => is_scsi,
        _ => return None,
    };
    line.all("device").find(|d| d.get("driver").is_some_and(fits))
}

/// Controllers with a SCSI bus.
fn is_scsi(kind: &str) -> bool {
    const SCSI: [&str; 9] =
        ["lsi", "megasas", "mptsas1068", "pvscsi", "am53c974", "dc390", "esp", "spapr-vscsi", "usb-uas"];
    kind.starts_with("virtio-scsi") || SCSI.iter().any(|n| kind.starts_with(n))
}

/// The driver of a disk by vmio's name, else by QEMU's.
fn driver(process: &Process<'_>, kind: &str, device: &Opt, controller: Option<&Opt>) -> String {
    let of_controller = controller.and_then(|c| c.get("driver")).map(plain);
    match kind {
        "ide-hd" | "ide-drive" => match of_controller {
            Some(c) if c.contains("ahci") => "ahci".to_owned(),
            Some(_) => "ide".to_owned(),
            // Without a controller of that name it is the machine's built-in one.
            None if is_q35(process) => "ahci".to_owned(),
            None => "ide".to_owned(),
        },
        "nvme-ns" => "nvme".to_owned(),
        "sd-card" => "sd".to_owned(),
        "scsi-hd" | "scsi-block" | "scsi-disk" | "scsi-generic" => match of_controller {
            Some(c) if c == "lsi" => "lsi53c895a".to_owned(),
            Some(c) => c,
            None => device.get("bus").map_or("scsi".to_owned(), |_| "scsi".to_owned()),
        },
        _ if kind.starts_with("vhost-user-blk") => "virtio-blk".to_owned(),
        other => plain(other),
    }
}

/// Machine type; the program's default where it is not stated.
fn machine<'a>(process: &'a Process<'_>) -> &'a str {
    process.line.get("machine", "type").unwrap_or("pc")
}

pub(super) fn is_q35(process: &Process<'_>) -> bool {
    machine(process).contains("q35")
}

/// Interface of a `-drive` without one (QEMU, `block_default_type` of the machines).
fn default_interface(process: &Process<'_>) -> &'static str {
    let machine = machine(process);
    let virtio = ["virt", "s390"].iter().any(|m| machine.starts_with(m));
    match machine {
        _ if virtio => "virtio",
        // QEMU makes no device for such a drive.
        _ if machine.starts_with("microvm") => "none",
        _ => "ide",
    }
}

/// Version of the machine type: 7.2 of `pc-q35-7.2`; `None` for the program's newest.
fn machine_version(process: &Process<'_>) -> Option<(u32, u32)> {
    let machine = machine(process);
    let version = ["pc-q35-", "pc-i440fx-", "virt-"].iter().find_map(|p| machine.strip_prefix(p))?;
    let (major, rest) = version.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The names that QEMU gives drives without an id (system/blockdev.c: `ide0-hd1`, `virtio0`).
#[derive(Default)]
struct Slots(std::collections::BTreeMap<String, u64>);

impl Slots {
    fn next(&mut self, drive: &Opt, interface: &str, process: &Process<'_>) -> String {
        let next = self.0.entry(interface.to_owned()).or_default();
        let index = drive.number("index").unwrap_or(*next);
        *next = (*next).max(index.saturating_add(1));
        let on_bus = match interface {
            "ide" if !is_q35(process) => 2,
            "ide" => 1,
            "scsi" => 7,
            _ => return format!("{interface}{index}"),
        };
        let media = if drive.get("media") == Some("cdrom") { "cd" } else { "hd" };
        format!("{interface}{}-{media}{}", index / on_bus, index % on_bus)
    }
}
