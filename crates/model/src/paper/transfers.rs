//! A paper's transfers of host and guest under pinning, one at a time or both at once, beside ours with sum and
//! fairness of simultaneous ones.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pattern::{PLACE, Pattern, is_printed};
use super::{Paper, PaperError};
use crate::cell::Cell;
use crate::figure::ACTOR;
use crate::result::BANDWIDTH;
use crate::stats::Estimate;
use crate::summary::{CellRow, FAIRNESS, Summary};

/// The amount that a transfer over a path moved, by its figure's name.
const MOVED: &str = "moved";

/// A column of a paper's table, for host and guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transfers {
    /// The path, and whether at once.
    pub word: String,
    /// Where it is printed; `None` for a column of ours alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub citation: Option<String>,
    /// The workload here.
    pub workload: String,
    /// Whether both send at the same time.
    pub at_once: bool,
    /// The host's cell; `None` where only the guest's is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Pattern>,
    /// The guest's cell.
    pub guest: Pattern,
    /// Its rows, in the paper's order.
    pub rows: Vec<Printed>,
}

/// A row of one pinning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// The processors that the host's programs are pinned to.
    pub host: Vec<u32>,
    /// The processors that the guest is pinned to.
    pub guest: Vec<u32>,
    /// The host's MB (10^6 bytes) a second: one figure, or the lowest and the highest.
    pub host_mb_s: Vec<f64>,
    /// The guest's.
    pub guest_mb_s: Vec<f64>,
}

/// A column with a run's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Transferred {
    /// The path, and whether at once.
    pub word: String,
    /// Where it is printed; `None` for a column of ours alone.
    pub citation: Option<String>,
    /// Whether both send at the same time.
    pub at_once: bool,
    /// The paper's rows in order, then those of ours alone.
    pub rows: Vec<TransferRow>,
}

/// A row of one pinning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TransferRow {
    /// The processors that the host's programs are pinned to.
    pub host_pins: Vec<u32>,
    /// The processors that the guest is pinned to.
    pub guest_pins: Vec<u32>,
    /// The published row; `None` for a row of ours alone.
    pub published: Option<Printed>,
    /// The host's transfer.
    pub host: Option<Sent>,
    /// The guest's transfer.
    pub guest: Option<Sent>,
    /// Sum of simultaneous transfers.
    pub sum_bits_per_second: Option<Estimate>,
    /// Jain's fairness index, 1 when both sent the same, 0.5 when one sent all.
    pub fairness: Option<Estimate>,
}

/// A measured transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sent {
    /// Key of the cell.
    pub key: String,
    /// Received bits a second.
    pub bits_per_second: Estimate,
    /// Bytes of a transfer.
    pub moved_bytes: Option<Estimate>,
}

impl Transfers {
    /// Whether it is complete; the error names the problem.
    pub(super) fn check(&self) -> Result<(), PaperError> {
        let refused = |rule| Err(PaperError::entry(format!("transfers {}", self.word), rule));
        if self.at_once && self.host.is_none() {
            return refused("what is at once has a host");
        }
        if !self.guest.is_whole() || !self.host.as_ref().is_none_or(Pattern::is_whole) {
            return refused(PLACE);
        }
        if !self.rows.iter().all(|row| is_printed(&row.host_mb_s) && is_printed(&row.guest_mb_s)) {
            return refused("a rate is one figure above 0, or the lowest and the highest");
        }
        if self.citation.is_none() != self.rows.is_empty() {
            return refused("rows are cited, and what is cited has rows");
        }
        Ok(())
    }

    /// The patterns of a row: the guest's with the host beside it where both are at once; else the host's apart.
    fn patterns(&self, host: &[u32], guest: &[u32]) -> (Pattern, Option<Pattern>) {
        let held = |pattern: &Pattern, pins: &[u32]| Pattern { pins: pins.to_vec(), ..pattern.clone() };
        let (guest, host) = (held(&self.guest, guest), self.host.as_ref().map(|pattern| held(pattern, host)));
        if self.at_once { (Pattern { beside: host.map(Box::new), ..guest }, None) } else { (guest, host) }
    }

    /// The cells of the paper's rows: those of the guest and of the host apart, or one.
    pub fn wanted(&self) -> impl Iterator<Item = Pattern> {
        self.rows.iter().flat_map(|row| {
            let (guest, host) = self.patterns(&row.host, &row.guest);
            [Some(guest), host].into_iter().flatten()
        })
    }

