//! Which guest has a volume: a record beside it, made before the guest gets it and removed after the guest has let go
//! of it, so that a crash in between leaves a volume that nobody else gets. Each record has an export name of its own:
//! a guest of an earlier one can connect to no server of a later one.

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use vmio_model::sanitize;
use vmio_node::machine;

use super::{Error, Name, Pool, Result};

/// What is behind the name of a volume in the name of its record.
const SUFFIX: &str = ".attached";
/// A record that is being written; no name of a volume starts with a dot.
const UNFINISHED: &str = ".record";
/// Letters that are kept of a guest's name, which its owner chose: a record that is too long could not be read.
const GUEST_LETTERS: usize = 200;
/// Longest record.
const MOST_BYTES: u64 = 64 << 10;
/// `sun_path` of unix(7), without the final zero.
const SOCKET_PATH: usize = 107;
/// How long the server of a volume that was detached may take to end.
const END: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// A guest of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its name.
    pub guest: String,
    /// Its process.
    pub pid: u32,
    start_ticks: u64,
    boot_id: String,
    /// Of `/etc/machine-id`; empty where there is none.
    machine_id: String,
}

/// Whether a holder can still write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It runs here.
    Runs,
    /// It has ended.
    Ended,
    /// It is on another host, whose processes cannot be seen from here.
    Elsewhere,
}

impl Holder {
    /// The guest whose hypervisor is this process.
    ///
    /// # Errors
    /// The process has ended.
    pub fn of(guest: &str, pid: u32) -> Result<Self> {
        let ended = || Error::Ended { guest: guest.to_owned() };
        Ok(Holder {
            guest: sanitize::line(guest).chars().take(GUEST_LETTERS).collect(),
            pid,
            start_ticks: machine::start_ticks(pid).ok_or_else(ended)?,
            boot_id: machine::boot_id(),
            machine_id: machine_id(),
        })
    }

    /// Whether it can still write.
    pub fn state(&self) -> State {
        if self.boot_id == machine::boot_id() {
            let is_same = machine::start_ticks(self.pid) == Some(self.start_ticks);
            return if is_same { State::Runs } else { State::Ended };
        }
        let is_here = !self.machine_id.is_empty() && self.machine_id == machine_id();
        if is_here { State::Ended } else { State::Elsewhere }
    }
}

/// Of `/etc/machine-id`; empty where there is none.
pub(super) fn machine_id() -> String {
    std::fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned()
}

/// Between which hosts a volume goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// From the pool to a guest of this host.
    #[default]
    Here,
    /// From the pool to the guests of another host. The holder is the vmio that serves it.
    To {
        /// Name of that host's key.
        host: String,
        /// Where it is served.
        at: SocketAddr,
    },
    /// From another host to a guest of this one: the pool has the record alone.
    From {
        /// Where it is served.
        at: SocketAddr,
    },
}

/// A volume that a guest has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The guest.
    pub holder: Holder,
    /// Between which hosts it goes.
    #[serde(default)]
    pub reach: Reach,
    /// Name of its export, of its node and of its device: 64 random bits.
    pub export: String,
}

impl Attachment {
    /// Name of node and device in QEMU, where a name of a node has at most 31 characters.
    pub fn id(&self) -> String {
        format!("vmio-{}", self.export)
    }

    /// Whether it is this host's, and the vmio that served it there has ended.
    fn is_left_by(&self, host: &str) -> bool {
        let is_its = matches!(&self.reach, Reach::To { host: its, .. } if its == host);
        is_its && self.holder.state() == State::Ended
    }
}

fn record(name: &Name) -> String {
    format!("{name}{SUFFIX}")
}

