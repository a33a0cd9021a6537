//! What vmio can do here, as text: each lack once with what needs it, what was tried, and how much was not.

use std::collections::BTreeMap;

use vmio_look::require::Requirement;
use vmio_model::words::count;
use vmio_node::Reader;

use super::{ABOUT, Ability};
use crate::fit;
use crate::term::Style;

/// Most names of what needs a thing that lacks.
const NAMED: usize = 8;

/// An ability with what this host lacks for it.
pub(super) struct Entry {
    pub(super) ability: Ability,
    pub(super) missing: Vec<Unmet>,
    /// `ready`, `untried` or `lacking`.
    pub(super) state: &'static str,
}

/// A requirement that is not met: what was found instead, and what would meet it.
#[derive(Debug, Clone)]
pub(super) struct Unmet {
    pub(super) name: &'static str,
    /// What it is needed for.
    pub(super) purpose: &'static str,
    pub(super) found: String,
    pub(super) fix: String,
}

/// What was found of each requirement, by its name; `None` where it is met.
pub(super) type Checks = BTreeMap<&'static str, Option<Unmet>>;

impl Unmet {
    /// What this host lacks of a requirement, which is looked at once.
    pub(super) fn of(requirement: &Requirement, reader: &dyn Reader, checks: &mut Checks) -> Option<Unmet> {
        let look = || {
            let found = (requirement.check)(reader).err()?;
            let fix = requirement.fix_for(reader, &found);
            Some(Unmet { name: requirement.name, purpose: requirement.why, found: found.to_string(), fix })
        };
        checks.entry(requirement.name).or_insert_with(look).clone()
    }

    /// What was found, and what it is needed for.
    pub(super) fn why(&self) -> String {
        format!("{} ({})", self.found, self.purpose)
    }
}

/// A requirement that is not met, once, with all that need it.
struct Lack<'a> {
    unmet: &'a Unmet,
    /// Whether measuring needs it.
    needed: bool,
    by: Vec<&'a Entry>,
}

/// Those that measuring needs come first.
fn lacks(entries: &[Entry]) -> Vec<Lack<'_>> {
    let mut all: Vec<Lack<'_>> = Vec::new();
    for entry in entries {
        for unmet in &entry.missing {
            match all.iter_mut().find(|lack| lack.unmet.name == unmet.name) {
                Some(lack) => {
                    lack.needed |= entry.ability.needed;
                    lack.by.push(entry);
                }
                None => all.push(Lack { unmet, needed: entry.ability.needed, by: vec![entry] }),
            }
        }
    }
    all.sort_by_key(|lack| !lack.needed);
    all
}

/// Names of what is not met and measuring needs, each once.
pub(super) fn lacking(entries: &[Entry]) -> Vec<&'static str> {
    lacks(entries).iter().filter(|lack| lack.needed).map(|lack| lack.unmet.name).collect()
}

/// What measuring needs and lacks, then what is ready by kind, the names of what is lacking beside, and the number of
/// what is untried; `verbose`: every lack with its help, and everything in a row of its own.
pub(super) fn text(entries: &[Entry], verbose: bool, style: Style) -> String {
    let lacks = lacks(entries);
    let told = lacks.iter().filter(|lack| verbose || lack.needed);
    let mut text: String = told.map(|lack| lack.text(style)).collect();
    if verbose {
        return text + &entries.iter().map(|entry| row(entry, style)).collect::<String>();
    }
    let ready = by_point(entries.iter().filter(|entry| entry.state == "ready"));
    for (i, (point, names)) in ready.iter().enumerate() {
        let state = if i == 0 { style.cyan("ready  ") } else { " ".repeat(7) };
        text += &fit::paragraph(&format!("{state} {point:<9} "), 18, &names.join(", "));
    }
    let optional: Vec<&str> = lacks.iter().filter(|lack| !lack.needed).map(|lack| lack.unmet.name).collect();
    let untried = entries.iter().filter(|entry| entry.state == "untried").count();
    if !optional.is_empty() {
        text +=
            &fit::paragraph(&format!("{} ", style.dim("lacking")), 8, &format!("optional: {}", optional.join(", ")));
    }
    if untried > 0 {
        text += &fit::paragraph(&format!("{} ", style.dim("untried")), 8, &count(untried, "thing"));
    }
    if untried > 0 || !optional.is_empty() {
        text += &fit::paragraph("        ", 8, "vmio doctor --verbose says what needs each, and what helps");
    }
    text
}

