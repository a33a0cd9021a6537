//! Guests under QEMU's name beside a guard that runs: what `vmio top` shows of their limits, and one that is there twice, as at a
//! migration between two processes of this host.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Stdio};

use serde_json::Value;
use vmio_testbed::{poll_for, poll_until};

use crate::help::guarded::{TestHost, ip, qemu};

const UUID: &str = "6f6b1c1e-0c2f-4b7e-9d0a-0b1f6a6f0001";

/// Name of a guest that no other on this machine has: `vmio top` shows all of it.
fn name() -> String {
    format!("w{}", std::process::id())
}

fn tap(name: &str) {
    ip(&format!("tuntap add {name} mode tap"));
    ip(&format!("link set {name} master br0 up"));
}

/// Members of what guests send in this class.
fn gold(host: &TestHost) -> Vec<(String, u64)> {
    let members = host.members();
    members.into_iter().filter(|(name, _)| name.starts_with("tap")).collect()
}

#[test]
#[ignore = "root"]
fn a_guest_that_is_there_twice_has_its_class_twice() {
    TestHost::with(|host| {
        for name in ["tap0", "tap1"] {
            tap(name);
        }
        let policy = |matched: &str| {
            format!(
                "[uplink.u0]\ncapacity = \"100Mbit\"\n[class.gold]\nmin = \"20Mbit\"\n[[interface]]\n\
                 match = {{ vm = \"{matched}\" }}\nclass = \"gold\"\n"
            )
        };
        let web = name();
        host.write(&policy(&web));
        let daemon = host.run();
        assert_eq!(gold(host), []);
        let source = qemu(&web, UUID, "tap0", "52:54:00:00:00:01");
        poll_until("the source has its class", || gold(host) == [("tap0".to_owned(), 20)]);
        // The same name, UUID and address, as QEMU has it with `-incoming`; another tap.
        let target = qemu(&web, UUID, "tap1", "52:54:00:00:00:01");
        let both = [("tap0".to_owned(), 20), ("tap1".to_owned(), 20)];
        poll_until("both have it", || gold(host) == both);
        let status = host.status();
        assert_eq!(status["trouble"], Value::Null, "{status}");
        // By the UUID it is the same.
        host.write(&policy(&UUID.to_uppercase()));
        host.ends(&["guard", "apply"], 0);
        assert_eq!(gold(host), both);
        drop(source);
        poll_until("the target alone has it", || gold(host) == both[1..]);
        drop(target);
        poll_until("nobody has it", || gold(host).is_empty());
        host.ends(&["guard", "undo"], 0);
        assert_eq!(daemon.end(None).0, Some(0));
    });
}

#[test]
#[ignore = "root"]
fn top_shows_what_a_guard_holds_a_guest_to() {
    TestHost::with(|host| {
        tap("tap0");
        let web = name();
        host.write(&format!(
            "[uplink.u0]\ncapacity = \"100Mbit\"\n[class.tin]\nmin = \"1Mbit\"\nmax = \"2Mbit\"\n[[interface]]\n\
             match = {{ vm = \"{web}\" }}\nclass = \"tin\"\nrx_class = \"tin\"\n"
        ));
        let top = |args: &[&str]| host.ends(&[&["top", "--no-ebpf"], args].concat(), 0).0;
        let json = |out: &str| -> Vec<Value> { out.lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
        let of = |interval: &Value| -> Value {
            let guests = interval["guests"].as_array().unwrap();
            guests.iter().find(|guest| guest["name"] == web.as_str()).unwrap_or_else(|| panic!("{interval}")).clone()
        };
        // It wants four times what it may have.
        let guest = qemu(&web, UUID, "tap0", "52:54:00:00:00:01");
        let without = json(&top(&["--json", "--count", "1"]));
        assert_eq!(of(&without[0])["guard"], Value::Null, "no guard runs");
        let daemon = host.run();
        poll_until("it is held back", || {
            let status = host.status();
            let members = status["pools"][0]["members"].as_array().unwrap();
            members.iter().any(|m| m["name"] == "tap0" && m["held_seconds_total"].as_f64().unwrap() > 2.0)
        });
        // On a busy machine it does not always come to send more than it may.
        let guard = poll_for("top says that it is held back", || {
            let intervals = json(&top(&["--json", "--count", "2", "--interval", "2"]));
            // Nothing where the guard has not answered in time.
            let rows = of(intervals.last().unwrap())["guard"].as_array().cloned().unwrap_or_default();
            let is_held = |row: &Value| row["direction"] == "guest_tx" && row["held_ratio"].as_f64() > Some(0.4);
            if rows.iter().any(is_held) { Ok(rows) } else { Err(rows) }
        });
        let sent = guard.iter().find(|row| row["direction"] == "guest_tx").unwrap();
        assert_eq!((&sent["interface"], &sent["class"]), (&Value::from("tap0"), &Value::from("tin")));
        assert_eq!((&sent["min_bps"], &sent["limit_bps"]), (&1_000_000.into(), &2_000_000.into()), "{sent}");
        let received = guard.iter().find(|row| row["direction"] == "guest_rx").unwrap();
        assert_eq!((&received["max_bps"], &received["held_ratio"]), (&2_000_000.into(), &0.0.into()), "{received}");
        // For people, on a wide terminal; in the second interval it is known how much of the time it was held back.
        let line = format!("stty cols 170; exec {} top --no-ebpf --count 2 --interval 2", env!("CARGO_BIN_EXE_vmio"));
        poll_for("top shows people that it is held back", || {
            let mut script = Command::new("script");
            script.args(["-qec", &line, "/dev/null"]).env("NO_COLOR", "1");
            script.env("VMIO_STATE", host.dir.path().join("state")).stdin(Stdio::null());
            let text = String::from_utf8(script.output().unwrap().stdout).unwrap();
            let mut lines = text.rsplit("GUEST").next().unwrap().lines();
            let titles: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
            let figures = lines.find_map(|line| line.strip_prefix(&format!("{web} ")));
            let figures: Vec<&str> = figures.unwrap_or_else(|| panic!("{text}")).split_whitespace().collect();
            let figure = |title: &str| {
                let at = titles.iter().position(|t| *t == title)?;
                figures[at].parse::<f64>().ok()
            };
            let limits = ["TXMIN", "TXLIM", "RXLIM"].map(figure);
            if limits == [1.0, 2.0, 2.0].map(Some) && figure("HELD%") > Some(40.0) { Ok(()) } else { Err(text.clone()) }
        });
        drop(guest);
        host.ends(&["guard", "undo"], 0);
        assert_eq!(daemon.end(None).0, Some(0));
    });
}
