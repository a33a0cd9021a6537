//! Xen domains whose devices this host serves, by their back ends in sysfs
//! (Documentation/ABI/stable/sysfs-bus-xen-backend of Linux): `vbd-DOMID-DEVICE`, `vif-DOMID-N`. Back ends in a QEMU
//! process (qdisk) and the domain's name are known to `xl` only.

use std::collections::BTreeMap;
use std::path::Path;

use vmio_model::cell::Kind;
use vmio_model::facts::{Disk, Guest, Nic, PlacedThread, Processors, Subject, Unread};
use vmio_model::rules::change::ConfigTool;
use vmio_node::linux::block::Device;
use vmio_node::linux::bus::{XEN_BACK_ENDS, XenBackEnd, xen_back_ends};
use vmio_node::linux::device;
use vmio_node::linux::net::Interfaces;
use vmio_node::linux::process::Status;

use super::GuestKind;
use crate::host_view::HostView;
use crate::{Managed, storage, way};

/// Entry `xen`.
pub struct Xen;

impl GuestKind for Xen {
    fn name(&self) -> &'static str {
        Kind::XEN.name
    }
    fn way(&self, managed: Option<ConfigTool>) -> Option<ConfigTool> {
        managed
    }
    fn about(&self) -> &'static str {
        "a Xen domain whose devices are served by this host (read only)"
    }
    fn running(&self, host: &HostView<'_>) -> Managed {
        let all = xen_back_ends(host.reader());
        let mut domains: BTreeMap<u32, Vec<&XenBackEnd>> = BTreeMap::new();
        for back_end in &all {
            domains.entry(back_end.domain).or_default().push(back_end);
        }
        Managed {
            guests: domains.into_iter().map(|(id, devices)| domain(host, id, &devices)).collect(),
            unread: Vec::new(),
        }
    }
}

fn domain(host: &HostView<'_>, id: u32, devices: &[&XenBackEnd]) -> Guest {
    let name = format!("domain {id}");
    // The domain's device model, where it has one.
    let model = host.processes().iter().find(|p| {
        let args = p.args.as_deref().unwrap_or_default();
        args.windows(2).any(|w| w[0] == "-xen-domid" && w[1] == id.to_string())
    });
    let pid = model.map(|p| p.pid);
    let mut guest = Guest { name: name.clone(), kind: Xen.name().into(), pid, ..Guest::default() };
    guest.ids.insert("domid".into(), id.to_string());
    for back_end in devices {
        let (dir, device) = (back_end.dir(), &back_end.name);
        match back_end.kind() {
            "vbd" => guest.disks.push(disk(host, &name, device, &dir)),
            "vif" => guest.nics.push(nic(host, &name, &dir)),
            _ => guest.unread.push(Unread {
                what: format!("device {device} of {name}"),
                why: "this kind of back end shows nothing in sysfs".into(),
                mend: format!("xl list -l {id}").into(),
            }),
        }
    }
    // Kernel threads of the back ends: `3.xvda-0` (drivers/block/xen-blkback/xenbus.c),
    // `vif3.0-q0-guest-rx` (drivers/net/xen-netback/interface.c).
    let (disks, nets) = (format!("{id}."), format!("vif{id}."));
    let threads = host.processes().iter().filter(|p| {
        let of_domain = p.comm.starts_with(&disks) || p.comm.starts_with(&nets);
        of_domain && p.args.iter().all(Vec::is_empty)
    });
    let thread = |p: &crate::host_view::ProcessInfo| {
        let cpus = Status::of(host.reader(), p.pid).ok().and_then(|s| s.cpus()).unwrap_or_default();
        PlacedThread { role: "worker".into(), name: p.comm.clone(), tid: p.pid, cpus }
    };
    let mut own = Processors::unknown(Subject::guest(&name), host.from(&name, XEN_BACK_ENDS));
    own.threads = threads.map(thread).collect();
    guest.processors = Some(own);
    guest
}

