//! What others do to a running guard: a queue in place of its own, an uplink by another name, many interfaces at once, a
//! guest that claims addresses. Each is told in its log, shown by `guard status` and counted for Prometheus.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use vmio_testbed::net::run;
use vmio_testbed::{poll_for, poll_until};

use crate::help::guarded::{POLICY, TestHost, asked, ip, limits, metric};

/// Of what guests send.
fn sent(host: &TestHost) -> Value {
    host.status()["pools"][0].clone()
}

/// A metric of what guests send, of the pool.
fn of_pool(host: &TestHost, name: &str) -> Option<String> {
    let all = asked(host, "/metrics");
    let line = all.lines().find(|line| line.starts_with(&format!("{name}{{uplink=\"u0\",direction=\"guest_tx\"}}")))?;
    line.rsplit(' ').next().map(str::to_owned)
}

#[test]
#[ignore = "root"]
fn a_foreign_queue_and_a_renamed_uplink_are_told_at_once() {
    TestHost::with(|host| {
        let daemon = host.run();
        assert_eq!(of_pool(host, "vmio_guard_in_force").as_deref(), Some("1"));
        run(&["tc qdisc replace dev u0 root pfifo limit 100"]);
        let why = poll_for("it is told", || {
            let pool = sent(host);
            pool["not_in_force"].as_str().map(str::to_owned).ok_or(pool)
        });
        assert!(why.starts_with("qdisc pfifo ") && why.contains("tc qdisc del dev u0 root"), "{why}");
        poll_until("it is a breach", || metric(host, "vmio_guard_breached", "t1") == Some(1.0));
        assert_eq!(metric(host, "vmio_guard_breaches_total", "t1"), Some(1.0));
        assert_eq!(of_pool(host, "vmio_guard_in_force").as_deref(), Some("0"));
        let status = host.status();
        assert_eq!(status["pools"][0]["shared_bps"], 0, "{status}");
        assert_eq!((&status["pools"][1]["not_in_force"], &status["trouble"]), (&Value::Null, &Value::Null), "{status}");
        let (out, _) = host.ends(&["guard", "status"], 0);
        assert!(out.contains("not in force: u0 guest_tx: qdisc pfifo"), "{out}");
        assert!(out.contains("u0 guest_tx: 100 Mbit/s, nothing in force (see below)"), "{out}");
        // A guest that comes meanwhile is in force elsewhere, and here as soon as that is gone.
        host.plug("t2");
        poll_until("it is known", || host.members().len() == 4);
        run(&["tc qdisc del dev u0 root"]);
        poll_until("it is in force again", || sent(host)["not_in_force"].is_null() && limits());
        poll_until("no breach is left", || metric(host, "vmio_guard_breached", "t1") == Some(0.0));

        for line in ["link set u0 down", "link set u0 name w0", "link set w0 up"] {
            ip(line);
        }
        poll_until("the new name is told", || {
            sent(host)["not_in_force"].as_str().is_some_and(|why| why.contains("called w0 now"))
        });
        poll_until("that is a breach, too", || metric(host, "vmio_guard_breached", "t1") == Some(1.0));
        for line in ["link set w0 down", "link set w0 name u0", "link set u0 up"] {
            ip(line);
        }
        poll_until("it has its name again", || sent(host)["not_in_force"].is_null() && limits());
        poll_until("no breach is left, again", || metric(host, "vmio_guard_breached", "t1") == Some(0.0));
        assert_eq!(sent(host)["interruptions_total"], 2);
        let (code, said) = daemon.end(Some(Signal::TERM));
        assert_eq!(code, Some(0), "{said}");
        let lines = |what: &str| said.lines().filter(|line| line.contains(what)).count();
        assert_eq!((lines("u0 guest_tx: not in force: "), lines("u0 guest_tx: in force again")), (2, 2), "{said}");
        host.ends(&["guard", "undo"], 0);
    });
}

