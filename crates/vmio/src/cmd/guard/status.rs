//! The status of the daemon, for a terminal.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use vmio_guard::manager::document::{MemberDocument, PoolDocument, Status};
use vmio_model::policy::Direction;
use vmio_model::rate::BitRate;

use super::table::{figure, unit};
use crate::fit::{self, WIDTH};
use crate::report::document::{Column, Document, Layout, Row, Span, Table, Text, list, say};
use crate::report::format;
use crate::term::Style;

/// Columns of a figure.
const FIGURE: usize = 7;
/// Longest name beside which the figures still stand on the same line.
const NAME: usize = 20;
/// Most lines of a kind that are shown; there may be thousands.
const LINES: usize = 20;
/// Longest class that is shown whole.
const CLASS: usize = 10;

/// The whole status.
pub fn text(status: &Status, style: Style) -> String {
    let mut out = String::new();
    let policy = &status.policy;
    let loops = &status.loops;
    // A plane that the kernel serves by itself has no periods.
    let periods = match loops.periods_total {
        0 => String::new(),
        periods => {
            let (each, longest) = (format::time(loops.period_seconds), format::time(loops.longest_seconds));
            format!(", {periods} periods of {each}, the longest {longest}")
        }
    };
    let head = format!(
        "revision {} of the policy ({}), plane {}, {}{periods}",
        policy.revision,
        policy.files.join(", "),
        status.plane,
        algorithm(status),
    );
    out += &fit::paragraph("", 0, &head);
    if let Some(p99) = status.appeared.p99_seconds {
        let new = format::count(status.appeared.total as usize, "time");
        let line = format!("interfaces came {new}, and were limited within {} (99 %)", format::time(p99));
        out += &fit::paragraph("", 0, &line);
    }
    if loops.put_right_total > 0 {
        let _ = writeln!(out, "{} changes by other programs to the guard's queues corrected", loops.put_right_total);
    }
    for (label, lines) in cautions(status) {
        for line in lines {
            out += &fit::notice(&format!("{}: ", style.yellow(label)), label.len() + 2, &line);
        }
    }
    let mut pools = Document::new("");
    status.pools.iter().for_each(|pool| of_pool(&mut pools, pool));
    out += &pools.text(style, WIDTH);
    if !status.guests.is_empty() {
        out += "\nof processors and memory\n";
    }
    for guest in &status.guests {
        for limit in &guest.limits {
            let wanted = limit.wanted.as_deref().unwrap_or("in dispute");
            let what = match (&limit.value, &limit.why_not) {
                (Some(value), _) => format!("in force: {value} in {}", limit.file.as_deref().unwrap_or_default()),
                (None, why) => format!("not in force: {}", why.as_deref().unwrap_or("not known")),
            };
            out += &fit::notice("", 0, &format!("{}: {} {wanted}, {what}", guest.guest, limit.key));
        }
    }
    if let Some(observed) = &status.observed {
        out.push('\n');
        out += &super::observed::text(observed, style);
    }
    if !policy.over.is_empty() {
        let _ = write!(out, "\nset over the files (vmio guard set --clear removes it):\n{}", indented(&policy.over));
    }
    out
}

/// What computes the limits, and of which traffic.
fn algorithm(status: &Status) -> String {
    let measures = status.measures.as_ref().map(|measures| format!(", {measures} measured"));
    format!("{}{}", status.algorithm, measures.unwrap_or_default())
}

