//! A guarantee that is not kept while the guard runs: told in its log, shown by `guard status`, counted for Prometheus; and so is
//! its end.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use vmio_testbed::{poll_for, poll_until};

use crate::help::guarded::{TestHost, ip, metric};

/// How often somebody meddles: the guard puts it right within a second each time.
const AGAIN: Duration = Duration::from_millis(20);

/// Of what t1's guest sends.
fn t1(status: &Value) -> Value {
    let members = status["pools"][0]["members"].as_array().unwrap();
    members.iter().find(|member| member["name"] == "t1").unwrap().clone()
}

/// Some 60 Mbit/s until told to end: more than the minimum, and less than the link carries.
fn send(end: &AtomicBool) {
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let (began, mut sent) = (Instant::now(), 0.0);
    while !end.load(Ordering::Relaxed) {
        let due = began.elapsed().as_secs_f64() * 60e6 / 8.0 / 1442.0;
        // What was not sent in time is not sent later.
        sent = f64::max(sent, due - 200.0);
        while sent < due {
            // A full socket: the packet is lost.
            let _ = socket.send_to(&[0; 1400], "10.9.0.2:9");
            sent += 1.0;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Lowers the class of t1 again and again until told to end, as another manager of this host might.
fn meddle(end: &AtomicBool) {
    let shown = Command::new("tc").args(["class", "show", "dev", "u0"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let class = shown.lines().find(|line| line.contains("rate 40Mbit")).unwrap_or_else(|| panic!("{shown}"));
    let class = class.split(' ').nth(2).unwrap();
    let change = format!("class change dev u0 parent 7a00:1 classid {class} htb rate 1mbit ceil 1mbit\n");
    let mut tc = Command::new("tc").args(["-force", "-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = tc.stdin.take().unwrap();
    while !end.load(Ordering::Relaxed) {
        input.write_all(change.as_bytes()).unwrap();
        thread::sleep(AGAIN);
    }
    drop(input);
    // What is put right may be made anew, and for a moment there is no such class.
    tc.wait().unwrap();
}

/// Ends threads also where an assertion fails: a scope waits for them.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "root"]
fn a_broken_guarantee_is_told_shown_and_counted() {
    TestHost::with(|host| {
        for line in ["addr add 10.9.0.1/24 dev p-t1", "link set p-t1 up"] {
            ip(line);
        }
        ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:99 dev p-t1 nud permanent");
        let daemon = host.run();
        let [quiet, kept] = [AtomicBool::new(false), AtomicBool::new(false)];
        thread::scope(|s| {
            let _all = [End(&quiet), End(&kept)];
            s.spawn(|| send(&quiet));
            let gets = |bps: std::ops::Range<u64>| bps.contains(&t1(&host.status())["rate_bps"].as_u64().unwrap_or(0));
            poll_until("it gets what it wants", || gets(38_000_000..70_000_000));
            let status = host.status();
            assert_eq!(t1(&status)["breached_seconds"], Value::Null, "{status}");
            let met = || metric(host, "vmio_guard_guarantee_met_ratio", "t1").unwrap();
            let before = met();
            assert!((0.5..=1.0).contains(&before), "{before}");
            assert_eq!(metric(host, "vmio_guard_breaches_total", "t1"), Some(0.0));

            let meddler = s.spawn(|| meddle(&kept));
            poll_for("it is a breach, and it wants more than it gets", || {
                let member = t1(&host.status());
                let waits = member["waiting_bytes"].as_u64().unwrap() > 0;
                if member["breached_seconds"].is_number() && waits { Ok(()) } else { Err(member) }
            });
            let (out, _) = host.ends(&["guard", "status"], 0);
            let line = out.lines().find(|line| line.starts_with("breach: ")).unwrap_or_else(|| panic!("{out}"));
            assert!(line.starts_with("breach: u0 guest_tx t1: gets "), "{line}");
            assert!(out.contains("interrupted from outside "), "{out}");
            assert!(out.lines().last().unwrap().ends_with("1 guarantee is broken now"), "{out}");
            assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
            assert_eq!(metric(host, "vmio_guard_breached", "t1"), Some(1.0));
            assert_eq!(metric(host, "vmio_guard_breaches_total", "t1"), Some(1.0));
            let missed = met();
            assert!((0.0..before).contains(&missed), "{missed} after {before}");
            let seconds = |of: &str| metric(host, &format!("vmio_guard_guarantee_{of}_seconds_total"), "t1").unwrap();
            assert!(seconds("wanted") > seconds("met") + 1.5, "{} wanted, {} met", seconds("wanted"), seconds("met"));

            kept.store(true, Ordering::Relaxed);
            meddler.join().unwrap();
            poll_until("it is over", || t1(&host.status())["breached_seconds"].is_null());
            poll_until("it gets what it wants again", || gets(38_000_000..70_000_000));
            assert_eq!(metric(host, "vmio_guard_breached", "t1"), Some(0.0));
            assert_eq!(metric(host, "vmio_guard_breaches_total", "t1"), Some(1.0), "one in all");
            let ratio = metric(host, "vmio_guard_guarantee_met_ratio", "t1").unwrap();
            assert!((0.0..1.0).contains(&ratio), "of the last minute: {ratio}");
            assert!(!host.ends(&["guard", "status"], 0).0.contains("breach: "));
        });
        let (code, said) = daemon.end(Some(Signal::TERM));
        assert_eq!(code, Some(0), "{said}");
        let lines: Vec<&str> = said.lines().filter(|line| line.contains("u0 guest_tx t1: ")).collect();
        let [begins, ends] = lines[..] else { panic!("{said}") };
        assert!(begins.contains("less than the minimum of 40"), "{begins}");
        assert!(ends.contains("recovered; it did not get its minimum for"), "{ends}");
        host.ends(&["guard", "undo"], 0);
    });
}
