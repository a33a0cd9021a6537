//! The report of `vmio scan`: as text, JSON, HTML, for Nagios and its kin, and for Prometheus'
//! textfile collector. All are drawn from one [`View`], which is made once.

mod brief;
pub mod diff;
mod guest;
mod host;
mod json;
pub mod nagios;
mod overview;
mod prometheus;
mod settings;

use vmio_look::kinds;
use vmio_look::managers::{self, Manager};
use vmio_model::facts::{Guest, Remedy, Unread};
use vmio_model::rules::change::{ConfigTool, Together, in_fields, together};
use vmio_model::rules::{self, Change, Finding, Severity};

use super::format;
pub use brief::{LINES, brief, whole as whole_command};
pub use guest::detail;
pub use host::HostWide;
pub use json::{Document, json};
pub use overview::{html, not_read, overview};
pub use prometheus::prometheus;
pub use settings::{Device, Setting, devices, disk_label, nic_label};

/// Ways to make a change: for whom, and how.
pub type Ways<'a> = Vec<(&'static str, &'a str)>;

/// A guest and what is wrong with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The guest.
    pub guest: Guest,
    /// What the rules found, the most severe first.
    pub findings: Vec<Finding>,
    /// How it differs from the reference guest of `vmio tax`, a sentence each.
    pub differences: Vec<String>,
}

impl Row {
    /// Applies the rules to a guest.
    pub fn of(guest: Guest) -> Row {
        let mut findings = rules::findings(&guest.facts());
        findings.iter_mut().for_each(|f| f.by_manager = in_fields(&guest, f));
        Row { guest, findings, differences: Vec::new() }
    }

    /// The finding to begin with.
    pub fn worst(&self) -> Option<&Finding> {
        self.findings.first()
    }

    /// One change for each device that several findings concern.
    pub fn together(&self) -> Vec<Together> {
        match self.own_way() {
            // Incus and LXD have a command a setting.
            None | Some(ConfigTool::Incus | ConfigTool::Lxd) => Vec::new(),
            Some(_) => together(&self.guest, &self.findings),
        }
    }

    /// Whether any setting could be read.
    pub fn is_known(&self) -> bool {
        devices(&self.guest).iter().any(|device| !device.settings.is_empty())
    }

    /// Its manager, else its hypervisor.
    pub fn kind(&self) -> &str {
        self.guest.manager.as_deref().unwrap_or(&self.guest.kind)
    }

    /// Its manager.
    fn manager(&self) -> Option<&'static dyn Manager> {
        managers::find(self.guest.manager.as_deref()?)
    }

    /// The tool that changes its settings; `None` for kinds of guests without one.
    pub fn own_way(&self) -> Option<ConfigTool> {
        let managed = self.manager().map(Manager::way);
        match kinds::find(&self.guest.kind) {
            Some(kind) => kind.way(managed),
            None => managed.or(Some(ConfigTool::Qemu)),
        }
    }

    /// The ways to make a change that apply to this guest, and the others.
    pub fn ways<'a>(&self, change: &'a Change) -> (Ways<'a>, Ways<'a>) {
        let own = self.own_way().map(ConfigTool::name);
        let (ours, others) = change.ways().into_iter().partition(|(name, _)| Some(*name) == own || *name == "any");
        (ours, if own.is_some() { others } else { Vec::new() })
    }

    /// A remark where a manager writes the set-up itself.
    fn remark(&self, change: &Change) -> Option<&'static str> {
        self.manager()?.remark().filter(|_| change.ways().len() > 1)
    }
}

/// What a scan showed.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Time of the scan, in seconds since the epoch.
    pub at_unix_seconds: f64,
    /// How long it took.
    pub seconds: f64,
    /// The machine that was looked at, where that is not this host.
    pub on: Option<String>,
    /// Whether it ran as root.
    pub root: bool,
    /// The guests, the worst first.
    pub rows: Vec<Row>,
    /// What could not be read and belongs to no guest.
    pub unread: Vec<Unread>,
    /// vmio's own guests, which are not shown.
    pub own_guests: usize,
    /// Findings that were left out because they are meant to be so.
    pub ignored: usize,
    /// The same by source: `--ignore`, or a file.
    pub ignored_by: Vec<(String, usize)>,
    /// What changed since an earlier scan, where that was asked for.
    pub diff: Option<diff::Diff>,
}

