//! `vmio volume` without guests: what is made, what is refused, what is left.
#![allow(clippy::unwrap_used)]

use crate::help::schema::fits;
use crate::help::state_dir::{Ended, StateDir};

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

fn volume(state: &StateDir, args: &[&str]) -> Ended {
    state.vmio(&[&["volume"], args].concat())
}

/// A volume that no guest has.
fn row(name: &str, size: u64) -> Value {
    json!({"name": name, "size_bytes": size, "guest": null, "host": null, "at": null, "serial": null})
}

#[test]
fn volumes_are_made_copied_resized_and_deleted() {
    let state = StateDir::new();
    let none = volume(&state, &["list", "--json"]).with(0).json();
    assert_eq!(none["volumes"], json!([]));
    assert_eq!(state.files(), [""; 0], "nothing is made by looking");
    let made = volume(&state, &["create", "data", "1MiB", "--json"]).with(0);
    fits("volume", &made.out);
    assert_eq!(made.json()["volume"], row("data", 1 << 20));
    let pool = state.path().join("volumes");
    assert_eq!(fs::metadata(pool.join("data.raw")).unwrap().permissions().mode() & 0o777, 0o600);
    fs::write(pool.join("data.raw"), vec![7; 1 << 20]).unwrap();
    volume(&state, &["snapshot", "data", "monday"]).with(0).says(&["made monday 1 MiB"]);
    volume(&state, &["resize", "data", "2MiB"]).with(0).says(&["resized data 2 MiB"]);
    let listed = volume(&state, &["list", "--json"]).with(0);
    fits("volume-list", &listed.out);
    assert_eq!(listed.json()["volumes"], json!([row("data", 2 << 20), row("monday", 1 << 20)]));
    assert_eq!(volume(&state, &["list"]).with(0).out, "data    2 MiB\nmonday  1 MiB\n");
    assert_eq!(fs::read(pool.join("monday.raw")).unwrap(), vec![7; 1 << 20]);
    volume(&state, &["delete", "monday"]).with(2).says(&["no terminal to ask on", "help: use --yes"]);
    volume(&state, &["delete", "monday", "--yes"]).with(0).says(&["volume monday deleted"]);
    assert!(!pool.join("monday.raw").exists());
}

#[test]
fn what_would_lose_data_or_lead_elsewhere_is_refused() {
    let state = StateDir::new();
    volume(&state, &["create", "../data", "1MiB"]).with(2).says(&["names no volume"]);
    volume(&state, &["create", "data", "1"]).with(2).says(&["1GiB"]);
    volume(&state, &["resize", "data", "1MiB"]).with(2).says(&["there is no pool"]);
    volume(&state, &["create", "data", "2MiB"]).with(0);
    volume(&state, &["create", "data", "1MiB"]).with(2).says(&["there is a volume data already"]);
    volume(&state, &["snapshot", "data", "data"]).with(2).says(&["there is a volume data already"]);
    volume(&state, &["resize", "data", "1MiB"]).with(2).says(&["a smaller one would lose data"]);
    volume(&state, &["delete", "other", "--yes"]).with(2).says(&["there is no volume other"]);
    volume(&state, &["create", "huge", "1024TiB"]).with(1).says(&["help: free some space there; nothing was changed"]);
    let pool = state.path().join("volumes");
    let names: Vec<_> = fs::read_dir(&pool).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["data.raw"]);
    fs::set_permissions(&pool, fs::Permissions::from_mode(0o755)).unwrap();
    volume(&state, &["list"]).with(3).says(&["others may use it; help: chmod 700 it"]);
}

