//! Latency histograms of a QEMU that is not vmio's own (QMP `block-latency-histogram-set`; qapi/block-core.json, since
//! QEMU 4.0): switched on while somebody who asked for them reads them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::journal::balloon::open;
use crate::journal::error::NotUndone;
use crate::machine;
use crate::qmp::Qmp;

const SET: &str = "block-latency-histogram-set";
const QUERY: &str = "query-blockstats";
/// Histograms of a disk, by operation: reads, and what changes it.
const READS: [&str; 1] = ["rd_latency_histogram"];
const CHANGES: [&str; 2] = ["wr_latency_histogram", "flush_latency_histogram"];
/// How long the monitor may take: its owner must not wait long for it.
const LIMIT: Duration = Duration::from_secs(2);

/// Histograms of all disks of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histograms {
    /// Name of the guest.
    guest: String,
    /// Socket of its monitor, as it is reached from here.
    pub(crate) monitor: PathBuf,
    /// Its process, and when that began: another one is left alone.
    pid: u32,
    start_ticks: u64,
    /// Its disks, as QEMU names them.
    disks: Vec<String>,
}

impl Histograms {
    /// Those of this guest, which are off.
    ///
    /// # Errors
    /// Why they cannot be switched on: the monitor does not answer, or somebody uses them already.
    pub fn of(guest: &str, pid: u32, monitor: PathBuf) -> Result<Self, String> {
        let start_ticks = machine::start_ticks(pid).ok_or_else(|| "its process has ended".to_owned())?;
        let mut all = Self { guest: guest.to_owned(), monitor, pid, start_ticks, disks: Vec::new() };
        let answer = all.open()?.execute(QUERY, json!({})).map_err(|e| e.to_string())?;
        if entries(&answer).any(|entry| READS.iter().chain(&CHANGES).any(|name| entry["stats"].get(name).is_some())) {
            return Err("its latency histograms are on already: another program reads them".to_owned());
        }
        all.disks = entries(&answer).filter_map(named).collect();
        Ok(all)
    }

    /// Switches them on, with these boundaries in nanoseconds, ascending.
    ///
    /// # Errors
    /// Why QEMU refused. Then some may be on.
    pub fn set(&self, boundaries: &[u64]) -> Result<(), String> {
        let mut monitor = self.open()?;
        self.disks.iter().try_for_each(|disk| {
            let arguments = json!({"id": disk, "boundaries": boundaries});
            monitor.execute(SET, arguments).map(drop).map_err(|e| e.to_string())
        })
    }

    /// What was counted since then between the boundaries, all disks together: reads; writes and flushes.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn read(&self) -> Result<[Vec<u64>; 2], String> {
        let answer = self.open()?.execute(QUERY, json!({})).map_err(|e| e.to_string())?;
        let mut own: Vec<&Value> = entries(&answer).collect();
        own.retain(|entry| named(entry).is_some_and(|name| self.disks.contains(&name)));
        let sum = |names: &[&str]| {
            let mut sum: Vec<u64> = Vec::new();
            for histogram in own.iter().flat_map(|entry| names.iter().map(move |name| &entry["stats"][*name])) {
                let bins = histogram["bins"].as_array().map(Vec::as_slice).unwrap_or_default();
                sum.resize(sum.len().max(bins.len()), 0);
                for (sum, bin) in sum.iter_mut().zip(bins) {
                    *sum = sum.saturating_add(bin.as_u64().unwrap_or(0));
                }
            }
            sum
        };
        Ok([sum(&READS), sum(&CHANGES)])
    }

    /// Switches them off.
    pub(crate) fn undo(&self) -> Result<(), NotUndone> {
        // A QEMU that has ended, also meanwhile, has none.
        match self.runs().then(|| self.switch_off()) {
            Some(Err(why)) if self.runs() => Err(NotUndone::Histograms { guest: self.guest.clone(), why }),
            _ => Ok(()),
        }
    }

    /// Of the disks that are still there.
    fn switch_off(&self) -> Result<(), String> {
        let mut monitor = self.open()?;
        let answer = monitor.execute(QUERY, json!({})).map_err(|e| e.to_string())?;
        let mut failed = None;
        for disk in entries(&answer).filter_map(named).filter(|disk| self.disks.contains(disk)) {
            if let Err(e) = monitor.execute(SET, json!({"id": disk})) {
                failed = Some(e.to_string());
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn runs(&self) -> bool {
        machine::start_ticks(self.pid) == Some(self.start_ticks)
    }

    fn open(&self) -> Result<Qmp, String> {
        open(&self.guest, self.pid, &self.monitor, LIMIT)
    }
}

/// `latency histograms of web1`.
impl fmt::Display for Histograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "latency histograms of {}", self.guest)
    }
}

