//! Devices of the device mapper that an owner makes by dmsetup(8), which nobody takes off when their maker is killed.
//! Each bears the owner's mark in its UUID, which the kernel keeps as long as the device is there (DM_DEV_CREATE of
//! linux/dm-ioctl.h). They are found by it in sysfs, and removed by it: a device of another UUID is never touched,
//! whatever its name or number is meanwhile.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Local;
use crate::journal::error::NotUndone;
use crate::journal::volume::tool;

/// The kernel's block devices.
const BLOCK: &str = "/sys/block";
/// How vmio's UUIDs begin.
const PREFIX: &str = "vmio-";
/// How long a device that is still in use is tried again.
const BUSY_LIMIT: Duration = Duration::from_secs(15);
/// Time between tries.
const PAUSE: Duration = Duration::from_millis(100);

/// All mapped devices of an owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    /// The owner's cookie.
    owner: String,
}

/// A mapped device as sysfs shows it.
struct Device {
    uuid: String,
    /// Whether another one lies over it.
    is_below: bool,
    /// `/sys/block/dm-3`.
    path: PathBuf,
}

impl Mapped {
    /// Those of the owner of this cookie.
    pub fn of(cookie: &str) -> Self {
        Self { owner: cookie.to_owned() }
    }

    /// The UUID that its device of this name is to bear, of characters that dmsetup keeps as they are. The kernel takes
    /// 128 bytes.
    pub fn uuid(&self, name: &str) -> String {
        format!("{}{name}", self.prefix())
    }

    fn prefix(&self) -> String {
        format!("{PREFIX}{}:", self.owner)
    }

    /// Takes them off, those first that nothing lies over.
    pub(crate) fn undo(&self) -> Result<(), NotUndone> {
        self.remove(Path::new(BLOCK), BUSY_LIMIT, &|uuid| {
            let args = ["remove", "--noudevsync", "--noudevrules", "--uuid", uuid];
            let exec = tool("dmsetup", &args.map(str::to_owned));
            // Without the owner's mark: its processes have been ended by now.
            let output = Local::new().exec_gently(&exec).map_err(io::Error::other)?;
            let said = || io::Error::other(format!("{} failed: {}", exec.shown(), output.err().trim()));
            if output.ok() { Ok(()) } else { Err(said()) }
        })
    }

    /// Looks again after each, since what a tool says is not what is there.
    fn remove(&self, block: &Path, limit: Duration, run: &dyn Fn(&str) -> io::Result<()>) -> Result<(), NotUndone> {
        if self.owner.is_empty() {
            return Err(NotUndone::cannot("remove mapped devices below", block)(io::Error::other("of no owner")));
        }
        let until = Instant::now() + limit;
        loop {
            let ours = self.devices(block)?;
            let Some(top) = ours.iter().find(|device| !device.is_below).or_else(|| ours.first()) else { return Ok(()) };
            let done = run(&top.uuid);
            let is_there = self.devices(block)?.iter().any(|device| device.uuid == top.uuid);
            if is_there && Instant::now() >= until {
                let why = done.err().unwrap_or_else(|| io::Error::other("it is still there"));
                return Err(NotUndone::cannot("remove the mapped device", &top.path)(why));
            }
            if is_there {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Those that are there.
    fn devices(&self, block: &Path) -> Result<Vec<Device>, NotUndone> {
        let prefix = self.prefix();
        let of = |path: PathBuf| {
            let uuid = fs::read_to_string(path.join("dm/uuid")).ok()?.trim_end().to_owned();
            let is_below = fs::read_dir(path.join("holders")).is_ok_and(|mut holders| holders.next().is_some());
            uuid.starts_with(&prefix).then_some(Device { uuid, is_below, path })
        };
        let all = fs::read_dir(block).map_err(NotUndone::cannot("look for mapped devices in", block))?;
        Ok(all.flatten().filter_map(|entry| of(entry.path())).collect())
    }
}

/// `mapped devices of run-7-…`.
impl fmt::Display for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mapped devices of {}", self.owner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::RefCell;

    use super::*;

    /// A directory with devices like `/sys/block`: name, UUID, and what lies over it.
    fn block(devices: &[(&str, &str, Option<&str>)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sda")).unwrap();
        for (name, uuid, above) in devices {
            let path = dir.path().join(name);
            fs::create_dir_all(path.join("dm")).unwrap();
            fs::create_dir_all(path.join("holders")).unwrap();
            fs::write(path.join("dm/uuid"), format!("{uuid}\n")).unwrap();
            if let Some(above) = above {
                fs::write(path.join("holders").join(above), "").unwrap();
            }
        }
        dir
    }

    /// Removes a device of such a directory, and what it is named by as a holder.
    fn gone(dir: &Path, uuid: &str) {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            if fs::read_to_string(entry.path().join("dm/uuid")).is_ok_and(|text| text.trim_end() == uuid) {
                fs::remove_dir_all(entry.path()).unwrap();
                for other in fs::read_dir(dir).unwrap().flatten() {
                    let _ = fs::remove_file(other.path().join("holders").join(entry.file_name()));
                }
            }
        }
    }

    #[test]
    fn only_the_owners_devices_are_taken_off_and_the_upper_ones_first() {
        let ours = Mapped::of("run-7-ab");
        let dir = block(&[
            ("dm-0", &ours.uuid("blocks"), Some("dm-2")),
            ("dm-1", "LVM-vmio-run-7-ab:x", None),
            ("dm-2", &ours.uuid("cache"), None),
            // Another run's, whose cookie begins alike, and one that bears vmio's name alone.
            ("dm-3", &Mapped::of("run-7-abc").uuid("cache"), None),
            ("dm-4", "vmio-", None),
            ("dm-5", "", None),
        ]);
        let removed = RefCell::new(Vec::new());
        let run = |uuid: &str| {
            removed.borrow_mut().push(uuid.to_owned());
            gone(dir.path(), uuid);
            Ok(())
        };
        ours.remove(dir.path(), Duration::ZERO, &run).unwrap();
        assert_eq!(*removed.borrow(), ["vmio-run-7-ab:cache", "vmio-run-7-ab:blocks"]);
        ours.remove(dir.path(), Duration::ZERO, &run).unwrap();
        assert_eq!(removed.borrow().len(), 2, "nothing is left to do");
        assert!(Mapped::of("").remove(dir.path(), Duration::ZERO, &run).is_err(), "nobody's");
        assert_eq!((removed.borrow().len(), fs::read_dir(dir.path()).unwrap().count()), (2, 5));
    }

    #[test]
    fn one_that_stays_in_use_is_told() {
        let ours = Mapped::of("run-7-ab");
        let dir = block(&[("dm-2", &ours.uuid("cache"), None)]);
        let busy = |_: &str| Err(io::Error::other("Device or resource busy"));
        let said = ours.remove(dir.path(), Duration::ZERO, &busy).unwrap_err().to_string();
        assert!(said.contains("dm-2") && said.contains("resource busy"), "{said}");
        assert!(
            ours.remove(&dir.path().join("none"), Duration::ZERO, &busy).is_err(),
            "nothing shows that they are gone"
        );
        let silent = ours.remove(dir.path(), Duration::ZERO, &|_| Ok(())).unwrap_err().to_string();
        assert!(silent.contains("it is still there"), "{silent}");
    }
}
