//! Studies of networks with real guests, as an operator has them: two runs and what `runs compare` says of them, and
//! runs that are broken off by whatever means, which keep what they have and leave nothing.
#![allow(clippy::unwrap_used)]

use crate::help::schema;
use crate::help::state_dir;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use schema::fits;
use serde_json::Value;
use state_dir::{StateDir, fixture, signal};
use vmio_model::result::{RunState, Sample};
use vmio_model::run::Run;
use vmio_node::{Local, find_program};
use vmio_testbed::{poll_for, scratch, skip};

fn measure(state: &StateDir, more: &[&str]) -> Command {
    let mut command = state.command(&["study", "run"]);
    command.arg(fixture("cards.toml")).args(["--yes", "--no-gentle"]).args(more);
    command
}

/// The cells of `cards.toml` and the baseline of both, in each round, each once.
fn is_whole(run: &Run) {
    let distinct: BTreeSet<_> = run.samples.iter().map(|s| (s.cell.key(), s.round)).collect();
    assert_eq!((run.samples.len(), distinct.len()), (6, 6), "{distinct:?}");
    assert_eq!((&run.state, run.skipped.as_slice()), (&RunState::Done, [].as_slice()));
    run.samples.iter().for_each(agrees_with_iperf3);
}

/// What is stored is what iperf3 itself says of its receiver.
fn agrees_with_iperf3(sample: &Sample) {
    let own = sample.result.raw["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
    assert!(own > 0.0, "{}", sample.cell.key());
    assert_eq!(sample.result.figure("bandwidth"), Some(own), "{}", sample.cell.key());
}

/// Interfaces and mounts of the test's own namespaces, which it shares with the program.
fn own() -> (Vec<String>, Vec<String>) {
    let net = fs::read_to_string("/proc/self/net/dev").unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let of_namespaces = mounts.lines().filter(|line| line.contains(" nsfs ")).map(str::to_owned).collect();
    (vmio_node::linux::net::names(&net).map(str::to_owned).collect(), of_namespaces)
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_network_study_that_is_broken_off_leaves_nothing_goes_on_and_is_compared_with_another() {
    let (state, before) = (StateDir::with_image(), own());
    // While a server waits and a client sends; the kernel takes the namespaces with the program.
    let mut child = state.spawn(&mut measure(&state, &[]));
    state.wait_for_samples(&mut child, 1);
    sleep(Duration::from_millis(700));
    signal(child.id(), Signal::KILL);
    assert_eq!(state.end(child).code, None);
    let kept = state.last().unwrap().samples;
    assert!(!kept.is_empty());
    assert_eq!(own(), before);
    // What it had started goes with it, before anyone cleans up.
    let processes = || {
        let mut left = vmio_node::leftovers(&state.path().join("journals"));
        left.retain(|what| what.starts_with("process "));
        left
    };
    poll_for("what it had started has ended", || match processes() {
        left if left.is_empty() => Ok(()),
        left => Err(left),
    });

    let mut child = state.spawn(&mut measure(&state, &["--resume"]));
    state.wait_for_samples(&mut child, kept.len() + 1);
    signal(child.id(), Signal::INT);
    state.end(child).with(4).says(&["Ctrl-C", "--resume"]);
    state.is_clean();
    assert_eq!(own(), before);

    state.finish(&mut measure(&state, &["--resume"])).came_to_its_end().says(&["resuming run 1"]);
    let run = state.last().unwrap();
    assert_eq!((run.id, &run.samples[..kept.len()]), (1, &kept[..]), "what was there is untouched");
    is_whole(&run);
    state.is_clean();

    another_is_compared(&state);
    assert_eq!(own(), before);
}

/// A second run, whole from the beginning, and what is said of both.
fn another_is_compared(state: &StateDir) {
    let ended = state.finish(&mut measure(state, &["--json"])).with(0);
    fits("tax", &ended.out);
    state.is_clean();
    let run = state.last().unwrap();
    assert_eq!(run.id, 2);
    is_whole(&run);
    let json: Value = serde_json::from_str(&ended.out).unwrap();
    let shares = json["shares"].as_array().unwrap();
    let share = |nic: &str| -> f64 {
        let of = shares.iter().find(|s| s["key"].as_str().unwrap().contains(nic));
        of.unwrap_or_else(|| panic!("{nic}: {shares:#?}"))["share_ratio"]["value"].as_f64().unwrap()
    };
    let (paravirtual, emulated) = (share("virtio-net"), share("e1000"));
    assert!(paravirtual > 0.0 && emulated > 0.0, "{paravirtual} {emulated}");
    // Two pairs beside other tests need not tell the two apart; where they do, it is the emulated one.
    for finding in json["findings"].as_array().unwrap().iter().filter(|f| f["rule"] == "emulated-nic") {
        assert_eq!(finding["subject"], "bridge.host/qemu/e1000", "{finding:#}");
    }
    let compared = state.vmio(&["runs", "compare", "1", "2"]).with(0);
    for cell in ["veth.host/native", "bridge.host/qemu/virtio-net", "bridge.host/qemu/e1000"] {
        let line = compared.out.lines().find(|line| line.starts_with(cell));
        assert!(line.is_some_and(|line| line.ends_with(" 2")), "{cell}: {}", compared.out);
    }
    assert!(!compared.out.contains("MB/s"), "{}", compared.out);
    assert!(compared.out.lines().all(|line| line.chars().count() <= 80), "{}", compared.out);
}

/// A line of `/proc/PID/status`.
fn status(pid: u32, key: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(":\t").map(str::to_owned))
}

/// Whether a process was started by another one, or by what that started.
fn is_of(pid: u32, ancestor: u32) -> bool {
    std::iter::successors(Some(pid), |pid| status(*pid, "PPid")?.parse().ok()).any(|above| above == ancestor)
}

/// Processors that the iperf3 servers may run on which work for this run; other tests have some, too, and those in guests are
/// not seen.
fn servers_held(vmio: u32) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let of = |entry: fs::DirEntry| {
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        let of_loopback =
            String::from_utf8_lossy(&command).contains("iperf3\0--server\0--one-off\0--bind\x00127.0.0.1");
        let pid = entry.file_name().to_str()?.parse::<u32>().ok().filter(|pid| of_loopback && is_of(*pid, vmio))?;
        status(pid, "Cpus_allowed_list")
    };
    all.filter_map(of).collect()
}

