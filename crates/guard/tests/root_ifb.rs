//! IFBs: made once, found again, and nobody else's touched.

#![allow(clippy::unwrap_used)]

use crate::common::{three, tree};
use vmio_guard::planes::linux::{Error, Netlink, htb, ifb, links};
use vmio_testbed::net::{apart, run};

#[test]
#[ignore = "root"]
fn ifb_is_made_found_and_removed() {
    apart(|| {
        let mut netlink = Netlink::open().unwrap();
        assert_eq!(ifb::find(&mut netlink, "vmio-eth0").unwrap(), None);
        let made = ifb::make(&mut netlink, "vmio-eth0", "what guests send to eth0", 1000).unwrap();
        let link = links::look(&mut netlink, "vmio-eth0").unwrap().unwrap();
        assert_eq!((link.kind.as_str(), link.alias.as_str()), ("ifb", "vmio guard: what guests send to eth0"));
        assert!(link.up && link.queue_packets == 1000);
        let sent = netlink.changes();
        assert_eq!(ifb::make(&mut netlink, "vmio-eth0", "what guests send to eth0", 1000).unwrap(), made);
        assert_eq!(netlink.changes(), sent, "nothing is left to do");
        run(&["ip link set vmio-eth0 down"]);
        assert_eq!(ifb::make(&mut netlink, "vmio-eth0", "what guests send to eth0", 500).unwrap(), made);
        assert_eq!(ifb::find(&mut netlink, "vmio-eth0").unwrap(), Some(made.clone()));
        htb::put(&mut netlink, &made, &tree(&three()), false).unwrap();
        assert!(ifb::remove(&mut netlink, "vmio-eth0").unwrap());
        assert!(!ifb::remove(&mut netlink, "vmio-eth0").unwrap());
    });
}

#[test]
#[ignore = "root"]
fn foreign_interface_is_left_alone() {
    apart(|| {
        let mut netlink = Netlink::open().unwrap();
        run(&["ip link add theirs type ifb", "ip link add pair type veth peer name pair1"]);
        run(&["ip link set pair alias vmio\u{a0}guard", "ip link set theirs alias other"]);
        for name in ["theirs", "pair"] {
            for refused in [
                ifb::make(&mut netlink, name, "x", 32).map(drop).unwrap_err(),
                ifb::remove(&mut netlink, name).map(drop).unwrap_err(),
                ifb::find(&mut netlink, name).map(drop).unwrap_err(),
            ] {
                assert!(matches!(refused, Error::Foreign { .. }), "{refused}");
            }
        }
        let link = links::look(&mut netlink, "theirs").unwrap().unwrap();
        assert!(!link.up && link.alias == "other");
        assert_eq!(netlink.changes(), 0);
        for name in ["", "a/b", "sixteen-letters-", "a b", ".."] {
            assert!(matches!(ifb::make(&mut netlink, name, "x", 32), Err(Error::Invalid { .. })), "{name}");
        }
        assert!(matches!(links::find(&mut netlink, "nobody"), Err(Error::NoInterface(_))));
    });
}
