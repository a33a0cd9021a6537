//! A scan as a check plugin of Nagios, Icinga and their kin: one line with the state and the
//! performance data, then long text; Monitoring Plugins Development Guidelines, sections "Plugin
//! Output for Nagios" and "Plugin Return Codes".

use std::fmt::Write;

use vmio_model::rules::Severity;
use vmio_model::sanitize;

use super::View;
use crate::report::format::count;

/// The state of the service, by its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// No finding, or only advice and notes.
    Ok = 0,
    /// A warning.
    Warning = 1,
    /// A severe finding.
    Critical = 2,
    /// Nothing could be read, or the scan failed.
    Unknown = 3,
}

impl State {
    /// The state for a finding of that severity; `least` is the lowest severity that alerts.
    pub fn of(severity: Severity, least: Severity) -> State {
        match severity {
            quiet if quiet < least => State::Ok,
            Severity::Severe => State::Critical,
            _ => State::Warning,
        }
    }

    fn word(self) -> &'static str {
        match self {
            State::Ok => "OK",
            State::Warning => "WARNING",
            State::Critical => "CRITICAL",
            State::Unknown => "UNKNOWN",
        }
    }
}

/// Most lines of long text: Nagios reads 4 KB by default.
const LINES: usize = 25;
/// Characters of a line of long text.
const LINE: usize = 150;

/// The first severity that alerts, unless `--fail-on` names another.
const LEAST: Severity = Severity::Warning;

/// The output of the plugin, and its state; `fail_on` is the lowest severity that alerts.
pub fn nagios(view: &View, fail_on: Option<Severity>) -> (String, State) {
    let least = fail_on.unwrap_or(LEAST);
    let state = match view.worst() {
        Some(severity) => State::of(severity, least),
        None if view.is_blind() => State::Unknown,
        None => State::Ok,
    };
    let n = view.rows.len();
    let guests = count(n, "guest");
    let unread = view.all_unread().count();
    let said = match (view.counts(), unread) {
        (_, _) if state == State::Unknown && n == 0 => "no guest that this user can see".to_owned(),
        (_, _) if state == State::Unknown => format!("{guests}, no setting could be read"),
        (counts, _) if !counts.is_empty() => format!("{guests}, {counts}"),
        (_, 0) => format!("{guests}, nothing found"),
        (_, unread) => format!("{guests}, nothing found, {} could not be read", count(unread, "setting")),
    };
    let said = match view.ignored_words() {
        ignored if ignored.is_empty() => said,
        ignored => format!("{said}, {} left out", ignored.join(", ")),
    };
    let mut text = line(state, &said);
    text.pop();
    let _ = write!(text, " | guests={n};;;0");
    for severity in Severity::ALL.into_iter().rev() {
        // Above 0 alerts: `warning;critical` are ranges from 0.
        let ranges = match State::of(severity, least) {
            State::Critical => ";0",
            State::Warning => "0;",
            _ => ";",
        };
        let _ = write!(text, " {severity}={};{ranges};0", view.count(severity));
    }
    let _ = writeln!(text, " unread={unread};;;0 time={:.3}s;;;0", view.seconds);
    let host = view.host_wide();
    let of_guests = view.rows.iter().flat_map(|r| super::host::own(r, &host).map(move |f| (&r.guest.name, f)));
    let mut findings: Vec<(Severity, String)> =
        host.iter().map(|wide| (wide.severity, format!("this host: {}", wide.line()))).collect();
    findings.extend(of_guests.map(|(name, f)| {
        (f.severity, format!("{name}: {}: {} ({}), {}", f.severity, f.title, f.rule, f.subject.within()))
    }));
    findings.sort_by_key(|(severity, _)| std::cmp::Reverse(*severity));
    let found = findings.into_iter().map(|(_, line)| line);
    let unseen = view.all_unread().map(|(_, u)| format!("not read: {}: {}; {}", u.what, u.why, u.mend));
    let all: Vec<String> = found.chain(unseen).collect();
    all.iter().take(LINES).for_each(|l| text += &long(l));
    if all.len() > LINES {
        text += &long(&format!("and {} more: vmio scan", all.len() - LINES));
    }
    (text, state)
}

/// The output of the plugin when the scan failed.
pub fn failed(why: &str) -> String {
    line(State::Unknown, why)
}

fn line(state: State, said: &str) -> String {
    format!("VMIO SCAN {}: {}", state.word(), long(said))
}

/// A line without `|`, which begins performance data in Nagios.
fn long(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c == '|' || sanitize::is_hidden(c) { ' ' } else { c }).collect();
    let short: String =
        if plain.chars().count() > LINE { plain.chars().take(LINE - 1).chain(['…']).collect() } else { plain };
    short + "\n"
}
