//! The report of simulated runs of the guard: as text, JSON, and HTML in one file.

mod html;
mod json;

use std::fmt::Write;

use vmio_model::simulate::paper::{Paper, Published, System, What};
use vmio_model::simulate::{Allocator, Enforcement, Outcome, SECOND, Scenario, Service, Settings, Totals};

use crate::fit;
use crate::term::Style;

pub use html::html;
pub use json::{Document, json};

/// Version of the JSON.
const SCHEMA_VERSION: &str = "1.0";

/// One run.
pub struct Simulated {
    /// What was simulated: an uplink and direction, or a scenario's name.
    pub subject: String,
    /// The uplink and its members.
    pub scenario: Scenario,
    /// How it was run.
    pub settings: Settings,
    /// What came of it.
    pub outcome: Outcome,
}

/// A published experiment beside its simulation.
pub struct Study {
    /// What is published.
    pub paper: Paper,
    /// Loss by period: allocator, period in picoseconds, loss ratio of each member.
    pub periods: Vec<(Allocator, u64, Vec<f64>)>,
}

/// All that one command simulated.
pub struct Report {
    /// The runs.
    pub runs: Vec<Simulated>,
    /// The study that they belong to.
    pub study: Option<Study>,
    /// The command line, to repeat it.
    pub command: String,
}

impl Simulated {
    /// Who set the limits, where they acted, and how often.
    pub fn how(&self) -> String {
        let Settings { allocator, enforcement, period, .. } = self.settings;
        match (allocator, enforcement) {
            (_, Enforcement::Hierarchy) => {
                format!("the host's scheduler (plane {}), corrected every {}", self.settings.plane.plane, time(period))
            }
            (Allocator::None, _) => match self.settings.service {
                Service::Fifo => "unshaped, one queue for all".into(),
                Service::Turns => "unshaped, in turns".into(),
            },
            (_, Enforcement::Held) => format!("{}, every {}, held in the guest", allocator.label(), time(period)),
            (_, Enforcement::Queued) => format!("{}, every {}, queued on the host", allocator.label(), time(period)),
        }
    }

    fn seconds(&self) -> f64 {
        self.outcome.duration as f64 / SECOND as f64
    }
}

/// A time in picoseconds, in milliseconds or seconds.
pub fn time(ps: u64) -> String {
    let ms = ps as f64 / SECOND as f64 * 1e3;
    if ms < 1000.0 { format!("{ms} ms") } else { format!("{} s", ms / 1e3) }
}

/// Mbit/s with one decimal.
pub(super) fn mbit(bps: f64) -> String {
    format!("{:.1}", bps / 1e6)
}

pub(super) fn ratio(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

pub(super) fn mean_bps(bits: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bits as f64 / seconds } else { 0.0 }
}

/// Which simulated runs a published figure is set beside.
fn beside(run: &Simulated, figure: &Published) -> bool {
    (run.settings.allocator == Allocator::None) == (figure.system == System::Native)
}

pub(super) fn what(figure: &Published) -> String {
    let system = if figure.system == System::Native { "native" } else { "dba" };
    match (figure.what, figure.while_offered_mbit.as_slice()) {
        (What::LossPercent, _) => format!("{system}: loss of {}", figure.vm),
        (What::ThroughputMbit, offers) => {
            let offers: Vec<String> = offers.iter().map(u64::to_string).collect();
            format!("{system}: {} while {} Mbit/s are offered", figure.vm, offers.join("/"))
        }
    }
}

pub(super) fn shown(figure: &Published, value: f64) -> String {
    match figure.what {
        What::LossPercent => format!("{value:.2} %"),
        What::ThroughputMbit => format!("{value:.1} Mbit/s"),
    }
}

