//! A paper's figures of a program that ran repeatedly (hdparm), beside each of our runs: rising figures show a filling
//! cache.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pattern::{EITHER, PLACE, Pattern, is_printed};
use super::{Paper, PaperError, tables};
use crate::figure::RUN;
use crate::summary::{CellRow, Summary};

/// A table of such runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Its title.
    pub word: String,
    /// Where it is printed.
    pub citation: String,
    /// The workload here.
    pub workload: String,
    /// Bytes of the program's MB.
    pub mb_bytes: f64,
    /// The figures by the workload's names, in the order of the columns.
    pub figures: Vec<String>,
    /// Its rows, in the paper's order and words.
    pub rows: Vec<PrintedSeries>,
}

/// A row of one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrintedSeries {
    /// The paper's words.
    pub word: String,
    /// MB a second by figure: one value, or the lowest and the highest of the runs.
    pub mb_s: BTreeMap<String, Vec<f64>>,
    /// The cell that measures the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<Pattern>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
}

/// A table with a run's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesTable {
    /// Its title.
    pub word: String,
    /// Where it is printed.
    pub citation: String,
    /// Bytes of the paper's MB.
    pub mb_bytes: f64,
    /// The figures, in the order of the columns.
    pub figures: Vec<String>,
    /// The paper's rows in its order.
    pub rows: Vec<SeriesRow>,
    /// Our readings of the paper's words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<super::Reading>,
}

/// A row, published and measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesRow {
    /// The published row.
    pub published: PrintedSeries,
    /// The measured row.
    pub ours: Option<OnEnd>,
    /// Why it was not measured.
    pub not_run: Option<String>,
}

/// Our runs of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OnEnd {
    /// Key of the cell.
    pub key: String,
    /// Bytes a second by figure and run in order, the mean over the samples.
    pub bytes_per_second: BTreeMap<String, Vec<f64>>,
}

impl Series {
    /// Whether it is complete; the error names the problem.
    pub(super) fn check(&self) -> Result<(), PaperError> {
        if self.mb_bytes <= 0.0 || self.figures.is_empty() {
            let rule = "mb_bytes is above 0, and figures has one";
            return Err(PaperError::entry(format!("series {}", self.word), rule));
        }
        for row in &self.rows {
            let name = format!("series {}, row {}", self.word, row.word);
            if row.cell.is_some() == row.not_run.is_some() {
                return Err(PaperError::entry(name, EITHER));
            }
            if row.cell.as_ref().is_some_and(|cell| !cell.is_whole()) {
                return Err(PaperError::entry(name, PLACE));
            }
            let whole = row.mb_s.len() == self.figures.len() && self.figures.iter().all(|f| row.mb_s.contains_key(f));
            if !whole || !row.mb_s.values().all(|of| is_printed(of)) {
                let wanted = self.figures.join(", ");
                let rule = format!("{wanted}: each one rate above 0, or the lowest and the highest");
                return Err(PaperError::entry(name, rule));
            }
        }
        Ok(())
    }

    fn row(&self, published: &PrintedSeries, summary: &Summary) -> SeriesRow {
        let Some(wanted) = &published.cell else {
            return SeriesRow { published: published.clone(), ours: None, not_run: published.not_run.clone() };
        };
        let found = wanted.find(&self.workload, summary.cells.iter().map(|row| &row.cell));
        let ours = found.and_then(|cell| self.on_end(summary.cell(&cell.key())?));
        let not_run = ours.is_none().then(|| tables::missing(summary, wanted, &self.workload));
        SeriesRow { published: published.clone(), ours, not_run }
    }

    fn on_end(&self, row: &CellRow) -> Option<OnEnd> {
        let runs = |name: &String| {
            let all = row.figures.iter().filter(|f| f.name == *name && f.labels.contains_key(RUN));
            (name.clone(), all.map(|f| f.typical.value).collect::<Vec<f64>>())
        };
        let bytes_per_second: BTreeMap<_, _> = self.figures.iter().map(runs).collect();
        let any = bytes_per_second.values().all(|runs| !runs.is_empty());
        any.then(|| OnEnd { key: row.key.clone(), bytes_per_second })
    }
}

/// The paper's tables with a run's figures; empty when the run is not of the paper's study.
pub fn series(paper: &Paper, summary: &Summary) -> Vec<SeriesTable> {
    if !paper.covers(&[], summary.study.study()) {
        return Vec::new();
    }
    let one = |of: &Series| SeriesTable {
        word: of.word.clone(),
        citation: of.citation.clone(),
        mb_bytes: of.mb_bytes,
        figures: of.figures.clone(),
        rows: of.rows.iter().map(|row| of.row(row, summary)).collect(),
        readings: paper.readings_for(summary.study.study()),
    };
    paper.series.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::figure::{Figure, Reading, Unit};
    use crate::summary::summarise;
    use crate::testing::{Bench, native};

    const PAPER: &str = r#"
key = "made-up"
citation = "nowhere"
section = "1"
studies = ["test"]
circumstance = []
[[series]]
word = "reads"
citation = "figure 1"
workload = "seq-read"
mb_bytes = 1048576
figures = ["buffered"]
rows = [
  { word = "host", mb_s = { buffered = [7, 84] }, cell = { guest = "native", target = "device" } },
  { word = "guest", mb_s = { buffered = [9] }, cell = { guest = "qemu", target = "device", driver = "virtio-blk" } },
  { word = "far", mb_s = { buffered = [8] }, not_run = "it is far" },
]
"#;

    #[test]
    fn each_run_of_a_series_stands_beside_what_is_printed() {
        let mut run = Bench::new().rounds(2).cell(native("device", "seq-read"), 1e6).run();
        let traits = run.workloads.iter_mut().find(|traits| traits.name == "seq-read").unwrap();
        traits.figures.push(Figure::rate("buffered", Unit::BytesPerSecond).by(&[RUN]));
        for (i, sample) in run.samples.iter_mut().enumerate() {
            let of = |n: u8| Reading::scalar("buffered", f64::from(n) * 1e6 + i as f64).with(RUN, n.to_string());
            sample.result.figures.extend([1, 2].map(of));
        }
        let text = PAPER.replace("studies = [\"test\"]", &format!("studies = [\"{}\"]", run.kind.study().unwrap()));
        let paper = Paper::parse(&text).unwrap();
        let [table] = &series(&paper, &summarise(&run))[..] else { panic!() };
        let ours = table.rows[0].ours.as_ref().unwrap();
        assert_eq!(ours.bytes_per_second["buffered"], [1e6 + 0.5, 2e6 + 0.5]);
        assert_eq!(table.rows[0].not_run, None);
        assert!(table.rows[1].not_run.as_ref().unwrap().contains("no seq-read of qemu on device by virtio-blk"));
        assert_eq!(table.rows[2].not_run.as_deref(), Some("it is far"));
        let other = Paper { studies: vec!["other".into()], ..paper };
        assert!(series(&other, &summarise(&run)).is_empty());
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let refused = |from: &str, to: &str| Paper::parse(&PAPER.replace(from, to)).unwrap_err().to_string();
        assert!(refused("[7, 84]", "[84, 7]").contains("the lowest and the highest"));
        assert!(refused("{ buffered = [9] }", "{ cached = [9] }").contains("row guest: buffered"));
        assert!(refused(", not_run = \"it is far\"", "").contains("either `cell` or `not_run`"));
        assert!(refused("guest = \"native\", target = \"device\"", "guest = \"native\"").contains("on a `target`"));
        assert!(refused("figures = [\"buffered\"]", "figures = []").contains("figures has one"));
    }
}
