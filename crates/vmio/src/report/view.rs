//! Texts that all forms of the report share: notes on rows, the meaning of shares, what was not measured, and the
//! environment.

use std::collections::BTreeSet;

use vmio_model::cell::{Cell, Kind, Subject};
use vmio_model::figure::{Better, Form, Unit};
use vmio_model::read_at::ReadAt;
use vmio_model::result::{Environment, Mark, Skipped};
use vmio_model::run::Run;
use vmio_model::stats::Estimate;
use vmio_model::summary::over_time::Knee;
use vmio_model::summary::steady::Steady;
use vmio_model::summary::{CellRow, Grade, Graded, Headline, Reservation, Summary};
use vmio_model::versions::unlike;

use super::groups::{self, Row};
use super::{Report, energy, format};

/// The notes under a row: cautions on its figures.
pub fn notes(row: &Row<'_>) -> Vec<String> {
    let cell = row.cell;
    let mut notes: Vec<String> = cell
        .marks
        .iter()
        .map(|(mark, n)| {
            let which =
                if *n == cell.samples { "every sample".into() } else { format!("{n} of {} samples", cell.samples) };
            format!("{} in {which}", format::mark(*mark))
        })
        .collect();
    notes.extend(row.lacks.map(str::to_owned));
    if let Some(share) = row.share {
        if !share.converged {
            notes.push(format!("{}; so far {}", share.verdict, format::share(&share.share_ratio)));
        }
        // An open share has a note of its own.
        let noisy = |graded: &&Graded| graded.grade == Grade::B && graded.reservations.contains(&Reservation::Noise);
        let graded = share.graded.as_ref().filter(noisy);
        if let Some(noise) = graded.and_then(|graded| graded.noise_ratio) {
            notes.push(format!(
                "the baseline scatters: in {} rounds two cells like it may differ by {:.0} % by chance",
                share.share_ratio.pairs,
                (noise - 1.0) * 100.0
            ));
        }
        notes.extend(share.stalls().map(|stalls| format!("{stalls}, kept in the share")));
        notes.extend(share.left_out());
        if row.of_first {
            notes.push("the share is that of the first actor: fewer work in the baseline".into());
        }
    }
    notes.extend(cell.durability.iter().map(|d| d.text.clone()));
    notes.extend(row.steady.map(Steady::text));
    notes.extend(knees(cell));
    if !cell.outlier_rounds.is_empty() {
        notes.push(format!("outliers, kept, in rounds {}", list(&cell.outlier_rounds)));
    }
    notes
}

/// The rounds at which the level of a cell's figure changed.
fn knees(cell: &CellRow) -> Vec<String> {
    let Some((over_time, (unit, _))) = cell.over_time.as_ref().zip(judged(cell)) else { return Vec::new() };
    let level = |value| format::figure(unit, value);
    let knee = |knee: &Knee| {
        let (at, before, after) = (format::duration(knee.at_seconds), level(knee.before), level(knee.after));
        format!("changed {at} into the run: {before} before, {after} after")
    };
    over_time.knees.iter().map(knee).collect()
}

/// The meaning of the shares of a run, in sentences.
pub fn shares_are(report: &Report<'_>) -> String {
    let all = if report.versus.any() {
        format!("Shares are geometric means of {} with 95 % intervals. {GRADES}", report.versus.pairs())
    } else {
        String::new()
    };
    (all + &not_taken_for_granted(report)).trim_end().to_owned()
}

/// Explanations of unusual shares: a baseline other than the host itself, and figures where less is better; mostly
/// empty.
pub fn not_taken_for_granted(report: &Report<'_>) -> String {
    let less = report.summary.asked_for().filter_map(CellRow::judged).any(|f| f.better == Better::Less);
    let less = less && report.versus.any();
    let less = less.then(|| "Where less is better, a share is the baseline's figure divided by the cell's.".into());
    let times = times(report).then(|| "× is how many times a figure is its baseline's where less is better.".into());
    let all = report.versus.explanation().into_iter().chain(less).chain(times).chain(paths(report));
    all.collect::<Vec<String>>().join(" ")
}

/// Explains names such as `bridge.host` and `shared.remote+neighbour`, where the run has any.
fn paths(report: &Report<'_>) -> Option<String> {
    let actors = || report.summary.asked_for().flat_map(|row| row.cell.actors());
    let path = actors().find_map(|actor| match &actor.subject {
        Subject::Path { network, peer, .. } => Some(format!(
            "A path is named network.peer: {network}.{peer} is the network {network}, the peer {peer} \
             (docs/networks.md)."
        )),
        _ => None,
    })?;
    let both = |end: &str| format!("{path} `+{end}`: {end} sends there at the same time.");
    Some(actors().find_map(|actor| actor.co_sender().map(both)).unwrap_or(path))
}

