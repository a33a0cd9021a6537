//! Where targets are made: what `--on` names. A place either holds files (a directory, whatever
//! it lies on) or volumes (a volume group, a thin pool, a ZFS pool, a Ceph pool). Looking at a
//! place changes nothing; [`crate::disks::targets`] makes what lies in it.
//!
//! One kind is made by the run itself: a modelled disk, with a file system for files. One is a device that a guest gets
//! whole, on which nothing is made.
//!
//! Adding a kind of place: a file with a type that implements [`PlaceKind`], and its line in
//! [`ALL`]. One that holds volumes of a new sort also extends [`Pool`].

use std::io;
use std::path::{Path, PathBuf};

use vmio_model::modelled::ModelledDisk;
use vmio_model::words::nearest;
use vmio_node::Node;

use vmio_look::require::Requirement;

mod dir;
pub mod health;
mod lvm;
mod lvmthin;
mod modelled;
mod pool;
pub mod pve;
pub mod rbd;
pub(crate) mod tools;
pub mod vfio;
mod zfs;

pub use health::Health;
pub use pool::{Pool, dm_device, dm_name};
pub use vfio::PassedThrough;

/// All kinds, in the order in which they are shown. The first is meant where no prefix is given.
pub const ALL: &[&dyn PlaceKind] =
    &[&dir::Dir, &lvm::Lvm, &lvmthin::LvmThin, &zfs::Zfs, &rbd::Rbd, &pve::Pve, &modelled::Modelled, &vfio::Vfio];

/// A kind of place.
pub trait PlaceKind: Sync {
    /// What stands before the colon; empty for directories.
    fn prefix(&self) -> &'static str;
    /// How it is written: `lvm:VG`.
    fn form(&self) -> &'static str;
    /// One line for help and docs.
    fn about(&self) -> &'static str;
    /// What this machine must have.
    fn requirements(&self) -> &'static [Requirement];
    /// Looks the place up. `name` is what stands behind the colon.
    ///
    /// # Errors
    /// When it is not there or cannot be used: why, and what to do.
    fn resolve(&self, node: &dyn Node, name: &str) -> Result<PlaceBackend>;
    /// Who else has to answer for it than this machine's kernel, and may not: a run there is done where it may hang.
    /// Told without asking the storage.
    fn answered_by(&self, _name: &str) -> Option<String> {
        None
    }
    /// The places of this kind on this machine, for `doctor`; none where their tools are missing.
    fn list(&self, node: &dyn Node) -> Vec<Listed>;
}

/// What a place makes its targets of.
#[derive(Debug, Clone, PartialEq)]
pub enum PlaceBackend {
    /// Files in this directory, which may have to be made.
    Files(PathBuf),
    /// Volumes.
    Volumes(Pool),
    /// Files on a disk that is made when the run begins ([`crate::disks::modelled`]).
    Modelled(ModelledDisk),
    /// Nothing: a device that a guest gets whole.
    PassedThrough(PassedThrough),
}

impl PlaceBackend {
    /// The pool of a place that holds volumes.
    pub fn pool(&self) -> Option<&Pool> {
        match self {
            Self::Files(_) | Self::Modelled(_) | Self::PassedThrough(_) => None,
            Self::Volumes(pool) => Some(pool),
        }
    }

    /// The modelled disk, where it is one.
    pub fn modelled(&self) -> Option<&ModelledDisk> {
        match self {
            Self::Modelled(disk) => Some(disk),
            Self::Files(_) | Self::Volumes(_) | Self::PassedThrough(_) => None,
        }
    }

    /// The device that is passed through, where it is one.
    pub fn passed_through(&self) -> Option<&PassedThrough> {
        match self {
            Self::PassedThrough(device) => Some(device),
            Self::Files(_) | Self::Volumes(_) | Self::Modelled(_) => None,
        }
    }
}

/// A place that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// As `--on` named it, or as it would.
    pub name: String,
    /// What its targets are made of.
    pub backend: PlaceBackend,
}

