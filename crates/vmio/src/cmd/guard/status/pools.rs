//! The pools with their members.

use vmio_guard::manager::document::{FlowDocument, LocalDocument, MemberDocument, PoolDocument, SettingsDocument};
use vmio_model::policy::{Direction, Excess, queueless};
use vmio_model::rate::BitRate;

use super::super::table::{figure, unit};
use super::{View, delay};
use crate::fit::{self, WIDTH};
use crate::report::document::{Block, Column, Document, Kind, Layout, Row, Span, Table, Text, list, paragraph, say};
use crate::report::format::{self, count};

/// Columns of a figure.
const FIGURE: usize = 7;
/// Longest name beside which the figures still stand on the same line.
const NAME: usize = 20;
/// Longest class that is shown whole beside the figures.
const CLASS: usize = 10;
/// Columns of a guest's name that are shown.
const GUEST: usize = 32;
/// Most lines of a kind that are shown; there may be thousands.
const LINES: usize = 20;

/// All of them.
pub fn text(pools: &[PoolDocument], view: View<'_>) -> String {
    let mut doc = Document::new("");
    for pool in pools {
        of_pool(&mut doc, pool, view);
        doc.gap();
    }
    if !pools.is_empty() {
        let legend = "rate: of the last second; dropped: packets, since the limits were set";
        doc.put(paragraph(Kind::Dim, (0, 0), legend));
    }
    doc.text(view.style, view.width)
}

/// A member: its guest, where one is known, and the interface.
pub fn shown(member: &MemberDocument) -> String {
    match &member.guest {
        Some(guest) if *guest != member.name => format!("{} ({})", fit::name(guest, GUEST), member.name),
        _ => member.name.clone(),
    }
}

/// `1.2 s`, `3 min 20 s`.
pub fn long_time(seconds: f64) -> String {
    if seconds < 60.0 { format::time(seconds) } else { format::duration(seconds) }
}

/// At most so many lines as are shown of a kind, and how many more there are.
pub fn cut(mut lines: Vec<String>, state: &str) -> Vec<String> {
    let more = lines.len().saturating_sub(LINES);
    if more > 0 {
        lines.truncate(LINES);
        lines.push(format!("and {more} more: vmio guard status{state} --json"));
    }
    lines
}

/// A pool with its members.
fn of_pool(doc: &mut Document, pool: &PoolDocument, view: View<'_>) {
    let View { verbose, width, state, .. } = view;
    doc.put(heading(pool));
    let (unit, factor) = unit(pool.capacity_bps);
    if width < WIDTH {
        // Where each figure has its head before it, the unit has no place of its own.
        doc.put(say((0, 0), format!("rates in {unit}")));
    }
    doc.put(table(pool, (unit, factor), verbose, width).into());
    let free = pool.capacity_bps.bits().saturating_sub(pool.shared_bps.bits());
    let is_free = free > 0 && pool.direction == Direction::GuestRx && pool.not_in_force.is_none();
    let why_free = (verbose && is_free).then(|| {
        let free = BitRate::new(free);
        format!("{free} stay free, so that excess waits on this host, where priorities count, and not in the switch")
    });
    let stage = pool.stage.as_ref().map(|stage| {
        let lost = count(stage.dropped_packets_total as usize, "packet");
        let shared = stage.shared_bps;
        format!("guests wait before the uplink and share {shared}; {lost} dropped at the uplink after that so far")
    });
    let interrupted = (pool.interruptions_total > 0).then(|| {
        let times = count(pool.interruptions_total as usize, "time");
        let long = long_time(pool.interrupted_seconds_total);
        format!("interrupted from outside {times} since the start, for about {long} in all")
    });
    let lines = [why_free, stage, excess(pool, verbose), local(pool), interrupted];
    lines.into_iter().flatten().for_each(|line| doc.put(say((0, 0), line)));
    doc.put(list((0, 2), cut(pool.members.iter().filter_map(held_back).collect(), state)));
}

fn heading(pool: &PoolDocument) -> Block {
    let name = Text::from(Span::Bold(format!("{} {}", pool.uplink, pool.direction.word())));
    let does = match pool.direction {
        Direction::GuestTx => "send",
        Direction::GuestRx => "receive",
    };
    let (capacity, shared) = (pool.capacity_bps, pool.shared_bps);
    let said = match &pool.not_in_force {
        Some(_) => format!(": {capacity}, nothing in force (see below)"),
        None if pool.queueless => format!(": {capacity}; {}", queueless::SHOWN),
        None if shared == capacity => format!(": {capacity} for what guests and the host {does}"),
        None => format!(": {shared} of {capacity} for what guests and the host {does}"),
    };
    say((0, 0), name.and(Span::Plain(said)))
}

