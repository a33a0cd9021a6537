//! `vmio study compare amamou2012 paper`: the rates over time of guests and containers on one uplink, beside those
//! simulated and those of the paper; what it costs, and what of the paper's claims holds.

mod costs;
mod json;

use vmio_model::cell::Kind;
use vmio_model::control::Allocator;
use vmio_model::rate::BitRate;
use vmio_model::simulate::judged::{Claim, Judged};
use vmio_model::simulate::measured::{Sender, Trial};
use vmio_model::simulate::paper::{Paper, Published, System, What};
use vmio_model::simulate::{Outcome, SECOND, Sample, Totals, Vif};

use super::document::{
    self, Block, Cell, Column, Drawing, Heading, In, Layout, Long, Plots, Row, Table, aside, heading, list, say,
};
use super::plot::{Line, Mark, Plot, Stroke};
use super::simulation::{mbit, mean_bps, notes, ratio, shown, time, what};
use crate::fit::WIDTH;
use crate::term::Style;

pub use json::{Document, json};

/// Most members in a plot, and in a table.
const MOST: usize = 8;

/// A cell with its simulation.
pub struct SimulatedCell {
    /// What was measured.
    pub trial: Trial,
    /// The same in virtual time; `None` where the simulation has no such sender.
    pub simulated: Option<Outcome>,
    /// What the paper claims, judged by it.
    pub judged: Vec<Judged>,
}

/// The whole experiment.
pub struct Report {
    /// Number of the run.
    pub run: i64,
    /// The cells.
    pub cells: Vec<SimulatedCell>,
    /// The published figures, as printed.
    pub paper: Paper,
    /// The scenario's capacity, which printed rates are shares of.
    pub printed: BitRate,
    /// Cells that did not run, with the reason.
    pub missing: Vec<(String, String)>,
    /// The command line, to repeat it.
    pub command: String,
}

impl SimulatedCell {
    fn seconds(&self) -> f64 {
        self.trial.scenario.duration as f64 / SECOND as f64
    }

    /// Who shapes.
    fn system(&self) -> String {
        let Trial { settings, guard, .. } = &self.trial;
        let period = time(settings.period);
        match (settings.allocator, guard) {
            (_, None) => "unshaped, one queue for all".to_owned(),
            (Allocator::None, Some(_)) => "plain HTB, by hand (tc)".to_owned(),
            (Allocator::Dba(_), _) => format!("the published allocator, every {period}"),
            (Allocator::Exact, _) => "vmio's own".to_owned(),
            (Allocator::ExactLoop, _) => format!("vmio's own as a loop, every {period}"),
        }
    }

    /// Who sends, what differs from the paper, and who shapes.
    pub fn title(&self) -> String {
        let trial = &self.trial;
        let who = if trial.side.is_native() { "containers" } else { "guests" };
        let (members, flood) = match trial.scenario.vifs.len() {
            all if trial.is_flooded => (all.saturating_sub(2), "; the host and an unmatched interface flood"),
            all => (all, ""),
        };
        let part = trial.capacity_ratio.filter(|ratio| (*ratio - 1.0).abs() > 1e-9);
        let part = part.map_or_else(String::new, |ratio| format!(" (x {ratio:.1})"));
        let sender = match trial.sender {
            Sender::OpenLoop => "",
            Sender::Blocking => "; senders that wait",
            Sender::Tcp => "; TCP",
        };
        format!("{members} {who} at {}{part}: {}{sender}{flood}", trial.scenario.capacity, self.system())
    }

    /// Whether it is the paper's own set-up, scaled.
    fn is_as_printed(&self) -> bool {
        let trial = &self.trial;
        trial.capacity_ratio == Some(1.0) && trial.sender == Sender::OpenLoop && !trial.is_flooded
    }

    /// Period of the loop that sets limits.
    fn period(&self) -> Option<u64> {
        let Trial { settings, guard, .. } = &self.trial;
        let looped = guard.is_some() && settings.allocator != Allocator::None;
        looped.then_some(settings.period)
    }

    /// The printed figures of this system, scaled; none where the paper has no such cell.
    fn published<'a>(&'a self, report: &'a Report) -> impl Iterator<Item = Published> + 'a {
        let (native, whole, printed) = (self.trial.guard.is_none(), self.trial.is_whole, self.is_as_printed());
        let scale = self.trial.scenario.capacity.bits() as f64 / report.printed.bits() as f64;
        let mine = move |figure: &&Published| {
            printed && (figure.system == System::Native) == native && (whole || figure.what != What::LossPercent)
        };
        report.paper.published.iter().filter(mine).map(move |figure| figure.scaled(scale))
    }

