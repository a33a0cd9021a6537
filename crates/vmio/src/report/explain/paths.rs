//! The network cells of a run: packets and drops at each interface, and who used the processors.

use vmio_model::summary::wires::{Carried, Wire};
use vmio_model::waterfall::paths::{Busy, PathLayers, busiest, most_dropped};
use vmio_model::words::count;

use super::super::document::{Column, Document, In, Kind, Layout, Long, Row, Table, heading, paragraph, say};
use super::super::format::three;
use super::{IN_FULL, KEY, SHOWN};

/// Puts all of them into a document. On a terminal they are in full if they are few or with `verbose`, else in a table
/// if there is nothing else (`alone`), else only counted.
pub fn put(doc: &mut Document, all: &[PathLayers], alone: bool, verbose: bool) {
    if all.is_empty() {
        return;
    }
    let mut full = Document::new(String::new());
    all.iter().for_each(|path| in_full(&mut full, path));
    let few = alone && all.len() <= IN_FULL;
    doc.add(full, if few || verbose { In::ALL } else { In::ROOM });
    if few || verbose {
        return;
    }
    let more = if alone {
        doc.only(In::TERMINAL, table(&all[..all.len().min(SHOWN)]).into());
        all.len().saturating_sub(SHOWN)
    } else {
        all.len()
    };
    if more > 0 {
        let what = format!("{} more of a network: --verbose", count(more, "cell"));
        doc.only(In::TERMINAL, paragraph(Kind::Dim, (0, 0), what));
    }
}

/// Packets of both directions that were dropped at an interface.
fn dropped(link: &Wire) -> f64 {
    link.received.dropped_packets.value + link.sent.dropped_packets.value
}

fn table(paths: &[PathLayers]) -> Table {
    let columns = [
        Column::new("packets/s", 10).gap(1),
        Column::new("dropped", 8).gap(1),
        Column::new("busiest", 16).left().gap(2),
    ];
    let row = |path: &PathLayers| {
        let packets = |link: &Wire| link.received.packets_per_second.value + link.sent.packets_per_second.value;
        // A packet passes all of them.
        let most = path.links.iter().map(packets).reduce(f64::max);
        let drops = path.links.iter().map(dropped).reduce(|sum, more| sum + more);
        let known = |figure: Option<f64>| figure.map_or(super::DASH.to_owned(), three);
        let first = path.processors.first().map_or(super::DASH.to_owned(), in_use);
        Row::new(path.key.clone(), [known(most), known(drops), first])
    };
    let layout = Layout { indents: [0, 2], long: Long::Shortened, ..Layout::new(KEY) };
    Table::new("Path of", layout, columns).with(paths.iter().map(row))
}

/// `vcpu 0.93`.
fn in_use(busy: &Busy) -> String {
    format!("{} {}", busy.who, three(busy.cpu_ratio))
}

fn in_full(doc: &mut Document, path: &PathLayers) {
    doc.gap();
    doc.put(heading(3, format!("{} ({})", path.key, count(path.samples, "sample"))));
    if path.links.is_empty() {
        doc.put(say((0, 0), "No interface of its path was watched."));
    } else {
        let columns = ["in: pk/s", "MB/s", "dropped", "out: pk/s", "MB/s", "dropped"];
        let columns = columns.map(|head| Column::new(head, 9).gap(1));
        let way = |way: &Carried| {
            [way.packets_per_second.value, way.bytes_per_second.value / 1e6, way.dropped_packets.value].map(three)
        };
        let row = |link: &Wire| Row::new(link.link.clone(), [way(&link.received), way(&link.sent)].concat());
        doc.put(Table::new("Interface", Layout::new(16), columns).with(path.links.iter().map(row)).into());
    }
    let used: Vec<String> = path.processors.iter().map(in_use).collect();
    let used = if used.is_empty() { "not told by role".to_owned() } else { used.join(", ") };
    doc.put(say((0, 2), format!("Processors in use: {used}.")));
}

/// Where to look first, in words.
pub fn in_words(all: &[PathLayers]) -> String {
    if let Some((path, link, dropped)) = most_dropped(all) {
        let packets = three(dropped);
        return format!("Look first at {} in {}: {packets} packets a sample were dropped there.", link.link, path.key);
    }
    match busiest(all) {
        Some((path, busy)) => {
            let used = three(busy.cpu_ratio);
            format!("No packet was dropped. Busiest of a guest: {}, {used} processors, in {}.", busy.who, path.key)
        }
        None => "No packet was dropped at an interface that was watched.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use vmio_model::stats::Estimate;

    use super::*;
    use crate::term::Style;

    fn path(key: &str, dropped: f64) -> PathLayers {
        let figure = |value| Estimate { value, interval: None, n: 3 };
        let carried = Carried {
            bytes_per_second: figure(1.25e8),
            packets_per_second: figure(9e4),
            dropped_packets: figure(dropped / 2.0),
        };
        PathLayers {
            key: key.into(),
            in_guest: true,
            samples: 3,
            links: vec![Wire { link: "tap0".into(), received: carried, sent: carried }],
            processors: vec![Busy { who: "vcpu".into(), cpu_ratio: 0.93 }],
        }
    }

    fn text(all: &[PathLayers], alone: bool, verbose: bool) -> String {
        let mut doc = Document::new("");
        put(&mut doc, all, alone, verbose);
        doc.text(Style::PLAIN, 80)
    }

    #[test]
    fn many_are_a_line_each_and_beside_disks_only_counted() {
        let many: Vec<PathLayers> = (0..12).map(|n| path(&format!("cell{n}"), 0.0)).collect();
        let alone = text(&many, true, false);
        assert!(alone.contains("cell8 ") && !alone.contains("cell9 ") && alone.contains("3 cells more"), "{alone}");
        assert!(alone.contains("vcpu 0.93"), "{alone}");
        let beside = text(&many, false, false);
        assert!(beside.contains("12 cells more") && !beside.contains("cell0"), "{beside}");
        let full = text(&many, false, true);
        assert!(full.matches("tap0").count() == 12 && full.contains("cell11 (3 samples)"), "{full}");
        assert!(full.lines().all(|line| line.chars().count() <= 80), "{full}");
        assert_eq!(text(&[], true, false), "");
    }

    #[test]
    fn the_last_line_names_drops_before_processors() {
        let said = in_words(&[path("a", 0.0), path("b", 7.0)]);
        assert!(said.starts_with("Look first at tap0 in b: 7"), "{said}");
        assert!(
            in_words(&[path("a", 0.0)]).contains("Busiest of a guest: vcpu, 0.93"),
            "{}",
            in_words(&[path("a", 0.0)])
        );
    }
}
