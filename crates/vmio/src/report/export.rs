//! A run for other tools.
//!
//! - `json`: all that the store holds of it, the tools' raw output included.
//! - `pkb`: samples as PerfKit Benchmarker publishes them (its `sample.py`), a JSON object a line.
//! - `github-action-benchmark`: the tool's `customBiggerIsBetter` array. Only figures of which
//!   more is better are in it, as the tool takes one direction a file.
//! - `csv`: a line a sample (RFC 4180); what only disks have is empty elsewhere, and the last columns have the
//!   figure that the cell is judged by, whatever it works on.

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::figure::{Better, Compared, Unit, Value};
use vmio_model::kind::RunKind;
use vmio_model::result::{Accel, Mark, Sample, WorkloadTraits};
use vmio_model::run::Run;
use vmio_model::sanitize;
use vmio_model::stats::{Estimate, Interval};
use vmio_model::summary::{SCHEMA_VERSION, Summary, judge_of, summarise};

use super::{Versus, format};
use crate::document;

/// The formats of `vmio runs export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Everything stored, raw output included
    Json,
    /// PerfKit Benchmarker samples, one JSON object per line
    Pkb,
    /// For the GitHub action of that name (customBiggerIsBetter)
    GithubActionBenchmark,
    /// One line per sample
    Csv,
}

/// All that the store holds of a run.
#[derive(Serialize, JsonSchema)]
pub struct Whole<'a> {
    /// Version of this document.
    schema_version: &'static str,
    #[serde(flatten)]
    run: &'a Run,
}

/// A figure of a sample, as PerfKit Benchmarker publishes it.
#[derive(Serialize, JsonSchema)]
pub struct Published<'a> {
    /// `bandwidth`, `iops`, `latency_p99` and the like; of several actors with the number of each, `bandwidth_2`.
    metric: String,
    /// The figure, in `unit`.
    value: f64,
    /// `bytes/second`, `bits/second`, `requests/second`, `seconds`, `ratio` and the like.
    unit: &'static str,
    /// What it was measured with.
    metadata: &'a Metadata<'a>,
    /// When the sample began, in seconds since the epoch.
    timestamp: f64,
}

/// What a figure was measured with.
#[derive(Serialize, JsonSchema)]
struct Metadata<'a> {
    /// Number of the run.
    run: i64,
    /// Name of the study.
    study: &'a RunKind,
    /// Key of the cell.
    cell: String,
    /// Name of the target, or of what else was worked on.
    target: String,
    /// `native`, or what runs the guest, with what of it is not as the study's guests are.
    guest: String,
    /// How the guest sees the target; `None` on the native side.
    attachment: Option<String>,
    /// Name of the workload.
    workload: &'a str,
    /// Round in which it ran, from 0.
    round: u32,
    /// Boot of the guest it ran in, from 0.
    boot: u32,
    /// Words of caution.
    marks: &'a [Mark],
    /// Accelerator of the guests; `None` where none ran.
    accelerator: Option<Accel>,
    /// `uname -r` of the host.
    host_kernel: &'a str,
    /// `uname -r` of the guest; `None` where none ran.
    guest_kernel: Option<&'a str>,
    /// CPU model of the host.
    cpu: &'a str,
    /// QEMU's version line.
    qemu: Option<&'a str>,
    /// vmio's version.
    vmio: &'a str,
}

/// Figures of which more is better, as `customBiggerIsBetter` of github-action-benchmark takes them.
#[derive(Serialize, JsonSchema)]
pub struct Benchmark(Vec<Drawn>);

/// A figure whose trend is drawn.
#[derive(Serialize, JsonSchema)]
struct Drawn {
    /// Key of the cell, or that of the cell with `share of native` (`share of baseline`, where the study has
    /// another one).
    name: String,
    /// `MB/s` (10^6 bytes), `IOPS`, `Mbit/s` or `%`; of other figures their unit in words.
    unit: &'static str,
    /// The figure.
    value: f64,
    /// Half the width of its 95 % interval in the same unit, in words.
    range: String,
    /// Run, number of samples and environment, in words.
    extra: String,
}

/// The run in that format. `json` wants the whole run ([`crate::store::Store::load_whole`]).
pub fn export(run: &Run, format: Format) -> String {
    match format {
        Format::Json => whole(run),
        Format::Pkb => pkb(run),
        Format::GithubActionBenchmark => github(run, &summarise(run)),
        Format::Csv => csv(run),
    }
}

fn whole(run: &Run) -> String {
    document::text(&Whole { schema_version: SCHEMA_VERSION, run })
}

/// The metrics of a sample: name, value, unit. Several actors have numbered metrics each, and their sum and fairness.
fn metrics(sample: &Sample, workloads: &[WorkloadTraits]) -> Vec<(String, f64, &'static str)> {
    let mut all = Vec::new();
    let figures = judge_of(workloads, &sample.cell).all(sample, workloads);
    for (figure, reading) in figures.iter().filter(|(figure, _)| figure.compared != Compared::No) {
        let labels = reading.labels.values().map(String::as_str);
        let name = std::iter::once(figure.name.as_str()).chain(labels).collect::<Vec<_>>().join("_");
        let unit = figure.unit.word();
        match &reading.value {
            // 0 requests a second: the workload does not count them.
            Value::Scalar(value) if *value == 0.0 && figure.unit == Unit::RequestsPerSecond => {}
            Value::Scalar(value) => all.push((name, *value, unit)),
            Value::Distribution(d) => {
                all.push((format!("{name}_mean"), d.mean, unit));
                for p in [50.0, 99.0] {
                    all.extend(d.at(p).map(|value| (format!("{name}_p{p:.0}"), value, unit)));
                }
            }
        }
    }
    if let Some(device) = &sample.device() {
        all.push(("device_request_size".to_owned(), device.request_bytes, "bytes"));
        all.push(("device_queue_depth".to_owned(), device.queue_depth, "requests"));
        all.extend(device.busy_ratio.map(|busy| ("device_busy".to_owned(), busy, "ratio")));
    }
    all
}

