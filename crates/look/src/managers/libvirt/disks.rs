//! Disks of a domain's XML (<https://libvirt.org/formatdomain.html#hard-drives-floppy-disks-cdroms>).

use roxmltree::Node;
use vmio_model::facts::{Below, Details, Disk, Place, Provenance, Subject};

use super::element::{at, attribute, child, children, text_of};

/// A `<disk>`; `None` for removable media.
pub fn disk(
    guest: &str,
    domain: Node<'_, '_>,
    devices: Node<'_, '_>,
    disk: Node<'_, '_>,
    from: &Provenance,
) -> Option<Disk> {
    if !matches!(disk.attribute("device"), None | Some("disk" | "lun")) {
        return None;
    }
    let target = attribute(disk, "target", "dev")?;
    let bus = attribute(disk, "target", "bus");
    let scsi = (bus == Some("scsi")).then(|| controller(devices, disk)).flatten();
    let option = |name: &str| attribute(disk, "driver", name).filter(|value| *value != "default");
    // SCSI disks have their controller's options.
    let shared = |name: &str| option(name).or_else(|| attribute(scsi?, "driver", name));
    let thread = shared("iothread").map(|id| format!("iothread{id}"));
    let mapped = at(disk, &["driver", "iothreads"]).or_else(|| at(scsi?, &["driver", "iothreads"]));
    let mapped = mapped.map(|threads| children(threads, "iothread").count()).filter(|n| *n > 0);
    let (storage, source) = source(disk);
    let sector = |name: &str| attribute(disk, "blockio", name).and_then(|bytes| bytes.parse::<u64>().ok());

    Some(Disk {
        driver: driver(disk, bus, scsi).into(),
        cache: option("cache").map(str::to_owned).into(),
        aio: option("io").map(str::to_owned).into(),
        iothread: (thread.is_some() || mapped.is_some()).then_some(true).into(),
        details: Details {
            storage: storage.into(),
            format: option("type").map(str::to_owned).into(),
            backing_files: child(disk, "backingStore").map(layers_below).into(),
            discard: option("discard").map(|value| value == "unmap").into(),
            detect_zeroes: option("detect_zeroes").map(str::to_owned).into(),
            queues: shared("queues").and_then(|n| n.parse().ok()).into(),
            mapped_iothreads: mapped.and_then(|n| n.try_into().ok()).into(),
            iothread_name: thread.into(),
            limits: limits(domain, disk).into(),
            below: Below {
                guest_logical_block_bytes: sector("logical_block_size").into(),
                guest_physical_block_bytes: sector("physical_block_size").into(),
                ..Below::default()
            },
            ..Details::default()
        },
        place: Place {
            domain: Some(guest.to_owned()),
            source: source.into(),
            block_device: match disk.attribute("type") {
                Some("block") => Some(true),
                Some("file") => Some(false),
                _ => None,
            },
            target: Some(target.to_owned()),
            device_id: attribute(disk, "alias", "name").map(str::to_owned),
            volume: volume(disk),
            ..Place::default()
        },
        ..Disk::unknown(Subject::disk(guest, target), from.clone())
    })
}

/// Target of the first disk, from which the guest boots where no device has an order (`<boot order=.../>`) and `<os>`
/// boots from the hard disk, as by default.
pub fn boots_as_first<'a>(domain: Node<'a, '_>, devices: Node<'a, '_>) -> Option<&'a str> {
    let os = child(domain, "os")?;
    let mut said = children(os, "boot").filter_map(|b| b.attribute("dev")).peekable();
    let by_order = devices.children().any(|device| child(device, "boot").is_some());
    let by_kernel = child(os, "kernel").is_some();
    let by_disk = !by_order && !by_kernel && (said.peek().is_none() || said.any(|dev| dev == "hd"));
    let disk = children(devices, "disk").find(|d| matches!(d.attribute("device"), None | Some("disk" | "lun")));
    attribute(disk.filter(|_| by_disk)?, "target", "dev")
}

/// The controller that a SCSI disk is on.
fn controller<'a, 'i>(devices: Node<'a, 'i>, disk: Node<'_, '_>) -> Option<Node<'a, 'i>> {
    let index = attribute(disk, "address", "controller").unwrap_or("0");
    children(devices, "controller")
        .find(|c| c.attribute("type") == Some("scsi") && c.attribute("index").unwrap_or("0") == index)
}

