//! A paper's events of a guest's process by component, in two cells, beside the CPU time of a request in each of them.
//! Events and times have no unit in common: what compares is how the parts of both are divided.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pattern::{PLACE, Pattern};
use super::{Paper, PaperError, tables};
use crate::cell::Cell;
use crate::figure::Unit;
use crate::result::{Sample, roles};
use crate::run::Run;
use crate::stats::{Difference, Estimate, Pair, mean, paired_difference};
use crate::summary::components::of_sample;
use crate::summary::{Summary, amount, pairs};

/// The row of processes and threads other than the guest's process.
const ELSEWHERE: &str = "other processes and threads";

/// Such a table. Two figures are those of its two columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// Its title.
    pub word: String,
    /// Where it is printed.
    pub citation: String,
    /// Unit of its counts.
    pub unit: String,
    /// Its rows, in the paper's order.
    pub rows: Vec<PrintedEvents>,
    /// Their sum as printed.
    pub total: PrintedEvents,
    /// The cells; percentages are of the first one's total.
    pub columns: [EventColumn; 2],
}

/// A column: one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventColumn {
    /// The paper's word.
    pub word: String,
    /// The workload here.
    pub workload: String,
    /// The cell that does the same.
    pub cell: Pattern,
}

/// A row as printed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrintedEvents {
    /// The paper's word.
    pub word: String,
    /// Events in each column.
    pub counts: [f64; 2],
    /// The same as percentages of the first column's total.
    pub percents: [f64; 2],
    /// Our components that belong to it: a name, or with `*` at its end all that begin so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<String>,
}

/// A table with a run's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventTable {
    /// Its title.
    pub word: String,
    /// Where it is printed.
    pub citation: String,
    /// Unit of the paper's counts.
    pub unit: String,
    /// The paper's columns.
    pub columns: [EventColumn; 2],
    /// Keys of our cells; null where one was not measured.
    pub keys: [Option<String>; 2],
    /// Why cells were not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_run: Vec<String>,
    /// What made our samples of processors, `cycles` or `cpu-clock`; null where none were taken.
    pub source: Option<String>,
    /// The paper's rows in its order, then their sum.
    pub rows: Vec<EventRow>,
    /// What the paper has no row for: components of the guest's process, then all other processes and threads of vmio
    /// and the kernel together.
    pub beside: Vec<EventRow>,
}

/// A row, published and measured. Two figures are those of the two columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventRow {
    /// The paper's word, or our component.
    pub word: String,
    /// The published row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<PrintedEvents>,
    /// CPU seconds of the host for a request; null where no processors were sampled.
    pub seconds_per_request: [Option<Estimate>; 2],
    /// The same over that of all rows of the paper in the first column.
    pub share_ratio: [Option<f64>; 2],
    /// The first less the second, paired by round.
    pub difference_seconds_per_request: Option<Difference>,
}

impl PrintedEvents {
    /// Whether a component belongs to it.
    fn has(&self, component: &str) -> bool {
        self.components.iter().any(|own| match own.strip_suffix('*') {
            Some(beginning) => component.starts_with(beginning),
            None => component == own,
        })
    }
}

impl Events {
    /// Whether it is complete; the error names the problem.
    pub(super) fn check(&self) -> Result<(), PaperError> {
        let refused = |row: &str, rule: &str| Err(PaperError::entry(format!("events {}{row}", self.word), rule));
        if self.columns.iter().any(|column| !column.cell.is_whole()) {
            return refused("", PLACE);
        }
        let mut known = BTreeSet::new();
        for row in &self.rows {
            let name = format!(", row {}", row.word);
            if row.components.is_empty() || !row.components.iter().all(|own| known.insert(own)) {
                return refused(&name, "name its components, each in one row");
            }
        }
        let mut figures = self.rows.iter().chain([&self.total]).flat_map(|row| row.counts.iter().chain(&row.percents));
        if figures.any(|figure| *figure < 0.0) { refused("", "figures are not below 0") } else { Ok(()) }
    }