fn disk(host: &HostView<'_>, guest: &str, device: &str, dir: &Path) -> Disk {
    let from = host.from(guest, dir.display().to_string());
    let number = device.rsplit('-').next().and_then(|n| n.parse().ok());
    let target = number.and_then(target).unwrap_or_else(|| device.to_owned());
    let mut disk = Disk::unknown(Subject::disk(guest, &target), from);
    disk.driver = "xvd".into();
    disk.place.device_id = Some(device.to_owned());
    disk.place.target = Some(target);
    // Device number in hexadecimal: `fd:3`.
    let number = host.reader().read_text(&dir.join("physical_device")).ok();
    if let Some(number) = number.and_then(|text| device::parse_hex(&text)) {
        let storage = storage::device(host.reader(), number);
        let name = Device::numbered(host.reader(), number).node_name();
        disk.place.source = name.ok().flatten().map(|name| format!("/dev/{name}")).into();
        disk.place.block_device = Some(true);
        disk.details.format = "raw".into();
        disk.details.storage = storage.kind.into();
        disk.details.thin = storage.thin.into();
        disk.details.volblock_bytes = storage.volblock_bytes.into();
        disk.details.virtual_bytes = storage.bytes.into();
    }
    disk
}

/// Front end's name of a disk, by its number: 51712 is xvda, with 16 numbers a disk; from `xvdq` on another encoding
/// (Linux drivers/block/xen-blkfront.c, `EXTENDED`).
fn target(number: u32) -> Option<String> {
    const EXTENDED: u32 = 1 << 28;
    let (disk, partition) = match number {
        n if n & EXTENDED != 0 => ((n & !EXTENDED) >> 8, n & 0xff),
        n if n >> 8 == 202 => ((n & 0xff) >> 4, n & 0xf),
        _ => return None,
    };
    let letter = char::from(b'a' + u8::try_from(disk).ok().filter(|d| *d < 26)?);
    Some(if partition == 0 { format!("xvd{letter}") } else { format!("xvd{letter}{partition}") })
}

fn nic(host: &HostView<'_>, guest: &str, dir: &Path) -> Nic {
    let from = host.from(guest, dir.display().to_string());
    let interface = host.reader().list(&dir.join("net")).unwrap_or_default().into_iter().next();
    let name = interface.clone().unwrap_or_default();
    let mut nic = Nic::unknown(Subject::net(guest, &name), from);
    (nic.model, nic.backend) = ("netfront".into(), "netback".into());
    if interface.is_some() {
        way::settle(host, &Interfaces::here(host.reader()), &mut nic, &name);
    }
    nic.interface = interface.into();
    nic
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_node::Fake;

    #[test]
    fn a_domain_is_seen_by_its_back_ends() {
        let fake = Fake::new("fake")
            .file("/sys/bus/xen-backend/devices/vbd-3-51712/physical_device", "fd:3\n")
            .file("/sys/bus/xen-backend/devices/vif-3-0/net/vif3.0/mtu", "1500\n")
            .file("/sys/bus/xen-backend/devices/vbd-0-51712/mode", "w\n")
            .file("/sys/dev/block/253:3/uevent", "DEVNAME=dm-3\n")
            .file("/sys/dev/block/253:3/dm/uuid", "LVM-x\n")
            .file("/sys/class/net/vif3.0/mtu", "1500\n")
            .symlink("/sys/class/net/vif3.0/master", "../xenbr0")
            .file("/proc/70/comm", "3.xvda-0\n")
            .file("/proc/70/cmdline", "")
            .file("/proc/70/status", "Cpus_allowed_list:\t0-1\n")
            .file("/proc/71/comm", "qemu-system-i38\n")
            .file("/proc/71/cmdline", "qemu-system-i386\0-xen-domid\x003\0");
        let guests = Xen.running(&HostView::new(&fake)).guests;
        let [guest] = &guests[..] else { panic!("{guests:?}") };
        assert_eq!((guest.name.as_str(), guest.pid, guest.ids["domid"].as_str()), ("domain 3", Some(71), "3"));
        let disk = &guest.disks[0];
        assert_eq!((disk.place.target.as_deref(), disk.place.source.as_deref()), (Some("xvda"), Some("/dev/dm-3")));
        assert_eq!(disk.details.storage.as_deref(), Some("lvm"));
        assert_eq!(
            (guest.nics[0].interface.as_deref(), guest.nics[0].bridge.as_deref()),
            (Some("vif3.0"), Some("xenbr0"))
        );
        assert_eq!(guest.processors.as_ref().unwrap().threads[0].name, "3.xvda-0");
    }

    #[test]
    fn disks_are_named_by_their_numbers() {
        assert_eq!(target(51712).as_deref(), Some("xvda"));
        assert_eq!(target(51729).as_deref(), Some("xvdb1"));
        assert_eq!(target((1 << 28) | (16 << 8)).as_deref(), Some("xvdq"));
        assert_eq!(target(768), None);
    }
}
