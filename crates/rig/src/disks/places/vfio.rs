//! An NVMe device that the operator has given to VFIO (kernel documents driver-api/vfio.rst and
//! ABI/testing/sysfs-bus-pci), which a guest gets whole. Vmio never binds a device to another driver: it looks whether
//! this has been done, and says how.

use std::path::{Path, PathBuf};

use vmio_look::require::{Missing, Requirement};
use vmio_node::{Node, Reader};

use super::{Error, Kind, Listed, PlaceBackend, PlaceKind, Result, tools};

/// The driver that hands devices on.
pub const DRIVER: &str = "vfio-pci";
/// Drivers of others in a device's group that stand in the way of no guest: the kernel lets them leave its DMA to VFIO
/// (`driver_managed_dma` of struct pci_driver).
const HARMLESS: [&str; 3] = [DRIVER, "pci-stub", "pcieport"];
/// First digits of the class of an NVMe controller (PCI Code and ID Assignment, 01 08).
const NVME: &str = "0x0108";
const GROUPS: &str = "/sys/kernel/iommu_groups";

const IOMMU: Requirement = Requirement {
    name: "IOMMU",
    why: "lets a guest have a device of its own",
    fix: "turn it on in the firmware (VT-d, AMD-Vi), and for Intel start the kernel with intel_iommu=on",
    check: |reader| match reader.list(Path::new(GROUPS)) {
        Ok(groups) if !groups.is_empty() => Ok(()),
        _ => Err(Missing::Feature { feature: "IOMMU groups".into(), path: GROUPS.into() }),
    },
};

/// What this host must have.
const REQUIREMENTS: &[Requirement] = &[IOMMU, Requirement { why: "opens the device in /dev/vfio", ..tools::ROOT }];

/// Entry `vfio`.
pub struct Vfio;

/// A device that can be passed through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedThrough {
    /// Its PCI address: `0000:03:00.0`.
    pub address: String,
    /// Number of its IOMMU group.
    pub group: String,
}

impl PassedThrough {
    /// Its directory in sysfs.
    pub fn dir(&self) -> PathBuf {
        sysfs(&self.address)
    }
}

impl PlaceKind for Vfio {
    fn prefix(&self) -> &'static str {
        "vfio"
    }
    fn form(&self) -> &'static str {
        "vfio:ADDRESS"
    }
    fn about(&self) -> &'static str {
        "an NVMe device bound to vfio-pci, by its PCI address, such as vfio:0000:03:00.0: passed through to a guest"
    }
    fn requirements(&self) -> &'static [Requirement] {
        REQUIREMENTS
    }
    fn resolve(&self, node: &dyn Node, name: &str) -> Result<PlaceBackend> {
        let place = format!("vfio:{name}");
        tools::needs(node, &place, REQUIREMENTS)?;
        look(node.reader(), &place, name).map(PlaceBackend::PassedThrough)
    }
    fn list(&self, _: &dyn Node) -> Vec<Listed> {
        vec![]
    }
}

fn sysfs(address: &str) -> PathBuf {
    Path::new("/sys/bus/pci/devices").join(address)
}

/// The whole address of what was written, with or without its domain.
fn address(text: &str) -> Option<String> {
    let whole = if text.matches(':').count() == 1 { format!("0000:{text}") } else { text.to_owned() };
    let (domain, rest) = whole.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let hex = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit());
    let fits = hex(domain, 4) && hex(bus, 2) && hex(device, 2) && hex(function, 1);
    fits.then(|| whole.to_ascii_lowercase())
}

/// The last part of where a link leads: a driver's name, a group's number.
fn linked(reader: &dyn Reader, link: &Path) -> Option<String> {
    Some(reader.link(link).ok()??.file_name()?.to_str()?.to_owned())
}

