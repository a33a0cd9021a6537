//! A table whose columns are as wide as their cells, fitted into a terminal.

use super::lines::{Out, severity};
use super::{Align, Cell, Fit, In, Table};
use crate::fit;

/// Spaces between two columns.
const GAP: usize = 2;
/// Columns of a severity.
const CHIP: usize = 8;

/// A column with its cells as texts.
struct FittedColumn {
    /// Its index; that of the labels is 0.
    at: usize,
    head: String,
    right: bool,
    cells: Vec<String>,
    width: usize,
}

impl FittedColumn {
    fn put(&self, cell: &str) -> String {
        let cell = fit::cut(cell, self.width);
        let cell = if self.right { fit::right(&cell, self.width) } else { fit::left(&cell, self.width) };
        format!("{cell}{:GAP$}", "")
    }
}

/// A column of the table, with its short or its usual texts.
fn fit_column(table: &Table, at: usize, short: bool) -> FittedColumn {
    let text = |cell: &Cell| match (&cell.short, &cell.narrow) {
        (Some(text), _) if short => text.clone(),
        (_, Some(text)) => text.clone(),
        _ => cell.text.plain(),
    };
    let column = at.checked_sub(1).map(|at| &table.columns[at]);
    let (mut cells, mut width) = (Vec::new(), 0);
    for row in &table.rows {
        let cell = at.checked_sub(1).and_then(|at| row.cells.get(at));
        let said = if at == 0 { row.label.plain() } else { cell.map(text).unwrap_or_default() };
        let chip = if cell.is_some_and(|cell| cell.chip.is_some()) { CHIP } else { 0 };
        width = width.max(fit::columns(&said) + chip);
        cells.push(said);
    }
    let head = column.map_or(&table.narrow, |column| &column.narrow).to_owned();
    let right = column.is_some_and(|column| column.align == Align::Right);
    FittedColumn { at, width: width.max(fit::columns(&head)), head, right, cells }
}

/// The table in the width of the terminal. The last column takes what the others leave.
pub fn table(out: &mut Out, table: &Table) {
    let places = std::iter::once(0).chain(table.columns_in(In::TERMINAL).map(|(at, _)| at + 1));
    let mut all: Vec<FittedColumn> = places.map(|at| fit_column(table, at, false)).collect();
    for step in table.layout.fit {
        let width = all.iter().map(|of| of.width + GAP).sum::<usize>() - GAP;
        let over = width.saturating_sub(out.room);
        match *step {
            _ if over == 0 => break,
            Fit::Drop(place) => all.retain(|of| of.at != place),
            Fit::Short(place) => {
                all.iter_mut().filter(|of| of.at == place).for_each(|of| *of = fit_column(table, place, true));
            }
            Fit::Least(place, least) => {
                for of in all.iter_mut().filter(|of| of.at == place) {
                    of.width = of.width.saturating_sub(over).max(least.min(of.width));
                }
            }
        }
    }
    // Long names are cut in the middle: names of one kind differ at the end.
    if let Some(labels) = all.first_mut() {
        let names: Vec<&str> = labels.cells.iter().map(String::as_str).collect();
        labels.cells = fit::names(&names, labels.width);
    }
    let Some((last, before)) = all.split_last() else { return };
    let rest = out.room.saturating_sub(before.iter().map(|of| of.width + GAP).sum());
    let style = out.style;
    let heads: String = before.iter().map(|of| of.put(&of.head)).collect();
    out.line(&style.dim(&format!("{heads}{}", last.head)));
    for (nth, row) in table.rows.iter().enumerate() {
        let line: String = before.iter().map(|of| of.put(&of.cells[nth])).collect();
        let said = &last.cells[nth];
        let cell = last.at.checked_sub(1).and_then(|at| row.cells.get(at));
        let text = match cell.and_then(|cell| cell.chip) {
            Some(chip) => {
                let fill = " ".repeat(CHIP - chip.name().len());
                format!("{}{fill}{}", severity(chip, style), fit::cut(said, rest.saturating_sub(CHIP)))
            }
            None => style.dim(&fit::cut(said, rest)),
        };
        out.line(&format!("{line}{text}"));
    }
}
