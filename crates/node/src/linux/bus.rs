//! Devices by the bus that they are on: PCI (Linux Documentation/ABI/testing/sysfs-bus-pci) and the back ends of
//! Xen's domains (Documentation/ABI/stable/sysfs-bus-xen-backend).

use std::path::{Path, PathBuf};

use super::word;
use crate::Reader;

/// Base class of network devices (PCI Code and ID Assignment Specification).
pub const PCI_NETWORK: u8 = 0x02;

/// Where Xen's back ends are.
pub const XEN_BACK_ENDS: &str = "/sys/bus/xen-backend/devices";

/// Directory of a PCI device by its whole address, `0000:00:1e.0`.
pub fn pci(address: &str) -> PathBuf {
    Path::new("/sys/bus/pci/devices").join(address)
}

/// Base class of a PCI device: the first byte of `0x020000`.
pub fn pci_class(reader: &dyn Reader, address: &str) -> Option<u8> {
    let class = word(reader, &pci(address).join("class"))?;
    u8::from_str_radix(class.strip_prefix("0x")?.get(..2)?, 16).ok()
}

/// A virtual function of a network card (SR-IOV; Linux Documentation/PCI/pci-iov-howto.rst), as a guest is given one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualFunction {
    /// Interface of the card here.
    pub card: String,
    /// Which function of the card, from 0.
    pub number: u32,
    /// The nodes by which a process drives it (VFIO): of its group, or its own (Linux 6.6).
    pub nodes: Vec<PathBuf>,
}

/// What the PCI device of that address is, where it is a virtual function of a network card that has an interface here.
pub fn virtual_function(reader: &dyn Reader, address: &str) -> Option<VirtualFunction> {
    let last = |path: PathBuf| Some(path.file_name()?.to_str()?.to_owned());
    let link = |path: PathBuf| reader.link(&path).ok().flatten().and_then(last);
    let device = pci(address);
    let card = pci(&link(device.join("physfn"))?);
    let entries = reader.list(&card).ok()?;
    let mut numbers = entries.iter().filter_map(|name| name.strip_prefix("virtfn")?.parse::<u32>().ok());
    let number = numbers.find(|n| link(card.join(format!("virtfn{n}"))).as_deref() == Some(address))?;
    let interface = reader.list(&card.join("net")).ok()?.into_iter().next()?;
    let group = link(device.join("iommu_group")).map(|group| Path::new("/dev/vfio").join(group));
    let own = reader.list(&device.join("vfio-dev")).unwrap_or_default();
    let own = own.into_iter().map(|name| Path::new("/dev/vfio/devices").join(name));
    Some(VirtualFunction { card: interface, number, nodes: group.into_iter().chain(own).collect() })
}

/// Name of the disk of a virtio device on PCI: Linux has a directory `virtioN` below that of the PCI device, and the
/// disk's name in its `block`.
pub fn virtio_disk(reader: &dyn Reader, address: &str) -> Option<String> {
    let device = pci(address);
    let virtio = reader.list(&device).ok()?.into_iter().find(|name| name.starts_with("virtio"))?;
    reader.list(&device.join(virtio).join("block")).ok()?.into_iter().next()
}

/// Name of the first disk of an NVMe controller on PCI: Linux has a directory `nvmeN` in `nvme` below that of the PCI
/// device, and in it one for each namespace: the disk `nvmeSnM`, or where other controllers could share it a path
/// `nvmeScNnM` to that disk (drivers/nvme/host/multipath.c).
pub fn nvme_disk(reader: &dyn Reader, address: &str) -> Option<String> {
    let controllers = pci(address).join("nvme");
    let name = reader.list(&controllers).ok()?.into_iter().next()?;
    let mut inside = reader.list(&controllers.join(&name)).ok()?;
    inside.sort_unstable();
    let disk = |entry: String| {
        let (subsystem, rest) = entry.strip_prefix("nvme")?.split_once(['c', 'n'])?;
        Some(format!("nvme{subsystem}n{}", rest.rsplit('n').next()?))
    };
    inside.into_iter().find_map(disk)
}