/// Whether a device can be passed through as it is.
fn look(reader: &dyn Reader, place: &str, name: &str) -> Result<PassedThrough> {
    let unready = |reason: String, help: String| Err(Error::new(Kind::Unready, place, reason).help(help));
    let Some(address) = address(name) else {
        let error = Error::new(Kind::Unknown, place, format!("{name} is no PCI address"));
        return Err(error.help("write vfio:0000:03:00.0; `lspci -D` lists the addresses of this host"));
    };
    let dir = sysfs(&address);
    if !matches!(reader.stat(&dir), Ok(Some(_))) {
        let error = Error::new(Kind::NotThere, place, format!("no PCI device has the address {address}"));
        return Err(error.help("`lspci -D` lists those of this host"));
    }
    let class = reader.read_text(&dir.join("class")).unwrap_or_default().trim().to_owned();
    if !class.starts_with(NVME) {
        let help = "name an NVMe device: `lspci -D -d ::0108` lists them".to_owned();
        return unready(format!("it is no NVMe controller (class {class})"), help);
    }
    let driver = linked(reader, &dir.join("driver"));
    if driver.as_deref() != Some(DRIVER) {
        let found = driver.map_or_else(|| "it has no driver".to_owned(), |driver| format!("its driver is {driver}"));
        let help = format!(
            "vmio binds no device to another driver; when nothing uses it any more: modprobe {DRIVER}; echo {DRIVER} > \
             {at}/driver_override; echo {address} > {at}/driver/unbind; echo {address} > /sys/bus/pci/drivers_probe",
            at = dir.display()
        );
        return unready(format!("{found}, not {DRIVER}"), help);
    }
    let Some(group) = linked(reader, &dir.join("iommu_group")) else {
        return unready("it is in no IOMMU group".to_owned(), IOMMU.fix.to_owned());
    };
    let beside = reader.list(&Path::new(GROUPS).join(&group).join("devices")).unwrap_or_default();
    for other in beside.iter().filter(|other| **other != address) {
        let driver = linked(reader, &sysfs(other).join("driver"));
        if let Some(driver) = driver.filter(|driver| !HARMLESS.contains(&driver.as_str())) {
            let reason = format!("{other} of the same IOMMU group ({group}) has the driver {driver}");
            return unready(reason, format!("a group is given away whole: bind {other} to {DRIVER}, too"));
        }
    }
    let node = Path::new("/dev/vfio").join(&group);
    if !matches!(reader.stat(&node), Ok(Some(_))) {
        return unready(format!("there is no {}", node.display()), format!("modprobe {DRIVER}"));
    }
    Ok(PassedThrough { address, group })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_node::fake::{Fake, host};

    /// A host with an NVMe device of this driver, in group 7 with another device.
    fn machine(driver: &str, class: &str, beside: &str) -> Fake {
        let (own, other) = ("/sys/bus/pci/devices/0000:03:00.0", "/sys/bus/pci/devices/0000:03:00.1");
        host(&[])
            .file(format!("{own}/class"), format!("{class}\n"))
            .symlink(format!("{own}/driver"), format!("../../../bus/pci/drivers/{driver}"))
            .symlink(format!("{own}/iommu_group"), "../../../kernel/iommu_groups/7")
            .file(format!("{other}/class"), "0x040300\n")
            .symlink(format!("{other}/driver"), format!("../../../bus/pci/drivers/{beside}"))
            .file("/sys/kernel/iommu_groups/7/devices/0000:03:00.0", "")
            .file("/sys/kernel/iommu_groups/7/devices/0000:03:00.1", "")
    }

    fn resolved(node: &Fake, text: &str) -> Result<PassedThrough> {
        let backend = super::super::resolve(node, text)?.backend;
        let PlaceBackend::PassedThrough(device) = backend else { panic!("{backend:?}") };
        Ok(device)
    }

    #[test]
    fn a_device_that_was_given_to_vfio_is_taken_by_its_address() {
        let node = machine("vfio-pci", "0x010802", "pcieport").file("/dev/vfio/7", "");
        let device = PassedThrough { address: "0000:03:00.0".into(), group: "7".into() };
        assert_eq!(resolved(&node, "vfio:0000:03:00.0").unwrap(), device);
        assert_eq!(resolved(&node, "vfio:03:00.0").unwrap(), device, "without its domain");
        let said = super::super::resolve(&node, "vfio:03:00.0").unwrap().describe();
        assert!(said.contains("IOMMU group 7"), "{said}");
    }

    #[test]
    fn what_is_in_the_way_is_told_with_what_to_do() {
        let said = |node: &Fake, text: &str| {
            let error = resolved(node, text).unwrap_err();
            (error.kind, error.reason, error.help)
        };
        let ready = machine("vfio-pci", "0x010802", "vfio-pci");
        let (kind, reason, help) = said(&machine("nvme", "0x010802", "vfio-pci"), "vfio:03:00.0");
        assert!(kind == Kind::Unready && reason.contains("nvme, not vfio-pci"), "{reason}");
        assert!(help.contains("echo 0000:03:00.0 > /sys/bus/pci/devices/0000:03:00.0/driver/unbind"), "{help}");
        let (_, reason, help) = said(&machine("vfio-pci", "0x010802", "snd_hda_intel"), "vfio:03:00.0");
        assert!(reason.contains("0000:03:00.1") && reason.contains("snd_hda_intel"), "{reason}");
        assert!(help.contains("given away whole"), "{help}");
        let (_, reason, _) = said(&machine("vfio-pci", "0x020000", "vfio-pci"), "vfio:03:00.0");
        assert!(reason.contains("no NVMe controller (class 0x020000)"), "{reason}");
        assert!(said(&ready, "vfio:03:00.0").1.contains("/dev/vfio/7"));
        assert_eq!(said(&ready, "vfio:04:00.0").0, Kind::NotThere);
        for wrong in ["vfio:nvme0", "vfio:../../x:00.0", "vfio:0:3:0.0"] {
            assert_eq!(said(&ready, wrong).0, Kind::Unknown, "{wrong}");
        }
        let (kind, _, help) = said(&host(&[]), "vfio:03:00.0");
        assert!(kind == Kind::Tool && help.contains("intel_iommu=on"), "{help}");
    }
}