    /// Pinnings of the run that the paper lacks: (host, guest).
    fn more(&self, summary: &Summary) -> BTreeSet<(Vec<u32>, Vec<u32>)> {
        let pins = |cell: &Cell| {
            let guest = cell.lead.side.shape.pins.clone();
            let host = cell.beside.first().map_or_else(|| guest.clone(), |host| host.side.shape.pins.clone());
            (host, guest)
        };
        let printed = |(host, guest): &(Vec<u32>, Vec<u32>)| {
            self.rows.iter().any(|row| row.guest == *guest && (!self.at_once || row.host == *host))
        };
        let fits = |cell: &Cell| {
            let (host, guest) = pins(cell);
            self.patterns(&host, &guest).0.find(&self.workload, [cell]).is_some()
        };
        summary
            .cells
            .iter()
            .map(|row| &row.cell)
            .filter(|cell| fits(cell))
            .map(pins)
            .filter(|way| !printed(way))
            .collect()
    }

    fn row(&self, (host, guest): (&[u32], &[u32]), published: Option<&Printed>, summary: &Summary) -> TransferRow {
        let (lead, apart) = self.patterns(host, guest);
        let cells = || summary.cells.iter().map(|row| &row.cell);
        let row = |pattern: &Pattern| summary.cell(&pattern.find(&self.workload, cells())?.key());
        let led = row(&lead);
        let [first, second] = if self.at_once { [Some("1"), Some("2")] } else { [None, None] };
        let other = if self.at_once { led } else { apart.as_ref().and_then(row) };
        TransferRow {
            host_pins: host.to_vec(),
            guest_pins: guest.to_vec(),
            published: published.cloned(),
            host: other.and_then(|row| sent(row, second)),
            guest: led.and_then(|row| sent(row, first)),
            sum_bits_per_second: led.filter(|_| self.at_once).and_then(|row| of(row, BANDWIDTH, None)),
            fairness: led.filter(|_| self.at_once).and_then(|row| of(row, FAIRNESS, None)),
        }
    }
}

/// A figure of a cell's actor, or of the cell.
fn of(row: &CellRow, figure: &str, actor: Option<&str>) -> Option<Estimate> {
    let mut found = row.figures.iter().filter(|f| f.name == figure);
    found.find(|f| f.labels.get(ACTOR).map(String::as_str) == actor).map(|f| f.typical)
}

fn sent(row: &CellRow, actor: Option<&str>) -> Option<Sent> {
    let bits_per_second = of(row, BANDWIDTH, actor)?;
    Some(Sent { key: row.key.clone(), bits_per_second, moved_bytes: of(row, MOVED, actor) })
}

