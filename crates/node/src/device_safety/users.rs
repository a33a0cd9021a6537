//! A look at everything on this machine that may use a block device without the kernel saying so: all
//! processes (a guest's QEMU has its disk open without `O_EXCL`) and all loop devices.
//!
//! A call may hang: stat(2) of a descriptor on a dead network mount, reading the maps of a process that is stuck in the
//! kernel. So a thread examines the list and reports each step. A thread that goes silent is abandoned, its current
//! holder counts as not examined, and another thread goes on with the next one. The whole has a time limit ([`ALL`]).

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::Local;
use crate::linux::block;

use super::process::{self, DeviceQuery, Report, Visited};
use crate::journal::loops;

/// How long one step may take.
const STEP: Duration = Duration::from_secs(2);
/// How long all of it may take.
const ALL: Duration = Duration::from_secs(30);
/// Most abandoned threads.
const MOST_STUCK: usize = 4;
/// Looks that must each find a user before the device counts as used.
const LOOKS: u32 = 4;
/// Time between these looks: udev is done with a device well before the last one.
const BETWEEN_LOOKS: Duration = Duration::from_millis(150);
/// Most users that are named.
const NAMED: usize = 8;

/// Result of a look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users {
    /// Users of the device.
    pub found: Vec<String>,
    /// What could not be examined, and so may use it.
    pub unseen: Vec<String>,
    /// The same of the machine's first process, which is only reported.
    pub told: Vec<String>,
}

/// A process or loop device that may use the queried device.
#[derive(Debug, Clone)]
enum DeviceHolder {
    Process(u32),
    Loop(String),
}

impl DeviceHolder {
    fn label(&self, proc: &Path) -> String {
        match self {
            Self::Process(pid) => process::label(proc, *pid),
            Self::Loop(name) => format!("the loop device {name}"),
        }
    }
}

/// Users of a device that stay. Looked for several times: udev opens a device for a moment whenever it
/// changes.
pub fn users(proc: &Path, query: &DeviceQuery) -> Users {
    let mut found = Users::default();
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(BETWEEN_LOOKS);
        }
        found = look_once(proc, query);
        if found.found.is_empty() {
            break;
        }
    }
    if let Some(more) = found.found.len().checked_sub(NAMED).filter(|n| *n > 0) {
        found.found.truncate(NAMED);
        found.found.push(format!("{more} more users"));
    }
    found
}

fn look_once(proc: &Path, query: &DeviceQuery) -> Users {
    let mut users = Users::default();
    let names = |dir: &Path| -> std::io::Result<Vec<String>> {
        Ok(std::fs::read_dir(dir)?.flatten().filter_map(|e| e.file_name().into_string().ok()).collect())
    };
    let mut holders: Vec<DeviceHolder> = Vec::new();
    match names(proc) {
        Ok(all) => holders.extend(all.iter().filter_map(|n| n.parse().ok()).map(DeviceHolder::Process)),
        Err(e) => users.unseen.push(format!("{} cannot be listed ({e})", proc.display())),
    }
    let loops = block::whole(&Local::new()).unwrap_or_default();
    holders.extend(loops.into_iter().filter(|n| n.starts_with("loop")).map(DeviceHolder::Loop));
    let holders: Arc<[DeviceHolder]> = holders.into();
    let until = Instant::now() + ALL;
    let (mut from, mut stuck) = (0, 0);
    loop {
        let (reports, received) = channel();
        let (there, at, query) = (holders.clone(), proc.to_owned(), query.clone());
        let begun = std::thread::Builder::new()
            .name("may-hang".into())
            .spawn(move || look_at(&there, from, &at, &query, &reports));
        if let Err(e) = begun {
            users.unseen.push(format!("no thread could be started for the look ({e})"));
            return users;
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match received.recv_timeout(STEP.min(left)) {
                Ok(Report::At(place)) => from = place,
                Ok(Report::Alive) => {}
                Ok(Report::User(use_)) => users.found.push(use_),
                Ok(Report::Unseen(what)) => users.unseen.push(what),
                Ok(Report::Init(what)) => users.told.push(what),
                Ok(Report::End) => return users,
                Err(RecvTimeoutError::Disconnected) => {
                    users.unseen.push("the look at the processes broke off".into());
                    return users;
                }
                Err(RecvTimeoutError::Timeout) => break,
            }
            if Instant::now() >= until {
                break;
            }
        }
        stuck += 1;
        if let Some(holder) = holders.get(from) {
            users.unseen.push(format!("{} gave no answer", holder.label(proc)));
        }
        from += 1;
        if stuck >= MOST_STUCK || Instant::now() >= until {
            let left = holders.len().saturating_sub(from);
            users.unseen.push(format!("{left} further processes and loop devices could not be checked in time"));
            return users;
        }
    }
}