    fn beside(&self, run: &Run, summary: &Summary) -> EventTable {
        let cells = || summary.cells.iter().map(|row| &row.cell);
        let found = self.columns.each_ref().map(|column| column.cell.find(&column.workload, cells()));
        let missing = self.columns.iter().zip(found).filter(|(_, found)| found.is_none());
        let source = found.iter().flatten().find_map(|cell| summary.cell(&cell.key())?.components.as_ref());
        let taken = Taken { run, summary, found };
        let of_paper = |component: &str| self.rows.iter().any(|row| row.has(component));
        let whole = taken.times(&of_paper)[0].map(|whole| whole.value);
        let row = |word: &str, published: Option<&PrintedEvents>, belongs: &dyn Fn(&str) -> bool| {
            let seconds_per_request = taken.times(belongs);
            EventRow {
                word: word.to_owned(),
                published: published.cloned(),
                seconds_per_request,
                share_ratio: seconds_per_request.map(|time| Some(time?.value / whole.filter(|whole| *whole > 0.0)?)),
                difference_seconds_per_request: taken.difference(belongs),
            }
        };
        let rows = self.rows.iter().map(|own| row(&own.word, Some(own), &|component: &str| own.has(component)));
        let total = row(&self.total.word, Some(&self.total), &of_paper);
        let alone = taken.components().into_iter().filter(|component| component != ELSEWHERE && !of_paper(component));
        let alone = alone.map(|component| row(&component, None, &|other: &str| other == component));
        let elsewhere = source.map(|_| row(ELSEWHERE, None, &|component: &str| component == ELSEWHERE));
        EventTable {
            word: self.word.clone(),
            citation: self.citation.clone(),
            unit: self.unit.clone(),
            columns: self.columns.clone(),
            keys: found.map(|cell| cell.map(Cell::key)),
            not_run: missing.map(|(column, _)| tables::missing(summary, &column.cell, &column.workload)).collect(),
            source: source.map(|components| components.source.clone()),
            rows: rows.chain([total]).collect(),
            beside: alone.chain(elsewhere).collect(),
        }
    }
}

/// The samples of both cells.
struct Taken<'a> {
    run: &'a Run,
    summary: &'a Summary,
    found: [Option<&'a Cell>; 2],
}

