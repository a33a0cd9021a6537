//! Progress on standard error: one line that is rewritten on a terminal, a line a round elsewhere.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Instant;

use vmio_model::shown;
use vmio_model::stats::Ratio;
use vmio_model::study::Study;
use vmio_model::study::plan::Plan;

use super::engine::Event;
use crate::report::plan::duration;

/// Shows events of the measuring loop.
pub struct Progress {
    began: Instant,
    terminal: bool,
    cost: Plan,
    max_seconds: f64,
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
            max_seconds: study.repeat.max_minutes * 60.0,
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
        if stored < needed && self.cost.guests_per_boot == 0 {
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
            Event::Boot(boot) => self.transient(&format!("booting the guest (boot {})", boot + 1)),
            Event::Cell(setup, round) => {
                let text = format!("round {} {} ({})", round + 1, setup.key(), self.left());
                self.transient(&text);
            }
            Event::Over => self.end(),
            Event::Stored(_) => self.stored += 1,
            Event::Round(round, shares) if self.told < Some(*round) => {
                self.told = Some(*round);
                self.round(*round, shares);
            }
            Event::Round(..) => {}
            Event::Retry(setup, why) => self.line(&format!("{} failed and is retried once: {why}", setup.key())),
            Event::GaveUp(setup, why) => self.line(&format!("{} failed twice and is skipped: {why}", setup.key())),
        }
    }

    fn round(&mut self, round: u32, shares: &BTreeMap<String, Ratio>) {
        if !self.shown_shares && !shares.is_empty() {
            self.shown_shares = true;
            self.line("first figures, one pair each, guest as a share of native (the report has intervals and what they mean):");
            for (key, share) in shares {
                self.line(&format!("  {key:<52} {:>5.0} %", share.value * 100.0));
            }
        }
        let elapsed = duration(self.began.elapsed().as_secs_f64());
        if self.cost.guests_per_boot == 0 {
            self.line(&format!("round {} done after {elapsed}; {}", round + 1, self.left()));
            return;
        }
        let wide = shares.values().filter(|r| r.interval.is_none_or(|i| i.half_width() > 0.05)).count();
        self.line(&format!(
            "round {} done after {}: {wide} of {} shares still wider than ±5 points; {}",
            round + 1,
            elapsed,
            shares.len(),
            self.left()
        ));
    }

    /// A line that stays.
    pub fn line(&self, text: &str) {
        let text = shown::lines(text);
        let mut err = std::io::stderr().lock();
        let _ = if self.terminal { writeln!(err, "\r\x1b[K{text}") } else { writeln!(err, "{text}") };
    }

    /// A line that the next one replaces; nothing where there is no terminal.
    pub fn transient(&self, text: &str) {
        if self.terminal {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[K{}", shown::line(text).chars().take(99).collect::<String>());
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
