//! Abilities of the kinds of guests and of the host itself: those that vmio measures (`guests/` of `vmio-rig`) and
//! those that it finds running (`kinds/` of `vmio-look`). Code asks for an ability, not for a name.

/// A kind and its abilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Its name in studies and results.
    pub name: &'static str,
    /// Whether it is the host itself.
    pub is_host: bool,
    /// Whether it is another machine than this host: no resource of this host is reserved for it, and no probe of this
    /// host sees it.
    pub is_afar: bool,
    /// Whether it runs under an existing kernel, without a machine and devices of its own.
    pub shares_kernel: bool,
    /// Whether the host's kernel serves its devices by the domain's number, without a process of its own.
    pub has_back_ends: bool,
    /// What its hypervisor is called in messages; empty where it has none.
    pub hypervisor: &'static str,
    /// The monitor whose settings it has.
    pub vmm: Vmm,
}

/// The virtual machine monitor whose settings a guest has, in which advice is given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Vmm {
    /// QEMU.
    #[default]
    Qemu,
    /// Firecracker.
    Firecracker,
    /// None, or one without rules.
    Other,
}

/// A virtual machine without further abilities.
const PLAIN: Kind = Kind {
    name: "",
    is_host: false,
    is_afar: false,
    shares_kernel: false,
    has_back_ends: false,
    hypervisor: "",
    vmm: Vmm::Other,
};

impl Kind {
    /// The host itself.
    pub const NATIVE: Kind = Kind { name: "native", is_host: true, shares_kernel: true, ..PLAIN };
    /// A guest under QEMU.
    pub const QEMU: Kind = Kind { name: "qemu", hypervisor: "QEMU", vmm: Vmm::Qemu, ..PLAIN };
    /// A container.
    pub const CONTAINER: Kind = Kind { name: "container", shares_kernel: true, ..PLAIN };
    /// Another machine, reached by `ssh` or libvirt and measured as it is.
    pub const SSH: Kind = Kind { name: "ssh", is_afar: true, shares_kernel: true, ..PLAIN };
    /// A guest under Firecracker.
    pub const FIRECRACKER: Kind =
        Kind { name: "firecracker", hypervisor: "Firecracker", vmm: Vmm::Firecracker, ..PLAIN };
    /// A guest under Cloud Hypervisor.
    pub const CLOUD_HYPERVISOR: Kind = Kind { name: "cloud-hypervisor", hypervisor: "Cloud Hypervisor", ..PLAIN };
    /// A Xen domain.
    pub const XEN: Kind = Kind { name: "xen", has_back_ends: true, hypervisor: "Xen", ..PLAIN };

    /// All known kinds.
    pub const ALL: [Kind; 7] =
        [Self::NATIVE, Self::QEMU, Self::CONTAINER, Self::SSH, Self::FIRECRACKER, Self::CLOUD_HYPERVISOR, Self::XEN];

    /// The kind of that name.
    pub fn find(name: &str) -> Option<Kind> {
        Self::ALL.into_iter().find(|kind| kind.name == name)
    }

    /// The abilities of a kind by name. An unknown name, from a stored run or a manager, is a plain virtual machine.
    pub fn of(name: &str) -> Kind {
        Self::find(name).unwrap_or(PLAIN)
    }

    /// What the hypervisor of a kind of that name is called in messages; an unknown one is called as its kind.
    pub fn hypervisor_of(name: &str) -> &str {
        Self::find(name).map(|kind| kind.hypervisor).filter(|it| !it.is_empty()).unwrap_or(name)
    }

    /// Whether it is a guest: neither the host itself nor another machine.
    pub fn is_guest(self) -> bool {
        !self.is_host && !self.is_afar
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Cell, Side, Subject};

    #[test]
    fn cells_name_the_hypervisor_of_their_first_guest() {
        let on = |kind: &str| Cell::of(Side::of(kind), Subject::Machine, "a");
        let named = |cells: &[Cell]| Cell::hypervisor(cells).to_owned();
        assert_eq!(named(&[on("native"), on("firecracker"), on("qemu")]), "Firecracker");
        assert_eq!([named(&[on("bochs")]), named(&[on("container")])], ["bochs", "QEMU"]);
    }

    #[test]
    fn contract_of_every_kind() {
        for (i, kind) in Kind::ALL.iter().enumerate() {
            assert!(Kind::ALL[..i].iter().all(|k| k.name != kind.name), "{} twice", kind.name);
            assert_eq!(Kind::of(kind.name), *kind);
            assert!(kind.is_guest() || kind.shares_kernel, "{}: what is no guest has no machine", kind.name);
            assert_eq!(kind.hypervisor.is_empty(), kind.shares_kernel, "{}", kind.name);
        }
        let unknown = Kind::of("bochs");
        assert!(Kind::find("bochs").is_none() && unknown.is_guest() && !unknown.shares_kernel);
        assert_eq!((unknown.vmm, Kind::hypervisor_of("bochs")), (Vmm::Other, "bochs"));
    }
}
