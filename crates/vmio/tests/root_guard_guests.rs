//! Guests under QEMU's name beside a guard that runs: what `vmio top` shows of their limits, and one that is there twice, as at a
//! migration between two processes of this host.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use vmio_testbed::{net, poll_for, poll_until};

use crate::help::guarded::{TestHost, ip, qemu};
use crate::help::schema::fits;
use crate::help::state_dir::unfolded;

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

/// Whoever measures such a guest has to know; also after the daemon was killed, when the kernel alone has the limits.
#[test]
#[ignore = "root"]
fn scan_names_what_a_guard_holds_a_guest_to() {
    TestHost::with(|host| {
        tap("tap0");
        let web = name();
        host.write(&format!(
            "[uplink.u0]\ncapacity = \"100Mbit\"\n[class.tin]\nmin = \"1Mbit\"\nmax = \"2Mbit\"\n[[interface]]\n\
             match = {{ vm = \"{web}\" }}\nclass = \"tin\"\nrx_class = \"tin\"\n"
        ));
        let _guest = qemu(&web, UUID, "tap0", "52:54:00:00:00:01");
        // The limits of its card, with the finding about them.
        let scanned = || {
            let (out, _) = host.ends(&["scan", &web, "--json"], 0);
            fits("scan", &out);
            let scan: Value = serde_json::from_str(&out).unwrap();
            let guest = &scan["guests"][0];
            let finding = guest["findings"].as_array().unwrap().iter().find(|f| f["rule"] == "limit-in-force").cloned();
            (guest["nics"][0].clone(), finding)
        };
        let limits = |nic: &Value| -> Vec<(String, u64)> {
            let all = nic["rate_limits"].as_array().unwrap();
            assert!(all.iter().all(|limit| limit["by"] == "guard"), "{nic}");
            let of = |l: &Value| (l["direction"].as_str().unwrap().to_owned(), l["rate_bps"].as_u64().unwrap());
            let mut all: Vec<_> = all.iter().map(of).collect();
            all.sort();
            all
        };
        let both = [("guest_rx".to_owned(), 2_000_000), ("guest_tx".to_owned(), 2_000_000)];
        assert!(limits(&scanned().0).is_empty(), "no guard runs");
        let daemon = host.run();
        let (nic, finding) = poll_for("scan names the guard's limits", || match scanned() {
            (nic, Some(finding)) => Ok((nic, finding)),
            (nic, None) => Err(nic),
        });
        assert_eq!(limits(&nic), both);
        let cause = finding["cause"].as_str().unwrap();
        let head = "Limited by vmio guard: to the guest 2 Mbit/s, excess waits; from the guest 2 Mbit/s, excess waits";
        assert!(cause.starts_with(head) && cause.contains("Class tin (minimum 1 Mbit/s)."), "{cause}");
        let state = host.dir.path().join("state");
        let change = finding["change"]["qemu"].as_str().unwrap();
        let status = format!("vmio guard status --state {} --verbose", state.display());
        assert!(change.starts_with(&status) && change.contains("guard set --state"), "{change}");
        let sent = host.status()["pools"][0]["members"].as_array().unwrap().clone();
        let sent = sent.iter().find(|member| member["name"] == "tap0").unwrap()["excess"].clone();
        if sent["waits"] == "held" {
            assert_eq!(nic["send_buffer_bytes"], sent["send_buffer_bytes"], "{nic}");
        }
        let policy = host.policy();
        let (out, _) = host.ends(&["guard", "check", "--host", "--config", policy.to_str().unwrap()], 0);
        let line = format!("in force: tap0 ({web}): vmio guard limits what it sends to 2 Mbit/s, class tin");
        assert!(unfolded(&out).contains(&line), "{out}");
        // As printed, with a rate.
        let set = change.lines().find(|line| line.starts_with("vmio guard set")).unwrap().replace("RATE", "3Mbit");
        let words: Vec<&str> = set.split('#').next().unwrap().split_whitespace().skip(1).collect();
        host.ends(&words, 0);
        assert_eq!(limits(&scanned().0).iter().map(|(_, rate)| *rate).collect::<Vec<_>>(), [3_000_000; 2]);
        drop(daemon.end(Some(Signal::KILL)));
        let (nic, finding) = scanned();
        assert_eq!(limits(&nic).iter().map(|(_, rate)| *rate).collect::<Vec<_>>(), [3_000_000; 2], "{nic}");
        if sent["waits"] == "held" {
            assert!(nic["send_buffer_bytes"].as_u64().unwrap() < 1 << 30, "{nic}");
        }
        let finding = finding.unwrap();
        assert!(finding["cause"].as_str().unwrap().contains("daemon does not run"), "{finding}");
        let undo = finding["change"]["qemu"].as_str().unwrap().lines().next().unwrap().to_owned();
        let words: Vec<&str> = undo.split('#').next().unwrap().split_whitespace().skip(1).collect();
        host.ends(&words, 0);
        assert!(limits(&scanned().0).is_empty());
    });
}

/// As libvirt does for a network with `<bandwidth>`: at the bridge, which the host routes for.
#[test]
#[ignore = "root"]
fn scan_names_a_limit_at_the_bridge_that_guests_share() {
    TestHost::with_bpffs(|host| {
        // Which interfaces a bridge has is read there.
        net::run(&["mount -t sysfs sysfs /sys"]);
        ip("link add br1 type bridge");
        ip("link set br1 up");
        ip("tuntap add tap0 mode tap");
        ip("link set tap0 master br1 up");
        net::run(&["tc qdisc add dev br1 root tbf rate 20mbit burst 32k latency 50ms"]);
        let web = name();
        let _guest = qemu(&web, UUID, "tap0", "52:54:00:00:00:01");
        let (out, _) = host.ends(&["scan", &web, "--json"], 0);
        let scan: Value = serde_json::from_str(&out).unwrap();
        let findings = scan["guests"][0]["findings"].as_array().unwrap();
        let finding = findings.iter().find(|f| f["rule"] == "limit-in-force").unwrap_or_else(|| panic!("{out}"));
        let cause = finding["cause"].as_str().unwrap();
        let words = "to the guest 20 Mbit/s at br1, shared by all that pass it, excess waits.";
        assert!(cause.contains(words), "{cause}");
        // As printed.
        let change = finding["change"]["qemu"].as_str().unwrap();
        let lines: Vec<&str> = change.lines().map(|line| line.split("    #").next().unwrap()).collect();
        net::run(&lines);
        let (out, _) = host.ends(&["scan", &web, "--json"], 0);
        assert!(!out.contains("limit-in-force"), "{out}");
    });
}
