//! The screen of one interval, for every form: verdicts, disks, guests in their order, what no guest explains, notes.
//! `--once` prints it, `--json` writes it, the terminal draws it.

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::top::journal::{self, JournalRow, JournalUserRow};
use vmio_model::top::load::{HostCpu, HostMemory, Interval, UplinkLoad};
use vmio_model::top::rows::{DeviceRow, GuestRow, OtherRow, ProcessRow, rows};
use vmio_model::top::share::Basis;
use vmio_model::top::verdict::{Verdict, nothing, verdicts};
use vmio_model::top::{History, verdict, waits};
use vmio_model::waterfall::host::LiveCalls;

use super::columns::{self, Column, Known, Set};
use super::figures::{figure, percent, short, time};
use super::opened::Opened;
use super::totals::Totals;
use crate::fit;
use crate::report::format::count;
use crate::term::Style;

/// Titles of the first columns of the guests.
const GUEST: &str = "GUEST";
const VMID: &str = "VMID";
/// Most columns of a VMID (Proxmox VE allows nine digits).
const VMID_MOST: usize = 9;
/// Longest name of a guest that is shown whole, unless the terminal is wider than [`WIDE`].
const NAME: usize = 17;
const WIDE: usize = 120;
/// The same for what no guest explains.
const OTHER: usize = 35;
/// The same for a disk.
pub const DISK: usize = 10;
/// Least columns of the guests' names, so that the table does not move when a guest comes.
pub const LEAST_NAME: usize = 8;
const NOTE: &str = "note: ";

/// What a guest's hypervisor asked of the host.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct GuestCalls {
    /// Name of the guest.
    pub guest: String,
    /// Its process.
    pub pid: u32,
    /// The calls.
    #[serde(flatten)]
    pub calls: LiveCalls,
}

/// One interval as it is shown. The fields are those of `--json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Screen {
    /// Version of this document.
    pub schema_version: &'static str,
    /// When it ended, in seconds since the epoch.
    pub at_unix_seconds: f64,
    /// Length of the interval.
    pub seconds: f64,
    /// How the disk traffic of guests was seen.
    pub source: String,
    /// What shares of disks are shares of.
    pub basis: Basis,
    /// A line for each thing that is used up; empty when nothing is.
    pub verdicts: Vec<Verdict>,
    /// What is said when there is none.
    pub nothing: Option<String>,
    /// Disks.
    pub devices: Vec<DeviceRow>,
    /// Guests.
    pub guests: Vec<GuestRow>,
    /// What the hypervisors of guests asked of the host for their disks; empty unless that is asked for.
    pub calls: Vec<GuestCalls>,
    /// Guests that the filter left out.
    pub guests_left_out: usize,
    /// What no guest explains.
    pub others: Vec<OtherRow>,
    /// File systems with a journal that guests use, or where an fsync was slow; empty without tracing.
    pub journals: Vec<JournalRow>,
    /// The host and all guests together.
    pub totals: Totals,
    /// The host's processors.
    pub host_cpu: HostCpu,
    /// The host's memory.
    pub host_memory: HostMemory,
    /// Processes that are no guest, the busiest first; `None` where they were not looked at.
    pub processes: Option<Vec<ProcessRow>>,
    /// The host's uplinks.
    pub uplinks: Vec<UplinkLoad>,
    /// What could not be seen.
    pub notes: Vec<String>,
    /// More of the guest whose page is open.
    #[serde(skip)]
    pub opened: Option<Opened>,
}

impl Screen {
    /// Draws the conclusions of an interval; the history is that of earlier ones.
    pub fn of(interval: &Interval, history: &History, source: &str) -> Screen {
        let mut all = rows(interval);
        let verdicts = verdicts(interval, history);
        waits::fill(&mut all.guests, interval, &verdicts);
        Screen {
            schema_version: "1.3",
            at_unix_seconds: 0.0,
            seconds: interval.seconds,
            source: source.to_owned(),
            basis: all.basis,
            nothing: verdicts.is_empty().then(|| nothing(interval)),
            verdicts,
            totals: Totals::of(interval, &all),
            devices: all.devices,
            guests: all.guests,
            calls: Vec::new(),
            guests_left_out: 0,
            others: all.others,
            journals: journal::rows(interval),
            host_cpu: interval.host_cpu,
            host_memory: interval.host_memory,
            processes: all.processes,
            uplinks: interval.uplinks.clone(),
            notes: interval.notes.clone(),
            opened: None,
        }
    }

    /// Adds what hypervisors asked of the host.
    pub fn add_calls(&mut self, calls: Vec<GuestCalls>) {
        for guest in &mut self.guests {
            let own = calls.iter().find(|one| Some(one.pid) == guest.pid);
            guest.kernel_mean_seconds = own.and_then(|one| one.calls.kernel_seconds());
        }
        self.calls = calls;
    }

    /// Sorts guests and leaves out those without the filter's text in their names. Verdicts stay
    /// whole.
    #[must_use]
    pub fn arranged(mut self, by: &Column, filter: &str) -> Screen {
        let all = self.guests.len();
        let wanted = filter.to_lowercase();
        self.guests.retain(|g| g.name.to_lowercase().contains(&wanted));
        self.calls.retain(|calls| self.guests.iter().any(|g| g.pid == Some(calls.pid)));
        self.guests_left_out = all - self.guests.len();
        columns::sort(&mut self.guests, by);
        self
    }

