//! File systems with a journal (ext4) that several use: who waits in fsync there, and who dirties the pages that are
//! written. An fsync waits until the running transaction is committed (Linux, fs/ext4/fsync.c, `ext4_sync_file`). The
//! commit waits for whoever has a handle of it, and with data=ordered for the data of files that grew, where their
//! blocks were given as written ones (fs/jbd2/commit.c, `jbd2_journal_commit_transaction`; `ext4_should_dioread_nolock`
//! of fs/ext4/ext4_jbd2.h has the others). So the wait is measured, not concluded from the options.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::load::{Device, Interval, JournalFlow, JournalLoad, JournalUser};
use super::process::{OtherKind, kind_of};
use super::rows::{mean_flush, per_second};
use super::share::Identity;
use super::words::{clean, number};

/// Most users of a file system in its row.
const USERS: usize = 10;
/// Least time of the longest fsync, from which it is told: two turns of a disk or more; flash with a flush takes below
/// 5 ms.
const SLOW_SECONDS: f64 = 0.020;
/// Least part of the time that is spent in fsync, beyond what the disk's own flushes take.
const WAITED: f64 = 0.05;
/// Flushes of the disk in an fsync: before the record of the commit and after it (fs/jbd2/commit.c,
/// `journal_submit_commit_record`).
pub(super) const FLUSHES: f64 = 2.0;

/// Who dirtied pages of a file system, also a while ago.
#[derive(Debug, Clone, PartialEq)]
pub struct Writer {
    /// Who it is in any interval.
    pub who: Identity,
    /// `guest flood`, `backup (rsync)`.
    pub label: String,
    /// Its name, if it is a guest.
    pub guest: Option<String>,
    /// Its process.
    pub pid: Option<u32>,
    /// Bytes.
    pub bytes: f64,
}

/// What somebody waited in fsync for more than the disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waited {
    /// Mean time of an fsync.
    pub mean_seconds: f64,
    /// The longest.
    pub worst_seconds: f64,
    /// Part of the interval; with several at once it may be more than 1.
    pub ratio: f64,
}

impl JournalUser {
    /// `guest flood`, `backup (rsync)`.
    pub fn label(&self) -> String {
        match self.guest {
            Some(_) => format!("guest {}", self.name),
            None => format!("{} ({})", self.kind.words(), self.name),
        }
    }

    fn writer(&self) -> Writer {
        let pid = Some(self.pid).filter(|pid| *pid != 0);
        let who = match (self.guest, pid) {
            (Some(_), _) => Identity::Guest(self.name.clone(), pid),
            (None, None) => Identity::Kernel(self.kind),
            (None, Some(_)) => Identity::Process(self.kind, self.name.clone()),
        };
        let guest = self.guest.map(|_| self.name.clone());
        Writer { who, label: self.label(), guest, pid, bytes: self.dirtied_bytes as f64 }
    }

    /// What it waited beyond the disk's own flushes, of which one takes `flush_seconds`; `None` where that is little.
    pub fn waited(&self, flush_seconds: f64, seconds: f64) -> Option<Waited> {
        let syncs = self.syncs as f64;
        let beyond = self.wait_seconds - FLUSHES * flush_seconds * syncs;
        let ratio = per_second(beyond, seconds);
        (self.syncs > 0 && self.worst_seconds >= SLOW_SECONDS && ratio >= WAITED).then(|| Waited {
            mean_seconds: self.wait_seconds / syncs,
            worst_seconds: self.worst_seconds,
            ratio,
        })
    }
}

impl JournalLoad {
    /// Mean time of a flush of its disks, the slowest of them; 0 where none was flushed.
    pub fn flush_seconds(&self, interval: &Interval) -> f64 {
        let below = interval.devices.iter().filter(|d| self.disks.contains(&d.device));
        below.filter_map(mean_flush).fold(0.0, f64::max)
    }

    /// Who dirtied pages there.
    pub fn writers(&self) -> Vec<Writer> {
        self.users.iter().filter(|u| u.dirtied_bytes > 0).map(JournalUser::writer).collect()
    }
}

