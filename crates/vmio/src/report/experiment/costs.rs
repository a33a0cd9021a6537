//! Figures 5 to 7: processors, bytes copied and loss of the cells that are the paper's, over the period of the loop.

use vmio_model::control::Allocator;
use vmio_model::simulate::{SECOND, Totals};

use super::SimulatedCell;
use crate::report::document::{Block, Column, Document, Drawing, In, Layout, Long, Plots, Row, Table, aside, heading};
use crate::report::plot::{Line, Mark, Plot, Stroke};
use crate::report::simulation::mbit;

/// What is printed of them.
const ABOUT: &str = "Processors of the host that were busy, and the hypervisor's part; Mbit/s that came from senders \
                     to the host at their ports, in place of the paper's memory transactions, which this host does \
                     not count; loss of the first class. Of Figures 5 to 7 the paper prints one number: 16.6 % of \
                     loss from 100 ms on.";

/// A table of each kind of side that has several systems, and on a page a plot over the period.
pub(super) fn put(doc: &mut Document, cells: &[SimulatedCell]) {
    let of = |who: &'static str, native: bool| {
        let mine = cells.iter().filter(|cell| cell.is_as_printed() && cell.trial.side.is_native() == native);
        (who, mine.collect::<Vec<&SimulatedCell>>())
    };
    let mut sides = vec![of("guests", false), of("containers", true)];
    sides.retain(|(_, mine)| mine.len() > 1);
    if sides.is_empty() {
        return;
    }
    doc.gap();
    doc.put(heading(2, "Figures 5 to 7: what it costs"));
    doc.put(aside((2, 2), ABOUT));
    for (who, mine) in sides {
        if let Some(plots) = plots(&mine) {
            doc.only(In::HTML, Block::Plots(plots));
        }
        doc.put(table(&mine, who).into());
    }
}

fn loss(cell: &SimulatedCell) -> Option<f64> {
    cell.trial.measured.totals.first().map(Totals::loss_ratio).filter(|_| cell.trial.is_whole)
}

fn table(cells: &[&SimulatedCell], who: &'static str) -> Table {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
    let row = |cell: &&SimulatedCell| {
        let trial = &cell.trial;
        let values = [
            number(trial.host_cpus),
            number(trial.hypervisor_cpus),
            trial.copied_bps.map_or_else(String::new, mbit),
            loss(cell).map_or_else(String::new, |loss| format!("{:.2} %", loss * 100.0)),
        ];
        Row::new(cell.system(), values)
    };
    let heads = [("busy", 6), ("hypervisor", 10), ("copied", 8), ("loss", 8)];
    let columns = heads.map(|(head, width)| Column::new(head, width).gap(1));
    Table::new(who, Layout { long: Long::Shortened, ..Layout::new(40) }, columns).with(cells.iter().map(row))
}

/// The published allocator over its period; dashed: unshaped.
fn plots(cells: &[&SimulatedCell]) -> Option<Plots> {
    let looped = cells.iter().copied().filter(|cell| matches!(cell.trial.settings.allocator, Allocator::Dba(_)));
    let looped: Vec<&SimulatedCell> = looped.filter(|cell| cell.period().is_some()).collect();
    if looped.len() < 3 {
        return None;
    }
    let unshaped = cells.iter().copied().find(|cell| cell.trial.guard.is_none());
    let drawn = |title: &str, value: &dyn Fn(&SimulatedCell) -> Option<f64>| {
        let point = |&cell: &&SimulatedCell| Some((cell.period()? as f64 / SECOND as f64 * 1e3, value(cell)?));
        let mut points: Vec<(f64, f64)> = looped.iter().filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mark = |value: f64| Mark { value, label: format!("{value:.2}"), series: 1 };
        let marks = unshaped.and_then(value).map(mark).into_iter().collect();
        let line = Line { stroke: Stroke::Series(0), label: title.to_owned(), points };
        let plot = Plot::over_seconds(title, (360.0, 230.0), vec![line], marks);
        (title.to_owned(), Drawing::Lines(Plot { x_label: "period in ms", x_log: true, ..plot }))
    };
    let legend = vec![(0, "the published allocator".to_owned()), (1, "unshaped (dashed)".to_owned())];
    let drawings = vec![
        drawn("processors busy", &|cell| cell.trial.host_cpus),
        drawn("Mbit/s copied", &|cell| Some(cell.trial.copied_bps? / 1e6)),
        drawn("loss of class 1, %", &|cell| Some(loss(cell)? * 100.0)),
    ];
    Some(Plots { legend, drawings })
}
