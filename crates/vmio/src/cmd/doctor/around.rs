//! What is around measuring: the places of this host, and the guests that run on it.

use vmio_look::kinds;
use vmio_look::{HostView, Managed, managers};
use vmio_node::{Local, Node};
use vmio_rig::disks::places::{self, Listed};

use super::document::{LackingPlace, PlaceRow, PlaceRows, WatchedRow};
use crate::fit;
use crate::term::Style;
use vmio_model::words::{count, verb};

/// Columns of a name.
const NAME: usize = 22;

/// A line below the abilities: its subject, a name, and a text.
fn named(what: &str, name: &str, text: &str) -> String {
    if fit::columns(name) < NAME {
        return fit::paragraph(&format!("{what:<13}{} ", fit::left(name, NAME - 1)), 13 + NAME, text);
    }
    fit::paragraph(&format!("{what:<13}"), 13, name) + &fit::paragraph(&" ".repeat(15), 15, text)
}

/// The same lines, the subject before the first one alone.
pub(super) fn rows(what: &str, all: impl IntoIterator<Item = (String, String)>) -> String {
    let line = |(i, (name, text)): (usize, (String, String))| named(if i == 0 { what } else { "" }, &name, &text);
    all.into_iter().enumerate().map(line).collect()
}

/// The places of this host beside its directories, and the forms of `--on` that it has no tools for.
pub(super) struct Places {
    there: Vec<Listed>,
    lacking: Vec<(&'static str, String)>,
}

impl Places {
    pub(super) fn of(local: &Local) -> Self {
        let lacks = |kind: &&dyn places::PlaceKind| {
            let missing = kind.requirements().iter().find_map(|r| Some((r, (r.check)(local.reader()).err()?)));
            missing
                .map(|(r, found)| (kind.form(), format!("{}: {found}; {}", r.name, r.fix_for(local.reader(), &found))))
        };
        Self {
            there: places::ALL.iter().flat_map(|kind| kind.list(local)).collect(),
            lacking: places::ALL.iter().filter_map(lacks).collect(),
        }
    }

    /// What there is; what lacks its tools by its form alone, unless `verbose`.
    pub(super) fn text(&self, verbose: bool, style: Style) -> String {
        let state = |place: &Listed| match &place.state {
            Ok(state) => state.clone(),
            Err(unready) => style.yellow(&unready.reason),
        };
        let there = self.there.iter().map(|place| (place.name.clone(), state(place)));
        let lacking = self.lacking.iter().map(|(form, why)| ((*form).to_owned(), format!("not here: {why}")));
        if verbose {
            return rows("places", there.chain(lacking));
        }
        let forms: Vec<&str> = self.lacking.iter().map(|(form, _)| *form).collect();
        let without = format!("tools are missing for {}", forms.join(", "));
        let others = match (self.there.is_empty(), forms.is_empty()) {
            (true, true) => fit::paragraph("places       ", 13, "directories only"),
            (true, false) => fit::paragraph("places       ", 13, &format!("directories only; {without}")),
            (false, true) => String::new(),
            (false, false) => fit::paragraph(&" ".repeat(13), 13, &without),
        };
        rows("places", there) + &others
    }

    pub(super) fn json(&self) -> PlaceRows<'_> {
        let there = |p: &'_ Listed| PlaceRow {
            name: p.name.clone(),
            ready: p.state.is_ok(),
            state: p.state.clone().unwrap_or_else(|unready| unready.reason),
        };
        PlaceRows {
            there: self.there.iter().map(there).collect(),
            lacking: self.lacking.iter().map(|(form, why)| LackingPlace { form, why }).collect(),
        }
    }
}

/// Lines of what could not be read that are shown whole.
const LINES: usize = 2;

/// A manager or a kind of guest that `scan` and `top` look for, with its guests here.
pub(super) struct GuestSource {
    point: &'static str,
    name: &'static str,
    about: &'static str,
    managed: Managed,
}

impl GuestSource {
    pub(super) fn all(host: &HostView<'_>) -> Vec<Self> {
        let managers = managers::ALL.iter().map(|m| GuestSource {
            point: "manager",
            name: m.name(),
            about: m.about(),
            managed: m.guests(host),
        });
        let kinds = kinds::ALL.iter().map(|g| GuestSource {
            point: "guest",
            name: g.name(),
            about: g.about(),
            managed: g.running(host),
        });
        managers.chain(kinds).collect()
    }

    /// `3 guests run`, and what could not be read; `None` where nothing was seen.
    fn state(&self, verbose: bool) -> Option<String> {
        let n = self.managed.guests.len();
        let run = (n > 0).then(|| format!("{} {}", count(n, "guest"), verb(n, "run")));
        let unread = self.managed.unread.first().map(|u| {
            let whole = format!("{}: {}; {}", u.what, u.why, u.mend);
            let short = || format!("not read: {} (--verbose)", u.what);
            if verbose || fit::columns(&whole) <= LINES * fit::WIDTH { whole } else { short() }
        });
        let all: Vec<String> = run.into_iter().chain(unread).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Those with something to tell; the others in a line, or in one each if `verbose`.
    pub(super) fn text(all: &[Self], verbose: bool) -> String {
        let seen = all.iter().filter_map(|source| Some((source.name.to_owned(), source.state(false)?)));
        if verbose {
            let state = |source: &Self| source.state(true).unwrap_or_else(|| "not seen here".to_owned());
            return rows("looks at", all.iter().map(|source| (source.name.to_owned(), state(source))));
        }
        let told = rows("looks at", seen);
        let others: Vec<&str> =
            all.iter().filter(|source| source.state(false).is_none()).map(|source| source.name).collect();
        if others.is_empty() {
            return told;
        }
        let lead = if told.is_empty() { "looks at" } else { "" };
        told + &fit::paragraph(&format!("{lead:<13}"), 13, &format!("none seen of {}", others.join(", ")))
    }

    pub(super) fn json(&self) -> WatchedRow<'_> {
        let (guests, unread) = (self.managed.guests.len(), &self.managed.unread);
        WatchedRow { point: self.point, name: self.name, about: self.about, guests, unread }
    }
}
