//! The results as a page.

use std::fmt::Write as _;

use super::figures::{Results, Row, percentile};
use super::load::FRAME_BITS;
use super::scale::Scale;

const HEAD: &str = "\
# vmio's guard beside the limiters that operators use

`cargo bench -p vmio --bench peers` printed this page. Each limiter is set in turn in the same bed, interleaved, and \
all is measured at the receiver behind the uplink, where there is one queue and then loss.
";

const COLUMNS: &[&str] = &[
    "limiter",
    "share error",
    "worst guest, of its minimum",
    "uplink used",
    "guarantee restored after, p50 / p99",
    "one TCP stream, of its limit",
    "segments sent again",
    "ping at rest, p50 / p99",
    "neighbour's ping under flood, p50 / p99",
    "own ping, p50 / p99",
    "processors busy",
    "processor time a packet that arrives",
    "added cost of a packet",
    "of what is offered: arrives / waits in the sender / dropped on the host / dropped at the wire",
    "waits on the host",
];

/// What the columns are, with the bed's own rates and times.
fn explained(results: &Results) -> String {
    let mbit = |of_200: u64| (results.uplink_bps * of_200 / 200) as f64 / 1e6;
    let ms = |usual: f64| (usual * results.times_longer).round();
    format!(
        "\
- **share error**: the largest difference of a guest's rate from what the policy gives it (minima first, the rest in \
equal parts up to the maxima), of the uplink: all three flood with {} Mbit/s each, and two do while the first is \
silent.
- **worst guest**: of what it is guaranteed, while all flood. Limits that are only maxima keep no minimum unless the \
maxima add up to no more than the uplink, and then nobody may use what others leave.
- **restored**: the first guest was silent for {} ms and begins to send {} Mbit/s while the two others flood; from \
then until it never again falls behind 97 % of its minimum (by more than 4 frames) within {} ms. \"never\": not \
within {} ms. Of fewer than 100 trials (three usual rounds have 45) the p99 is the longest.
- **one TCP stream**: of the second guest, alone; payload that arrives, of its maximum less the headers. A burst that \
is left over makes more than 100 %. Where nothing limits, of the same maximum.
- **ping**: a datagram that is answered, every {} ms, lost after {} ms; by the first guest, which is silent else, and \
by one that floods. The queue before the wire holds {} ms.
- **processors busy, processor time**: of the whole machine, of `/proc/stat` (user, nice, system, irq, softirq; \
sampled by the kernel at each tick), senders and receiver included, while all flood.
- **added cost**: a small packet from the guest to the receiver, by the sender's clock, with limits for an uplink of \
8 Gbit/s and no slow wire; less what it takes in the same bed just before the limiter is set. With `none` that is the \
difference of two equal measurements.
- **arrives, waits, dropped**: senders are open loops that wait where their socket is full and give up what is due \
meanwhile. **waits on the host**: in queues at the end, in time of the uplink.
",
        mbit(200),
        ms(60.0),
        mbit(140),
        ms(100.0),
        ms(70.0),
        ms(5.0),
        ms(200.0),
        ms(20.0)
    )
}

/// What a page of another bed, or of a lab host, is to be read with.
fn elsewhere(results: &Results) -> String {
    let mut text = String::new();
    if let Some(label) = &results.lab_host {
        let _ = writeln!(
            text,
            "The host is a {label}. Where processors are emulated, their times and what a packet costs compare \
             limiters with each other alone.\n"
        );
    }
    if results.uplink_bps != Scale::USUAL.uplink_bps() {
        let _ = writeln!(
            text,
            "The usual bed has an uplink of 200 Mbit/s; \"How each is set\" below has its buckets and times. Here \
             rates are {} times as high, times (also latencies and horizons) {:.1} times as long, and buckets and \
             buffers hold as much of such a time, but at least two frames. What does not scale: a frame, which takes \
             {:.2} ms of this uplink; what TCP hands over at once, and its timeouts; the kernel's ticks; sockets' \
             buffers; the leaves' own lengths and times (fq_codel: 5 and 100 ms; fq: 100 packets of a flow; htb and \
             cni-htb: 1000 packets); the period of the guard's loop, and what it chooses by the rate.\n",
            results.uplink_bps as f64 / Scale::USUAL.uplink_bps() as f64,
            results.times_longer,
            FRAME_BITS * 1e3 / results.uplink_bps as f64
        );
    }
    text
}

