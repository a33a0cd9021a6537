//! Progress on standard error: one line that is rewritten on a terminal, a line a round elsewhere.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Instant;

use vmio_model::shown;
use vmio_model::stats::Ratio;
use vmio_model::study::Study;
use vmio_model::study::plan::Plan;

use super::engine::Event;
use crate::fit;
use crate::report::format::two;
use crate::report::plan::duration;

/// Columns of a cell's name before its share.
const KEY: usize = 52;

/// Shows events of the measuring loop.
pub struct Progress {
    began: Instant,
    terminal: bool,
    cost: Plan,
    /// Whether a cell is compared with another one: then those with wide intervals run more rounds.
    compares: bool,
    /// Whether they are compared with the host itself.
    natively: bool,
    max_seconds: f64,
    /// Half of the interval's width at which a share is known.
    half_width: f64,
    stored: u32,
    shown_shares: bool,
    /// The last round that was told; an A/A run goes back and forth between two.
    told: Option<u32>,
}

impl Progress {
    /// For one run.
    pub fn new(study: &Study, cost: &Plan) -> Progress {
        Progress {
            began: Instant::now(),
            terminal: std::io::stderr().is_terminal(),
            cost: cost.clone(),
            compares: study.cells().iter().any(|cell| study.compares(cell)),
            natively: study.baseline.is_native(),
            max_seconds: study.repeat.max_minutes * 60.0,
            half_width: study.repeat.half_width,
            stored: 0,
            shown_shares: false,
            told: None,
        }
    }

    /// Words on time left: to the fewest rounds while they are not there, then at most.
    fn left(&self) -> String {
        let elapsed = self.began.elapsed().as_secs_f64();
        let cells =
            |rounds: u32| f64::from(self.cost.cells * rounds + self.cost.control_cells * rounds.saturating_sub(1));
        let needed = cells(self.cost.min_rounds);
        let stored = f64::from(self.stored);
        let budget = self.max_seconds - elapsed;
        if stored < 3.0 {
            return format!("at most {} left", duration(budget));
        }
        let for_cells = |cells: f64| (elapsed / stored * (cells - stored).max(0.0)).min(budget);
        if stored < needed && !self.compares {
            format!("about {} left", duration(for_cells(needed)))
        } else if stored < needed {
            format!("about {} left, more where the intervals stay wide", duration(for_cells(needed)))
        } else {
            format!("at most {} left", duration(for_cells(cells(self.cost.max_rounds))))
        }
    }

    /// Shows an event.
    pub fn tell(&mut self, event: &Event<'_>) {
        match event {
            Event::Boot(_) if self.cost.guests_per_boot == 0 => {}
            Event::Boot(boot) => {
                let guests = match self.cost.guests_per_boot {
                    1 => "the guest".to_owned(),
                    n => format!("{n} guests"),
                };
                self.transient(&format!("booting {guests} (boot {})", boot + 1));
            }
            Event::Cell(cell, round) => {
                let text = format!("round {} {} ({})", round + 1, cell.key(), self.left());
                self.transient(&text);
            }
            Event::Over => self.end(),
            Event::Stored(_) => self.stored += 1,
            Event::Round(round, shares) if self.told < Some(*round) => {
                self.told = Some(*round);
                let elapsed = self.began.elapsed().as_secs_f64();
                for line in self.round(*round, shares, elapsed) {
                    self.line(&line);
                }
            }
            Event::Round(..) => {}
            Event::Retry(cell, why) => self.line(&format!("{} failed and is retried once: {why}", cell.key())),
            Event::LeftOut(cell, why) => self.line(&format!("{} is skipped: {why}", cell.key())),
            Event::GaveUp(cell, why) => self.line(&format!("{} failed twice and is skipped: {why}", cell.key())),
        }
    }

    /// What is told of a round: the first shares, how far it is, and how long it may take.
    fn round(&mut self, round: u32, shares: &BTreeMap<String, Ratio>, elapsed: f64) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.shown_shares && !shares.is_empty() {
            self.shown_shares = true;
            let share = if self.natively { "guest as a share of native" } else { "each as a share of its baseline" };
            lines.push(format!("first figures, one pair each, {share} (the report has intervals and what they mean):"));
            for (key, share) in shares {
                let share = format!("{:>5.0} %", share.value * 100.0);
                // A name that is too long for its column stands above.
                match fit::columns(key) > KEY {
                    true => lines.extend([format!("  {key}"), format!("  {:KEY$} {share}", "")]),
                    false => lines.push(format!("  {} {share}", fit::left(key, KEY))),
                }
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
        let wide = shares.values().filter(|r| r.interval.is_none_or(|i| i.half_width() > self.half_width)).count();
        lines.push(format!(
            "{done}: {wide} of {} shares still wider than ±{} points; {left}",
            shares.len(),
            two(self.half_width * 100.0)
        ));
        lines
    }

    /// A line that stays.
    pub fn line(&self, text: &str) {
        let text = fit::folded(&shown::lines(text));
        let mut err = std::io::stderr().lock();
        let _ = if self.terminal { writeln!(err, "\r\x1b[K{text}") } else { writeln!(err, "{text}") };
    }

    /// A line that the next one replaces; nothing where there is no terminal.
    pub fn transient(&self, text: &str) {
        if self.terminal {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[K{}", shown::line(text).chars().take(fit::WIDTH - 1).collect::<String>());
            let _ = err.flush();
        }
    }

    /// Ends the transient line.
    fn end(&self) {
        if self.terminal {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[K");
            let _ = err.flush();
        }
    }
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
            written_targets: Vec::new(),
            target_space: BTreeMap::new(),
            refilled_targets: Vec::new(),
            spare_ratio: 0.2,
            beside_bytes: 0,
            probed: false,
        };
        Progress { stored: 4, ..Progress::new(&study, &estimate(&study, &[], &rates)) }
    }

    #[test]
    fn shares_are_told_of_what_they_are() {
        let ratio = Ratio { value: 0.93, interval: None, pairs: 1, boots: 1 };
        let shares = BTreeMap::from([("machine/qemu/hashes".to_owned(), ratio)]);
        let native = progress("").round(0, &shares, 9.0);
        assert!(native[0].contains("guest as a share of native") && native[1].ends_with("   93 %"), "{native:?}");
        assert!(native[2].starts_with("round 1 done after 9 s: 1 of 1 shares still wider"), "{native:?}");
        let other = progress("baseline = { like = { settings = {} } }").round(0, &shares, 9.0);
        assert!(other[0].contains("each as a share of its baseline"), "{other:?}");
        let mut wide = Progress { half_width: 0.1, ..progress("") };
        let known = Ratio { interval: Some(Interval { low: 0.86, high: 1.0 }), ..ratio };
        let long = "bridge.remote/qemu:vcpus=2:pins=0+1/virtio-net+vhost+q2/iperf3-tcp [rate=100mbit]".to_owned();
        let lines = wide.round(0, &BTreeMap::from([(long.clone(), known)]), 9.0);
        assert_eq!((lines[1].trim(), lines[2].trim()), (&*long, "93 %"), "{lines:?}");
        assert!(lines[3].contains("0 of 1 shares still wider than ±10 points"), "{lines:?}");
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
}