fn pkb(run: &Run) -> String {
    let e = &run.environment;
    let mut out = String::new();
    for sample in &run.samples {
        let cell = &sample.cell;
        let metadata = Metadata {
            run: run.id,
            study: &run.kind,
            cell: cell.key(),
            target: cell.lead.subject.place(),
            guest: cell.lead.side.to_string(),
            attachment: cell.lead.subject.seen_by(),
            workload: cell.workload(),
            round: sample.round,
            boot: sample.boot,
            marks: &sample.marks,
            accelerator: e.accel,
            host_kernel: &e.kernel,
            guest_kernel: e.guest_kernel.as_deref(),
            cpu: &e.cpu,
            qemu: e.qemu.as_deref(),
            vmio: &e.vmio,
        };
        for (metric, value, unit) in metrics(sample, &run.workloads) {
            let timestamp = sample.started_unix;
            out += &document::text(&Published { metric, value, unit, metadata: &metadata, timestamp });
        }
    }
    out
}

fn github(run: &Run, summary: &Summary) -> String {
    let about = |n: u32| {
        let accel = run.environment.accel.map_or(String::new(), |a| format!("\naccelerator: {a:?}").to_lowercase());
        let statement = summary.statement.as_ref().map_or(String::new(), |s| format!("\n{s}"));
        format!("run {}, n = {n}{accel}\nhost kernel: {}{statement}", run.id, run.environment.kernel)
    };
    let range = |i: Option<Interval>, scale: f64| {
        i.map_or("no interval".into(), |i| format!("± {}", format::three(i.half_width() * scale)))
    };
    let versus = Versus::of(summary);
    let mut entries = Vec::new();
    for cell in &summary.cells {
        let Some((figure, Estimate { value, interval, n })) = cell.judged().map(|f| (f, f.typical)) else { continue };
        // All entries of the file mean "bigger is better". Figures of the other sort are in it as shares only.
        if figure.better == Better::Less || n == 0 {
            continue;
        }
        let (unit, scale) = match figure.unit {
            Unit::BytesPerSecond => ("MB/s", 1e-6),
            Unit::RequestsPerSecond => ("IOPS", 1.0),
            Unit::BitsPerSecond => ("Mbit/s", 1e-6),
            other => (other.word(), 1.0),
        };
        entries.push(Drawn {
            name: cell.key.clone(),
            unit,
            value: value * scale,
            range: range(interval, scale),
            extra: about(n),
        });
    }
    let of = versus.share();
    // A share that did not converge would draw a false trend.
    for share in summary.shares.iter().filter(|s| s.converged) {
        let ratio = &share.share_ratio;
        entries.push(Drawn {
            name: format!("{} {of}", share.key),
            unit: "%",
            value: ratio.value * 100.0,
            range: range(ratio.interval, 100.0),
            extra: about(ratio.pairs),
        });
    }
    document::text(&Benchmark(entries))
}

fn csv(run: &Run) -> String {
    let mut out = String::from(
        "run,study,accelerator,target,guest,attachment,workload,round,boot,started_unix_seconds,seconds,read_bytes,\
         write_bytes,requests,bandwidth_bytes_per_second,requests_per_second,latency_mean_seconds,latency_p50_seconds,\
         latency_p99_seconds,device_request_bytes,device_queue_depth,device_busy_ratio,host_cpu_seconds,marks,cell,figure,\
         unit,value\r\n",
    );
    let number = |x: Option<f64>| x.filter(|x| x.is_finite()).map_or(String::new(), |x| x.to_string());
    for s in &run.samples {
        let (cell, work, device, latency) = (&s.cell, s.work(), s.device(), s.result.latency());
        let accel = run.environment.accel.map_or(String::new(), |a| format!("{a:?}").to_lowercase());
        let marks: Vec<&str> = s.marks.iter().map(|m| format::mark(*m)).collect();
        let on_disk = cell.target().is_some();
        let judge = judge_of(&run.workloads, cell);
        let fields = [
            run.id.to_string(),
            run.kind.to_string(),
            accel,
            cell.lead.subject.place(),
            cell.lead.side.to_string(),
            cell.lead.subject.seen_by().unwrap_or_default(),
            cell.workload().to_owned(),
            s.round.to_string(),
            s.boot.to_string(),
            s.started_unix.to_string(),
            number(Some(s.result.seconds)),
            number(on_disk.then_some(work.read_bytes as f64)),
            number(on_disk.then_some(work.write_bytes as f64)),
            number(on_disk.then_some(work.ios as f64)),
            number(on_disk.then(|| work.bandwidth())),
            number((work.ios > 0).then(|| work.iops())),
            number(latency.map(|l| l.mean)),
            number(latency.and_then(|l| l.at(50.0))),
            number(latency.and_then(|l| l.at(99.0))),
            number(device.map(|d| d.request_bytes)),
            number(device.map(|d| d.queue_depth)),
            number(device.and_then(|d| d.busy_ratio)),
            number(Some(s.cpu().host_seconds)),
            marks.join(";"),
            cell.key(),
            judge.figure.name.clone(),
            judge.figure.unit.word().to_owned(),
            number(judge.of(s)),
        ];
        let quoted: Vec<String> = fields.iter().map(|f| quote(f)).collect();
        out += &quoted.join(",");
        out += "\r\n";
    }
    out
}

fn quote(field: &str) -> String {
    let field = sanitize::line(field);
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.into_owned()
    }
}