/// The paper's columns with a run's figures.
pub(super) fn transferred(paper: &Paper, summary: &Summary) -> Vec<Transferred> {
    let one = |column: &Transfers| {
        let printed = column.rows.iter().map(|p| column.row((&p.host, &p.guest), Some(p), summary));
        let more = column.more(summary);
        let ours = more.iter().map(|(host, guest)| column.row((host, guest), None, summary));
        let rows = printed.chain(ours).collect();
        Transferred { word: column.word.clone(), citation: column.citation.clone(), at_once: column.at_once, rows }
    };
    paper.transfers.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cell::{Actor, Baseline, Shape, Side, Subject};
    use crate::figure::{Figure, Reading, Unit};
    use crate::result::{Sample, WorkloadResult, WorkloadTraits};
    use crate::run::Run;
    use crate::summary::summarise;
    use crate::testing::Bench;

    const PAPER: &str = r#"
key = "made-up"
citation = "nowhere"
section = "1"
studies = ["made-up"]
circumstance = []
[[transfers]]
word = "at once"
citation = "figure 1"
workload = "sends"
at_once = true
host = { guest = "native", network = "loop", peer = "host" }
guest = { guest = "qemu", network = "loop", peer = "host" }
rows = [{ host = [0], guest = [0], host_mb_s = [7.5], guest_mb_s = [1, 5] }]
[[transfers]]
word = "alone"
citation = "figure 2"
workload = "sends"
at_once = false
host = { guest = "native", network = "loop", peer = "host" }
guest = { guest = "qemu", network = "loop", peer = "host" }
rows = [{ host = [1], guest = [0], host_mb_s = [9], guest_mb_s = [8] }]
"#;

    fn actor(kind: &str, pins: &[u32]) -> Actor {
        let side = Side { shape: Shape { pins: pins.to_vec(), ..Shape::default() }, ..Side::of(kind) };
        Cell::of(side, Subject::path("loop", "host", None), "sends").lead
    }

    fn said(mb_s: f64) -> WorkloadResult {
        let figures = vec![Reading::scalar(BANDWIDTH, mb_s * 8e6), Reading::scalar(MOVED, mb_s * 4e6)];
        WorkloadResult { seconds: 4.0, figures, ..WorkloadResult::default() }
    }

    /// Two rounds of actors that send so many MB/s.
    fn run(cells: &[&[(Actor, f64)]]) -> Run {
        let figures = vec![Figure::rate(BANDWIDTH, Unit::BitsPerSecond), Figure::amount(MOVED, Unit::Bytes)];
        let sends =
            WorkloadTraits { name: "sends".into(), figures, judged_by: BANDWIDTH.into(), disk: None, group: None };
        let mut run = Bench::new().rounds(1).cell(crate::testing::native("device", "seq-read"), 1e6).run();
        let made = run.samples[0].clone();
        run.workloads = vec![sends];
        run.study.baseline = Baseline::None;
        run.samples.clear();
        for (round, actors) in (0..2).flat_map(|round| cells.iter().map(move |actors| (round, actors))) {
            let beside = actors[1..].iter().map(|(actor, _)| actor.clone()).collect();
            let cell = Cell { lead: actors[0].0.clone(), beside, settings: Default::default() };
            let mut results = actors.iter().map(|(_, mb_s)| said(*mb_s));
            let (result, beside) = (results.next().unwrap(), results.collect());
            run.samples.push(Sample { cell, round, boot: round, result, beside, ..made.clone() });
        }
        run
    }

    #[test]
    fn each_side_has_its_own_figure_beside_the_printed_one() {
        let paper = Paper::parse(PAPER).unwrap();
        let run = run(&[
            &[(actor("qemu", &[0]), 1.0), (actor("native", &[0]), 3.0)],
            &[(actor("qemu", &[1]), 4.0), (actor("native", &[0]), 4.0)],
            &[(actor("qemu", &[0]), 2.0)],
            &[(actor("qemu", &[1]), 5.0)],
            &[(actor("native", &[1]), 6.0)],
        ]);
        let all = transferred(&paper, &summarise(&run));
        let rates = |row: &TransferRow| {
            let of = |sent: &Option<Sent>| sent.as_ref().map(|sent| sent.bits_per_second.value / 8e6);
            (of(&row.host), of(&row.guest), row.sum_bits_per_second.map(|sum| sum.value / 8e6))
        };
        let ways = |i: usize| all[i].rows.iter().map(|row| (row.published.is_some(), rates(row))).collect::<Vec<_>>();
        let (printed, ours) = (true, false);
        assert_eq!(ways(0), [(printed, (Some(3.0), Some(1.0), Some(4.0))), (ours, (Some(4.0), Some(4.0), Some(8.0)))]);
        // 4^2 / (2 (3^2 + 1^2)), and two equal ones.
        assert_eq!(all[0].rows.iter().map(|row| row.fairness.unwrap().value).collect::<Vec<_>>(), [0.8, 1.0]);
        assert_eq!(all[0].rows[1].host_pins, [0]);
        // A transfer alone is found by its own processors; unpublished pinnings have rows of their own.
        assert_eq!(ways(1), [(printed, (Some(6.0), Some(2.0), None)), (ours, (Some(6.0), Some(5.0), None))]);
        assert_eq!(all[1].rows[0].guest.as_ref().unwrap().moved_bytes.unwrap().value, 8e6);
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let refused = |from: &str, to: &str| Paper::parse(&PAPER.replace(from, to)).unwrap_err().to_string();
        assert!(refused("guest_mb_s = [1, 5]", "guest_mb_s = [5, 1]").contains("the lowest and the highest"));
        assert!(refused("[7.5]", "[]").contains("one figure above 0"));
        assert!(refused("citation = \"figure 1\"\n", "").contains("rows are cited"));
        let host = "host = { guest = \"native\", network = \"loop\", peer = \"host\" }\n";
        assert!(refused(host, "").contains("has a host"));
        assert!(refused("network = \"loop\", peer", "peer").contains("over a `network`"));
    }
}