impl Place {
    /// A directory.
    pub fn directory(dir: &Path) -> Self {
        Self { name: dir.display().to_string(), backend: PlaceBackend::Files(dir.into()) }
    }

    /// For people: `/srv/vms`, `pve:local-lvm (LVM thin pool pve/data)`.
    pub fn describe(&self) -> String {
        match &self.backend {
            PlaceBackend::Files(dir) if self.name == dir.display().to_string() => self.name.clone(),
            PlaceBackend::Files(dir) => format!("{} ({})", self.name, dir.display()),
            PlaceBackend::Volumes(pool) => format!("{} ({pool})", self.name),
            PlaceBackend::Modelled(disk) => format!("{} (a modelled disk: {disk})", self.name),
            PlaceBackend::PassedThrough(device) => {
                format!("{} (passed through by VFIO, IOMMU group {})", self.name, device.group)
            }
        }
    }
}

/// A place of this machine, as `doctor` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// As `--on` names it.
    pub name: String,
    /// What is left there, or why it cannot be used.
    pub state: Result<String>,
}

/// Finds the place that `text` names. A directory whose name has a colon is written `./a:b`.
///
/// # Errors
/// When there is no such kind, or as [`PlaceKind::resolve`].
pub fn resolve(node: &dyn Node, text: &str) -> Result<Place> {
    let (kind, name) = kind_of(text)?;
    Ok(Place { name: text.to_owned(), backend: kind.resolve(node, name)? })
}

/// Who else than this machine's kernel has to answer for the place that `text` names; `None` also for what is no place.
/// Asks nobody.
pub fn answered_by(text: &str) -> Option<String> {
    let (kind, name) = kind_of(text).ok()?;
    kind.answered_by(name)
}

/// The place of a directory that may have to be made.
///
/// # Errors
/// When it is no directory, or storage below it does not answer.
pub fn directory(dir: &Path) -> Result<Place> {
    Ok(Place { name: dir.display().to_string(), backend: PlaceBackend::Files(dir::resolve_path(dir)?) })
}

/// Whether vmio may make files in a directory that is there.
///
/// # Errors
/// When this user cannot, or every user can: why, and what to do.
pub fn usable(dir: &Path) -> Result<()> {
    dir::usable(dir)
}

/// Whether `text` is written like a place with a prefix, not like a directory.
pub fn names_volumes(text: &str) -> bool {
    kind_of(text).is_ok_and(|(kind, _)| !kind.prefix().is_empty())
}

fn kind_of(text: &str) -> Result<(&'static dyn PlaceKind, &str)> {
    match text.split_once(':') {
        Some((prefix, name)) if !prefix.contains(['/', '.']) && !prefix.is_empty() => {
            let Some(kind) = ALL.iter().find(|k| k.prefix() == prefix) else {
                let near = nearest(prefix, ALL.iter().map(|k| k.prefix()));
                let meant = near.map_or_else(String::new, |near| format!("did you mean `{near}:{name}`? "));
                let forms: Vec<&str> = ALL.iter().map(|k| k.form()).collect();
                return Err(Error::new(Kind::Unknown, text, format!("no kind of place is called {prefix}")).help(
                    format!("{meant}places are {}; a directory with a colon is written ./{text}", forms.join(", ")),
                ));
            };
            if name.is_empty() || name.starts_with(['/', '-']) || name.contains(char::is_whitespace) {
                return Err(Error::new(Kind::Unknown, text, "it is empty").help(format!("write {}", kind.form())));
            }
            Ok((*kind, name))
        }
        _ => Ok((ALL[0], text)),
    }
}

/// What to write instead of a name that is not there.
fn instead(prefix: &str, wanted: &str, there: &[String]) -> String {
    if there.is_empty() {
        return "there is none on this host; `vmio doctor` lists the places of this host".into();
    }
    let near = nearest(wanted, there.iter().map(String::as_str));
    let meant = near.map_or_else(String::new, |near| format!("did you mean `{prefix}:{near}`? "));
    let all: Vec<String> = there.iter().map(|name| format!("{prefix}:{name}")).collect();
    format!("{meant}there are {}", all.join(", "))
}