    /// A figure as it was measured, and as it was simulated.
    fn both(&self, figure: &Published) -> [Option<f64>; 2] {
        [Some(&self.trial.measured), self.simulated.as_ref()]
            .map(|outcome| figure.simulated(&self.trial.scenario, outcome?))
    }

    /// Notes on it.
    fn remarks(&self) -> String {
        let trial = &self.trial;
        let mut all = vec![format!("mean of {} rounds of {} s", trial.rounds, self.seconds())];
        all.extend(
            trial.host_drop_ratio.map(|r| format!("{:.1} % of what reached the host was dropped there", r * 100.0)),
        );
        let hypervisor = trial.side.hypervisor().unwrap_or(Kind::QEMU.hypervisor);
        all.extend(trial.host_cpus.map(|cpus| format!("{cpus:.2} processors busy")));
        all.extend(trial.hypervisor_cpus.map(|cpus| format!("{hypervisor} kept {cpus:.2} processors busy")));
        all.extend(trial.copied_bps.map(|bps| format!("{} Mbit/s copied to the host", mbit(bps))));
        all.push(format!("generators late with at most {:.2} %", trial.late_ratio * 100.0));
        all.join("; ")
    }
}

/// As text for a terminal.
pub fn text(report: &Report, style: Style) -> String {
    document(report).text(style, WIDTH)
}

/// As a page: rates over time, measured and simulated next to each other, printed figures marked.
pub fn html(report: &Report) -> String {
    document(report).html()
}

fn document(report: &Report) -> document::Document {
    let (run, paper) = (report.run, &report.paper);
    let mut doc = document::Document::new(format!("{}, measured and simulated", paper.key));
    doc.only(In::TERMINAL, say((0, 0), format!("Run {run} against {}", paper.citation)));
    doc.only(In::TERMINAL, say((0, 0), "Mbit/s of frames, means over the whole time; sim: the same, simulated"));
    let drawn = format!(
        "Left: measured (run {run}). Right: the same, simulated. Mbit/s of frames that arrived. Rates and times of the \
         paper are scaled to each uplink; dashed levels are figures that the paper prints ({}, {}) and that hold while \
         so much is offered as the table says.",
        paper.citation, paper.section
    );
    doc.only(In::HTML, aside((0, 0), drawn));
    let mut figure = "";
    for cell in &report.cells {
        let title = match (cell.is_as_printed(), cell.trial.guard.is_none()) {
            (true, true) => "Figure 3: nobody shapes",
            (true, false) => "Figure 4: guaranteed bandwidth",
            (false, _) => "Beyond the paper",
        };
        if title != figure {
            doc.only(In::HTML, heading(2, title));
            figure = title;
        }
        let printed: Vec<Published> = cell.published(report).collect();
        doc.gap();
        doc.put(Block::Heading(Heading { level: 3, text: cell.title(), ..Heading::default() }));
        doc.put(aside((2, 2), cell.remarks()));
        doc.only(In::HTML, Block::Plots(plots(cell, &printed)));
        doc.put(members(cell).into());
        let more = cell.trial.scenario.vifs.len().saturating_sub(MOST);
        if more > 0 {
            doc.put(say((2, 2), format!("and {more} more; --json has all")));
        }
        if !printed.is_empty() {
            doc.put(compared(cell, &printed).into());
        }
        if !cell.judged.is_empty() {
            doc.put(claims(cell).into());
        }
    }
    costs::put(&mut doc, &report.cells);
    let claimed = summary(&report.cells);
    if !claimed.is_empty() {
        doc.gap();
        doc.put(heading(2, "What the paper claims"));
        doc.put(list((2, 4), claimed));
    }
    if !report.missing.is_empty() {
        doc.gap();
        doc.put(heading(2, "Not measured"));
        doc.put(list((2, 4), report.missing.iter().map(|(cell, why)| format!("{cell}: {why}"))));
    }
    doc.gap();
    notes(&mut doc, paper);
    doc.only(In::HTML, heading(2, "Again"));
    doc.only(In::HTML, Block::Code(report.command.clone()));
    doc
}

