//! vmio in a lab host: whole runs on storage that the kernel at hand may lack, what becomes of a
//! run whose storage fails, what comes home, and what is left (nothing).
#![allow(clippy::unwrap_used)]

use crate::help::state_dir;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};

use rustix::process::Signal;
use serde_json::Value;
use state_dir::{StateDir, fixture, signal};
use vmio::store::Store;
use vmio_model::result::{Mark, RunState};
use vmio_model::run::Run;
use vmio_node::{Local, find_program};
use vmio_testbed::skip;

/// Who reaches a disk of another host's natively, as a result has it.
const CLIENT: &str = "NBD over TCP, in this host's kernel";

/// The lab host's own runs as they came home, oldest first.
fn runs(state: &StateDir) -> Vec<Run> {
    let store = Store::open_existing(&state.path().join("vmio.db")).unwrap();
    let list = store.list().unwrap();
    list.iter().rev().map(|r| store.load_whole(r.id).unwrap()).collect()
}

#[track_caller]
fn broken_off(run: &Run, why: &str) {
    assert!(matches!(&run.state, RunState::Interrupted(said) if said.contains(why)), "{:?}", run.state);
    assert!(!run.samples.is_empty(), "what was measured is kept");
}

/// Runs a part of `lab.sh`; what it said, the runs that came home, and the standard error of the command, whose exit code is its
/// own.
fn breaks(state: &StateDir, part: &str) -> (BTreeMap<String, String>, Vec<Run>, String) {
    let (study, script) = (fixture("lab.toml"), fixture("lab.sh"));
    let (study, script) = (study.to_str().unwrap(), script.to_str().unwrap());
    let ended = state.vmio(&["lab", "run", "--with", study, "--with", script, "--", "bash", "lab.sh", part]).with(7);
    let split =
        |line: &str| line.split_once(' ').map_or((line.to_owned(), String::new()), |(k, v)| (k.into(), v.into()));
    let said: BTreeMap<String, String> = ended.out.lines().map(split).collect();
    assert!(!said.contains_key("never"), "{}\n{}", ended.out, ended.err);
    assert_eq!([said["left-groups"].trim(), said["left-journals"].trim()], ["", ""], "{said:#?}");
    // Every form says that this host was a guest.
    let runs = runs(state);
    for run in &runs {
        assert!(run.environment.node.as_ref().unwrap().starts_with("lab host (Linux "), "{:?}", run.environment.node);
    }
    for form in [
        &["runs", "show", "1"][..],
        &["runs", "show", "1", "--verbose"],
        &["runs", "show", "1", "--markdown"],
        &["runs", "show", "1", "--json"],
    ] {
        assert!(state.vmio(form).with(0).out.contains("lab host (Linux "), "{form:?}");
    }
    (said, runs, ended.err)
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_thin_pool_that_this_kernel_lacks_is_measured_until_it_is_full() {
    let state = StateDir::with_lab();
    let (said, runs, err) = breaks(&state, "pool");
    let [full] = &runs[..] else { panic!("{} runs\n{err}", runs.len()) };
    let measured: BTreeSet<&str> = full.samples.iter().map(|sample| sample.cell.workload()).collect();
    assert_eq!(measured.len(), 2, "{measured:?}: what is measured in a volume of a thin pool");
    assert!(full.samples.iter().all(|s| s.cell.target() == Some("lvm-thin") && s.cell.is_native()));
    assert!(full.environment.native_limits.contains("cgroup v2"), "{}", full.environment.native_limits);
    assert_eq!((said["full"].as_str(), said["volumes-after-full"].trim()), ("4", "other pool small"), "{err}");
    // Nearly: a run leaves a rest of the pool free.
    broken_off(full, "full (");
    broken_off(full, "lab/small is ");
    state.is_clean();
}

/// A server that says nothing is waited for, and the kernel leaves no way to do so more quickly; that storage which falls
/// silent ends a run is shown in `root_silent.rs`, too.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_a_server_of_nfs_goes_away_and_comes_back() {
    let state = StateDir::with_lab();
    let (said, runs, err) = breaks(&state, "nfs");
    let [gone, nfs] = &runs[..] else { panic!("{} runs\n{err}", runs.len()) };
    assert_eq!(said["gone"], "4", "{err}");
    broken_off(gone, "does not respond");
    assert!(said["seconds-to-the-end"].parse::<u32>().unwrap() < 120, "{}", said["seconds-to-the-end"]);

    // The next start cleaned up after the one that could not.
    assert_eq!(said["nfs"], "0", "{err}");
    assert!(err.contains("cleaned up after a killed run"), "{err}");
    assert_eq!(said["left-on-nfs"].trim(), "");
    assert_eq!((&nfs.state, nfs.samples.len()), (&RunState::Done, 4));
    for sample in &nfs.samples {
        let device = sample.device().expect("NFS counts its requests");
        assert!(device.write_bytes > 0 && device.write_ios > 0, "{}: {device:?}", sample.cell.key());
    }
    state.is_clean();
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_lab_host_goes_with_its_killed_owner() {
    let state = StateDir::with_lab();
    let mut child = state.spawn(&mut state.command(&["lab", "run", "--", "sleep", "1000"]));
    state.wait_for(&mut child, || !state.processes("-name vmio-lab").is_empty());
    signal(child.id(), Signal::KILL);
    assert_eq!(state.end(child).code, None);
    state.vmio(&["lab", "run", "--with", "/nonexistent", "--", "true"]).with(2).says(&["cleaned up", "/nonexistent"]);
    state.is_clean();
}

#[test]
#[ignore = "guest: needs QEMU"]
fn long_ctrl_c_brings_home_what_was_measured() {
    let state = StateDir::with_lab();
    let study = fixture("lab.toml");
    let command = "sed 's/ROUNDS/60/; s/TARGET/sparse/' lab.toml > l.toml; \
                   exec vmio study run l.toml --on /srv/scratch --make-place --yes > /dev/null";
    let args = ["lab", "run", "--with", study.to_str().unwrap(), "--", "sh", "-c", command];
    let mut child = state.spawn(&mut state.command(&args));
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.starts_with("round 1 done")), "what is said in a lab host is shown as it comes");
    signal(child.id(), Signal::INT);
    let rest: Vec<String> = said.collect();
    assert!(rest.iter().any(|l| l.starts_with("stopping the command in the lab host")), "{rest:#?}");
    state.end(child).with(4);
    let runs = runs(&state);
    assert_eq!(runs.len(), 1);
    broken_off(&runs[0], "Ctrl-C");
    state.is_clean();
}