#[test]
fn a_pool_of_lvm_is_made_by_its_first_volume_alone() {
    let state = StateDir::new();
    let listed = volume(&state, &["list", "--pool", "lvmthin:lab/pool", "--json"]).with(0);
    fits("volume-list", &listed.out);
    assert_eq!((&listed.json()["pool"], &listed.json()["volumes"]), (&json!("lvmthin:lab/pool"), &json!([])));
    volume(&state, &["delete", "data", "--yes", "--pool", "lvm:lab"]).with(2).says(&["there is no pool lvm:lab"]);
    volume(&state, &["create", "data", "1MiB", "--pool", "zfs:tank"]).with(2).says(&["zfs:tank is no pool of volumes"]);
    volume(&state, &["create", "data", "1MiB", "--pool", "lvmthn:lab/pool"]).with(2).says(&["no pool of volumes"]);
    volume(&state, &["create", "data", "1MiB", "--pool", "lvm:a b"]).with(2).says(&["no pool of volumes"]);
    assert_eq!(state.files(), [""; 0], "nothing is made by looking");
}

/// What the page has people paste, as they paste it.
#[test]
fn the_policy_of_a_pool_is_one() {
    let state = StateDir::new();
    let page = include_str!("../../../docs/volumes.md");
    let policy = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let file = state.path().join("guard.toml");
    fs::write(&file, policy).unwrap();
    let guard = |verb: &str| state.vmio(&["guard", verb, "--config", file.to_str().unwrap()]).with(0);
    guard("check").says(&["1 interface named"]);
    guard("plan").says(&["netns:volumes"]);
}

/// The record is one that `serve NAME` leaves.
#[test]
fn the_policy_of_volumes_for_other_hosts_is_one() {
    let state = StateDir::new();
    let pool = state.path().join("volumes");
    let at = |netns: &str, min: &str| volume(&state, &["policy", "--netns", netns, "--min", min]);
    let policy = |min: &str| at("volumes", min);
    volume(&state, &["create", "data", "1MiB"]).with(0);
    let serve = |name: &str, at: &str| {
        let holder = json!({"guest": "host web2", "pid": 1, "start_ticks": 1, "boot_id": "b", "machine_id": "m"});
        let record = json!({"holder": holder, "reach": {"to": {"host": "web2", "at": at}}, "export": "00ff"});
        fs::write(pool.join(format!("{name}.attached")), record.to_string()).unwrap();
    };
    serve("data", "127.0.0.1:10809");
    policy("100Mbit").with(3).says(&["for another host", "help: serve one"]);
    serve("data", "192.0.2.20:10809");
    serve(&"d".repeat(33), "192.0.2.20:10810");
    let told = policy("100Mbit").with(0).out;
    for line in ["min = \"200 Mbit/s\"", "name = \"data\"", "name = \"port-10810\"", "ports = [10809] }"] {
        assert!(told.contains(line), "no {line} in {told}");
    }
    let file = state.path().join("guard.toml");
    let guard = |verb: &str, policy: &str| {
        fs::write(&file, format!("[uplink.eth0]\ncapacity = \"1Gbit\"\n\n{policy}")).unwrap();
        state.vmio(&["guard", verb, "--config", file.to_str().unwrap()])
    };
    guard("check", &told).with(0).says(&["1 interface named"]);
    guard("plan", &told).with(0).says(&["netns:volumes"]);
    // Those of a further pool beside, in a namespace with the name of one of the guard's own classes.
    guard("check", &format!("{told}\n{}", at("host", "100Mbit").with(0).out)).with(0).says(&["2 interfaces named"]);
    // The flow classes are read: together they may not have more than the class.
    let more = told.replacen("200 Mbit/s", "199 Mbit/s", 1);
    assert_ne!(guard("check", &more).code, Some(0));
    serve("copy", "192.0.2.21:10809");
    policy("100Mbit").with(3).says(&["have the same port"]);
}

#[test]
fn a_key_that_others_may_read_serves_no_host() {
    let state = StateDir::new();
    let serve = |more: &[&str]| volume(&state, &[&["serve", "data"], more].concat());
    serve(&[]).with(2).says(&["--listen"]);
    serve(&["--listen", "192.0.2.1"]).with(2).says(&["not ADDRESS:PORT"]);
    let key = state.path().join("keys.psk");
    fs::write(&key, format!("web2:{}\n", "5a".repeat(32))).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let listen = ["--listen", "192.0.2.1:10809", "--tls-key", key.to_str().unwrap()];
    serve(&listen).with(3).says(&["others may read it; help: chmod 600 it"]);
    assert!(!state.path().join("volumes").exists());
}