/// The file systems of an interval's flows, by number alone; `owners` has the guest of each flow, by its index in the
/// interval.
pub fn loads(flows: &[JournalFlow], owners: &[Option<usize>], interval: &Interval) -> Vec<JournalLoad> {
    let mut all: BTreeMap<Device, BTreeMap<Key, JournalUser>> = BTreeMap::new();
    for (flow, owner) in flows.iter().zip(owners) {
        let of = owner.and_then(|i| Some((i, interval.guests.get(i)?)));
        let kind = kind_of(&flow.comm, flow.pid == 0);
        let name = of.map_or_else(|| clean(&flow.comm), |(_, guest)| guest.name.clone());
        // The kernel's workers have different names and count as one.
        let key = match of {
            Some((i, _)) => Key::Guest(i),
            None if flow.pid == 0 => Key::Kernel(kind),
            None => Key::Process(name.clone()),
        };
        let user = all.entry(flow.device).or_default().entry(key).or_insert_with(|| JournalUser {
            guest: of.map(|(i, _)| i),
            kind,
            name,
            pid: of.and_then(|(_, guest)| guest.pid).unwrap_or(flow.pid),
            syncs: 0,
            wait_seconds: 0.0,
            worst_seconds: 0.0,
            dirtied_bytes: 0,
        });
        user.syncs += flow.syncs;
        user.wait_seconds += flow.wait_seconds;
        user.worst_seconds = user.worst_seconds.max(flow.worst_seconds);
        user.dirtied_bytes = user.dirtied_bytes.saturating_add(flow.dirtied_bytes);
    }
    let load = |(device, users): (Device, BTreeMap<Key, JournalUser>)| JournalLoad {
        device,
        name: number(device),
        disks: Vec::new(),
        users: users.into_values().collect(),
    };
    all.into_iter().map(load).collect()
}

/// Whose flows count as one.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Guest(usize),
    Kernel(OtherKind),
    Process(String),
}

/// A file system with a journal: who waits in fsync there, and who fills it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JournalRow {
    /// Where it is mounted; its device's number where that is unknown.
    pub name: String,
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// Mean time of a flush of the disk below; 0 where none was flushed.
    pub flush_mean_seconds: f64,
    /// Its users, at most ten, those that wait and write most.
    pub users: Vec<JournalUserRow>,
}

/// A user of a file system with a journal.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JournalUserRow {
    /// Name of the guest, if it is one.
    pub guest: Option<String>,
    /// `guest web1`, `process (postgres)`.
    pub who: String,
    /// Its process, one of several; 0 for the kernel.
    pub pid: u32,
    /// Calls of fsync and its like a second.
    pub fsyncs_per_second: f64,
    /// Mean time of one; unknown where there was none.
    pub fsync_mean_seconds: Option<f64>,
    /// The longest.
    pub fsync_worst_seconds: Option<f64>,
    /// Part of the interval that it spent there beyond the disk's own flushes, where that is long.
    pub fsync_wait_ratio: Option<f64>,
    /// Bytes of pages that it dirtied a second.
    pub dirtied_bytes_per_second: f64,
}

/// Rows of the file systems that somebody waited for, those of a guest or where anything was slow; others are left out.
pub fn rows(interval: &Interval) -> Vec<JournalRow> {
    let s = interval.seconds;
    let told = |load: &&JournalLoad| {
        let flush = load.flush_seconds(interval);
        load.users.iter().any(|u| u.guest.is_some() || u.waited(flush, s).is_some())
    };
    interval.journals.iter().filter(told).map(|load| row(load, interval)).collect()
}

fn row(load: &JournalLoad, interval: &Interval) -> JournalRow {
    let (s, flush) = (interval.seconds, load.flush_seconds(interval));
    let dirtied: u64 = load.users.iter().map(|u| u.dirtied_bytes).sum();
    let waited: f64 = load.users.iter().map(|u| u.wait_seconds).sum();
    let part = |x: f64, all: f64| if all > 0.0 { x / all } else { 0.0 };
    let weight = |u: &JournalUser| part(u.dirtied_bytes as f64, dirtied as f64).max(part(u.wait_seconds, waited));
    let mut users: Vec<&JournalUser> = load.users.iter().collect();
    users.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    let user = |u: &JournalUser| JournalUserRow {
        guest: u.guest.map(|_| u.name.clone()),
        who: u.label(),
        pid: u.pid,
        fsyncs_per_second: per_second(u.syncs as f64, s),
        fsync_mean_seconds: (u.syncs > 0).then(|| u.wait_seconds / u.syncs as f64),
        fsync_worst_seconds: (u.syncs > 0).then_some(u.worst_seconds),
        fsync_wait_ratio: u.waited(flush, s).map(|w| w.ratio),
        dirtied_bytes_per_second: per_second(u.dirtied_bytes as f64, s),
    };
    JournalRow {
        name: load.name.clone(),
        device: load.device,
        flush_mean_seconds: flush,
        users: users.into_iter().take(USERS).map(user).collect(),
    }
}
