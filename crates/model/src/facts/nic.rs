//! A network card of a guest.

use super::fact::device;
use super::{Conntrack, Fact, Hop, Overridden, Place, Provenance, RateLimit, Subject, ToGuest, Uplink};
use crate::rate::BitRate;

device! {
    /// A guest's network device.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Nic {
        /// Subject of its findings: `guest web1, net tap0`.
        pub subject: Subject,
        /// Its model: `virtio-net`, `e1000`, `e1000e`, `rtl8139`, `vmxnet3`, `vfio`, `netfront`.
        pub model: Fact<Option<String>>,
        /// Back end on the host: `tap`, `user` (slirp), `passt`, `macvtap`, `vhost-user`, `vdpa`, `veth`, `socket`.
        pub backend: Fact<Option<String>>,
        /// Interface on the host, in the network namespace of the guest's process.
        pub interface: Fact<Option<String>>,
        /// Bridge or switch that the interface is a port of.
        pub bridge: Fact<Option<String>>,
        /// Whether the kernel moves the packets (vhost-net) instead of QEMU.
        pub vhost: Fact<Option<bool>>,
        /// Whether this host has vhost-net (`/dev/vhost-net`).
        pub vhost_here: Fact<Option<bool>>,
        /// Queue pairs.
        pub queues: Fact<Option<u32>>,
        /// Virtual CPUs of its guest.
        pub vcpus: Fact<Option<u32>>,
        /// Whether the guest runs Windows; `None` where unknown.
        pub windows: Fact<Option<bool>>,
        /// Operating system of its guest, where the configuration or a name says so: `windows`, `linux`, `bsd`, `other`
        /// for none of these.
        pub os: Fact<Option<String>>,
        /// Offloads that were turned off: `host_tso4`, `guest_csum`, `tap tso`.
        pub offloads_off: Fact<Vec<String>>,
        /// Whether packets of the tap have a header for offloads (`vnet_hdr`).
        pub tap_header: Fact<Option<bool>>,
        /// Packets that the guest's own ring holds for receiving (`rx_queue_size` of virtio-net).
        pub ring_packets: Fact<Option<u32>>,
        /// Packets for the guest at its tap.
        pub to_guest: Fact<Option<ToGuest>>,
        /// The host's network card behind it.
        pub uplink: Fact<Option<Uplink>>,
        /// The host's table of connections, where the guest's packets pass it.
        pub conntrack: Fact<Option<Conntrack>>,
        /// MTU in bytes of the interface on the host.
        pub mtu_bytes: Fact<Option<u64>>,
        /// MTU that the device reports to the guest (`host_mtu` of virtio-net).
        pub host_mtu_bytes: Fact<Option<u64>>,
        /// MTU that the guest itself has, as far as it can be told from here: what its device reports, else the default
        /// of such a card. DHCP or its own configuration may have lowered it since.
        pub guest_mtu_bytes: Fact<Option<u64>>,
        /// MTU of the bridge.
        pub bridge_mtu_bytes: Fact<Option<u64>>,
        /// The way of its packets on the host: the interface, the bridge, and the ports by which they go on.
        pub way: Fact<Vec<Hop>>,
        /// Speed in bit/s of what its packets leave the host by: all that its bridge sends by, a bond's as the kernel
        /// tells it.
        pub uplink_bps: Fact<Option<BitRate>>,
        /// Packets that Open vSwitch could not send by the interface since it was made: most often they are larger than
        /// its MTU.
        pub tap_errors: Fact<Option<u64>>,
        /// Whether the bridge passes its packets to the host's firewall (the module br_netfilter).
        pub bridge_netfilter: Fact<Option<bool>>,
        /// Send buffer of the tap in bytes; `None` where unknown.
        pub send_buffer_bytes: Fact<Option<u64>>,
        /// Rate limits: of its manager's configuration, of Open vSwitch, and what the kernel has.
        pub rate_limits: Fact<Vec<RateLimit>>,
        /// Settings that are configured and not in force.
        pub overridden: Vec<Overridden>,
        /// Its names in configurations.
        pub place: Place,
        /// Where it was read first.
        pub from: Provenance,
    }
}

impl Nic {
    /// Its rate limits in words, those that the uplink never reaches marked.
    pub fn limits_shown(&self) -> Vec<String> {
        let one = |limit: &RateLimit| {
            let above = self.uplink_bps.filter(|uplink| limit.is_above(*uplink));
            let above =
                above.map_or_else(String::new, |uplink| format!(", not reached through the uplink of {uplink}"));
            format!("{}{above}", limit.words())
        };
        self.rate_limits.iter().map(one).collect()
    }

    /// A network device of which only the name is known.
    pub fn unknown(subject: Subject, from: Provenance) -> Self {
        Nic {
            subject,
            model: Fact::default(),
            backend: Fact::default(),
            interface: Fact::default(),
            bridge: Fact::default(),
            vhost: Fact::default(),
            vhost_here: Fact::default(),
            queues: Fact::default(),
            vcpus: Fact::default(),
            windows: Fact::default(),
            os: Fact::default(),
            offloads_off: Fact::default(),
            tap_header: Fact::default(),
            ring_packets: Fact::default(),
            to_guest: Fact::default(),
            uplink: Fact::default(),
            conntrack: Fact::default(),
            mtu_bytes: Fact::default(),
            host_mtu_bytes: Fact::default(),
            guest_mtu_bytes: Fact::default(),
            bridge_mtu_bytes: Fact::default(),
            way: Fact::default(),
            uplink_bps: Fact::default(),
            tap_errors: Fact::default(),
            bridge_netfilter: Fact::default(),
            send_buffer_bytes: Fact::default(),
            rate_limits: Fact::default(),
            overridden: Vec::new(),
            place: Place::default(),
            from,
        }
    }
}
