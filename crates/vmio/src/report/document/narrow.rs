//! A table on a terminal that has fewer columns than the table.

use super::{In, Table};

/// Fewest columns of the labels, which then stand above their rows, and of the first figure.
const LABEL: usize = 2;
const FIGURE: usize = 12;

/// The table without the columns that matter least, with fewer columns for its labels, and then for its first figure;
/// `None` where it fits, or does not say which columns matter least.
pub fn narrowed(table: &Table, width: usize) -> Option<Table> {
    let highest = table.columns.iter().map(|of| of.rank).max().filter(|rank| *rank > 0)?;
    if needed(table) <= width {
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
    let over = needed(&table).saturating_sub(width);
    if let Some(first) = table.columns.iter_mut().find(|of| of.shown.has(In::TERMINAL) && !of.below) {
        first.width = first.width.saturating_sub(over).max(FIGURE.min(first.width));
    }
    Some(table)
}

/// Columns of a row on a terminal.
fn needed(table: &Table) -> usize {
    let on_line = table.columns_in(In::TERMINAL).filter(|(_, of)| !of.below);
    table.layout.label + on_line.map(|(_, of)| of.gap + of.width).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::super::{Column, Layout, Row};
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
}