/// Whether any figure is shown with `×`: one beside what its cell is judged by, or of one of several actors.
fn times(report: &Report<'_>) -> bool {
    let groups = groups::groups(report);
    groups.iter().flat_map(|group| &group.rows).any(|row| row.details.shown().any(|shown| shown.share.contains('×')))
}

/// The meaning of the grades.
const GRADES: &str = "Grades: A is known to the wanted width; B too, but read the notes below it: marked samples, \
    outliers, or a baseline that scatters; C is not known to that width. ";

/// A round or boot counted from 1, as the progress of a run counts them.
pub fn nth(from_0: u32) -> String {
    from_0.saturating_add(1).to_string()
}

fn list(rounds: &[u32]) -> String {
    rounds.iter().map(|round| nth(*round)).collect::<Vec<_>>().join(", ")
}

/// The device's figures as three short texts: KiB a request, depth, busy; `None`: not visible.
pub fn device(cell: &CellRow) -> Option<[String; 3]> {
    let d = cell.device?;
    // A device that completed nothing has no request size.
    let idle = d.request_bytes.value == 0.0;
    let kib = if idle { "–".into() } else { format!("{:.1}", d.request_bytes.value / 1024.0) };
    let busy = d.busy_ratio.map_or("–".into(), |busy| format!("{:.0} %", busy.value * 100.0));
    Some([kib, depth(d.queue_depth.value), busy])
}

fn depth(requests: f64) -> String {
    if requests < 9.995 { format!("{requests:.2}") } else { format!("{requests:.1}") }
}

/// The source of a setting.
pub fn setting_source(key: &str) -> String {
    let at = ReadAt::of(key);
    if let Some(kind) = at.guest_kind() {
        return format!("as {} reports it", Kind::hypervisor_of(kind));
    }
    let told = match at {
        ReadAt::Target(_) => "as the host shows it",
        ReadAt::Disk(_) | ReadAt::Side(_) => "as read there",
        ReadAt::ReadBack(_) => "as read back",
    };
    told.to_owned()
}

/// Cells that were not measured, or not to the end, each with the reason.
pub fn not_measured(summary: &Summary) -> Vec<(String, String)> {
    let entry = |skipped: &Skipped| {
        let (key, reason) = (skipped.cell.key(), &skipped.reason);
        let reason = match summary.cell(&key).map(|row| row.samples) {
            None => reason.clone(),
            Some(1) => format!("left out after a sample: {reason}"),
            Some(samples) => format!("left out after {samples} samples: {reason}"),
        };
        (key, reason)
    };
    summary.skipped.iter().map(entry).collect()
}

/// The headlines; where there are several, each with the name of its resource, and of its kind of guest where these
/// differ.
pub fn headlines(summary: &Summary) -> impl Iterator<Item = (Option<String>, &Headline)> {
    let several = !summary.further_headlines.is_empty();
    let kinds = summary.headlines().map(|h| &h.side).collect::<BTreeSet<_>>().len();
    summary.headlines().map(move |h| {
        let nature = several.then(|| h.nature.heading());
        let heading = nature.map(|nature| if kinds > 1 { format!("{nature}, {}", h.side) } else { nature.to_owned() });
        (heading, h)
    })
}

