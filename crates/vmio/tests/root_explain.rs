//! `vmio explain` and `vmio top --calls` of a guest that runs: a bare QEMU whose boot sector reads its disk for ever.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use vmio_node::qmp::Qmp;
use vmio_testbed::{poll_for, scratch, skip};

use crate::help::schema::fits;
use crate::root_top_load::{READ, VMIO, guest_with, name, traces};

fn explained(dir: &std::path::Path, name: &str, more: &[&str]) -> Output {
    let mut command = Command::new(VMIO);
    command.args(["explain", name, "--for", "1s"]).args(more).env("VMIO_STATE", dir.join("state"));
    command.stdin(Stdio::null()).output().unwrap()
}

/// What is said of this guest, as text or as JSON.
fn explain(dir: &std::path::Path, name: &str, more: &[&str]) -> String {
    let output = explained(dir, name, more);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Whether the host's part of its reads is told, and they are those of its disk: not while the machine is so busy that
/// the two are counted at different times, nor of too few.
fn is_told(guest: &Value) -> bool {
    let (disk, reads) = (&guest["disks"][0], &guest["calls"]["reads"]);
    let [asked, seen] = [&reads["asked"]["per_second"], &disk["iops"]].map(Value::as_f64);
    let same = asked.zip(seen).is_some_and(|(asked, seen)| (asked / seen - 1.0).abs() < 0.25);
    reads["split"].is_object() && seen > Some(100.0) && same
}

#[test]
#[ignore = "root"]
fn the_host_side_of_a_running_guests_requests_is_told() {
    let dir = scratch();
    if !traces(dir.path()) {
        return skip("the block layer cannot be traced here");
    }
    let name = name("layers");
    let monitor = format!("unix:{},server=on,wait=off", dir.path().join("m").display());
    let _guest = guest_with(dir.path(), &name, READ, true, &["-qmp", &monitor]);
    let told = poll_for("the host's part of the guest's reads is told", || {
        let text = explain(dir.path(), &name, &["--json"]);
        fits("explain", &text);
        let told: Value = serde_json::from_str(&text).unwrap();
        if is_told(&told["guest"]) { Ok(told) } else { Err(told) }
    });
    let disk = &told["guest"]["disks"][0];
    let mean = |part: &str| disk[part]["mean_seconds"].as_f64().unwrap();
    let percentiles =
        |part: &str| [&disk[part]["p50_seconds"], &disk[part]["p99_seconds"]].map(|p| p.as_f64().unwrap());
    println!("{disk}");
    assert!(mean("device") > 0.0 && mean("queue") >= 0.0, "{disk}");
    assert!(((mean("queue") + mean("device")) / mean("host") - 1.0).abs() < 1e-9, "{disk}");
    for part in ["queue", "device", "host"] {
        let [p50, p99] = percentiles(part);
        assert!(p50 <= p99, "{part}: {disk}");
    }
    // A percentile is known to a quarter, and the whole takes as long as its longest part at least.
    assert!(percentiles("host")[0] * 1.3 >= percentiles("device")[0], "{disk}");
    // What QEMU waits for is longer than what the disk takes, and its reads are those of the disk.
    let reads = &told["guest"]["calls"]["reads"];
    println!("{reads}");
    let all = reads["asked"]["times"]["mean_seconds"].as_f64().unwrap();
    let part = |name: &str| reads["split"][name].as_f64().unwrap();
    let sum = part("file_system_seconds") + part("queue_seconds") + part("device_seconds");
    assert!((sum / all - 1.0).abs() < 1e-9 && part("device_seconds") > 0.0, "{reads}");
    assert_eq!(told["guest"]["unseen"].as_array().unwrap().len(), 4, "{told}");
    let text = poll_for("it is told in words, too", || {
        let text = explain(dir.path(), &name, &[]);
        if text.contains("(KAVG)") { Ok(text) } else { Err(text) }
    });
    let last = text.trim_end().lines().next_back().unwrap();
    assert!(text.contains("device (DAVG)") && text.lines().count() <= 40, "{text}");
    assert!(text.contains("Change first: ") && last.ends_with('.'), "{text}");
    // By its monitor the hypervisor's own part is told, too, as soon as that answers in time.
    let told = poll_for("its monitor answers in time", || {
        let output = explained(dir.path(), &name, &["--json", "--qmp"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let told: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        told.filter(|told| told["guest"]["hypervisor"]["reads"]["own_seconds"].as_f64() > Some(0.0)).ok_or(said)
    });
    fits("explain", &told.to_string());
    let above = &told["guest"]["hypervisor"]["reads"];
    println!("{above}");
    let [whole, own] = ["whole_seconds", "own_seconds"].map(|field| above[field].as_f64().unwrap());
    assert!(own < whole, "{above}");
    assert_eq!(told["guest"]["unseen"].as_array().unwrap().len(), 3, "{told}");
    // Its histograms are on meanwhile only.
    let told = poll_for("its monitor is free", || {
        let output = explained(dir.path(), &name, &["--json", "--qmp", "--histograms"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let told: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        told.filter(|told| told["guest"]["hypervisor"]["reads"]["p99_seconds"].is_number()).ok_or(said)
    });
    let above = &told["guest"]["hypervisor"]["reads"];
    println!("{above}");
    let [p50, p99] = ["p50_seconds", "p99_seconds"].map(|field| above[field].as_f64().unwrap());
    assert!(0.0 < p50 && p50 <= p99, "{above}");
    let stream = UnixStream::connect(dir.path().join("m")).unwrap();
    let all = Qmp::over(&name, stream).unwrap().execute("query-blockstats", json!({})).unwrap();
    assert!(all[0]["stats"]["rd_operations"].as_u64() > Some(0), "{all}");
    assert!(all[0]["stats"].get("rd_latency_histogram").is_none(), "{all}");
    // The same in top, of all guests. A line has a figure where its second allows one.
    poll_for("top tells the host's part", || {
        let mut top = Command::new(VMIO);
        top.args(["top", "--json", "--count", "1", "--interval", "1", "--calls"])
            .env("VMIO_STATE", dir.path().join("state"));
        let line = top.stdin(Stdio::null()).output().unwrap().stdout;
        fits("top", &String::from_utf8_lossy(&line));
        let told: Value = serde_json::from_slice(&line).unwrap();
        let [row, calls] = [("guests", "name"), ("calls", "guest")].map(|(list, key)| {
            let found = told[list].as_array().unwrap().iter().find(|one| one[key] == name.as_str());
            found.cloned().unwrap_or_default()
        });
        let p99 = &calls["reads"]["asked"]["times"]["p99_seconds"];
        let there = row["kernel_mean_seconds"].as_f64() > Some(0.0) && p99.as_f64() > Some(0.0);
        if there { Ok(()) } else { Err([row, calls]) }
    });
}

/// In turns of the same run. How much it is depends on what else the machine does, and is not judged.
#[test]
#[ignore = "root"]
fn what_watching_costs_is_told_from_turns() {
    let dir = scratch();
    if !traces(dir.path()) {
        return skip("the block layer cannot be traced here");
    }
    let name = name("cost");
    let _guest = guest_with(dir.path(), &name, READ, true, &[]);
    let cost = poll_for("its disk is busy in each turn", || {
        let text = explain(dir.path(), &name, &["--json", "--cost"]);
        fits("explain", &text);
        let told: Value = serde_json::from_str(&text).unwrap();
        let cost = told["guest"]["tracing_cost"].clone();
        if cost["ratio"]["pairs"] == 8 { Ok(cost) } else { Err(told) }
    });
    println!("{cost}");
    let rates = ["without_per_second", "with_per_second"].map(|field| cost[field].as_f64().unwrap());
    assert!(rates.iter().all(|rate| *rate > 0.0) && cost["ratio"]["interval"].is_object(), "{cost}");
}
