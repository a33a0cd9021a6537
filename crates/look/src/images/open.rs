//! Which file a guest's process has open where its configuration names one.
//!
//! As root one could open whatever a command line or an image's header names, and whoever writes those would have
//! root open it: a device that does something when it is opened, a trace that is consumed, a secret. So a file is
//! found by its name and looked at only if the guest's process itself has it open for reading
//! ([`vmio_node::At::Open`]). Another user than root can be made to open nothing that it may not open anyway: where
//! the process's descriptors are not to be seen, its own rights decide.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use vmio_model::facts::{DeletedFile, Guest};
use vmio_node::linux::process;
use vmio_node::{At, FileIdentity, Opened};

use super::view::{Located, View};
use crate::host_view::HostView;
use crate::images::info::Error;
use crate::require::{self, Fix};
use crate::storage;

/// What a deleted file's link in `/proc/PID/fd` ends in (Linux, fs/d_path.c).
const DELETED: &str = " (deleted)";
/// Major number of SCSI generic devices (Linux, Documentation/admin-guide/devices.txt): a device of requests that
/// a guest may be given whole.
const SCSI_GENERIC: u32 = 21;

/// What tells whether a guest may read a file.
#[derive(Debug)]
pub enum Files {
    /// What its process has open.
    Open(OpenFiles),
    /// Nothing but our own rights.
    Own,
    /// Nothing.
    Unknown {
        /// Why.
        why: String,
        /// What would help.
        mend: String,
    },
}

/// The open files of a process.
#[derive(Debug)]
pub struct OpenFiles {
    pid: u32,
    /// Descriptors of files and what their links say.
    links: Vec<(u32, PathBuf)>,
    all: OnceLock<Vec<Opened>>,
}

/// A file of a guest's disk.
#[derive(Debug)]
pub struct ImageFile {
    /// Where it may be looked at.
    pub at: At,
    /// What it is.
    pub is: FileIdentity,
    /// That its name is gone, or another file's.
    pub deleted: Option<DeletedFile>,
}

/// Why a file is not looked at.
#[derive(Debug)]
pub enum Refused {
    /// It is told.
    Told(Error),
    /// A device of requests, of which nothing is read anyway.
    Requests,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Told(error)
    }
}

impl Files {
    /// Those of a guest.
    pub fn of(look: &HostView<'_>, guest: &Guest) -> Self {
        // They are opened as the administrator's own files say.
        if guest.has_back_ends() {
            return Files::Own;
        }
        let root = require::root(look.reader()).is_ok();
        let Some(pid) = guest.pid else {
            if !root {
                return Files::Own;
            }
            return Files::Unknown {
                why: "no process of the guest is known here, so nobody can say what it may read".to_owned(),
                mend: "look at it as the guest's user, by qemu-img info -U".to_owned(),
            };
        };
        let mut links = match process::descriptors(look.reader(), pid) {
            Ok(links) => links,
            Err(_) if !root => return Files::Own,
            Err(e) => {
                let why = format!("what its process has open may not be read ({e})");
                return Files::Unknown { why, mend: Fix::Links.words(look.reader()) };
            }
        };
        // Sockets, pipes and the like have no path.
        links.retain(|(_, to)| to.is_absolute());
        Files::Open(OpenFiles { pid, links, all: OnceLock::new() })
    }

    /// The file that a path of the guest names.
    ///
    /// # Errors
    /// When it is not there, is nothing that holds data, or the guest's process does not have it open.
    pub fn find(&self, look: &HostView<'_>, named: &Path, at: &Located, view: &View) -> Result<ImageFile, Refused> {
        let is = look.reader().identity(&at.here).map_err(|e| unreadable(look, named, &e))?;
        if let Files::Open(open) = self {
            return open.find(look, named, at, is, view);
        }
        let is = holds_data(named, is.ok_or_else(|| Error::Missing { path: named.into() })?)?;
        match self {
            Files::Unknown { why, mend } => {
                Err(Error::NotReadable { path: named.into(), why: why.clone(), mend: Some(mend.clone()) }.into())
            }
            _ => Ok(ImageFile { at: At::Path(at.here.clone()), is, deleted: None }),
        }
    }
}

