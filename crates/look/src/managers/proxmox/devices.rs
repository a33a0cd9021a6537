//! A guest's settings as facts. A default of Proxmox VE's own, which it passes to QEMU, counts as configured
//! (PVE/QemuServer.pm of qemu-server); settings that it leaves to QEMU are left out.

use vmio_model::facts::{
    Details, Disk, Fact, Guest, Nic, Overridden, Place, PlacedThread, Processors, Provenance, RateLimit, Setting,
    Subject,
};
use vmio_model::policy::Direction;
use vmio_model::rate::ByteRate;
use vmio_model::result::Accel;

use super::Manager;
use super::conf::{Parts, Settings, system, truth};
use super::storages::Storage;
use crate::managers::libvirt::xml::{MOST_PLACES, MOST_VCPUS, cpu_set};

/// Source of a setting that the file does not name and Proxmox VE passes to QEMU.
const DEFAULT: &str = "Proxmox VE's default";

/// The guest of a section of its file.
pub fn guest(vmid: u32, conf: &Settings, storages: &[Storage], from: &dyn Fn(&str) -> Provenance) -> Guest {
    let name = conf.get("name").cloned().unwrap_or_else(|| format!("vm{vmid}"));
    let from = from(&name);
    let os = system(conf);
    let windows = os.filter(|os| *os != "other").map(|os| os == "windows");
    let whole = Whole { guest: &name, vmid, conf, storages, from: &from };
    let processors = Processors {
        windows: windows.into(),
        os_release: conf.get("ostype").cloned().into(),
        place: whole.place(),
        ..processors(&name, conf, from.clone())
    };
    let drive = |(slot, value): (&String, &String)| disk(&whole, slot, bus_of(slot)?, &Parts::of(value));
    let card = |(slot, value): (&String, &String)| {
        let number: u32 = slot.strip_prefix("net")?.parse().ok()?;
        Some(Nic {
            windows: windows.into(),
            os: os.map(str::to_owned).into(),
            vcpus: (*processors.vcpus).into(),
            ..nic(&whole, number, &Parts::of(value))?
        })
    };
    let disks = conf.iter().filter_map(drive).collect();
    let nics = conf.iter().filter_map(card).collect();
    Guest {
        uuid: conf.get("smbios1").and_then(|v| Parts::of(v).get("uuid").map(str::to_lowercase)),
        os: os.map(str::to_owned),
        disks,
        nics,
        processors: Some(processors),
        name,
        ..Guest::default()
    }
}

/// Reduces a guest of the next start to the settings that are compared with the running one and that the file names:
/// Proxmox VE's defaults are the same in both. Devices are matched by slot, since storage may have moved.
pub fn only_compared(next: Guest) -> Guest {
    let place = |p: Place| Place { slot: p.slot, taken: p.taken, ..Place::default() };
    let disk = |d: Disk| Disk {
        driver: d.driver,
        cache: d.cache,
        aio: d.aio,
        iothread: d.iothread,
        details: Details { discard: d.details.discard, queues: d.details.queues, ..Details::default() },
        place: place(d.place),
        ..Disk::unknown(d.subject, d.from)
    };
    let nic =
        |n: Nic| Nic { model: n.model, queues: n.queues, place: place(n.place), ..Nic::unknown(n.subject, n.from) };
    let processors = |p: Processors| Processors {
        vcpus: p.vcpus,
        accel: p.accel,
        model: p.model,
        huge_pages: p.huge_pages,
        ..Processors::unknown(p.subject, p.from)
    };
    Guest {
        disks: next.disks.into_iter().map(disk).collect(),
        nics: next.nics.into_iter().map(nic).collect(),
        processors: next.processors.map(processors),
        ..Guest::default()
    }
}

/// Settings that a guest's devices share.
struct Whole<'a> {
    guest: &'a str,
    vmid: u32,
    conf: &'a Settings,
    storages: &'a [Storage],
    from: &'a Provenance,
}

impl Whole<'_> {
    fn place(&self) -> Place {
        Place { vmid: Some(self.vmid.to_string()), ..Place::default() }
    }
}