/// What this kernel may not have: reads of a loop device over a file on NFS, from the lab host's own server.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_a_loop_device_on_nfs_beside_the_paper() {
    let state = StateDir::with_lab();
    let here = state.path().display().to_string();
    let refused = state.vmio(&["study", "run", "hdparm-nfs", "--on", &here, "--dry-run"]);
    refused.says(&["loop-nfs/native/hdparm", "the place is not a directory on NFS", "vmio lab run"]);
    let command = "vmio study run hdparm-nfs --on /mnt/nfs --yes > /dev/null; code=$?; \
                   losetup -a; ls -A /mnt/nfs; exit $code";
    let ended = state.vmio(&["lab", "run", "--", "sh", "-c", command]).with(0);
    assert_eq!(ended.out, "", "nothing is left: {}", ended.err);
    let runs = runs(&state);
    let [run] = &runs[..] else { panic!("{}", ended.err) };
    assert_eq!((&run.state, run.samples.len(), &run.skipped[..]), (&RunState::Done, 4, &[][..]));
    assert!(run.environment.node.as_ref().unwrap().starts_with("lab host (Linux "));
    assert!(run.samples.iter().all(|s| s.cell.is_native() && s.result.figure("bandwidth").unwrap() > 0.0));
    let found = &run.effective["loop-nfs/native"];
    assert_eq!(found["direct_io"], "false");
    assert!(found["backing"].contains("nfs4"), "{found:?}");
    let shown = state.vmio(&["study", "compare", "hdparm-nfs", "paper"]).with(0).out;
    let row = shown.lines().find(|line| line.contains("VE, /dev/loop0 on nfs")).unwrap();
    assert!(row.contains("7-289") && !row.contains('–'), "{shown}");
    state.is_clean();
}

