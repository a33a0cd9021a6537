//! Volumes that are logical volumes of LVM (lvm(8)): thick ones of a volume group, or thin ones of a thin pool
//! (lvmthin(7)). LVM keeps with each which it is, by tags that change in one step: one says that it is a whole volume,
//! one whose it is. A volume belongs to one directory of records on one machine, and no other vmio that sees the group
//! gives it to a guest or changes it.

mod error;
mod shown;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, SeekFrom, fsync, openat, seek};
use rustix::io::{Errno, pwrite};
use serde_json::{Map, Value};
use vmio_node::{Exec, Local, Node, Output};

pub use error::LvmError;

use self::shown::{COLUMNS, GROWS_FROM, OWNER, Shown, UNFINISHED, VOLUME};
use super::attachment::machine_id;
use super::store::Store;
use super::{BLOCK, Error, Name, Pool, Result, Volume, file_error};
use crate::disks::places::tools::{exec, field, lvm_report, number};
use crate::disks::places::{self, dm_name};
use crate::https;

/// What is before the name of a volume in the name of its logical volume.
const PREFIX: &str = "vmio-";
/// Has the random number of a directory of records.
const OWNER_FILE: &str = ".owner";
/// Where the device nodes are.
const DEVICES: &str = "/dev/mapper";
/// How long udev may take to show a new volume.
const APPEARS: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(50);
/// How long a tool may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Bytes that are written in one call.
const AT_ONCE: usize = 1 << 20;
/// Letters that are told of what a tool says.
const SAID: usize = 500;

/// The pool of LVM that a text names, as `--on` of other commands does. Asks nobody.
///
/// # Errors
/// It names none.
pub fn lvm_pool(text: &str) -> Result<places::Pool> {
    let is_name = |name: &&str| {
        let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"+_.-".contains(&b));
        is_plain && !name.is_empty() && !name.starts_with('-') && *name != "." && *name != ".."
    };
    let found = match text.split_once(':') {
        Some(("lvm", vg)) => Some(vg).filter(is_name).map(|vg| places::Pool::Lvm { vg: vg.into() }),
        Some(("lvmthin", both)) => both
            .split_once('/')
            .filter(|(vg, pool)| is_name(vg) && is_name(pool))
            .map(|(vg, pool)| places::Pool::LvmThin { vg: vg.into(), pool: pool.into() }),
        _ => None,
    };
    found.ok_or_else(|| LvmError::NoPool(text.to_owned()).into())
}

/// Runs LVM's tools.
pub(super) trait Tools: Node {
    /// As [`Node::exec`], for what changes something: it is not cut off in the midst of that.
    fn change(&self, command: &Exec) -> vmio_node::Result<Output>;
}

impl Tools for Local {
    fn change(&self, command: &Exec) -> vmio_node::Result<Output> {
        self.exec_gently(command)
    }
}

/// Volumes in a group, or in a thin pool of it.
struct Lvm {
    tools: Box<dyn Tools>,
    pool: places::Pool,
    vg: String,
    thin: Option<String>,
    /// The tag of this pool's volumes.
    owner: String,
    devices: PathBuf,
}

fn lv(name: &Name) -> String {
    format!("{PREFIX}{name}")
}

impl Pool {
    /// The volumes of a volume group or thin pool whose records are in this directory, which is as one of
    /// [`Pool::open`].
    ///
    /// # Errors
    /// As [`Pool::open`]; the pool is none of LVM's.
    pub fn open_lvm(records: &Path, pool: &places::Pool) -> Result<Self> {
        Self::of_lvm(records, pool, Box::new(Local::new()), Path::new(DEVICES))
    }

    pub(super) fn of_lvm(records: &Path, pool: &places::Pool, tools: Box<dyn Tools>, devices: &Path) -> Result<Self> {
        let (vg, thin) = match pool {
            places::Pool::Lvm { vg } => (vg.clone(), None),
            places::Pool::LvmThin { vg, pool } => (vg.clone(), Some(pool.clone())),
            places::Pool::Zfs { .. } | places::Pool::Rbd { .. } => return Err(LvmError::NoPool(pool.place()).into()),
        };
        let files = Pool::open(records)?;
        let owner = files.owner()?;
        let lvm = Lvm { tools, pool: pool.clone(), vg, thin, owner, devices: devices.into() };
        Ok(Pool { store: Box::new(lvm), ..files })
    }