/// A back end of a Xen domain's device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XenBackEnd {
    /// Name of its directory: `vbd-3-51712`, which is kind, domain and number.
    pub name: String,
    /// Number of the domain, above 0: that of this machine itself.
    pub domain: u32,
}

impl XenBackEnd {
    /// `vbd` of a disk, `vif` of a network device.
    pub fn kind(&self) -> &str {
        self.name.split('-').next().unwrap_or_default()
    }

    /// Its directory.
    pub fn dir(&self) -> PathBuf {
        Path::new(XEN_BACK_ENDS).join(&self.name)
    }
}

/// All back ends of other domains here; none where there is no Xen.
pub fn xen_back_ends(reader: &dyn Reader) -> Vec<XenBackEnd> {
    let names = reader.list(Path::new(XEN_BACK_ENDS)).unwrap_or_default();
    let back_end = |name: String| {
        let domain = name.split('-').nth(1)?.parse().ok().filter(|id| *id > 0)?;
        Some(XenBackEnd { name, domain })
    };
    names.into_iter().filter_map(back_end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fake;

    #[test]
    fn devices_of_a_bus() {
        let fake = Fake::new("fake")
            .file("/sys/bus/pci/devices/0000:00:04.0/class", "0x010000\n")
            .file("/sys/bus/pci/devices/0000:00:04.0/virtio2/block/vdb/size", "2048\n")
            .file("/sys/bus/pci/devices/0000:00:05.0/class", "0x020000\n");
        assert_eq!(pci_class(&fake, "0000:00:05.0"), Some(PCI_NETWORK));
        assert_eq!((pci_class(&fake, "0000:00:04.0"), pci_class(&fake, "0000:00:06.0")), (Some(1), None));
        assert_eq!(virtio_disk(&fake, "0000:00:04.0").as_deref(), Some("vdb"));
        assert_eq!(virtio_disk(&fake, "0000:00:05.0"), None);
    }

    #[test]
    fn a_cards_virtual_functions() {
        let pci = "/sys/bus/pci/devices";
        let fake = Fake::new("fake")
            .file(format!("{pci}/0000:01:00.0/net/eth0/mtu"), "1500\n")
            .symlink(format!("{pci}/0000:01:00.0/virtfn0"), "../0000:01:10.0")
            .symlink(format!("{pci}/0000:01:00.0/virtfn1"), "../0000:01:10.2")
            .symlink(format!("{pci}/0000:01:10.2/physfn"), "../0000:01:00.0")
            .symlink(format!("{pci}/0000:01:10.2/iommu_group"), "../../../../kernel/iommu_groups/17")
            .file(format!("{pci}/0000:01:10.2/vfio-dev/vfio3/dev"), "511:3\n");
        let nodes = ["/dev/vfio/17", "/dev/vfio/devices/vfio3"].map(PathBuf::from).to_vec();
        let found = VirtualFunction { card: "eth0".into(), number: 1, nodes };
        assert_eq!(virtual_function(&fake, "0000:01:10.2"), Some(found));
        // A card itself, one that is none, and one that its card does not know.
        assert_eq!(virtual_function(&fake, "0000:01:00.0"), None);
        assert_eq!(virtual_function(&fake, "0000:09:00.0"), None);
        let fake = fake.symlink(format!("{pci}/0000:01:10.4/physfn"), "../0000:01:00.0");
        assert_eq!(virtual_function(&fake, "0000:01:10.4"), None);
    }

    #[test]
    fn back_ends_of_other_domains() {
        let names = ["vbd-3-51712", "vif-3-0", "vbd-0-51712", "console-x-0", "odd"];
        let fake =
            names.iter().fold(Fake::new("fake"), |f, name| f.file(format!("{XEN_BACK_ENDS}/{name}/mode"), "w\n"));
        let found: Vec<_> = xen_back_ends(&fake).iter().map(|b| (b.kind().to_owned(), b.domain)).collect();
        assert_eq!(found, [("vbd".to_owned(), 3), ("vif".to_owned(), 3)]);
        assert!(xen_back_ends(&Fake::new("fake")).is_empty());
    }
}