/// What this kernel may not have: a client of NBD. The server is another host's, and the device goes with the run.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_a_disk_over_the_network_is_reached_by_the_hosts_own_kernel() {
    let state = StateDir::with_lab();
    let study = fixture("lab.toml");
    let command = "sed 's/ROUNDS/2/; s/TARGET/nbd/' lab.toml > n.toml; \
                   vmio study run n.toml --on /srv/scratch --make-place --yes > /dev/null; code=$?; \
                   cat /sys/block/nbd*/pid; ls -A /srv/scratch; exit $code";
    let args = ["lab", "run", "--with", study.to_str().unwrap(), "--", "sh", "-c", command];
    let ended = state.vmio(&args).with(0);
    assert_eq!(ended.out, "", "nothing is left: {}", ended.err);
    let runs = runs(&state);
    let [run] = &runs[..] else { panic!("{}", ended.err) };
    assert_eq!((&run.state, run.samples.len(), &run.skipped[..]), (&RunState::Done, 4, &[][..]));
    let found = &run.effective["nbd/native"];
    assert_eq!((found["client"].as_str(), found["server.cache.direct"].as_str()), (CLIENT, "true"), "{found:?}");
    assert!(run.samples.iter().all(|sample| sample.device().is_some_and(|device| device.write_bytes > 0)));
    state.is_clean();
}

/// A run on a target that the lab host's kernel is the client of is killed once it is that; the next one takes away what
/// the journal of the first has under a name that begins like this, and comes to its end, with such settings. `counted`
/// is a command that counts the kernel's disks by that client, `left` one that says what else there still is.
fn whole_after_a_killed_one(
    state: &StateDir,
    (target, settings): (&str, &str),
    counted: &str,
    left: &str,
    name: &str,
) -> Run {
    let study = fixture("lab.toml");
    let command = format!(
        "sed 's/ROUNDS/2/; s/TARGET/{target}/' lab.toml > n.toml; echo '{settings}' >> n.toml; \
         counted() {{ {counted}; }}; \
         study() {{ exec vmio study run n.toml --on /srv/scratch --make-place --yes > /dev/null; }}; \
         study & run=$!; \
         until [ $(counted) -gt 0 ]; do kill -0 $run || break; sleep 1; done; \
         kill -9 $run; wait $run; echo killed $(counted); \
         (study); code=$?; echo ended $(counted); \
         {left}; ls -A /srv/scratch; exit $code"
    );
    let args = ["lab", "run", "--with", study.to_str().unwrap(), "--", "sh", "-c", command.as_str()];
    let ended = state.vmio(&args).with(0);
    assert_eq!(ended.out, "killed 1\nended 0\n", "nothing is left: {}", ended.err);
    assert!(ended.err.contains(&format!("cleaned up after a killed run: {name}")), "{}", ended.err);
    let run = runs(state).pop().unwrap();
    assert_eq!((&run.state, &run.skipped[..]), (&RunState::Done, &[][..]));
    assert!(run.samples.iter().all(|sample| sample.device().is_some_and(|device| device.write_bytes > 0)));
    run
}

