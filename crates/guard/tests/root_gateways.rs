//! The default routes' gateways, by the uplink on whose network they are.

#![allow(clippy::unwrap_used)]

use crate::common::test_host::test_host;
use vmio_guard::planes::linux::gateways;
use vmio_testbed::net::{apart, run};

#[test]
#[ignore = "root"]
fn root_gateways_of_default_routes_are_known_by_the_uplink() {
    apart(|| {
        let _host = test_host(0);
        let of = |uplinks: &[&str]| {
            let uplinks: Vec<String> = uplinks.iter().map(|&name| name.to_owned()).collect();
            let all = gateways(&uplinks).unwrap();
            all.into_iter().map(|(uplink, found)| format!("{uplink} {found:?}")).collect::<Vec<_>>()
        };
        run(&["ip addr add 10.9.0.1/24 dev br0", "ip route add 10.8.0.0/24 via 10.9.0.3 dev br0"]);
        assert_eq!(of(&["u0"]), [""; 0]);
        run(&[
            "ip route add default via 10.9.0.2 dev br0",
            "ip link add o0 type veth peer name o1",
            "ip addr add 10.7.0.1/24 dev o0",
            "ip link set o0 up",
            "ip route add default via 10.7.0.2 dev o0 metric 7",
        ]);
        assert_eq!(of(&["u0", "o0", "none"]), ["o0 [10.7.0.2]", "u0 [10.9.0.2]"]);
    });
}
