#![allow(clippy::unwrap_used)]

use vmio_model::policy::Abilities;
use vmio_model::rate::BitRate;
use vmio_testbed::poll_until;

use super::*;
use crate::planes::fake::Fake;
use crate::testing::{POLICY, policy, tap};

/// Something is left to its loop.
const HARD: &str = "min = \"40Mbit\"\nreserve = \"hard\"";

fn start(text: &str) -> Result<Daemon, StartError> {
    let policy = policy(text);
    Daemon::start(Duration::from_millis(1), move || Core::start(Fake::new(Abilities::HTB), policy, vec![tap(1)]))
}

fn names(daemon: &Daemon) -> Vec<String> {
    daemon.status().unwrap().pools.unwrap()[0].members.iter().map(|m| m.name.clone()).collect()
}

#[test]
fn requests_while_the_loop_runs() {
    let daemon = start(&POLICY.replace("min = \"40Mbit\"", HARD)).unwrap();
    assert_eq!(names(&daemon), ["host", "tap1", "default"]);
    daemon.set_interfaces(vec![tap(1), tap(2)]).unwrap().unwrap();
    assert_eq!(names(&daemon), ["host", "tap1", "tap2", "default"]);
    assert_eq!(daemon.count().unwrap().map(|pools| pools.len()), Some(1));
    let refused = daemon.reload(policy(&POLICY.replace("min = \"40Mbit\"", "max = \"1kbit\""))).unwrap().unwrap_err();
    assert!(matches!(refused, CoreError::Refused(_)), "{refused}");
    daemon.reload(policy(&POLICY.replace("40Mbit", "30Mbit"))).unwrap().unwrap();
    let status = daemon.status().unwrap();
    let members = &status.pools.as_ref().unwrap()[0].members;
    assert_eq!(members[1].min_effective_bps, BitRate::new(30_000_000));
    // Of this policy nothing is left to the loop; of the next one there is.
    let ticks = status.ticks;
    daemon.reload(policy(&POLICY.replace("min = \"40Mbit\"", HARD))).unwrap().unwrap();
    poll_until("the loop goes on", || daemon.status().unwrap().ticks != ticks);
    assert_eq!(daemon.status().unwrap().trouble, None);
    daemon.undo().unwrap();
}

#[test]
fn refused_policy_does_not_start() {
    let error = start(&POLICY.replace("min = \"40Mbit\"", "max = \"1kbit\"")).unwrap_err();
    assert!(error.to_string().contains("tap1 has a maximum of 1 kbit/s"), "{error}");
}

#[test]
fn concurrent_requests() {
    let daemon = start(POLICY).unwrap();
    thread::scope(|s| {
        for i in 0..8u32 {
            let daemon = &daemon;
            s.spawn(move || {
                for j in 0..20 {
                    daemon.set_interfaces((0..=(i * j) % 7).map(tap).collect()).unwrap().unwrap();
                    assert!(names(daemon).len() >= 3);
                }
            });
        }
    });
    drop(daemon);
}
