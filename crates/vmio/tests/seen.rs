//! What is told of a run cell by cell, beside the figures of its workloads: what the probes saw, runs on end, and a
//! change over time. It is in every form that a person reads, and only where there is any.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::figures;
use crate::help::state_dir::{is_narrow, unfolded};

use std::collections::BTreeMap;

use vmio::report::{self, Report};
use vmio::term::Style;
use vmio_model::cell::{Cell, Side, Subject};
use vmio_model::figure::{Figure, RUN, Reading, Unit};
use vmio_model::result::{
    Accel, BUSY, CACHED_AFTER, CACHED_BEFORE, COMPONENT, DeviceUse, LOST, ProbeResult, READ, REQUEST_SECONDS, REQUESTS,
    ROLE, SAMPLED, SAMPLES, SOURCE, STOLEN, WRITTEN, Watched,
};
use vmio_model::run::Run;

fn text(run: &Run) -> String {
    report::text(&Report::of(run), Style::PLAIN)
}

fn forms(run: &Run) -> [(&'static str, String); 3] {
    common::page::forms(&Report::of(run))
}

#[track_caller]
fn has(run: &Run, all: &[&str]) {
    for (form, shown) in forms(run) {
        for says in all {
            assert!(shown.contains(says), "{form}: {says} in {shown}");
        }
    }
}

/// Of a request on the emulated controller 80 % are below the guest's file system, and 20 % below QEMU's block layer.
#[test]
fn a_finding_cites_the_layer_that_shows_it() {
    let mut run = common::run(Accel::Kvm);
    let cause = |run: &Run| {
        let found = Report::of(run).findings.into_iter().find(|found| found.rule == "emulated-driver").unwrap();
        (found.cause, found.figures.into_iter().find(|cited| cited.unit == "seconds"))
    };
    let (before, none) = cause(&run);
    assert!(!before.contains("of a request") && none.is_none(), "no probe timed it: {before}");
    let is_it =
        |cell: &Cell| cell.attachment().is_some_and(|a| a.driver == "lsi53c895a") && cell.workload() == "rand-read-32";
    for sample in run.samples.iter_mut().filter(|sample| is_it(&sample.cell)) {
        let (work, each) = (sample.work(), sample.result.latency().unwrap().mean);
        let (ios, bytes) = (work.ios as f64, work.read_bytes as f64);
        let disk = DeviceUse {
            seconds: work.seconds,
            read_ios: work.ios,
            read_bytes: work.read_bytes,
            request_bytes: 4096.0,
            queue_depth: 0.8 * each * ios / work.seconds,
            busy_ratio: Some(0.9),
            ..DeviceUse::default()
        };
        let counted = [(READ, bytes), (WRITTEN, 0.0), (REQUESTS, ios), (REQUEST_SECONDS, 0.2 * each * ios)];
        let counted = counted.map(|(name, value)| Reading::scalar(name, value)).into();
        let drive = ProbeResult::here(Watched::Drive("device".into()), "blockstats", counted);
        sample.seen.extend([disk.seen("vda"), drive].map(|seen| ProbeResult { node: "qemu".into(), ..seen }));
    }
    let (after, cited) = cause(&run);
    let said = "/rand-read-32, guest's block layer + virtual I/O takes 60 % of a request (";
    assert!(after.starts_with(&before) && after.contains(said), "{after}");
    let cited = cited.unwrap();
    assert!(cited.value > 0.0 && cited.label.starts_with("guest's block layer + virtual I/O of one request: "));
}

/// The page cache where any disk was in it, and runs on end by their number.
#[test]
fn the_page_cache_and_runs_on_end_are_in_every_form() {
    let mut run = common::run(Accel::Kvm);
    assert!(forms(&run).iter().all(|(_, text)| !text.contains("page cache\n") && !text.contains("Runs on end")));
    let workload = run.samples[0].cell.workload().to_owned();
    let traits = run.workloads.iter_mut().find(|w| w.name == workload).unwrap();
    traits.figures.push(Figure::rate("buffered", Unit::BytesPerSecond).by(&[RUN]));
    for sample in run.samples.iter_mut().filter(|sample| sample.cell.workload() == workload) {
        let on_end = |(n, rate): (&str, f64)| Reading::scalar("buffered", rate).with(RUN, n);
        sample.result.figures.extend([("1", 7e6), ("2", 84e6)].map(on_end));
        let held = [(CACHED_BEFORE, 0.0), (CACHED_AFTER, f64::from(384 << 20))];
        let held = held.map(|(name, bytes)| Reading::scalar(name, bytes)).into();
        sample.seen.push(ProbeResult::here(Watched::PageCache("device".into()), "page-cache", held));
    }
    has(&run, &["The host's page cache", "384 MiB", "Runs on end", "7.00 MB/s", "84.0 MB/s"]);
    let text = text(&run);
    let tables = text.split("The host's page cache").nth(1).and_then(|rest| rest.split("Findings").next()).unwrap();
    is_narrow(tables);
}

/// What another machine gives may change while a run lasts: every form says when, and from what to what.
#[test]
fn a_machine_that_gets_slower_is_in_every_form() {
    let mut run = common::run(Accel::Kvm);
    let mut sample = run.samples.remove(0);
    sample.cell.lead.side = Side::of("ssh");
    let of_round = |round: u32| {
        let mut sample = sample.clone();
        (sample.round, sample.started_unix) = (round, run.started_unix + 60.0 * f64::from(round));
        let slower = if round < 7 { 1.0 } else { 4.0 };
        sample.result.amend(|work| work.seconds *= slower * (1.0 + 0.01 * f64::from(round % 3)));
        sample
    };
    run.samples = (0..12).map(of_round).collect();
    for (form, shown) in forms(&run) {
        let shown = unfolded(&shown);
        assert_eq!(shown.matches("changed 7 min 0 s into the run:").count(), 1, "{form}: {shown}");
    }
    let summary = serde_json::to_value(&Report::of(&run).summary).unwrap();
    let over_time = &summary["cells"][0]["over_time"];
    assert_eq!(over_time["moments"].as_array().unwrap().len(), 12);
    assert_eq!(over_time["knees"][0]["at_seconds"], 420.0);
    run.samples.truncate(7);
    assert!(forms(&run).iter().all(|(_, shown)| !shown.contains("into the run:")));
}

/// What the wire carried stands beside what the program says; and how idle the host was, with cells on a network and on
/// the processor, natively too.
#[test]
fn the_wire_and_how_idle_the_host_was_are_in_every_form() {
    let mut run = figures::run("");
    assert!(forms(&run).iter().all(|(_, shown)| !shown.contains("What the wire carried") && !shown.contains("idle")));
    let cpus = f64::from(run.environment.cpus);
    let of = ProbeResult::here;
    for sample in &mut run.samples {
        let native = sample.cell.is_native();
        let link = |name: &str, value: f64, way: &str| Reading::scalar(name, value).with("way", way);
        let mut tap = vec![Reading::scalar("seconds", 2.0)];
        for (way, bytes, packets, dropped) in [("received", 5e8, 60_000.0, 7.0), ("sent", 1e6, 20_000.0, 0.0)] {
            tap.extend([link("bytes", bytes, way), link("packets", packets, way), link("dropped", dropped, way)]);
        }
        let busy = if native { 0.04 } else { 0.5 } * 2.0 * cpus;
        let told_anew = |seen: &ProbeResult| matches!(seen.watched, Watched::Processors | Watched::Link(_));
        sample.seen.retain(|seen| !seen.node.is_empty() || !told_anew(seen));
        let used = vec![Reading::scalar(BUSY, busy), Reading::scalar(STOLEN, 0.0)];
        sample.seen.push(of(Watched::Processors, "cpu", used));
        sample.seen.push(of(Watched::Others, "others", vec![Reading::scalar("seconds", 2.0)]));
        if matches!(sample.cell.lead.subject, Subject::Path { .. }) {
            sample.seen.push(of(Watched::Link(if native { "br0" } else { "tap1" }.into()), "link", tap));
        }
    }
    // 500 MB in two seconds, 80,000 packets both ways.
    let rates = ["2.00 Gbit/s", "40.0k", "4.00 Mbit/s", "96 %", "50 %", "idle"];
    has(&run, &[&["What the wire carried", "tap1", "br0"], &rates[..]].concat());
    for (form, shown) in forms(&run) {
        // Where there are counters: not with what is on the processor alone.
        let table = shown.split("What the wire carried").nth(1).unwrap().split("What ").next().unwrap();
        assert!(!table.contains("machine/"), "{form}: {table}");
    }
    let shown = text(&run);
    is_narrow(&shown);
    let summary = serde_json::to_value(&Report::of(&run).summary).unwrap();
    let cells = summary["cells"].as_array().unwrap();
    let of = |key: &str| cells.iter().find(|cell| cell["key"].as_str().unwrap().starts_with(key)).unwrap();
    let (guest, native) = (of("veth.host/qemu/virtio-net"), of("veth.host/native"));
    assert_eq!(guest["wires"][0]["link"], "tap1");
    assert_eq!(guest["wires"][0]["received"]["bytes_per_second"]["value"], 2.5e8);
    assert_eq!(guest["wires"][0]["received"]["dropped_packets"]["value"], 7.0);
    for (cell, idle) in [(guest, 0.5), (native, 0.96)] {
        assert!((cell["cpu"]["host_idle_ratio"].as_f64().unwrap() - idle).abs() < 1e-9, "{}", cell["cpu"]);
    }
    assert!(of("machine/qemu").get("wires").is_none());
}

/// What a sampled processor tells of each cell: CPU seconds by role and component, of so many requests as that is a part.
fn sampled(run: &mut Run, libc: f64) {
    for sample in &mut run.samples {
        let of = |figure: &str, component: &str, value: f64| {
            Reading::scalar(figure, value).with(ROLE, "worker").with(COMPONENT, component)
        };
        let part = |component: &str, seconds: f64| {
            [of(SAMPLED, component, seconds), of(SAMPLES, component, (seconds * 997.0).round())]
        };
        let all = [part("libc", libc), part("kernel, block", 0.5), part("qemu-system-x86_64", 0.001)].concat();
        let lost = Reading::scalar(LOST, 0.0).with(SOURCE, "cpu-clock");
        let figures = all.into_iter().chain([lost]).collect();
        sample.seen.push(ProbeResult::here(Watched::Components, "components", figures));
    }
}

/// CPU time by component is a table for each cell, and where two runs have it, the difference of both.
#[test]
fn components_are_in_every_form_and_in_the_comparison_of_two_runs() {
    let mut run = common::run(Accel::Kvm);
    assert!(forms(&run).iter().all(|(_, shown)| !shown.contains("by component")));
    sampled(&mut run, 0.25);
    run.environment.sample_interrupt_seconds = Some(8.2e-6);
    for (form, shown) in forms(&run) {
        let cost = "Each interrupted its processor for about 8.20 µs, together 0.8 % of this time.";
        assert!(unfolded(&shown).contains(cost), "{form}: {shown}");
    }
    let rows =
        ["CPU time by component, ", "CPU/req", "libc", "kernel, block", "67 %", "1 other", "Samples are by cpu-clock"];
    has(&run, &rows);
    let shown = text(&run);
    let tables = shown.split("CPU time by component").skip(1).collect::<Vec<_>>().join("\n");
    is_narrow(tables.split("Findings").next().unwrap());
    assert!(!shown.contains("What else was seen"), "it is in no other table");
    let summary = serde_json::to_value(&Report::of(&run).summary).unwrap();
    let first = &summary["cells"][0]["components"]["rows"][0];
    assert_eq!(first["component"], "kernel, block");
    assert_eq!(first["seconds"]["value"], 0.5);
    assert!((first["seconds_by_role"]["worker"].as_f64().unwrap() - 0.5).abs() < 1e-9, "{first}");
    let mut other = common::run(Accel::Kvm);
    sampled(&mut other, 0.75);
    let compared = report::comparison_text(&vmio_model::summary::compare(&run, &other), Style::PLAIN);
    assert!(compared.contains("CPU time of a request by component, "), "{compared}");
    assert!(compared.contains("libc") && !compared.contains("qemu-system"), "what does not differ: {compared}");
    is_narrow(&compared);
}

/// What a new probe sees needs no table of its own: it is in every form, in its unit.
#[test]
fn what_else_was_seen_is_in_every_form() {
    let mut run = common::run(Accel::Kvm);
    assert!(forms(&run).iter().all(|(_, shown)| !shown.contains("What else was seen")));
    let units = [("energy", Unit::Joules), ("power", Unit::Watts), ("misses", Unit::PacketsPerSecond)];
    let units = BTreeMap::from(units.map(|(name, unit)| (name.to_owned(), unit)));
    for sample in &mut run.samples {
        let of = |figure: &str, value: f64| Reading::scalar(figure, value).with("domain", "package-0");
        let figures = vec![of("energy", 123.0), of("power", 61.5), Reading::scalar("misses", 123_456.0)];
        let seen = ProbeResult::here(Watched::Other("powercap".into()), "powercap", figures);
        sample.seen.push(ProbeResult { units: units.clone(), ..seen });
    }
    let rows = ["powercap: energy package-0", "123 J", "61.5 W", "powercap: misses, packets/s", "123k"];
    has(&run, &[&["What else was seen"], &rows[..]].concat());
    let shown = text(&run);
    let table = shown.split("What else was seen").nth(1).unwrap().split("Findings").next().unwrap();
    is_narrow(table);
    let summary = serde_json::to_value(&Report::of(&run).summary).unwrap();
    let seen = &summary["cells"][0]["seen"][0];
    let energy = &seen["figures"][0];
    assert_eq!((&seen["watched"]["other"], &energy["name"]), (&"powercap".into(), &"energy".into()));
    assert_eq!((&energy["labels"]["domain"], &energy["unit"]), (&"package-0".into(), &"joules".into()));
    assert_eq!(energy["mean"]["value"], 123.0);
}

/// The energy of a request is that above rest. Without a meter the column says so, and processor time stands beside it
/// under its own name.
#[test]
fn energy_is_above_rest_and_its_absence_is_told() {
    let mut run = common::run(Accel::Kvm);
    for (form, shown) in forms(&run) {
        assert!(!shown.contains("J/request"), "{form}: {shown}");
        assert!(shown.contains("no meter"), "{form}: {shown}");
        assert_eq!(shown.contains("Energy above rest, each request"), form != "text", "{form}: {shown}");
    }
    for sample in run.samples.iter_mut().filter(|sample| sample.cell.is_native()) {
        sample.seen.push(common::metered(300.0));
    }
    run.environment.at_rest = [199.0, 201.0, 200.0].map(common::at_rest).into();
    has(
        &run,
        &["Energy above rest", "J/request", "at rest", "CPU/request", "200 W", "300 W", "no meter", "ipmi machine"],
    );
    let shown = text(&run);
    is_narrow(shown.split("Energy above rest").nth(1).unwrap().split("What else was seen").next().unwrap());
    let summary = serde_json::to_value(&Report::of(&run).summary).unwrap();
    let cells = summary["cells"].as_array().unwrap();
    let energy = cells.iter().filter_map(|cell| cell["energy"].get(0)).collect::<Vec<_>>();
    assert!(!energy.is_empty() && energy.len() < cells.len(), "{cells:?}");
    assert!(energy.iter().all(|row| row["meter"] == "ipmi" && row["rest_watts"]["value"] == 200.0), "{energy:?}");
    let per_request = energy.iter().filter_map(|row| row["joules_per_request_above_rest"]["value"].as_f64());
    let per_request: Vec<f64> = per_request.collect();
    assert!(!per_request.is_empty() && per_request.iter().all(|joules| *joules > 0.0), "{energy:?}");
}
