//! A further table of some cells: title, explanation, rows.

use super::document::{Block, Column, In, Layout, Long, Row, Table, aside, heading, remarks};
use crate::fit::WIDTH;

/// Width of a column in a terminal.
pub(super) const COLUMN: usize = 12;

/// A table of some cells.
pub(super) struct Section {
    pub(super) title: String,
    pub(super) meaning: String,
    pub(super) columns: Vec<String>,
    /// A row: the name of a cell, and a text for each column.
    pub(super) rows: Vec<(String, Vec<String>)>,
    /// The remarks below it.
    pub(super) notes: Vec<String>,
}

impl Section {
    /// The section as blocks. A column's head of two parts has two lines on a terminal.
    pub(super) fn blocks(self) -> Vec<(In, Block)> {
        let columns = self.columns.iter().map(|head| Column::new(head, COLUMN).narrow(head.replacen(", ", "\n", 1)));
        let label = WIDTH.saturating_sub(COLUMN * self.columns.len());
        let layout = Layout { long: Long::Outside, ..Layout::new(label) };
        let rows = self.rows.into_iter().map(|(name, cells)| Row::new(name, cells));
        let notes = self.notes.into_iter().map(|note| (String::new(), note));
        let all = [
            heading(2, self.title),
            Table::new("Cell", layout, columns).with(rows).into(),
            Block::Gap,
            aside((0, 0), self.meaning),
            remarks((2, 2), notes),
            Block::Gap,
        ];
        all.into_iter().map(|block| (In::ALL, block)).collect()
    }
}
