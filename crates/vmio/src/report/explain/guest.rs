//! A running guest, watched from outside, as a document.

use vmio_model::waterfall::Part;
use vmio_model::waterfall::cells::{Times, Why};
use vmio_model::waterfall::cost::{MOST_LOST, TracingCost};
use vmio_model::waterfall::host::{Asked, HostPart, LiveCalls, Split};
use vmio_model::waterfall::hypervisor::{HypervisorPart, LiveHypervisor};
use vmio_model::waterfall::live::LiveDisk;

use super::super::document::{
    Column, Document, In, Kind, Layout, Row, Span, Table, Text, heading, list, paragraph, say,
};
use super::super::format::{bytes, count, percent, three, time};
use super::{DASH, GuestLayers, known, short};

/// Share of a request's time from which a layer takes most of it.
const MOST: f64 = 0.5;

/// A guest as a document.
pub fn guest(of: &GuestLayers) -> Document {
    let GuestLayers { name, pid, seconds, hypervisor, calls, disks, hypervisor_thread, unseen, .. } = of;
    let mut doc = Document::new(format!("{name}: where the time of one request goes"));
    doc.only(In::TERMINAL, heading(2, &doc.title));
    let process = pid.map_or(String::new(), |pid| format!("Process {pid}, watched"));
    let parts = || hypervisor.iter().flat_map(|both| both.reads.iter().chain(&both.writes));
    let monitor = match hypervisor {
        Some(_) if parts().any(|part| part.p50_seconds.is_some()) => " QEMU's latency histograms were on meanwhile.",
        Some(_) => " QEMU's monitor was asked for its counters.",
        None => "",
    };
    doc.put(say((0, 0), format!("{process} for {} from outside. The guest is not touched.{monitor}", time(*seconds))));
    hypervisor.iter().for_each(|hypervisor| of_hypervisor(&mut doc, hypervisor));
    calls.iter().for_each(|calls| asked(&mut doc, calls));
    disks.iter().for_each(|disk| of_disk(&mut doc, disk));
    if hypervisor.is_some() || calls.is_some() || !disks.is_empty() {
        let hidden = Part { layers: unseen.clone(), seconds: 0.0 }.words();
        doc.put(paragraph(Kind::Dim, (0, 2), format!("Not seen from outside: {hidden}.")));
    }
    if let Some(thread) = hypervisor_thread {
        doc.put(say((0, 0), format!("Its thread {} uses {} of a processor.", thread.name, percent(thread.cpu_ratio))));
    }
    doc.put(list((0, 2), of.notes.iter().map(String::as_str)));
    of.tracing_cost.iter().for_each(|cost| doc.put(say((0, 0), in_words(cost))));
    doc.gap();
    doc.put(say((0, 0), Text::from(Span::Bold(answer(of)))));
    doc
}

/// What watching costs, in words.
fn in_words(cost: &TracingCost) -> String {
    let TracingCost { without_per_second, with_per_second, ratio } = cost;
    let lost = |ratio: f64| percent(1.0 - ratio);
    let interval = ratio.interval.map_or(String::new(), |i| format!("{} to {}, ", lost(i.high), lost(i.low)));
    let most = percent(MOST_LOST);
    let judged = match cost.is_small() {
        Some(true) => format!("at most {most}"),
        Some(false) => format!("more than {most}"),
        None => format!("whether it is more than {most} is not decided"),
    };
    let turns = count(ratio.pairs as usize, "turn");
    let loss = format!("{} of the requests at the guest's disks ({interval}{turns})", lost(ratio.value));
    let (with, without) = (three(*with_per_second), three(*without_per_second));
    format!("Watching costs {loss}: {judged}. {with} requests/s with it, {without} without.")
}

