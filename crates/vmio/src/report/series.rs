//! A paper's figures of a program that was run repeatedly, beside ours: a table of the report and of `vmio study
//! compare`.

use vmio_model::paper::{SeriesRow, SeriesTable};

use super::format::{self, three};
use super::paper::reading;
use super::section::Section;

/// A paper's table, with our reading of its words where nothing else on the page has it.
pub(super) fn section(table: &SeriesTable, with_readings: bool) -> Section {
    let readings = table.readings.iter().filter(|_| with_readings).map(reading);
    let columns = |who: &str| table.figures.iter().map(|name| format!("{name}, {who}")).collect::<Vec<_>>();
    let untold = |row: &SeriesRow| Some(format!("{}: not run: {}", row.published.word, row.not_run.as_ref()?));
    let mega = if table.mb_bytes > 1e6 { "1,048,576 bytes" } else { "10^6 bytes" };
    Section {
        title: format!("{} ({})", format::capital(&table.word), table.citation),
        meaning: format!(
            "MB/s, its MB of {mega}: one figure, or the lowest and the highest of the runs on end. Here: the mean over the \
             samples of each run, the lowest and the highest."
        ),
        columns: [columns("paper"), columns("here")].concat(),
        rows: table.rows.iter().map(|row| (row.published.word.clone(), cells(row, table))).collect(),
        notes: table.rows.iter().filter_map(untold).chain(readings).collect(),
    }
}

fn cells(row: &SeriesRow, table: &SeriesTable) -> Vec<String> {
    let joined = |figures: Vec<String>| if figures.is_empty() { "–".to_owned() } else { figures.join("-") };
    let published = |name: &String| {
        let printed = row.published.mb_s.get(name).map(Vec::as_slice).unwrap_or_default();
        joined(printed.iter().map(f64::to_string).collect())
    };
    let ours = |name: &String| {
        let runs = row.ours.as_ref().and_then(|ours| ours.bytes_per_second.get(name)).map_or(&[][..], Vec::as_slice);
        let low = runs.iter().copied().min_by(f64::total_cmp);
        let high = runs.iter().copied().max_by(f64::total_cmp);
        let mut extremes: Vec<String> = [low, high].into_iter().flatten().map(|x| three(x / table.mb_bytes)).collect();
        extremes.dedup();
        joined(extremes)
    };
    table.figures.iter().map(published).chain(table.figures.iter().map(ours)).collect()
}
