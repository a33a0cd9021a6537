//! A guard that is killed at random moments: the next one reaches the desired state, and undo leaves the host as
//! before.

#![allow(clippy::unwrap_used, clippy::disallowed_types, clippy::print_stdout)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vmio_guard::core::Core;
use vmio_guard::interface::DiscoveredInterface;
use vmio_guard::planes::Plane;
use vmio_guard::planes::linux::links;
use vmio_model::policy::assign::Interface;

use crate::common::state::State;
use crate::common::test_host::test_host;
use crate::root_plane::policy;
use crate::root_queueless::alone;
use crate::root_receive::LIMITED;
use crate::root_takeover::{attached_once, kept, start};
use vmio_testbed::net::{apart_with_bpffs, run};

const WHERE: &str = "VMIO_TEST_LEDGER";
const MARK: &str = "the guard begins";
/// Kills in each of two ways of attaching.
const KILLS: u64 = 10;

/// The life of one; nothing where this is the tests' own process.
#[test]
#[ignore = "root"]
fn helper_guard() {
    let Ok(ledger) = std::env::var(WHERE) else { return };
    // It ends with whom it is to outlive, should that fail.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    println!("{MARK}");
    let interface = |i: u8| Interface {
        index: links::find(&mut vmio_guard::planes::linux::Netlink::open().unwrap(), &format!("t{i}")).unwrap().index,
        name: format!("t{i}"),
        macs: vec![format!("02:00:00:00:01:{i:02x}")],
        ..Interface::default()
    };
    let both: Vec<DiscoveredInterface> = vec![interface(1).into(), interface(2).into()];
    let plain = LIMITED.replace("rx_class = \"any\"", "").replace("rx_class = \"low\"", "");
    // With queues at the members' own interfaces.
    let apart = LIMITED.replace("[class.any]", "[class.any]\nlocal = \"limit\"");
    loop {
        let mut core = Core::start(kept(Path::new(&ledger)), policy(LIMITED), both.clone()).unwrap();
        core.set_interfaces(both[..1].to_vec()).unwrap();
        core.reload(policy(&plain)).unwrap();
        core.reload(policy(&apart)).unwrap();
        core.set_interfaces(both.clone()).unwrap();
        // Without queues at the uplink, and with them again.
        core.reload(policy(&alone(4))).unwrap();
        core.reload(policy(LIMITED)).unwrap();
        core.undo().unwrap();
    }
}

fn killed_at_any_moment(pinned: bool, seed: u64) {
    println!("seed {seed}");
    apart_with_bpffs(pinned, || {
        let host = test_host(2);
        run(&["tc qdisc add dev u0 root handle 11: tbf rate 90mbit burst 20k limit 100k"]);
        let before = State::now();
        let ledger = tempfile::tempdir().unwrap();
        let mut random = seed;
        for kill in 0..KILLS {
            let mut guard = Command::new(std::env::current_exe().unwrap())
                .args(["root_crash::helper_guard", "--exact", "--ignored", "--nocapture"])
                .env(WHERE, ledger.path())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(guard.stdout.take().unwrap()).lines();
            assert!(lines.any(|line| line.unwrap().contains(MARK)));
            // Numerical Recipes' linear congruential generator.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            thread::sleep(Duration::from_micros((random >> 33) % 250_000));
            guard.kill().unwrap();
            let ended = guard.wait().unwrap();
            assert_eq!(ended.code(), None, "it ended by itself: seed {seed}, kill {kill}");
            // Every second time there is no next one but undo.
            if kill % 2 == 1 {
                kept(ledger.path()).undo().unwrap();
                assert_eq!(State::now(), before, "seed {seed}, kill {kill}");
                continue;
            }
            let mut next = start(&host, ledger.path(), LIMITED);
            assert_eq!(next.reconcile().unwrap(), 0, "seed {seed}, kill {kill}");
            attached_once(&host, pinned);
            next.leave();
        }
        kept(ledger.path()).undo().unwrap();
        assert_eq!(State::now(), before, "seed {seed}");
    });
}

fn seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into()
}

#[test]
#[ignore = "root"]
fn random_kills_with_pins() {
    killed_at_any_moment(true, seed());
}

#[test]
#[ignore = "root"]
fn random_kills_by_clsact() {
    killed_at_any_moment(false, seed());
}
