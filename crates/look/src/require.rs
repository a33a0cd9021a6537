//! Preconditions as data: every entry of an extension point declares its requirements, `doctor` prints the list, and a
//! run skips entries with unmet ones and says so. A check has a [`Reader`], which cannot change the machine.

use std::io::ErrorKind;
use std::path::Path;

pub use vmio_model::facts::AS_ROOT;
use vmio_model::facts::Remedy;
pub use vmio_node::find_program;
use vmio_node::linux::process::Status;
use vmio_node::{Error, Reader};

/// One precondition of an entry of an extension point.
#[derive(Debug, Clone, Copy)]
pub struct Requirement {
    /// Short name: `fio`, `root`, `loop devices`.
    pub name: &'static str,
    /// What it is needed for.
    pub why: &'static str,
    /// How to meet it.
    pub fix: &'static str,
    /// `Ok` when met, else what was found. What cannot be read is unmet. Most checks use [`program`], [`root`],
    /// [`readable`] or [`kernel`].
    pub check: fn(&dyn Reader) -> Result<(), Missing>,
}

/// Why a requirement is unmet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Missing {
    #[error("no program {0} in PATH")]
    Program(String),
    #[error("no {0} beside vmio, in /usr/lib/vmio or in /usr/local/lib/vmio")]
    OwnProgram(&'static str),
    /// None of several alternatives.
    #[error("none of {0}")]
    NoneOf(String),
    #[error("this is user {0}, not root")]
    NotRoot(u32),
    #[error("cannot read the user id from /proc/self/status")]
    UnknownUser,
    #[error("{0} may be read by root only")]
    RootOnly(&'static str),
    #[error("no {feature} ({path} is missing)")]
    Feature { feature: String, path: String },
    #[error("it is not there")]
    NotThere,
    /// The node's error.
    #[error("{0}")]
    Unreadable(String),
    /// The host is too old, of another kind, lacks a part, or is restricted.
    #[error("{0}")]
    Unlike(String),
}

impl From<vmio_node::Error> for Missing {
    fn from(error: vmio_node::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// Outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// It is met.
    Met,
    /// It is not.
    Unmet {
        /// What was found, and what it is needed for.
        why: String,
        /// How to meet it.
        fix: String,
    },
}

impl Requirement {
    /// Checks the requirement on a node.
    pub fn look(&self, node: &dyn Reader) -> Check {
        match (self.check)(node) {
            Ok(()) => Check::Met,
            Err(found) => Check::Unmet {
                why: format!("{}: {found} ({}: {})", node.name(), self.name, self.why),
                fix: self.fix_for(node, &found),
            },
        }
    }

    /// The fix for what was found, for the user of `node`: root is not told to become root.
    pub fn fix_for(&self, node: &dyn Reader, found: &Missing) -> String {
        match found {
            Missing::RootOnly(_) => Fix::Root.remedy(node).to_string(),
            _ => self.fix.to_owned(),
        }
    }
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Check::Met => f.write_str("met"),
            Check::Unmet { why, fix } => write!(f, "{why}; {fix}"),
        }
    }
}

/// The unmet requirements of a list.
pub fn unmet<'a>(node: &dyn Reader, list: impl IntoIterator<Item = &'a Requirement>) -> Vec<(&'a Requirement, Check)> {
    list.into_iter().map(|r| (r, r.look(node))).filter(|(_, c)| *c != Check::Met).collect()
}

/// Checks for an executable program.
pub fn program(node: &dyn Reader, name: &str) -> Result<(), Missing> {
    find_program(node, name).map(drop).ok_or_else(|| Missing::Program(name.to_owned()))
}

/// Checks for effective user id 0.
pub fn root(node: &dyn Reader) -> Result<(), Missing> {
    match effective_uid(node) {
        Some(0) => Ok(()),
        Some(uid) => Err(Missing::NotRoot(uid)),
        None => Err(Missing::UnknownUser),
    }
}

/// Checks for a readable file.
pub fn readable(node: &dyn Reader, path: &str) -> Result<(), Missing> {
    Ok(node.read(Path::new(path)).map(drop)?)
}

