//! The balloon of a QEMU that is not vmio's own (QMP `balloon`, `query-balloon`: qapi/machine.json; statistics:
//! docs/interop/virtio-balloon-stats.rst), moved for who has consented to that.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::machine;
use crate::qmp::Qmp;

/// How long the monitor may take: its owner must not wait long for it.
const LIMIT: Duration = Duration::from_secs(2);
/// Where QEMU lists devices: those with an id, and those without.
const DEVICES: [&str; 2] = ["/machine/peripheral", "/machine/peripheral-anon"];
/// What the types of balloons in such a list begin with.
const TYPE: &str = "child<virtio-balloon";
/// How often the guest's driver is asked for statistics, in seconds; 0 for never.
const INTERVAL: &str = "guest-stats-polling-interval";

/// The balloon of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Balloon {
    /// Name of the guest.
    pub guest: String,
    /// Socket of its monitor, as it is reached from here.
    pub monitor: PathBuf,
    /// Its process, and when that began: another one is left alone.
    pub pid: u32,
    /// See `pid`.
    pub start_ticks: u64,
}

impl Balloon {
    /// That of a guest that runs.
    ///
    /// # Errors
    /// Where its process has ended.
    pub fn of(guest: &str, pid: u32, monitor: PathBuf) -> Result<Self, String> {
        let start_ticks = machine::start_ticks(pid).ok_or_else(|| "its process has ended".to_owned())?;
        Ok(Self { guest: guest.to_owned(), monitor, pid, start_ticks })
    }

    /// Whether the guest still runs.
    pub fn runs(&self) -> bool {
        machine::start_ticks(self.pid) == Some(self.start_ticks)
    }

    /// Memory that it leaves the guest now.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn actual_bytes(&self) -> Result<u64, String> {
        let answer = self.ask("query-balloon", json!({}))?;
        answer["actual"].as_u64().ok_or_else(|| format!("its balloon told no size: {answer}"))
    }

    /// Has the guest brought to that; its driver takes a while.
    ///
    /// # Errors
    /// Why QEMU refused.
    pub fn aim_at(&self, bytes: u64) -> Result<(), String> {
        self.ask("balloon", json!({ "value": bytes })).map(drop)
    }

    /// How often its driver is asked for statistics, in seconds; 0 for never.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn polling_seconds(&self) -> Result<u64, String> {
        let mut monitor = self.open()?;
        let path = device(&mut monitor)?;
        let answer = execute(&mut monitor, "qom-get", json!({"path": path, "property": INTERVAL}))?;
        answer.as_u64().ok_or_else(|| format!("its balloon told no interval: {answer}"))
    }

    /// Has its driver asked that often.
    ///
    /// # Errors
    /// Why QEMU refused.
    pub fn poll(&self, seconds: u64) -> Result<(), String> {
        let mut monitor = self.open()?;
        let path = device(&mut monitor)?;
        execute(&mut monitor, "qom-set", json!({"path": path, "property": INTERVAL, "value": seconds})).map(drop)
    }

    fn ask(&self, command: &str, arguments: Value) -> Result<Value, String> {
        execute(&mut self.open()?, command, arguments)
    }

    fn open(&self) -> Result<Qmp, String> {
        if !self.runs() {
            return Err("its process has ended".to_owned());
        }
        open(&self.guest, self.pid, &self.monitor, LIMIT)
    }
}

/// A session with the monitor of this process.
///
/// # Errors
/// Why there is none.
pub(crate) fn open(guest: &str, pid: u32, path: &Path, limit: Duration) -> Result<Qmp, String> {
    let stream = machine::connect(path).map_err(|e| format!("cannot connect to its monitor: {e}"))?;
    // The path is in the hands of the guest's owner, and may lead elsewhere by now.
    let peer = socket_peercred(&stream).map_err(|e| format!("cannot see whose monitor it is: {e}"))?;
    if i64::from(peer.pid.as_raw_pid()) != i64::from(pid) {
        return Err("another process listens on its monitor's path".to_owned());
    }
    Qmp::within(limit, None, guest, stream).map_err(|e| e.to_string())
}

fn execute(monitor: &mut Qmp, command: &str, arguments: Value) -> Result<Value, String> {
    monitor.execute(command, arguments).map_err(|e| e.to_string())
}

/// Path of the balloon's device in QEMU's object tree.
fn device(monitor: &mut Qmp) -> Result<String, String> {
    for folder in DEVICES {
        // Not every QEMU has both.
        let Ok(list) = execute(monitor, "qom-list", json!({ "path": folder })) else { continue };
        let is_balloon = |entry: &&Value| entry["type"].as_str().is_some_and(|kind| kind.starts_with(TYPE));
        let found = list.as_array().into_iter().flatten().find(is_balloon).and_then(|entry| entry["name"].as_str());
        if let Some(name) = found {
            return Ok(format!("{folder}/{name}"));
        }
    }
    Err("it has no balloon".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// A balloon of this process, whose monitor answers these one after the other, each in a connection of its own; and
    /// what the monitor was asked.
    fn balloon(answers: Vec<Vec<Value>>) -> (Balloon, thread::JoinHandle<Vec<Value>>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("qmp")).unwrap();
        let qemu = thread::spawn(move || {
            let mut asked = Vec::new();
            for answers in answers {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                let version = json!({"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 22}}}});
                writeln!(stream.get_mut(), "{version}").unwrap();
                for (at, answer) in [json!({})].into_iter().chain(answers).enumerate() {
                    let mut line = String::new();
                    stream.read_line(&mut line).unwrap();
                    let command: Value = serde_json::from_str(&line).unwrap();
                    writeln!(stream.get_mut(), "{}", json!({"return": answer, "id": at + 1})).unwrap();
                    if command["execute"] != "qmp_capabilities" {
                        asked.push(json!([command["execute"], command["arguments"]]));
                    }
                }
            }
            asked
        });
        let balloon = Balloon::of("web1", std::process::id(), dir.path().join("qmp")).unwrap();
        (balloon, qemu, dir)
    }

    #[test]
    fn it_is_read_and_moved() {
        let (balloon, qemu, _dir) = balloon(vec![vec![json!({"actual": 512 << 20})], vec![json!({})]]);
        assert_eq!(balloon.actual_bytes(), Ok(512 << 20));
        balloon.aim_at(256 << 20).unwrap();
        let asked = [json!(["query-balloon", {}]), json!(["balloon", {"value": 256 << 20}])];
        assert_eq!(qemu.join().unwrap(), asked);
    }

    #[test]
    fn its_device_is_found_with_and_without_an_id() {
        let none = json!([{"name": "disk0", "type": "child<virtio-blk-pci>"}]);
        let anon = json!([{"name": "device[0]", "type": "child<virtio-balloon-pci>"}]);
        let answers = vec![vec![none.clone(), anon, json!(0)], vec![none.clone(), json!([])]];
        let (balloon, qemu, _dir) = balloon(answers);
        assert_eq!(balloon.polling_seconds(), Ok(0));
        assert_eq!(balloon.poll(5), Err("it has no balloon".to_owned()));
        let asked = qemu.join().unwrap();
        assert_eq!(asked[2][1]["path"], "/machine/peripheral-anon/device[0]");
        assert_eq!(asked.len(), 5);
    }

    #[test]
    fn another_process_is_left_alone() {
        let (balloon, qemu, _dir) = balloon(Vec::new());
        let other = Balloon { start_ticks: balloon.start_ticks + 1, ..balloon };
        assert!(!other.runs());
        assert_eq!(other.aim_at(1), Err("its process has ended".to_owned()));
        assert!(qemu.join().unwrap().is_empty());
    }
}