fn table(pool: &PoolDocument, (unit, factor): (&str, BitRate), verbose: bool, width: usize) -> Table {
    let names: Vec<String> = pool.members.iter().map(shown).collect();
    let flows = pool.members.iter().flat_map(|member| &member.flows).map(|flow| format!("  {}", flow.name));
    let flows: Vec<String> = flows.collect();
    let name_width = fit::widest(names.iter().chain(&flows).map(String::as_str), NAME, unit.len());
    let class_width = fit::widest(pool.members.iter().map(|m| m.class.as_str()), CLASS, 5);
    let figures = ["rate", "min", "max", "limit"].map(|head| Column::new(head, FIGURE).gap(1));
    let columns = [Column::new("class", class_width).left().gap(1), Column::new("prio", 4).gap(1)]
        .into_iter()
        .chain(figures)
        .chain([Column::new("dropped", 9).gap(1)]);
    let row = |(member, name): (&MemberDocument, String)| {
        let rate = |rate: Option<BitRate>| rate.map_or_else(|| "-".to_owned(), |rate| figure(rate, factor));
        let cells = [
            if width < WIDTH { member.class.clone() } else { fit::cut(&member.class, class_width) },
            member.priority.to_string(),
            rate(member.rate_bps),
            figure(member.min_effective_bps, factor),
            figure(member.max_bps, factor),
            rate(member.limit_bps),
            dropped(member).to_string(),
        ];
        let parts = member.flows.iter().map(|flow| flow_row(flow, factor)).collect();
        let notes = if verbose { notes(member, pool.queueless) } else { Vec::new() };
        Row { parts, notes, ..Row::new(name, cells) }
    };
    let layout = Layout { early: true, ..Layout::flush(name_width) };
    let table = Table::new("name", layout, columns).with(pool.members.iter().zip(names).map(row));
    Table { narrow: unit.to_owned(), ..table }
}

/// Where a member's excess waits and why, and what the policy says of it besides rates.
fn notes(member: &MemberDocument, queueless: bool) -> Vec<String> {
    let excess = member.excess.as_ref().map(|excess| {
        let place = match excess.waits.as_str() {
            "queued" if queueless => "no queue",
            "none" => "it is not limited",
            "held" => "excess waits in the guest",
            "nic" => "excess waits in the card",
            _ => "excess waits on this host",
        };
        let buffer = excess.send_buffer_bytes.map(|bytes| format!(" (send buffer {bytes} bytes)"));
        format!("{place}{}: {}", buffer.unwrap_or_default(), excess.reason)
    });
    let other = member.other_limit.as_ref().map(|other| {
        format!("{} of another program at its interface lets {} pass", other.kind, format::rate(other.rate_bps))
    });
    let settings = member.settings.as_ref().map(|of| settings(of, member.local.as_ref(), queueless));
    excess.into_iter().chain(other).chain(settings).chain(delay::note(member)).collect()
}

fn settings(of: &SettingsDocument, local: Option<&LocalDocument>, queueless: bool) -> String {
    let queue = of.queue_seconds.map_or_else(|| "room for TCP".to_owned(), format::time);
    let mut all = if queueless { Vec::new() } else { vec![format!("queue: {queue}")] };
    for (word, target) in [("delay", of.delay_seconds), ("jitter", of.jitter_seconds)] {
        all.extend(target.map(|target| format!("{word}: at most {}", format::time(target))));
    }
    all.extend(of.longest_wait_seconds.map(|wait| format!("longest wait by the policy: {}", format::time(wait))));
    // Queues behind the taps limit all that a guest sends, whatever its class says.
    let staged = |word: &String| word == "count" && local.is_some_and(|local| local.limited);
    all.extend(of.local.as_ref().map(|word| {
        let word = if staged(word) { "limited by the queues behind the taps" } else { word.as_str() };
        format!("local: {word}")
    }));
    if of.excess == Excess::WORDS[1] {
        all.push("excess: drop".to_owned());
    }
    all.extend(of.spoofing.as_ref().map(|spoofing| format!("spoofing: {spoofing}")));
    all.extend(of.router.map(|is| format!("router: {}", if is { "yes" } else { "no" })));
    all.extend(of.addresses_by.as_ref().map(|by| format!("addresses by the {by}: {}", of.addresses.join(", "))));
    if of.spoofing.is_some() && of.addresses_by.is_none() {
        all.push("addresses: none listed".to_owned());
    }
    all.join("; ")
}

