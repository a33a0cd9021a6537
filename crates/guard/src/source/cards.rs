//! Virtual functions of this host's cards (SR-IOV) that guests drive. As with taps a command line is not proof: a
//! function is a guest's only where its process has the function's VFIO node open.

use rustix::fs::FileType;
use vmio_model::facts::{Guest, Nic};
use vmio_node::Reader;
use vmio_node::linux::bus::{self, VirtualFunction};
use vmio_node::linux::process;

/// A virtual function that a guest drives by VFIO.
#[derive(Debug, Clone, PartialEq)]
pub struct AssignedVf {
    /// The guest's device.
    pub nic: Nic,
    /// Interface of the card.
    pub card: String,
    /// Its number in the card.
    pub function: u32,
}

impl AssignedVf {
    /// Its name in vmio, which no interface can have.
    pub fn name(&self) -> String {
        format!("{}/vf{}", self.card, self.function)
    }
}

/// The virtual functions that a guest drives.
pub fn assigned_vfs(reader: &dyn Reader, guest: &Guest) -> Vec<AssignedVf> {
    let Some(pid) = guest.pid else { return Vec::new() };
    let passed_through = |nic: &&Nic| nic.model.as_deref() == Some("vfio");
    let of = |nic: &Nic| {
        let function = bus::virtual_function(reader, nic.place.source.as_deref()?)?;
        let VirtualFunction { card, number, .. } = function.clone();
        drives(reader, pid, &function).then(|| AssignedVf { nic: nic.clone(), card, function: number })
    };
    guest.nics.iter().filter(passed_through).filter_map(of).collect()
}

/// Whether a process has one of the function's VFIO nodes open, compared by device number.
fn drives(reader: &dyn Reader, pid: u32, function: &VirtualFunction) -> bool {
    let is_device = |stat: &vmio_node::FileStat| FileType::from_raw_mode(stat.mode) == FileType::CharacterDevice;
    let nodes: Vec<(u32, u32)> = function
        .nodes
        .iter()
        .filter_map(|node| reader.stat(node).ok().flatten())
        .filter(is_device)
        .map(|stat| stat.rdev)
        .collect();
    let of_vfio = |(_, to): &(u32, std::path::PathBuf)| to.to_string_lossy().contains("vfio");
    let open = process::descriptors(reader, pid).unwrap_or_default();
    open.iter().filter(|d| of_vfio(d)).any(|(fd, _)| {
        let opened = reader.opened(pid, *fd).ok().flatten();
        opened.is_some_and(|opened| is_device(&opened.is.stat) && nodes.contains(&opened.is.stat.rdev))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::facts::{Provenance, Subject};
    use vmio_node::{Fake, FileStat};

    use super::*;

    fn guest() -> Guest {
        let mut nic = Nic::unknown(Subject::net("web1", "hostdev0"), Provenance::Transcript { name: "test".into() });
        nic.model = Some("vfio".to_owned()).into();
        nic.backend = Some("vfio".to_owned()).into();
        nic.place.source = Some("0000:01:10.2".to_owned()).into();
        Guest { name: "web1".into(), pid: Some(7), nics: vec![nic], ..Guest::default() }
    }

    fn host() -> Fake {
        let pci = "/sys/bus/pci/devices";
        let node = |mode, rdev| FileStat { mode, size: 0, allocated: 0, dev: (0, 6), rdev };
        Fake::new("fake")
            .file(format!("{pci}/0000:01:00.0/net/eth0/mtu"), "1500\n")
            .symlink(format!("{pci}/0000:01:00.0/virtfn3"), "../0000:01:10.2")
            .symlink(format!("{pci}/0000:01:10.2/physfn"), "../0000:01:00.0")
            .symlink(format!("{pci}/0000:01:10.2/iommu_group"), "../../../../kernel/iommu_groups/17")
            .node("/dev/vfio/17", node(0o020_600, (240, 5)))
            .node("/dev/vfio/18", node(0o020_600, (240, 6)))
            // A file of that name in another user's directory.
            .node("/home/mallory/vfio/17", node(0o100_600, (0, 0)))
    }

    #[test]
    fn function_needs_its_vfio_node_open() {
        let host = || host().symlink("/proc/7/fd/3", "/dev/null");
        let seen = |fake: &Fake| assigned_vfs(fake, &guest()).iter().map(AssignedVf::name).collect::<Vec<_>>();
        assert_eq!(seen(&host().symlink("/proc/7/fd/20", "/dev/vfio/17")), ["eth0/vf3"]);
        assert!(seen(&host()).is_empty(), "a command line alone");
        assert!(seen(&host().symlink("/proc/7/fd/20", "/dev/vfio/18")).is_empty(), "another group");
        assert!(seen(&host().symlink("/proc/7/fd/20", "/home/mallory/vfio/17")).is_empty(), "a file of that name");
    }
}