/// Examines the list from an index on.
fn look_at(holders: &[DeviceHolder], from: usize, proc: &Path, query: &DeviceQuery, reports: &Sender<Report>) {
    let mut visited = Visited::default();
    for (place, holder) in holders.iter().enumerate().skip(from) {
        // The receiver gave up.
        if reports.send(Report::At(place)).is_err() {
            return;
        }
        match holder {
            DeviceHolder::Process(pid) => process::examine(proc, *pid, query, &mut visited, reports),
            DeviceHolder::Loop(name) => look_at_loop(name, query, reports),
        }
    }
    let _ = reports.send(Report::End);
}

/// Whether a loop device lies over a queried device, at whatever offset. sysfs shows the path by which it was
/// attached, which may be of another root directory or gone; the driver itself knows the device.
fn look_at_loop(name: &str, query: &DeviceQuery, reports: &Sender<Report>) {
    let Some(file) = block::Device::whole(&Local::new(), name).loop_file() else {
        return; // nothing is attached
    };
    let word = match loops::lies_over(&Path::new("/dev").join(name)) {
        Ok(Some(over)) => query
            .name(over.device)
            .map(|of| Report::User(format!("the loop device {name} lies over {of} (offset {})", over.offset))),
        Ok(None) => None,
        Err(e) => {
            let shown = process::printable(&file.shown.display().to_string());
            Some(Report::Unseen(format!("the backing file of the loop device {name} ({shown}) cannot be read ({e})")))
        }
    };
    if let Some(word) = word {
        let _ = reports.send(word);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::symlink;

    use super::*;

    fn nobody() -> DeviceQuery {
        DeviceQuery { numbers: vec![((4_000, 7), "sda".into())], own: None }
    }

    /// Without what is said of this host's loop devices, whoever has them.
    fn of_processes(mut users: Users) -> Users {
        users.unseen.retain(|told| !told.starts_with("the loop device "));
        users
    }

    #[test]
    fn unlisted_processes_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let found = users(&dir.path().join("none"), &nobody());
        assert_eq!(found.found, Vec::<String>::new());
        assert!(found.unseen[0].contains("cannot be listed"), "{:?}", found.unseen);
        assert_eq!(of_processes(users(dir.path(), &nobody())), Users::default());
    }

    #[test]
    fn silent_process_is_abandoned_and_reported() {
        let dir = tempfile::tempdir().unwrap();
        let fd = |pid: &str| {
            let fd = dir.path().join(pid).join("fd");
            std::fs::create_dir_all(&fd).unwrap();
            std::fs::write(dir.path().join(pid).join("comm"), "kvm\n").unwrap();
            fd
        };
        symlink("/dev/null", fd("812").join("7")).unwrap();
        symlink("/dev/null", fd("814").join("3")).unwrap();
        // A table of mounts that nobody writes: reading it waits for ever.
        fd("813");
        std::fs::create_dir(dir.path().join("813/ns")).unwrap();
        symlink("mnt:[1]", dir.path().join("813/ns/mnt")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("813/mountinfo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let null = DeviceQuery { numbers: vec![((1, 3), "null".into())], own: None };
        let found = of_processes(look_once(dir.path(), &null));
        assert_eq!(found.unseen, ["process 813 (kvm) gave no answer"]);
        // The kind of device is not looked at here: see `process`.
        assert_eq!(found.found, Vec::<String>::new());
    }
}
