//! The paper's tables with a run's figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Caption, Paper, Pattern, Reading, Row};
use crate::cell::Cache;
use crate::stats::Estimate;
use crate::summary::{CellRow, Summary};

/// A paper's table with the figures of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Table {
    /// Short name of the paper.
    pub paper: String,
    /// The paper.
    pub citation: String,
    /// The table's caption.
    pub caption: Caption,
    /// Rows in the paper's order.
    pub rows: Vec<TableRow>,
    /// Our readings of ambiguous words in its rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Reading>,
    /// (number, text) of its footnotes.
    pub footnotes: Vec<(usize, String)>,
    /// What may not be concluded, where the guests ran under emulation.
    pub statement: Option<String>,
}

/// A row, published and measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TableRow {
    /// The paper's row.
    pub published: Row,
    /// The measured row.
    pub ours: Option<Ours>,
    /// The same with other cache modes, where the paper leaves the mode open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_modes: Vec<Ours>,
    /// Why it was not measured.
    pub not_run: Option<String>,
}

/// Our figures: means over the samples with their intervals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ours {
    /// Key of the cell.
    pub key: String,
    /// The cache mode of the guest's disk; `None` natively.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// Bytes a second, as the application saw it.
    pub bandwidth_bytes_per_second: Estimate,
    /// Sectors of 512 bytes a request at the backing device; `None` where it cannot be seen.
    pub avgrq_sz_sectors: Option<Estimate>,
    /// Requests in flight at the backing device.
    pub avgqu_sz_requests: Option<Estimate>,
    /// Share of time with a request in flight at the backing device, 0 to 1.
    pub util_ratio: Option<Estimate>,
}

/// The tables of a paper that the run's study measures; empty when it measures none.
pub fn tables(paper: &Paper, summary: &Summary) -> Vec<Table> {
    let study = summary.study.study();
    let own = paper.tables.iter().filter(|caption| paper.covers(&caption.studies, study));
    own.map(|caption| table(paper, caption, summary)).collect()
}

fn table(paper: &Paper, caption: &Caption, summary: &Summary) -> Table {
    let rows: Vec<&Row> = paper.rows.iter().filter(|r| r.direction == caption.direction).collect();
    let cites = |row: &Row, n: usize| row.notes.contains(&n);
    // A footnote that no row cites concerns all of them.
    let concerns = |n: usize| rows.iter().any(|r| cites(r, n)) || !paper.rows.iter().any(|r| cites(r, n));
    let footnotes = paper.footnotes.iter().enumerate().map(|(i, f)| (i + 1, format!("{}: {}", f.about, f.text)));
    Table {
        paper: paper.key.clone(),
        citation: paper.citation.clone(),
        caption: caption.clone(),
        rows: rows.iter().map(|row| beside(row, &caption.workload, summary)).collect(),
        readings: paper.readings_for(summary.study.study()),
        footnotes: footnotes.filter(|(n, _)| concerns(*n)).collect(),
        statement: summary.statement.clone(),
    }
}

fn beside(row: &Row, workload: &str, summary: &Summary) -> TableRow {
    let with = |modes: Vec<Ours>, not_run: Option<String>| {
        let mut modes = modes.into_iter();
        TableRow { published: row.clone(), ours: modes.next(), other_modes: modes.collect(), not_run }
    };
    let Some(wanted) = &row.cell else { return with(Vec::new(), row.not_run.clone()) };
    let found = |wanted: &Pattern| wanted.find(workload, summary.cells.iter().map(|c| &c.cell));
    let of = |wanted: &Pattern| ours(summary.cell(&found(wanted)?.key())?);
    // A native side has no cache mode, so each mode finds the same cell.
    let modes: Vec<Ours> = match &wanted.driver {
        Some(_) => Cache::ALL.iter().filter_map(|mode| of(&wanted.cached(*mode))).collect(),
        None => of(wanted).into_iter().collect(),
    };
    let not_run = modes.is_empty().then(|| missing(summary, wanted, workload));
    with(modes, not_run)
}

fn ours(cell: &CellRow) -> Option<Ours> {
    Some(Ours {
        key: cell.key.clone(),
        cache: cell.cell.attachment().map(|a| a.cache),
        bandwidth_bytes_per_second: cell.disk.as_ref()?.bandwidth_bytes_per_second,
        avgrq_sz_sectors: cell.device.map(|d| d.avgrq_sz_sectors),
        avgqu_sz_requests: cell.device.map(|d| d.queue_depth),
        util_ratio: cell.device.and_then(|d| d.busy_ratio),
    })
}

/// Why a cell of the paper was not measured.
pub(super) fn missing(summary: &Summary, wanted: &Pattern, workload: &str) -> String {
    match wanted.find(workload, summary.skipped.iter().map(|s| &s.cell)) {
        Some(cell) => {
            let skipped = summary.skipped.iter().find(|s| s.cell == *cell);
            skipped.map_or_else(String::new, |s| s.reason.clone())
        }
        None => format!("this run has no {workload} of {}", wanted.label()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::paper::judge;
    use crate::summary::summarise;
    use crate::testing::{Bench, native};

    /// A table, an effect or a reading that names studies is shown with those alone, all else with the paper's.
    #[test]
    fn each_study_has_its_own_part_of_a_paper() {
        let mut text = include_str!("../../../../papers/shafer2010_storage.toml").to_owned();
        for part in ["title = \"Table 2: dd reads\"", "id = \"emulated-slower-read\"", "word = \"tap\""] {
            assert!(text.contains(part), "{part}");
            text = text.replacen(part, &format!("{part}\nstudies = [\"other\"]"), 1);
        }
        let paper = Paper::parse(&text).unwrap();
        assert!(paper.is_of(Some("shafer2010-storage")) && paper.is_of(Some("other")));
        assert!(!paper.is_of(Some("sparse")) && !paper.is_of(None));
        let told = |study: &str| {
            let mut run = Bench::new().cell(native("device", "dd-read"), 1e8).run();
            run.kind = study.into();
            let summary = summarise(&run);
            let judged = judge(&paper, &run, &summary);
            let tables: Vec<String> = tables(&paper, &summary).into_iter().map(|t| t.caption.title).collect();
            let effects: Vec<String> = judged.effects.into_iter().map(|judged| judged.effect.id).collect();
            (tables, effects, judged.readings.into_iter().map(|reading| reading.word).collect::<Vec<_>>())
        };
        let (tables, effects, readings) = told("other");
        assert_eq!((tables.len(), effects.len(), readings.len()), (1, 1, 1), "{tables:?} {effects:?} {readings:?}");
        let of_the_paper = told("shafer2010-storage");
        let all: Vec<&String> = of_the_paper.0.iter().chain(&of_the_paper.1).chain(&of_the_paper.2).collect();
        assert!(all.len() > 3 && tables.iter().chain(&effects).chain(&readings).all(|own| !all.contains(&own)));
        assert_eq!(told("sparse"), (Vec::new(), Vec::new(), Vec::new()));
    }
}
