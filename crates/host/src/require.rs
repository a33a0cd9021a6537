//! Preconditions as data: every entry of an extension point declares what it needs, `doctor`
//! prints the list, and a run skips what is unmet and says so. Checking only looks: it is given
//! a [`Reader`], which cannot change the machine.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use vmio_node::Reader;

/// One thing that must be there before an entry can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requirement {
    /// A program in `PATH` (or in the usual `sbin` directories).
    Program {
        /// Its name.
        name: &'static str,
        /// Debian package that holds it.
        package: &'static str,
    },
    /// Effective user id 0.
    Root {
        /// What it is needed for.
        why: &'static str,
    },
    /// A file that is there and can be read.
    Readable {
        /// Its path.
        path: Cow<'static, Path>,
        /// What to do when it is not.
        mend: &'static str,
    },
    /// A kernel feature that shows as a path (in `/proc`, `/sys`, `/dev`).
    Kernel {
        /// Name of the feature for people.
        feature: &'static str,
        /// Path that exists when the kernel has it.
        path: &'static str,
        /// What to do when it is missing.
        mend: &'static str,
    },
}

/// Outcome of looking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// It is there.
    Met,
    /// It is not.
    Unmet {
        /// What is missing.
        why: String,
        /// What to do about it.
        mend: String,
    },
}

impl Check {
    /// Is it there?
    pub fn met(&self) -> bool {
        *self == Check::Met
    }
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Check::Met => f.write_str("met"),
            Check::Unmet { why, mend } => write!(f, "{why}; {mend}"),
        }
    }
}

impl std::fmt::Display for Requirement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Requirement::Program { name, .. } => write!(f, "program {name}"),
            Requirement::Root { why } => write!(f, "root ({why})"),
            Requirement::Readable { path, .. } => write!(f, "readable {}", path.display()),
            Requirement::Kernel { feature, .. } => write!(f, "kernel: {feature}"),
        }
    }
}

impl Requirement {
    /// Looks whether the requirement is met on a node. What cannot be looked at counts as unmet,
    /// with the reason.
    pub fn check(&self, node: &dyn Reader) -> Check {
        let unmet = |why: String, mend: String| Check::Unmet { why, mend };
        match self {
            Requirement::Program { name, package } => match find_program(node, name) {
                Some(_) => Check::Met,
                None => unmet(
                    format!("{}: no program {name} in PATH", node.name()),
                    format!("install it, on Debian: apt install {package}"),
                ),
            },
            Requirement::Root { why } => match effective_uid(node) {
                Some(0) => Check::Met,
                Some(uid) => unmet(
                    format!("{}: {why} needs root, this is user {uid}", node.name()),
                    "run vmio as root".to_owned(),
                ),
                None => unmet(
                    format!("{}: cannot tell the user id from /proc/self/status", node.name()),
                    "mount /proc".to_owned(),
                ),
            },
            Requirement::Readable { path, mend } => match node.read(path) {
                Ok(_) => Check::Met,
                Err(e) => unmet(e.to_string(), (*mend).to_owned()),
            },
            Requirement::Kernel { feature, path, mend } => match node.stat(Path::new(path)) {
                Ok(Some(_)) => Check::Met,
                Ok(None) => unmet(format!("{}: no {feature} ({path} is missing)", node.name()), (*mend).to_owned()),
                Err(e) => unmet(e.to_string(), (*mend).to_owned()),
            },
        }
    }
}

/// The unmet ones of a list, each with what is wrong and what to do.
pub fn unmet<'a>(node: &dyn Reader, list: impl IntoIterator<Item = &'a Requirement>) -> Vec<(&'a Requirement, Check)> {
    list.into_iter().map(|r| (r, r.check(node))).filter(|(_, c)| !c.met()).collect()
}

/// Directories that are looked at after those in `PATH`: a user's `PATH` often lacks `sbin`.
const SBIN: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// Where programs are when the node's `PATH` cannot be read.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Full path of a program on a node: an executable file in the `PATH` of the process that looks,
/// then in the `sbin` directories.
pub fn find_program(node: &dyn Reader, name: &str) -> Option<PathBuf> {
    let environ = node.read_text(Path::new("/proc/self/environ")).unwrap_or_default();
    let path = environ.split('\0').find_map(|v| v.strip_prefix("PATH=")).unwrap_or(DEFAULT_PATH);
    path.split(':')
        .filter(|d| !d.is_empty())
        .chain(SBIN)
        .map(|dir| Path::new(dir).join(name))
        .find(|p| matches!(node.stat(p), Ok(Some(s)) if s.mode & 0o170_000 == 0o100_000 && s.mode & 0o111 != 0))
}

/// Effective user id of the process that looks, from the second number of `Uid:` (proc(5)).
fn effective_uid(node: &dyn Reader) -> Option<u32> {
    let status = node.read_text(Path::new("/proc/self/status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("Uid:"))?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    const FIO: Requirement = Requirement::Program { name: "fio", package: "fio" };
    const ROOT: Requirement = Requirement::Root { why: "a loop device" };

    #[test]
    fn program_is_found_along_the_nodes_path_and_in_sbin() {
        let fake = Fake::new()
            .file("/proc/self/environ", "HOME=/\0PATH=/opt/bin:/bin\0", 0o400)
            .file("/opt/bin/fio", "", 0o755)
            .file("/usr/sbin/mke2fs", "", 0o755)
            .file("/bin/dd", "not executable", 0o644);
        assert_eq!(find_program(&fake, "fio"), Some("/opt/bin/fio".into()));
        assert_eq!(find_program(&fake, "mke2fs"), Some("/usr/sbin/mke2fs".into()));
        assert_eq!(find_program(&fake, "dd"), None);
        assert_eq!(FIO.check(&fake), Check::Met);
    }

    #[test]
    fn a_missing_program_names_the_package() {
        let Check::Unmet { why, mend } = FIO.check(&Fake::new()) else { panic!("met on an empty machine") };
        assert!(why.contains("fio") && why.contains("fake"), "{why}");
        assert!(mend.contains("apt install fio"), "{mend}");
    }

    #[test]
    fn root_is_the_effective_user() {
        let with = |uid: &str| Fake::new().file("/proc/self/status", &format!("Name:\tx\nUid:\t{uid}\n"), 0o444);
        assert_eq!(ROOT.check(&with("1000\t0\t0\t0")), Check::Met);
        let Check::Unmet { why, .. } = ROOT.check(&with("0\t1000\t0\t0")) else { panic!("1000 is not root") };
        assert!(why.contains("a loop device") && why.contains("1000"), "{why}");
    }

    #[test]
    fn unmet_keeps_what_is_missing_only() {
        let fake = Fake::new().file("/dev/kvm", "", 0o600);
        let kernel = |path| Requirement::Kernel { feature: "KVM", path, mend: "enable virtualisation in the firmware" };
        let list = [kernel("/dev/kvm"), kernel("/dev/nothing")];
        let missing = unmet(&fake, &list);
        assert_eq!(missing.len(), 1);
        assert_eq!(*missing[0].0, list[1]);
        assert!(missing[0].1.to_string().contains("/dev/nothing"));
    }
}
