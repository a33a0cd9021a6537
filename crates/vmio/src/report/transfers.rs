//! What host and guest send while each is pinned to processors, the published figures beside ours, for a terminal.

use vmio_model::figure::Unit;
use vmio_model::paper::{Sent, TransferRow, Transferred};
use vmio_model::stats::Estimate;

use super::document::{Column, In, Layout, Out, Row, Table, on_terminal};
use super::format::{self, spread, three};

/// The introduction of the tables.
const INTRODUCTION: &str = "MB/s (10^6 bytes a second) that arrived; our figures are the mean with the half width of \
                            its 95 % interval. host on, guest on: the processors that each was bound to. fairness: \
                            Jain's index, 100 % when both sent equally, 50 % when one sent all. Rows without \
                            published figures are only ours.";

/// Writes each column of a paper as a table.
pub(super) fn tables(all: &[Transferred], out: &mut Out) {
    if all.is_empty() {
        return;
    }
    out.paragraph("", 0, INTRODUCTION);
    for column in all {
        let from = column.citation.as_deref().unwrap_or("not in the paper");
        out.line("");
        out.line(&out.style.bold(&format!("{} ({from})", format::capital(&column.word))));
        on_terminal(out, &[(In::TERMINAL, table(&column.rows).into())]);
        let sent = column.rows.iter().flat_map(|row| [&row.host, &row.guest]).flatten();
        let moved = sent.filter_map(|sent| Some((sent, sent.moved_bytes?.value)));
        if let Some((sent, least)) = moved.min_by(|(_, a), (_, b)| a.total_cmp(b)) {
            let amount = format::figure(Unit::Bytes, least);
            out.paragraph("  ", 2, &format!("The smallest transfers moved {amount} on the average, in {}.", sent.key));
        }
    }
    out.line("");
}

fn table(rows: &[TransferRow]) -> Table {
    let columns = [
        Column::new("host\non", 5).left(),
        Column::new("guest\non", 5).left().gap(1),
        Column::new("published\nhost", 9).gap(1),
        Column::new("published\nguest", 9).gap(1),
        Column::new("here\nhost", 13).gap(2),
        Column::new("here\nguest", 13).gap(1),
        Column::new("here\nsum", 6).gap(1),
        Column::new("\nfairness", 8).gap(1),
    ];
    Table::new("", Layout::new(2), columns).with(rows.iter().map(|row| Row::new("", cells(row))))
}

fn cells(row: &TransferRow) -> [String; 8] {
    let pins = |pins: &[u32]| pins.iter().map(u32::to_string).collect::<Vec<_>>().join("+");
    let printed = |of: Option<&[f64]>| {
        let figures = of.unwrap_or_default().iter().map(|x| format!("{x}")).collect::<Vec<_>>();
        if figures.is_empty() { "–".to_owned() } else { figures.join("-") }
    };
    let published = row.published.as_ref();
    [
        pins(&row.host_pins),
        pins(&row.guest_pins),
        printed(published.map(|p| &p.host_mb_s[..])),
        printed(published.map(|p| &p.guest_mb_s[..])),
        sent(row.host.as_ref()),
        sent(row.guest.as_ref()),
        row.sum_bits_per_second.map_or_else(String::new, |sum| megabytes(&sum)),
        row.fairness.map_or_else(String::new, |index| format::percent(index.value)),
    ]
}

fn megabytes(bits_per_second: &Estimate) -> String {
    three(bits_per_second.value / 8e6)
}

fn sent(sent: Option<&Sent>) -> String {
    let shown = |sent: &Sent| {
        let rate = &sent.bits_per_second;
        format!("{} {}", megabytes(rate), if rate.interval.is_some() { spread(rate) } else { "±?".to_owned() })
    };
    sent.map_or_else(|| "–".to_owned(), shown)
}
