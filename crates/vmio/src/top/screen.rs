//! What is shown, of one interval, whatever shows it: verdicts, disks, guests in their order, what
//! no guest explains, notes. `--once` prints it, `--json` writes it, the terminal draws it.

use serde::Serialize;
use vmio_model::top::load::{HostCpu, Interval, UplinkLoad};
use vmio_model::top::rows::{DeviceRow, GuestRow, OtherRow, rows};
use vmio_model::top::verdict::share::Basis;
use vmio_model::top::verdict::{Verdict, nothing, verdicts};
use vmio_model::top::{History, verdict};

use super::columns::{self, Column, figure, percent, short, time};
use crate::report::format::count;
use crate::term::Style;

/// One interval as it is shown. The fields are those of `--json`.
#[derive(Debug, Clone, Serialize)]
pub struct Screen {
    /// Version of this document.
    pub schema_version: &'static str,
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
    /// Guests that the filter left out.
    pub guests_left_out: usize,
    /// What no guest explains.
    pub others: Vec<OtherRow>,
    /// The host's processors.
    pub host_cpu: HostCpu,
    /// The host's uplinks.
    pub uplinks: Vec<UplinkLoad>,
    /// What could not be seen.
    pub notes: Vec<String>,
}

impl Screen {
    /// Draws the conclusions from an interval. The history is what was seen before it.
    pub fn of(interval: &Interval, history: &History, source: &str) -> Screen {
        let all = rows(interval);
        let verdicts = verdicts(interval, history);
        Screen {
            schema_version: "1.0",
            seconds: interval.seconds,
            source: source.to_owned(),
            basis: all.basis,
            nothing: verdicts.is_empty().then(|| nothing(interval)),
            verdicts,
            devices: all.devices,
            guests: all.guests,
            guests_left_out: 0,
            others: all.others,
            host_cpu: interval.host_cpu,
            uplinks: interval.uplinks.clone(),
            notes: interval.notes.clone(),
        }
    }

    /// Sorts guests and leaves out those without the filter's text in their names. Verdicts stay
    /// whole.
    #[must_use]
    pub fn arranged(mut self, by: &Column, filter: &str) -> Screen {
        let all = self.guests.len();
        let wanted = filter.to_lowercase();
        self.guests.retain(|g| g.name.to_lowercase().contains(&wanted));
        self.guests_left_out = all - self.guests.len();
        columns::sort(&mut self.guests, by);
        self
    }

    /// As one JSON document.
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("string keys, and no failing serialiser");
        text.push('\n');
        vmio_model::shown::json(&text).into_owned()
    }

    /// As text, as wide as it needs to be.
    pub fn text(&self, style: Style) -> String {
        let mut text = String::new();
        for verdict in &self.verdicts {
            let line = if verdict.certain { style.red(&verdict.line) } else { style.yellow(&verdict.line) };
            text += &format!("{line}\n");
        }
        if let Some(nothing) = &self.nothing {
            text += &format!("{}\n", style.bold(nothing));
        }
        text += &format!("\n{}\n", style.dim(&self.summary()));
        text += &table(&device_cells(&self.devices), style);
        let width = self.guests.iter().map(|g| g.name.chars().count()).max().unwrap_or(0).max(5);
        let all = columns::fitting(u16::MAX, 0);
        let mut cells = vec![guest_titles(&all)];
        cells.extend(self.guests.iter().map(|g| guest_cells(g, &all)));
        if self.guests.is_empty() {
            let why = if self.guests_left_out > 0 { "no guest has that in its name" } else { "no guests" };
            text += &format!("\n{}\n", style.dim(why));
        } else {
            text += &format!("\n{}", aligned(&cells, &[width], style));
        }
        if !self.others.is_empty() {
            text += &format!("\n{}", table(&other_cells(&self.others), style));
        }
        for note in &self.notes {
            text += &format!("\n{} {note}", style.yellow("note:"));
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        text
    }

    /// The host in a line: interval, processors, uplinks.
    pub fn summary(&self) -> String {
        let cpu = &self.host_cpu;
        let busy = if self.seconds > 0.0 { cpu.busy_seconds / self.seconds / f64::from(cpu.cpus.max(1)) } else { 0.0 };
        let n = self.guests.len() + self.guests_left_out;
        let mut line = format!("{} s; {}", figure(Some(self.seconds)), count(n, "guest"));
        line += &format!("; {} CPUs {} % busy", cpu.cpus, percent(Some(busy)));
        if let Some(ratio) = cpu.stalled_ratio {
            line += &format!(", {} % stalled", percent(Some(ratio)));
        }
        for link in &self.uplinks {
            let rate = |bytes: u64| if self.seconds > 0.0 { bytes as f64 * 8e-6 / self.seconds } else { 0.0 };
            let (rx, tx) = (figure(Some(rate(link.received.bytes))), figure(Some(rate(link.sent.bytes))));
            line += &format!("; {} rx {rx} tx {tx} Mbit/s", link.name);
        }
        format!("{line}; {}", self.source)
    }
}

/// Titles of the guests' table.
pub fn guest_titles(columns: &[&Column]) -> Vec<String> {
    std::iter::once("GUEST").chain(columns.iter().map(|c| c.title)).map(String::from).collect()
}

/// A guest's cells.
pub fn guest_cells(guest: &GuestRow, columns: &[&Column]) -> Vec<String> {
    std::iter::once(guest.name.clone()).chain(columns.iter().map(|c| c.cell(guest))).collect()
}

/// Titles and cells of the disks. "BUSY%" comes last: it says nothing of how full a flash disk is.
pub fn device_cells(devices: &[DeviceRow]) -> Vec<Vec<String>> {
    let titles = ["DISK", "R/s", "W/s", "rMB/s", "wMB/s", "MEAN", "DEPTH", "BUSY%"].map(String::from).to_vec();
    let cells = |d: &DeviceRow| {
        vec![
            d.name.clone(),
            short(Some(d.read_iops)),
            short(Some(d.write_iops)),
            figure(Some(d.read_bytes_per_second / 1e6)),
            figure(Some(d.write_bytes_per_second / 1e6)),
            time(d.latency_mean_seconds, None),
            figure(Some(d.queue_depth)),
            percent(Some(d.busy_ratio)),
        ]
    };
    let busy = devices.iter().filter(|d| d.read_iops + d.write_iops > 0.0);
    std::iter::once(titles).chain(busy.map(cells)).collect()
}

/// Titles and cells of what no guest explains.
pub fn other_cells(others: &[OtherRow]) -> Vec<Vec<String>> {
    let titles = ["NO GUEST", "DISK%", "R/s", "W/s", "MB/s", "p99", "DEPTH"].map(String::from).to_vec();
    let cells = |o: &OtherRow| {
        let bytes = o.disk.read_bytes_per_second.unwrap_or(0.0) + o.disk.write_bytes_per_second.unwrap_or(0.0);
        vec![
            format!("{}: {}", o.kind.name(), o.name),
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

fn table(cells: &[Vec<String>], style: Style) -> String {
    aligned(cells, &[], style)
}

/// Columns as wide as their widest cell, the first to the left, the others to the right.
fn aligned(cells: &[Vec<String>], least: &[usize], style: Style) -> String {
    let count = cells.first().map_or(0, Vec::len);
    let widest = |i: usize| cells.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(|i| widest(i).max(least.get(i).copied().unwrap_or(0))).collect();
    let mut text = String::new();
    for (n, row) in cells.iter().enumerate() {
        let padded = row.iter().zip(&widths).enumerate().map(|(i, (cell, width))| match i {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
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