/// Its kernel is both: what serves the disk, and the client. What of it is in the kernel goes with the run, or with the next
/// one's start.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_a_disk_by_nvme_over_tcp_is_served_and_reached_by_the_kernel() {
    let state = StateDir::with_lab();
    let counted = "cat /sys/class/nvme/nvme*/subsysnqn 2> /dev/null | grep -c vmio";
    let left = "ls -A /sys/kernel/config/nvmet/subsystems /sys/kernel/config/nvmet/ports | grep -v -e '^/' -e '^$'";
    let run = whole_after_a_killed_one(&state, ("nvme-tcp", ""), counted, left, "NVMe over TCP of");
    assert_eq!(run.samples.len(), 4);
    let found = &run.effective["nvme-tcp/native"];
    let client = "NVMe over TCP, in this host's kernel";
    assert_eq!((found["client"].as_str(), found["server.cache.direct"].as_str()), (client, "true"), "{found:?}");
    state.is_clean();
}

/// What no other host has natively: the kernel is the client in its first network namespace alone, which is vmio's own in a
/// lab host. A request is a frame.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_a_disk_by_ata_over_ethernet_is_reached_by_a_lab_hosts_kernel() {
    let state = StateDir::with_lab();
    let counted = "ls /sys/block | grep -c etherd";
    let left = "ls /sys/class/net | grep -e -br";
    let settings = "settings = { mtu = [\"1500\", \"9000\"] }";
    let by = "disk e0.0 by ATA over Ethernet";
    let run = whole_after_a_killed_one(&state, ("aoe", settings), counted, left, by);
    assert_eq!(run.samples.len(), 8);
    let found = &run.effective["aoe/native"];
    let client = "ATA over Ethernet, in this host's kernel";
    assert_eq!((found["client"].as_str(), found["server.cache.direct"].as_str()), (client, "true"), "{found:?}");
    let mean = |mtu: &str| {
        let of: Vec<f64> = run
            .samples
            .iter()
            .filter(|sample| sample.cell.settings["mtu"] == mtu && sample.cell.workload() == "seq-write")
            .filter_map(|sample| Some(sample.device()?.request_bytes))
            .collect();
        of.iter().sum::<f64>() / of.len() as f64
    };
    assert!(mean("9000") > 2.0 * mean("1500"), "{} and {} bytes a request", mean("9000"), mean("1500"));
    state.is_clean();
}

/// What this kernel may not have: dm-cache. Counters prove hits and misses; the devices of a run that was killed in a
/// cell are gone with the next one.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_a_flash_cache_of_the_hosts_own_tells_hits_from_misses() {
    let state = StateDir::with_lab();
    let command = "go='study run lu2016-flash-native --on modelled:100MB/s,overhead=150us,seek=1ms --yes'; \
                   vmio $go > /dev/null & \
                   for i in $(seq 1200); do dmsetup ls | grep -q ^vmio- && break; sleep 0.1; done; \
                   dmsetup ls | grep -q ^vmio- || echo no cache was set up; \
                   kill -9 $!; wait; vmio $go > /dev/null; code=$?; \
                   dmsetup ls | grep ^vmio-; losetup -a; ls -A /dev/shm; exit $code";
    let ended = state.vmio(&["lab", "run", "--", "sh", "-c", command]).with(0);
    assert_eq!(ended.out, "", "nothing is left: {}", ended.err);
    let runs = runs(&state);
    let Some(run) = runs.last() else { panic!("{}", ended.err) };
    assert_eq!((&run.state, &run.skipped[..]), (&RunState::Done, &[][..]));
    for sample in run.samples.iter().filter(|sample| sample.cell.target() == Some("dm-cache")) {
        let (key, read) = (sample.cell.key(), sample.result.disk_work().read_bytes as f64);
        let slow = sample.device().unwrap().read_bytes as f64;
        assert!(!sample.marks.contains(&Mark::NotWarm), "{key}: {slow} of {read}: {:?}", sample.seen);
        assert_eq!(slow >= 0.95 * read, !key.contains("+warm-flash/"), "{key}: {slow} of {read}");
    }
    let cells: BTreeSet<String> = run.samples.iter().map(|sample| sample.cell.key()).collect();
    assert_eq!(cells.len(), 10, "{cells:?}");
    state.is_clean();
}

