//! Network devices that a guest sees its end of a path by.
//!
//! Adding a device: a file with a type that implements [`NicModel`], and its line in [`ALL`].

use vmio_model::cell::Nic;

use crate::disks::drivers::Device;

mod e1000;
mod virtio_net;

/// All devices, in the order in which they are shown.
pub const ALL: &[&dyn NicModel] = &[&e1000::E1000, &virtio_net::VirtioNet];

/// Queues of a tap (Linux, `MAX_TAP_QUEUES`).
const MOST_QUEUES: u32 = 256;

/// The device of that name.
pub fn find(name: &str) -> Option<&'static dyn NicModel> {
    ALL.iter().copied().find(|n| n.name() == name)
}

/// A device model.
pub trait NicModel: Sync {
    /// Name in studies and results: `virtio-net`.
    fn name(&self) -> &'static str;
    /// One line for help and docs.
    fn about(&self) -> &'static str;
    /// Kernel modules that a Linux guest needs, names as in `modules.dep`.
    fn guest_modules(&self) -> &'static [&'static str];
    /// QEMU's model (QOM type).
    fn model(&self) -> &'static str;
    /// Whether it can have more than one queue, and the host's kernel carry its packets.
    fn is_virtio(&self) -> bool {
        false
    }

    /// Whether this set-up can be had, else why not.
    ///
    /// # Errors
    /// Why not, and what to do.
    fn fits(&self, asked: &Nic) -> Result<(), String> {
        let name = self.name();
        if !self.is_virtio() && (asked.vhost || asked.queues.is_some()) {
            return Err(format!("{name} has no vhost and one queue: drop `vhost` and `queues`, or use virtio-net"));
        }
        match asked.queues {
            Some(queues) if queues > MOST_QUEUES => {
                Err(format!("a tap has {MOST_QUEUES} queues at most, not {queues}"))
            }
            _ => Ok(()),
        }
    }

    /// QEMU's `-device`, with its back end and address.
    fn device(&self, asked: &Nic, id: &str, netdev: &str, mac: &str) -> Device {
        let device = Device::new(self.model(), id).with("netdev", netdev).with("mac", mac);
        match asked.queues.filter(|n| *n > 1) {
            // One vector for each direction of a queue, one for the configuration and one for control.
            Some(n) => device.with("mq", true).with("vectors", 2 * n + 2),
            None => device,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_of_every_device() {
        for (i, nic) in ALL.iter().enumerate() {
            let name = nic.name();
            assert!(!name.contains([' ', ',', '/', '.', '+', '&', '@', '~']), "{name}: cell keys use these characters");
            assert!(ALL[..i].iter().all(|n| n.name() != name), "{name} twice");
            assert!(!nic.about().is_empty() && !nic.guest_modules().is_empty(), "{name}");
            assert_eq!(nic.fits(&Nic::new(name)), Ok(()));
            let many = Nic { queues: Some(4), ..Nic::new(name) };
            assert_eq!(nic.fits(&many).is_ok(), nic.is_virtio(), "{name}");
            assert!(nic.fits(&Nic { queues: Some(257), ..many.clone() }).is_err(), "{name}");
            let device = nic.device(&many, "net0", "path0", "52:54:00:00:00:01");
            assert_eq!(device.model(), nic.model());
            assert!(device.to_string().contains("netdev=path0,mac=52:54:00:00:00:01,mq=on,vectors=10"));
            assert_eq!(find(name).map(NicModel::name), Some(name));
        }
    }
}