/// What an operator should look at, by kind.
fn cautions(status: &Status) -> [(&'static str, Vec<String>); 8] {
    let policy = &status.policy;
    let mut waits = Vec::new();
    if let Some(left) = policy.taken_back_in_seconds {
        waits.push(format!("this change reverts in {left:.0} s; to keep it: vmio guard confirm"));
    }
    let mut files = Vec::new();
    if policy.files_differ {
        files.push("the files have changed since; to put them in force: vmio guard apply".to_owned());
    }
    files.extend(policy.refused.iter().map(|why| format!("the last change was refused: {why}")));
    let notes = status.notes.iter().chain(&policy.warnings).cloned().collect();
    let trouble = status.trouble.iter().cloned().collect();
    [
        ("waits", waits),
        ("files", files),
        ("note", notes),
        ("trouble", trouble),
        ("not in force", interrupted(status)),
        ("breach", breaches(status)),
        ("flooded", flooded(status)),
        ("spoofed", spoofed(status)),
    ]
}

/// Uplinks' directions of which nothing is in force now.
fn interrupted(status: &Status) -> Vec<String> {
    let line = |pool: &PoolDocument| {
        Some(format!("{} {}: {}", pool.uplink, pool.direction.word(), pool.not_in_force.as_ref()?))
    };
    status.pools.iter().filter_map(line).collect()
}

/// Members whose packets have claimed addresses of others.
fn spoofed(status: &Status) -> Vec<String> {
    let all = status.pools.iter().filter(|pool| pool.direction == Direction::GuestTx);
    let line = |member: &MemberDocument| {
        (member.spoofed_packets_total > 0).then(|| {
            let (all, dropped) = (member.spoofed_packets_total, member.spoofed_dropped_packets_total);
            format!(
                "{}: {} claimed addresses that are not its own, {dropped} of them dropped",
                member.name,
                format::count(all as usize, "packet")
            )
        })
    };
    let mut lines: Vec<String> = all.flat_map(|pool| &pool.members).filter_map(line).collect();
    cut_to(&mut lines, LINES);
    lines
}

/// Members whose minimum of receiving this host cannot hold now, since the link before it is full.
fn flooded(status: &Status) -> Vec<String> {
    let all = status.pools.iter().flat_map(|pool| pool.members.iter().map(move |member| (pool, member)));
    let line = |(pool, member): (&PoolDocument, &MemberDocument)| {
        Some(format!(
            "{} {} {}: receives {} of its minimum of {} while the link is full, for {} now: the loss happens before \
             this host, which cannot prevent it",
            pool.uplink,
            pool.direction.word(),
            member.name,
            member.rate_bps.map_or_else(|| "less".to_owned(), format::rate),
            format::rate(member.min_effective_bps),
            format::time(member.flooded_seconds?)
        ))
    };
    let mut lines: Vec<String> = all.filter_map(line).collect();
    cut_to(&mut lines, LINES);
    lines
}

/// Members whose guarantee is not kept now.
fn breaches(status: &Status) -> Vec<String> {
    let mut all = Vec::new();
    for (pool, member) in status.pools.iter().flat_map(|pool| pool.members.iter().map(move |member| (pool, member))) {
        let (Some(seconds), min) = (member.breached_seconds, member.min_effective_bps) else { continue };
        let got = member.rate_bps.map_or_else(|| "less".to_owned(), format::rate);
        let what = match &pool.not_in_force {
            Some(_) => format!("nothing holds its minimum of {}", format::rate(min)),
            None => format!("gets {got} of the minimum of {} that it needs", format::rate(min)),
        };
        let long = if seconds > 0.0 { format!(", for {} now", format::time(seconds)) } else { String::new() };
        all.push(format!("{} {} {}: {what}{long}", pool.uplink, pool.direction.word(), member.name));
    }
    cut_to(&mut all, LINES);
    all
}

/// Cuts the lines to so many, and says how many more there are.
fn cut_to(lines: &mut Vec<String>, most: usize) {
    let more = lines.len().saturating_sub(most);
    if more > 0 {
        lines.truncate(most);
        lines.push(format!("and {more} more: vmio guard status --json"));
    }
}

/// What waits and was dropped of members that want more than they get now.
fn held_back(pool: &PoolDocument) -> Vec<String> {
    let mut lines = Vec::new();
    for member in &pool.members {
        let waiting = member.waiting_bytes + member.local.as_ref().map_or(0, |local| local.waiting_bytes);
        if waiting == 0 || member.offered_bps.is_none() {
            continue;
        }
        let place = member.excess.as_ref().map_or_else(String::new, |excess| format!(" ({})", excess.waits));
        let mut line = format!("{}{place}: {} wait", member.name, format::bytes(waiting));
        if dropped(member) > 0 {
            let _ = write!(line, ", {} dropped", format::count(dropped(member) as usize, "packet"));
        }
        if member.held_seconds_total > 0.0 {
            let _ = write!(line, ", held back for {}", format::time(member.held_seconds_total));
        }
        lines.push(line);
    }
    cut_to(&mut lines, LINES);
    lines
}

/// Packets that were dropped at a member's queues: at the uplink, and at its own interface.
fn dropped(member: &MemberDocument) -> u64 {
    member.dropped_packets_total + member.local.as_ref().map_or(0, |local| local.dropped_packets_total)
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// A pool with its members.
fn of_pool(doc: &mut Document, pool: &PoolDocument) {
    doc.gap();
    let name = Text::from(Span::Bold(format!("{} {}", pool.uplink, pool.direction.word())));
    let free = pool.capacity_bps.bits().saturating_sub(pool.shared_bps.bits());
    let why = if pool.direction == Direction::GuestRx && free > 0 {
        format!("; {} stay free, so that the queue stands here and not in the switch before", BitRate::new(free))
    } else {
        String::new()
    };
    let capacity = match &pool.not_in_force {
        Some(_) => format!(": {}, nothing in force (see above)", pool.capacity_bps),
        None => format!(": {}, {} shared{why}", pool.capacity_bps, pool.shared_bps),
    };
    doc.put(say((0, 0), name.and(Span::Plain(capacity))));
    if let Some(stage) = &pool.stage {
        let lost = format::count(stage.dropped_packets_total as usize, "packet");
        let line = format!("guests share {} before the uplink; {lost} dropped behind", stage.shared_bps);
        doc.put(say((0, 0), line));
    }
    doc.put(table(pool).into());
    if let Some(line) = excess(&pool.members) {
        doc.put(say((0, 0), line));
    }
    if let Some(line) = local(pool) {
        doc.put(say((0, 0), line));
    }
    doc.put(list((2, 2), held_back(pool)));
}

fn table(pool: &PoolDocument) -> Table {
    let (unit, factor) = unit(pool.capacity_bps);
    let name_width = fit::widest(pool.members.iter().map(|m| m.name.as_str()), NAME, unit.len());
    let class_width = fit::widest(pool.members.iter().map(|m| m.class.as_str()), CLASS, 5);
    let figures = ["rate", "min", "max", "limit"].map(|head| Column::new(head, FIGURE).gap(1));
    let columns = [Column::new("class", class_width).left().gap(1), Column::new("prio", 4).gap(1)]
        .into_iter()
        .chain(figures)
        .chain([Column::new("dropped", 9).gap(1)]);
    let row = |member: &MemberDocument| {
        let rate = |rate: Option<BitRate>| rate.map_or_else(|| "-".to_owned(), |rate| figure(rate, factor));
        let cells = [
            member.class.chars().take(class_width).collect::<String>(),
            member.priority.to_string(),
            rate(member.rate_bps),
            figure(member.min_effective_bps, factor),
            figure(member.max_bps, factor),
            rate(member.limit_bps),
            dropped(member).to_string(),
        ];
        Row::new(&member.name, cells)
    };
    let table = Table::new("name", Layout::flush(name_width), columns).with(pool.members.iter().map(row));
    Table { narrow: unit.to_owned(), ..table }
}

/// What passes beside the uplink, and whether maxima hold for it; most of it first.
fn local(pool: &PoolDocument) -> Option<String> {
    let of = |member: &MemberDocument| Some((member.local.as_ref()?.rate_bps?, member.name.clone()));
    let part = |limited: bool, word: &str| {
        let counted = |m: &&MemberDocument| m.local.as_ref().is_some_and(|local| local.limited == limited);
        let mut rates: Vec<(BitRate, String)> = pool.members.iter().filter(counted).filter_map(of).collect();
        if rates.is_empty() {
            return None;
        }
        rates.sort();
        rates.reverse();
        let sum: BitRate = rates.iter().map(|(rate, _)| *rate).sum();
        let most = rates.into_iter().take(3).filter(|(rate, _)| *rate > BitRate::ZERO);
        let names: Vec<String> = most.map(|(rate, name)| format!("{name} {}", format::rate(rate))).collect();
        let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        Some(format!("{} {word}{names}", format::rate(sum)))
    };
    let parts: Vec<String> = [part(false, "not limited"), part(true, "limited")].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("local traffic, beside the uplink: {}", parts.join("; ")))
}

/// Where members' excess waits: how many at each place.
fn excess(members: &[MemberDocument]) -> Option<String> {
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    for excess in members.iter().filter_map(|member| member.excess.as_ref()) {
        *all.entry(&excess.waits).or_default() += 1;
    }
    let parts: Vec<String> = all.into_iter().map(|(waits, count)| format!("{count} {waits}")).collect();
    (!parts.is_empty()).then(|| format!("excess: {} (--json says why)", parts.join(", ")))
}