impl Pool {
    /// The guest that has a volume, if one has.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn attachment(&self, name: &Name) -> Result<Option<Attachment>> {
        let file = record(name);
        let Some(text) = self.read_file(&file)? else { return Ok(None) };
        let failed = |source| Error::File { what: "read", path: self.path.join(&file), source };
        serde_json::from_slice(&text).map(Some).map_err(|e| failed(e.into()))
    }

    /// A small file of the pool's own; `None` where there is none.
    pub(super) fn read_file(&self, file: &str) -> Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match openat(&self.directory, file, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(|e| self.failed("open", file, e))?,
        };
        let failed = |source| Error::File { what: "read", path: self.path.join(file), source };
        let mut text = Vec::new();
        File::from(opened).take(MOST_BYTES).read_to_end(&mut text).map_err(failed)?;
        Ok(Some(text))
    }

    /// All volumes that guests have.
    ///
    /// # Errors
    /// The directory or a record cannot be read.
    pub fn attached(&self) -> Result<Vec<(Name, Attachment)>> {
        let mut attached = Vec::new();
        for entry in Dir::read_from(&self.directory).map_err(|e| self.failed("read", "", e))? {
            let entry = entry.map_err(|e| self.failed("read", "", e))?;
            let stem = entry.file_name().to_str().ok().and_then(|file| file.strip_suffix(SUFFIX));
            let Some(name) = stem.and_then(|stem| stem.parse::<Name>().ok()) else { continue };
            // It may be detached meanwhile.
            if let Some(attachment) = self.attachment(&name)? {
                attached.push((name, attachment));
            }
        }
        Ok(attached)
    }

    /// Gives a volume to a guest, or finds that it has it. A guest that has ended loses it.
    ///
    /// # Errors
    /// Another guest has it, or there is no such volume.
    pub fn claim(&self, name: &Name, holder: &Holder) -> Result<Attachment> {
        self.claim_as(name, holder, &Reach::Here)
    }

    /// As [`Pool::claim`], between hosts.
    pub(super) fn claim_as(&self, name: &Name, holder: &Holder, reach: &Reach) -> Result<Attachment> {
        let _changing = self.lock()?;
        if let Some(there) = self.claimed_as(name, holder, reach)? {
            return Ok(there);
        }
        let attachment = Attachment { holder: holder.clone(), reach: reach.clone(), export: self.random()? };
        if *reach == Reach::Here {
            self.socket(&attachment)?;
        }
        self.write_record(name, &attachment)?;
        Ok(attachment)
    }

    /// Whether a guest could claim a volume: `None`, or what it has of it already.
    ///
    /// # Errors
    /// As [`Pool::claim`].
    pub fn claimed(&self, name: &Name, holder: &Holder) -> Result<Option<Attachment>> {
        self.claimed_as(name, holder, &Reach::Here)
    }

    /// As [`Pool::claimed`], between hosts.
    pub(super) fn claimed_as(&self, name: &Name, holder: &Holder, reach: &Reach) -> Result<Option<Attachment>> {
        match (self.attachment(name)?, reach) {
            (Some(there), _) if there.holder == *holder && there.reach == *reach => return Ok(Some(there)),
            // The next vmio that serves it to the same host goes on.
            (Some(there), Reach::To { host, .. }) if there.is_left_by(host) => {}
            (Some(there), _) => self.refuse_held(name, &there)?,
            (None, Reach::From { .. }) => {}
            (None, _) => drop(self.unlocked(name)?),
        }
        // Its record would be that of the volume here.
        if matches!(reach, Reach::From { .. }) && self.is_there(name)? {
            return Err(Error::Exists(name.clone()));
        }
        Ok(None)
    }

    /// An error where the guest, or one of the other host, may still write. The end of the vmio that served another
    /// host says nothing of that host's guest: who knows that it has let go detaches the volume.
    pub(super) fn refuse_held(&self, name: &Name, attachment: &Attachment) -> Result<()> {
        let (name, guest) = (name.clone(), attachment.holder.guest.clone());
        match (attachment.holder.state(), &attachment.reach) {
            (State::Elsewhere, _) => Err(Error::Elsewhere { name, guest }),
            (State::Runs, Reach::To { host, at }) => Err(Error::Served { name, host: host.clone(), at: *at }),
            (State::Ended, Reach::To { host, .. }) => Err(Error::OfHost { name, host: host.clone() }),
            (State::Runs, Reach::Here | Reach::From { .. }) => Err(Error::Attached { name, guest }),
            (State::Ended, Reach::Here | Reach::From { .. }) => Ok(()),
        }
    }

    fn write_record(&self, name: &Name, attachment: &Attachment) -> Result<()> {
        let failed = |source| Error::File { what: "write", path: self.path.join(record(name)), source };
        let text = serde_json::to_vec(attachment).map_err(|e| failed(e.into()))?;
        self.write_file(&record(name), &text)
    }

    /// Writes a file of the pool's own, whole or not at all. Called under the lock.
    pub(super) fn write_file(&self, file: &str, text: &[u8]) -> Result<()> {
        let failed = |source| Error::File { what: "write", path: self.path.join(file), source };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&self.directory, UNFINISHED, flags, Mode::RUSR | Mode::WUSR);
        let mut written = File::from(opened.map_err(|e| self.failed("make", UNFINISHED, e))?);
        written.write_all(text).and_then(|()| written.sync_all()).map_err(failed)?;
        renameat(&self.directory, UNFINISHED, &self.directory, file).map_err(|e| self.failed("name", file, e))?;
        fsync(&self.directory).map_err(|e| self.failed("sync", "", e))
    }

    /// 64 random bits as hexadecimal digits.
    pub(super) fn random(&self) -> Result<String> {
        let failed = |source| Error::File { what: "draw a random name in", path: self.path.clone(), source };
        Ok(HEXLOWER.encode(&machine::random::<8>().map_err(failed)?))
    }

    /// Takes a volume from a guest that has let go of it or has ended, and waits until its server has ended.
    ///
    /// # Errors
    /// Another one has it by now, or the record cannot be removed.
    pub fn release(&self, name: &Name, attachment: &Attachment) -> Result<()> {
        {
            let _changing = self.lock()?;
            match self.attachment(name)? {
                None => return Ok(()),
                Some(there) if there == *attachment => self.forget(name)?,
                Some(there) => return Err(Error::Attached { name: name.clone(), guest: there.holder.guest }),
            }
        }
        let until = Instant::now() + END;
        while matches!(self.unlocked(name), Err(Error::InUse(_))) && Instant::now() < until {
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Removes a record.
    pub(super) fn forget(&self, name: &Name) -> Result<()> {
        match unlinkat(&self.directory, record(name), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(self.failed("remove", &record(name), e)),
        }
        fsync(&self.directory).map_err(|e| self.failed("sync", "", e))
    }

    /// The socket of a server.
    pub(super) fn socket(&self, attachment: &Attachment) -> Result<PathBuf> {
        let path = self.path.join(format!(".{}.sock", attachment.export));
        if path.as_os_str().len() > SOCKET_PATH {
            return Err(Error::TooLong { path: self.path.clone() });
        }
        Ok(path)
    }
}
