//! FIXTURE: a made-up run for tests. Its figures are plausible and deterministic, and were
//! measured nowhere.
#![allow(clippy::unwrap_used, dead_code, missing_docs)]

pub mod page;
pub mod paper;
pub mod places;
pub mod poison;
pub mod scan;
pub mod suite;

use std::collections::BTreeMap;

use serde_json::json;
use vmio_model::cell::*;
use vmio_model::figure::{Distribution, Reading, Unit};
use vmio_model::result::*;
use vmio_model::run::Run;
use vmio_model::study::Study;

/// A small deterministic generator (Knuth's MMIX constants), for noise that is the same each time.
pub struct Noise(pub u64);

impl Noise {
    /// A factor within `1 ± spread`.
    pub fn factor(&mut self, spread: f64) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        1.0 + spread * (((self.0 >> 33) as f64 / (1u64 << 31) as f64) * 2.0 - 1.0)
    }
}

pub fn attachment(driver: &str, cache: Cache, aio: Aio, iothread: bool) -> Option<Attachment> {
    Some(Attachment::new(driver, cache, aio).iothread(iothread))
}

pub fn cell(target: &str, attachment: Option<Attachment>, workload: &str) -> Cell {
    Cell::on(if attachment.is_some() { "qemu" } else { "native" }, target, attachment, workload)
}

pub fn environment(accel: Option<Accel>) -> Environment {
    Environment {
        vmio: "0.1.0".into(),
        kernel: "6.1.0-28-amd64".into(),
        guest_kernel: Some("6.1.0-28-amd64".into()),
        cpu: "FIXTURE CPU 9000 16-Core <\"&'>".into(),
        cpus: 32,
        memory_bytes: 128 << 30,
        accel,
        accel_reason: match accel {
            Some(Accel::Tcg) => "KVM did not run the guest's kernel within 10 s".into(),
            _ => "a probe boot under KVM took 0.9 s".into(),
        },
        qemu: Some("QEMU emulator version 7.2.15 (Debian 1:7.2+dfsg-7+deb12u12)".into()),
        fio: Some("fio-3.33".into()),
        backing: "nvme0n1, ext4 on /var/lib/vmio".into(),
        vcpus: 1,
        memory_mib: 512,
        native_limits: "cgroup v1".into(),
        guest_kernel_file: Some("/srv/kernels/vmlinuz-6.12.0".into()),
        qemu_limits: Some("cgroup v1: cpuset 0,1, memory 24105 MiB, no swap".into()),
        ..Environment::default()
    }
}

/// A meter of the machine at so many watts, for two seconds.
pub fn metered(watts: f64) -> ProbeResult {
    let of = |figure: &str, value: f64| Reading::scalar(figure, value).with(DOMAIN, "machine");
    let units = [(ENERGY, Unit::Joules), (POWER, Unit::Watts)].map(|(name, unit)| (name.to_owned(), unit)).into();
    let figures = vec![of(ENERGY, 2.0 * watts), of(POWER, watts)];
    ProbeResult { units, ..ProbeResult::here(Watched::Other("ipmi".into()), "ipmi", figures) }
}

/// The machine at rest, by that meter.
pub fn at_rest(watts: f64) -> AtRest {
    AtRest { started_unix: 1_790_000_000.0, seen: vec![metered(watts)], marks: Vec::new() }
}

fn traits(name: &str, reads: bool, sequential: bool, block_bytes: u64, depth: u32, direct: bool) -> WorkloadTraits {
    let engine = "libaio".to_owned();
    let disk = DiskTraits { reads, writes: !reads, sequential, block_bytes, depth, direct, engine };
    let (figures, judged_by) = disk.figures(!name.starts_with("dd"));
    WorkloadTraits { name: name.into(), figures, judged_by: judged_by.into(), disk: Some(disk), group: None }
}

pub fn workloads() -> Vec<WorkloadTraits> {
    vec![
        traits("durable-append", false, true, 4096, 1, false),
        traits("seq-write", false, true, 65536, 8, true),
        traits("seq-read", true, true, 65536, 8, true),
        traits("rand-read-1", true, false, 4096, 1, true),
        traits("rand-read-32", true, false, 4096, 32, true),
        traits("rand-write-32", false, false, 4096, 32, true),
        traits("dd-write", false, true, 65536, 1, false),
    ]
}

