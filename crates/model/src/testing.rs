//! Made-up runs for tests: each cell has given figures, scattered by a generator with a fixed seed.

#![allow(clippy::unwrap_used)]

mod live;

use std::collections::BTreeMap;

use crate::cell::{self, Aio, Attachment, Baseline, Cache, Cell, Side};
use crate::facts::{Facts, facts_of};
use crate::figure::{Distribution, Figure, Reading, Unit};
use crate::result::{
    Accel, BANDWIDTH, CpuUse, DOMAIN, DeviceUse, DiskTraits, DiskWork, ENERGY, Environment, Foreign, Mark, POWER,
    ProbeResult, RunState, Sample, Watched, WorkloadResult, WorkloadTraits, seen_around,
};
use crate::run::Run;
use crate::study::Study;
use crate::summary::summarise;

pub use live::{
    live_disk, live_nic, live_processors, of_nic, of_processors, on_filesystem, read_from_db1, settings, way,
};

/// Numerical Recipes' 64-bit linear congruential generator.
pub struct Lcg(pub u64);

impl Lcg {
    /// Uniform in 0 to 1, never 0.
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    }

    /// Standard normal (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (u, v) = (self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

/// A native cell.
pub fn native(target: &str, workload: &str) -> Cell {
    Cell::on("native", target, None, workload)
}

/// A guest cell with cache=none, aio=native and no I/O thread.
pub fn guest(target: &str, driver: &str, workload: &str) -> Cell {
    Cell::on("qemu", target, Some(Attachment::new(driver, Cache::None, Aio::Native)), workload)
}

/// A guest, or without a card the native side, on a path to the host.
pub fn over_bridge(nic: Option<&str>, workload: &str) -> Cell {
    let side = if nic.is_some() { Side::of("qemu") } else { Side::native() };
    let nic = nic.map(cell::Nic::new);
    Cell::of(side, cell::Subject::path("bridge", "host", nic), workload)
}

/// On a bridge 10 Gbit/s, and `seen` under a setting; natively 40 and 35.
pub fn over_bridge_under(setting: &str, value: &str, seen: f64) -> Facts {
    let mut under = over_bridge(Some("virtio-net"), "iperf3-tcp");
    under.settings.insert(setting.into(), value.into());
    Bench::new()
        .cell(over_bridge(None, "iperf3-tcp"), 40e9)
        .cell(under.natively(), 35e9)
        .cell(under, seen)
        .cell(over_bridge(Some("virtio-net"), "iperf3-tcp"), 10e9)
        .facts()
}

/// [`guest`] by virtio-blk.
pub fn virtio(target: &str, workload: &str) -> Cell {
    guest(target, "virtio-blk", workload)
}

/// One request of a job (`rand-read`, `rand-write`) in flight and 32, natively and with virtio-blk. With one the
/// guest's device has this queue depth and busy ratio; with 32 `many`.
pub fn one_and_many(job: &str, (queue_depth, busy): (f64, f64), many: f64) -> Facts {
    let (one, more) = (format!("{job}-1"), format!("{job}-32"));
    let guest = virtio("device", &one);
    Bench::new()
        .cell(native("device", &one), 15e3)
        .cell(guest.clone(), 4.6e3)
        .device(&guest, 4096.0, queue_depth, busy)
        .cell(native("device", &more), 60e3)
        .cell(virtio("device", &more), many)
        .facts()
}

/// What a meter reported of a domain.
pub fn meter(name: &str, domain: &str, joules: f64, watts: f64) -> ProbeResult {
    let reading = |figure: &str, value| Reading::scalar(figure, value).with(DOMAIN, domain);
    let units = [(ENERGY, Unit::Joules), (POWER, Unit::Watts)].map(|(name, unit)| (name.to_owned(), unit)).into();
    let figures = vec![reading(ENERGY, joules), reading(POWER, watts)];
    ProbeResult { units, ..ProbeResult::here(Watched::Other(name.into()), name, figures) }
}

