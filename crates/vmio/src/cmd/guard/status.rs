//! The status of the daemon, for a terminal: figures first, then what needs a look, and the answer last, where the eye
//! is.

use vmio_guard::manager::document::{GuestDocument, MemoryDocument, Status};

use crate::fit;
use crate::report::format::{count, time, utc};
use crate::term::Style;

mod cautions;
mod delay;
mod pools;

pub use cautions::except;

/// How the status is shown.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// With notes, the loop's times, and what the policy says of each member.
    verbose: bool,
    style: Style,
    /// Columns.
    width: usize,
    /// What commands that are printed need to reach the same guard ([`crate::paths::Paths::option`]).
    state: &'a str,
}

/// The whole status; `state`: what a printed command needs to name the guard's state directory.
pub fn text(status: &Status, verbose: bool, style: Style, state: &str) -> String {
    shown(status, View { verbose, style, width: fit::room(), state })
}

fn shown(status: &Status, view: View<'_>) -> String {
    let observed = status.observed.as_ref().map(|observed| super::observed::text(observed, view.style));
    let mut parts = vec![
        pools::text(&status.pools, view),
        groups(&status.guests, view.width),
        memory(&status.memory, view.width),
        observed.unwrap_or_default(),
        over(&status.policy.over, view),
        summary(status, view),
    ];
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// Limits of guests' processors and memory.
fn groups(guests: &[GuestDocument], width: usize) -> String {
    let mut lines = String::new();
    for guest in guests {
        for limit in &guest.limits {
            let wanted = limit.wanted.as_deref().unwrap_or("in dispute");
            let what = match (&limit.value, &limit.why_not) {
                (Some(value), _) => format!("in force: {value} in {}", limit.file.as_deref().unwrap_or_default()),
                (None, why) => format!("not in force: {}", why.as_deref().unwrap_or("not known")),
            };
            let line = format!("{}: {} {wanted}, {what}", guest.guest, limit.key);
            lines += &fit::notice_at("", 0, &line, width);
        }
    }
    if lines.is_empty() { lines } else { fit::notice_at("", 0, "processors and memory of guests:", width) + &lines }
}

/// Memory of guests, and what is moved or would be.
fn memory(guests: &[MemoryDocument], width: usize) -> String {
    let mut lines = String::new();
    for guest in guests {
        let size = guest.actual_bytes.map_or_else(|| "memory not known".to_owned(), mib);
        let free = guest.free_bytes.map_or_else(String::new, |free| format!(" ({} free)", mib(free)));
        let before = guest.before_bytes.filter(|before| Some(*before) != guest.actual_bytes);
        let before = before.map_or_else(String::new, |before| format!(", {} before", mib(before)));
        let hits = guest
            .hits_percent
            .map_or_else(String::new, |percent| format!(", {percent} % of its reads hit the host's cache"));
        let due = guest.to_bytes.map_or_else(String::new, |to| {
            let verb = if guest.is_moved { "moved" } else { "would be moved" };
            format!("; {verb} to {}: {}", mib(to), guest.why.as_deref().unwrap_or("not known"))
        });
        let why_not = guest.why_not.as_ref().map_or_else(String::new, |why| format!("; {why}"));
        let line = format!("{}: {size}{free}{before}{hits}{due}{why_not}", guest.guest);
        lines += &fit::notice_at("", 0, &line, width);
    }
    if lines.is_empty() { lines } else { fit::notice_at("", 0, "memory of guests:", width) + &lines }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// What was set over the files.
fn over(over: &str, View { width, state, .. }: View<'_>) -> String {
    if over.is_empty() {
        return String::new();
    }
    let toml: String = over.lines().map(|line| format!("  {line}\n")).collect();
    let head = format!("set over the files (vmio guard set{state} --clear removes it):");
    fit::notice_at("", 0, &head, width) + &toml
}

/// What is in force, what needs a look, and whether guarantees are kept.
fn summary(status: &Status, view: View<'_>) -> String {
    let View { verbose, style, width, state } = view;
    let line = |text: &str| fit::notice_at("", 0, text, width);
    let notes: Vec<&String> = status.notes.iter().chain(&status.policy.warnings).collect();
    let mut out = String::new();
    if verbose {
        notes.iter().for_each(|note| out += &fit::notice_at("note: ", 6, note, width));
        details(status).iter().for_each(|text| out += &line(text));
    }
    out += &line(&head(status));
    if !verbose && !notes.is_empty() {
        out += &line(&format!("{}: vmio guard status{state} --verbose", count(notes.len(), "note")));
    }
    for (label, lines) in cautions::all(status, state) {
        let lead = format!("{}: ", style.yellow(label));
        lines.iter().for_each(|text| out += &fit::notice_at(&lead, label.len() + 2, text, width));
    }
    let (good, answer) = cautions::answer(status);
    for said in line(&answer).lines() {
        out += &if good { style.bold(said) } else { style.red(said) };
        out.push('\n');
    }
    out
}

/// Since when, which policy, and what computes its limits.
fn head(status: &Status) -> String {
    let policy = &status.policy;
    let measures = status.measures.as_ref().map(|measures| format!(", {measures} measured")).unwrap_or_default();
    format!(
        "guard since {}, revision {} of the policy ({}), plane {}, algorithm {}{measures}",
        utc(status.started_unix_seconds),
        policy.revision,
        policy.files.join(", "),
        status.plane,
        status.algorithm
    )
}

/// What is seldom asked for.
fn details(status: &Status) -> Vec<String> {
    let (loops, appeared) = (&status.loops, &status.appeared);
    let mut all = Vec::new();
    // A plane that the kernel serves by itself has no periods.
    if loops.periods_total > 0 {
        let (each, longest) = (time(loops.period_seconds), time(loops.longest_seconds));
        all.push(format!("control loop: {} periods of {each}, the longest took {longest}", loops.periods_total));
    }
    if let Some(p99) = appeared.p99_seconds {
        all.push(format!("new interfaces: {} so far, 99 % of them limited within {}", appeared.total, time(p99)));
    }
    if loops.corrected_changes_total > 0 {
        let changes = count(loops.corrected_changes_total as usize, "change");
        all.push(format!("other programs: {changes} to queues, filters and control groups corrected so far"));
    }
    all
}

#[cfg(test)]
mod tests;
