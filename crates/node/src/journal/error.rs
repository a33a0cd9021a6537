//! Why a change could not be taken back, and why the file of a journal or of an undo log cannot be read.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::End;
use crate::journal::VERSION;
use crate::journal::change::{Change, SCRATCH_MARKER};
use crate::journal::volume::Volume;
use crate::machine::Undying;

/// Why a change could not be taken back.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub(crate) enum NotUndone {
    #[error("cannot {what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot read the mounts: {0}")]
    Mounts(io::Error),
    #[error("cannot write {value:?} back to {}: {source}", path.display())]
    WriteBack { value: String, path: PathBuf, source: io::Error },
    #[error("cannot open {} to detach {}: {source}", device.display(), backing.display())]
    OpenLoop { device: PathBuf, backing: PathBuf, source: io::Error },
    #[error("cannot detach {} from {}: {source}", backing.display(), device.display())]
    Detach { device: PathBuf, backing: PathBuf, source: io::Error },
    #[error(
        "cannot remove {}: {server} does not answer (waited for {} s); it stays in the journal and the next start \
         tries again: see that the server is up", path.display(), waited.as_secs()
    )]
    Silent { path: PathBuf, server: String, waited: Duration },

    #[error("{} was not touched: {why}", path.display())]
    OutOfBounds { path: PathBuf, why: OutOfBounds },

    #[error("{} is no longer what vmio created; it was not touched: find out who replaced it", .0.display())]
    OtherFile(PathBuf),
    #[error("{} is no longer a directory; it was not touched", .0.display())]
    NoDirectory(PathBuf),
    #[error("{} is another directory now; it was not touched", .0.display())]
    OtherDirectory(PathBuf),
    #[error("{} holds files but no {SCRATCH_MARKER} of this owner; it was not touched", .0.display())]
    Unmarked(PathBuf),
    #[error("cannot remove {}: it is not a volume of vmio and was not touched; if it is yours, {}", .0, by_hand(.0))]
    NoVolumeOfOurs(Box<Volume>),
    #[error(
        "cannot remove {}: it does not have the mark of this owner and was not touched; if it is yours, {}",
        .0, by_hand(.0)
    )]
    OthersVolume(Box<Volume>),

    #[error(
        "{} was moved to {}: {}remove it there with `rm -r`",
        path.display(), to.display(), emptied_words(*emptied)
    )]
    Moved { path: PathBuf, to: PathBuf, emptied: bool },
    #[error(
        "{} is {}: look for what vmio made there with `find {} -xdev -inum {inode}` and remove it",
        path.display(), lost_words(*replaced), top.display()
    )]
    Lost { path: PathBuf, replaced: bool, top: PathBuf, inode: u64 },

    #[error("{} was not removed: {} is mounted in it; unmount that first", path.display(), mount.display())]
    MountedInside { path: PathBuf, mount: PathBuf },
    #[error("{} over {} is still in use; end what uses it", device.display(), backing.display())]
    InUse { device: PathBuf, backing: PathBuf },
    #[error(transparent)]
    Undying(#[from] Undying),
    #[error("{0} is still being undone by another thread; the next start undoes it")]
    InHand(Change),
    #[error("{0} is still being made; it stays in the journal and the next start undoes it")]
    BeingMade(Change),

    #[error("cannot remove {volume}: {why}; {}", by_hand(volume))]
    Volume { volume: Box<Volume>, why: VolumeFailure },
    #[error("cannot switch off the latency histograms of {guest}: {why}; they cost it little")]
    Histograms { guest: String, why: String },
    /// It was undone and cannot be struck out.
    #[error(transparent)]
    Journal(#[from] crate::Error),
    /// Message of the worker that tried it.
    #[error("{0}")]
    InWorker(String),
}

impl NotUndone {
    /// What the system said when this was to be done to a path.
    pub(crate) fn cannot(what: &'static str, path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Io { what, path: path.to_owned(), source }
    }
}

fn by_hand(volume: &Volume) -> String {
    format!("to remove it: `{}`", volume.removal())
}

fn emptied_words(emptied: bool) -> &'static str {
    if emptied { "it was emptied; " } else { "" }
}

fn lost_words(replaced: bool) -> &'static str {
    if replaced { "not what vmio made" } else { "not there any more" }
}

/// Why nothing is taken back at a path.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub(crate) enum OutOfBounds {
    #[error("its path does not go straight down")]
    Crooked,
    #[error(
        "the journal records no directory of its owner that contains it (an older vmio recorded none); if it is \
         vmio's, delete it, then delete the journal"
    )]
    NotRecorded,
    #[error("a link now leads to {}", .0.display())]
    Link(PathBuf),
    #[error("its directory cannot be examined: {0}")]
    UnseenAbove(io::Error),
    #[error("it is not a control group")]
    NoControlGroup,
    #[error("it cannot be examined: {0}")]
    Unseen(io::Error),
}

/// A failure at a volume, or of the tool of its system.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub(crate) enum VolumeFailure {
    #[error("its name has no '/'")]
    NoParent,
    #[error(transparent)]
    NotRun(crate::Error),
    #[error("`{command}` failed ({end:?}): {stderr}")]
    Tool { command: String, end: End, stderr: String },
    #[error("output of {of}: {source}")]
    Output { of: &'static str, source: serde_json::Error },
    #[error("lvs lists no volumes")]
    NoList,
    #[error("it is still there")]
    StillThere,
}

/// Why the file of a journal or of an undo log cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub(crate) enum Unreadable {
    #[error("line 1 is not a journal header: {0}; remove the file")]
    NoHead(serde_json::Error),
    #[error("written by another vmio (journal version {0}, this one knows {VERSION}); let that vmio recover it")]
    OtherJournal(u32),
    #[error("line {number} is unknown to this vmio: {line}")]
    UnknownLine { number: usize, line: String },
    #[error("version {0} is not known; use the vmio that wrote it")]
    OtherLedger(u32),
    #[error("line {number} is invalid ({source}): what it describes can only be undone manually")]
    Nonsense { number: usize, source: serde_json::Error },
}
