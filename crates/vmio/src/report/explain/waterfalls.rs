//! The waterfalls of a page: below each cell its parts from the top, each with a bar that begins where that of the part
//! above it ends.

use vmio_model::waterfall::Waterfall;
use vmio_model::waterfall::cells::CellLayers;

use super::super::document::{Bar, Cell, Column, Document, In, Layout, Row, Span, Table, Text, aside};
use super::super::format::time;
use super::{share_of, short};

/// Puts them into a page, in one table, so that their bars have one time scale: that of the longest cell.
pub fn put(doc: &mut Document, cells: &[CellLayers]) {
    let told = || cells.iter().filter_map(|cell| Some((cell.key.as_str(), cell.waterfall.as_ref()?)));
    let Some(scale) = told().map(|(_, whole)| whole.total_seconds).reduce(f64::max) else { return };
    let rows = told().map(|(key, whole)| row(key, whole, scale));
    let columns = [Column::new("mean", 10), Column { bars: true, ..Column::new("share", 7) }];
    let table = Table::new("Cell and layer", Layout::new(60), columns).with(rows);
    doc.only(In::HTML, Table { label: "Waterfall of each cell".into(), ..table }.into());
    let longest = time(scale);
    let what = format!("A layer's bar begins where that above it ends. All have one scale: the longest is {longest}.");
    doc.only(In::HTML, aside((0, 0), what));
}

/// What the application saw, and below it the parts.
fn row(key: &str, whole: &Waterfall, scale: f64) -> Row {
    let drawn = |name: &str, from: f64, seconds: f64, series: usize| {
        let title = format!("{name}: {}, begins at {}", short(seconds), short(from));
        let bar = Bar { from, value: seconds, interval: None, scale, series, title };
        [Cell::from(short(seconds)), Cell { bar: Some(bar), ..Cell::from(share_of(whole, seconds)) }]
    };
    let mut from = 0.0;
    let mut parts = Vec::new();
    for part in &whole.parts {
        let name = part.words();
        let cells = drawn(&name, from, part.seconds, 1);
        parts.push(Row::new(name, cells));
        from += part.seconds;
    }
    let label = Text::from(Span::Strong(key.to_owned()));
    Row { parts, ..Row::new(label, drawn(key, 0.0, whole.total_seconds, 0)) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use vmio_model::waterfall::Layer;

    use super::super::{RunLayers, run};
    use super::*;
    use crate::term::Style;

    fn cell(key: &str, layers: &[Layer], total_seconds: f64, timed: &[(Layer, f64)]) -> CellLayers {
        let timed: BTreeMap<Layer, f64> = timed.iter().copied().collect();
        CellLayers {
            key: key.into(),
            in_guest: layers == Layer::GUEST,
            samples: 3,
            latency: None,
            submission_seconds: None,
            waterfall: Some(Waterfall::of(layers, total_seconds, &timed)),
            untimed: Vec::new(),
            device: None,
        }
    }

    #[test]
    fn each_bar_begins_where_that_above_it_ends_and_cells_have_one_scale() {
        let timed = [(Layer::GuestBlock, 80e-6), (Layer::Hypervisor, 50e-6), (Layer::HostBlock, 30e-6)];
        let guest = cell("<b>", Layer::GUEST, 100e-6, &timed);
        let native = cell("native", Layer::NATIVE, 50e-6, &[(Layer::HostBlock, 40e-6)]);
        let cells = vec![guest, native];
        let of = RunLayers { run: 7, cells, paths: Vec::new(), cells_left_out: 0, emulated: false, answer: None };
        let page = run(&of, false).html();
        let places: Vec<&str> =
            page.split("class=\"fill\"").skip(1).filter_map(|rest| rest.split(" height").next()).collect();
        let expected = [
            " y=\"2\" width=\"98.00%\"",
            " y=\"2\" width=\"19.60%\"",
            " x=\"19.60%\" y=\"2\" width=\"29.40%\"",
            " x=\"49.00%\" y=\"2\" width=\"19.60%\"",
            " x=\"68.60%\" y=\"2\" width=\"29.40%\"",
            // The other cell, half as long.
            " y=\"2\" width=\"49.00%\"",
            " y=\"2\" width=\"9.80%\"",
            " x=\"9.80%\" y=\"2\" width=\"39.20%\"",
        ];
        assert_eq!(places, expected);
        assert!(page.contains("hypervisor: 20.0 µs, begins at 50.0 µs"), "{page}");
        assert!(page.contains("&lt;b&gt;: 100 µs, begins at 0 µs") && !page.contains("<b>"), "{page}");
        assert!(page.contains("the longest is 100 µs."), "{page}");
        let text = run(&of, false).text(Style::PLAIN, 80);
        assert_eq!(text.matches("what the application saw").count(), 2, "{text}");
        assert!(!text.contains("All have one scale"), "{text}");
    }
}