/// Checks for a kernel feature by its path in `/proc`, `/sys` or `/dev`.
pub fn kernel(node: &dyn Reader, feature: &str, path: &str) -> Result<(), Missing> {
    let missing = || Missing::Feature { feature: feature.to_owned(), path: path.to_owned() };
    node.stat(Path::new(path))?.map(drop).ok_or_else(missing)
}

/// What to do after a refusal. [`Fix::remedy`] adapts it to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fix {
    /// This, for any user.
    Do(&'static str),
    /// Be root.
    Root,
    /// Be root of the host.
    RootOnHost,
    /// Be root, or of this group.
    RootOrGroup(&'static str),
    /// Be root, and work from this place.
    RootIn(&'static str),
    /// Be root; where that does not help, this.
    RootThen(&'static str),
    /// Be allowed to read a process's links (`/proc/PID/ns`, `/proc/PID/fd`), which takes permission to trace it
    /// (ptrace(2), "Ptrace access mode checking"). Root with that capability is refused by a sandbox or security
    /// module.
    Links,
}

impl Fix {
    /// Be root where the error is a refusal, else this.
    pub fn of(error: &Error, otherwise: &'static str) -> Fix {
        if error.kind() == Some(ErrorKind::PermissionDenied) { Fix::Root } else { Fix::Do(otherwise) }
    }

    /// The remedy for the user of `node`: root is not told to become root.
    pub fn remedy(self, node: &dyn Reader) -> Remedy {
        let words = match self {
            Fix::Do(what) => what.to_owned(),
            _ if root(node).is_ok() => self.for_root(node),
            Fix::Root => return Remedy::Root,
            Fix::RootOnHost => format!("{AS_ROOT} on the host"),
            Fix::RootOrGroup(group) => format!("{AS_ROOT} or as a member of group {group}"),
            Fix::RootIn(place) => format!("{AS_ROOT}, in {place}"),
            Fix::RootThen(what) => format!("{AS_ROOT}; {what}"),
            Fix::Links => format!("{AS_ROOT}, with all of its capabilities"),
        };
        words.into()
    }

    /// The fix for root, whom a container, a security module or a file server refuses.
    fn for_root(self, node: &dyn Reader) -> String {
        const REFUSED: &str = "root was refused: check whether vmio runs in a container or without some of root's \
                               capabilities, under SELinux or AppArmor, or whether a file server maps root to nobody";
        match self {
            Fix::Do(what) | Fix::RootThen(what) => what.to_owned(),
            Fix::Root | Fix::RootOrGroup(_) => REFUSED.to_owned(),
            Fix::RootOnHost => "run it on the host itself, not in a container".to_owned(),
            Fix::RootIn(place) => format!("run it in {place}"),
            Fix::Links if may_trace(node) == Some(false) => {
                "run it with all of its capabilities: CAP_SYS_PTRACE is missing".to_owned()
            }
            Fix::Links => {
                "only outside of this container or sandbox, or without its security module, can that be read".to_owned()
            }
        }
    }
}

/// Whether this process may trace others; `None` where unknown.
fn may_trace(node: &dyn Reader) -> Option<bool> {
    const SYS_PTRACE: u64 = 1 << 19;
    Some(Status::of(node, "self").ok()?.capabilities()? & SYS_PTRACE != 0)
}

/// Effective user id of this process.
fn effective_uid(node: &dyn Reader) -> Option<u32> {
    let [_, effective, ..] = Status::of(node, "self").ok()?.users()?;
    Some(effective)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_node::Node;
    use vmio_node::fake::Fake;

    const FIO: Requirement =
        Requirement { name: "fio", why: "the workloads", fix: "apt install fio", check: |n| program(n, "fio") };
    const KVM: Requirement = Requirement {
        name: "KVM",
        why: "speed",
        fix: "enable it in the firmware",
        check: |n| kernel(n, "KVM", "/dev/kvm"),
    };

    #[test]
    fn root_is_not_told_to_be_root() {
        let remedy = |uid: u32, fix: Fix| {
            let fake = Fake::new("fake").file("/proc/self/status", format!("Uid:\t{uid}\t{uid}\t0\t0\n"));
            fix.remedy(&fake).to_string()
        };
        let namespace = "the mount namespace of the guest's process";
        for (fix, user, root) in [
            (
                Fix::RootIn(namespace),
                "run as root, in the mount namespace of the guest's process",
                "run it in the mount namespace of the guest's process",
            ),
            (
                Fix::RootThen("if it is missing, see that it runs"),
                "run as root; if it is missing, see that it runs",
                "if it is missing, see that it runs",
            ),
            (Fix::RootOnHost, "run as root on the host", "run it on the host itself, not in a container"),
            (Fix::Do("look again"), "look again", "look again"),
        ] {
            assert_eq!((remedy(7, fix).as_str(), remedy(0, fix).as_str()), (user, root));
        }
        for (fix, user) in
            [(Fix::Root, AS_ROOT), (Fix::RootOrGroup("libvirt"), "run as root or as a member of group libvirt")]
        {
            let said = remedy(0, fix);
            assert!(said.contains("root was refused") && !said.contains("as root"), "{said}");
            assert_eq!(remedy(7, fix), user);
        }
    }

    /// Root that is refused is not told to become root.
    #[test]
    fn a_fix_follows_what_was_found() {
        let rights = Requirement { check: |_| Err(Missing::RootOnly("tracefs")), fix: AS_ROOT, ..FIO };
        let fix = |uid: u32| {
            let fake = Fake::new("fake").file("/proc/self/status", format!("Uid:\t{uid}\t{uid}\t0\t0\n"));
            let Check::Unmet { fix, .. } = rights.look(&fake) else { panic!("it is unmet") };
            fix
        };
        assert!(fix(7) == AS_ROOT && fix(0).contains("root was refused"), "{}", fix(0));
    }

    /// A user who has a privilege is not told to get it.
    #[test]
    fn links_of_a_process_are_refused_for_a_reason() {
        let remedy = |uid: u32, set: &str| {
            let status = format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{set}\n");
            Fix::Links.remedy(&Fake::new("fake").file("/proc/self/status", status)).to_string()
        };
        assert_eq!(remedy(7, "0000000000000000"), "run as root, with all of its capabilities");
        assert!(remedy(0, "0000000000000000").starts_with("run it with all of its capabilities: CAP_SYS_PTRACE"));
        let guarded = remedy(0, "000001fffeffffff");
        assert!(guarded.contains("outside of this container or sandbox"), "{guarded}");
        assert!(!guarded.contains("as root") && !guarded.contains("capabilities"), "{guarded}");
    }

    #[test]
    fn program_is_found_along_the_nodes_path_and_in_sbin() {
        let fake = Fake::new("fake")
            .file("/proc/self/environ", "HOME=/\0PATH=/opt/bin:/bin\0")
            .file("/bin/dd", "not executable");
        for path in ["/opt/bin/fio", "/usr/sbin/mke2fs"] {
            fake.write(Path::new(path), b"", Some(0o755)).unwrap();
        }
        assert_eq!(find_program(&fake, "fio"), Some("/opt/bin/fio".into()));
        assert_eq!(find_program(&fake, "mke2fs"), Some("/usr/sbin/mke2fs".into()));
        assert_eq!(find_program(&fake, "dd"), None);
        assert_eq!(FIO.look(&fake), Check::Met);
    }

    #[test]
    fn what_is_unmet_says_where_what_why_and_what_to_do() {
        let said = FIO.look(&Fake::new("fake")).to_string();
        assert_eq!(said, "fake: no program fio in PATH (fio: the workloads); apt install fio");
    }

    #[test]
    fn root_is_the_effective_user() {
        let with = |uid: &str| Fake::new("fake").file("/proc/self/status", format!("Name:\tx\nUid:\t{uid}\n"));
        root(&with("1000\t0\t0\t0")).unwrap();
        let said = root(&with("0\t1000\t0\t0")).unwrap_err().to_string();
        assert_eq!(said, "this is user 1000, not root");
        assert!(root(&Fake::new("fake")).is_err());
    }

    #[test]
    fn unmet_keeps_what_is_missing_only() {
        let fake = Fake::new("fake").file("/dev/kvm", "");
        let list = [KVM, FIO];
        let missing = unmet(&fake, &list);
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0].0.name, "fio");
        readable(&fake, "/dev/kvm").unwrap();
        assert!(readable(&fake, "/dev/nothing").unwrap_err().to_string().contains("/dev/nothing"));
    }
}
