//! A paper's events by component, beside our CPU time of a request: a table of the report and of `vmio study compare`.

use vmio_model::figure::Unit;
use vmio_model::paper::{EventRow, EventTable};

use super::document::{Cell, Column, Document, Layout, Long, Row, Table, aside, heading, remarks};
use super::format;

/// Share of the paper's rows below which a component without a row is left out; the JSON has all.
const LEAST_SHARE: f64 = 0.005;

/// The tables; empty where the paper has none.
pub(super) fn tables(all: &[EventTable], emulated: bool) -> Document {
    let mut doc = Document::new("");
    for table in all {
        doc.put(heading(2, format!("{} ({})", format::capital(&table.word), table.citation)));
        doc.put(rows(table).into());
        doc.put(aside((0, 0), meaning(table)));
        doc.put(remarks((2, 2), notes(table, emulated).into_iter().map(|note| (String::new(), note))));
        doc.gap();
    }
    doc
}

fn rows(table: &EventTable) -> Table {
    let [first, second] = table.columns.each_ref().map(|column| column.word.as_str());
    let head = |word: &str, who: &str, width: usize| {
        Column::new(format!("{word}, {who}"), width).narrow(format!("{word}\n{who}")).gap(1).tight()
    };
    let columns = [
        head(first, "paper", 11),
        head(second, "paper", 11),
        head(first, "here", 12),
        head(second, "here", 12),
        Column::new("Difference (95 %)", 19).narrow("difference\n(95 %)").gap(1),
    ];
    let counts = |row: &&EventRow| match row.share_ratio {
        [None, None] => true,
        shares => shares.into_iter().flatten().any(|share| share >= LEAST_SHARE),
    };
    let shown = table.rows.iter().chain(table.beside.iter().filter(counts));
    Table::new("Component", Layout { long: Long::Outside, ..Layout::flush(10) }, columns).with(shown.map(row))
}

fn row(row: &EventRow) -> Row {
    let published = [0, 1].map(|at| match &row.published {
        Some(printed) => format!("{} {} %", printed.counts[at], printed.percents[at]),
        None => "–".to_owned(),
    });
    let ours = [0, 1].map(|at| {
        let time = row.seconds_per_request[at].map(|time| format::figure(Unit::Seconds, time.value));
        let share = row.share_ratio[at].map(|share| format!(" {}", format::percent(share)));
        time.map_or("–".to_owned(), |time| time + &share.unwrap_or_default())
    });
    let difference = row.difference_seconds_per_request;
    let difference = difference.map_or("–".to_owned(), |found| format::difference(Unit::Seconds, &found));
    Row::new(&row.word, published.into_iter().chain(ours).chain([difference]).map(Cell::from))
}

fn meaning(table: &EventTable) -> String {
    let [first, second] = &table.columns;
    format!(
        "Paper: {unit}. Here: the host's CPU time of a request in the guest's process, {first} by {job}, {second} by \
         {other}; the difference is the first less the second, paired by round, each with an interval of its own. \
         Percentages are of all rows of the paper in the first column; events and times have no unit in common. Rows \
         without published figures are ours alone.",
        unit = table.unit,
        first = first.word,
        job = first.workload,
        second = second.word,
        other = second.workload,
    )
}

/// What belongs to each row, and what was not done here.
fn notes(table: &EventTable, emulated: bool) -> Vec<String> {
    let belongs = |row: &EventRow| {
        let own = row.published.as_ref().filter(|printed| !printed.components.is_empty())?;
        Some(format!("{} = {}", own.word, own.components.join(" or ")))
    };
    let rows: Vec<String> = table.rows.iter().filter_map(belongs).collect();
    let mut all = vec![format!("Our components by row (* is any ending): {}.", rows.join("; "))];
    all.extend(table.not_run.iter().map(|why| format!("Not run here: {why}.")));
    all.push(match table.source.as_deref() {
        None => "Not measured here: no processors were sampled; the run needs --components.".to_owned(),
        Some("cycles") => "Here the CPU time is divided by samples of the processor's cycles.".to_owned(),
        Some(source) => format!(
            "Not measured here: events of the processor's hardware; samples are by {source}, the kernel's timer."
        ),
    });
    if emulated && table.source.is_some() {
        let why = "Not run here: KVM. The guest's processor was emulated, so KVM's modules took no time, and the \
                   guest's code is a part of QEMU's process, translated guest code.";
        all.push(why.to_owned());
    }
    all
}

