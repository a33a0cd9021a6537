//! The bed: three guests (namespaces) on a host's bridge, whose uplink leads to a router with a slower port, behind
//! which is the receiver. The router stands for the wire: it owns what it takes (net/ipv4/ip_input.c, `ip_rcv_core`,
//! orphans a packet), so nothing behind it holds a sender back, and what its port has no room for is lost there.

use std::fs;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use vmio_testbed::net::{Namespace, run, tried};

use super::scale::Scale;

/// What a guest is owed, in bit/s of frames.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct Contract {
    /// Its name.
    pub name: &'static str,
    /// Guaranteed.
    pub min_bps: u64,
    /// Not exceeded.
    pub max_bps: u64,
}

/// Name, minimum and maximum of each guest, in Mbit/s, with an uplink of 200. Each has some minimum, since a class of
/// HTB cannot be without a rate.
const CONTRACTS: [(&str, u64, u64); 3] = [("gold", 100, 150), ("silver", 40, 100), ("bronze", 10, 100)];

/// The guests'.
pub fn contracts(scale: Scale) -> [Contract; 3] {
    CONTRACTS.map(|(name, min, max)| Contract { name, min_bps: scale.bps(min), max_bps: scale.bps(max) })
}

/// Of guests' connections: what most systems have by default.
pub const CONGESTION_CONTROL: &str = "cubic";

/// The receiver.
pub const SINK: &str = "10.9.1.9";

const ROUTER_MAC: &str = "02:00:00:00:00:01";
const SINK_MAC: &str = "02:00:00:00:00:09";
const PORT_MAC: &str = "02:00:00:00:00:02";

/// A guest.
pub struct Guest {
    /// Where it is.
    pub namespace: Namespace,
    /// What it is owed.
    pub contract: Contract,
    /// Its interface's end on the host.
    pub device: String,
    /// Its IP address.
    pub address: String,
    /// Its Ethernet address.
    pub mac: String,
}

/// All of it. The host is the namespace of the thread that built it.
pub struct Bed {
    /// How fast it is.
    pub scale: Scale,
    /// The router.
    pub wire: Namespace,
    /// The receiver.
    pub sink: Namespace,
    /// In the order of [`contracts`].
    pub guests: Vec<Guest>,
}

impl Bed {
    /// In the thread's namespace; the wire is as slow as the scale has it, or as fast as the machine.
    pub fn build(scale: Scale, has_slow_wire: bool) -> Bed {
        let (wire, sink) = (Namespace::make(), Namespace::make());
        run(&[
            "ip link set lo up",
            "ip link add br0 type bridge mcast_snooping 0",
            "ip link set br0 up",
            &format!("ip link add u0 type veth peer name u1 address {ROUTER_MAC} netns {}", wire.path()),
            "ip link set u0 master br0 up",
        ]);
        // What passes the host's firewall is no sender's any more (docs/guard-linux.md).
        for file in ["iptables", "ip6tables", "arptables"] {
            let _ = fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{file}"), "0");
        }
        wire.run(&[
            "ip link set lo up",
            "ip addr add 10.9.0.1/24 dev u1",
            "ip link set u1 up",
            &format!(
                "ip link add w0 address {PORT_MAC} type veth peer name w1 address {SINK_MAC} netns {}",
                sink.path()
            ),
            "ip addr add 10.9.1.1/24 dev w0",
            "ip link set w0 up",
            &format!("ip neigh replace {SINK} lladdr {SINK_MAC} dev w0 nud permanent"),
        ]);
        wire.inside(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
        if has_slow_wire {
            // A port's buffer of 20 ms.
            let (rate, burst, limit) = (scale.wire_bps(), scale.bytes(16 << 10), scale.bytes(512 << 10));
            wire.run(&[&format!("tc qdisc add dev w0 root tbf rate {rate}bit burst {burst}b limit {limit}b")]);
        }
        sink.run(&[
            "ip link set lo up",
            &format!("ip addr add {SINK}/24 dev w1"),
            "ip link set w1 up",
            "ip route add default via 10.9.1.1",
            &format!("ip neigh replace 10.9.1.1 lladdr {PORT_MAC} dev w1 nud permanent"),
        ]);
        let guests = (1..).zip(contracts(scale)).map(|(number, contract)| plug(number, contract, &wire)).collect();
        Bed { scale, wire, sink, guests }
    }

    /// What waits in queues of the host and in those that guests have of their own, in bytes.
    pub fn waiting_bytes(&self) -> u64 {
        let inside = self.guests.iter().map(|guest| guest.namespace.inside(queues));
        let of = |queues: Vec<Value>| -> u64 {
            // The root's backlog has its leaves' in it.
            let roots = queues.iter().filter(|queue| queue["root"] == Value::Bool(true));
            roots.filter_map(|queue| queue["backlog"].as_u64()).sum()
        };
        of(queues()) + inside.map(of).sum::<u64>()
    }

    /// Packets that the wire had no room for.
    pub fn wire_drops(&self) -> u64 {
        self.wire.inside(queues).iter().filter_map(|queue| queue["drops"].as_u64()).sum()
    }
}

fn plug(number: u8, contract: Contract, wire: &Namespace) -> Guest {
    let namespace = Namespace::make();
    let (device, mac) = (format!("t{number}"), format!("02:00:00:00:01:{number:02x}"));
    let address = format!("10.9.0.{}", 100 + u32::from(number));
    run(&[
        &format!("ip link add {device} type veth peer name g0 address {mac} netns {}", namespace.path()),
        &format!("ip link set {device} master br0 up"),
    ]);
    namespace.run(&[
        "ip link set lo up",
        &format!("ip addr add {address}/24 dev g0"),
        "ip link set g0 up",
        "ip route add default via 10.9.0.1",
        &format!("ip neigh replace 10.9.0.1 lladdr {ROUTER_MAC} dev g0 nud permanent"),
    ]);
    wire.run(&[&format!("ip neigh replace {address} lladdr {mac} dev u1 nud permanent")]);
    Guest { namespace, contract, device, address, mac }
}

/// The queues of the thread's namespace with their counters, as `tc` has them in JSON.
pub fn queues() -> Vec<Value> {
    let (done, said) = tried("tc -s -j qdisc show");
    assert!(done, "{said}");
    serde_json::from_str(&said).unwrap()
}