fn entries(answer: &Value) -> impl Iterator<Item = &Value> {
    answer.as_array().into_iter().flatten()
}

/// The device of the guest, by id or by its path in QEMU's object tree.
fn named(entry: &Value) -> Option<String> {
    entry["qdev"].as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::thread::{self, JoinHandle};

    use super::*;

    /// A monitor that gives these answers in as many connections; what it was asked.
    fn monitor(at: &std::path::Path, connections: Vec<Vec<Value>>) -> JoinHandle<Vec<Value>> {
        let listener = UnixListener::bind(at).unwrap();
        thread::spawn(move || {
            let mut asked = Vec::new();
            for answers in connections {
                let mut qemu = BufReader::new(listener.accept().unwrap().0);
                let version = json!({"qemu": {"major": 8, "minor": 0, "micro": 0}, "package": ""});
                writeln!(qemu.get_mut(), "{}", json!({"QMP": {"version": version, "capabilities": []}})).unwrap();
                for answer in std::iter::once(json!({})).chain(answers) {
                    let mut line = String::new();
                    qemu.read_line(&mut line).unwrap();
                    let question: Value = serde_json::from_str(&line).unwrap();
                    writeln!(qemu.get_mut(), "{}", json!({"return": answer, "id": question["id"]})).unwrap();
                    asked.push(question);
                }
            }
            asked
        })
    }

    fn disk(name: &str, more: Value) -> Value {
        json!({"qdev": name, "stats": more})
    }

    #[test]
    fn they_are_switched_on_read_and_switched_off() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("m");
        let histogram = |bins: [u64; 3]| json!({"boundaries": [10, 20], "bins": bins});
        let counted = json!([
            disk(
                "d0",
                json!({"rd_latency_histogram": histogram([1, 2, 3]), "wr_latency_histogram": histogram([0, 0, 4])})
            ),
            disk(
                "d1",
                json!({"rd_latency_histogram": histogram([1, 0, 0]), "flush_latency_histogram": histogram([5, 0, 0])})
            ),
            disk("later", json!({"rd_latency_histogram": histogram([9, 9, 9])})),
        ]);
        let none = json!([disk("d0", json!({})), disk("d1", json!({})), disk("", json!({}))]);
        let off = vec![none.clone(), json!({}), json!({})];
        let qemu = monitor(&at, vec![vec![none], vec![json!({}), json!({})], vec![counted], off]);
        let all = Histograms::of("web1", std::process::id(), at).unwrap();
        all.set(&[10, 20]).unwrap();
        assert_eq!(all.read().unwrap(), [vec![2, 2, 3], vec![5, 0, 4]]);
        all.undo().unwrap();
        let asked = qemu.join().unwrap();
        let set: Vec<&Value> = asked.iter().filter(|q| q["execute"] == SET).map(|q| &q["arguments"]).collect();
        let wanted = [
            json!({"id": "d0", "boundaries": [10, 20]}),
            json!({"id": "d1", "boundaries": [10, 20]}),
            json!({"id": "d0"}),
            json!({"id": "d1"}),
        ];
        assert_eq!(set, wanted.iter().collect::<Vec<_>>());
    }

    #[test]
    fn those_of_others_and_of_another_process_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("m");
        let qemu = monitor(&at, vec![vec![json!([disk("d0", json!({"wr_latency_histogram": {}}))])]]);
        let why = Histograms::of("web1", std::process::id(), at.clone()).unwrap_err();
        assert!(why.contains("another program"), "{why}");
        qemu.join().unwrap();
        let _listener = UnixListener::bind(dir.path().join("other")).unwrap();
        let why = Histograms::of("web1", 1, dir.path().join("other")).unwrap_err();
        assert!(why.contains("another process"), "{why}");
        let ended = Histograms { guest: "web1".into(), monitor: at, pid: 0, start_ticks: 1, disks: vec!["d0".into()] };
        ended.undo().unwrap();
        let living = Histograms {
            pid: std::process::id(),
            start_ticks: machine::start_ticks(std::process::id()).unwrap(),
            monitor: "/nowhere/m".into(),
            ..ended
        };
        assert!(living.undo().unwrap_err().to_string().contains("latency histograms of web1"));
    }
}
