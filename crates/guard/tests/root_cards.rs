//! A guest with a virtual function of the uplink's card, on a card without any: no test machine has SR-IOV. The
//! kernel's answers are real.

#![allow(clippy::unwrap_used)]

use vmio_guard::core::Core;
use vmio_guard::interface::DiscoveredInterface;
use vmio_guard::planes::Options;
use vmio_guard::planes::linux::functions::{self, Rate};
use vmio_guard::planes::linux::{Error, Linux};
use vmio_guard::undo_log::UndoLog;
use vmio_model::holding::{PacketPath, QueueingPoint};
use vmio_model::policy::assign::Interface;

use crate::common::state::State;
use crate::common::test_host::test_host;
use crate::common::{M, nic};
use crate::root_plane::{interfaces, policy};
use vmio_testbed::net::apart;

const POLICY: &str = "\
[uplink.u0]
capacity = \"100Mbit\"
[class.gold]
max = \"40Mbit\"
[[interface]]
match = { name = \"t1\" }
class = \"gold\"
[[interface]]
match = { vm = \"web\" }
class = \"gold\"
";

fn assigned_vf() -> DiscoveredInterface {
    let path = PacketPath { card: Some(0), ..PacketPath::default() };
    let interface = Interface { name: "u0/vf0".into(), vms: vec!["web".into()], ..Interface::default() };
    DiscoveredInterface { nic: Some(nic("vfio", "vfio")), paths: [("u0".to_owned(), path)].into(), ..interface.into() }
}

#[test]
#[ignore = "needs root"]
fn card_without_functions() {
    apart(|| {
        let mut host = test_host(1);
        assert!(functions::of(&mut host.netlink, &host.uplink).unwrap().is_empty());
        let rate = Rate { min_mbit: 0, max_mbit: 40 };
        let refused = functions::limit(&mut host.netlink, &host.uplink, 0, rate).unwrap_err();
        let Error::Refused { source, what, .. } = &refused else { panic!("{refused}") };
        assert_eq!(source.raw_os_error(), Some(libc::EOPNOTSUPP), "{refused}");
        assert!(what.contains("function 0 of u0 to 40 Mbit/s"), "{what}");

        let before = State::now();
        let log = UndoLog::memory();
        let plane = Linux::with(&Options { log: log.clone(), ..Options::default() }).unwrap();
        let there = interfaces(&host).into_iter().chain([assigned_vf()]).collect();
        let mut core = Core::start(plane, policy(POLICY), there).unwrap();
        let status = core.status().unwrap().remove(0);
        let named = |name: &str| status.members.iter().find(|m| m.name == name).unwrap();
        assert_eq!(named("t1").limit_bps, Some(40 * M));
        let card = named("u0/vf0");
        let held = card.held.as_ref().unwrap();
        assert_eq!((held.waits, card.limit_bps), (QueueingPoint::None, None), "what is not in force is not promised");
        assert_eq!(held.reason, "u0 has no function 0 any more");
        assert_eq!(core.reconcile().unwrap(), 0);
        core.undo().unwrap();
        assert_eq!(State::now(), before);
    });
}
