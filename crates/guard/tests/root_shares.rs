//! Real traffic: tenants that flood get what the hierarchy gives them.

#![allow(clippy::unwrap_used)]

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::bed::{SINK, bed, flood, ready};
use crate::common::{apart, three, tree};
use vmio_guard::planes::linux::classifier::{Classifier, Tenant};
use vmio_guard::planes::linux::{counters, htb};
use vmio_model::policy::program::Framing;

#[test]
#[ignore = "root"]
fn two_tenants_that_flood_get_their_shares_of_the_uplink() {
    const WEB: u16 = 3;
    const DB: u16 = 4;
    apart(|| {
        let mut bed = bed(2);
        let mut hierarchy = three();
        // Of 100 Mbit/s 60 and 20 are their own; what is left goes by quanta, three to one: 75 and 25.
        hierarchy.leaves[1].quantum_bytes = 45_420;
        hierarchy.leaves[2].ceil_bps = 100_000_000;
        let uplink = bed.uplink.clone();
        htb::put(&mut bed.netlink, &uplink, &tree(&hierarchy), false).unwrap();
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
        ready(&mut bed, WEB);
        let end = Instant::now() + Duration::from_secs(3);
        let (first, last) = thread::scope(|s| {
            for tenant in &bed.tenants {
                s.spawn(|| tenant.namespace.inside(|| flood(end)));
            }
            // Buckets are empty and queues are full by then.
            thread::sleep(Duration::from_millis(700));
            let first = counters::read(&mut bed.netlink, &uplink).unwrap();
            thread::sleep(Duration::from_millis(2000));
            (first, counters::read(&mut bed.netlink, &uplink).unwrap())
        });
        let moved = |class: u16| (last[&class].bytes - first[&class].bytes) as f64;
        let (web, db) = (moved(WEB), moved(DB));
        let share = web / (web + db);
        assert!((0.675..0.825).contains(&share), "web has {share:.3} of {web} + {db} bytes, where 0.75 are its own");
        assert!(last[&WEB].borrows > 0 && last[&DB].borrows > 0, "{last:?}");
    });
}