/// What waits and was dropped of a member that wants more than it gets now.
fn held_back(member: &MemberDocument) -> Option<String> {
    let waiting = member.waiting_bytes + member.local.as_ref().map_or(0, |local| local.waiting_bytes);
    // What waits in flow classes at their maximum is in their figures alone.
    let waiting = waiting.max(member.flows.iter().map(|flow| flow.waiting_bytes).sum());
    if waiting == 0 || member.offered_bps.is_none() {
        return None;
    }
    let rest = if member.excess.as_ref().is_some_and(|e| e.waits == "held") { ", the rest in the guest" } else { "" };
    let held = (member.held_seconds_total > 0.0)
        .then(|| format!("; held back for {} since the guard saw it first", long_time(member.held_seconds_total)));
    let of_flow = |flow: &FlowDocument| format!("{} {}", flow.name, format::bytes(flow.waiting_bytes));
    let flows: Vec<String> = member.flows.iter().filter(|flow| flow.waiting_bytes > 0).map(of_flow).collect();
    let flows = if flows.is_empty() { String::new() } else { format!(" ({})", flows.join(", ")) };
    let waits = format::bytes(waiting);
    Some(format!("{}: {waits} wait on this host now{flows}{rest}{}", shown(member), held.unwrap_or_default()))
}

/// A flow class, below its member.
fn flow_row(flow: &FlowDocument, factor: BitRate) -> Row {
    let cells = [
        String::new(),
        flow.priority.to_string(),
        flow.rate_bps.map_or_else(|| "-".to_owned(), |rate| figure(rate, factor)),
        figure(flow.min_bps, factor),
        figure(flow.max_bps, factor),
        String::new(),
        flow.dropped_packets_total.to_string(),
    ];
    Row::new(flow.name.clone(), cells)
}

/// Packets that were dropped at a member's queues: at the uplink, and at its own interface.
fn dropped(member: &MemberDocument) -> u64 {
    member.dropped_packets_total + member.local.as_ref().map_or(0, |local| local.dropped_packets_total)
}

/// Where what exceeds a limit waits: how many interfaces at each place.
fn excess(pool: &PoolDocument, verbose: bool) -> Option<String> {
    let members = &pool.members;
    let number = |word: &str| members.iter().filter(|m| m.excess.as_ref().is_some_and(|e| e.waits == word)).count();
    let of = |(word, place): (&str, &str)| match number(word) {
        0 => None,
        number => Some(format!("{place} ({number})")),
    };
    let places = [("held", "in the guest"), ("queued", "on this host"), ("nic", "in the card")];
    let there = places.into_iter().filter(|(word, _)| !pool.queueless || *word != "queued");
    let waits: Vec<String> = there.filter_map(of).collect();
    let waits = (!waits.is_empty()).then(|| format!("excess waits {}", waits.join(", ")));
    let all: Vec<String> = waits.into_iter().chain(of(("none", "not limited"))).collect();
    let why = if verbose { "" } else { "; why: --verbose" };
    (!all.is_empty()).then(|| format!("{}{why}", all.join("; ")))
}

/// What never reaches the uplink, and whether maxima hold for it; most of it first.
fn local(pool: &PoolDocument) -> Option<String> {
    let part = |limited: bool, word: &str| {
        let rate = |m: &MemberDocument| m.local.as_ref().filter(|local| local.limited == limited)?.rate_bps;
        let counted: Vec<(BitRate, &MemberDocument)> =
            pool.members.iter().filter_map(|member| Some((rate(member)?, member))).collect();
        if counted.is_empty() {
            return None;
        }
        let sum: BitRate = counted.iter().map(|(rate, _)| *rate).sum();
        let some = counted.into_iter().filter(|(rate, _)| *rate > BitRate::ZERO);
        let mut most: Vec<(BitRate, String)> = some.map(|(rate, member)| (rate, shown(member))).collect();
        most.sort();
        let most = most.into_iter().rev().take(3);
        let names: Vec<String> = most.map(|(rate, name)| format!("{name} {}", format::rate(rate))).collect();
        let names = if names.is_empty() { String::new() } else { format!(", of which {}", names.join(", ")) };
        Some(format!("{} {word}{names}", format::rate(sum)))
    };
    let parts: Vec<String> = [part(false, "not limited"), part(true, "limited")].into_iter().flatten().collect();
    // Queues behind the taps count it with the rest.
    let counted = if pool.stage.is_some() { "of these rates " } else { "" };
    (!parts.is_empty())
        .then(|| format!("{counted}local traffic, which never reaches {}: {}", pool.uplink, parts.join("; ")))
}
