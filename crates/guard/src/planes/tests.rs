#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use vmio_model::policy::assign::Interface;
use vmio_model::policy::{Direction, Form, Policy};
use vmio_model::rate::BitRate;

use super::*;
use crate::core::Core;
use crate::testing::policy;

#[test]
fn abilities_of_every_entry() {
    let names: BTreeSet<&str> = ALL.iter().map(|e| e.abilities.plane).collect();
    assert_eq!(names.len(), ALL.len(), "names are different");
    for entry in ALL {
        let Abilities { plane, least_bps, most_bps, step_bps, packet_bytes, members, .. } = entry.abilities;
        assert!(!entry.about.is_empty() && entry.about.len() < 80, "{plane}");
        assert!(least_bps < most_bps && step_bps > BitRate::ZERO && step_bps <= least_bps, "{plane}");
        assert!(packet_bytes >= 1514 && members >= 3, "{plane}: host, default, and somebody");
        assert_eq!(find(plane).unwrap().abilities, entry.abilities);
    }
    assert!(find("none").is_none());
}

/// The contract, for the planes that need no machine; `tests/root_plane.rs` checks the Linux plane.
#[test]
fn planes_keep_the_contract() {
    let text = "[uplink.u0]\ncapacity = \"1Gbit\"\n[[interface]]\nmatch = { name = \"t*\" }\nclass = \"default\"\n";
    let policy = policy(text);
    ["fake", observe::NAME].into_iter().for_each(|name| keeps_the_contract(name, &policy));
}

fn keeps_the_contract(name: &str, policy: &Policy) {
    let plane = (find(name).unwrap().open)(Options::default()).unwrap();
    assert_eq!((plane.abilities().plane, plane.abilities().form), (name, Form::Hierarchy));
    let there = vec![Interface { index: 1, name: "t1".into(), ..Interface::default() }.into()];
    let mut core = Core::start(plane, policy.clone(), there).unwrap();
    assert_eq!(core.reconcile().unwrap(), 0, "{name}: applying twice changes nothing");
    let key = |uplink: &str| PoolKey { uplink: uplink.into(), direction: Direction::GuestTx };
    let (there, gone) = (key("u0"), key("u1"));
    for (there, gone) in [(Scope::Counts(&there), Scope::Counts(&gone)), (Scope::Pool(&there), Scope::Pool(&gone))] {
        assert_eq!(core.plane().observe(there).unwrap().counts.len(), 3, "{name}: one a member");
        let unknown = core.plane().observe(gone).unwrap_err().to_string();
        assert!(unknown.contains("u1 guest_tx"), "{name}: {unknown}");
    }
    core.undo().unwrap();
}

#[test]
fn boxed_plane_forwards_all() {
    let mut fake = fake::Fake::new(Abilities::HTB);
    assert!(!fake.observe(Scope::Disturbed).unwrap().undisturbed && !fake.observe(Scope::Earlier).unwrap().inherits);
    fake.earlier = true;
    let mut boxed: Box<dyn Plane> = Box::new(fake);
    assert!(boxed.observe(Scope::Earlier).unwrap().inherits);
    let pool = PoolKey { uplink: "u0".into(), direction: Direction::GuestTx };
    assert!(boxed.set(&pool, Setting::Emptied(0)).unwrap_err().to_string().contains("it has no member 0"));
}