    /// The tag of this pool's volumes. It has the machine, too, so that a copy of the directory on another one has
    /// another.
    fn owner(&self) -> Result<String> {
        let random = match self.read_file(OWNER_FILE)? {
            Some(random) => random,
            None => self.draw_owner()?,
        };
        let is_one = random.len() == 16 && random.iter().all(u8::is_ascii_hexdigit);
        if !is_one {
            return Err(file_error("use", self.path.join(OWNER_FILE), Errno::INVAL));
        }
        Ok(format!("{OWNER}{}.{}", machine_id(), String::from_utf8_lossy(&random)))
    }

    fn draw_owner(&self) -> Result<Vec<u8>> {
        let _changing = self.lock()?;
        if let Some(drawn) = self.read_file(OWNER_FILE)? {
            return Ok(drawn);
        }
        let random = self.random()?;
        self.write_file(OWNER_FILE, random.as_bytes())?;
        Ok(random.into_bytes())
    }
}

impl Lvm {
    fn node(&self) -> &dyn Node {
        &*self.tools
    }

    fn all(&self) -> Result<Vec<Shown>> {
        let rows = lvm_report(self.node(), &self.pool.place(), "lvs", COLUMNS, &[&self.vg])?;
        Ok(rows.iter().map(Shown::of).collect())
    }

    /// As LVM's tools take it.
    fn full(&self, lv: &str) -> String {
        format!("{}/{lv}", self.vg)
    }

    fn is_own(&self, shown: &Shown) -> bool {
        shown.owner() == Some(&self.owner) && shown.pool == self.thin.as_deref().unwrap_or_default()
    }

    /// The logical volume of a volume, which is this pool's.
    fn own(&self, name: &Name) -> Result<Shown> {
        let wanted = lv(name);
        let Some(found) = self.all()?.into_iter().find(|shown| shown.lv == wanted) else {
            return Err(Error::Missing(name.clone()));
        };
        if self.is_own(&found) {
            return if found.has(VOLUME) { Ok(found) } else { Err(Error::Missing(name.clone())) };
        }
        let lv = self.full(&wanted);
        Err(match found.owner() {
            Some(theirs) if found.has(VOLUME) && *theirs != self.owner => {
                LvmError::OfOther { lv, theirs: theirs.clone(), own: self.owner.clone() }.into()
            }
            _ => LvmError::Stranger { lv }.into(),
        })
    }

    fn change(&self, tool: &str, args: &[&str]) -> Result<()> {
        let command = exec(self.node(), tool, args.iter().copied()).limit(LIMIT);
        let output = self.tools.change(&command).map_err(|e| Error::Node(Box::new(e)))?;
        if output.ok() {
            return Ok(());
        }
        let said = https::shown(output.err().trim(), SAID);
        Err(LvmError::Tool { command: command.shown(), said }.into())
    }

    /// Whether volumes may be made in it, or grow; the bytes of its extents.
    fn ready(&self) -> Result<u64> {
        let place = self.pool.place();
        places::resolve(self.node(), &place)?;
        let rows = lvm_report(self.node(), &place, "vgs", "vg_name,vg_attr,vg_extent_size", &[&self.vg])?;
        let row = rows.iter().find(|row| field(row, "vg_name") == self.vg);
        let row = row.ok_or_else(|| LvmError::NoPool(place.clone()))?;
        // vgs(8): the sixth letter of `vg_attr`.
        if field(row, "vg_attr").chars().nth(5).is_some_and(|letter| letter == 's' || letter == 'c') {
            return Err(LvmError::Shared { vg: self.vg.clone() }.into());
        }
        if let Some(thin) = &self.thin {
            let rows = lvm_report(self.node(), &place, "lvs", "lv_name,lv_attr", &[&self.vg])?;
            // lvs(8): the eighth letter of `lv_attr`.
            let is_it = |row: &&Map<String, Value>| field(row, "lv_name") == thin;
            let attributes = rows.iter().find(is_it).map(|row| field(row, "lv_attr")).unwrap_or_default();
            if attributes.chars().nth(7) != Some('z') {
                return Err(LvmError::NotZeroed { pool: self.full(thin) }.into());
            }
        }
        Ok(number(row, "vg_extent_size").unwrap_or(0.0) as u64)
    }

