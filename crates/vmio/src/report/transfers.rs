//! What host and guest send while each is held to processors, the published figures beside ours, for a terminal.

use vmio_model::figure::Unit;
use vmio_model::paper::{Sent, TransferRow, Transferred};
use vmio_model::stats::Estimate;

use super::document::Out;
use super::format::{self, spread, three};

/// What stands above the tables.
const INTRODUCTION: &str = "MB/s (10^6 bytes a second) that arrived; of ours the mean with the half width of its 95 % \
    interval. host on, guest on: the processors that each was held to. fairness: Jain's index, 100 % when both sent alike, \
    50 % when one sent all. Rows without published figures are ours alone.";

/// The columns of a paper, each as a table.
pub(super) fn tables(all: &[Transferred], out: &mut Out) {
    if all.is_empty() {
        return;
    }
    out.paragraph("", 0, INTRODUCTION);
    for column in all {
        let from = column.citation.as_deref().unwrap_or("not in the paper");
        out.line("");
        out.line(&out.style.bold(&format!("{} ({from})", format::capital(&column.word))));
        let names = ["host", "guest", "published", "published", "here", "here", "here", ""];
        let units = ["on", "on", "host", "guest", "host", "guest", "sum", "fairness"];
        for head in [names, units] {
            out.line(&line(&head.map(str::to_owned)));
        }
        for row in &column.rows {
            out.line(&line(&cells(row)));
        }
        let sent = column.rows.iter().flat_map(|row| [&row.host, &row.guest]).flatten();
        let moved = sent.filter_map(|sent| Some((sent, sent.moved_bytes?.value)));
        if let Some((sent, least)) = moved.min_by(|(_, a), (_, b)| a.total_cmp(b)) {
            let amount = format::figure(Unit::Bytes, least);
            out.paragraph("  ", 2, &format!("The smallest transfers moved {amount} on the average, in {}.", sent.key));
        }
    }
    out.line("");
}

fn line(cells: &[String; 8]) -> String {
    let [host, guest, theirs, their_guest, ours, our_guest, sum, fairness] = cells;
    let line = format!(
        "  {host:<5} {guest:<5} {theirs:>9} {their_guest:>9}  {ours:>13} {our_guest:>13} {sum:>6} {fairness:>8}"
    );
    line.trim_end().to_owned()
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
    let told = |sent: &Sent| {
        let found = &sent.bits_per_second;
        format!("{} {}", megabytes(found), if found.interval.is_some() { spread(found) } else { "±?".to_owned() })
    };
    sent.map_or_else(|| "–".to_owned(), told)
}
