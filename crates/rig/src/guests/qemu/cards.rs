//! How QEMU makes a guest's network device of each model: its QOM type, the value of `-device` (qemu(1)), and what may be
//! asked of it.
//!
//! Adding a device: its row in [`ALL`].

use vmio_model::cell::Nic;

use super::device::Device;
use super::unfit::Unfit;
use crate::nics::{E1000, E1000E, NicModel, RTL8139, VIRTIO_NET, VIRTIO_NET_MMIO, VMXNET3};

/// All that QEMU has.
pub const ALL: &[Card] = &[
    Card { model: &E1000, qom: "e1000" },
    Card { model: &E1000E, qom: "e1000e" },
    Card { model: &RTL8139, qom: "rtl8139" },
    Card { model: &VMXNET3, qom: "vmxnet3" },
    Card { model: &VIRTIO_NET, qom: "virtio-net-pci" },
    Card { model: &VIRTIO_NET_MMIO, qom: "virtio-net-device" },
];

/// Sizes of a receive ring of virtio-net (hw/net/virtio-net.c, VIRTIO_NET_RX_QUEUE_MIN_SIZE to VIRTQUEUE_MAX_SIZE). A
/// transmit ring has 256 wherever QEMU's own process carries the packets.
const RINGS: [u32; 3] = [256, 512, 1024];

/// The property of a device that is the size of its receive ring.
pub const RING: &str = "rx_queue_size";

/// A model in QEMU.
pub struct Card {
    /// The model.
    pub model: &'static NicModel,
    /// QOM type.
    qom: &'static str,
}

impl Card {
    /// Whether this set-up can be had, else why not.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn fits(&self, asked: &Nic) -> Result<(), Unfit> {
        self.model.fits(asked)?;
        let name = self.model.name;
        if !self.model.is_on_pci && asked.vhost {
            return Err(Unfit::NoVhost { name });
        }
        match asked.ring {
            Some(ring) if !RINGS.contains(&ring) => Err(Unfit::Ring { name, ring }),
            _ => Ok(()),
        }
    }

    /// What `-device` needs, but for its address.
    pub fn device(&self, asked: &Nic, id: &str, netdev: &str, mac: &str) -> Device {
        let device = Device::new(self.qom, id).with("netdev", netdev).with("mac", mac).maybe(RING, asked.ring);
        match asked.queues.filter(|n| *n > 1) {
            // One vector for each direction of a queue, one for the configuration and one for control.
            Some(n) => device.with("mq", true).maybe("vectors", self.model.is_on_pci.then_some(2 * n + 2)),
            None => device,
        }
    }
}

/// The device of that name; `None` where QEMU has none.
pub fn find(name: &str) -> Option<&'static Card> {
    ALL.iter().find(|card| card.model.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nics::{self, example::E1000_82545EM};

    #[test]
    fn contract_of_every_card() {
        for (i, card) in ALL.iter().enumerate() {
            let (model, name) = (card.model, card.model.name);
            assert_eq!(nics::find(name), Some(model));
            assert!(ALL[..i].iter().all(|c| c.model != model), "{name} twice");
            assert_eq!(find(name).map(|c| c.qom), Some(card.qom));
        }
        let example = Card { model: &E1000_82545EM, qom: "e1000-82545em" };
        for card in ALL.iter().chain([&example]) {
            let (model, name) = (card.model, card.model.name);
            let ring = |n: u32| Nic { ring: Some(n), ..Nic::new(name) };
            assert!(
                card.device(&ring(512), "net0", "path0", "m").to_string().ends_with(",rx_queue_size=512"),
                "{name}"
            );
            assert_eq!(card.fits(&ring(1024)).is_ok(), model.is_virtio, "{name}");
            assert!(card.fits(&ring(300)).is_err() && card.fits(&ring(2048)).is_err(), "{name}");
            let vhost = Nic { vhost: true, ..Nic::new(name) };
            assert_eq!(card.fits(&vhost).is_ok(), model.is_virtio && model.is_on_pci, "{name}");
            let many = Nic { queues: Some(4), ..Nic::new(name) };
            let device = card.device(&many, "net0", "path0", "52:54:00:00:00:01");
            assert_eq!(device.model(), card.qom);
            let vectors = if model.is_on_pci { ",vectors=10" } else { "" };
            let told = format!("netdev=path0,mac=52:54:00:00:00:01,mq=on{vectors}");
            assert!(device.to_string().ends_with(&told), "{device}");
        }
        assert!(find("pcnet").is_none());
    }
}
