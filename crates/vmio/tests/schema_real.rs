//! Real outputs of the program against their schemas: of this machine, of stand-ins for guests of several
//! kinds, of a store with runs, of policies. What only a guest or root has is held against its schema where it is
//! printed (`tests/guest_*.rs`, `tests/root_*.rs`).
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::figures;
use crate::help::full;
use crate::help::schema;
use crate::help::stand_in;
use crate::help::state_dir::StateDir;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use schema::{fits, named, seen};
use serde_json::Value;
use stand_in::StandIn;
use vmio::cmd::schema::ALL;
use vmio::report::explain::{Document, GuestLayers, RunLayers, SCHEMA_VERSION, UNSEEN};
use vmio::report::export::{Format, export};
use vmio::report::{self, Report};
use vmio::store::Store;
use vmio_model::cell::{Arch, Millis, Subject};
use vmio_model::figure::{Reading, Unit};
use vmio_model::modelled::{ModelAccuracy, ModelledDisk};
use vmio_model::paper::judge;
use vmio_model::result::{
    Accel, CACHED_AFTER, CACHED_BEFORE, COMPONENT, CpuUse, LOST, Mark, ProbeResult, READ, ROLE, RunState, SAMPLED,
    SAMPLES, SOURCE, Watched,
};
use vmio_model::run::Run;
use vmio_model::stats::{Estimate, Interval, Pair};
use vmio_model::summary::summarise;
use vmio_model::summary::wires::{Carried, Wire};
use vmio_model::waterfall::cells::{self, Bound, CellLayers, DeviceView, Times, Untimed, Why};
use vmio_model::waterfall::cost::TracingCost;
use vmio_model::waterfall::host::LiveCalls;
use vmio_model::waterfall::hypervisor::{HypervisorPart, LiveHypervisor};
use vmio_model::waterfall::live::{LiveDisk, Thread};
use vmio_model::waterfall::paths::{Busy, PathLayers};
use vmio_model::waterfall::{Layer, Waterfall};

/// A guest of QEMU's, with two disks and two network cards.
fn qemu(dir: &Path, name: &str) -> StandIn {
    let disk = dir.join(format!("{name}.raw"));
    fs::write(&disk, vec![0x5au8; 1 << 20]).unwrap();
    let file = format!("file={},format=raw,if=none,id=drive0,cache=writeback,aio=threads", disk.display());
    let throttled = format!("file={},format=raw,if=ide,cache=none,throttling.iops-total=100", disk.display());
    let options = format!(
        "-name guest={name},debug-threads=on -uuid 8f1f8a6c-0000-4000-8000-000000000001 -machine q35 -accel tcg \
         -cpu qemu64,+aes -m 64 -smp 2 -object iothread,id=io1 -drive {file} \
         -device virtio-blk-pci,drive=drive0,id=disk0,iothread=io1,num-queues=2 -drive {throttled} \
         -netdev tap,id=n0,ifname=tapzz0,vhost=off -device e1000,netdev=n0,id=net0 -netdev user,id=n1 \
         -device virtio-net-pci,netdev=n1,id=net1,host_mtu=1400,csum=off -qmp unix:/nowhere/web.qmp"
    );
    StandIn::start("qemu-system-x86_64", options.split(' '))
}

const FIRECRACKER: &str = r#"{"boot-source": {"kernel_image_path": "vmlinux"},
    "drives": [{"drive_id": "rootfs", "path_on_host": "/rootfs.ext4", "is_root_device": true, "is_read_only": false,
        "cache_type": "Unsafe", "io_engine": "Sync", "rate_limiter": {"ops": {"size": 50, "refill_time": 1000}}}],
    "machine-config": {"vcpu_count": 2, "mem_size_mib": 256, "smt": false, "huge_pages": "2M"},
    "network-interfaces": [{"iface_id": "eth0", "guest_mac": "AA:FC:00:00:00:01", "host_dev_name": "tapzz7"}]}"#;

