//! Network devices that a guest sees its end of a path by: what they are called, and what a study may ask of each. How
//! a hypervisor makes one, and what it does not have, is its own affair (`guests/qemu/cards.rs`).
//!
//! Adding a device: a [`NicModel`] here, its place in [`ALL`], and its row with each hypervisor that has it;
//! `docs/networks.md` has the rest.

use std::collections::BTreeMap;

use vmio_model::cell::{Arch, Nic};
use vmio_node::linux::net::Interfaces;

#[cfg(test)]
pub(crate) mod example;

/// All devices, in the order in which they are shown.
pub const ALL: &[&NicModel] = &[&E1000, &E1000E, &RTL8139, &VMXNET3, &VIRTIO_NET, &VIRTIO_NET_MMIO];

/// Queues of a tap (Linux, `MAX_TAP_QUEUES`).
const MOST_QUEUES: u32 = 256;

/// Keys of what is read back of a guest's device.
const DRIVER: &str = "guest_driver";
const QUEUES: &str = "guest_queues";
const MTU: &str = "mtu";
/// Told by the hypervisor, where one is asked for.
pub const RING: &str = "receive_ring";
/// Told by the hypervisor, where it is asked for: whether the kernel has the threads that carry the guest's packets.
/// A hypervisor may go on without.
pub const VHOST: &str = "vhost";
const ON: &str = "on";
const OFF: &str = "off";

/// How [`VHOST`] is told of a guest with these cards, of which the kernel has so many threads: one for each queue of each card
/// with vhost. Which card has none cannot be told, so all of them count as not carried.
pub fn carried<'a>(threads: usize, cards: impl Iterator<Item = &'a Nic>) -> String {
    let wanted: usize = cards.filter(|nic| nic.vhost).map(|nic| nic.queues.unwrap_or(1) as usize).sum();
    match threads {
        0 => OFF.to_owned(),
        threads if threads < wanted => format!("{OFF} for {} of {wanted} queues", wanted - threads),
        _ => ON.to_owned(),
    }
}

/// How a guest has set up its device: its driver, the queues that it sends by, its MTU.
pub fn effective(of: &Interfaces<'_>, interface: &str) -> BTreeMap<String, String> {
    let queues = of.transmit_queues(interface).map(|n| n.to_string());
    let mtu = of.mtu_bytes(interface).map(|n| n.to_string());
    let all = [(DRIVER, of.driver(interface)), (QUEUES, queues), (MTU, mtu)];
    all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// Those that guests of a processor can have.
pub fn of(arch: Arch) -> impl Iterator<Item = &'static NicModel> {
    ALL.iter().copied().filter(move |nic| nic.arches.contains(&arch))
}

/// Why a device cannot be had, or is not as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Unfit {
    #[error("{name} has no vhost, one queue and a fixed ring: drop `vhost`, `queues` and `ring`, or use virtio-net")]
    NotVirtio { name: &'static str },
    #[error("a tap has {MOST_QUEUES} queues at most, not {queues}")]
    Queues { queues: u32 },
    /// A guest has set it up otherwise.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Otherwise(Vec<Otherwise>),
}

/// A part of a guest's device that is not as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} is {} instead of {wanted}", found.as_deref().unwrap_or("unknown"))]
pub struct Otherwise {
    /// Which.
    pub key: &'static str,
    /// What is there; `None` where that is not known.
    pub found: Option<String>,
    /// What was asked for.
    pub wanted: String,
}

/// The device of that name.
pub fn find(name: &str) -> Option<&'static NicModel> {
    ALL.iter().copied().find(|n| n.name == name)
}

/// A device model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NicModel {
    /// Name in studies and results: `virtio-net`.
    pub name: &'static str,
    /// One line for help and docs.
    pub about: &'static str,
    /// Kernel modules that a Linux guest needs, names with underscores, as in `/proc/modules`.
    pub guest_modules: &'static [&'static str],
    /// The guest's driver of it: what `/sys/class/net/IF/device/driver` leads to.
    pub driver: &'static str,
    /// The largest packet that a Linux guest's driver of it takes, in bytes without the Ethernet header.
    pub most_mtu_bytes: u32,
    /// Whether it can have more than one queue, and the host's kernel carry its packets.
    pub is_virtio: bool,
    /// Whether its driver sets up queues by how many processors the guest has, and nobody can ask for a number.
    pub has_queue_a_processor: bool,
    /// The processors of guests that can have it.
    pub arches: &'static [Arch],
    /// Whether it is on the PCI bus: there it has an address, and an interrupt for each queue.
    pub is_on_pci: bool,
}

