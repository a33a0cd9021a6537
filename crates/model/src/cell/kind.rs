//! What kinds of guests can do, and the host itself: those that vmio measures (`guests/` of `vmio-rig`) and those that
//! it finds running (`kinds/` of `vmio-look`). Whoever wants to know asks for the ability, never for the name.

/// A kind and its abilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Its name in studies and results.
    pub name: &'static str,
    /// Whether it is the host itself.
    pub is_host: bool,
    /// Whether it is another machine than this host: nothing of this host is held for it, and none of its probes see
    /// it.
    pub is_afar: bool,
    /// Whether it works under a kernel that runs already, so that it has no machine to be given devices by.
    pub shares_kernel: bool,
    /// Whether the host's kernel has its devices open, in the name of its domain's number, and no process of it.
    pub has_back_ends: bool,
    /// Whose settings it has.
    pub vmm: Vmm,
}

/// The virtual machine monitor whose settings a guest has: advice is in the form of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Vmm {
    /// QEMU.
    #[default]
    Qemu,
    /// Firecracker.
    Firecracker,
    /// None, or one whose settings no rule knows.
    Other,
}

/// A virtual machine of which nothing else is known.
const PLAIN: Kind =
    Kind { name: "", is_host: false, is_afar: false, shares_kernel: false, has_back_ends: false, vmm: Vmm::Other };

impl Kind {
    /// The host itself.
    pub const NATIVE: Kind = Kind { name: "native", is_host: true, shares_kernel: true, ..PLAIN };
    /// A guest under QEMU.
    pub const QEMU: Kind = Kind { name: "qemu", vmm: Vmm::Qemu, ..PLAIN };
    /// A container.
    pub const CONTAINER: Kind = Kind { name: "container", shares_kernel: true, ..PLAIN };
    /// Another machine, which `ssh` or libvirt reaches and which is measured as it is.
    pub const SSH: Kind = Kind { name: "ssh", is_afar: true, shares_kernel: true, ..PLAIN };
    /// A guest under Firecracker.
    pub const FIRECRACKER: Kind = Kind { name: "firecracker", vmm: Vmm::Firecracker, ..PLAIN };
    /// A guest under Cloud Hypervisor.
    pub const CLOUD_HYPERVISOR: Kind = Kind { name: "cloud-hypervisor", ..PLAIN };
    /// A Xen domain.
    pub const XEN: Kind = Kind { name: "xen", has_back_ends: true, ..PLAIN };

    /// All that are known.
    pub const ALL: [Kind; 7] =
        [Self::NATIVE, Self::QEMU, Self::CONTAINER, Self::SSH, Self::FIRECRACKER, Self::CLOUD_HYPERVISOR, Self::XEN];

    /// The kind of that name.
    pub fn find(name: &str) -> Option<Kind> {
        Self::ALL.into_iter().find(|kind| kind.name == name)
    }

    /// What a kind of that name can do. An unknown one, of a stored run or of a manager, is a plain virtual machine.
    pub fn of(name: &str) -> Kind {
        Self::find(name).unwrap_or(PLAIN)
    }

    /// Whether it is a guest: neither the host itself nor another machine.
    pub fn is_guest(self) -> bool {
        !self.is_host && !self.is_afar
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_of_every_kind() {
        for (i, kind) in Kind::ALL.iter().enumerate() {
            assert!(Kind::ALL[..i].iter().all(|k| k.name != kind.name), "{} twice", kind.name);
            assert_eq!(Kind::of(kind.name), *kind);
            assert!(kind.is_guest() || kind.shares_kernel, "{}: what is no guest has no machine", kind.name);
        }
        let unknown = Kind::of("bochs");
        assert!(Kind::find("bochs").is_none() && unknown.is_guest() && !unknown.shares_kernel);
        assert_eq!(unknown.vmm, Vmm::Other);
    }
}