/// Names by kind of thing, in the order of both.
fn by_point<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<(&'static str, Vec<&'a str>)> {
    let mut all: Vec<(&'static str, Vec<&'a str>)> = Vec::new();
    for ability in entries.map(|entry| &entry.ability) {
        match all.iter_mut().find(|(point, _)| *point == ability.point) {
            Some((_, names)) => names.push(ability.name.as_str()),
            None => all.push((ability.point, vec![ability.name.as_str()])),
        }
    }
    all
}

impl Lack<'_> {
    fn text(&self, style: Style) -> String {
        let Unmet { name, purpose, found, fix } = self.unmet;
        let state = if self.needed { style.yellow("lacking") } else { style.dim("lacking") };
        let by = by_point(self.by.iter().copied().take(NAMED));
        let by: Vec<String> = by.iter().map(|(point, names)| format!("{point} {}", names.join(", "))).collect();
        let more = self.by.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let optional = if self.needed { "" } else { "optional, " };
        fit::paragraph(&format!("{state} "), 8, &format!("{name} ({purpose}): {found}"))
            + &fit::paragraph("        ", 8, &format!("{optional}needed by {}{more}", by.join("; ")))
            + &fit::paragraph("        help: ", 14, fix)
    }
}

/// An ability with its description and the names of what it lacks.
fn row(entry: &Entry, style: Style) -> String {
    let ability = &entry.ability;
    let state = match entry.state {
        "lacking" => style.yellow("lacking"),
        "ready" => style.cyan("ready  "),
        other => style.dim(other),
    };
    let lead = format!("{state} {:<9} ", ability.point);
    let about = if fit::columns(&ability.name) < ABOUT - 18 {
        fit::paragraph(&format!("{lead}{} ", fit::left(&ability.name, ABOUT - 19)), ABOUT, ability.about)
    } else {
        fit::paragraph(&lead, 18, &ability.name) + &fit::paragraph(&" ".repeat(20), 20, ability.about)
    };
    let names: Vec<&str> = entry.missing.iter().map(|unmet| unmet.name).collect();
    if names.is_empty() {
        return about;
    }
    about + &fit::paragraph("        ", 8, &format!("lacks {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(point: &'static str, name: &str, lacks: &[&'static str], needed: bool) -> Entry {
        let ability = Ability { point, name: name.into(), about: "a thing", requirements: Vec::new(), needed };
        let unmet = |&name: &&'static str| Unmet {
            name,
            purpose: "does a thing",
            found: "not there".into(),
            fix: format!("install {name}"),
        };
        let missing: Vec<Unmet> = lacks.iter().map(unmet).collect();
        let state = if missing.is_empty() { "untried" } else { "lacking" };
        Entry { ability, missing, state }
    }

    #[test]
    fn a_lack_is_told_once_with_all_that_need_it() {
        let ready = Entry { state: "ready", ..entry("guest", "qemu", &[], true) };
        let entries = [
            entry("network", "bridge", &["iperf3"], false),
            entry("workload", "lu", &["vmio-cpu"], true),
            entry("workload", "sharpen", &["vmio-cpu"], true),
            entry("driver", "ahci", &[], true),
            ready,
        ];
        assert_eq!(lacking(&entries), ["vmio-cpu"]);
        let text = super::text(&entries, false, Style::PLAIN);
        let lines: Vec<&str> = text.lines().collect();
        let wanted = [
            "lacking vmio-cpu (does a thing): not there",
            "        needed by workload lu, sharpen",
            "        help: install vmio-cpu",
            "ready   guest     qemu",
            "lacking optional: iperf3",
            "untried 1 thing",
            "        vmio doctor --verbose says what needs each, and what helps",
        ];
        assert_eq!(lines, wanted);
        let verbose = super::text(&entries, true, Style::PLAIN);
        assert_eq!(verbose.matches("help: ").count(), 2, "{verbose}");
        assert!(verbose.contains("        optional, needed by network bridge"), "{verbose}");
        assert!(verbose.contains("untried driver    ahci"), "{verbose}");
    }
}
