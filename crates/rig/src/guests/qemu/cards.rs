//! How QEMU makes a guest's network device of each model: its QOM type, and the value of `-device` (qemu(1)).
//!
//! Adding a device: its row in [`ALL`].

use vmio_model::cell::Nic;

use super::device::Device;
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
            let ring = Nic { ring: Some(512), ..Nic::new(name) };
            assert!(card.device(&ring, "net0", "path0", "m").to_string().ends_with(",rx_queue_size=512"), "{name}");
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
