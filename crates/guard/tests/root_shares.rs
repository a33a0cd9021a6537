//! Real traffic: tenants that flood get what the hierarchy gives them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::bed::{Bed, SINK, bed, flood, ready};
use crate::common::{apart, leaf, three, tree};
use vmio_guard::planes::linux::classifier::{Classifier, Tenant};
use vmio_guard::planes::linux::counters::{self, Counts};
use vmio_guard::planes::linux::htb;
use vmio_model::policy::program::{Framing, Hierarchy};

const WEB: u16 = 3;
const DB: u16 = 4;

/// Of an uplink 60 % and 20 % are their own; what is left goes by quanta, three to one: 75 % and 25 %.
fn shared(mbit: u64) -> Hierarchy {
    let mut leaves = vec![leaf("default", 1, mbit), leaf("web", mbit * 6 / 10, mbit), leaf("db", mbit * 2 / 10, mbit)];
    leaves[1].quantum_bytes *= 3;
    // All that a sender's buffer lets it send finds room.
    leaves.iter_mut().for_each(|leaf| leaf.queue_bytes = 4 << 20);
    Hierarchy { rate_bps: mbit * 1_000_000, leaves, ..three() }
}

/// What the classes have counted, every 100 ms for 2 s, while all tenants send what they can.
fn flooded(bed: &mut Bed) -> Vec<BTreeMap<u16, Counts>> {
    let uplink = bed.uplink.clone();
    let end = Instant::now() + Duration::from_secs(3);
    thread::scope(|s| {
        for tenant in &bed.tenants {
            s.spawn(|| tenant.namespace.inside(|| flood(end)));
        }
        // Buckets are empty and queues are full by then.
        thread::sleep(Duration::from_millis(700));
        let netlink = &mut bed.netlink;
        let mut sample = || {
            thread::sleep(Duration::from_millis(100));
            counters::read(netlink, &uplink).unwrap()
        };
        (0..=20).map(|_| sample()).collect()
    })
}

#[test]
#[ignore = "root"]
fn two_tenants_that_flood_get_their_shares_of_the_uplink() {
    apart(|| {
        let mut bed = bed(2);
        let uplink = bed.uplink.clone();
        let mut classifier = Classifier::load().unwrap();
        for (tenant, class) in bed.tenants.iter().zip([WEB, DB]) {
            let told = Tenant {
                class: htb::classid(class),
                address: Some(tenant.address),
                redirect: None,
                framing: Framing::NONE,
            };
            classifier.attach(&mut bed.netlink, &tenant.device, &told).unwrap();
        }
        // Somebody listens, so that nothing comes back.
        let _listener = bed.sink.inside(|| UdpSocket::bind((SINK, 9)).unwrap());
        // A machine that is busy, or emulated, may not fill a fast uplink: then a slower one is filled.
        for mbit in [100, 20, 5] {
            htb::undo(&mut bed.netlink, &uplink, None).unwrap();
            htb::put(&mut bed.netlink, &uplink, &tree(&shared(mbit)), false).unwrap();
            ready(&mut bed, WEB);
            let samples = flooded(&mut bed);
            if samples.iter().any(|s| [WEB, DB].iter().any(|class| s[class].waiting_packets == 0)) {
                continue;
            }
            let (first, last) = (&samples[0], &samples[samples.len() - 1]);
            let moved = |class: u16| (last[&class].bytes - first[&class].bytes) as f64;
            let (web, db) = (moved(WEB), moved(DB));
            let share = web / (web + db);
            assert!((0.675..0.825).contains(&share), "of {mbit} Mbit/s web has {share:.3}, where 0.75 are its own");
            assert!(last[&WEB].borrows > 0 && last[&DB].borrows > 0, "{last:?}");
            return;
        }
        panic!("two senders cannot keep an uplink of 5 Mbit/s full here");
    });
}
