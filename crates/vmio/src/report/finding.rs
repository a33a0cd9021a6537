//! How a finding is shown, the same in the report of a run and in that of a scan: title, severity,
//! cause, the settings it rests on, what the change may bring, the change, and when it takes effect.

use vmio_model::rules::change::AppliesAt;
use vmio_model::rules::{Change, Finding};

use super::document::{Card, Made};

/// How a change is made, by every tool.
pub(super) fn made(change: &Change) -> Made {
    let ways = change.ways().into_iter().map(|(name, how)| (name, how.to_owned())).collect();
    Made { ways, elsewhere: Vec::new(), remark: None, takes: takes(change.takes) }
}

/// The finding at an index of a list, with how its change is made; a change that an earlier finding asks for is shown
/// only there.
pub(super) fn card(findings: &[Finding], place: usize, made: Made) -> Card {
    let found = &findings[place];
    let earlier = same_change(findings, place).map(|first| format!("as for finding {}.", first + 1));
    let own = earlier.is_none();
    let evidence = found.evidence.iter().map(|e| (format!("{} = {}", e.setting, e.value), e.from.clone()));
    Card {
        title: format!("{}. {}", place + 1, found.title),
        found: Some((found.severity, found.rule.clone())),
        cause: Some((found.subject.to_string(), found.cause.clone())),
        evidence: evidence.collect(),
        expected: found.expected.as_ref().map(|expected| (expected.text.clone(), expected.source.clone())),
        change: Some(earlier.unwrap_or_else(|| found.change.what.clone())),
        made: own.then_some(made),
        references: if own { found.references.clone() } else { Vec::new() },
        proof: None,
    }
}

/// The index of an earlier finding that asks for the same change as the one at `place`.
pub(super) fn same_change(findings: &[Finding], place: usize) -> Option<usize> {
    let (before, rest) = findings.split_at(place);
    before.iter().position(|f| f.rule == rest[0].rule && f.change == rest[0].change)
}

/// When a change takes effect, as a sentence.
pub(super) fn takes(takes: AppliesAt) -> &'static str {
    match takes {
        AppliesAt::NextStart => {
            "Takes effect after the guest is shut down and started (a reboot inside the guest is not enough)."
        }
        AppliesAt::ShutDown => "Make this change while the guest is shut down.",
        AppliesAt::Running => "Takes effect at once, while the guest runs.",
        AppliesAt::InGuest => "Make this change in the guest, or in the application that runs in it.",
    }
}

/// `1, 2 and 5`: numbers of a list.
pub(super) fn numbers(places: &[usize]) -> String {
    let numbers: Vec<String> = places.iter().map(|place| (place + 1).to_string()).collect();
    match numbers.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => numbers.concat(),
    }
}