/// Beside what this kernel may not have, device mapper: a program that serves, of this host's.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_volumes_of_lvm_are_kept_apart_and_outlive_their_server() {
    let state = StateDir::with_lab();
    let Some(server) = find_program(&Local::new(), "qemu-nbd") else {
        return skip("no qemu-nbd here: apt install qemu-utils");
    };
    let script = fixture("lab-volumes.sh");
    let with = ["--with", script.to_str().unwrap(), "--with", server.to_str().unwrap()];
    // One that hangs is ended.
    let bounded = ["--", "timeout", "600", "bash", "lab-volumes.sh"];
    let ended = state.vmio(&[&["lab", "run"][..], &with, &bounded].concat()).with(0);
    let told = ended.out.lines().filter_map(|line| line.split_once(' '));
    let said: BTreeMap<&str, Vec<&str>> = told.fold(BTreeMap::new(), |mut said, (key, value)| {
        said.entry(key).or_default().push(value.trim());
        said
    });
    let wanted = [
        ("made", "0"),
        ("delete-served", "3"),
        ("snapshot-served", "3"),
        ("detached", "0"),
        ("snapshot", "0"),
        ("resized", "0"),
        ("size", "25165824"),
        ("hashes", "1"),
        ("behind", "0"),
        ("other-made", "0"),
        ("other-deletes", "3"),
        ("strange", "3"),
        ("mounted", "3"),
        ("thick-made", "0"),
        ("thick-resized", "0"),
        ("thick-size", "67108864"),
        ("junk", "0"),
        ("thick-snapshot", "2"),
        ("killed", "1"),
        ("listed-killed", "0"),
        ("next", "0"),
        ("left-big", "0"),
        ("left", "pool vmio-own vmio-plain"),
    ];
    for (key, value) in wanted {
        assert_eq!(said.get(key), Some(&vec![value]), "{key}\n{}\n{}", ended.out, ended.err);
    }
    assert_eq!((said.get("deleted"), said.get("never")), (Some(&vec!["0"; 4]), None), "{}\n{}", ended.out, ended.err);
    state.is_clean();
}

/// The host reads back from swap what a guest needs again, and says whose that is.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_a_guest_whose_memory_is_in_the_hosts_swap_is_told() {
    const LEAST: u64 = 64 << 20;
    let state = StateDir::with_lab();
    let script = fixture("lab-swap.sh");
    // One that hangs is ended.
    let bounded = ["timeout", "300", "bash", "lab-swap.sh"];
    let args = [&["lab", "run", "--with", script.to_str().unwrap(), "--"][..], &bounded].concat();
    let ended = state.vmio(&args).with(0);
    let said =
        |key: &'static str| ended.out.lines().filter_map(|line| line.split_once(' ')).filter(move |(k, _)| *k == key);
    assert_eq!(said("failed").count(), 0, "{}\n{}", ended.out, ended.err);
    let swapped_kib: u64 = said("swapped").next().unwrap().1.parse().unwrap();
    assert!(swapped_kib << 10 > LEAST, "{}\n{}", ended.out, ended.err);
    let screens: Vec<Value> = said("top").map(|(_, screen)| serde_json::from_str(screen).unwrap()).collect();
    let all = |key: &str| screens.iter().flat_map(|screen| screen[key].as_array().unwrap()).collect::<Vec<_>>();
    let (guests, verdicts) = (all("guests"), all("verdicts"));
    let has = |guest: &Value| guest["name"] == "swapped" && guest["swapped_bytes"].as_u64() > Some(LEAST);
    assert!(guests.iter().any(|guest| has(guest)), "{guests:#?}");
    let costs = |verdict: &Value| verdict["costs"].as_array().unwrap().iter().any(|cost| cost["guest"] == "swapped");
    let told = verdicts.iter().any(|verdict| verdict["resource"] == "host_memory" && costs(verdict));
    assert!(told, "{verdicts:#?}");
    state.is_clean();
}