/// Figure of a cell (requests a second) before noise.
fn iops(target: &str, attachment: Option<&Attachment>, workload: &str) -> f64 {
    let native = match workload {
        "durable-append" => 2600.0,
        "seq-write" => 9800.0,
        "seq-read" => 10400.0,
        "rand-read-1" => 16000.0,
        "rand-read-32" => 68000.0,
        "rand-write-32" => 61000.0,
        _ => 8700.0,
    };
    let sparse = if target == "sparse" && !workload.contains("read") { 0.7 } else { 1.0 };
    let share = match attachment {
        None => 1.0,
        Some(a) if a.driver == "lsi53c895a" => {
            if workload.contains("32") {
                0.022
            } else {
                0.31
            }
        }
        Some(a) if a.cache == Cache::Writeback => {
            if workload == "seq-read" {
                1.12
            } else {
                0.36
            }
        }
        Some(_) => {
            if workload.contains("32") {
                0.2
            } else {
                0.44
            }
        }
    };
    native * share * sparse
}

pub fn sample(noise: &mut Noise, cell: Cell, traits: &WorkloadTraits, round: u32) -> Sample {
    let disk = traits.disk.as_ref().unwrap();
    let spread = if cell.workload() == "dd-write" { 0.5 } else { 0.06 };
    let rate = iops(cell.target().unwrap(), cell.attachment(), cell.workload()) * noise.factor(spread);
    let seconds = 4.0 * noise.factor(0.001);
    let ios = (rate * seconds) as u64;
    let bytes = ios * disk.block_bytes;
    let mean = f64::from(disk.depth) / rate;
    let shape = [
        (1.0, 0.62),
        (5.0, 0.7),
        (10.0, 0.74),
        (20.0, 0.8),
        (30.0, 0.85),
        (40.0, 0.89),
        (50.0, 0.93),
        (60.0, 0.98),
        (70.0, 1.04),
        (80.0, 1.13),
        (90.0, 1.3),
        (95.0, 1.6),
        (99.0, 3.4),
        (99.5, 5.0),
        (99.9, 11.0),
        (99.95, 15.0),
        (99.99, 28.0),
    ];
    let fio = !cell.workload().starts_with("dd");
    let percentiles = shape.iter().map(|(p, f)| (*p, f * mean * noise.factor(0.04))).collect();
    let raw = if fio {
        json!({"fio version": "fio-3.33", "FIXTURE": true, "jobs": [{"jobname": cell.workload(), "iops": rate}]})
    } else {
        json!("FIXTURE: 1073741824 bytes (1.1 GB, 1.0 GiB) copied, 1.9 s, 565 MB/s")
    };
    let work = DiskWork {
        read_bytes: if disk.reads { bytes } else { 0 },
        write_bytes: if disk.reads { 0 } else { bytes },
        ios,
        seconds,
        latency: fio.then_some(Distribution { mean, percentiles }),
    };
    let command = format!("fio --name={} --bs={} --iodepth={}", cell.workload(), disk.block_bytes, disk.depth);
    let cached = cell.attachment().is_some_and(|a| a.cache == Cache::Writeback) && disk.reads;
    let moved = if cached { bytes / 5 } else { bytes };
    let request_bytes = if disk.sequential && disk.direct { 65536.0 } else { 4096.0 };
    let device = DeviceUse {
        seconds,
        read_ios: if disk.reads { (moved as f64 / request_bytes) as u64 } else { 0 },
        write_ios: if disk.reads { 0 } else { (moved as f64 / request_bytes) as u64 },
        read_bytes: if disk.reads { moved } else { 0 },
        write_bytes: if disk.reads { 0 } else { moved },
        flush_ios: if cell.workload() == "durable-append" { ios } else { 0 },
        request_bytes,
        queue_depth: f64::from(disk.depth) * if cell.is_native() { 0.97 } else { 0.4 },
        busy_ratio: Some(if cell.is_native() { 0.98 } else { 0.61 }),
    };
    let by_role = if cell.is_native() {
        BTreeMap::new()
    } else {
        BTreeMap::from([("vcpu".into(), 0.9 * seconds), ("main".into(), 0.3 * seconds)])
    };
    let device = (cell.target() != Some("zvol")).then_some(device);
    let busy = cell.workload() == "rand-write-32" && cell.target() == Some("sparse");
    Sample {
        round,
        boot: round % 3,
        started_unix: 1.79e9 + f64::from(round) * 100.0,
        result: work.result(raw, command),
        beside: Vec::new(),
        seen: seen_around(device, &CpuUse { host_seconds: 1.4 * seconds, by_role, ..CpuUse::default() }),
        foreign: Foreign {
            before_bytes_per_second: 2048.0,
            before_ios_per_second: 0.5,
            during_bytes_ratio: Some(if busy { 0.31 } else { 0.01 }),
            during_ios_ratio: Some(if busy { 0.28 } else { 0.01 }),
        },
        marks: [(cached, Mark::Cached), (busy, Mark::HostBusy)].iter().filter(|m| m.0).map(|m| m.1).collect(),
        cell,
    }
}