#[cfg(test)]
mod tests {
    use vmio_model::cell::Cache;
    use vmio_model::paper::{EventColumn, Pattern, PrintedEvents};
    use vmio_model::stats::{Difference, Estimate, Interval};

    use super::*;
    use crate::fit::WIDTH;
    use crate::term::Style;

    fn table(sampled: bool) -> EventTable {
        let column = |word: &str, workload: &str| EventColumn {
            word: word.into(),
            workload: workload.into(),
            cell: Pattern { guest: "qemu".into(), cache: Some(Cache::Writeback), ..Pattern::default() },
        };
        let estimate = |us: f64| sampled.then_some(Estimate { value: us * 1e-6, interval: None, n: 4 });
        let row = |word: &str, published: Option<PrintedEvents>, times: [f64; 2]| {
            let interval = Some(Interval { low: 29e-6, high: 31e-6 });
            let apart = Difference { value: (times[0] - times[1]) * 1e-6, interval, pairs: 4, boots: 2 };
            EventRow {
                word: word.into(),
                published,
                seconds_per_request: times.map(estimate),
                share_ratio: times.map(|us| sampled.then_some(us / 40.0)),
                difference_seconds_per_request: sampled.then_some(apart),
            }
        };
        let printed = |word: &str, counts: [f64; 2], percents: [f64; 2]| PrintedEvents {
            word: word.into(),
            counts,
            percents,
            components: vec!["kernel, *".into()],
        };
        let kernel = printed("kernel", [17545.0, 1569.0], [60.9, 5.45]);
        EventTable {
            word: "events by component".into(),
            citation: "Table 1".into(),
            unit: "million events".into(),
            columns: [column("Hypervisor", "rand-read"), column("VM", "rand-read-buffered")],
            keys: [Some("a".into()), None],
            not_run: vec!["this run has no such cell".into()],
            source: sampled.then(|| "cpu-clock".to_owned()),
            rows: vec![row("kernel", Some(kernel), [32.0, 2.0])],
            beside: vec![row("translated guest code", None, [80.0, 60.0]), row("ld-linux", None, [0.01, 0.0])],
        }
    }

    fn text(sampled: bool, emulated: bool) -> String {
        tables(&[table(sampled)], emulated).text(Style::PLAIN, WIDTH)
    }

    #[test]
    fn published_and_measured_figures_stand_side_by_side() {
        let text = text(true, true);
        let line = |word: &str| {
            let line = text.lines().find(|line| line.starts_with(word)).unwrap_or_else(|| panic!("{text}"));
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("kernel"), "kernel 17545 60.9% 1569 5.45% 32.0 µs 80% 2.00 µs 5.0% +30.0 µs ±1.00 µs");
        assert!(text.contains("translated guest code") && !text.contains("ld-linux"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let whole = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let notes = ["kernel = kernel, *", "Not run here: this run has no such cell", "cpu-clock", "Not run here: KVM"];
        for said in notes {
            assert!(whole.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn what_was_not_measured_is_said_and_has_no_figure() {
        let text = text(false, true);
        let whole = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(whole.contains("kernel 17545 60.9% 1569 5.45% – – –"), "{text}");
        assert!(whole.contains("the run needs --components") && !whole.contains("Not run here: KVM"), "{text}");
        assert!(tables(&[], true).blocks.is_empty());
    }
}
