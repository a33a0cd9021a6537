//! vmio in a lab host: whole runs on storage that the kernel at hand may lack, what becomes of a
//! run whose storage fails, what comes home, and what is left (nothing).
#![allow(clippy::unwrap_used)]

use crate::help::bed;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};

use bed::{Bed, fixture, signal};
use rustix::process::Signal;
use vmio::store::Store;
use vmio_model::result::{Run, RunState};

/// The lab host's own runs as they came home, oldest first.
fn runs(bed: &Bed) -> Vec<Run> {
    let store = Store::open_existing(&bed.state().join("vmio.db")).unwrap();
    let list = store.list().unwrap();
    list.iter().rev().map(|r| store.load_whole(r.id).unwrap()).collect()
}

#[track_caller]
fn broken_off(run: &Run, why: &str) {
    assert!(matches!(&run.state, RunState::Interrupted(said) if said.contains(why)), "{:?}", run.state);
    assert!(!run.samples.is_empty(), "what was measured is kept");
}

#[test]
#[ignore = "guest: needs QEMU"]
fn storage_that_this_kernel_lacks_is_measured_and_its_faults_are_told() {
    let bed = Bed::with_lab();
    let (study, script) = (fixture("lab.toml"), fixture("lab.sh"));
    let args =
        ["lab", "run", "--with", study.to_str().unwrap(), "--with", script.to_str().unwrap(), "--", "bash", "lab.sh"];
    // The command's own exit code.
    let ended = bed.vmio(&args).with(7);
    let said: BTreeMap<&str, &str> = ended.out.lines().map(|l| l.split_once(' ').unwrap_or((l, ""))).collect();
    let value = |key: &str| said.get(key).unwrap_or_else(|| panic!("no {key} in {}\n{}", ended.out, ended.err)).trim();
    assert!(!said.contains_key("never"), "{}\n{}", ended.out, ended.err);
    let runs = runs(&bed);
    let [full, gone, nfs] = &runs[..] else { panic!("{} runs\n{}", runs.len(), ended.err) };

    let measured: BTreeSet<&str> = full.samples.iter().map(|sample| sample.cell.workload()).collect();
    assert_eq!(measured.len(), 2, "{measured:?}: what is measured in a volume of a thin pool");
    assert!(full.samples.iter().all(|s| s.cell.target() == Some("lvm-thin") && s.cell.is_native()));
    assert!(full.environment.native_limits.contains("cgroup v2"), "{}", full.environment.native_limits);

    assert_eq!((value("full"), value("volumes-after-full")), ("4", "other pool small"), "{}", ended.err);
    // Or nearly: a run leaves the last of a pool to the others.
    broken_off(full, "full (");
    broken_off(full, "lab/small is ");

    assert_eq!(value("gone"), "4", "{}", ended.err);
    broken_off(gone, "does not respond");
    assert!(value("seconds-to-the-end").parse::<u32>().unwrap() < 120, "{}", value("seconds-to-the-end"));

    // The next start cleaned up after the one that could not.
    assert_eq!(value("nfs"), "0", "{}", ended.err);
    assert!(ended.err.contains("cleaned up after a killed run"), "{}", ended.err);
    assert_eq!([value("left-on-nfs"), value("left-groups"), value("left-journals")], ["", "", ""]);
    assert_eq!((&nfs.state, nfs.samples.len()), (&RunState::Done, 4));
    for sample in &nfs.samples {
        let device = sample.device().expect("NFS counts its requests");
        assert!(device.write_bytes > 0 && device.write_ios > 0, "{}: {device:?}", sample.cell.key());
    }

    // Every form says that this host was a guest.
    for run in &runs {
        assert!(run.environment.node.as_ref().unwrap().starts_with("lab host (Linux "), "{:?}", run.environment.node);
    }
    for form in [&["runs", "show", "1"][..], &["runs", "show", "1", "--markdown"], &["runs", "show", "1", "--json"]] {
        assert!(bed.vmio(form).with(0).out.contains("lab host (Linux "), "{form:?}");
    }
    bed.is_clean();
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_lab_host_whose_owner_is_killed_goes_and_the_next_start_cleans_up() {
    let bed = Bed::with_lab();
    let mut child = bed.spawn(&mut bed.command(&["lab", "run", "--", "sleep", "1000"]));
    bed.wait_for(&mut child, || !bed.processes("-name vmio-lab").is_empty());
    signal(child.id(), Signal::KILL);
    assert_eq!(bed.end(child).code, None);
    bed.vmio(&["lab", "run", "--with", "/nonexistent", "--", "true"]).with(2).says(&["cleaned up", "/nonexistent"]);
    bed.is_clean();
}

#[test]
#[ignore = "guest: needs QEMU"]
fn long_ctrl_c_ends_the_command_and_what_it_measured_comes_home() {
    let bed = Bed::with_lab();
    let study = fixture("lab.toml");
    let command = "sed 's/ROUNDS/60/; s/TARGET/sparse/' lab.toml > l.toml; \
                   exec vmio study run l.toml --on /srv/scratch --make-place --yes > /dev/null";
    let args = ["lab", "run", "--with", study.to_str().unwrap(), "--", "sh", "-c", command];
    let mut child = bed.spawn(&mut bed.command(&args));
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.starts_with("round 1 done")), "what is said in a lab host is shown as it comes");
    signal(child.id(), Signal::INT);
    let rest: Vec<String> = said.collect();
    assert!(rest.iter().any(|l| l.starts_with("stopping the command in the lab host")), "{rest:#?}");
    bed.end(child).with(4);
    let runs = runs(&bed);
    assert_eq!(runs.len(), 1);
    broken_off(&runs[0], "Ctrl-C");
    bed.is_clean();
}

/// What this kernel may not have: reads of a loop device over a file on NFS, from the lab host's own server.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_a_loop_device_on_nfs_is_read_in_a_lab_host_and_stands_beside_the_paper() {
    let bed = Bed::with_lab();
    let here = bed.state().display().to_string();
    let refused = bed.vmio(&["study", "run", "hdparm-nfs", "--on", &here, "--dry-run"]);
    refused.says(&["loop-nfs/native/hdparm", "the place is no directory on NFS", "vmio lab run"]);
    let command = "vmio study run hdparm-nfs --on /mnt/nfs --yes > /dev/null; code=$?; \
                   losetup -a; ls -A /mnt/nfs; exit $code";
    let ended = bed.vmio(&["lab", "run", "--", "sh", "-c", command]).with(0);
    assert_eq!(ended.out, "", "nothing is left: {}", ended.err);
    let runs = runs(&bed);
    let [run] = &runs[..] else { panic!("{}", ended.err) };
    assert_eq!((&run.state, run.samples.len(), &run.skipped[..]), (&RunState::Done, 4, &[][..]));
    assert!(run.environment.node.as_ref().unwrap().starts_with("lab host (Linux "));
    assert!(run.samples.iter().all(|s| s.cell.is_native() && s.result.figure("bandwidth").unwrap() > 0.0));
    let found = &run.effective["loop-nfs/native"];
    assert_eq!(found["direct_io"], "false");
    assert!(found["backing"].contains("nfs4"), "{found:?}");
    let shown = bed.vmio(&["study", "compare", "hdparm-nfs", "paper"]).with(0).out;
    let row = shown.lines().find(|line| line.contains("VE, /dev/loop0 on nfs")).unwrap();
    assert!(row.contains("7-289") && !row.contains('–'), "{shown}");
    bed.is_clean();
}