    /// Refuses so many more bytes where they are not there.
    fn room(&self, bytes: u64) -> Result<()> {
        if self.thin.is_none() && self.pool.space(self.node())?.free_bytes < bytes {
            return Err(Error::NoSpace { path: self.pool.place().into(), bytes });
        }
        Ok(())
    }

    /// A volume, whatever its bytes are, and its size.
    fn device(&self, name: &Name) -> Result<(OwnedFd, u64)> {
        let path = self.path(name);
        // A device that is mounted, or that another one is made of, is not opened so.
        let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
        let opened = openat(CWD, &path, flags, Mode::empty()).map_err(|e| match e {
            Errno::NOENT => Error::Lvm(LvmError::Inactive { lv: self.full(&lv(name)) }),
            Errno::BUSY => Error::InUse(name.clone()),
            e => file_error("open", path.clone(), e),
        })?;
        let bytes = seek(&opened, SeekFrom::End(0)).map_err(|e| file_error("find the size of", path, e))?;
        Ok((opened, bytes))
    }

    fn zero(&self, name: &Name, file: &OwnedFd, from: u64, to: u64) -> Result<()> {
        zero(file, from, to).map_err(|e| file_error("write zeros to", self.path(name), e))
    }

    /// Writes zeros to a new volume, which has bytes of earlier ones; then it is whole.
    fn fill(&self, name: &Name) -> Result<()> {
        let until = Instant::now() + APPEARS;
        while !self.path(name).exists() && Instant::now() < until {
            sleep(POLL);
        }
        let (file, bytes) = self.device(name)?;
        self.zero(name, &file, 0, bytes)?;
        self.change("lvchange", &["--deltag", UNFINISHED, "--addtag", VOLUME, &self.full(&lv(name))])
    }

    /// Writes zeros behind the earlier size of a volume; then it has the new one.
    fn fill_growth(&self, name: &Name, file: &OwnedFd, from: u64) -> Result<()> {
        let to = seek(file, SeekFrom::End(0)).map_err(|e| file_error("find the size of", self.path(name), e))?;
        self.zero(name, file, from, to)?;
        self.change("lvchange", &["--deltag", &format!("{GROWS_FROM}{from}"), &self.full(&lv(name))])
    }
}

