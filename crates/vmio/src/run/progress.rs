//! Progress on standard error: one line that is rewritten on a terminal, a line a round elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use vmio_model::cell::Cell;
use vmio_model::result::Sample;
use vmio_model::sanitize;
use vmio_model::stats::{Convergence, Ratio};
use vmio_model::study::Study;
use vmio_model::study::plan::Plan;
use vmio_rig::engine::measure::Event;
use vmio_rig::engine::spent;

use super::ended;
use crate::report::format::duration;
use crate::{fit, term};

/// A first share above this is explained: a guest cannot get more than the host has.
const MORE_THAN_ALL: f64 = 1.1;
/// Columns of a cell's name before its share.
const KEY: usize = 52;

/// Number of cells after which the remaining time is estimated from their pace.
const PACED: u32 = 3;

/// Shows events of the measuring loop.
pub struct Progress {
    began: Instant,
    /// When the first cell or boot began. Time before that is neither in the pace nor in the budget.
    measuring: Option<Instant>,
    cost: Plan,
    /// Whether cells are compared, so that those with wide intervals run more rounds.
    compares: bool,
    /// Whether they are compared with the host itself.
    natively: bool,
    /// Keys of the cells on disks, whose figures are better when larger.
    on_disks: BTreeSet<String>,
    /// The time budget, which counts from the first boot or cell on.
    max_seconds: f64,
    /// When a share is known.
    rule: Convergence,
    /// Samples of earlier parts of the run.
    earlier: u32,
    /// Seconds of these that the time budget counts.
    earlier_seconds: f64,
    /// Samples of this part.
    stored: u32,
    shown_shares: bool,
    /// The last round that was shown; an A/A run alternates between two.
    last_round: Option<u32>,
}

impl Progress {
    /// For one run, with the samples of its earlier parts.
    pub fn new(study: &Study, cost: &Plan, earlier: &[Sample]) -> Progress {
        Progress {
            began: Instant::now(),
            measuring: None,
            cost: cost.clone(),
            compares: study.cells().iter().any(|cell| study.compares(cell)),
            natively: study.baseline.is_native(),
            on_disks: study.cells().iter().filter(|cell| cell.target().is_some()).map(Cell::key).collect(),
            max_seconds: study.repeat.max_minutes * 60.0,
            rule: study.repeat.convergence(),
            earlier: earlier.len() as u32,
            earlier_seconds: spent(earlier).seconds,
            stored: 0,
            shown_shares: false,
            last_round: None,
        }
    }

    /// The time left in words, as an estimate.
    fn left(&self) -> String {
        self.left_after(self.measuring.map_or(0.0, |began| began.elapsed().as_secs_f64()))
    }

    /// The same after so many seconds of boots and cells.
    fn left_after(&self, elapsed: f64) -> String {
        let cells =
            |rounds: u32| f64::from(self.cost.cells * rounds + self.cost.control_cells * rounds.saturating_sub(1));
        let needed = cells(self.cost.min_rounds);
        let there = f64::from(self.earlier + self.stored);
        let budget = self.max_seconds - self.earlier_seconds - elapsed;
        if self.stored < PACED {
            return format!("about {} left by the plan", duration(self.cost.min_seconds.min(budget)));
        }
        let each = elapsed / f64::from(self.stored);
        let for_cells = |cells: f64| duration((each * (cells - there).max(0.0)).min(budget));
        if there < needed && !self.compares {
            format!("about {} left", for_cells(needed))
        } else if there < needed {
            format!("about {} left, more where the intervals stay wide", for_cells(needed))
        } else {
            format!("about {} left where the intervals stay wide", for_cells(cells(self.cost.max_rounds)))
        }
    }

