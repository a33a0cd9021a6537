//! What a guard that runs says of itself, for a terminal.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use vmio_guard::manager::document::{MemberDocument, PoolDocument, Status};
use vmio_model::rate::BitRate;

use super::table::{figure, unit};
use crate::fit;
use crate::report::format;
use crate::term::Style;

/// Columns of a figure.
const FIGURE: usize = 7;
/// Longest name beside which the figures still stand on the same line.
const NAME: usize = 20;
/// Lines of a kind that are shown; there may be thousands.
const LINES: usize = 20;
/// Longest class that is shown whole.
const CLASS: usize = 10;

/// The whole of it.
pub fn text(status: &Status, style: Style) -> String {
    let mut out = String::new();
    let policy = &status.policy;
    let loops = &status.loops;
    // Where the kernel holds all by itself there are none.
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
        who(status),
    );
    out += &fit::paragraph("", 0, &head);
    if let Some(p99) = status.appeared.p99_seconds {
        let new = format::count(status.appeared.total as usize, "time");
        let line = format!("interfaces came {new}, and were limited within {} (99 %)", format::time(p99));
        out += &fit::paragraph("", 0, &line);
    }
    if loops.put_right_total > 0 {
        let _ = writeln!(out, "{} changes of others at our queues put right", loops.put_right_total);
    }
    for (label, lines) in cautions(status) {
        for line in lines {
            out += &fit::notice(&format!("{}: ", style.yellow(label)), label.len() + 2, &line);
        }
    }
    for pool in &status.pools {
        out.push('\n');
        table(&mut out, pool, style);
        held_back(&mut out, pool);
    }
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
        let _ = write!(out, "\nset over the files (vmio guard set --clear takes it away):\n{}", indented(&policy.over));
    }
    out
}

/// Who sets the limits.
fn who(status: &Status) -> String {
    let measures = status.measures.iter().map(|measures| format!(", {measures} measured"));
    measures.fold(status.algorithm.clone(), |who, more| who + &more)
}

/// What deserves a look, by kind.
fn cautions(status: &Status) -> [(&'static str, Vec<String>); 6] {
    let policy = &status.policy;
    let mut waits = Vec::new();
    if let Some(left) = policy.taken_back_in_seconds {
        waits.push(format!("this change is taken back in {left:.0} s; to keep it: vmio guard confirm"));
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
        ("breach", breaches(status)),
        ("flooded", flooded(status)),
    ]
}

/// Whose minimum of receiving nobody here can hold now.
fn flooded(status: &Status) -> Vec<String> {
    let all = status.pools.iter().flat_map(|pool| pool.members.iter().map(move |member| (pool, member)));
    let line = |(pool, member): (&PoolDocument, &MemberDocument)| {
        Some(format!(
            "{} {} {}: receives {} of its minimum of {} while the link is full, for {} now: what is lost before this \
             host nobody here can hold",
            pool.uplink,
            pool.direction.word(),
            member.name,
            member.rate_bps.map_or_else(|| "less".to_owned(), format::rate),
            format::rate(member.min_effective_bps),
            format::time(member.flooded_seconds?)
        ))
    };
    let mut lines: Vec<String> = all.filter_map(line).collect();
    more_than(&mut lines, LINES);
    lines
}

/// Whose guarantee is not kept now.
fn breaches(status: &Status) -> Vec<String> {
    let mut all = Vec::new();
    for (pool, member) in status.pools.iter().flat_map(|pool| pool.members.iter().map(move |member| (pool, member))) {
        let (Some(seconds), min) = (member.breached_seconds, member.min_effective_bps) else { continue };
        let got = member.rate_bps.map_or_else(|| "less".to_owned(), format::rate);
        all.push(format!(
            "{} {} {}: gets {got} of its minimum of {} that it wants, for {} now",
            pool.uplink,
            pool.direction.word(),
            member.name,
            format::rate(min),
            format::time(seconds)
        ));
    }
    more_than(&mut all, LINES);
    all
}

/// No more lines than that.
fn more_than(lines: &mut Vec<String>, most: usize) {
    let more = lines.len().saturating_sub(most);
    if more > 0 {
        lines.truncate(most);
        lines.push(format!("and {more} more: vmio guard status --json"));
    }
}

/// What waits and was lost, of those that want more than they get now.
fn held_back(out: &mut String, pool: &PoolDocument) {
    let mut lines = Vec::new();
    for member in &pool.members {
        if member.waiting_bytes == 0 || member.offered_bps.is_none() {
            continue;
        }
        let place = member.excess.as_ref().map_or_else(String::new, |excess| format!(" ({})", excess.waits));
        let mut line = format!("{}{place}: {} wait", member.name, format::bytes(member.waiting_bytes));
        if member.dropped_packets_total > 0 {
            let _ = write!(line, ", {} dropped", format::count(member.dropped_packets_total as usize, "packet"));
        }
        if member.held_seconds_total > 0.0 {
            let _ = write!(line, ", held back for {}", format::time(member.held_seconds_total));
        }
        lines.push(line);
    }
    more_than(&mut lines, LINES);
    for line in lines {
        *out += &fit::paragraph("  ", 2, &line);
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

fn table(out: &mut String, pool: &PoolDocument, style: Style) {
    let (unit, factor) = unit(pool.capacity_bps);
    let head = format!("{} {}", pool.uplink, pool.direction.word());
    let _ = writeln!(out, "{}: {}, {} shared", style.bold(&head), pool.capacity_bps, pool.shared_bps);
    if let Some(stage) = &pool.stage {
        let lost = format::count(stage.dropped_packets_total as usize, "packet");
        let line = format!("guests share {} before the uplink; {lost} dropped behind", stage.shared_bps);
        *out += &fit::paragraph("", 0, &line);
    }
    let name_width = fit::widest(pool.members.iter().map(|m| m.name.as_str()), NAME, unit.len());
    let class_width = fit::widest(pool.members.iter().map(|m| m.class.as_str()), CLASS, 5);
    let header = format!(
        "{unit:<name_width$} {:<class_width$} {:>4} {:>FIGURE$} {:>FIGURE$} {:>FIGURE$} {:>FIGURE$} {:>9}",
        "class", "prio", "rate", "min", "max", "limit", "dropped"
    );
    let _ = writeln!(out, "{}", style.dim(header.trim_end()));
    for member in &pool.members {
        let name = fit::beside(out, &member.name, name_width, 0);
        let class: String = member.class.chars().take(class_width).collect();
        let rate = |rate: Option<BitRate>| rate.map_or_else(|| "-".to_owned(), |rate| figure(rate, factor));
        let _ = writeln!(
            out,
            "{name} {class:<class_width$} {:>4} {:>FIGURE$} {:>FIGURE$} {:>FIGURE$} {:>FIGURE$} {:>9}",
            member.priority,
            rate(member.rate_bps),
            figure(member.min_effective_bps, factor),
            figure(member.max_bps, factor),
            rate(member.limit_bps),
            member.dropped_packets_total,
        );
    }
    if let Some(line) = excess(&pool.members) {
        *out += &fit::paragraph("", 0, &line);
    }
}

/// Where the excess of how many waits.
fn excess(members: &[MemberDocument]) -> Option<String> {
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    for excess in members.iter().filter_map(|member| member.excess.as_ref()) {
        *all.entry(&excess.waits).or_default() += 1;
    }
    let parts: Vec<String> = all.into_iter().map(|(waits, count)| format!("{count} {waits}")).collect();
    (!parts.is_empty()).then(|| format!("excess: {} (--json says why)", parts.join(", ")))
}
