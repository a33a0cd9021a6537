//! A test host in network namespaces: tenants, each in its own, on a bridge with an uplink to a sink, as guests are.

use std::net::UdpSocket;

use vmio_guard::planes::linux::{Device, Netlink, links};
use vmio_testbed::net::{Namespace, run};
use vmio_testbed::poll_until;

pub const SINK: &str = "10.9.0.9";
const SINK_MAC: &str = "02:00:00:00:00:09";

pub struct Tenant {
    pub namespace: Namespace,
    /// Its interface's host side.
    pub device: Device,
    pub address: [u8; 6],
}

/// The bridge's uplink, the sink behind it, and the tenants.
pub struct TestHost {
    pub netlink: Netlink,
    pub uplink: Device,
    pub sink: Namespace,
    pub tenants: Vec<Tenant>,
}

/// In the thread's namespace.
pub fn test_host(tenants: u8) -> TestHost {
    let sink = Namespace::make();
    run(&[
        "ip link add br0 type bridge mcast_snooping 0",
        "ip link set br0 up",
        &format!("ip link add u0 type veth peer name u1 address {SINK_MAC} netns {}", sink.path()),
        "ip link set u0 master br0",
        "ip link set u0 up",
    ]);
    sink.run(&["ip link set lo up", &format!("ip addr add {SINK}/24 dev u1"), "ip link set u1 up"]);
    let mut netlink = Netlink::open().unwrap();
    let tenants = (1..=tenants)
        .map(|i| {
            let namespace = Namespace::make();
            let mac = plug(i, &namespace, "");
            let lines = format!("ip neigh replace 10.9.0.{} lladdr {mac} dev u1 nud permanent", 100 + i);
            sink.run(&[&lines]);
            let device = links::find(&mut netlink, &format!("t{i}")).unwrap();
            Tenant { namespace, device, address: [2, 0, 0, 0, 1, i] }
        })
        .collect();
    let uplink = links::find(&mut netlink, "u0").unwrap();
    TestHost { netlink, uplink, sink, tenants }
}

/// Gives a tenant its interface, with more words for `ip link add`, and says its address.
pub fn plug(i: u8, namespace: &Namespace, more: &str) -> String {
    let mac = format!("02:00:00:00:01:{i:02x}");
    run(&[
        &format!("ip link add t{i}{more} type veth peer name g0 address {mac} netns {}", namespace.path()),
        &format!("ip link set t{i} master br0"),
        &format!("ip link set t{i} up"),
    ]);
    namespace.run(&[
        "ip link set lo up",
        &format!("ip addr add 10.9.0.{}/24 dev g0", 100 + i),
        "ip link set g0 up",
        &format!("ip neigh replace {SINK} lladdr {SINK_MAC} dev g0 nud permanent"),
    ]);
    mac
}

/// Sends so many datagrams to the sink, in the thread's namespace.
pub fn send(packets: usize) {
    send_sized(packets, 400);
}

/// As [`send`], each of so many bytes.
pub fn send_sized(packets: usize, bytes: usize) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    for _ in 0..packets {
        // What the sink says of a port without a program is no matter.
        let _ = socket.send_to(&vec![7; bytes], (SINK, 9));
    }
}

/// Waits until the first packet of a tenant can reach the sink: links take a moment.
pub fn ready(host: &mut TestHost, class: u16) {
    let (uplink, namespace) = (host.uplink.clone(), &host.tenants[0].namespace);
    let netlink = &mut host.netlink;
    let mut packets = || {
        let all = vmio_guard::planes::linux::counters::read(netlink, &uplink).unwrap();
        all.get(&class).map_or(0, |c| c.packets)
    };
    let before = packets();
    poll_until("a first packet", || {
        namespace.inside(|| send(1));
        packets() > before
    });
}

/// Frames and bytes that came over the uplink, as the wire has them.
pub fn carried(host: &TestHost) -> (u64, u64) {
    let text = host.sink.inside(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    let line = text.lines().find_map(|line| line.trim().strip_prefix("u1:")).unwrap();
    let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
    (numbers[1], numbers[0])
}