/// Rates over time, as measured and as simulated.
fn plots(cell: &SimulatedCell, printed: &[Published]) -> Plots {
    let scenario = &cell.trial.scenario;
    let mark = |figure: &Published| {
        let series = scenario.vifs.iter().position(|vif| vif.name == figure.vm)?;
        let label = format!("{:.0}", figure.value);
        (figure.what == What::ThroughputMbit).then_some(Mark { value: figure.value, label, series })
    };
    let drawn = |(word, outcome): (&str, &Outcome)| {
        let line = |(i, vif): (usize, &Vif)| {
            let mega = |s: &Sample| s.received[i].bits() as f64 / 1e6;
            let points = outcome.series.iter().map(|s| (s.at as f64 / SECOND as f64, mega(s))).collect();
            Line { stroke: Stroke::Series(i), label: vif.name.clone(), points }
        };
        let lines = scenario.vifs.iter().take(MOST).enumerate().map(line).collect();
        let plot = Plot::over_seconds(word, (360.0, 230.0), lines, printed.iter().filter_map(mark).collect());
        let y_range = Some((0.0, scenario.capacity.bits() as f64 / 1e6 * 1.02));
        (word.to_owned(), Drawing::Lines(Plot { y_range, ..plot }))
    };
    let both = [Some(("measured", &cell.trial.measured)), cell.simulated.as_ref().map(|of| ("simulated", of))];
    let legend = scenario.vifs.iter().take(MOST).map(|vif| vif.name.clone()).enumerate().collect();
    Plots { legend, drawings: both.into_iter().flatten().map(drawn).collect() }
}

/// What was measured and simulated of each member.
fn members(cell: &SimulatedCell) -> Table {
    let rate = |bits: u64| mbit(mean_bps(bits, cell.seconds()));
    let percent = |ratio: f64| format!("{:.2} %", ratio * 100.0);
    let never = |t: &Totals| percent(ratio(t.never_sent_bits, t.scheduled_bits));
    let vifs = cell.trial.scenario.vifs.iter().zip(&cell.trial.measured.totals).take(MOST).enumerate();
    let rows = vifs.map(|(i, (vif, m))| {
        let s = cell.simulated.as_ref().and_then(|outcome| outcome.totals.get(i));
        let of = |said: &dyn Fn(&Totals) -> String| s.map_or_else(String::new, said);
        let loss = |t: &Totals| percent(t.loss_ratio());
        let rates = [rate(m.scheduled_bits), rate(m.received_bits), of(&|s| rate(s.received_bits))];
        Row::new(&vif.name, rates.into_iter().chain([loss(m), of(&loss), never(m), of(&never)]))
    });
    let measured = |head: &str, width, narrow: &str| Column::new(head, width).small("measured").narrow(narrow).gap(1);
    let simulated = |width| Column::new("", width).small("simulated").narrow("sim").gap(1);
    let columns = [
        measured("offered", 8, "offered"),
        measured("received", 8, "received"),
        simulated(8),
        measured("loss", 9, "loss"),
        simulated(9),
        measured("never sent", 9, "not sent"),
        simulated(9),
    ];
    Table::new("Mbit/s", Layout { long: Long::Shortened, ..Layout::new(7) }, columns).with(rows)
}

/// The printed figures beside what was measured and simulated.
fn compared(cell: &SimulatedCell, printed: &[Published]) -> Table {
    let rows = printed.iter().map(|figure| {
        // A terminal leaves out the unit Mbit/s.
        let value = |value: f64| {
            let said = shown(figure, value);
            Cell::from(&said).narrow(said.replace(" Mbit/s", ""))
        };
        let both = cell.both(figure).map(|found| found.map_or_else(|| Cell::from("").narrow("none"), value));
        // The table's heading names the system.
        let said = what(figure);
        let said = said.split_once(": ").map_or(said.clone(), |(_, said)| said.replace(" Mbit/s", ""));
        Row::new(said, std::iter::once(value(figure.value)).chain(both))
    });
    let heads = [("printed", "scaled"), ("measured", ""), ("simulated", "")];
    let columns = heads.map(|(head, small)| Column::new(head, 11).small(small).gap(1));
    Table::new("printed figure", Layout { long: Long::Shortened, ..Layout::new(42) }, columns).with(rows)
}

/// What the paper claims, judged by a cell.
fn claims(cell: &SimulatedCell) -> Table {
    let row = |judged: &Judged| {
        let value = |value: f64| match judged.claim {
            Claim::Loss => format!("{:.2} %", value * 100.0),
            Claim::Copies => mbit(value),
            _ => format!("{value:.3}"),
        };
        Row::new(judged.claim.label(), [value(judged.found), value(judged.bound), verdict(judged.holds).to_owned()])
    };
    let columns = [("found", 11), ("bound", 11), ("", 11)].map(|(head, width)| Column::new(head, width).gap(1));
    Table::new("claim", Layout { long: Long::Shortened, ..Layout::new(42) }, columns).with(cell.judged.iter().map(row))
}

fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "FAILS" }
}

/// How many cells each claim holds in, and in which it does not.
fn summary(cells: &[SimulatedCell]) -> Vec<String> {
    let mut claims: Vec<Claim> = cells.iter().flat_map(|cell| &cell.judged).map(|judged| judged.claim).collect();
    claims.sort_unstable();
    claims.dedup();
    let of = |claim: Claim| {
        let judged = cells.iter().flat_map(|cell| cell.judged.iter().map(move |judged| (cell, judged)));
        let judged: Vec<(&SimulatedCell, &Judged)> = judged.filter(|(_, judged)| judged.claim == claim).collect();
        let wrong: Vec<String> =
            judged.iter().filter(|(_, judged)| !judged.holds).map(|(cell, _)| cell.title()).collect();
        let label = claim.label().split([':', ',']).next().unwrap_or_default();
        let not = if wrong.is_empty() { String::new() } else { format!("; not with {}", wrong.join(" | ")) };
        format!("{label}: holds in {} of {}{not}", judged.len() - wrong.len(), judged.len())
    };
    claims.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::cell::Side;
    use vmio_model::simulate::judged::judge;
    use vmio_model::simulate::{MILLISECOND, Settings, run};

    use super::*;

    /// A report of three containers at 200 Mbit/s for 3 s, whose measured outcome is a simulated one.
    fn report(systems: &[(Option<&str>, Allocator)], change: impl Fn(&mut Trial)) -> Report {
        let (paper, scenario) = crate::papers::experiment("amamou2012").unwrap();
        let printed = scenario.capacity;
        let scenario = scenario.scaled(BitRate::new(200_000_000), 3 * SECOND);
        let trial = |(guard, allocator): &(Option<&str>, Allocator)| {
            let settings = Settings::new(*allocator, 100 * MILLISECOND);
            let mut trial = Trial {
                side: Side::native(),
                guard: guard.map(str::to_owned),
                sender: Sender::OpenLoop,
                capacity_ratio: Some(1.0),
                is_whole: true,
                is_flooded: false,
                rounds: 2,
                measured: run(&scenario, &settings).unwrap(),
                scenario: scenario.clone(),
                settings,
                late_ratio: 0.0,
                host_drop_ratio: Some(0.5),
                copied_bps: Some(4.4e8),
                host_cpus: Some(1.25),
                hypervisor_cpus: None,
            };
            change(&mut trial);
            trial
        };
        let trials: Vec<Trial> = systems.iter().map(trial).collect();
        let cell = |trial: &Trial| {
            let simulated = trial.can_be_simulated().then(|| trial.measured.clone());
            SimulatedCell { trial: trial.clone(), simulated, judged: judge(trial, &trials) }
        };
        let (missing, command) = (Vec::new(), "vmio study run".to_owned());
        Report { run: 1, cells: trials.iter().map(cell).collect(), paper, printed, missing, command }
    }

    const TWO: &[(Option<&str>, Allocator)] = &[(None, Allocator::None), (Some("exact"), Allocator::Exact)];

    #[test]
    fn claims_and_costs_are_told() {
        let text = text(&report(TWO, |_| {}), Style::PLAIN);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for said in [
            "Figures 5 to 7",
            "What the paper claims",
            "loss of class 1: holds in 1 of 1",
            "loss of MV1 16.56 %",
            "copied Mbit/s: holds in 0 of 1; not with 3 containers at 200 Mbit/s: vmio's own",
        ] {
            assert!(words.contains(said), "{said}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn what_is_not_the_papers_has_no_printed_figures() {
        let tcp = report(TWO, |trial| {
            (trial.sender, trial.capacity_ratio, trial.is_whole) = (Sender::Tcp, None, false);
        });
        let words = text(&tcp, Style::PLAIN).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("vmio's own; TCP") && !words.contains("loss of MV1 16.56 %"), "{words}");
        assert!(tcp.cells.iter().all(|cell| cell.simulated.is_none()));
        let less = report(&[(Some("htb"), Allocator::None)], |trial| trial.capacity_ratio = Some(0.7));
        assert_eq!(less.cells[0].title(), "3 containers at 200 Mbit/s (x 0.7): plain HTB, by hand (tc)");
        assert!(html(&less).contains("Beyond the paper"));
    }
}
