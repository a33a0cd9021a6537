//! `docs/advice.md`: every rule that speaks of guests that run, by every way of change.

use std::collections::BTreeSet;

use vmio_model::rules::withheld::WITHHELD;
use vmio_model::rules::{Check, RULES};

use super::rows::{FORMS, ROWS, WHY};
use super::{Row, TOGETHER, Way, Why};

/// Rules that look at guests that run, in the order of the list.
pub fn live_rules() -> Vec<&'static str> {
    RULES.iter().filter(|rule| rule.checks.iter().any(Check::is_live)).map(|rule| rule.id).collect()
}

/// What is wrong with the lists of rows and of reasons: each rule needs for each way the one or the other.
pub fn gaps() -> Vec<String> {
    let mut wrong = Vec::new();
    let rules = live_rules();
    for rule in rules.iter().copied().chain([TOGETHER]) {
        for way in Way::ALL {
            let rows = rows(rule, way).count();
            let reasons = WHY.iter().filter(|(r, w, _)| (*r, *w) == (rule, way)).count();
            if (rows == 0) == (reasons == 0) || reasons > 1 {
                wrong.push(format!("{rule}, {}: {rows} rows and {reasons} reasons", way.title()));
            }
        }
    }
    let named = ROWS.iter().flat_map(|list| list.iter()).map(|row| row.rule).chain(WHY.iter().map(|(rule, ..)| *rule));
    let named = named.chain(FORMS.iter().map(|(rule, ..)| *rule));
    let unknown: BTreeSet<&str> = named.filter(|rule| *rule != TOGETHER && !rules.contains(rule)).collect();
    wrong.extend(unknown.into_iter().map(|rule| format!("{rule}: no such rule")));
    let all: Vec<&Row> = all_rows().collect();
    for row in &all {
        let twins = all.iter().filter(|r| (r.rule, r.way, r.how) == (row.rule, row.way, row.how)).count();
        if twins > 1 {
            wrong.push(format!("{}, {}: {:?} twice", row.rule, row.way.title(), row.how));
        }
        if row.way != Way::Proxmox && row.shows.is_empty() {
            wrong.push(format!("{}, {}: nothing is shown to be in force", row.rule, row.way.title()));
        }
    }
    wrong
}

pub fn all_rows() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().flat_map(|list| list.iter())
}

fn rows(rule: &str, way: Way) -> impl Iterator<Item = &'static Row> {
    all_rows().filter(move |row| row.rule == rule && row.way == way)
}

/// The whole page.
pub fn page() -> String {
    let mut text = String::from(HEAD);
    text.push_str("\n| rule | QEMU | libvirt | Proxmox |\n|---|---|---|---|\n");
    let mut used: BTreeSet<Why> = BTreeSet::new();
    for rule in live_rules().into_iter().chain([TOGETHER]) {
        let cells = Way::ALL.map(|way| {
            let how: Vec<&str> = rows(rule, way).map(|row| row.how).collect();
            match WHY.iter().find(|(r, w, _)| (*r, *w) == (rule, way)) {
                Some((_, _, why)) => {
                    used.insert(*why);
                    why.short().to_owned()
                }
                None if way == Way::Proxmox => format!("**taken, gone**: {}", how.join("; ")),
                None => format!("**in force, gone**: {}", how.join("; ")),
            }
        });
        let name = if rule == TOGETHER { "one change that makes them all".to_owned() } else { format!("`{rule}`") };
        text.push_str(&format!("| {name} | {} |\n", cells.join(" | ")));
    }
    text.push_str("\nForms of a rule's advice that no cell names, the same in each column:\n\n");
    for (rule, form, why) in FORMS {
        used.insert(*why);
        text.push_str(&format!("- `{rule}`, {form}: {}.\n", why.short()));
    }
    text.push_str("\n**in force, gone**: applied as printed, the guest restarted where the change says so; then the setting is\nin force, and neither this finding nor a new one is reported. **taken, gone**: the same with a stand-in for `qm`,\nwhich refuses what qemu-server refuses; the real one was not tried.\n\n");
    for why in used {
        text.push_str(&format!("- *{}*: {}.\n", why.short(), why.long()));
    }
    text.push_str(
        "\n## Withheld advice\n\nIf advice is known to harm, vmio does not give it, or gives other advice instead:\n\n",
    );
    text.push_str("| id | advice | withheld because | instead | source |\n|---|---|---|---|---|\n");
    for entry in WITHHELD {
        let (id, advice) = (entry.id, entry.advice.name());
        text.push_str(&format!("| `{id}` | {advice} | {} | {} | {} |\n", entry.because, entry.instead, entry.source));
    }
    text
}

const HEAD: &str = "# Tested advice

`crates/vmio/tests/guest_advice.rs` applies the changes that `vmio scan` prints, word for word. It starts a guest with
the fault, makes the printed change, starts the guest again, and checks that the setting is in force in QEMU's
monitor, in the process, or in /sys. Guests are real QEMU processes under emulation that stay paused, domains of a
real libvirt daemon, and QEMU processes that a stand-in for `qm` makes from a configuration of Proxmox VE. After each
result is how the fault was configured. `make test` runs a part of these rows, `make test-long` all of them. A rule
without a row for each column fails a test.

This page is made from that test's own lists; `cargo test --test plain advice` compares it and says how to rewrite it.
";
