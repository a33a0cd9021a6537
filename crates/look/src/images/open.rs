//! The file that a guest's process has open where its configuration names one.
//!
//! Root could open whatever a command line or an image's header names, also what must not be opened: a device that acts
//! on opening, a trace that is consumed, a secret. So a file is found by its name and read only where the guest's
//! process has it open for reading ([`vmio_node::At::Open`]). Another user can open only what it may open anyway: where
//! it cannot see the process's descriptors, its own permissions decide.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use vmio_model::facts::{DeletedFile, Guest, Remedy};
use vmio_node::linux::process;
use vmio_node::{At, FileIdentity, Opened};

use super::view::{Located, View};
use crate::host_view::HostView;
use crate::images::info::Error;
use crate::require::{self, Fix};
use crate::storage;

/// End of a deleted file's link in `/proc/PID/fd` (Linux, fs/d_path.c).
const DELETED: &str = " (deleted)";
/// Major number of SCSI generic devices (Linux, Documentation/admin-guide/devices.txt), which take requests and have no
/// data to read.
const SCSI_GENERIC: u32 = 21;

/// By what it is decided whether a guest may read a file.
#[derive(Debug)]
pub enum Files {
    /// By the files that its process has open.
    Open(OpenFiles),
    /// By our own permissions.
    Own,
    /// It cannot be decided.
    Unknown {
        /// Why.
        why: String,
        /// What would help.
        mend: Remedy,
    },
}

/// The open files of a process.
#[derive(Debug)]
pub struct OpenFiles {
    pid: u32,
    /// Descriptors of files with their links.
    links: Vec<(u32, PathBuf)>,
    all: OnceLock<Vec<Opened>>,
}

/// A file of a guest's disk.
#[derive(Debug)]
pub struct ImageFile {
    /// How it can be opened.
    pub at: At,
    /// Its identity.
    pub is: FileIdentity,
    /// Set where its name is gone, or another file has it.
    pub deleted: Option<DeletedFile>,
}

/// Why a file is not read.
#[derive(Debug)]
pub enum OpenRefusal {
    /// An error to report.
    Error(Error),
    /// A device that takes requests: there is nothing to read.
    RequestDevice,
}

impl From<Error> for OpenRefusal {
    fn from(error: Error) -> Self {
        OpenRefusal::Error(error)
    }
}

impl Files {
    /// Of a guest.
    pub fn of(host: &HostView<'_>, guest: &Guest) -> Self {
        // Back ends open what the administrator configured.
        if guest.has_back_ends() {
            return Files::Own;
        }
        let root = require::root(host.reader()).is_ok();
        let Some(pid) = guest.pid else {
            if !root {
                return Files::Own;
            }
            return Files::Unknown {
                why: "no process of the guest is known here, so its access rights are unknown".to_owned(),
                mend: "run qemu-img info -U as the guest's user".into(),
            };
        };
        let mut links = match process::descriptors(host.reader(), pid) {
            Ok(links) => links,
            Err(_) if !root => return Files::Own,
            Err(e) => {
                let why = format!("the open files of its process may not be read ({e})");
                return Files::Unknown { why, mend: Fix::Links.remedy(host.reader()) };
            }
        };
        // Sockets, pipes and the like have no absolute path.
        links.retain(|(_, to)| to.is_absolute());
        Files::Open(OpenFiles { pid, links, all: OnceLock::new() })
    }

    /// The file that a guest's path names.
    ///
    /// # Errors
    /// When it is missing, holds no data, or the guest's process does not have it open.
    pub fn find(&self, host: &HostView<'_>, named: &Path, at: &Located, view: &View) -> Result<ImageFile, OpenRefusal> {
        let is = host.reader().identity(&at.here).map_err(|e| unreadable(host, named, &e))?;
        if let Files::Open(open) = self {
            return open.find(host, named, at, is, view);
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
        host: &HostView<'_>,
        named: &Path,
        at: &Located,
        is: Option<FileIdentity>,
        view: &View,
    ) -> Result<ImageFile, OpenRefusal> {
        let by_link = |link: &Path| {
            let fds = self.links.iter().filter(move |(_, to)| to == link).map(|(fd, _)| *fd);
            fds.filter_map(|fd| host.reader().opened(self.pid, fd).ok()?).collect::<Vec<Opened>>()
        };
        let found = |opened: &Opened, deleted| ImageFile { at: At::Open(*opened), is: opened.is, deleted };
        let is = is.map(|is| holds_data(named, is)).transpose()?;
        if let Some(is) = is {
            let fits = |opened: &&Opened| opened.readable && opened.is.is(&is);
            // On a server only the file of that name is opened: each of the others would query the server.
            if let Some(opened) = by_link(&at.seen).iter().find(fits) {
                return Ok(found(opened, None));
            }
            if let (None, Some(opened)) = (view.server(at), self.all(host, view).iter().find(fits)) {
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
        let why = format!("process {} of the guest does not have it open for reading", self.pid);
        let mend = Some(format!("look which files it uses: ls -l /proc/{}/fd", self.pid).into());
        Err(Error::NotReadable { path: named.into(), why, mend }.into())
    }

    /// The open files on file systems of this machine.
    fn all(&self, host: &HostView<'_>, view: &View) -> &[Opened] {
        self.all.get_or_init(|| {
            let local = |(_, link): &&(u32, PathBuf)| !view.serves(link);
            let opened = |(fd, _): &(u32, PathBuf)| host.reader().opened(self.pid, *fd).ok()?;
            self.links.iter().filter(local).take(MOST).filter_map(opened).collect()
        })
    }
}

/// Most descriptors of a process that are opened.
const MOST: usize = 4096;

/// Whether it is a file or a block device.
fn holds_data(named: &Path, is: FileIdentity) -> Result<FileIdentity, OpenRefusal> {
    if storage::holds_data(&is.stat) {
        return Ok(is);
    }
    if is.stat.is_character() && is.stat.rdev.0 == SCSI_GENERIC {
        return Err(OpenRefusal::RequestDevice);
    }
    let why = "it is neither a regular file nor a block device, and was not opened".to_owned();
    Err(Error::NotReadable { path: named.into(), why, mend: Some(NEEDED.into()) }.into())
}

/// Fix where nothing better is known.
const NEEDED: &str = "see whether the guest still needs it";

/// Why a file could not be looked at.
pub fn unreadable(host: &HostView<'_>, named: &Path, error: &vmio_node::Error) -> Error {
    let path = named.to_owned();
    let why = match error {
        vmio_node::Error::File { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    if error.kind() == Some(ErrorKind::TimedOut) {
        return Error::Hangs { path, why };
    }
    Error::NotReadable { path, why, mend: Some(Fix::of(error, NEEDED).remedy(host.reader())) }
}