fn disk(whole: &Whole<'_>, slot: &str, bus: &str, parts: &Parts<'_>) -> Option<Disk> {
    let conf = whole.conf;
    let volume = parts.first.or(parts.get("file")).or(parts.get("volume"))?;
    if parts.get("media") == Some("cdrom") || matches!(volume, "none" | "cdrom") || volume.contains("cloudinit") {
        return None;
    }
    let known = storage_of(volume, whole.storages);
    let controller = conf.get("scsihw").map_or("lsi", String::as_str);
    let mut disk = Disk {
        driver: Some(driver(bus, controller).to_owned()).into(),
        details: Details {
            storage: known.storage.map(str::to_owned).into(),
            thin: known.thin.into(),
            format: parts.get("format").map(str::to_owned).or(known.format).into(),
            virtual_bytes: parts.get("size").and_then(size).into(),
            discard: parts.get("discard").map(|value| value == "on").into(),
            queues: parts.number("queues").into(),
            limits: limits(parts).into(),
            ..Details::default()
        },
        place: Place {
            slot: Some(slot.to_owned()),
            volume: Some(volume.to_owned()),
            // Proxmox VE gives the device the slot as its id.
            device_id: Some(slot.to_owned()),
            source: known.source.into(),
            block_device: known.block,
            taken: slots(conf),
            ..whole.place()
        },
        ..Disk::unknown(Subject::disk(whole.guest, slot), whole.from.clone())
    };
    let btrfs = known.on.is_some_and(|s| s.kind == "btrfs" && !s.flag("nocow"));
    let cache = parts.get("cache");
    disk.cache = match cache {
        Some(configured) => configured.into(),
        None => Fact::read(Some((if btrfs { "writeback" } else { "none" }).to_owned()), DEFAULT),
    };
    let cache = disk.cache.as_deref().unwrap_or_default();
    disk.aio = match parts.get("aio") {
        Some(configured) => configured.into(),
        None => Fact::read(Some(default_aio(conf, known.on, cache).to_owned()), DEFAULT),
    };
    disk.details.detect_zeroes = Fact::from(Some(
        match (parts.get("detect_zeroes").and_then(truth), parts.get("discard")) {
            (Some(false), _) => "off",
            (_, Some("on")) => "unmap",
            _ => "on",
        }
        .to_owned(),
    ));
    // Proxmox VE ignores the setting where it has no effect: "iothread is only valid with virtio disk or
    // virtio-scsi-single controller, ignoring" (qemu-server, PVE/QemuServer.pm, `config_to_command`).
    disk.iothread = parts.get("iothread").and_then(truth).into();
    if disk.iothread == Some(true) {
        let name = match (bus, controller) {
            ("virtio", _) => Some(format!("iothread-{slot}")),
            ("scsi", "virtio-scsi-single") => Some(slot.replacen("scsi", "iothread-virtioscsi", 1)),
            _ => None,
        };
        if name.is_none() {
            disk.iothread = Some(false).into();
            disk.details.overridden.push(Overridden {
                setting: Setting::Iothread,
                asked: "on".into(),
                found: "off".into(),
                why: Some(match bus {
                    "scsi" => format!(
                        "Proxmox VE gives SCSI disks an I/O thread only with scsihw: virtio-scsi-single; here it is \
                         {controller}"
                    ),
                    _ => format!("Proxmox VE gives {} disks no I/O thread", bus.to_uppercase()),
                }),
            });
        }
        disk.details.iothread_name = name.into();
    }
    Some(disk)
}

/// Slots of disks and drives.
fn slots(conf: &Settings) -> Vec<String> {
    conf.keys().filter(|key| bus_of(key).is_some()).cloned().collect()
}

/// Bus of a slot of disks.
fn bus_of(slot: &str) -> Option<&str> {
    let bus = slot.trim_end_matches(|c: char| c.is_ascii_digit());
    (matches!(bus, "virtio" | "scsi" | "ide" | "sata") && bus.len() < slot.len()).then_some(bus)
}

fn driver<'a>(bus: &str, controller: &'a str) -> &'a str {
    match (bus, controller) {
        ("virtio", _) => "virtio-blk",
        ("sata", _) => "ahci",
        ("ide", _) => "ide",
        (_, "virtio-scsi-pci" | "virtio-scsi-single") => "virtio-scsi",
        (_, "lsi") => "lsi53c895a",
        // `lsi53c810`, `megasas`, `pvscsi`: QEMU's own names.
        (_, other) => other,
    }
}

/// io_uring since QEMU 6.0, except for storage with which it hung; else Linux AIO, which needs O_DIRECT, or threads
/// (`print_drive_commandline_full`). A machine type of an older QEMU keeps the old default.
fn default_aio(conf: &Settings, on: Option<&Storage>, cache: &str) -> &'static str {
    let direct = matches!(cache, "none" | "off" | "directsync");
    let machine = conf.get("machine").map_or("", String::as_str);
    let version = machine.split(',').next().unwrap_or_default().split('-').find_map(|part| part.split_once('.'));
    let old = version.is_some_and(|(major, _)| major.parse::<u32>().is_ok_and(|major| major < 6));
    let hangs = on.is_some_and(|s| match s.kind.as_str() {
        "lvm" | "cifs" => true,
        "rbd" => s.flag("krbd") && !direct,
        _ => false,
    });
    if !old && !hangs {
        return "io_uring";
    }
    if direct { "native" } else { "threads" }
}

