//! What the kernel says of queues is what tc(8) set.

#![allow(clippy::unwrap_used)]

use vmio_node::netlink::tc;
use vmio_node::{Local, NetworkAnswer, NetworkQuestion, Questions};
use vmio_testbed::net::{apart, run, tried};

fn index(name: &str) -> u32 {
    let (_, link) = tried(&format!("ip -o link show dev {name}"));
    link.split(':').next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "root"]
fn queues_are_read_as_they_were_set() {
    apart(|| {
        run(&[
            "ip link add v0 type veth peer name v1",
            "ip link set v0 up",
            "ip link set v1 up",
            "tc qdisc add dev v0 root tbf rate 100mbit burst 32kb latency 50ms",
            "tc qdisc add dev v0 ingress",
            "tc filter add dev v0 parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev v1",
            "tc qdisc add dev v1 root handle 1: htb default 1",
            "tc class add dev v1 parent 1: classid 1:1 htb rate 10mbit ceil 20mbit",
        ]);
        let (v0, v1, node) = (index("v0"), index("v1"), Local::new());
        let Ok(NetworkAnswer::Qdiscs(all)) = node.network(&NetworkQuestion::Qdiscs) else { panic!() };
        let root = |index| all.iter().find(|q| q.index == index && q.parent == tc::AT_ROOT).unwrap();
        assert_eq!((root(v0).kind.as_str(), root(v1).kind.as_str()), ("tbf", "htb"));
        let limit = root(v0).limit.unwrap();
        assert_eq!(limit.bytes_per_second, 12_500_000);
        assert!(limit.burst_bytes.unwrap().abs_diff(32 << 10) < 10, "{limit:?}");
        assert_eq!(root(v1).default_class, 0x0001_0001);
        assert!(all.iter().any(|q| q.index == v0 && q.kind == "ingress" && q.parent == tc::AT_HOOKS), "{all:?}");
        let Ok(NetworkAnswer::Classes(classes)) = node.network(&NetworkQuestion::Classes { index: v1 }) else {
            panic!()
        };
        assert_eq!((classes[0].handle, classes[0].limit.unwrap().bytes_per_second), (0x0001_0001, 1_250_000));
        let question = NetworkQuestion::Filters { index: v0, parent: tc::AT_INGRESS };
        let Ok(NetworkAnswer::Filters(filters)) = node.network(&question) else { panic!() };
        let [filter] = &filters[..] else { panic!("{filters:?}") };
        assert_eq!((filter.redirect, filter.whole, filter.police), (Some(v1), true, None));
        // A veth has no rings, and offloads all that it is asked for.
        let rings = node.network(&NetworkQuestion::Rings { name: "v0".into() });
        assert!(matches!(rings, Ok(NetworkAnswer::Rings(_))), "{rings:?}");
        let Ok(NetworkAnswer::Offloads(found)) = node.network(&NetworkQuestion::Offloads { name: "v0".into() }) else {
            panic!()
        };
        assert_eq!((found.tx, found.tso, found.gso), (Some(true), Some(true), Some(true)));
    });
}
