//! A table on a terminal that has fewer columns than the table.

use super::lines::Out;
use super::{Column, In, Row, Table};
use crate::fit::{self, WIDTH};

/// Fewest columns of the labels, which then stand above their rows, and of the first figure.
const LABEL: usize = 2;
const FIGURE: usize = 12;

/// The table without the columns that matter least, with fewer columns for its labels, and then for its first figure;
/// `None` where it fits, or does not say which columns matter least in a terminal of the usual width.
pub fn narrowed(table: &Table, width: usize) -> Option<Table> {
    let highest = table.columns.iter().map(|of| of.rank).max().unwrap_or(0);
    if (highest == 0 && width >= WIDTH) || needed(table) <= width {
        return None;
    }
    let mut table = table.clone();
    for rank in (1..=highest).rev() {
        if needed(&table) > width {
            table.columns.iter_mut().filter(|of| of.rank == rank).for_each(|of| of.shown = In::NONE);
        }
    }
    let (over, label) = (needed(&table).saturating_sub(width), table.layout.label);
    table.layout.label = label.saturating_sub(over).max(LABEL.min(label));
    let over = if highest > 0 { needed(&table).saturating_sub(width) } else { 0 };
    if let Some(first) = table.columns.iter_mut().find(|of| of.shown.has(In::TERMINAL) && !of.below) {
        first.width = first.width.saturating_sub(over).max(FIGURE.min(first.width));
    }
    Some(table)
}

/// Columns of a row on a terminal: those that are asked for. Without ranks a wide cell takes room of no other, and each
/// column is as wide as its widest text.
fn needed(table: &Table) -> usize {
    let ranked = table.columns.iter().any(|of| of.rank > 0);
    let width = |(at, of): (usize, &Column)| of.gap + if ranked { of.width } else { of.width.max(widest(table, at)) };
    table.layout.label + table.columns_in(In::TERMINAL).filter(|(_, of)| !of.below).map(width).sum::<usize>()
}

/// The widest text of a column, its head too.
fn widest(table: &Table, at: usize) -> usize {
    fn of_rows(rows: &[Row], at: usize) -> usize {
        let spans = |row: &Row| row.cells.get(at).is_some_and(|cell| cell.span > 1);
        let own = |row: &Row| if spans(row) { 0 } else { fit::columns(&said(row, at)) };
        rows.iter().map(|row| own(row).max(of_rows(&row.parts, at))).max().unwrap_or(0)
    }
    let head = table.columns[at].narrow.split('\n').map(fit::columns).max().unwrap_or(0);
    head.max(of_rows(&table.rows, at))
}

/// The text of a cell on a terminal.
fn said(row: &Row, at: usize) -> String {
    let Some(cell) = row.cells.get(at) else { return String::new() };
    cell.narrow.clone().unwrap_or_else(|| cell.text.plain())
}

/// Whether a table has no room, also [narrowed]: then each cell has its head before it.
pub fn is_stacked(table: &Table, width: usize) -> bool {
    width < WIDTH && needed(table) > width
}

/// A row of such a table: its label, and below it the cells with their heads, as many on a line as have room.
pub fn row(out: &mut Out, table: &Table, row: &Row, indent: usize) {
    out.paragraph(&" ".repeat(indent), indent + 2, &row.label.plain());
    let (indent, mut line) = (indent + 2, String::new());
    let lead = " ".repeat(indent);
    for (at, column) in table.columns_in(In::TERMINAL) {
        let text = said(row, at);
        if text.trim().is_empty() {
            continue;
        }
        let head = if table.heads.has(In::TERMINAL) { column.narrow.replace('\n', " ") } else { String::new() };
        let cell = format!("{} {}", head.trim(), text.trim());
        let cell = cell.trim_start();
        if !line.is_empty() && indent + fit::columns(&line) + 2 + fit::columns(cell) > out.width {
            out.paragraph(&lead, indent, &line);
            line.clear();
        }
        line += if line.is_empty() { "" } else { "; " };
        line += cell;
    }
    if !line.is_empty() {
        out.paragraph(&lead, indent, &line);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Layout;
    use super::*;

    #[test]
    fn what_matters_least_goes_first() {
        let ranked = |head: &str, width, rank| Column { rank, ..Column::new(head, width) };
        let columns = [Column::new("figure", 17), ranked("p50", 8, 3), ranked("p99", 8, 2), ranked("n", 4, 1)];
        let table = Table::new("Side", Layout::new(27), columns).with([Row::new("native", ["1", "2", "3", "4"])]);
        assert!(narrowed(&table, 64).is_none());
        let shown = |width| -> (Vec<String>, usize, usize) {
            let table = narrowed(&table, width).unwrap_or_else(|| table.clone());
            let heads = table.columns_in(In::TERMINAL).map(|(_, of)| of.head.clone()).collect();
            (heads, table.layout.label, table.columns[0].width)
        };
        let heads = |all: &[&str]| all.iter().map(|head| (*head).to_owned()).collect::<Vec<_>>();
        assert_eq!(shown(60), (heads(&["figure", "p99", "n"]), 27, 17));
        assert_eq!(shown(44), (heads(&["figure"]), 27, 17));
        assert_eq!(shown(30), (heads(&["figure"]), 13, 17));
        assert_eq!(shown(15), (heads(&["figure"]), 2, 13));
    }

    /// One that says nothing of its columns gives up room of its labels, and then the line.
    #[test]
    fn what_has_no_ranks_is_stacked_where_it_has_no_room() {
        let columns = [Column::new("CPU\ns/GB", 10), Column::new("CPU/req", 10), Column::new("", 2)];
        let rows = [Row::new("a label", ["0.487", "31.9 µs", "a longer text"]), Row::new("none", ["", "1 s", ""])];
        let table = Table::new("Cell", Layout::new(42), columns).with(rows);
        assert!(narrowed(&table, WIDTH).is_none() && !is_stacked(&table, WIDTH));
        let fits = narrowed(&table, 40).unwrap();
        assert!(fits.layout.label == 7 && !is_stacked(&fits, 40), "{}", fits.layout.label);
        let tight = narrowed(&table, 30).unwrap();
        assert!(tight.layout.label == 2 && is_stacked(&tight, 30));
        let mut out = Out::new(crate::term::Style::PLAIN, 30);
        tight.rows.iter().for_each(|of| row(&mut out, &tight, of, 0));
        let wanted = "a label\n  CPU s/GB 0.487\n  CPU/req 31.9 µs\n  a longer text\nnone\n  CPU/req 1 s\n";
        assert_eq!(out.text, wanted);
    }
}