/// Both ends of a loopback path are in the guest, or on the host's side, and held to what the side is held to.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_and_its_host_send_to_themselves_on_one_processor() {
    let (state, before) = (StateDir::with_image(), own());
    let mut command = state.command(&["study", "run"]);
    command.arg(fixture("pinned.toml")).args(["--yes", "--no-gentle", "--verbose"]);
    let mut child = state.spawn(&mut command);
    let mut held = BTreeSet::new();
    while child.try_wait().unwrap().is_none() {
        held.extend(servers_held(child.id()));
        sleep(Duration::from_millis(50));
    }
    let ended = state.end(child).with(0);
    assert_eq!((held, own()), (BTreeSet::from(["0".to_owned()]), before), "{}", ended.out);
    state.is_clean();
    let run = state.last().unwrap();
    assert_eq!((&run.state, run.skipped.as_slice(), run.samples.len()), (&RunState::Done, [].as_slice(), 6));
    for sample in &run.samples {
        let sent = sample.results().filter(|result| result.figure("moved").is_some_and(|bytes| bytes > 0.0)).count();
        assert_eq!(sent, sample.cell.actors().count(), "{}", sample.cell.key());
    }
    assert!(ended.out.contains("fairness"), "{}", ended.out);
}

/// The writes of the study `disk-sla`, short and on a slower link, in half a minute. Without a guard the flood leaves the
/// disk less than its minimum of 24 Mbit/s; with one it has that by a client of the guest's own and by its hypervisor's.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_a_disk_on_another_host_keeps_its_minimum_beside_a_flood() {
    if find_program(&Local::new(), "nbd-client").is_none() {
        return skip("no nbd-client");
    }
    let (state, before) = (StateDir::with_image(), own());
    let whole = include_str!("../../../studies/disk-sla.toml");
    let parts: Vec<&str> = whole.split("[[cell]]").collect();
    let mut text = [&parts[..4], &parts[9..]].concat().join("[[cell]]");
    for (from, to) in [
        ("min_pairs = 3\nmax_pairs = 3", "min_pairs = 1\nmax_pairs = 1"),
        ("seconds = 10.0", "seconds = 3.0"),
        ("200mbit", "40mbit"),
        ("220mbit", "60mbit"),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let dir = scratch();
    let study = dir.path().join("disk-sla.toml");
    fs::write(&study, text).unwrap();
    state.finish(state.command(&["study", "run"]).arg(&study).args(["--yes", "--no-gentle"])).with(0);
    state.is_clean();
    assert_eq!(own(), before);
    let run = state.last().unwrap();
    assert_eq!((run.samples.len(), run.skipped.as_slice()), (4, [].as_slice()));
    let written = |beside: usize, guard: Option<&str>| {
        let guarded_by = |s: &Sample| s.cell.settings.get("guard").map(String::as_str) == guard;
        let found = run.samples.iter().find(|s| s.cell.beside.len() == beside && guarded_by(s));
        found.unwrap().result.figure("bandwidth").unwrap() * 8.0
    };
    let all = [written(0, None), written(1, None), written(1, Some("disk-first")), written(1, Some("host-first"))];
    let [alone, flooded, by_guest, by_host] = all;
    // The link counts headers, too; unguarded it serves both senders in turn, so the disk has about 20 Mbit/s.
    let minimum = 0.9 * 24e6;
    assert!(alone < 1.1 * 40e6 && flooded < minimum && by_guest > minimum && by_host > minimum, "{all:?} bit/s");
    let set: Vec<&String> = run.effective.values().filter_map(|all| all.get("guard")).collect();
    assert!(set.iter().any(|found| found.contains(" disk, ") && found.contains(" neighbour, ")), "{set:?}");
}
