//! Findings about the host, not one guest: shown once, with the guests that have them.

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::rules::{Finding, RULES, Rule, Severity};

use super::{Row, View};
use crate::report::format;

/// Most names of guests that are shown.
const NAMED: usize = 5;

/// A finding of the host's.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HostWide<'a> {
    /// Id of the rule.
    pub rule: &'a str,
    /// Title of the rule.
    pub title: &'a str,
    /// The worst of the guests'.
    pub severity: Severity,
    /// The cause, as the first guest's finding says it.
    pub cause: &'a str,
    /// Names of the guests, each of which has the finding among its own.
    pub guests: Vec<&'a str>,
}

impl View {
    /// A finding that several guests have for one reason.
    pub fn host_wide(&self) -> Vec<HostWide<'_>> {
        let of = |rule: &&'static Rule| {
            let found = |row: &'_ Row| row.findings.iter().position(|f| f.rule == rule.id);
            let rows: Vec<(&Row, &Finding)> =
                self.rows.iter().filter_map(|row| Some((row, &row.findings[found(row)?]))).collect();
            let (_, first) = rows.first().filter(|_| rows.len() > 1)?;
            Some(HostWide {
                rule: &first.rule,
                title: &first.title,
                severity: rows.iter().map(|(_, f)| f.severity).max()?,
                cause: &first.cause,
                guests: rows.iter().map(|(row, _)| row.guest.name.as_str()).collect(),
            })
        };
        RULES.iter().filter(|rule| rule.host_wide).filter_map(of).collect()
    }
}

impl HostWide<'_> {
    /// In a line: `Software emulation (emulation-though-kvm) in 7 guests: a, b, c, d, e and 2 more`.
    pub fn line(&self) -> String {
        let named = self.guests[..self.guests.len().min(NAMED)].join(", ");
        let more = self.guests.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let guests = format::count(self.guests.len(), "guest");
        format!("{}: {} ({}) in {guests}: {named}{more}", self.severity, self.title, self.rule)
    }
}

/// The findings of a guest that are its own.
pub(super) fn own<'a>(row: &'a Row, host: &'a [HostWide<'_>]) -> impl Iterator<Item = &'a Finding> {
    row.findings.iter().filter(|f| !host.iter().any(|h| h.rule == f.rule))
}