    /// Shows an event.
    pub fn tell(&mut self, event: &Event<'_>) {
        self.measuring.get_or_insert_with(Instant::now);
        match event {
            Event::Boot(_) if self.cost.guests_per_boot == 0 => {}
            Event::Boot(boot) => {
                let guests = match self.cost.guests_per_boot {
                    1 => "the guest".to_owned(),
                    n => format!("{n} guests"),
                };
                transient(&format!("booting {guests} (boot {})", boot + 1));
            }
            Event::Cell(cell, round) => {
                let text = format!("round {} {} ({})", round + 1, cell.key(), self.left());
                transient(&text);
            }
            Event::Over => term::end_transient(),
            Event::Stored(_) => self.stored += 1,
            Event::Round(round, shares) if self.last_round < Some(*round) => {
                self.last_round = Some(*round);
                let elapsed = self.began.elapsed().as_secs_f64();
                self.round(*round, shares, elapsed).iter().for_each(|text| line(text));
            }
            Event::Round(..) => {}
            Event::Retry(cell, why) => line(&format!("{} failed and is retried once: {why}", cell.key())),
            Event::LeftOut(cell, why) => line(&format!("{} is skipped: {why}", cell.key())),
            Event::GaveUp(cell, why) => line(&format!("{} failed twice and is skipped: {why}", cell.key())),
        }
    }

    /// The lines for a round: the first shares, the progress, and the time left.
    fn round(&mut self, round: u32, shares: &BTreeMap<String, Ratio>, elapsed: f64) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.shown_shares && !shares.is_empty() {
            self.shown_shares = true;
            let share = if self.natively { "guest as a share of native" } else { "each as a share of its baseline" };
            lines.push(format!("first figures, one pair each, {share} (the report has intervals and what they mean):"));
            for (key, share) in shares {
                let share = format!("{:>5.0} %", share.value * 100.0);
                // A name that is too long for its column is on a line of its own.
                if fit::columns(key) > KEY {
                    lines.extend([format!("  {key}"), format!("  {:KEY$} {share}", "")]);
                } else {
                    lines.push(format!("  {} {share}", fit::left(key, KEY)));
                }
            }
            if shares.iter().any(|(key, share)| share.value > MORE_THAN_ALL && self.on_disks.contains(key)) {
                lines.push("  above 100 %: chance in a single pair, or a cache; the report judges it".to_owned());
            }
        }
        let done = format!("round {} done after {}", round + 1, duration(elapsed));
        let left = self.left();
        if !self.compares {
            lines.push(format!("{done}; {left}"));
            return lines;
        }
        if shares.is_empty() {
            lines.push(format!("{done}: no share yet; {left}"));
            return lines;
        }
        lines.push(match ended::open(shares.values(), &self.rule) {
            Some(open) => format!("{done}: {open}; {left}"),
            None => format!("{done}: every share is known"),
        });
        lines
    }
}

/// A line that stays.
fn line(text: &str) {
    term::note(&sanitize::lines(text));
}