/// The page.
pub fn markdown(results: &Results) -> String {
    let mut page = format!("{HEAD}\n");
    let rounds = results.limiters.iter().map(|row| row.rounds.len()).max().unwrap_or(0);
    let mbit = |bps: u64| bps as f64 / 1e6;
    let guests: Vec<String> = results
        .guests
        .iter()
        .map(|guest| format!("{} {} to {}", guest.name, mbit(guest.min_bps), mbit(guest.max_bps)))
        .collect();
    let _ = writeln!(
        page,
        "Linux {}, {} processors, TCP by {}; an uplink of {} Mbit/s (the wire carries {}); guaranteed and at most, in \
         Mbit/s of frames: {}. {rounds} rounds; medians of rounds, percentiles over all of them.\n",
        results.kernel,
        results.processors,
        results.congestion_control,
        mbit(results.uplink_bps),
        mbit(results.wire_bps),
        guests.join(", ")
    );
    page += &elsewhere(results);
    let _ = writeln!(page, "| {} |\n|{}", COLUMNS.join(" | "), "---|".repeat(COLUMNS.len()));
    for row in &results.limiters {
        let cells: Vec<String> = match &row.not_run {
            Some(reason) => {
                let rest = std::iter::repeat_n(String::new(), COLUMNS.len() - 2);
                [row.name.clone(), format!("not run: {}", reason.replace('|', "/"))].into_iter().chain(rest).collect()
            }
            None => cells(row),
        };
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    }
    let _ = write!(page, "\n{}\nHow each is set:\n", explained(results));
    for row in &results.limiters {
        let note = row.note.as_ref().map(|note| format!(". Here: {note}")).unwrap_or_default();
        let _ = writeln!(page, "- **{}**: {}{note}.", row.name, row.how);
    }
    page
}

fn cells(row: &Row) -> Vec<String> {
    let percent = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{:.1} %", value * 100.0));
    let number = |value: Option<f64>, unit: &str| value.map_or("–".to_owned(), |value| format!("{value:.2}{unit}"));
    let restored = row.pooled(|round| &round.restored_ms);
    let came = restored.iter().flatten().count();
    let restored = match (came, restored.len()) {
        (0, _) => "never".to_owned(),
        (came, all) if came == all => pair(&restored, "never"),
        (came, all) => format!("{}; in {came} of {all} trials", pair(&restored, "never")),
    };
    let added = row.median(|round| Some(round.packet_ns? - round.bare_packet_ns?));
    let cost = match (added, row.median(|round| round.packet_ns)) {
        (Some(ns), Some(all)) if row.name == "none" => format!("{ns:+.0} ns (all of it: {all:.0} ns)"),
        (Some(ns), _) => format!("{ns:+.0} ns"),
        (None, _) => "–".to_owned(),
    };
    // A stand-in's time is not that of what it stands for.
    let is_itself = row.rounds.iter().any(|round| round.packet_ns.is_some());
    let parts = [
        row.median(|round| Some(round.excess.arrived)),
        row.median(|round| Some(round.excess.sender)),
        row.median(|round| Some(round.excess.host)),
        row.median(|round| Some(round.excess.wire)),
    ];
    vec![
        row.name.clone(),
        percent(row.median(|round| Some(round.share_error))),
        percent(row.median(|round| Some(round.of_minimum))),
        percent(row.median(|round| Some(round.used))),
        restored,
        percent(row.median(|round| Some(round.tcp_of_limit))),
        row.median(|round| Some(round.tcp_retransmits as f64)).map_or("–".to_owned(), |count| format!("{count:.0}")),
        pair(&row.pooled(|round| &round.idle_ping_ms), "lost"),
        pair(&row.pooled(|round| &round.neighbours_ping_ms), "lost"),
        pair(&row.pooled(|round| &round.own_ping_ms), "lost"),
        number(row.median(|round| Some(round.busy)).filter(|_| is_itself), ""),
        number(row.median(|round| Some(round.busy_us_per_packet)).filter(|_| is_itself), " µs"),
        cost,
        parts.map(percent).join(" / "),
        number(row.median(|round| Some(round.excess.waiting_ms)), " ms"),
    ]
}

/// Both percentiles, in ms.
fn pair(values: &[Option<f64>], never: &str) -> String {
    let one = |percent| percentile(values, percent).map_or(never.to_owned(), |ms| format!("{ms:.2} ms"));
    format!("{} / {}", one(50.0), one(99.0))
}