/// Storage of a volume.
#[derive(Default)]
struct Volume<'a> {
    on: Option<&'a Storage>,
    storage: Option<&'static str>,
    thin: Option<bool>,
    format: Option<String>,
    source: Option<String>,
    block: Option<bool>,
}

/// A volume is `STORAGE:NAME`, or a path.
fn storage_of<'a>(volume: &str, storages: &'a [Storage]) -> Volume<'a> {
    if volume.starts_with('/') {
        let block = volume.starts_with("/dev/");
        let storage = Some(if block { "block" } else { "file" });
        return Volume { storage, source: Some(volume.to_owned()), block: Some(block), ..Volume::default() };
    }
    let Some((id, name)) = volume.split_once(':') else { return Volume::default() };
    let Some(on) = storages.iter().find(|s| s.id == id) else { return Volume::default() };
    // A linked clone has the base volume's name before its own.
    let last = name.rsplit('/').next().unwrap_or(name);
    let format = last.rsplit_once('.').map_or("raw", |(_, ending)| ending);
    let known = Volume { on: Some(on), format: Some(format.to_owned()), ..Volume::default() };
    let setting = |key: &str| on.get(key).unwrap_or_default().to_owned();
    let device = |path: String| Volume {
        source: Some(path),
        block: Some(true),
        on: Some(on),
        format: Some("raw".into()),
        ..Volume::default()
    };
    match on.kind.as_str() {
        "dir" | "btrfs" | "nfs" | "cifs" => Volume {
            storage: Some("file"),
            source: on.path().map(|path| on.images(&path).join(name).display().to_string()),
            block: Some(false),
            ..known
        },
        "lvm" => {
            Volume { storage: Some("lvm"), thin: Some(false), ..device(format!("/dev/{}/{last}", setting("vgname"))) }
        }
        "lvmthin" => Volume {
            storage: Some("lvm-thin"),
            thin: Some(true),
            ..device(format!("/dev/{}/{last}", setting("vgname")))
        },
        "zfspool" => Volume {
            storage: Some("zvol"),
            thin: Some(on.flag("sparse")),
            ..device(format!("/dev/zvol/{}/{last}", setting("pool")))
        },
        "rbd" => {
            let pool = on.get("pool").unwrap_or("rbd");
            Volume { storage: Some("rbd"), thin: Some(true), source: Some(format!("rbd:{pool}/{last}")), ..known }
        }
        "iscsi" | "iscsidirect" => Volume { storage: Some("iscsi"), ..known },
        _ => known,
    }
}

/// `32G`, with binary units.
fn size(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let unit = match unit {
        "" => 1.0,
        "K" => 1024.0,
        "M" => 1_048_576.0,
        "G" => 1_073_741_824.0,
        "T" => 1_099_511_627_776.0,
        _ => return None,
    };
    // Sizes with a fraction are approximate; all others are exact far beyond any disk's size.
    Some((number.parse::<f64>().ok().filter(|n| *n >= 0.0)? * unit) as u64)
}

fn limits(parts: &Parts<'_>) -> Vec<String> {
    let by = "by QEMU's throttle";
    let mut limits = Vec::new();
    for (end, way) in [("", ""), ("_rd", " read"), ("_wr", " write")] {
        let more = |key: &str| parts.number::<f64>(&format!("{key}{end}")).filter(|n| *n > 0.0);
        limits.extend(more("iops").map(|n| format!("{n}{way} IOPS {by}")));
        // Megabytes of Proxmox VE have 1024 x 1024 bytes.
        let megabytes = more("mbps").map(|n| n * 1.048_576).or(more("bps").map(|n| n / 1e6));
        limits.extend(megabytes.map(|n| format!("{n:.1}{way} MB/s {by}")));
    }
    limits
}