/// A line that the next one replaces; nothing where there is no terminal.
fn transient(text: &str) {
    term::transient(&sanitize::line(text));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_model::stats::Interval;
    use vmio_model::study::plan::{Rates, estimate};

    const STUDY: &str = r#"
        name = "x"
        title = "For the tests of progress"
        cites = ""
        baseline = "none"
        guest = { vcpus = 1, memory_mib = 256 }
        [repeat]
        min_pairs = 5
        max_pairs = 12
        min_boots = 3
        half_width = 0.05
        seconds = 1.0
        max_minutes = 10.0
        [[matrix]]
        sides = ["qemu"]
        machine = true
        workloads = ["hashes"]
    "#;

    fn progress(baseline: &str) -> Progress {
        let study: Study = toml::from_str(&STUDY.replace("baseline = \"none\"", baseline)).unwrap();
        let rates = Rates {
            write_bytes_per_second: 1e8,
            read_bytes_per_second: 1e8,
            small_ios_per_second: 1e4,
            cell_overhead_seconds: 0.5,
            boot_seconds: 3.0,
            fixed_bytes: BTreeMap::new(),
            fixed_seconds: BTreeMap::new(),
            written_targets: Vec::new(),
            target_space: BTreeMap::new(),
            refilled_targets: Vec::new(),
            spare_ratio: 0.2,
            beside_bytes: 0,
            probed: false,
            metered: false,
            meters: Vec::new(),
        };
        Progress { stored: 4, ..Progress::new(&study, &estimate(&study, &[], &rates), &[]) }
    }

    #[test]
    fn shares_are_told_of_what_they_are() {
        let ratio = Ratio { value: 0.93, interval: None, pairs: 1, boots: 1 };
        let shares = BTreeMap::from([("machine/qemu/hashes".to_owned(), ratio)]);
        let native = progress("").round(0, &shares, 9.0);
        assert!(native[0].contains("guest as a share of native") && native[1].ends_with("   93 %"), "{native:?}");
        assert!(
            native[2].starts_with("round 1 done after 9 s: 1 of 1 shares not known yet (each needs 5"),
            "{native:?}"
        );
        let other = progress("baseline = { like = { settings = {} } }").round(0, &shares, 9.0);
        assert!(other[0].contains("each as a share of its baseline"), "{other:?}");
        let mut wide = progress("");
        wide.rule.half_width = 0.1;
        let known = Ratio { interval: Some(Interval { low: 0.86, high: 1.0 }), pairs: 5, boots: 5, ..ratio };
        let long = "bridge.remote/qemu:vcpus=2:pins=0+1/virtio-net+vhost+q2/iperf3-tcp [rate=100mbit]".to_owned();
        let lines = wide.round(0, &BTreeMap::from([(long.clone(), known)]), 9.0);
        assert_eq!((lines[1].trim(), lines[2].trim()), (&*long, "93 %"), "{lines:?}");
        assert!(lines[3].contains(": every share is known"), "{lines:?}");
        let narrow = progress("").round(0, &BTreeMap::from([(long.clone(), known), ("x".to_owned(), ratio)]), 9.0);
        let open = "1 of 2 shares not known yet (each needs 5 pairs and 3 boots), 1 wider than ±5.0 points; ";
        assert!(narrow.last().unwrap().contains(open), "{narrow:?}");
        for line in native.iter().chain(&lines).map(|line| fit::folded(line)) {
            assert!(line.lines().all(|line| fit::columns(line) <= fit::WIDTH), "{line}");
        }
        let early = progress("").round(0, &BTreeMap::new(), 9.0);
        assert_eq!(early.len(), 1, "{early:?}");
        assert!(early[0].starts_with("round 1 done after 9 s: no share yet; about "), "{early:?}");
        // Where nothing is compared, nothing is waited for.
        let none = progress("baseline = \"none\"").round(0, &BTreeMap::new(), 9.0);
        assert!(none.len() == 1 && none[0].starts_with("round 1 done after 9 s; about 0 s left"), "{none:?}");
        assert!(!none[0].contains("shares") && !none[0].contains("intervals"), "{none:?}");
    }

    /// Time before the first cell (an image, targets, the watch of other guests) is neither in the budget nor in the
    /// pace.
    #[test]
    fn the_time_left_is_no_bound_and_of_cells_alone() {
        let before = std::time::Duration::from_secs(300);
        let began = Instant::now().checked_sub(before).unwrap();
        let mut shown = Progress { began, stored: 20, max_seconds: 60.0, ..progress("") };
        shown.tell(&Event::Over);
        assert!(shown.measuring.unwrap() >= began + before);
        shown.cost.max_rounds = 1000;
        assert_eq!(shown.left_after(20.0), "about 40 s left where the intervals stay wide");
        shown.earlier_seconds = 30.0;
        assert_eq!(shown.left_after(20.0), "about 10 s left where the intervals stay wide", "a run that was resumed");
        let first = Progress { stored: 2, ..progress("") };
        assert!(first.left_after(5.0).ends_with(" left by the plan"), "{}", first.left_after(5.0));
        for stored in 0..80 {
            let left = Progress { stored, ..progress("") }.left_after(1e5);
            assert!(left.starts_with("about "), "{left}");
        }
    }
}