/// One on the PCI bus of which nothing is asked.
const PLAIN: NicModel = NicModel {
    name: "",
    about: "",
    guest_modules: &[],
    driver: "",
    most_mtu_bytes: 0,
    is_virtio: false,
    has_queue_a_processor: false,
    arches: &Arch::ALL,
    is_on_pci: true,
};

/// Intel's 82540EM, imitated register by register.
pub const E1000: NicModel = NicModel {
    name: "e1000",
    about: "an emulated Intel card, which every guest has a driver for",
    guest_modules: &["e1000"],
    driver: "e1000",
    // 16 KiB less the Ethernet header, its VLAN tag and its check sum (drivers/net/ethernet/intel/e1000).
    most_mtu_bytes: 16_110,
    ..PLAIN
};

/// Intel's 82574L, imitated register by register: what QEMU's machine `q35` has where nothing is said.
pub const E1000E: NicModel = NicModel {
    name: "e1000e",
    about: "an emulated Intel card of PCI Express, the default of machine q35",
    guest_modules: &["e1000e"],
    driver: "e1000e",
    // Frames of 9,234 bytes at most (drivers/net/ethernet/intel/e1000e/82571.c, DEFAULT_JUMBO), less header, VLAN tag
    // and check sum.
    most_mtu_bytes: 9_212,
    ..PLAIN
};

/// Realtek's 8139C+, imitated register by register: a card of 100 Mbit/s that old set-ups still name.
pub const RTL8139: NicModel = NicModel {
    name: "rtl8139",
    about: "an emulated Realtek card, which old guests have a driver for",
    guest_modules: &["8139cp"],
    driver: "8139cp",
    // CP_MAX_MTU of drivers/net/ethernet/realtek/8139cp.c.
    most_mtu_bytes: 4_096,
    ..PLAIN
};

/// VMware's paravirtual card, imitated: what guests that come from there have a driver for. Of the rings that its
/// driver sets up QEMU fills the first (hw/net/vmxnet3.c, RXQ_IDX).
pub const VMXNET3: NicModel = NicModel {
    name: "vmxnet3",
    about: "an emulated VMware card, which guests that come from there have a driver for",
    guest_modules: &["vmxnet3"],
    driver: "vmxnet3",
    // VMXNET3_MAX_MTU of drivers/net/vmxnet3/vmxnet3_defs.h, and of QEMU's hw/net/vmxnet3_defs.h.
    most_mtu_bytes: 9_000,
    has_queue_a_processor: true,
    arches: &[Arch::X86_64],
    ..PLAIN
};

/// virtio-net: queues in the guest's memory.
pub const VIRTIO_NET: NicModel = NicModel {
    name: "virtio-net",
    about: "the paravirtual device; its packets are carried by the hypervisor, or by the host's kernel (vhost)",
    guest_modules: &["virtio_net"],
    driver: "virtio_net",
    // MAX_MTU of drivers/net/virtio_net.c.
    most_mtu_bytes: 65_535,
    is_virtio: true,
    ..PLAIN
};

/// virtio-net without a bus (virtio 1.2 specification, section 4.2).
pub const VIRTIO_NET_MMIO: NicModel = NicModel {
    name: "virtio-net-mmio",
    about: "the same without a bus, in guests of aarch64",
    guest_modules: &["virtio_net", "virtio_mmio"],
    driver: "virtio_net",
    // MAX_MTU of drivers/net/virtio_net.c.
    most_mtu_bytes: 65_535,
    is_virtio: true,
    arches: &[Arch::Aarch64],
    is_on_pci: false,
    ..PLAIN
};