/// Result of this folder.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What was written names no place.
    Unknown,
    /// It is not on this machine.
    NotThere,
    /// It is there and cannot be used: not active, degraded, full, disabled.
    Unready,
    /// A tool is missing, may not be used, or failed.
    Tool,
}

/// Why a place cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct Error {
    /// What is wrong.
    pub kind: Kind,
    /// The place.
    pub place: String,
    /// What was found.
    pub reason: String,
    /// What to do.
    pub help: String,
}

impl Error {
    fn new(kind: Kind, place: impl Into<String>, reason: impl Into<String>) -> Self {
        let help = "`vmio doctor` lists the places of this host".to_owned();
        Self { kind, place: place.into(), reason: reason.into(), help }
    }

    fn help(self, help: impl Into<String>) -> Self {
        Self { help: help.into(), ..self }
    }
}

/// What is wrong with storage; it says what to do, where something can be done.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Unwell {
    #[error("the storage does not respond: no answer from {who} for {seconds} s; is it up?")]
    Silent { who: String, seconds: u64 },
    #[error("{server} answers with an error: {error}")]
    Server { server: String, error: io::Error },
    #[error("{} cannot be looked up: {error}", path.display())]
    Unseen { path: PathBuf, error: io::Error },
    #[error("no part of {} exists", .0.display())]
    NoPart(PathBuf),

    /// It is full, or has failed.
    #[error("{}; {}", .0.reason, .0.help)]
    Unready(Error),
    /// It is not found, or its tools cannot be asked.
    #[error(transparent)]
    Unasked(Error),
    /// Its cluster cannot be asked.
    #[error("{}; {}", .0, .0.help)]
    Cluster(Error),
    /// Its tools do not end.
    #[error("the storage does not answer: {0} cannot be asked")]
    Hangs(String),

    #[error("cannot start a thread: {0}")]
    NoThread(io::Error),
    #[error("the thread at work on the storage ended early")]
    ThreadEnded,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_node::fake::{Tree, host};

    #[test]
    fn contract_of_every_kind() {
        let nothing = host(&[]);
        for (i, kind) in ALL.iter().enumerate() {
            let (prefix, form) = (kind.prefix(), kind.form());
            assert!(ALL[..i].iter().all(|k| k.prefix() != prefix), "{prefix} twice");
            assert!(!kind.about().is_empty());
            if i == 0 {
                assert!(prefix.is_empty() && form == "DIR");
                continue;
            }
            assert!(form.starts_with(&format!("{prefix}:")), "{form}");
            for requirement in kind.requirements() {
                assert!(!requirement.why.is_empty() && !requirement.fix.is_empty(), "{prefix}");
                assert!((requirement.check)(&Tree::default()).is_err(), "{prefix}: {}", requirement.name);
            }
            // On a machine with nothing there is no such place, and the error says what to do.
            let said = kind.resolve(&nothing, "a/b").unwrap_err();
            assert!(!said.help.is_empty() && said.kind != Kind::Unknown, "{prefix}: {said:?}");
            assert!(said.to_string().starts_with(&format!("{prefix}:a/b: ")), "{said}");
            assert_eq!(kind.list(&nothing), [], "{prefix}");
        }
    }

    #[test]
    fn what_is_no_place_says_which_there_are() {
        let node = host(&[]);
        let said = resolve(&node, "lvmtin:vg0/data").unwrap_err();
        assert_eq!(said.kind, Kind::Unknown);
        assert!(said.help.contains("`lvmthin:vg0/data`") && said.help.contains("zfs:POOL"), "{}", said.help);
        for nothing in ["lvm:", "zfs:/tank", "pve:a b", "lvm:-x"] {
            assert_eq!(resolve(&node, nothing).unwrap_err().kind, Kind::Unknown, "{nothing}");
        }
        // Directories may have colons behind a slash.
        for dir in ["./lvm:vg0", "/srv/a:b", "here"] {
            let (kind, name) = kind_of(dir).unwrap();
            assert_eq!((kind.prefix(), name), ("", dir));
        }
    }
}