/// The traits of all workloads as the host declares them.
pub fn traits() -> Vec<WorkloadTraits> {
    let of = |name: &str, disk: DiskTraits| {
        let (figures, judged_by) = disk.figures(true);
        WorkloadTraits { name: name.into(), figures, judged_by: judged_by.into(), disk: Some(disk), group: None }
    };
    let job = |name: &str, writes: bool, sequential: bool, block_bytes: u64, depth: u32| DiskTraits {
        reads: !writes,
        writes,
        sequential,
        block_bytes,
        depth,
        direct: !name.starts_with("dd"),
        engine: String::new(),
    };
    let one = |name: &str, writes: bool, sequential: bool, block_bytes: u64, depth: u32| {
        of(name, job(name, writes, sequential, block_bytes, depth))
    };
    let mut sweeps = Vec::new();
    for depth in [1, 2, 4, 8, 16] {
        for (engine, uring) in [("libaio", ""), ("io_uring", "-uring")] {
            for (direct, buffered) in [(true, ""), (false, "-buffered")] {
                let name = format!("seq-read-64k-d{depth}{uring}{buffered}");
                sweeps.push(of(
                    &name,
                    DiskTraits { direct, engine: engine.into(), ..job(&name, false, true, 65536, depth) },
                ));
            }
        }
    }
    let mut all = vec![
        one("dd-write", true, true, 65536, 1),
        one("dd-read", false, true, 65536, 1),
        one("seq-write", true, true, 65536, 1),
        one("seq-read", false, true, 65536, 1),
        one("rand-read-1", false, false, 4096, 1),
        one("rand-read-32", false, false, 4096, 32),
        one("rand-write-1", true, false, 4096, 1),
        one("rand-write-32", true, false, 4096, 32),
        one("durable-append", true, true, 4096, 1),
        one("seq-write-512k-d16", true, true, 512 << 10, 16),
        one("seq-write-8k-d16", true, true, 8192, 16),
        one("seq-write-8k-d1", true, true, 8192, 1),
    ];
    all.extend(sweeps);
    all.extend(["iperf3-tcp", "iperf3-tcp-reverse"].map(|name| WorkloadTraits {
        name: name.into(),
        figures: vec![Figure::rate(BANDWIDTH, Unit::BitsPerSecond)],
        judged_by: BANDWIDTH.into(),
        disk: None,
        group: None,
    }));
    all
}

struct Planned {
    cell: Cell,
    figure: f64,
    device: (f64, f64, f64),
    mark: Option<Mark>,
    iothread_seconds: f64,
    moved: f64,
}

/// Builds a run: cells with their true figures, and rounds of samples scattered around them.
pub struct Bench {
    cells: Vec<Planned>,
    rounds: u32,
    half_width: f64,
    /// Standard deviation of the logarithm of a sample.
    pub scatter: f64,
    seed: u64,
    id: i64,
}

impl Bench {
    pub fn new() -> Bench {
        Bench { cells: Vec::new(), rounds: 6, half_width: 0.05, scatter: 0.01, seed: 7, id: 1 }
    }

    pub fn cell(mut self, cell: Cell, figure: f64) -> Bench {
        self.cells.push(Planned {
            cell,
            figure,
            device: (0.0, 1.0, 0.9),
            mark: None,
            iothread_seconds: 0.0,
            moved: 1.0,
        });
        self
    }

    /// The device in a cell: request bytes, queue depth, busy ratio.
    pub fn device(mut self, cell: &Cell, request_bytes: f64, queue_depth: f64, busy: f64) -> Bench {
        self.find(cell).device = (request_bytes, queue_depth, busy);
        self
    }

    pub fn mark(mut self, cell: &Cell, mark: Mark) -> Bench {
        self.find(cell).mark = Some(mark);
        self
    }

    /// CPU seconds of QEMU's I/O thread in each second of the cell.
    pub fn iothread(mut self, cell: &Cell, seconds: f64) -> Bench {
        self.find(cell).iothread_seconds = seconds;
        self
    }

    /// Bytes that the device moves for each byte of the cell's.
    pub fn moved(mut self, cell: &Cell, factor: f64) -> Bench {
        self.find(cell).moved = factor;
        self
    }

    pub fn rounds(self, rounds: u32) -> Bench {
        Bench { rounds, ..self }
    }

    pub fn scatter(self, scatter: f64) -> Bench {
        Bench { scatter, ..self }
    }

    pub fn half_width(self, half_width: f64) -> Bench {
        Bench { half_width, ..self }
    }

    pub fn seed(self, seed: u64) -> Bench {
        Bench { seed, id: seed as i64, ..self }
    }

    fn find(&mut self, cell: &Cell) -> &mut Planned {
        self.cells.iter_mut().find(|c| c.cell == *cell).unwrap()
    }

    pub fn facts(self) -> Facts {
        let run = self.run();
        facts_of(&run, &summarise(&run))
    }