/// The environment, line by line.
pub fn environment(summary: &Summary) -> Vec<(String, String)> {
    let e = &summary.environment;
    let hypervisor = Cell::hypervisor(summary.cells.iter().map(|row| &row.cell));
    let hypervisor_limited_by: &str = &format!("{hypervisor} limited by");
    let native_only = summary.is_native_only();
    let natively =
        summary.cells.is_empty() || summary.cells.iter().any(|c| c.cell.actors().any(|a| a.side.is_native()));
    let mut sides = summary.cells.iter().flat_map(|c| c.cell.actors()).map(|a| &a.side);
    let not_run = if native_only {
        "none: only native cells"
    } else if !summary.cells.is_empty() && sides.all(|side| side.shares_kernel()) {
        "none: only containers"
    } else {
        "not known: no guest ran"
    };
    let not_run = || not_run.to_owned();
    let accel = match e.accel {
        Some(a) if e.accel_reason.is_empty() => accel(a).to_owned(),
        Some(_) => e.accel_reason.clone(),
        None => not_run(),
    };
    let mut sides = summary.cells.iter().flat_map(|c| c.cell.actors()).map(|a| &a.side).peekable();
    let afar_alone = sides.peek().is_some() && sides.all(|side| side.is_afar());
    let node = e.node.iter().map(|n| ("machine", n.clone()));
    let afar = e.afar.iter().map(|afar| ("measured", format!("{afar}; this host's probes do not see it")));
    let own = e.afar.iter().flat_map(|afar| {
        let settings = afar.settings.iter().map(|(device, list)| ("is set up with", format!("{device}: {list}")));
        settings.chain(afar.findings.iter().map(|finding| ("scan finds", finding.clone())))
    });
    let peer = e.peer.iter().map(|peer| ("peer", peer.clone()));
    let there: Vec<String> = e.peer_programs.iter().map(|(name, version)| format!("{name}: {version}")).collect();
    let there = (!there.is_empty()).then(|| ("peer runs", there.join("; ")));
    let differs = unlike(&e.programs, &e.peer_programs).into_iter().map(|differs| ("differs", differs));
    let meters = energy::meters(e).map(|meters| ("power by", meters));
    node.chain(afar)
        .chain(own)
        .chain(peer)
        .chain(there)
        .chain(differs)
        .chain([
            ("host", format!("{}, {} CPUs, {}", e.cpu, e.cpus, format::bytes(e.memory_bytes))),
            ("host kernel", e.kernel.clone()),
            ("guest kernel", guest_kernel(e).unwrap_or_else(not_run)),
            ("accelerator", accel),
            (hypervisor, e.qemu.clone().unwrap_or_else(|| "not found".into())),
            programs(e),
            (
                "storage",
                if let Some(afar) = &e.afar {
                    format!("{} on it", afar.device.as_ref().unwrap_or(&afar.dir))
                } else if e.backing.is_empty() {
                    "none: no cell is on a disk".into()
                } else {
                    e.backing.clone()
                },
            ),
            (
                match (native_only, natively) {
                    (true, _) => "cells limited to",
                    (_, true) => "both sides have",
                    _ => "guests have",
                },
                format!("{} CPU, {} MiB of memory", e.vcpus, e.memory_mib),
            ),
            ("native limited by", e.native_limits.clone()),
            (
                hypervisor_limited_by,
                e.qemu_limits.clone().map(|held| hypervisor_held(&held, e.cap_ratio.is_some())).unwrap_or_default(),
            ),
            ("other guests running", e.other_guests.to_string()),
        ])
        .chain(meters)
        .chain([("vmio", e.vmio.clone())])
        // Where another machine alone is measured, most settings of this host do not matter.
        .filter(|(name, _)| {
            !afar_alone
                || ["measured", "is set up with", "scan finds", "peer", "host", "programs", "storage", "vmio"]
                    .contains(name)
        })
        .filter(|(name, _)| natively || *name != "native limited by")
        .filter(|(name, _)| e.qemu_limits.is_some() || *name != hypervisor_limited_by)
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The kernel that guests ran, with its file where that is the user's.
fn guest_kernel(e: &Environment) -> Option<String> {
    let release = e.guest_kernel.clone()?;
    Some(e.guest_kernel_file.as_ref().map_or_else(|| release.clone(), |file| format!("{release}, from {file}")))
}

/// The limits of the hypervisor's control group, with the reason.
pub fn hypervisor_held(held: &str, gentle: bool) -> String {
    let why = if gentle { "to spare the other guests" } else { "all of this host: its threads serve the guest's I/O" };
    format!("{held} ({why})")
}

/// The programs of the workloads: fio, which disks are measured with, and what else there was.
fn programs(e: &Environment) -> (&'static str, String) {
    let fio = || e.fio.clone().unwrap_or_else(|| "not found".into());
    let others: Vec<String> = e
        .programs
        .iter()
        .filter(|(name, _)| *name != "fio")
        .map(|(name, version)| format!("{name}: {version}"))
        .collect();
    match (others.is_empty(), e.programs.contains_key("fio")) {
        (true, _) => ("fio", fio()),
        (false, true) => ("programs", format!("{}; {}", fio(), others.join("; "))),
        (false, false) => ("programs", others.join("; ")),
    }
}

fn accel(accel: vmio_model::result::Accel) -> &'static str {
    match accel {
        vmio_model::result::Accel::Kvm => "KVM",
        vmio_model::result::Accel::Tcg => "TCG, software emulation",
    }
}

/// The command that repeats the run.
pub fn repeat(run: &Run) -> String {
    format::shell(&run.command)
}

/// The figure that a cell is judged by.
pub fn judged(row: &CellRow) -> Option<(Unit, Estimate)> {
    row.judged().map(|figure| (figure.unit, figure.typical)).filter(|(_, e)| e.n > 0)
}

/// How the percentiles of several samples are combined.
pub const TIMES: &str = "p50 and p99: geometric means over the samples.";

/// Median and 99th percentile of latency.
pub fn latencies(row: &CellRow) -> [Option<Estimate>; 2] {
    let latency = row.figures.iter().find(|f| f.unit == Unit::Seconds && f.form == Form::Distribution);
    [latency.map(|f| f.typical), latency.and_then(|f| f.at(99.0))]
}

/// The marks in the rows of a run, each with its meaning.
pub fn legend(summary: &Summary) -> Vec<(&'static str, &'static str)> {
    let used: BTreeSet<Mark> = summary.cells.iter().flat_map(|c| c.marks.keys().copied()).collect();
    used.into_iter().map(|m| (format::mark(m), format::mark_meaning(m))).collect()
}