impl OpenFiles {
    fn find(
        &self,
        look: &HostView<'_>,
        named: &Path,
        at: &Located,
        is: Option<FileIdentity>,
        view: &View,
    ) -> Result<ImageFile, Refused> {
        let by_link = |link: &Path| {
            let fds = self.links.iter().filter(move |(_, to)| to == link).map(|(fd, _)| *fd);
            fds.filter_map(|fd| look.reader().opened(self.pid, fd).ok()?).collect::<Vec<Opened>>()
        };
        let found = |opened: &Opened, deleted| ImageFile { at: At::Open(*opened), is: opened.is, deleted };
        let is = is.map(|is| holds_data(named, is)).transpose()?;
        if let Some(is) = is {
            let fits = |opened: &&Opened| opened.readable && opened.is.is(&is);
            // On a server only those of that name: each of the others would ask it.
            if let Some(opened) = by_link(&at.seen).iter().find(fits) {
                return Ok(found(opened, None));
            }
            if let (None, Some(opened)) = (view.server(at), self.all(look, view).iter().find(fits)) {
                return Ok(found(opened, None));
            }
        }
        let gone = PathBuf::from(format!("{}{DELETED}", at.seen.display()));
        if let Some(opened) = by_link(&gone).iter().find(|o| o.readable && o.is.links == 0) {
            let deleted = DeletedFile {
                path: at.seen.display().to_string(),
                pid: self.pid,
                fd: opened.fd,
                replaced: is.is_some(),
            };
            return Ok(found(opened, Some(deleted)));
        }
        if is.is_none() {
            return Err(Error::Missing { path: named.into() }.into());
        }
        let why = format!(
            "process {} of the guest does not have it open for reading, and what it has not, nothing else reads for it",
            self.pid
        );
        let mend = Some(format!("look which files it uses: ls -l /proc/{}/fd", self.pid));
        Err(Error::NotReadable { path: named.into(), why, mend }.into())
    }

    /// All of them that are on file systems of this machine.
    fn all(&self, look: &HostView<'_>, view: &View) -> &[Opened] {
        self.all.get_or_init(|| {
            let local = |(_, link): &&(u32, PathBuf)| !view.serves(link);
            let opened = |(fd, _): &(u32, PathBuf)| look.reader().opened(self.pid, *fd).ok()?;
            self.links.iter().filter(local).take(MOST).filter_map(opened).collect()
        })
    }
}

/// Descriptors of a process that are looked at.
const MOST: usize = 4096;

/// Whether it is a file or a block device.
fn holds_data(named: &Path, is: FileIdentity) -> Result<FileIdentity, Refused> {
    if storage::holds_data(&is.stat) {
        return Ok(is);
    }
    if is.stat.is_character() && is.stat.rdev.0 == SCSI_GENERIC {
        return Err(Refused::Requests);
    }
    let why = "it is neither a regular file nor a block device, and was not opened".to_owned();
    Err(Error::NotReadable { path: named.into(), why, mend: Some(NEEDED.to_owned()) }.into())
}

/// What helps where nothing else does.
const NEEDED: &str = "see whether the guest still needs it";

/// Why a file could not be looked at.
pub fn unreadable(look: &HostView<'_>, named: &Path, error: &vmio_node::Error) -> Error {
    let path = named.to_owned();
    let why = match error {
        vmio_node::Error::File { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    if error.kind() == Some(ErrorKind::TimedOut) {
        return Error::Hangs { path, why };
    }
    Error::NotReadable { path, why, mend: Some(Fix::of(error, NEEDED).words(look.reader())) }
}