fn nic(whole: &Whole<'_>, number: u32, parts: &Parts<'_>) -> Option<Nic> {
    const MODELS: [&str; 13] = [
        "virtio",
        "e1000",
        "e1000e",
        "e1000-82540em",
        "e1000-82544gc",
        "e1000-82545em",
        "rtl8139",
        "vmxnet3",
        "pcnet",
        "ne2k_pci",
        "ne2k_isa",
        "i82551",
        "i82557b",
    ];
    let (model, mac) = match parts.any_of(&MODELS) {
        Some((model, mac)) => (model, Some(mac)),
        None => (parts.get("model").or(parts.first)?, parts.get("macaddr")),
    };
    let bridge = parts.get("bridge").map(str::to_owned);
    let slot = format!("net{number}");
    let interface = format!("tap{}i{number}", whole.vmid);
    Some(Nic {
        model: Some(if model == "virtio" { "virtio-net".to_owned() } else { model.to_owned() }).into(),
        // Without a bridge Proxmox VE uses QEMU's user network.
        backend: Some(if bridge.is_some() { "tap" } else { "user" }.to_owned()).into(),
        interface: bridge.is_some().then_some(interface).into(),
        bridge: bridge.into(),
        queues: parts.number("queues").into(),
        // 1 means the bridge's MTU.
        mtu_bytes: parts.number("mtu").filter(|mtu| *mtu > 1).into(),
        host_mtu_bytes: parts.number("mtu").filter(|mtu| *mtu > 1 && model == "virtio").into(),
        rate_limits: rate_limits(parts).into(),
        place: Place {
            slot: Some(slot.clone()),
            device_id: Some(slot.clone()),
            target: mac.map(str::to_lowercase),
            ..whole.place()
        },
        ..Nic::unknown(Subject::net(whole.guest, slot), whole.from.clone())
    })
}

/// `rate=`: megabytes of 1024 x 1024 bytes a second, in both directions. Packets that the host sends to the tap wait in
/// a queue (HTB), what it receives there is policed; both with a burst of 1 MiB (PVE/Network.pm, `tap_rate_limit`).
pub fn rate_limits(parts: &Parts<'_>) -> Vec<RateLimit> {
    let Some(rate) = parts.number::<f64>("rate").filter(|n| *n > 0.0 && n.is_finite()) else { return Vec::new() };
    let rate = ByteRate::new((rate * 1_048_576.0) as u64).bits();
    let limit = |direction| RateLimit {
        burst_bytes: Some(1 << 20),
        ..RateLimit::new(super::Proxmox.name(), direction, rate, direction == Direction::GuestTx)
    };
    Direction::ALL.into_iter().map(limit).collect()
}

fn processors(guest: &str, conf: &Settings, from: Provenance) -> Processors {
    let number = |key: &str| conf.get(key).and_then(|value| value.parse::<u32>().ok());
    let by_default = !conf.contains_key("sockets") && !conf.contains_key("cores") && !conf.contains_key("vcpus");
    let all = number("sockets").unwrap_or(1).saturating_mul(number("cores").unwrap_or(1));
    let vcpus = number("vcpus").unwrap_or(all);
    let cpu = conf.get("cpu").map(|cpu| Parts::of(cpu)).unwrap_or_default();
    let affinity = conf.get("affinity").and_then(|cpus| cpu_set(cpus)).unwrap_or_default();
    let memory = conf.get("memory").map(|memory| Parts::of(memory));
    let memory = memory.and_then(|m| m.get("current").or(m.first)?.parse::<u64>().ok()).unwrap_or(512);
    let bound = |role: &str, name: String| PlacedThread { role: role.into(), name, tid: 0, cpus: affinity.clone() };
    let most = MOST_VCPUS.min(u32::try_from(MOST_PLACES / affinity.len().max(1)).unwrap_or(MOST_VCPUS));
    let threads = (0..vcpus.min(most)).map(|n| bound("vcpu", n.to_string())).chain([bound("main", String::new())]);
    let quota = conf.get("cpulimit").and_then(|n| n.parse().ok()).filter(|n: &f64| *n > 0.0);
    Processors {
        vcpus: if by_default { Fact::read(Some(vcpus), DEFAULT) } else { Some(vcpus).into() },
        accel: conf.get("kvm").and_then(|kvm| truth(kvm)).map(|on| if on { Accel::Kvm } else { Accel::Tcg }).into(),
        // Proxmox VE's own models are passed to QEMU as another model with flags.
        model: cpu
            .get("cputype")
            .or(cpu.first)
            .filter(|model| !model.starts_with("x86-64-v") && !model.starts_with("custom-"))
            .map(str::to_owned)
            .into(),
        flags: cpu.get("flags").into_iter().flat_map(|flags| flags.split(';')).map(str::to_owned).collect(),
        threads: if affinity.is_empty() { Vec::new().into() } else { threads.collect() },
        memory_bytes: Some(memory << 20).into(),
        huge_pages: conf.get("hugepages").map(|_| true).into(),
        quota_cpus: quota.into(),
        quota_of_vcpus: quota.map(|_| false).into(),
        ..Processors::unknown(Subject::guest(guest), from)
    }
}