/// Writes zeros, and syncs them.
fn zero(file: &OwnedFd, from: u64, to: u64) -> Result<(), Errno> {
    let zeros = vec![0; AT_ONCE];
    let mut at = from;
    while at < to {
        let count = usize::try_from(to - at).unwrap_or(AT_ONCE).min(AT_ONCE);
        match pwrite(file, &zeros[..count], at) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => at += written as u64,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    fsync(file)
}

impl Store for Lvm {
    /// Extents of the group, rounded up.
    fn fitted(&self, bytes: u64) -> Result<u64> {
        if bytes == 0 || !bytes.is_multiple_of(BLOCK) {
            return Err(Error::Size(bytes));
        }
        let extent = self.ready()?;
        bytes.checked_next_multiple_of(extent).ok_or(Error::Size(bytes))
    }

    fn list(&self) -> Result<Vec<Volume>> {
        let volume = |shown: Shown| {
            let name = shown.lv.strip_prefix(PREFIX)?.parse::<Name>().ok()?;
            let bytes = shown.grows_from().unwrap_or(shown.bytes);
            (self.is_own(&shown) && shown.has(VOLUME)).then_some(Volume { name, bytes })
        };
        let mut volumes: Vec<Volume> = self.all()?.into_iter().filter_map(volume).collect();
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(volumes)
    }

    fn open(&self, name: &Name) -> Result<(OwnedFd, u64)> {
        if self.own(name)?.grows_from().is_some() {
            return Err(LvmError::Growing(name.clone()).into());
        }
        self.device(name)
    }

    fn size(&self, name: &Name) -> Option<u64> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = openat(CWD, self.path(name), flags, Mode::empty()).ok()?;
        seek(&opened, SeekFrom::End(0)).ok()
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.devices.join(dm_name(&self.vg, &lv(name)))
    }

    /// A thin one is zeros from the start; a thick one has its extents, and is one when they are zeros.
    fn create(&self, name: &Name, bytes: u64) -> Result<()> {
        // What a crash left of earlier ones goes first.
        for left in self.all()?.iter().filter(|shown| self.is_own(shown) && shown.has(UNFINISHED)) {
            self.change("lvremove", &["--yes", &self.full(&left.lv)])?;
        }
        let (lv, size) = (lv(name), format!("{bytes}b"));
        if let Some(thin) = &self.thin {
            let pool = ["--type", "thin", "--virtualsize", &size, "--thinpool", thin];
            let what = ["--name", &lv, "--addtag", VOLUME, "--addtag", &self.owner, &self.vg];
            return self.change("lvcreate", &[&["--yes"][..], &pool[..], &what[..]].concat());
        }
        self.room(bytes)?;
        let what = ["--yes", "--wipesignatures", "y", "--size", &size, "--name", &lv];
        let tags = ["--addtag", UNFINISHED, "--addtag", &self.owner, &self.vg];
        self.change("lvcreate", &[&what[..], &tags[..]].concat())?;
        let filled = self.fill(name);
        if filled.is_err() {
            // Where it stays, it is no volume, and the next one that is made removes it.
            let _ = self.change("lvremove", &["--yes", &self.full(&lv)]);
        }
        filled
    }

    /// A snapshot of a thin volume is one, too, which needs its origin no longer.
    fn copy(&self, (name, source, _): (&Name, &OwnedFd, u64), new: &Name) -> Result<()> {
        if self.thin.is_none() {
            return Err(LvmError::Thick { vg: self.vg.clone() }.into());
        }
        self.ready()?;
        fsync(source).map_err(|e| file_error("sync", self.path(name), e))?;
        let (new, origin) = (lv(new), self.full(&lv(name)));
        // Unless told so, LVM does not activate a snapshot with the host.
        let what = ["--yes", "--snapshot", "--setactivationskip", "n", "--name", &new];
        let tags = ["--addtag", VOLUME, "--addtag", &self.owner, &origin];
        self.change("lvcreate", &[&what[..], &tags[..]].concat())
    }

    fn finish_growth(&self, name: &Name) -> Result<()> {
        let Some(from) = self.own(name)?.grows_from() else { return Ok(()) };
        let (file, _) = self.device(name)?;
        self.fill_growth(name, &file, from)
    }

    /// The new bytes of a thin one are zeros; those of a thick one become so before a server reads them, or a guest.
    fn grow(&self, name: &Name, file: &OwnedFd, from: u64, to: u64) -> Result<()> {
        if from == to {
            return Ok(());
        }
        self.room(to - from)?;
        self.own(name)?;
        let (full, size) = (self.full(&lv(name)), format!("{to}b"));
        let extend = || self.change("lvextend", &["--yes", "--size", &size, &full]);
        if self.thin.is_some() {
            return extend();
        }
        self.change("lvchange", &["--addtag", &format!("{GROWS_FROM}{from}"), &full])?;
        let extended = extend();
        // Also where LVM says that it failed.
        self.fill_growth(name, file, from)?;
        extended
    }

    /// LVM removes none that is open, so `file` is closed first.
    fn delete(&self, name: &Name, file: OwnedFd) -> Result<()> {
        drop(file);
        self.own(name)?;
        let full = self.full(&lv(name));
        if let Some(shown) = self.all()?.into_iter().find(|shown| shown.depends_on(&lv(name))) {
            return Err(LvmError::Snapshot { lv: full, snapshot: self.full(&shown.lv) }.into());
        }
        self.change("lvremove", &["--yes", &full])
    }
}