#[test]
#[ignore = "root"]
fn a_foreign_queue_is_removed_where_the_policy_says_so() {
    TestHost::with(|host| {
        host.write(&format!("[guard]\non_conflict = \"restore\"\n{POLICY}"));
        let daemon = host.run();
        // One with classes cannot be put back: that is not asked for.
        let mut times = 0u64;
        for queue in ["htb default 1", "pfifo limit 100"] {
            // Where the machine had no processor for it, it is done again.
            poll_for("it is put right at once", || {
                times += 1;
                run(&[&format!("tc qdisc replace dev u0 root handle 5: {queue}")]);
                let began = Instant::now();
                poll_until("it is put right", limits);
                let took = began.elapsed();
                poll_until("it is counted", || sent(host)["interruptions_total"] == times);
                assert!(sent(host)["not_in_force"].is_null());
                if took < Duration::from_secs(2) { Ok(()) } else { Err(took) }
            });
        }
        poll_until("it is counted as put right", || {
            host.status()["loop"]["corrected_changes_total"].as_u64().unwrap() >= 2
        });
        let seconds = sent(host)["interrupted_seconds_total"].as_f64().unwrap();
        assert!(seconds > 0.0 && seconds < 5.0 * times as f64, "{seconds} s, {times} times");
        poll_until("the log has it", || daemon.said().contains("u0 guest_tx: was not in force for a moment: qdisc "));
        let (code, said) = daemon.end(Some(Signal::TERM));
        assert_eq!(code, Some(0), "{said}");
        host.ends(&["guard", "undo"], 0);
        assert!(!limits());
    });
}

#[test]
#[ignore = "root"]
fn many_interfaces_are_one_line_and_claims_are_counted() {
    TestHost::with(|host| {
        let policy = POLICY.replace("rx_class = \"gold\"\n", "rx_class = \"gold\"\naddresses = [\"10.9.0.77\"]\n");
        host.write(&format!("[guard]\nspoofing = \"drop\"\n{policy}"));
        let daemon = host.run();
        // Together: over more than some seconds they would be more lines.
        let plug = |n: u32| format!("link add t{n} type veth peer name p-t{n}\nlink set t{n} master br0 up\n");
        let batch = host.dir.path().join("batch");
        fs::write(&batch, (10..30).map(plug).collect::<String>()).unwrap();
        ip(&format!("-batch {}", batch.display()));
        poll_until("all are limited", || host.members().len() == 23);
        // The kernel asks for the neighbour under an address that is not the guest's.
        for line in ["addr add 10.9.0.1/24 dev p-t1", "link set p-t1 up"] {
            ip(line);
        }
        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        let seen = |field: &str| {
            let status = sent(host);
            let member = status["members"].as_array().unwrap().iter().find(|member| member["name"] == "t1").cloned();
            member.unwrap()[field].as_u64().unwrap()
        };
        poll_until("it is counted", || {
            let _ = socket.send_to(b"hello", "10.9.0.2:9");
            seen("spoofed_packets_total") > 0
        });
        assert_eq!(seen("spoofed_dropped_packets_total"), seen("spoofed_packets_total"));
        assert!(metric(host, "vmio_guard_spoofed_dropped_packets_total", "t1").unwrap() > 0.0);
        assert_eq!(metric(host, "vmio_guard_spoofed_packets_total", "t10"), Some(0.0));
        let (out, _) = host.ends(&["guard", "status"], 0);
        assert!(out.contains("spoofed: t1: "), "{out}");
        // A gateway's address is nobody's either, without any list.
        let gateways = POLICY.replacen("capacity = ", "gateways = [\"10.9.0.1\"]\ncapacity = ", 1);
        host.write(&format!("[guard]\nspoofing = \"drop\"\n{gateways}"));
        host.ends(&["guard", "apply"], 0);
        let before = seen("spoofed_packets_total");
        poll_until("more of it is counted", || {
            let _ = socket.send_to(b"hello", "10.9.0.2:9");
            seen("spoofed_packets_total") > before + 3
        });
        poll_until("both are in the log", || {
            let said = daemon.said();
            said.contains("interfaces came: ") && said.contains("u0 guest_tx t1: ")
        });
        let (code, said) = daemon.end(Some(Signal::TERM));
        assert_eq!(code, Some(0), "{said}");
        let lines = |what: &str| said.lines().filter(|line| line.contains(what)).count();
        assert_eq!((lines("20 interfaces came: 20 of class gold"), lines("t12: class gold")), (1, 0), "{said}");
        assert_eq!(lines("u0 guest_tx t1: "), 1, "{said}");
        host.ends(&["guard", "undo"], 0);
    });
}
