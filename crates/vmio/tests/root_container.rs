//! Containers that vmio starts: cells on disks, networks and the processor beside the host itself, what they are held to,
//! and that nothing is left of them.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use vmio_model::result::{ProbeResult, Watched};
use vmio_testbed::poll_until;

use crate::help::state_dir::{StateDir, fixture, signal};

/// Pids, as the host numbers them, of the first process in a container of this state directory, and of its agent.
fn inside(state: &StateDir) -> Option<(u32, u32)> {
    let first = state.processes("--container").into_iter().find_map(|(outer, _)| child_of(outer))?;
    Some((first, child_of(first)?))
}

fn child_of(parent: u32) -> Option<u32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line == format!("PPid:\t{parent}"))
    };
    pids.into_iter().find(is_child)
}

fn runs(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
#[ignore = "root"]
fn a_container_is_measured_beside_the_host() {
    works(&["uplink"]);
}

/// On the networks, too, of which the short form has one.
#[test]
#[ignore = "root"]
fn long_a_container_works_on_every_network_beside_the_host() {
    works(&["veth", "uplink", "loopback"]);
}

/// Datagrams to the host go over these networks.
fn works(networks: &[&str]) {
    let (state, own) = (StateDir::new(), tempfile::tempdir().unwrap());
    let study = own.path().join("container.toml");
    let text = fs::read_to_string(fixture("container.toml")).unwrap();
    fs::write(&study, text.replace(r#"["veth", "uplink", "loopback"]"#, &format!("{networks:?}"))).unwrap();
    let mut command = state.command(&["study", "run"]);
    state.finish(command.arg(&study).args(["--yes", "--no-gentle"])).with(0);
    state.is_clean();
    let run = state.last().unwrap();
    let samples = (5 + networks.len()) * 2 * 2;
    assert_eq!((run.samples.len(), run.skipped.as_slice()), (samples, [].as_slice()), "both sides, two rounds");
    let limits = &run.environment.native_limits;
    assert!(limits.contains("container, native: cgroup") && limits.contains("memory 256 MiB"), "{limits}");
    assert_eq!((run.environment.qemu_limits, run.environment.guest_kernel), (None, None), "nothing is booted");
    // As the container's own kernel says.
    let held = &run.effective["container"];
    assert_eq!(held["processors"].split(',').count(), 1, "{held:?}");
    for sample in run.samples.iter().filter(|s| !s.cell.is_native()) {
        assert!(sample.cell.attachment().is_none() && sample.cell.lead.nic().is_none());
        let own = sample.seen.iter().find(|seen| seen.watched == Watched::Container("container".into())).unwrap();
        assert!(!own.figures.is_empty(), "{}", sample.cell.key());
        let cpu = sample.cpu();
        // Less than a tick of CPU time may be counted as none.
        let least = if sample.cell.workload().starts_with("udp-") { -1.0 } else { 0.0 };
        assert!(cpu.by_role["program"] > least, "{}: {cpu:?}", sample.cell.key());
    }
    // What it sent came to the host by its port; what is for another host left by the uplink, for a neighbour nothing did.
    for (place, port, to_remote) in
        [("uplink.remote/container", "eth", true), ("shared.neighbour/container", "port", false)]
    {
        let sent: Vec<_> = run.samples.iter().filter(|s| s.cell.key().starts_with(place)).collect();
        assert_eq!(sent.len(), 2, "{place}");
        for sample in sent {
            let moved = sample.result.figure("moved").unwrap();
            let bytes = |start: &str| -> f64 {
                let is = |s: &&ProbeResult| matches!(&s.watched, Watched::Link(name) if name.starts_with(start));
                let seen =
                    sample.seen.iter().find(is).unwrap_or_else(|| panic!("{place}: no {start} in {:?}", sample.seen));
                seen.figures.iter().filter(|r| r.figure == "bytes").map(|r| r.value.typical()).sum()
            };
            assert!(moved > 1e6 && bytes(port) >= moved, "{place}: {moved} moved, {} by {port}", bytes(port));
            assert!(to_remote || bytes("wire") < moved / 100.0 + 1e4, "{place}: {} by the uplink", bytes("wire"));
        }
    }
    // A disk that is a device has the host's read-ahead: it is the same one.
    let read_ahead = |at: &str| run.effective[at].get("read_ahead_kib").cloned();
    assert_eq!(read_ahead("device/container"), read_ahead("device/native"));
}

#[test]
#[ignore = "root"]
fn tax_answers_for_containers() {
    let state = StateDir::new();
    let mut command = state.command(&["tax", "--quick", "--guests", "container", "--only", "network,cpu"]);
    let mut child = state.spawn(command.args(["--yes", "--no-gentle"]));
    // A round of seven cells, of both sides: a busy machine takes longer for them than others, so no time ends it.
    state.wait_for_samples(&mut child, 14);
    signal(child.id(), Signal::INT);
    state.end(child).with(4);
    state.is_clean();
    let ended = state.vmio(&["runs", "show", "--json"]).with(0);
    // Nothing is booted, and no image is needed for that.
    let run = state.last().unwrap();
    assert!(run.samples.iter().all(|s| s.cell.is_native() || s.cell.lead.side.kind == "container"));
    assert_eq!((run.environment.accel, run.skipped.as_slice()), (None, [].as_slice()));
    let json: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    let sides = |of: &serde_json::Value| of["side"].as_str().unwrap().to_owned();
    let mut told = vec![sides(&json["headline"])];
    told.extend(json["further_headlines"].as_array().unwrap().iter().map(sides));
    assert_eq!(told, ["container", "container"], "{}", ended.out);
}

#[test]
#[ignore = "root"]
fn a_container_is_apart_is_held_and_goes_with_a_killed_owner() {
    let state = StateDir::new();
    // Cells on one disk that last long enough.
    let own = tempfile::tempdir().unwrap();
    let study = own.path().join("container.toml");
    let whole = fs::read_to_string(fixture("container.toml")).unwrap();
    let mut parts = whole.split("[[");
    let short = format!("{}[[{}", parts.next().unwrap(), parts.next().unwrap());
    let short = short.replace("[\"device\", \"sparse\"]", "[\"sparse\"]").replace("seconds = 0.3", "seconds = 1.0");
    fs::write(&study, short).unwrap();
    let mut command = state.command(&["study", "run"]);
    let mut child = state.spawn(command.arg(&study).args(["--yes", "--no-gentle"]));
    let child_pid = child.id();
    // Stopped, so that the container stays: each round has one of its own.
    state.wait_for(&mut child, || {
        let there = || state.samples() > 0 && inside(&state).is_some();
        signal(child_pid, Signal::STOP);
        let stays = there();
        if !stays {
            signal(child_pid, Signal::CONT);
        }
        stays
    });
    let (first, agent) = inside(&state).unwrap();
    for kind in ["net", "mnt", "pid", "uts", "ipc"] {
        let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
        assert_ne!(of(&agent.to_string()), of("self"), "{kind}");
    }
    let status = text(&format!("/proc/{first}/status"));
    assert!(status.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1")), "{status}");
    // The host's files cannot be written to, and what can be is not the host's.
    let root = format!("/proc/{agent}/root");
    assert!(fs::write(format!("{root}/etc/vmio-was-here"), "x").is_err());
    fs::write(format!("{root}/tmp/vmio-was-here"), "x").unwrap();
    assert!(!Path::new("/tmp/vmio-was-here").exists() && !Path::new("/etc/vmio-was-here").exists());
    assert_eq!(text(&format!("{root}/proc/1/comm")), text(&format!("/proc/{first}/comm")));
    // The control group is in force: one processor, and no more memory than its own.
    let groups = text(&format!("/proc/{agent}/cgroup"));
    let group = groups.lines().find(|l| l.contains("/vmio-")).unwrap().rsplit(':').next().unwrap();
    let cpus = text(&format!("/proc/{agent}/status"));
    let cpus = cpus.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:\t")).unwrap();
    assert!(cpus.parse::<u32>().is_ok(), "one of them: {cpus}");
    let limit = ["memory/NAME/memory.limit_in_bytes", "NAME/memory.max"].map(|file| {
        text(
            &Path::new("/sys/fs/cgroup")
                .join(file.replace("/NAME", group).replace("NAME", &group[1..]))
                .display()
                .to_string(),
        )
    });
    assert!(limit.iter().any(|found| found.trim() == (256 << 20).to_string()), "{limit:?} of {groups}");
    // Scan tells it as vmio's own: it is not in the list unless all are asked for.
    let listed = |args: &[&str]| {
        let found: serde_json::Value = serde_json::from_str(&state.vmio(args).out).unwrap();
        found["guests"].as_array().unwrap().iter().any(|guest| guest["kind"] == "container" && guest["pid"] == first)
    };
    assert!(listed(&["scan", "--json", "--all"]), "with all it is listed");
    assert!(!listed(&["scan", "--json"]), "it is one of vmio's own");
    signal(child.id(), Signal::KILL);
    child.wait().unwrap();
    poll_until("the reaper ends them", || !runs(first) && !runs(agent));
    // The next start does the rest, and goes on.
    state
        .finish(state.command(&["study", "run"]).arg(&study).args(["--resume", "--yes", "--no-gentle"]))
        .came_to_its_end();
    state.is_clean();
    assert_eq!(state.samples(), 4, "two cells, two rounds");
}

#[test]
#[ignore = "root"]
fn a_container_refuses_what_it_has_no_part_of() {
    let state = StateDir::new();
    let own = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(fixture("container.toml")).unwrap();
    let with = |line: &str| {
        let file = own.path().join("bad.toml");
        fs::write(&file, text.replacen("disks.targets", &format!("{line}\ndisks.targets"), 1)).unwrap();
        let ended = state.finish(&mut state.command(&["study", "run", file.to_str().unwrap(), "--dry-run"]));
        ended.with(2)
    };
    let at = text.lines().position(|line| line.starts_with("disks.targets")).unwrap() + 1;
    let (driver, cache) =
        (format!("bad.toml:{at}: matrix.disks.drivers"), format!("bad.toml:{at}: matrix.disks.caches"));
    with("disks.drivers = [\"virtio-blk\"]").says(&[&driver, "a container has none"]);
    with("disks.caches = [\"writeback\"]").says(&[&cache, "a container has none"]);
    let kernel = format!("bad.toml:{at}: matrix.shapes.kernel");
    with("shapes = [{ kernel = \"6.1\" }]").says(&[&kernel, "a container has none"]);
}
