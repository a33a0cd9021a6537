//! What limits receiving is put back where somebody takes it off, and leaves nothing behind.

#![allow(clippy::unwrap_used)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::common::state::{Hook, links_at};
use crate::common::test_host::{TestHost, test_host};
use crate::root_plane::{interfaces, policy};
use crate::root_receive::{LIMITED, T1, arrives, counts, middle, only, received_by, rx, start, tenants};
use vmio_guard::core::Core;
use vmio_guard::planes::linux::classifier::{AttachMode, Classifier, Leave, Receive};
use vmio_guard::planes::linux::{Linux, htb, ifb, links};
use vmio_guard::planes::{Plane, Scope};
use vmio_testbed::net::{apart, run};

/// `theirs`: somebody has a filter at the uplink's ingress, so ours are behind it at clsact.
fn put_back_and_off_again(theirs: bool) {
    apart(|| {
        let mut host = test_host(2);
        let uplink = host.uplink.clone();
        if theirs {
            run(&[
                "tc qdisc add dev u0 clsact",
                "tc filter add dev u0 ingress protocol 0x88b5 prio 5 u32 match u32 0 0 classid 1:1",
            ]);
        }
        let before = htb::settings(&mut host.netlink, &uplink).unwrap();
        let mut core = start(&host, LIMITED);
        arrives(&host, 0);
        let name = middle(&mut host).name;
        let mut taken = vec![format!("ip link del {name}"), format!("tc qdisc del dev {name} root")];
        if theirs {
            taken.push("tc filter del dev u0 ingress pref 49153".to_owned());
            // With it their filter goes, too.
            taken.push("tc qdisc del dev u0 clsact".to_owned());
        }
        for line in &taken {
            run(&[line]);
            assert!(core.reconcile().unwrap() > 0, "{line}");
            assert_eq!(core.reconcile().unwrap(), 0, "{line}");
            assert_eq!(received_by(&mut core, &host, tenants(1)), only(T1), "{line}");
            arrives(&host, 1);
        }
        // Without an rx_class nobody's receiving is limited any more.
        core.reload(policy(&LIMITED.replace("rx_class = \"any\"", "").replace("rx_class = \"low\"", ""))).unwrap();
        assert_eq!(links::look(&mut host.netlink, &name).unwrap(), None);
        assert!(core.plane().observe(Scope::Counts(&rx())).is_err());
        arrives(&host, 0);
        core.reload(policy(LIMITED)).unwrap();
        core.undo().unwrap();
        assert_eq!(links::look(&mut host.netlink, &name).unwrap(), None);
        if theirs {
            run(&["tc qdisc add dev u0 clsact"]);
        }
        assert_eq!(htb::settings(&mut host.netlink, &uplink).unwrap(), before, "as it was, bit by bit");
        arrives(&host, 0);
    });
}

#[test]
#[ignore = "root"]
fn removed_receive_limits_are_restored() {
    put_back_and_off_again(false);
}

#[test]
#[ignore = "root"]
fn removed_receive_limits_are_restored_after_foreign_filters() {
    put_back_and_off_again(true);
}

/// Takes the program off that a TCX link has at what arrives at the uplink, as `bpftool link detach` does; `false`
/// where there is no such link, as before Linux 6.6.
pub fn detach_program(host: &TestHost) -> bool {
    let Some(link) = links_at(&host.uplink, Hook::Ingress).into_iter().next() else { return false };
    // SAFETY: numbers go in, and the descriptor that comes out is this function's own.
    unsafe {
        let fd = OwnedFd::from_raw_fd(libbpf_sys::bpf_link_get_fd_by_id(link));
        assert_eq!(libbpf_sys::bpf_link_detach(fd.as_raw_fd()), 0);
    }
    true
}

#[test]
#[ignore = "root"]
fn detached_program_is_reattached() {
    apart(|| {
        let host = test_host(2);
        let mut core = start(&host, LIMITED);
        arrives(&host, 0);
        if !detach_program(&host) {
            // Where it hangs in clsact another test takes it off.
            run(&["tc filter del dev u0 ingress"]);
        }
        let before = counts(&mut core)[T1].passed_bytes;
        arrives(&host, 0);
        assert_eq!(counts(&mut core)[T1].passed_bytes, before, "it is led no more");
        assert_eq!(core.reconcile().unwrap(), 1);
        assert_eq!(core.reconcile().unwrap(), 0);
        assert_eq!(received_by(&mut core, &host, tenants(1)), only(T1));
        core.undo().unwrap();
    });
}

#[test]
#[ignore = "root"]
fn foreign_interface_with_the_ifbs_name() {
    apart(|| {
        let mut host = test_host(2);
        let uplink = host.uplink.clone();
        let before = htb::settings(&mut host.netlink, &uplink).unwrap();
        let name = format!("vmiorx{:x}", uplink.index);
        run(&[&format!("ip link add {name} type ifb")]);
        let refused = Core::start(Linux::open(false).unwrap(), policy(LIMITED), interfaces(&host)).err().unwrap();
        assert!(refused.to_string().contains(&name), "{refused}");
        assert_eq!(htb::settings(&mut host.netlink, &uplink).unwrap(), before);
        assert!(links::look(&mut host.netlink, &name).unwrap().is_some_and(|link| !link.up), "left alone");
    });
}

#[test]
#[ignore = "root"]
fn removed_uplink_leaves_no_ifb() {
    apart(|| {
        let mut host = test_host(2);
        let core = start(&host, LIMITED);
        let name = middle(&mut host).name;
        run(&["ip link del u0"]);
        core.undo().unwrap();
        assert_eq!(links::look(&mut host.netlink, &name).unwrap(), None);
    });
}

/// On kernels without TCX both programs of an uplink hang in one clsact qdisc: the last one takes it off.
#[test]
#[ignore = "root"]
fn clsact_is_removed_with_the_last_program() {
    apart(|| {
        let mut host = test_host(1);
        let uplink = host.uplink.clone();
        let before = htb::settings(&mut host.netlink, &uplink).unwrap();
        let through = ifb::make(&mut host.netlink, "vmiorx0", "test", 1000).unwrap().index;
        let classes = [(host.tenants[0].address, htb::classid(16))].into();
        let told = Receive { host: htb::classid(2), other: htb::classid(3), through, classes };
        let leave = Leave { host: htb::classid(2), stage: None, queueless: None };
        let mut classifier = Classifier::load().unwrap();
        for first in [true, false] {
            classifier.attach_uplink_by(&mut host.netlink, &uplink, leave, AttachMode::Clsact).unwrap();
            classifier.attach_receive_by(&mut host.netlink, &uplink, &told, AttachMode::Clsact).unwrap();
            assert!(!classifier.attach_receive(&mut host.netlink, &uplink, &told).unwrap(), "it stays");
            if first {
                assert!(classifier.detach_uplink(&mut host.netlink, &uplink).unwrap());
            }
            assert!(classifier.detach_receive(&mut host.netlink, &uplink).unwrap());
            assert!(!classifier.detach_receive(&mut host.netlink, &uplink).unwrap());
            assert_eq!(classifier.detach_uplink(&mut host.netlink, &uplink).unwrap(), !first);
            assert_eq!(htb::settings(&mut host.netlink, &uplink).unwrap(), before);
        }
        classifier.attach_receive_by(&mut host.netlink, &uplink, &told, AttachMode::Clsact).unwrap();
        drop(classifier);
        assert_eq!(htb::settings(&mut host.netlink, &uplink).unwrap(), before);
    });
}