/// Guests of three kinds.
fn guests(dir: &Path) -> Vec<StandIn> {
    let config = dir.join("vm.json");
    fs::write(&config, FIRECRACKER).unwrap();
    let disk = dir.join("hypervisor.raw");
    fs::write(&disk, vec![0u8; 1 << 20]).unwrap();
    let disk = format!("path={}", disk.display());
    vec![
        qemu(dir, "schema-web"),
        StandIn::start("firecracker", ["--id", "schema-fc", "--config-file", config.to_str().unwrap(), "--no-api"]),
        StandIn::start("cloud-hypervisor", ["--cpus", "boot=2", "--memory", "size=256M", "--disk", &disk]),
    ]
}

/// What is printed of the outputs, by their names.
#[derive(Default)]
struct Printed(Vec<(&'static str, String)>);

impl Printed {
    fn add(&mut self, name: &'static str, text: String) {
        fits(name, &text);
        self.0.push((name, text));
    }

    fn run(&mut self, name: &'static str, state: &Path, args: &str) {
        let dir = state.display().to_string();
        let words: Vec<String> = args.split(' ').map(|word| word.replace("DIR", &dir)).collect();
        let command = Command::new(env!("CARGO_BIN_EXE_vmio"))
            .args(&words)
            .env("VMIO_STATE", state)
            .current_dir(state)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&command.stderr);
        // 1: a run that is not taken over, 2: a refused policy, 3: a machine that lacks something; the JSON says which.
        assert!(matches!(command.status.code(), Some(0..=3)), "{args}: {said}");
        let text = String::from_utf8(command.stdout).unwrap();
        assert!(!text.is_empty(), "{args} printed nothing: {said}");
        self.add(name, text);
    }
}

/// A run without disks whose study, actors and guests leave nothing to what is usual.
fn said_in_full() -> vmio_model::run::Run {
    let mut run = figures::run(figures::BASELINES[1]);
    let like = "side = \"qemu\"\ntarget = \"device\"\nstate = \"filled\"\nnetwork = \"veth\"\npeer = \"host\"\n\
                workload = \"udp\"\n";
    let text = run.study.to_toml().replace("[baseline.like]\n", &format!("[baseline.like]\n{like}"));
    run.study = toml::from_str(&text).unwrap();
    for lead in run.samples.iter_mut().map(|s| &mut s.cell.lead).filter(|lead| !lead.side.shape.is_plain()) {
        (lead.start, lead.duration) = (Millis(100), Some(Millis(900)));
        let shape = &mut lead.side.shape;
        (shape.machine, shape.kernel) = (Some("q35".into()), Some("6.12.0-1-amd64".into()));
        (shape.arch, shape.memory_mib) = (Arch::Aarch64, Some(512));
    }
    for actor in run.samples.iter_mut().flat_map(|s| s.cell.actors_mut()) {
        if let Subject::Path { nic: Some(nic), co_sender, .. } = &mut actor.subject {
            nic.ring = Some(512);
            *co_sender = Some("neighbour".into());
        }
    }
    run
}

/// Runs: 1 emulated, 2 with KVM and broken off, 3 what `--prove` showed of 1, 4 of a paper's study, 5 that failed
/// and saw no device, 6 one with every option, 7 the paper's once more, emulated, 8 and 9 without disks, compared with
/// native and with other cells, 10 with two at work on disks at once, 11 as 8 with its network in other units,
/// 12 of a paper's study over networks, 13 with groups of workloads, 14 and 15 of the same paper on networks and disks,
/// 16 of a paper's study of cache locations, with a meter and samples of the processors.
fn stock(dir: &Path) {
    let store = Store::open(&dir.join("vmio.db")).unwrap();
    let mut first = common::run(Accel::Tcg);
    sampled(&mut first, "libc");
    assert_eq!(common::store_run(&store, &first), 1);
    let mut second = common::run(Accel::Kvm);
    sampled(&mut second, "kvm");
    second.state = RunState::Interrupted("Ctrl-C".into());
    second.environment.kernel = "6.12.0-1-amd64".into();
    second.environment.cap_ratio = Some(0.25);
    second.environment.node = Some("lab host (FIXTURE)".into());
    let kept = ModelAccuracy { requests: 1000, late_requests: 20, mean_lateness_microseconds: 12.5 };
    let disk = ModelledDisk::parse("40MB/s,size=4GiB").unwrap();
    second.environment.modelled = Some(ModelledDisk { kept: Some(kept), ..disk });
    second.samples.retain(|s| s.cell.workload() != "seq-read");
    common::store_run(&store, &second);
    let stored = store.load(1).unwrap();
    let proof = Report::of(&stored).findings.into_iter().find_map(|f| f.proof).unwrap();
    let mut proven = first.clone();
    proven.kind = vmio_model::kind::RunKind::Proof(1);
    proven.samples.retain(|s| s.cell == proof.before || s.cell == proof.after);
    common::store_run(&store, &proven);
    let mut paper = common::paper::run(Accel::Kvm);
    sampled(&mut paper, "libc");
    common::store_run(&store, &paper);
    let mut failed = common::run(Accel::Kvm);
    // CPU time by the clock of processes, and a device stall.
    let exact = CpuUse { host_seconds: 9.0, kernel_seconds: Some(1.5), ..CpuUse::default() };
    for sample in &mut failed.samples {
        for mut seen in exact.seen("guest").into_iter().filter(|seen| seen.watched == Watched::Others) {
            seen.figures.push(Reading::scalar("seconds", 1.0));
            let of_container = Watched::Container("container".into());
            sample.seen.push(ProbeResult { watched: of_container, ..seen.clone() });
            sample.seen.push(seen);
        }
        let figures =
            [(CACHED_BEFORE, 1e6), (CACHED_AFTER, 5e8)].map(|(name, bytes)| Reading::scalar(name, bytes)).into();
        sample.seen.push(ProbeResult::here(Watched::PageCache("device".into()), "page-cache", figures));
        let counted =
            ProbeResult::here(Watched::Drive("device".into()), "blockstats", vec![Reading::scalar(READ, 1e6)]);
        sample.seen.push(ProbeResult { node: "qemu".into(), ..counted });
        let counted = ["received", "sent"].into_iter().flat_map(|way| {
            [("bytes", 5e8), ("packets", 4e5), ("dropped", 3.0)]
                .map(|(name, count)| Reading::scalar(name, count).with("way", way))
        });
        let figures = [Reading::scalar("seconds", 1.0)].into_iter().chain(counted).collect();
        sample.seen.push(ProbeResult::here(Watched::Link("tap0".into()), "link", figures));
        // A reading of a probe without a table of its own, on another machine.
        let figures = vec![Reading::scalar("energy", 90.0).with("domain", "package-0")];
        let units = BTreeMap::from([("energy".to_owned(), Unit::Joules)]);
        let there = ProbeResult::here(Watched::Other("powercap".into()), "powercap", figures);
        sample.seen.push(ProbeResult { node: "far".into(), units, ..there });
    }
    failed.environment.at_rest = [199.0, 201.0].map(common::at_rest).into();
    failed.samples.iter_mut().for_each(|sample| sample.seen.push(common::metered(300.0)));
    sampled(&mut failed, "kvm");
    failed.samples[0].marks.push(Mark::Stalled);
    failed.state = RunState::Failed("FIXTURE: the disk was pulled".into());
    failed.samples.truncate(30);
    failed.samples.iter_mut().for_each(|s| s.put_device(None));
    common::store_run(&store, &failed);
    common::store_run(&store, &full::run());
    common::store_run(&store, &common::paper::run(Accel::Tcg));
    for run in [figures::run(figures::BASELINES[0]), said_in_full(), figures::on_a_disk()] {
        common::store_run(&store, &run);
    }
    let mut bytes = figures::run(figures::BASELINES[0]);
    bytes.workloads[0].figures[0].unit = Unit::BytesPerSecond;
    common::store_run(&store, &bytes);
    let mut published = figures::run(figures::BASELINES[0]);
    published.kind = vmio_model::kind::RunKind::Study("shafer2010-network".into());
    common::store_run(&store, &published);
    common::store_run(&store, &common::suite::run(Accel::Kvm));
    common::store_run(&store, &common::suite::network(Accel::Kvm));
    common::store_run(&store, &common::suite::disk(Accel::Kvm));
    let mut places = common::places::run(Accel::Tcg);
    places.environment.at_rest = [199.0, 201.0].map(common::at_rest).into();
    (places.environment.meters, places.environment.meters_planned) = (vec!["ipmi".into()], vec!["powercap".into()]);
    places.samples.iter_mut().for_each(|sample| sample.seen.push(common::metered(300.0)));
    common::store_run(&store, &places);
}

/// Adds what samples of the processors tell.
fn sampled(run: &mut Run, component: &str) {
    run.environment.sample_interrupt_seconds = Some(1e-5);
    for sample in &mut run.samples {
        let of =
            |figure: &str, value: f64| Reading::scalar(figure, value).with(ROLE, "vcpu").with(COMPONENT, component);
        let lost = Reading::scalar(LOST, 0.0).with(SOURCE, "cpu-clock");
        let figures = vec![of(SAMPLED, 0.5), of(SAMPLES, 499.0), lost];
        sample.seen.push(ProbeResult::here(Watched::Components, "components", figures));
    }
}

const POLICY: &str = include_str!("fixtures/guard.toml");

fn policies(dir: &Path) {
    fs::write(dir.join("guard.toml"), POLICY).unwrap();
    let whole =
        POLICY.replace("\"gold\"\nuplink", "\"gold\"\nrx_class = \"gold\"\naddresses = [\"192.0.2.7\"]\nuplink");
    let flow = "\n[[class.gold.flow]]\nname = \"voice\"\nmax = \"2Mbit\"\nexcess = \"drop\"\n\
        burst = \"20ms\"\n\
        match = { dscp = \"ef\", protocol = \"udp\", ports = [5060], address = \"192.0.2.0/24\" }\n";
    let delay = "\n[class.silver]\nmin = \"20Mbit\"\ndelay = \"500ms\"\njitter = \"400ms\"\n\
        memory_min = \"512MiB\"\nmemory_max = \"1GiB\"\nmemory_move = true\n\
        [[interface]]\nmatch = { name = \"vnet2\" }\nclass = \"silver\"\nuplink = \"eth0\"\n";
    let whole = whole.replace("max = \"50Mbit\"", "max = \"50Mbit\"\nexcess = \"drop\"\nburst = \"50ms\"");
    let whole = whole.replace("cpu_weight", "queue = \"25ms\"\ncpu_weight") + flow + delay;
    fs::write(dir.join("whole.toml"), whole).unwrap();
    fs::write(dir.join("refused.toml"), POLICY.replace("\"gold\"\nuplink", "\"gould\"\nuplink")).unwrap();
}

/// What is said of a host without programs, with a store that is none.
fn poor_doctor() -> String {
    let state = StateDir::new();
    fs::write(state.path().join("vmio.db"), "no database").unwrap();
    state.finish(state.command(&["doctor", "--json"]).env("PATH", "/nowhere")).with(3).out
}

/// A plan beside others whose latency is not visible: no cell of it is on a disk, so nothing is left to run.
fn blind_plan() -> String {
    let state = StateDir::new();
    let kernel = state.path().join("bzImage");
    fs::write(&kernel, common::bzimage("6.12.0")).unwrap();
    let args = ["study", "run", "network-quick", "--dry-run", "--gentle", "--json", "--guest-kernel"];
    state.finish(state.command(&args).arg(kernel)).with(3).out
}

/// What is said of a guest's layers and of a run's with all probes, as it is printed.
fn explained() -> String {
    let times = || Times { mean_seconds: 1e-3, p50_seconds: Some(9e-4), p99_seconds: Some(4e-3) };
    let disk = LiveDisk {
        name: "vda".into(),
        iops: 100.0,
        request_bytes: 4096.0,
        queue_depth: 0.1,
        queue: times(),
        device: times(),
        host: times(),
    };
    let calls = LiveCalls { reads: full::asked(Some(full::SPLIT)).reads, ..full::asked(None) };
    let part = |own_seconds, untimed| {
        let (per_second, request_bytes, whole_seconds) = (100.0, 4096.0, 2e-3);
        let (p50_seconds, p99_seconds) = (Some(1.5e-3), Some(9e-3));
        Some(HypervisorPart {
            per_second,
            request_bytes,
            whole_seconds,
            p50_seconds,
            p99_seconds,
            own_seconds,
            untimed,
        })
    };
    let guest = GuestLayers {
        name: "web1".into(),
        pid: Some(7),
        seconds: 10.0,
        hypervisor: Some(LiveHypervisor { reads: part(Some(1e-5), None), writes: part(None, Some(Why::NotSeen)) }),
        calls: Some(calls),
        disks: vec![disk],
        hypervisor_thread: Some(Thread { name: "main loop".into(), cpu_ratio: 0.5 }),
        unseen: UNSEEN.into(),
        tracing_cost: TracingCost::of(&[(1, 99.0), (2, 98.0)].map(|(boot, test)| Pair { boot, base: 100.0, test })),
        notes: vec!["FIXTURE".into()],
    };
    let waterfall = Waterfall::of(Layer::GUEST, 1e-3, &BTreeMap::from([(Layer::Hypervisor, 5e-4)]));
    let cell = CellLayers {
        key: "FIXTURE".into(),
        in_guest: true,
        samples: 1,
        latency: Some(times()),
        submission_seconds: Some(1e-6),
        waterfall: Some(waterfall),
        untimed: vec![Untimed { layer: Layer::HostBlock, why: Why::NotSeen, probe: Some("diskstats".into()) }],
        device: Some(DeviceView {
            request_bytes: 4096.0,
            queue_depth: 0.3,
            idle_ratio: Some(0.7),
            bound: Bound::Device,
        }),
    };
    let answer = cells::answer(std::slice::from_ref(&cell));
    let figure = Estimate { value: 1e3, interval: Some(Interval { low: 9e2, high: 1.1e3 }), n: 5 };
    let carried = Carried { bytes_per_second: figure, packets_per_second: figure, dropped_packets: figure };
    let path = PathLayers {
        key: "FIXTURE".into(),
        in_guest: true,
        samples: 5,
        links: vec![Wire { link: "tap0".into(), received: carried, sent: carried }],
        processors: vec![Busy { who: "vcpu".into(), cpu_ratio: 0.9 }],
    };
    let run = RunLayers { run: 1, cells: vec![cell], paths: vec![path], cells_left_out: 0, emulated: true, answer };
    vmio::document::text(&Document { schema_version: SCHEMA_VERSION, run: Some(run), guest: Some(&guest) })
}

/// Every output that a test can have without root and without a guest.
fn outputs(dir: &Path) -> Printed {
    stock(dir);
    policies(dir);
    let other = tempfile::tempdir().unwrap();
    let mut all = Printed::default();
    let stand_ins = guests(dir);
    let ignored = "scan --json --ignore sparse-file";
    for args in ["scan --json", "--json", "scan --diff --json", "scan --json schema-web --all", ignored] {
        all.run("scan", dir, args);
    }
    {
        // `top` names processes that keep the processors busy only when they are.
        let busy = |_| StandIn(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
        let _busy: Vec<StandIn> = (0..std::thread::available_parallelism().unwrap().get()).map(busy).collect();
        all.run("top", dir, "top --json --count 2 --interval 1 --no-ebpf");
    }
    all.run("doctor", dir, "doctor --json");
    all.add("doctor", poor_doctor());
    drop(stand_ins);
    let _later = qemu(dir, "schema-later");
    all.run("scan", dir, "scan --diff --json");
    all.add("scan", report::scan::json(&common::scan::view()));
    all.add("scan", report::scan::json(&full::scan()));
    all.add("top", full::top().json());
    all.add("top", full::quiet().json());
    for run in [1, 5] {
        all.run("explain", dir, &format!("explain {run} --json"));
    }
    all.add("explain", explained());
    for run in (1..=10).chain([13, 15, 16]) {
        all.run("tax", dir, &format!("runs show {run} --json"));
    }
    for run in [3, 5, 8, 13] {
        all.run("runs-export", dir, &format!("runs export {run}"));
        all.run("runs-export-pkb", dir, &format!("runs export {run} --format pkb"));
        all.run("runs-export-github", dir, &format!("runs export {run} --format github-action-benchmark"));
    }
    all.run("runs-list", dir, "runs list --json");
    for pair in ["1 2", "4 1", "8 9", "8 11"] {
        all.run("runs-compare", dir, &format!("runs compare {pair} --json"));
    }
    let file = other.path().join("run.json");
    fs::write(&file, export(&common::paper::run(Accel::Tcg), Format::Json)).unwrap();
    all.run("runs-import", dir, &format!("runs import {} DIR/none --json", file.display()));
    all.run("runs-list", other.path(), "runs list --json --state DIR/none");
    all.run("study-list", dir, "study list --json");
    let storage = ["shafer2010-storage", "hdparm", "lu2016-quick"];
    for study in storage.into_iter().chain(["shafer2010-network", "rasmusson2013", "rasmusson2013-network"]) {
        all.run("study-compare", dir, &format!("study compare {study} paper --json"));
    }
    // Tables and effects that name studies of their own.
    let mut networked = common::paper::run(Accel::Kvm);
    networked.kind = "shafer2010-ebs".into();
    all.add("tax", report::json(&Report::of(&networked)));
    let paper = vmio::papers::of_study("shafer2010-ebs").unwrap();
    all.add("study-compare", vmio::document::text(&judge(paper, &networked, &summarise(&networked))));
    let plans = [
        "tax --dry-run --json",
        "tax --dry-run --json --power-command true --power hwmon",
        "study run durability --dry-run --steady-state --json",
        "study run arm --dry-run --gentle --json",
    ];
    for args in plans {
        all.run("tax-plan", dir, args);
    }
    all.add("tax-plan", blind_plan());
    let run = Store::open_existing(&dir.join("vmio.db")).unwrap().load(1).unwrap();
    all.add("tax-noise", vmio::document::text(&vmio::run::noise::Document::of(&run)));
    for args in ["guard.toml", "whole.toml", "refused.toml", "guard.toml --host"] {
        all.run("guard-check", dir, &format!("guard check --json --config {args}"));
    }
    for more in ["", " --demand vnet0=20Mbit --algorithm dba"] {
        all.run("guard-plan", dir, &format!("guard plan --config guard.toml --json{more}"));
    }
    for of in ["--config guard.toml", "--study amamou2012"] {
        all.run("guard-simulate", dir, &format!("guard simulate {of} --seconds 1 --json"));
    }
    for args in ["create data 1MiB", "snapshot data copy", "resize data 2MiB"] {
        all.run("volume", dir, &format!("volume {args} --json"));
    }
    all.run("volume-list", dir, "volume list --json");
    all.run("schema", dir, "schema --json");
    all
}

/// Outputs that need a guest, a server or root, and the test that holds them against their schemas.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("image", "guest_schema.rs", include_str!("guest_schema.rs")),
    ("image-transfer", "object_store.rs", include_str!("object_store.rs")),
    ("guard-set", "root_guard.rs", include_str!("root_guard.rs")),
    ("guard-status", "root_guard.rs", include_str!("root_guard.rs")),
    ("study-experiment", "root_experiment.rs", include_str!("root_experiment.rs")),
];

/// What is stored of other machines.
const ELSEWHERE_MEASURED: &[&str] = &[
    "Afar.address",
    "Afar.cpu",
    "Afar.cpus",
    "Afar.device",
    "Afar.dir",
    "Afar.findings",
    "Afar.kernel",
    "Afar.memory_bytes",
    "Afar.settings",
    "Environment.afar",
    "Environment.peer",
    "Environment.peer_programs",
];

/// What a summary has of them beside.
const ELSEWHERE_FOLLOWED: &[&str] = &[
    "CellRow.over_time",
    "Knee.after",
    "Knee.at_seconds",
    "Knee.before",
    "Moment.at_seconds",
    "Moment.value",
    "OverTime.knees",
    "OverTime.moments",
];

/// Fields that this test cannot have other than as `null`, and why.
const SELDOM: &[(&str, &[&str], &str)] = &[
    ("scan", &["Provenance.name"], "a recording, which no program makes"),
    ("scan", &[".on"], "another machine: root_ssh.rs"),
    ("scan", &["Shape.arch"], "nothing is expected of a guest by figures of another processor's: docs/arm.md"),
    ("tax", &["Provenance.name"], "the same"),
    ("volume", &["Row.at", "Row.guest", "Row.host", "Row.serial"], "a volume that a guest has: root_volumes.rs"),
    ("volume-list", &["Row.at", "Row.guest", "Row.host", "Row.serial"], "the same"),
    ("volume-list", &["Remote.at", "Remote.guest", "Remote.name", "Remote.serial"], "one of another host: the same"),
    ("doctor", &[".accelerator", "Accelerator.accel", "Accelerator.reason"], "a guest found out: guest_schema.rs"),
    ("doctor", &["TryRow.seconds"], "what was tried: root_doctor.rs"),
    ("doctor", &[".other_guests_unseen"], "/proc hides processes from the user"),
    ("doctor", &["PlaceRow.name", "PlaceRow.ready", "PlaceRow.state"], "a volume group or a pool"),
    (
        "guard-check",
        &[
            "Conflict.class",
            "Conflict.guest",
            "Conflict.interface",
            "Conflict.limit",
            "Conflict.max_bps",
            "Conflict.min_bps",
            "Conflict.take_off",
            "Conflict.why",
            "HostChecked.proposal",
        ],
        "a guest that others limit: common/advice/others.rs",
    ),
    (
        "guard-check",
        &["InForceHere.guest", "InForceHere.interface", "InForceHere.limit"],
        "a guard that runs: root_guard_guests.rs",
    ),
    ("study-compare", &["CellComponents.baseline"], "a paper's study with a baseline, and samples of processors"),
    ("study-compare", &["EventTable.not_run"], "a cell of a paper's table is missing: paper/events.rs of model"),
    ("tax", &["EventTable.not_run"], "the same"),
    ("tax", &["Share.left_out_rounds"], "another's work beside: disturbed.rs of model"),
    ("tax", ELSEWHERE_MEASURED, "another machine: root_ssh.rs"),
    ("tax", ELSEWHERE_FOLLOWED, "the same; knees: seen.rs"),
    ("tax-noise", ELSEWHERE_MEASURED, "the same"),
    ("runs-export", ELSEWHERE_MEASURED, "the same"),
    ("tax-plan", &[".peer", ".peer_told"], "the same"),
    ("tax-plan", &[".form"], "guests use the storage: root_budget.rs"),
    ("tax-plan", &[".device", "Device.path", "Device.node", "Device.not_seen", "Device.identity"], "root_device.rs"),
    ("tax-plan", &["Identity.bytes", "Identity.number", "Identity.diskseq"], "root_device.rs"),
    ("tax-plan", &["Identity.serial", "Identity.wwn", "Identity.model"], "a disk that tells them"),
];

#[test]
fn real_outputs_are_what_their_schemas_say() {
    let dir = tempfile::tempdir().unwrap();
    let printed = outputs(dir.path());
    let mut there: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, text) in &printed.0 {
        there.entry(name).or_default().extend(seen(name, text));
    }
    for output in ALL {
        let elsewhere = ELSEWHERE.iter().find(|(name, ..)| *name == output.name);
        match (there.get(output.name), elsewhere) {
            (Some(_), None) => {}
            (None, Some((name, file, test))) => assert!(test.contains(&format!("fits(\"{name}\"")), "{file}: {name}"),
            (found, _) => panic!("{}: no real output, or two places for it: {}", output.name, found.is_some()),
        }
    }
    // A type that several outputs share is seen where one of them has it.
    let types: BTreeMap<&str, Value> = there.keys().map(|name| (*name, schema::output(name).schema())).collect();
    let shared = |name: &str, field: &str| -> Option<(String, String)> {
        let kind = field.split('.').next().filter(|kind| !kind.is_empty())?;
        Some((field.to_owned(), types[name]["$defs"][kind].to_string()))
    };
    let everywhere: BTreeSet<_> =
        there.iter().flat_map(|(name, seen)| seen.iter().filter_map(|field| shared(name, field))).collect();
    let mut unseen = Vec::new();
    for (name, seen) in &there {
        let excused: BTreeSet<&str> =
            SELDOM.iter().filter(|(output, ..)| output == name).flat_map(|(_, fields, _)| *fields).copied().collect();
        let named = named(name);
        let stale = excused.iter().find(|field| !named.contains(**field));
        assert_eq!(stale, None, "{name} has no such field (any more)");
        let seldom =
            |field: &str| excused.contains(field) || shared(name, field).is_some_and(|f| everywhere.contains(&f));
        unseen.extend(named.difference(seen).filter(|f| !seldom(f)).map(|field| format!("{name}: {field}")));
    }
    assert!(unseen.is_empty(), "no real output has these: show one, or say in SELDOM why not: {unseen:#?}");
}
