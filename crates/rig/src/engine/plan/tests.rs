//! What a plan says of the host that it looked at.
#![allow(clippy::unwrap_used)]

use vmio_model::study::{Names, SubjectKind, WorkloadName};
use vmio_node::fake::Fake;

use super::*;

const STUDY: &str = r#"
name = "made-up"
title = "For the tests of the plan"
guest = { vcpus = 1, memory_mib = 192 }
size = { target_mib = 384 }
[repeat]
min_pairs = 4
max_pairs = 7
min_boots = 3
half_width = 0.05
seconds = 1.0
max_minutes = 60.0
max_gib_written = 100.0
[[matrix]]
sides = ["native"]
disks = { targets = ["sparse"] }
workloads = ["seq-read"]
"#;

fn study() -> Study {
    let workload = WorkloadName { name: "seq-read".into(), works_on: SubjectKind::Disk };
    let names = Names {
        guests: vec!["native".into()],
        targets: vec!["sparse".into()],
        workloads: vec![workload],
        ..Names::default()
    };
    Study::parse("made-up.toml", STUDY, &names).unwrap()
}

/// A host whose directories lie on a disk.
fn host() -> Fake {
    Fake::new("fake")
        .process(1, "init", &["/sbin/init"], Some(&[]), &[1])
        .file("/proc/self/status", "Name:\tvmio\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t0-1\n")
        .file("/proc/self/mountinfo", "22 1 0:1 / / rw - ext4 /dev/vda rw\n")
        .file("/proc/filesystems", "nodev\ttracefs\n\text4\n")
        .file("/sys/dev/block/0:1/dev", "0:1\n")
}

fn traced(host: Fake) -> Fake {
    let place = "/sys/kernel/tracing";
    host.file(format!("{place}/trace_pipe"), "")
        .file(format!("{place}/instances/other/trace_pipe"), "")
        .file(format!("{place}/events/block/block_bio_queue/enable"), "0")
        .file(format!("{place}/events/block/block_rq_complete/enable"), "0")
}

fn plan(host: &Fake, gentle: bool) -> Planned {
    let state = tempfile::tempdir().unwrap();
    let options = PlanOptions { gentle, state_dir: state.path().into(), ..PlanOptions::default() };
    look(study(), &options, None, host).unwrap()
}

#[test]
fn whether_others_can_be_seen_to_slow_down_is_known_before_the_run() {
    let blind = plan(&host(), true).latency_unseen.unwrap();
    let mend = "mount -t tracefs nodev /sys/kernel/tracing";
    assert_eq!((blind.why.as_str(), blind.mend.as_deref()), ("tracefs is not mounted", Some(mend)));
    assert_eq!(plan(&traced(host()), true).latency_unseen, None);
    assert_eq!(plan(&host(), false).latency_unseen, None, "nobody is spared");
    let no_disk = traced(host());
    no_disk.remove("/sys/dev/block/0:1/dev");
    assert!(plan(&no_disk, true).latency_unseen.unwrap().why.contains("0:1 is not a block device"));
}

#[test]
fn hypervisors_of_other_kinds_than_the_studys_are_not_asked() {
    let known: Vec<String> = guests::ALL.iter().map(|kind| kind.name().to_owned()).collect();
    let asked = |sides: &str| {
        let text = format!(
            "name = 'x'\ntitle = 'x'\nguest = {{ vcpus = 1, memory_mib = 256 }}\n\
             repeat = {{ min_pairs = 2, max_pairs = 2, min_boots = 1, half_width = 0.05, seconds = 1.0, \
             max_minutes = 1.0 }}\n[[matrix]]\nsides = {sides}\nmachine = true\nworkloads = ['a']\n"
        );
        let workload = WorkloadName { name: "a".into(), works_on: SubjectKind::Machine };
        let names = Names { guests: known.clone(), workloads: vec![workload], ..Names::default() };
        let study = Study::parse("x.toml", &text, &names).unwrap();
        hypervisors(&study).into_iter().map(|kind| kind.name()).collect::<Vec<_>>()
    };
    assert_eq!(asked("['native', 'qemu']"), ["native", "qemu"]);
    assert_eq!(asked("['native']"), known);
}
