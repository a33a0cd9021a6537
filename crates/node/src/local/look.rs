//! The I/O task that reads files of others, which may hang ([`io_worker`](crate::io_worker)): its queries and replies.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{foreign, opened, trusted};
use crate::io_worker::{Done, Fault, IoTask};
use crate::node::opened::{At, FileIdentity, FileLayout, Opened};
use crate::{FileStat, io_worker};

/// A look at a file.
pub(crate) static LOOK: IoTask = IoTask { word: "look", perform };

/// A query about a path.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum FileQuery {
    /// Its content, if that is no longer than so many bytes.
    Read { most: usize },
    /// Its beginning, if nobody but root can have written it.
    Trusted { most: usize },
    /// The names in it.
    List,
    /// What it is.
    Stat,
    /// Where it points.
    Link,
    /// Which of its parts after the first ones is the first link.
    FirstLink { known: usize },
    /// What the page cache holds of it.
    Cached,
    /// Which file it is.
    Identity,
    /// What a process has open.
    Opened { pid: u32, fd: u32 },
    /// Its beginning, and what the page cache holds of it.
    Peek { open: Option<Opened>, most: usize },
}

/// The reply to a query.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FileReply {
    /// The bytes beside it.
    Bytes,
    Names(Vec<String>),
    Stat(FileStat),
    /// To the path in the bytes beside it; or it is no link.
    Link(bool),
    /// Which of these parts, from 1, and the path that it points to in the bytes beside it.
    FirstLink(Option<usize>),
    Cached(Option<u64>),
    Identity(FileIdentity),
    Opened(Opened),
    /// The beginning is beside it. Whether its file system is one that may hang.
    Peek {
        cached: Result<Option<u64>, Fault>,
        may_hang: bool,
        /// How its file system keeps it, where that may copy on write.
        layout: Option<FileLayout>,
    },
}

/// An answer, with the bytes beside it.
pub(crate) type Answer = io::Result<(FileReply, Vec<u8>)>;

/// Runs a query.
pub(crate) fn look(ask: FileQuery, path: &Path, limit: std::time::Duration) -> Answer {
    io_worker::send(&LOOK, &ask, path, limit)
}

/// The error of a reply that does not fit the query.
pub(crate) fn no_answer(reply: &FileReply) -> io::Error {
    io::Error::other(format!("unexpected answer {reply:?}"))
}

fn perform(ask: &str, path: &Path) -> Done {
    let (reply, bytes) = answer(serde_json::from_str(ask)?, path)?;
    Ok((serde_json::to_string(&reply)?, bytes))
}

fn answer(ask: FileQuery, path: &Path) -> Answer {
    let plain = |reply| Ok((reply, Vec::new()));
    match ask {
        FileQuery::Read { most } => Ok((FileReply::Bytes, foreign::read_here(path, most)?)),
        FileQuery::Trusted { most } => Ok((FileReply::Bytes, trusted::read_here(path, most)?)),
        FileQuery::List => plain(FileReply::Names(foreign::list_here(path)?)),
        FileQuery::Stat => plain(FileReply::Stat(foreign::stat_here(path)?)),
        FileQuery::Link => Ok(match foreign::link_here(path)? {
            Some(to) => (FileReply::Link(true), to.as_os_str().as_bytes().to_vec()),
            None => (FileReply::Link(false), Vec::new()),
        }),
        FileQuery::FirstLink { known } => Ok(match foreign::first_link_here(known, path)? {
            Some((part, to)) => (FileReply::FirstLink(Some(part)), to.as_os_str().as_bytes().to_vec()),
            None => (FileReply::FirstLink(None), Vec::new()),
        }),
        FileQuery::Cached => plain(FileReply::Cached(foreign::cached_bytes_here(path)?)),
        FileQuery::Identity => plain(FileReply::Identity(opened::identity_here(path)?)),
        FileQuery::Opened { pid, fd } => plain(FileReply::Opened(opened::opened_here(pid, fd)?)),
        FileQuery::Peek { open, most } => {
            let at = open.map_or_else(|| At::Path(path.to_owned()), At::Open);
            let start_of_file = opened::peek_here(&at, most)?;
            let cached = start_of_file.cached.map_err(|e| Fault::from(&e));
            let reply = FileReply::Peek { cached, may_hang: start_of_file.may_hang, layout: start_of_file.layout };
            Ok((reply, start_of_file.start))
        }
    }
}