/// vmio's name of the device, as libvirt makes it for QEMU (src/qemu/qemu_command.c of libvirt).
fn driver(disk: Node<'_, '_>, bus: Option<&str>, scsi: Option<Node<'_, '_>>) -> Option<String> {
    Some(
        match bus? {
            "virtio" if disk.attribute("type") == Some("vhostuser") => "vhost-user-blk",
            "virtio" => "virtio-blk",
            "sata" => "ahci",
            "usb" => "usb-storage",
            "sd" => "sd-card",
            "scsi" => match scsi?.attribute("model")? {
                "virtio-scsi" | "virtio-transitional" | "virtio-non-transitional" => "virtio-scsi",
                "lsilogic" => "lsi53c895a",
                "lsisas1068" => "mptsas1068",
                "lsisas1078" => "megasas",
                "vmpvscsi" => "pvscsi",
                "ibmvscsi" => "spapr-vscsi",
                "dc390" => "dc390",
                "auto" => return None,
                other => other,
            },
            // `ide`, `nvme` and unknown buses keep their names.
            other => other,
        }
        .to_owned(),
    )
}

/// Kind of storage, and path or address.
fn source(disk: Node<'_, '_>) -> (Option<String>, Option<String>) {
    let Some(source) = child(disk, "source") else { return (None, None) };
    let own = |name: &str| source.attribute(name).map(str::to_owned);
    match disk.attribute("type").unwrap_or("file") {
        "file" => (Some("file".into()), own("file")),
        "block" => (Some("block".into()), own("dev")),
        "network" => (own("protocol"), remote(source)),
        // The pool knows the kind; the domain does not say it.
        "volume" => (None, None),
        "vhostuser" => (Some("vhost-user".into()), own("path")),
        "nvme" => (Some("nvme".into()), None),
        other => (Some(other.to_owned()), None),
    }
}

/// `POOL/VOLUME` of libvirt's storage.
fn volume(disk: Node<'_, '_>) -> Option<String> {
    let source = child(disk, "source").filter(|_| disk.attribute("type") == Some("volume"))?;
    Some(format!("{}/{}", source.attribute("pool")?, source.attribute("volume")?))
}

/// `rbd:pool/image`, `nbd://host:port/export`, `nbd+unix:///export?socket=PATH`.
fn remote(source: Node<'_, '_>) -> Option<String> {
    let protocol = source.attribute("protocol")?;
    let name = source.attribute("name").unwrap_or_default();
    let Some(host) = child(source, "host").filter(|_| protocol != "rbd") else {
        return Some(format!("{protocol}:{name}"));
    };
    if let Some(socket) = host.attribute("socket") {
        return Some(format!("{protocol}+unix:///{name}?socket={socket}"));
    }
    let port = host.attribute("port").map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{protocol}://{}{port}/{name}", host.attribute("name").unwrap_or_default()))
}

/// Number of images below the top one. The last of a chain is an element without a type.
fn layers_below(store: Node<'_, '_>) -> u32 {
    let next = |store: &Node<'_, '_>| store.attribute("type").is_some();
    let chain = std::iter::successors(Some(store).filter(next), |s| child(*s, "backingStore").filter(next));
    chain.count().try_into().unwrap_or(u32::MAX)
}

/// Limits of `<iotune>`, in QEMU, and of `<blkiotune>`, in the block controller.
fn limits(domain: Node<'_, '_>, disk: Node<'_, '_>) -> Vec<String> {
    let mut limits = Vec::new();
    if let Some(tune) = child(disk, "iotune") {
        limits.extend(words(tune, "QEMU's throttle"));
    }
    let Some(device) = attribute(disk, "source", "dev") else { return limits };
    let tuned = child(domain, "blkiotune").into_iter().flat_map(|t| children(t, "device"));
    for tune in tuned.filter(|t| text_of(*t, "path") == Some(device)) {
        limits.extend(words(tune, "the control group"));
    }
    limits
}

/// Limits in words; zero is no limit.
fn words(tune: Node<'_, '_>, by: &str) -> Vec<String> {
    let limit = |n: Node<'_, '_>| {
        let number: u64 = n.text()?.trim().parse().ok().filter(|n| *n > 0)?;
        let name = n.tag_name().name();
        let way = ["total", "read", "write"].into_iter().find(|w| name.starts_with(w))?;
        let way = if way == "total" { String::new() } else { format!(" {way}") };
        Some(match name {
            _ if name.ends_with("_max") || name.ends_with("_max_length") => return None,
            _ if name.contains("iops") => format!("{number}{way} IOPS by {by}"),
            _ if name.contains("bytes") => format!("{:.1}{way} MB/s by {by}", number as f64 / 1e6),
            _ => return None,
        })
    };
    tune.children().filter(Node::is_element).filter_map(limit).collect()
}
