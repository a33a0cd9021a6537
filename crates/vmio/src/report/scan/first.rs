//! What to do about a guest, in at most five lines of a terminal: what is worst, what to change, how sure
//! that is, and when it takes effect. All else follows below.

use vmio_model::facts::Subject;
use vmio_model::rules::change::Takes;
use vmio_model::rules::{About, Finding, Severity};

use super::Row;
use super::text::is_to_be_like;
use crate::fit::{self, WIDTH};
use crate::report::text::Out;
use crate::report::{finding, format};

/// Columns of the words that the lines begin with.
const LEAD: usize = 8;
/// Most of a guest's name that is shown in the first line; the whole name stands below.
const NAME: usize = 48;

/// Writes them.
pub(super) fn lines(out: &mut Out, row: &Row) {
    let style = out.style;
    let name = style.bold(&fit::name(&row.guest.name, NAME));
    let put = |out: &mut Out, lead: &str, text: &str| {
        let lead = style.cyan(&fit::left(lead, LEAD));
        out.line(&format!("{lead}{}", fit::cut(text, WIDTH - LEAD)));
    };
    let Some(worst) = row.worst() else {
        match row.is_known() {
            true => out.line(&format!("{name}: nothing found in what could be read")),
            false => {
                out.line(&format!("{name}: no setting could be read"));
                if let Some(unread) = row.guest.unread.first() {
                    put(out, "Why", &format!("{}: {}", unread.what, unread.why));
                    put(out, "Do", &unread.mend);
                }
            }
        }
        return;
    };
    out.line(&format!("{name}: {}", counts(&row.findings)));
    put(out, "Worst", &format!("{} ({})", worst.title, place(worst)));
    put(out, "Change", &worst.change.what);
    put(out, "Sure", &sure(row, worst));
    put(out, "Effect", &effect(row, worst));
}

/// `1 severe, 2 warnings`.
fn counts(findings: &[Finding]) -> String {
    let of = |s: Severity| {
        let n = findings.iter().filter(|f| f.severity == s).count();
        (n > 0).then(|| s.counted(n))
    };
    Severity::ALL.into_iter().rev().filter_map(of).collect::<Vec<_>>().join(", ")
}

/// The device, else the guest itself.
fn place(finding: &Finding) -> String {
    match &finding.subject {
        About::Guest(Subject { device: None, .. }) => "the whole guest".to_owned(),
        subject => subject.within(),
    }
}

/// A setting that was read is certain; what it costs is known from elsewhere, or not at all.
fn sure(row: &Row, finding: &Finding) -> String {
    let gain = match &finding.expected {
        Some(expected) => match expected.times {
            Some(times) => format!("gain {} times in {}", format::two(times), expected.source),
            None => format!("gain as in {}", expected.source),
        },
        None if is_to_be_like(row) => "its cost here is not measured (vmio tax --like)".into(),
        None => "its cost here is not measured".into(),
    };
    match finding.evidence.is_empty() {
        true => gain,
        false => format!("setting certain; {gain}"),
    }
}

fn effect(row: &Row, worst: &Finding) -> String {
    let when = match worst.change.takes {
        Takes::NextStart => "after the guest is shut down and started",
        Takes::ShutDown => "the change is made while the guest is shut down",
        Takes::Running => "at once, while the guest runs",
        Takes::InGuest => "the change is made inside the guest",
    };
    let several = row.together().into_iter().find(|all| all.places.contains(&0));
    match several {
        Some(all) => format!("{when}; with findings {} in one step: see the end", finding::numbers(&all.places)),
        None => format!("{when}; commands: finding 1"),
    }
}