    /// As one JSON document in one line.
    pub fn json(&self) -> String {
        crate::document::text(self)
    }

    /// As text of at most `width` columns. The overview is followed by the columns of disks, if there is traffic and
    /// they have no room in it.
    pub fn text(&self, set: Set, style: Style, width: usize) -> String {
        let mut text = String::new();
        for verdict in &self.verdicts {
            for (i, line) in fit::lines(&verdict.line, width - 2).iter().enumerate() {
                let line = format!("{}{line}", if i == 0 { "" } else { "  " });
                let line = if verdict.certain { style.red(&line) } else { style.yellow(&line) };
                text += &format!("{line}\n");
            }
        }
        if let Some(nothing) = &self.nothing {
            text += &format!("{}\n", style.bold(nothing));
        }
        text.push('\n');
        fit::lines(&self.summary(), width).iter().for_each(|line| text += &format!("{}\n", style.dim(line)));
        text += &aligned(&device_cells(&self.devices), style);
        let (names, columns) = self.layout(width, set);
        text += &format!("\n{}", aligned(&self.guest_cells(&names, &columns), style));
        if self.guests.is_empty() {
            let why = if self.guests_left_out > 0 { "no guest name matches" } else { "no guests" };
            text += &format!("{}\n", style.dim(why));
        }
        let moved =
            |g: &GuestRow| [g.disk.read_bytes_per_second, g.disk.write_bytes_per_second].iter().any(|x| *x > Some(0.0));
        if set == Set::Overview && self.guests.iter().any(moved) && columns.iter().all(|c| c.name != "latency") {
            let (names, columns) = self.layout(width, Set::Disk);
            text += &format!("\n{}", aligned(&self.guest_cells(&names, &columns), style));
        }
        if !self.others.is_empty() {
            text += &format!("\n{}", aligned(&other_cells(&self.others, other_name(width)), style));
        }
        let slow = journal_cells(&self.journals);
        if slow.len() > 1 {
            text += &format!("\n{}", aligned(&slow, style));
        }
        for note in &self.notes {
            let lines = fit::lines(note, width - NOTE.len());
            let lead = |i: usize| if i == 0 { style.yellow(NOTE.trim_end()) + " " } else { " ".repeat(NOTE.len()) };
            lines.iter().enumerate().for_each(|(i, line)| text += &format!("\n{}{line}", lead(i)));
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        text
    }

    /// The guests' names, shortened so that they still differ, and the columns of a set that fit beside them.
    pub fn layout(&self, width: usize, set: Set) -> (Vec<String>, Vec<&'static Column>) {
        let longest = self.guests.iter().map(|g| fit::columns(&g.name)).max().unwrap_or(0);
        let most = if width > WIDE { longest.min(40) } else { longest.min(NAME) };
        let all: Vec<&str> = self.guests.iter().map(|g| g.name.as_str()).collect();
        let names = fit::names(&all, most.max(LEAST_NAME));
        let totals = self.total_rows();
        let all = names.iter().chain(totals.iter().map(|row| &row.name));
        let widest = all.map(|n| fit::columns(n)).max().unwrap_or(0).max(LEAST_NAME);
        let vmids = self.vmid_width().map_or(0, |w| w + 1);
        let known = Known {
            guard: self.guests.iter().any(|g| g.guard.is_some()),
            calls: self.guests.iter().any(|g| g.kernel_mean_seconds.is_some()),
        };
        (names, columns::fitting(width as u16, (widest + vmids) as u16, set, known))
    }

    /// The lines of the host and of all guests.
    fn total_rows(&self) -> [GuestRow; 2] {
        self.totals.rows(self.host_cpu.cpus, self.guests.len() + self.guests_left_out)
    }

    /// Columns of the VMIDs; `None` where no guest has one.
    pub fn vmid_width(&self) -> Option<usize> {
        let widths = self.guests.iter().filter_map(|g| Some(fit::columns(g.vmid.as_ref()?)));
        widths.max().map(|widest| widest.clamp(VMID.len(), VMID_MOST))
    }

    /// Titles, the two totals, and the cells of the guests.
    pub fn guest_cells(&self, names: &[String], columns: &[&Column]) -> Vec<Vec<String>> {
        let vmid = self.vmid_width();
        let titles = std::iter::once(GUEST).chain(vmid.map(|_| VMID)).chain(columns.iter().map(|c| c.title));
        let row = |(guest, name): (&GuestRow, &String)| -> Vec<String> {
            let number = vmid.map(|width| guest.vmid.as_deref().map_or("-".into(), |vmid| fit::cut(vmid, width)));
            std::iter::once(name.clone()).chain(number).chain(columns.iter().map(|c| c.cell(guest))).collect()
        };
        let totals = self.total_rows();
        let total = totals.iter().map(|total| row((total, &total.name)));
        let all = total.chain(self.guests.iter().zip(names).map(row));
        std::iter::once(titles.map(String::from).collect()).chain(all).collect()
    }

    /// The host in a line: interval, guests, processors.
    pub fn summary(&self) -> String {
        let cpu = &self.host_cpu;
        // The clock and the counters are not read at the same moment: the sum may be more than there was.
        let all = self.seconds * f64::from(cpu.cpus.max(1));
        let busy = if all > 0.0 { (cpu.busy_seconds / all).min(1.0) } else { 0.0 };
        let n = self.guests.len() + self.guests_left_out;
        let mut line = format!("{} s; {}", figure(Some(self.seconds)), count(n, "guest"));
        line += &format!("; {} CPUs {} % busy", cpu.cpus, percent(Some(busy)));
        if let Some(ratio) = cpu.stalled_ratio {
            line += &format!(", {} % stalled", percent(Some(ratio)));
        }
        format!("{line}; {}", self.source)
    }
}

/// Titles and cells of the disks; "FLUSH" is the mean time of a flush. "BUSY%" comes last: it says nothing of how full
/// a flash disk is.
pub fn device_cells(devices: &[DeviceRow]) -> Vec<Vec<String>> {
    let titles = ["DISK", "R/s", "W/s", "rMB/s", "wMB/s", "MEAN", "FLUSH", "DEPTH", "BUSY%"].map(String::from).to_vec();
    let cells = |d: &DeviceRow| {
        vec![
            fit::name(&d.name, DISK),
            short(Some(d.read_iops)),
            short(Some(d.write_iops)),
            figure(Some(d.read_bytes_per_second / 1e6)),
            figure(Some(d.write_bytes_per_second / 1e6)),
            time(d.latency_mean_seconds, None),
            time(d.flush_mean_seconds, None),
            figure(Some(d.queue_depth)),
            percent(Some(d.busy_ratio)),
        ]
    };
    let busy = devices.iter().filter(|d| d.read_iops + d.write_iops + d.flushes_per_second > 0.0);
    std::iter::once(titles).chain(busy.map(cells)).collect()
}

/// Columns of the names of what no guest explains: three figures have room beside them.
pub fn other_name(width: usize) -> usize {
    OTHER.min(width.saturating_sub(21)).max(LEAST_NAME)
}

/// Titles and cells of what no guest explains, names in so many columns.
pub fn other_cells(others: &[OtherRow], name: usize) -> Vec<Vec<String>> {
    let titles = ["NO GUEST", "DISK%", "R/s", "W/s", "MB/s", "p99", "DEPTH"].map(String::from).to_vec();
    let cells = |o: &OtherRow| {
        let bytes = o.disk.read_bytes_per_second.unwrap_or(0.0) + o.disk.write_bytes_per_second.unwrap_or(0.0);
        vec![
            fit::name(&format!("{}: {}", o.kind.name(), o.name), name),
            percent(o.disk.device_share_ratio),
            short(o.disk.read_iops),
            short(o.disk.write_iops),
            figure(Some(bytes / 1e6)),
            time(o.disk.latency_p99_seconds, None),
            figure(o.disk.queue_depth),
        ]
    };
    std::iter::once(titles).chain(others.iter().map(cells)).collect()
}

/// Titles and cells of the users of file systems where somebody waits in fsync.
fn journal_cells(journals: &[JournalRow]) -> Vec<Vec<String>> {
    let slow = journals.iter().filter(|j| j.users.iter().any(|u| u.fsync_wait_ratio.is_some()));
    let user = |j: &JournalRow, u: &JournalUserRow| {
        vec![
            fit::name(&u.who, NAME),
            short(Some(u.fsyncs_per_second)),
            time(u.fsync_mean_seconds, None),
            time(u.fsync_worst_seconds, None),
            figure(Some(u.dirtied_bytes_per_second / 1e6)),
            fit::name(&j.name, NAME),
        ]
    };
    let titles = ["FSYNC BY", "FSYNC/s", "MEAN", "WORST", "DIRTYMB/s", "FILE SYSTEM"].map(String::from).to_vec();
    let rows = slow.flat_map(|j| j.users.iter().map(move |u| (j, u))).map(|(j, u)| user(j, u));
    std::iter::once(titles).chain(rows).collect()
}

/// Columns as wide as their widest cell, the first to the left, the others to the right.
fn aligned(cells: &[Vec<String>], style: Style) -> String {
    let count = cells.first().map_or(0, Vec::len);
    let widest = |i: usize| cells.iter().map(|row| fit::columns(&row[i])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(widest).collect();
    let mut text = String::new();
    for (n, row) in cells.iter().enumerate() {
        let padded = row.iter().zip(&widths).enumerate().map(|(i, (cell, width))| match i {
            0 => fit::left(cell, *width),
            _ => fit::right(cell, *width),
        });
        let line = padded.collect::<Vec<_>>().join(" ");
        text += &format!("{}\n", if n == 0 { style.bold(&line) } else { line });
    }
    text
}

/// The line of a verdict with its mark, for the terminal.
pub fn marked(verdict: &verdict::Verdict) -> String {
    format!("{} {}", if verdict.certain { "!" } else { "?" }, verdict.line)
}