    pub fn run(self) -> Run {
        let workloads = traits();
        let mut random = Lcg(self.seed);
        let mut samples = Vec::new();
        for round in 0..self.rounds {
            for cell in &self.cells {
                let traits = workloads.iter().find(|w| w.name == cell.cell.workload()).unwrap();
                let figure = cell.figure * (self.scatter * random.normal()).exp();
                samples.push(sample(cell, traits, figure, round));
            }
        }
        Run {
            id: self.id,
            kind: "made-up".into(),
            study: study(self.half_width),
            command: vec!["vmio".into(), "tax".into()],
            started_unix: 1.0,
            state: RunState::Done,
            environment: environment(),
            workloads,
            effective: BTreeMap::new(),
            samples,
            skipped: Vec::new(),
        }
    }
}

/// A baseline as a study writes it.
pub fn baseline(text: &str) -> Baseline {
    #[derive(serde::Deserialize)]
    struct Written {
        baseline: Baseline,
    }
    toml::from_str::<Written>(&format!("baseline = {text}")).unwrap().baseline
}

/// A study without cells.
fn study(half_width: f64) -> Study {
    let text = format!(
        "name = 'made-up'\ntitle = ''\ncites = ''\n[guest]\nvcpus = 1\nmemory_mib = 256\n[repeat]\nmin_pairs = 5\n\
         max_pairs = 12\nmin_boots = 3\nhalf_width = {half_width}\nseconds = 1.5\nmax_minutes = 5.0\nmax_gib_written = 20.0\n"
    );
    toml::from_str(&text).unwrap()
}

fn sample(cell: &Planned, traits: &WorkloadTraits, figure: f64, round: u32) -> Sample {
    let seconds = 1.5;
    let Some(job) = &traits.disk else { return over_a_path(cell, figure, round) };
    let bytes = figure * seconds * if traits.judged_by == BANDWIDTH { 1.0 } else { job.block_bytes as f64 };
    let (request, queue_depth, busy_ratio) = cell.device;
    let request_bytes = if request > 0.0 { request } else { job.block_bytes as f64 };
    let ios = (bytes / request_bytes) as u64;
    let side = |on: bool, amount: f64| if on { amount as u64 } else { 0 };
    Sample {
        cell: cell.cell.clone(),
        round,
        boot: round / 2,
        started_unix: f64::from(round),
        result: DiskWork {
            read_bytes: side(job.reads, bytes),
            write_bytes: side(job.writes, bytes),
            ios: (bytes / job.block_bytes as f64) as u64,
            seconds,
            latency: Some(Distribution {
                mean: 1.0 / figure,
                percentiles: vec![(50.0, 1.0 / figure), (99.0, 3.0 / figure)],
            }),
        }
        .result(serde_json::Value::Null, "fio".into()),
        beside: Vec::new(),
        seen: seen_around(
            Some(DeviceUse {
                seconds,
                read_ios: side(job.reads, ios as f64),
                write_ios: side(job.writes, ios as f64),
                read_bytes: side(job.reads, bytes * cell.moved),
                write_bytes: side(job.writes, bytes * cell.moved),
                flush_ios: 3,
                request_bytes,
                queue_depth,
                busy_ratio: Some(busy_ratio),
            }),
            &CpuUse {
                host_seconds: 0.5,
                kernel_seconds: None,
                by_role: BTreeMap::from([("vcpu".into(), 0.25), ("iothread".into(), cell.iothread_seconds * seconds)]),
            },
        ),
        foreign: Foreign::default(),
        marks: cell.mark.into_iter().collect(),
    }
}

/// A sample of a workload without a disk, with one figure.
fn over_a_path(cell: &Planned, figure: f64, round: u32) -> Sample {
    let figures = vec![Reading::scalar(BANDWIDTH, figure)];
    Sample {
        cell: cell.cell.clone(),
        round,
        boot: round / 2,
        started_unix: f64::from(round),
        result: WorkloadResult { seconds: 1.5, figures, raw: serde_json::Value::Null, command: "iperf3".into() },
        beside: Vec::new(),
        seen: Vec::new(),
        foreign: Foreign::default(),
        marks: Vec::new(),
    }
}

fn environment() -> Environment {
    Environment {
        vmio: "0.1.0".into(),
        kernel: "6.1".into(),
        guest_kernel: Some("6.1".into()),
        cpu: "a CPU".into(),
        cpus: 2,
        memory_bytes: 24 << 30,
        accel: Some(Accel::Kvm),
        accel_reason: "made up".into(),
        qemu: Some("7.2".into()),
        fio: Some("3.33".into()),
        backing: "vda ext4 /".into(),
        vcpus: 1,
        memory_mib: 256,
        native_limits: "cgroup v1".into(),
        ..Environment::default()
    }
}
