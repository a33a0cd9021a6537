//! The probe against `iostat -x` of sysstat on the same load: within 2 %; and the first moment of a load by itself.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::Bed;
use vmio_look::backing::Backing;
use vmio_node::{Exec, Node};
use vmio_rig::probes::{ProbePoint, ProbeSubject, Watch};
use vmio_rig::workloads;
use vmio_testbed::{limit, must_be_root, poll_until, slowness};

/// A load may take longer than iostat's interval where the disk below is busy: then both begin anew, with twice that.
const TRIES: i32 = 5;

/// A block device's name, and itself as what is below a target.
fn disk(device: &Path) -> (String, Backing) {
    let name = device.file_name().unwrap().to_str().unwrap().to_owned();
    let numbers = std::fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap();
    let (major, minor) = numbers.trim().split_once(':').unwrap();
    let leaf = (name.clone(), (major.parse().unwrap(), minor.parse().unwrap()));
    (name, Backing { leaves: [leaf].into(), ..Backing::default() })
}

/// fio sends nothing to its disk for as long as its workloads say: there the look before a cell is.
#[test]
#[ignore = "root"]
fn fio_begins_quietly() {
    must_be_root();
    let bed = Bed::new();
    let (device, _) = bed.losetup("load", 64);
    let (_, backing) = disk(&device);
    let quiet = workloads::find("rand-read-1").unwrap().quiet_start();
    let filename = format!("--filename={}", device.display());
    let job = ["--name=load", &filename, "--rw=randread", "--bs=4k", "--direct=1", "--readonly", "--ioengine=libaio"];
    // What is new on a host may be read by others who look what it is; and it takes two readings.
    let found = (0..TRIES).find_map(|_| {
        let watch = Watch::start(vec![ProbePoint::here(bed.shared(), ProbeSubject::Disk(backing.clone()))]).unwrap();
        bed.run("fio", &[&job[..], &["--number_ios=500"]].concat());
        let (begun, seen) = watch.stop_apart(quiet).unwrap();
        assert!(seen.device().unwrap().read_ios >= 500, "{seen:?}");
        println!("at first {begun:?}");
        begun.filter(|begun| begun.read_ios == 0)
    });
    assert!(found.is_some_and(|begun| begun.seconds >= 0.05), "{found:?}");
}

#[test]
#[ignore = "root"]
fn the_probe_says_what_iostat_says() {
    must_be_root();
    let bed = Bed::new();
    let (device, _) = bed.losetup("load", 64);
    let (name, backing) = disk(&device);

    // The whole load lies within both intervals, so that both count the same requests. iostat has looked when it waits
    // for the end of its interval.
    let filename = format!("--filename={}", device.display());
    let load = ["--name=load", &filename, "--rw=randrw", "--bsrange=64k-512k", "--direct=1"];
    let within = |seconds: f64| {
        let interval = seconds.to_string();
        let subject = ProbeSubject::Disk(backing.clone());
        let watch = Watch::start(vec![ProbePoint::here(bed.shared(), subject)]).unwrap();
        let iostat = Exec::new("iostat").args(["-x", "-d", "-k", "-y", "-o", "JSON", &name, &interval, "1"]);
        let began = Instant::now();
        let mut iostat = bed.node.spawn(&iostat).unwrap();
        let stat = format!("/proc/{}/stat", iostat.pid());
        poll_until("iostat waits for the end of its interval", || {
            std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains("(iostat) S "))
        });
        bed.run("fio", &[&load[..], &["--ioengine=libaio", "--iodepth=4", "--number_ios=500"]].concat());
        let is_within = iostat.try_wait().unwrap().is_none();
        let output = iostat.wait(Some(limit() + Duration::from_secs_f64(seconds))).unwrap();
        let (most, seen) = (began.elapsed().as_secs_f64(), watch.stop().unwrap().device().unwrap());
        is_within.then_some((seconds, most, output, seen))
    };
    let first = (4.0 * slowness()).ceil();
    let found = (0..TRIES).find_map(|n| within(first * 2f64.powi(n)));
    let (seconds, most, output, seen) = found.expect("a load that is over before iostat's interval");

    assert!(output.ok(), "{}", output.err());
    let doc: serde_json::Value = serde_json::from_str(&output.out()).unwrap();
    let disk = &doc["sysstat"]["hosts"][0]["statistics"][0]["disk"][0];
    assert_eq!(disk["disk_device"], name.as_str());
    let theirs = |key: &str| disk[key].as_f64().unwrap();
    let size = |bytes: u64, ios: u64| bytes as f64 / 1024.0 / ios as f64;
    // iostat rounds its interval; the number of reads tells it better.
    let length = seen.read_ios as f64 / theirs("r/s");
    assert!((0.95 * seconds..1.02 * most + 0.1).contains(&length), "{length} s of {seconds}, in all {most}");
    let during = seen.seconds / length;
    // It rounds to two places: half a step is allowed beside the 2 %.
    for (key, ours) in [
        ("w/s", seen.write_ios as f64 / length),
        ("rkB/s", seen.read_bytes as f64 / 1024.0 / length),
        ("wkB/s", seen.write_bytes as f64 / 1024.0 / length),
        ("rareq-sz", size(seen.read_bytes, seen.read_ios)),
        ("wareq-sz", size(seen.write_bytes, seen.write_ios)),
        ("aqu-sz", seen.queue_depth * during),
        ("util", seen.busy_ratio.unwrap() * 100.0 * during),
    ] {
        println!("{key:9} iostat {:10.3}  vmio {ours:10.3}", theirs(key));
        assert!((ours - theirs(key)).abs() <= 0.02 * theirs(key) + 0.005, "{key}: iostat {} vmio {ours}", theirs(key));
        // The kernel counts busy ticks, and a request may lie between two of them.
        assert!(ours > 0.0 || key == "util", "{key}: a load that is not there proves nothing");
    }
    let mean = (seen.read_bytes + seen.write_bytes) as f64 / (seen.read_ios + seen.write_ios) as f64;
    assert!((seen.request_bytes - mean).abs() < 1e-6);
}