impl View {
    /// Puts the worst guest first; of those without a finding one whose settings could not all be read.
    pub fn sorted(mut self) -> View {
        let key = |row: &Row| (row.worst().map(|f| f.severity), row.findings.len(), is_half_known(row));
        self.rows.sort_by(|a, b| key(b).cmp(&key(a)).then_with(|| natural(&a.guest.name).cmp(&natural(&b.guest.name))));
        self
    }

    /// The worst severity of all guests.
    pub fn worst(&self) -> Option<Severity> {
        self.rows.iter().filter_map(|r| Some(r.worst()?.severity)).max()
    }

    /// Number of findings of a severity; one that several guests have for one reason counts once.
    pub fn count(&self, severity: Severity) -> usize {
        let host = self.host_wide();
        let own = self.rows.iter().flat_map(|r| host::own(r, &host)).filter(|f| f.severity == severity).count();
        own + host.iter().filter(|h| h.severity == severity).count()
    }

    /// Everything that could not be read, with the guest it belongs to.
    pub fn all_unread(&self) -> impl Iterator<Item = (Option<&str>, &Unread)> {
        let of_guests = self.rows.iter().flat_map(|r| r.guest.unread.iter().map(|u| (Some(r.guest.name.as_str()), u)));
        of_guests.chain(self.unread.iter().map(|u| (None, u)))
    }

    /// Whether the scan could judge no guest because something could not be read. Root sees every virtual machine, so
    /// where there is none, nothing is missing.
    pub fn is_blind(&self) -> bool {
        let none_there = self.root && self.rows.is_empty();
        !none_there && self.all_unread().next().is_some() && !self.rows.iter().any(Row::is_known)
    }

    /// `2 severe, 1 warning`; empty without findings.
    pub fn counts(&self) -> String {
        let of = |s: Severity| Some((self.count(s), s)).filter(|(n, _)| *n > 0).map(|(n, s)| s.counted(n));
        Severity::ALL.into_iter().rev().filter_map(of).collect::<Vec<_>>().join(", ")
    }

    /// `2 findings by --ignore`, one for each source.
    pub fn ignored_words(&self) -> Vec<String> {
        let by = |(from, n): &(String, usize)| format!("{} by {from}", format::count(*n, "finding"));
        self.ignored_by.iter().map(by).collect()
    }

    /// `6 guests`, and how long the look took.
    pub fn headline(&self) -> String {
        let on = self.on.as_ref().map_or_else(String::new, |address| format!(" on {address}"));
        format!("{}{on} scanned in {}", format::count(self.rows.len(), "guest"), format::time(self.seconds))
    }

    /// The machine that is scanned, in words.
    pub fn host(&self) -> String {
        self.on.clone().unwrap_or_else(|| "this host".to_owned())
    }
}

/// `Findings 1, 2 and 5 in one step: guest db1, disk virtio0`.
fn in_one_step(all: &Together) -> String {
    format!("Findings {} in one step: {}", super::finding::numbers(&all.places), all.subject)
}

/// Whether nothing was found in a guest whose settings could not all be read.
fn is_half_known(row: &Row) -> bool {
    row.findings.is_empty() && !row.guest.unread.is_empty()
}

/// Whether `--like` can measure a guest set up like it; one of vmio's own is a measurement itself.
fn is_to_be_like(row: &Row) -> bool {
    row.guest.is_qemu() && !row.guest.is_vmios_own()
}

/// What could not be read, grouped by fix: the fix, and what it would show.
pub fn by_fix(view: &View) -> Vec<(&Remedy, Vec<String>)> {
    let mut folded: Vec<(&Remedy, Vec<String>)> = Vec::new();
    for (_, unread) in view.all_unread() {
        match folded.iter_mut().find(|(fix, _)| **fix == unread.mend) {
            Some((_, all)) if all.contains(&unread.what) => {}
            Some((_, all)) => all.push(unread.what.clone()),
            None => folded.push((&unread.mend, vec![unread.what.clone()])),
        }
    }
    folded
}

/// Names in numeric order: `101` before `1000`.
fn natural(name: &str) -> (u64, &str) {
    (name.parse().unwrap_or(u64::MAX), name)
}
