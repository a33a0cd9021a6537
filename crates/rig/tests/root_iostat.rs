//! The probe against `iostat -x` of sysstat on the same interval: within 2 %.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::time::{Duration, Instant};

use common::Bed;
use vmio_look::backing::Backing;
use vmio_node::{Exec, Node};
use vmio_rig::probes::{Subject, Thing, Watch};
use vmio_testbed::must_be_root;

#[test]
#[ignore = "root"]
fn the_probe_says_what_iostat_says() {
    must_be_root();
    let bed = Bed::new();
    let (device, _) = bed.losetup("load", 64);
    let name = device.file_name().unwrap().to_str().unwrap().to_owned();
    let numbers = std::fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap();
    let (major, minor) = numbers.trim().split_once(':').unwrap();
    let leaf = (name.clone(), (major.parse().unwrap(), minor.parse().unwrap()));
    let backing = Backing { leaves: [leaf].into(), ..Backing::default() };

    // A steady load, so that the few milliseconds by which the intervals differ do not count.
    let load = Exec::new("fio").args([
        "--name=load".to_owned(),
        format!("--filename={}", device.display()),
        "--rw=randrw".into(),
        "--bsrange=64k-512k".into(),
        "--direct=1".into(),
        "--ioengine=libaio".into(),
        "--iodepth=4".into(),
        "--rate_iops=2000,1000".into(), // of the smallest size; a quarter of it at the mean one
        "--time_based".into(),
        "--runtime=60".into(),
    ]);
    let mut load = bed.node.spawn(&load).unwrap();
    // fio takes a while to begin, and longer on a busy machine: the load is there when it was seen.
    let reads = || {
        let stat = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        stat.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    let (before, limit) = (reads(), Instant::now() + Duration::from_secs(30));
    while reads() < before + 400 {
        assert!(Instant::now() < limit, "fio does not begin");
        std::thread::sleep(Duration::from_millis(50));
    }
    let iostat = Exec::new("iostat").args(["-x", "-d", "-k", "-y", "-o", "JSON", &name, "4", "1"]);
    let mut iostat = bed.node.spawn(&iostat).unwrap();
    let watch = Watch::start(vec![Subject::here(bed.shared(), Thing::Disk(backing))]).unwrap();
    let output = iostat.wait(Some(Duration::from_secs(10))).unwrap();
    let seen = watch.stop().unwrap().device().unwrap();
    load.kill().unwrap();
    load.wait(None).unwrap();

    assert!(output.ok(), "{}", output.err());
    let doc: serde_json::Value = serde_json::from_str(&output.out()).unwrap();
    let disk = &doc["sysstat"]["hosts"][0]["statistics"][0]["disk"][0];
    assert_eq!(disk["disk_device"], name.as_str());
    let theirs = |key: &str| disk[key].as_f64().unwrap();
    let size = |bytes: u64, ios: u64| bytes as f64 / 1024.0 / ios as f64;
    // iostat rounds to two places: half a step is allowed beside the 2 %.
    for (key, ours) in [
        ("r/s", seen.read_ios as f64 / seen.seconds),
        ("w/s", seen.write_ios as f64 / seen.seconds),
        ("rkB/s", seen.read_bytes as f64 / 1024.0 / seen.seconds),
        ("wkB/s", seen.write_bytes as f64 / 1024.0 / seen.seconds),
        ("rareq-sz", size(seen.read_bytes, seen.read_ios)),
        ("wareq-sz", size(seen.write_bytes, seen.write_ios)),
        ("aqu-sz", seen.queue_depth),
        ("util", seen.busy_ratio.unwrap() * 100.0),
    ] {
        println!("{key:9} iostat {:10.3}  vmio {ours:10.3}", theirs(key));
        assert!((ours - theirs(key)).abs() <= 0.02 * theirs(key) + 0.005, "{key}: iostat {} vmio {ours}", theirs(key));
        // The kernel counts busy ticks, and a request may lie between two of them.
        assert!(ours > 0.0 || key == "util", "{key}: a load that is not there proves nothing");
    }
    let mean = (seen.read_bytes + seen.write_bytes) as f64 / (seen.read_ios + seen.write_ios) as f64;
    assert!((seen.request_bytes - mean).abs() < 1e-6);
}
