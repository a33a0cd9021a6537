//! The report of simulated runs of the guard: as text, JSON, and HTML in one file.

mod json;
mod whole;

use vmio_model::simulate::paper::{Paper, Published, System, What};
use vmio_model::simulate::{Allocator, Enforcement, Outcome, SECOND, Scenario, Service, Settings};

use crate::fit::WIDTH;
use crate::term::Style;

pub use json::{Document, json};
pub(super) use whole::notes;

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
    /// Its outcome.
    pub outcome: Outcome,
}

/// A published experiment beside its simulation.
pub struct Study {
    /// The published figures.
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
    /// The algorithm, where its limits act, and its period.
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
    whole::document(report).text(style, WIDTH)
}

/// As one HTML file.
pub fn html(report: &Report) -> String {
    whole::document(report).html()
}
