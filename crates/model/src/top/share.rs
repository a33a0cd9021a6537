//! Shares of a disk's time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cpu_users::ProcessLoad;
use super::load::{Device, DiskLoad, GuestLoad, Interval};
use super::process::OtherKind;

/// Basis of shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Sum of the requests' times at the disk.
    #[default]
    DeviceTime,
    /// Bytes, where those times are unknown.
    Bytes,
}

impl Basis {
    /// `its device time`, `its bytes`.
    pub fn words(self) -> &'static str {
        match self {
            Basis::DeviceTime => "its device time",
            Basis::Bytes => "its bytes",
        }
    }
}

/// User of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    /// The guest at this index of the interval.
    Guest(usize),
    /// The other at this index.
    Other(usize),
    /// The processes of one name at this index.
    Process(usize),
    /// Processes that ended before they were read, and interrupts.
    ShortLived,
    /// Unknown users.
    Unknown,
}

/// Identity of a user across intervals. Labels are not enough: guests may have the same name, and kernel workers change
/// theirs (`kworker/u8:1+flush-254:0`), so those are identified by their work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// A guest, by name and process.
    Guest(String, Option<u32>),
    /// The kernel with this work.
    Kernel(OtherKind),
    /// Processes of this name.
    Process(OtherKind, String),
    /// Unknown users.
    Unknown,
}

impl Actor {
    /// Its identity in any interval.
    pub fn identity(self, interval: &Interval) -> Identity {
        match self {
            Actor::Guest(i) => Identity::Guest(interval.guests[i].name.clone(), interval.guests[i].pid),
            Actor::Other(i) if interval.others[i].pid == 0 => Identity::Kernel(interval.others[i].kind),
            Actor::Other(i) => Identity::Process(interval.others[i].kind, interval.others[i].name.clone()),
            Actor::Process(_) | Actor::ShortLived | Actor::Unknown => Identity::Unknown,
        }
    }

    /// `guest web1`, `backup (rsync)`, `others than guests`.
    pub fn label(self, interval: &Interval) -> String {
        match self {
            Actor::Guest(i) => format!("guest {}", interval.guests[i].name),
            Actor::Other(i) => {
                let other = &interval.others[i];
                format!("{} ({})", other.kind.words(), other.name)
            }
            Actor::Process(i) => interval
                .processes
                .as_ref()
                .and_then(|all| all.get(i))
                .map_or_else(|| "others".into(), ProcessLoad::label),
            Actor::ShortLived => "short-lived processes or interrupts".into(),
            Actor::Unknown if unplaced(interval).is_empty() => "others than guests".into(),
            Actor::Unknown => "others".into(),
        }
    }
}

/// Basis for a disk (for all with `None`): times when all users' are known.
pub fn basis(interval: &Interval, device: Option<Device>) -> Basis {
    let guests = interval.guests.iter().map(|g| &g.disks);
    let all = guests.chain(interval.others.iter().map(|o| &o.disks)).flatten();
    let mut disks = all.filter(|d| meant(d, device, Basis::DeviceTime));
    let timed = disks.all(|d| [&d.reads, &d.writes].iter().all(|t| !t.any() || t.device_seconds.is_some()));
    if timed && interval.traced { Basis::DeviceTime } else { Basis::Bytes }
}

/// Whether traffic counts for a disk. Traffic on unknown disks counts for no named disk, and has no device time: a
/// hypervisor's times are different.
fn meant(disk: &DiskLoad, device: Option<Device>, basis: Basis) -> bool {
    match device {
        Some(_) => disk.device == device,
        None => disk.device.is_some() || basis == Basis::Bytes,
    }
}

/// Guests with bytes on unknown disks, the most first.
pub fn unplaced(interval: &Interval) -> Vec<(usize, u64)> {
    let bytes = |g: &GuestLoad| g.disks.iter().filter(|d| d.device.is_none()).map(|d| d.both().bytes).sum::<u64>();
    let mut all: Vec<_> = interval.guests.iter().map(bytes).enumerate().filter(|(_, bytes)| *bytes > 0).collect();
    all.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    all
}

/// A user's part, in the unit of the basis; `None` without traffic.
pub fn of(disks: &[DiskLoad], device: Option<Device>, basis: Basis) -> Option<f64> {
    let sides = disks.iter().filter(|d| meant(d, device, basis)).flat_map(|d| [&d.reads, &d.writes]);
    let parts = sides.filter(|t| t.any()).map(|t| match basis {
        Basis::DeviceTime => t.device_seconds.unwrap_or(0.0),
        Basis::Bytes => t.bytes as f64,
    });
    parts.fold(None, |sum, part| Some(sum.unwrap_or(0.0) + part))
}

/// All users' parts, descending. Without tracing, the disks' bytes beyond the guests' are [`Actor::Unknown`].
pub fn parts(interval: &Interval, device: Option<Device>, basis: Basis) -> Vec<(Actor, f64)> {
    let guests = interval.guests.iter().enumerate().map(|(i, g)| (Actor::Guest(i), of(&g.disks, device, basis)));
    let others = interval.others.iter().enumerate().map(|(i, o)| (Actor::Other(i), of(&o.disks, device, basis)));
    let mut parts: Vec<(Actor, f64)> = guests.chain(others).filter_map(|(who, part)| Some((who, part?))).collect();
    if basis == Basis::Bytes {
        let disks = interval.devices.iter().filter(|d| device.is_none_or(|wanted| wanted == d.device));
        let moved: u64 = disks.map(|d| d.reads.bytes + d.writes.bytes).sum();
        let rest = moved as f64 - parts.iter().map(|(_, part)| part).sum::<f64>();
        if rest > 0.0 {
            parts.push((Actor::Unknown, rest));
        }
    }
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    parts
}