/// As text for a terminal.
pub fn text(report: &Report, style: Style) -> String {
    let mut out = String::new();
    for run in &report.runs {
        let form = if run.outcome.packets { "packet by packet" } else { "as a fluid" };
        let _ = writeln!(
            out,
            "{}\n{}",
            style.bold(fit::paragraph("", 0, &format!("{}: {}", run.subject, run.how())).trim_end()),
            style.dim(
                fit::paragraph(
                    "  ",
                    2,
                    &format!(
                        "{} for {} s of virtual time, {form}; Mbit/s are means over all of it",
                        run.scenario.capacity,
                        run.seconds()
                    )
                )
                .trim_end()
            )
        );
        let _ = writeln!(
            out,
            "  {:<12} {:>7} {:>7} {:>7} {:>8} {:>7} {:>8} {:>7} {:>7}",
            "member", "min", "max", "offered", "received", "loss", "not sent", "dropped", "min met"
        );
        let most = 40;
        for (vif, t) in run.scenario.vifs.iter().zip(&run.outcome.totals).take(most) {
            let _ = writeln!(
                out,
                "  {} {:>7} {:>7} {:>7} {:>8} {:>6.2}% {:>7.2}% {:>6.2}% {:>6.1}%",
                fit::left(&fit::name(&vif.name, 12), 12),
                mbit(vif.contract.min.bits() as f64),
                mbit(vif.contract.max.bits() as f64),
                mbit(mean_bps(t.scheduled_bits, run.seconds())),
                mbit(mean_bps(t.received_bits, run.seconds())),
                t.loss_ratio() * 100.0,
                ratio(t.never_sent_bits, t.scheduled_bits) * 100.0,
                ratio(t.dropped_bits, t.scheduled_bits) * 100.0,
                t.met_ratio() * 100.0
            );
        }
        if let Some(more) = run.scenario.vifs.len().checked_sub(most + 1) {
            let met = run.outcome.totals.iter().map(Totals::met_ratio).fold(1.0, f64::min);
            let _ = writeln!(out, "  and {} more; worst of all, minimum met {:.1} %", more + 1, met * 100.0);
        }
        out.push('\n');
    }
    if let Some(study) = &report.study {
        study_text(&mut out, report, study, style);
    }
    out
}

fn study_text(out: &mut String, report: &Report, study: &Study, style: Style) {
    let title = format!("Compared with the figures printed in {}", study.paper.citation);
    let _ = writeln!(out, "{}", style.bold(fit::paragraph("", 0, &title).trim_end()));
    for figure in &study.paper.published {
        let said = what(figure);
        // What is too long for its column stands above.
        let said = if fit::columns(&said) > 53 {
            *out += &fit::paragraph("  ", 4, &said);
            String::new()
        } else {
            said
        };
        let _ = writeln!(out, "  {said:<53} published {:>14}", shown(figure, figure.value));
        for run in report.runs.iter().filter(|r| beside(r, figure)) {
            let value = figure.simulated(&run.scenario, &run.outcome).map_or("none".into(), |v| shown(figure, v));
            let mut how = run.how();
            if fit::columns(&how) > 51 {
                *out += &fit::paragraph("    ", 6, &how);
                how.clear();
            }
            let _ = writeln!(out, "    {} simulated {value:>14}", fit::left(&how, 51));
        }
    }
    let _ = writeln!(out, "\n{}", style.bold("Loss over the loop's period"));
    let names: Vec<&str> =
        report.runs.first().map_or(Vec::new(), |r| r.scenario.vifs.iter().map(|v| v.name.as_str()).collect());
    // As many members as fit beside each other, the others below.
    let beside = 4;
    for (part, names) in names.chunks(beside).enumerate() {
        let titles: String = names.iter().map(|n| format!(" {}", fit::right(&fit::name(n, 9), 9))).collect();
        let _ = writeln!(out, "  {:<24} {:>8}  {titles}", "", "period");
        for (allocator, period, loss) in &study.periods {
            let loss: String =
                loss.iter().skip(part * beside).take(beside).map(|l| format!(" {:>7.2} %", l * 100.0)).collect();
            let _ = writeln!(out, "  {:<24} {:>8}  {loss}", allocator.label(), time(*period));
        }
    }
    let _ = writeln!(out, "\n{}", style.bold("Notes"));
    for note in &study.paper.footnote {
        *out += &fit::paragraph("  ", 4, &format!("{}: {}", note.about, note.text));
    }
}