impl<'a> Taken<'a> {
    /// The comparable samples of a column.
    fn samples(&self, cell: Option<&'a Cell>) -> impl Iterator<Item = &'a Sample> {
        self.run.samples.iter().filter(move |sample| Some(&sample.cell) == cell && sample.is_comparable())
    }

    /// CPU seconds of a request by component of the guest's process, and those of all else; `None` without requests or
    /// samples of processors.
    fn parts(&self, sample: &Sample) -> Option<BTreeMap<String, f64>> {
        let requests = amount(sample, &self.run.workloads, Unit::Requests);
        let mut all: BTreeMap<String, f64> = BTreeMap::new();
        for (role, component, seconds) in of_sample(sample)? {
            let name = if roles::is_of_hypervisor(role) { component } else { ELSEWHERE };
            *all.entry(name.to_owned()).or_default() += seconds / requests;
        }
        (requests > 0.0).then_some(all)
    }

    /// Those of the components that belong together.
    fn time(&self, sample: &Sample, belongs: &dyn Fn(&str) -> bool) -> Option<f64> {
        let parts = self.parts(sample)?;
        let own = parts.iter().filter(|(component, _)| belongs(component));
        // From 0.0: a sum of nothing is -0.0.
        Some(own.fold(0.0, |sum, (_, seconds)| sum + seconds))
    }

    /// Their means in both columns.
    fn times(&self, belongs: &dyn Fn(&str) -> bool) -> [Option<Estimate>; 2] {
        self.found.map(|cell| {
            let all: Vec<f64> = self.samples(cell).filter_map(|sample| self.time(sample, belongs)).collect();
            mean(&all)
        })
    }

    fn difference(&self, belongs: &dyn Fn(&str) -> bool) -> Option<Difference> {
        let both = (self.found[1]?, self.found[0]?);
        let rule = &self.summary.convergence;
        let rounds = pairs(&self.run.samples, both, rule, |sample| self.time(sample, belongs));
        paired_difference(&rounds.into_iter().map(|(_, pair)| pair).collect::<Vec<Pair>>())
    }

    /// The components of both columns, the one with most time in the first column first.
    fn components(&self) -> Vec<String> {
        let mut all: BTreeMap<String, [f64; 2]> = BTreeMap::new();
        for (column, cell) in self.found.into_iter().enumerate() {
            for (component, seconds) in self.samples(cell).filter_map(|sample| self.parts(sample)).flatten() {
                all.entry(component).or_default()[column] += seconds;
            }
        }
        let mut all: Vec<(String, [f64; 2])> = all.into_iter().collect();
        all.sort_by(|(_, [a, below_a]), (_, [b, below_b])| b.total_cmp(a).then(below_b.total_cmp(below_a)));
        all.into_iter().map(|(component, _)| component).collect()
    }
}

/// The paper's tables of events with a run's figures; empty when the run is not of the paper's study.
pub fn events(paper: &Paper, run: &Run, summary: &Summary) -> Vec<EventTable> {
    if !paper.covers(&[], summary.study.study()) {
        return Vec::new();
    }
    paper.events.iter().map(|of| of.beside(run, summary)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cell::{Aio, Attachment, Cache};
    use crate::figure::Reading;
    use crate::result::{COMPONENT, LOST, ProbeResult, ROLE, SAMPLED, SAMPLES, SOURCE, Watched};
    use crate::summary::summarise;
    use crate::testing::Bench;

    const PAPER: &str = r#"
key = "made-up"
citation = "nowhere"
section = "1"
studies = ["test"]
circumstance = []
[[events]]
word = "events"
citation = "table 1"
unit = "million"
rows = [
  { word = "kernel", counts = [30, 2], percents = [75, 5], components = ["kernel, *"] },
  { word = "libc", counts = [10, 0], percents = [25, 0], components = ["libc", "libc-*"] },
]
total = { word = "Total", counts = [40, 2], percents = [100, 5] }
[[events.columns]]
word = "Hypervisor"
workload = "rand-read-1"
cell = { guest = "qemu", target = "device", driver = "virtio-blk", cache = "writeback" }
[[events.columns]]
word = "VM"
workload = "rand-read-1"
cell = { guest = "qemu", target = "device", driver = "virtio-blk" }
"#;

    fn cell(cache: Cache) -> Cell {
        Cell::on("qemu", "device", Some(Attachment::new("virtio-blk", cache, Aio::Native)), "rand-read-1")
    }

    /// A run whose samples have these CPU microseconds of a request, by role and component, in both cells.
    fn run(host: &[(&str, &str, f64)], guest: &[(&str, &str, f64)]) -> Run {
        let mut run = Bench::new().cell(cell(Cache::Writeback), 5e3).cell(cell(Cache::None), 5e3).run();
        let workloads = run.workloads.clone();
        for sample in &mut run.samples {
            let all = if sample.cell == cell(Cache::Writeback) { host } else { guest };
            let requests = amount(sample, &workloads, Unit::Requests);
            // Rounds differ by a microsecond in all, the same in both cells.
            let more = 1.0 + 0.01 * f64::from(sample.round);
            let of = |(role, component, us): &(&str, &str, f64)| {
                let reading =
                    |figure, value: f64| Reading::scalar(figure, value).with(ROLE, *role).with(COMPONENT, *component);
                [reading(SAMPLED, us * 1e-6 * more * requests), reading(SAMPLES, 100.0)]
            };
            let lost = Reading::scalar(LOST, 0.0).with(SOURCE, "cpu-clock");
            let figures = all.iter().flat_map(of).chain([lost]).collect();
            sample.seen.push(ProbeResult::here(Watched::Components, "components", figures));
        }
        run
    }

    fn paper(run: &Run) -> Paper {
        Paper::parse(&PAPER.replace("[\"test\"]", &format!("[\"{}\"]", run.kind.study().unwrap()))).unwrap()
    }

    fn near(found: Option<f64>, wanted: f64) {
        assert!((found.unwrap() / wanted - 1.0).abs() < 1e-6, "{found:?} is not {wanted}");
    }

    #[test]
    fn each_row_has_the_time_of_its_components_and_what_has_no_row_is_told() {
        let host = [
            ("main", "kernel, block", 20.0),
            ("vcpu", "kernel, locks", 10.0),
            ("worker", "libc-2.31", 10.0),
            ("vcpu", "guest kernel", 80.0),
            ("kernel", "kernel, block", 3.0),
            ("vmio", "libc", 4.0),
        ];
        let run = run(&host, &[("vcpu", "kernel, locks", 2.0), ("vcpu", "guest kernel", 60.0)]);
        let [table] = &events(&paper(&run), &run, &summarise(&run))[..] else { panic!() };
        assert_eq!((table.source.as_deref(), table.not_run.as_slice()), (Some("cpu-clock"), [].as_slice()));
        // The mean of 1.00 to 1.05 in six rounds.
        let us = |row: &EventRow| row.seconds_per_request.map(|time| time.unwrap().value * 1e6 / 1.025);
        let [kernel, libc, total] = &table.rows[..] else { panic!("{:?}", table.rows) };
        for (row, wanted) in [(kernel, [30.0, 2.0]), (libc, [10.0, 0.0]), (total, [40.0, 2.0])] {
            let off = us(row).into_iter().zip(wanted).map(|(found, wanted)| (found - wanted).abs());
            assert!(off.fold(0.0, f64::max) < 1e-6, "{row:?}");
            assert_eq!(row.published.as_ref().unwrap().counts, wanted, "they were made so");
            near(row.difference_seconds_per_request.map(|of| of.value * 1e6 / 1.025), wanted[0] - wanted[1]);
        }
        near(kernel.share_ratio[0], 0.75);
        near(kernel.share_ratio[1], 0.05);
        assert!(kernel.difference_seconds_per_request.unwrap().interval.unwrap().above(0.0));
        let names: Vec<&str> = table.beside.iter().map(|row| row.word.as_str()).collect();
        assert_eq!(names, ["guest kernel", ELSEWHERE]);
        near(Some(us(&table.beside[1])[0]), 7.0);
        let other = Paper { studies: vec!["other".into()], ..paper(&run) };
        assert!(events(&other, &run, &summarise(&run)).is_empty());
    }

    #[test]
    fn a_run_without_samples_or_cells_has_the_published_figures_alone() {
        let mut run = Bench::new().cell(cell(Cache::Writeback), 5e3).run();
        run.samples.iter_mut().for_each(|sample| sample.seen.clear());
        let [table] = &events(&paper(&run), &run, &summarise(&run))[..] else { panic!() };
        assert_eq!((table.source.as_ref(), table.beside.len(), table.rows.len()), (None, 0, 3));
        let row = &table.rows[0];
        assert_eq!((row.seconds_per_request, row.share_ratio), ([None; 2], [None; 2]));
        assert_eq!((&table.keys[0], &table.keys[1]), (&Some(cell(Cache::Writeback).key()), &None));
        assert_eq!(table.not_run, ["this run has no rand-read-1 of qemu on device by virtio-blk"]);
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let refused = |from: &str, to: &str| Paper::parse(&PAPER.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(refused("[\"libc\", \"libc-*\"]", "[\"kernel, *\"]").contains("row libc: name its components"));
        assert!(refused(", components = [\"kernel, *\"]", "").contains("row kernel: name its components"));
        assert!(refused("[30, 2]", "[-30, 2]").contains("not below 0"));
        assert!(refused("target = \"device\", ", "").contains("on a `target`"));
        assert!(refused("[30, 2]", "[30]").contains("length"), "{}", refused("[30, 2]", "[30]"));
    }
}