impl NicModel {
    /// Whether this set-up can be had of any hypervisor, else why not.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn fits(&self, asked: &Nic) -> Result<(), Unfit> {
        if !self.is_virtio && (asked.vhost || asked.queues.is_some() || asked.ring.is_some()) {
            return Err(Unfit::NotVirtio { name: self.name });
        }
        match asked.queues {
            Some(queues) if queues > MOST_QUEUES => Err(Unfit::Queues { queues }),
            _ => Ok(()),
        }
    }

    /// Whether a guest has set it up as it was asked for; `found` is what [`effective`] gave.
    ///
    /// # Errors
    /// What differs.
    pub fn readback(&self, asked: &Nic, found: &BTreeMap<String, String>) -> Result<(), Unfit> {
        let queues = asked.queues.or((!self.has_queue_a_processor).then_some(1));
        let mut want = vec![(DRIVER, self.driver.to_owned())];
        want.extend(queues.map(|queues| (QUEUES, queues.to_string())));
        want.extend(asked.ring.map(|ring| (RING, ring.to_string())));
        want.extend(asked.vhost.then(|| (VHOST, ON.to_owned())));
        let differs = |(key, wanted): (&'static str, String)| {
            let found = found.get(key).cloned();
            (found.as_ref() != Some(&wanted)).then_some(Otherwise { key, found, wanted })
        };
        let wrong: Vec<Otherwise> = want.into_iter().filter_map(differs).collect();
        if wrong.is_empty() { Ok(()) } else { Err(Unfit::Otherwise(wrong)) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::Fake;

    use super::*;

    /// Of two cards one fell back: neither is told as carried by the kernel.
    #[test]
    fn vhost_is_on_where_every_queue_has_its_thread() {
        let vhost = |queues: Option<u32>| Nic { vhost: true, queues, ..Nic::new("virtio-net") };
        let cards = [vhost(None), vhost(Some(2)), Nic::new("e1000")];
        let told = |threads: usize| carried(threads, cards.iter());
        assert_eq!([0, 1, 2, 3, 4].map(told), ["off", "off for 2 of 3 queues", "off for 1 of 3 queues", "on", "on"]);
        let model = find("virtio-net").unwrap();
        let found = |threads: usize| {
            let all = [(DRIVER, "virtio_net".to_owned()), (QUEUES, "1".to_owned()), (VHOST, told(threads))];
            all.map(|(key, value)| (key.to_owned(), value)).into()
        };
        assert_eq!(model.readback(&cards[0], &found(3)), Ok(()));
        let said = |threads: usize| model.readback(&cards[0], &found(threads)).unwrap_err().to_string();
        assert_eq!(said(1), "vhost is off for 2 of 3 queues instead of on");
        assert_eq!(said(0), "vhost is off instead of on");
    }

    #[test]
    fn contract_of_every_device() {
        for (i, nic) in ALL.iter().enumerate() {
            assert!(ALL[..i].iter().all(|n| n.name != nic.name), "{} twice", nic.name);
            assert_eq!(find(nic.name), Some(*nic));
        }
        for nic in ALL.iter().copied().chain([&example::E1000_82545EM]) {
            let name = nic.name;
            assert!(!name.contains([' ', ',', '/', '.', '+', '&', '@', '~']), "{name}: cell keys use these characters");
            assert!(!nic.about.is_empty() && !nic.guest_modules.is_empty(), "{name}");
            assert_eq!(nic.fits(&Nic::new(name)), Ok(()));
            let many = Nic { queues: Some(4), ..Nic::new(name) };
            assert_eq!(nic.fits(&many).is_ok(), nic.is_virtio, "{name}");
            assert!(nic.fits(&Nic { queues: Some(257), ..many.clone() }).is_err(), "{name}");
            for asked in [Nic { ring: Some(1024), ..Nic::new(name) }, Nic { vhost: true, ..Nic::new(name) }] {
                assert_eq!(nic.fits(&asked).is_ok(), nic.is_virtio, "{name}");
            }
            assert!((1500..=65_535).contains(&nic.most_mtu_bytes), "{name}");

            let queue = |n: u32| format!("/sys/class/net/eth0/queues/tx-{n}/tx_timeout");
            let driver = format!("../../bus/drivers/{}", nic.driver);
            let guest = Fake::new("guest").file(queue(0), "0\n").symlink("/sys/class/net/eth0/device/driver", &driver);
            let found = effective(&Interfaces::here(&guest), "eth0");
            assert_eq!(nic.readback(&Nic::new(name), &found), Ok(()));
            let said = nic.readback(&many, &found).unwrap_err().to_string();
            assert_eq!(said, "guest_queues is 1 instead of 4", "{name}");
            let other = Fake::new("guest").file(queue(0), "0\n").symlink("/sys/class/net/eth0/device/driver", "../b44");
            let said = nic.readback(&Nic::new(name), &effective(&Interfaces::here(&other), "eth0")).unwrap_err();
            assert_eq!(said.to_string(), format!("guest_driver is b44 instead of {}", nic.driver));
            let none = nic.readback(&Nic::new(name), &BTreeMap::new()).unwrap_err().to_string();
            assert!(none.contains("guest_driver is unknown"), "{none}");
            assert_eq!(none.contains("guest_queues is unknown"), !nic.has_queue_a_processor, "{none}");
        }
    }
}
