//! What is looked at of an opened guest alone.

use vmio_node::netlink::tc::{self, Limit, Qdisc};
use vmio_node::{NetworkAnswer, NetworkQuestion};

use super::*;

#[test]
fn limits_of_network_cards_are_told_of_an_opened_guest() {
    let limit = Some(Limit { bytes_per_second: 125_000, burst_bytes: None });
    let root = Qdisc { index: 7, handle: 1 << 16, parent: tc::AT_ROOT, kind: "tbf".into(), limit, ..Qdisc::default() };
    let fake = machine()
        .file("/sys/class/net/tapa/ifindex", "7\n")
        .kernel(NetworkQuestion::Qdiscs, NetworkAnswer::Qdiscs(vec![root]));
    let mut sampler = Sampler::new(&fake, false, untraced());
    let limits = |sampler: &Sampler<'_>| sampler.guest(100).unwrap().nics[0].rate_limits.len();
    sampler.tick();
    assert_eq!(limits(&sampler), 0);
    sampler.watch(Some(100));
    sampler.tick();
    assert_eq!(limits(&sampler), 1);
}