/// A run with two targets, three attachments, seven workloads and eight rounds.
pub fn run(accel: Accel) -> Run {
    let mut noise = Noise(42);
    let workloads = workloads();
    let sides = [
        None,
        attachment("lsi53c895a", Cache::None, Aio::Native, false),
        attachment("virtio-blk", Cache::None, Aio::Native, false),
        attachment("virtio-blk", Cache::Writeback, Aio::Threads, false),
    ];
    let mut samples = Vec::new();
    for round in 0..8 {
        for target in ["device", "sparse"] {
            for side in &sides {
                for traits in &workloads {
                    samples.push(sample(&mut noise, cell(target, side.clone(), &traits.name), traits, round));
                }
            }
        }
    }
    let uring = attachment("virtio-blk", Cache::None, Aio::IoUring, true);
    let skipped = vec![
        Skipped {
            cell: cell("device", uring.clone(), "seq-write"),
            reason: "QEMU here was built without io_uring: install a QEMU that has it".into(),
        },
        Skipped {
            cell: cell("preallocated", None, "dd-write"),
            reason: "needs 2.1 GiB, 1.3 GiB are free: name another place with --on <PATH>".into(),
        },
    ];
    let effective = BTreeMap::from([(
        "device/qemu/virtio-blk,none,native".to_owned(),
        BTreeMap::from([
            ("cache.direct".to_owned(), "true".to_owned()),
            ("aio".to_owned(), "native".to_owned()),
            ("num-queues".to_owned(), "1".to_owned()),
        ]),
    )]);
    Run {
        id: 0,
        kind: "quick".into(),
        study: study("quick"),
        command: ["vmio", "tax", "--quick", "--yes"].map(String::from).to_vec(),
        started_unix: 1_790_000_000.0,
        state: RunState::Done,
        environment: environment(Some(accel)),
        workloads,
        effective,
        samples,
        skipped,
    }
}

/// FIXTURE: a study that names no cell.
pub fn study(name: &str) -> Study {
    let text = format!(
        "name = {name:?}\ntitle = ''\ncites = ''\n[guest]\nvcpus = 1\nmemory_mib = 256\n[repeat]\nmin_pairs = 5\n\
         max_pairs = 12\nmin_boots = 3\nhalf_width = 0.05\nseconds = 1.0\nmax_minutes = 10.0\n"
    );
    toml::from_str(&text).unwrap()
}

/// Puts a run into a store as the runner would, and gives its number.
pub fn store_run(store: &vmio::store::Store, run: &Run) -> i64 {
    let id = store
        .new_run(&vmio::store::NewRun {
            kind: &run.kind,
            study: &run.study,
            command: &run.command,
            started_unix: run.started_unix,
            environment: &environment(None),
            workloads: &run.workloads,
        })
        .unwrap();
    for sample in &run.samples {
        store.add_sample(id, sample).unwrap();
    }
    for skipped in &run.skipped {
        store.add_skipped(id, skipped).unwrap();
    }
    for (attachment, settings) in &run.effective {
        store.add_effective(id, attachment, settings).unwrap();
    }
    store.set_environment(id, &run.environment).unwrap();
    store.set_state(id, &run.state).unwrap();
    id
}

/// The beginning of a bzImage of this release, and nothing else of one (Linux Documentation/arch/x86/boot.rst).
#[allow(dead_code)]
pub fn bzimage(release: &str) -> Vec<u8> {
    let mut image = vec![0; 0x400];
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    image[0x300..0x300 + release.len()].copy_from_slice(release.as_bytes());
    image
}