/// A table of layers, that which nothing sees first.
fn layers(rows: impl IntoIterator<Item = (&'static str, Vec<String>)>) -> Table {
    let columns = ["mean", "p50", "p99"].map(|head| Column::new(head, 9).gap(1));
    let hidden = ("inside the guest and its hypervisor", vec![DASH.to_owned(); 3]);
    let rows = std::iter::once(hidden).chain(rows).map(|(name, cells)| Row::new(name, cells));
    Table::new("Layer", Layout::new(38), columns).with(rows)
}

fn three_times(times: &Times) -> Vec<String> {
    vec![time(times.mean_seconds), known(times.p50_seconds), known(times.p99_seconds)]
}

fn of_disk(doc: &mut Document, disk: &LiveDisk) {
    doc.gap();
    let rate = format!("{} requests/s of {}", three(disk.iops), bytes(disk.request_bytes.round() as u64));
    doc.put(heading(3, format!("{}: {rate}, {} at once", disk.name, three(disk.queue_depth))));
    let rows = [
        ("host's block layer, queue (QAVG)", three_times(&disk.queue)),
        ("device (DAVG)", three_times(&disk.device)),
        ("both", three_times(&disk.host)),
    ];
    doc.put(layers(rows).into());
}

/// What the hypervisor counted.
fn of_hypervisor(doc: &mut Document, hypervisor: &LiveHypervisor) {
    let LiveHypervisor { reads, writes } = hypervisor;
    for (what, part) in [("Reads", reads), ("Writes and flushes", writes)] {
        let Some(part) = part else { continue };
        let HypervisorPart { per_second, request_bytes, whole_seconds, own_seconds, untimed, .. } = part;
        doc.gap();
        let size = bytes(request_bytes.round() as u64);
        doc.put(heading(3, format!("{what}: {} requests/s of {size} by the guest", three(*per_second))));
        let mean = |seconds: Option<f64>| vec![seconds.map_or(DASH.to_owned(), short)];
        let rows = [
            ("inside the guest, and virtual I/O", mean(None)),
            ("hypervisor", mean(*own_seconds)),
            ("the host", mean(own_seconds.map(|own| whole_seconds - own))),
            ("from the hypervisor on", mean(Some(*whole_seconds))),
        ];
        let rows = rows.map(|(name, cells)| Row::new(name, cells));
        doc.put(Table::new("Layer", Layout::new(38), [Column::new("mean", 9).gap(1)]).with(rows).into());
        if let HypervisorPart { p50_seconds: Some(p50), p99_seconds, .. } = part {
            let what = format!("From the hypervisor on: p50 {}, p99 {}.", time(*p50), known(*p99_seconds));
            doc.put(say((0, 2), what));
        }
        doc.put(list((0, 2), untimed.iter().map(|why| format!("layers not told apart: {}", above(*why)))));
    }
}

/// Why the hypervisor's part is not told from the host's.
fn above(why: Why) -> String {
    match why {
        Why::NoProbe | Why::NotSeen => "its calls to the host are not seen, or not those of all requests".to_owned(),
        Why::MoreRequests => "it asks the host more often than the guest asks it".to_owned(),
        Why::NotAsked | Why::OtherSize | Why::Flushes | Why::NotWaitedFor | Why::EndNotSeen => super::reason(why, None),
    }
}

/// What the hypervisor asked of the host, one table a direction.
fn asked(doc: &mut Document, calls: &LiveCalls) {
    let LiveCalls { reads, writes, flushes, submissions } = calls;
    for (what, part) in [("Reads", reads), ("Writes and flushes", writes)] {
        part.iter().for_each(|part| of_direction(doc, what, part));
    }
    if let Some(Asked { per_second, times, .. }) = flushes {
        let [mean, p50, p99] = [Some(times.mean_seconds), times.p50_seconds, times.p99_seconds].map(known);
        let what =
            format!("Flushes and discards among them: {}/s, mean {mean}, p50 {p50}, p99 {p99}.", three(*per_second));
        doc.put(say((0, 2), what));
    }
    if let Some(Asked { per_second, mean_size, times }) = submissions {
        let (rate, requests, mean) = (three(*per_second), three(*mean_size), time(times.mean_seconds));
        let p99 = known(times.p99_seconds);
        let what = format!("io_submit: {rate} calls/s of {requests} requests, mean {mean}, p99 {p99}.");
        doc.put(say((0, 2), what));
    }
}

fn of_direction(doc: &mut Document, what: &str, part: &HostPart) {
    let HostPart { asked: Asked { per_second, mean_size, times }, split, untimed } = part;
    doc.gap();
    let size = bytes(mean_size.round() as u64);
    doc.put(heading(3, format!("{what}: {} requests/s of {size} to the host", three(*per_second))));
    let mean = |of: fn(&Split) -> f64| {
        let mean = split.as_ref().map_or(DASH.to_owned(), |split| short(of(split)));
        vec![mean, DASH.to_owned(), DASH.to_owned()]
    };
    let rows = [
        ("host's file system and page cache", mean(|split| split.file_system_seconds)),
        ("host's block layer, queue (QAVG)", mean(|split| split.queue_seconds)),
        ("device (DAVG)", mean(|split| split.device_seconds)),
        ("all of the host", three_times(times)),
    ];
    doc.put(layers(rows).into());
    if let Some(split) = split {
        doc.put(say((0, 2), format!("All but the device (KAVG): {}.", short(split.kernel_seconds()))));
    }
    doc.put(list((0, 2), untimed.iter().map(|why| format!("layers not told apart: {}", reason(*why)))));
}

/// Why the host's part is not told apart.
fn reason(why: Why) -> String {
    match why {
        Why::NoProbe | Why::NotSeen => "its requests were not seen at a disk of this host".to_owned(),
        Why::MoreRequests => "there are more requests or bytes at the disk".to_owned(),
        Why::NotAsked | Why::OtherSize | Why::Flushes | Why::NotWaitedFor | Why::EndNotSeen => super::reason(why, None),
    }
}

/// What to change, in words.
fn answer(of: &GuestLayers) -> String {
    if let Some(thread) = of.hypervisor_thread.as_ref().filter(|thread| thread.is_full()) {
        let used = percent(thread.cpu_ratio);
        return format!("Change first: hypervisor. Its thread {} is full ({used} of a processor).", thread.name);
    }
    if let Some(own) = of.hypervisor.and_then(|hypervisor| hypervisor.own_ratio()).filter(|own| *own >= MOST) {
        return format!("Change first: hypervisor. Its own part is {} of what is seen of a request.", percent(own));
    }
    if let Some((layer, ratio)) = of.calls.as_ref().and_then(LiveCalls::longest) {
        let (layer, ratio) = (layer.words(), percent(ratio));
        return format!("Change first: {layer}. It is {ratio} of what the host sees of a request.");
    }
    match of.disks.first() {
        Some(disk) => {
            let (layer, ratio) = disk.longest();
            let (layer, ratio) = (layer.words(), percent(ratio));
            format!("Change first: {layer} of {}. It is {ratio} of what the host sees of a request.", disk.name)
        }
        None => "No request of this guest was seen at a disk of the host.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmio_model::stats::{Interval, Ratio};

    #[test]
    fn what_watching_costs_is_told_with_its_interval() {
        let told = |value: f64, interval: Option<Interval>| {
            let ratio = Ratio { value, interval, pairs: 8, boots: 8 };
            in_words(&TracingCost { without_per_second: 1000.0, with_per_second: 985.0, ratio })
        };
        let small = told(0.985, Some(Interval { low: 0.97, high: 1.002 }));
        let words = "Watching costs 1.5 % of the requests at the guest's disks (-0.2 % to 3.0 %, 8 turns): at most \
                     5.0 %. 985 requests/s with it, 1000 without.";
        assert_eq!(small, words);
        assert!(told(0.8, Some(Interval { low: 0.7, high: 0.9 })).contains("): more than 5.0 %. "));
        let undecided = told(0.97, Some(Interval { low: 0.9, high: 1.04 }));
        assert!(undecided.contains("whether it is more than 5.0 % is not decided"), "{undecided}");
        assert!(told(0.97, None).contains(" (8 turns): whether "), "no interval");
    }
}
