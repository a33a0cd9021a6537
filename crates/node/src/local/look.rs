//! The errands of a look at files of others: what may be asked, and how it is done where it may hang
//! ([`errand`](crate::errand)).

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{foreign, opened};
use crate::errand::{Done, Errand, Fault};
use crate::node::opened::{At, FileIdentity, Opened};
use crate::{FileStat, errand};

/// A look.
pub(crate) static LOOK: Errand = Errand { word: "look", perform };

/// What may be asked of a path.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Its content, if that is no longer than so many bytes.
    Read { most: usize },
    /// The names in it.
    List,
    /// What it is.
    Stat,
    /// Where it points.
    Link,
    /// What the page cache holds of it.
    Cached,
    /// Which file it is.
    Identity,
    /// What a process has open.
    Opened { pid: u32, fd: u32 },
    /// Its beginning, and what the page cache holds of it.
    Glance { open: Option<Opened>, most: usize },
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// The bytes beside it.
    Bytes,
    Names(Vec<String>),
    Stat(FileStat),
    /// To the path in the bytes beside it; or it is no link.
    Link(bool),
    Cached(Option<u64>),
    Identity(FileIdentity),
    Opened(Opened),
    /// The beginning is beside it. Whether its file system is one that may hang.
    Glance {
        cached: Result<Option<u64>, Fault>,
        may_hang: bool,
    },
}

/// An answer, with the bytes beside it.
pub(crate) type Answer = io::Result<(Told, Vec<u8>)>;

/// Has a look taken.
pub(crate) fn look(ask: Ask, path: &Path, limit: std::time::Duration) -> Answer {
    errand::send(&LOOK, &ask, path, limit)
}

/// That something else was answered than what was asked.
pub(crate) fn no_answer(told: &Told) -> io::Error {
    io::Error::other(format!("{told:?} is no answer to this"))
}

fn perform(ask: &str, path: &Path) -> Done {
    let (told, bytes) = told(serde_json::from_str(ask)?, path)?;
    Ok((serde_json::to_string(&told)?, bytes))
}

fn told(ask: Ask, path: &Path) -> Answer {
    let plain = |told| Ok((told, Vec::new()));
    match ask {
        Ask::Read { most } => Ok((Told::Bytes, foreign::read_here(path, most)?)),
        Ask::List => plain(Told::Names(foreign::list_here(path)?)),
        Ask::Stat => plain(Told::Stat(foreign::stat_here(path)?)),
        Ask::Link => Ok(match foreign::link_here(path)? {
            Some(to) => (Told::Link(true), to.as_os_str().as_bytes().to_vec()),
            None => (Told::Link(false), Vec::new()),
        }),
        Ask::Cached => plain(Told::Cached(foreign::cached_bytes_here(path)?)),
        Ask::Identity => plain(Told::Identity(opened::identity_here(path)?)),
        Ask::Opened { pid, fd } => plain(Told::Opened(opened::opened_here(pid, fd)?)),
        Ask::Glance { open, most } => {
            let at = open.map_or_else(|| At::Path(path.to_owned()), At::Open);
            let seen = opened::glance_here(&at, most)?;
            let cached = seen.cached.map_err(|e| Fault::from(&e));
            Ok((Told::Glance { cached, may_hang: seen.may_hang }, seen.start))
        }
    }
}
