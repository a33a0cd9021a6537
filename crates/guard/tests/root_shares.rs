//! Real traffic: tenants that flood get what the hierarchy gives them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::time::Duration;

use crate::common::flood::{Look, floods, stream_of, under, while_full};
use crate::common::test_host::{SINK, ready, test_host};
use crate::common::{M, leaf, three, tree};
use crate::root_plane::{counts, interfaces, policy};
use vmio_guard::core::Core;
use vmio_guard::planes::linux::classifier::{Classifier, Tenant};
use vmio_guard::planes::linux::{Linux, Netlink, counters, htb};
use vmio_model::policy::program::{Framing, Hierarchy};
use vmio_testbed::net::apart;
use vmio_testbed::poll_until;

const WEB: u16 = 3;
const DB: u16 = 4;

/// Of an uplink 60 % and 20 % are their own; what is left goes by quanta, three to one: 75 % and 25 %.
fn shared(mbit: u64) -> Hierarchy {
    let mut leaves = vec![leaf("default", 1, mbit), leaf("web", mbit * 6 / 10, mbit), leaf("db", mbit * 2 / 10, mbit)];
    leaves[1].quantum_bytes *= 3;
    // All that a sender's buffer lets it send finds room.
    leaves.iter_mut().for_each(|leaf| leaf.queue_bytes = 4 << 20);
    Hierarchy { rate_bps: mbit * M, leaves, ..three() }
}

#[test]
#[ignore = "root"]
fn flooding_tenants_get_their_shares() {
    apart(|| {
        let mut host = test_host(2);
        let uplink = host.uplink.clone();
        let mut classifier = Classifier::load().unwrap();
        for (tenant, class) in host.tenants.iter().zip([WEB, DB]) {
            let tenant_settings = Tenant {
                class: htb::classid(class),
                address: Some(tenant.address),
                redirect: None,
                framing: Framing::NONE,
                checks: None,
                policed: None,
            };
            classifier.attach(&mut host.netlink, &tenant.device, &tenant_settings).unwrap();
        }
        // Somebody listens, so that nothing comes back.
        let _listener = host.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap());
        htb::put(&mut host.netlink, &uplink, &tree(&shared(20)), false).unwrap();
        ready(&mut host, WEB);
        let mut netlink = Netlink::open().unwrap();
        let mut last = BTreeMap::new();
        let full = under(floods(&host, &[1, 2]), || {
            while_full(&[0, 1], (Duration::from_secs(2), Duration::from_secs(1)), |_| {
                last = counters::read(&mut netlink, &uplink).unwrap();
                let look = |class: u16| Look { passed: last[&class].bytes, waiting: last[&class].waiting_bytes.into() };
                vec![look(WEB), look(DB)]
            })
        });
        let share = full.shares()[0];
        assert!((0.675..0.825).contains(&share), "web has {share:.3}, where 0.75 are its own: {full:?}");
        assert!(last[&WEB].borrows > 0 && last[&DB].borrows > 0, "{last:?}");
    });
}

/// A queue has room for what the connections of a sender on this host have in it: what a maximum holds back waits
/// there, and no packet is lost for it.
#[test]
#[ignore = "root"]
fn four_connections_under_a_maximum_lose_nothing() {
    let text = "[uplink.u0]\ncapacity = \"100Mbit\"\n[class.gold]\nmax = \"20Mbit\"\n\
                [[interface]]\nmatch = { name = \"t1\" }\nclass = \"gold\"\n";
    apart(|| {
        let host = test_host(1);
        let mut core = Core::start(Linux::open(false).unwrap(), policy(text), interfaces(&host)).unwrap();
        under((0..4).flat_map(|i| stream_of(&host, 0, 9 + i)), || {
            // As many bytes as 1.6 s let pass, after which each has sent as much as it may.
            poll_until("4 MB that passed", || counts(&mut core)[1].passed_bytes > 4_000_000);
            let now = counts(&mut core)[1];
            assert!(now.waiting_bytes > 0 && now.dropped_packets == 0, "{now:?}");
        });
        core.undo().unwrap();
    });
}
