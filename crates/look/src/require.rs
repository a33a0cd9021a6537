//! Preconditions as data: every entry of an extension point declares what it needs, `doctor`
//! prints the list, and a run skips what is unmet and says so. Checking only looks: it is given
//! a [`Reader`], which cannot change the machine.

use std::path::Path;

use vmio_node::Reader;
pub use vmio_node::find_program;
use vmio_node::linux::process::Status;

/// One precondition of an entry of an extension point.
#[derive(Debug, Clone, Copy)]
pub struct Requirement {
    /// Short name: `fio`, `root`, `loop devices`.
    pub name: &'static str,
    /// What it is needed for.
    pub why: &'static str,
    /// What a person does to meet it.
    pub mend: &'static str,
    /// `Ok` when met, else what was found. What cannot be looked at is unmet. The helpers
    /// [`program`], [`root`], [`readable`] and [`kernel`] are most checks.
    pub check: fn(&dyn Reader) -> Result<(), String>,
}

/// Outcome of looking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// It is there.
    Met,
    /// It is not.
    Unmet {
        /// What was found, and what it would be needed for.
        why: String,
        /// What to do about it.
        mend: &'static str,
    },
}

impl Requirement {
    /// Looks whether the requirement is met on a node.
    pub fn look(&self, node: &dyn Reader) -> Check {
        match (self.check)(node) {
            Ok(()) => Check::Met,
            Err(found) => {
                Check::Unmet { why: format!("{}: {found} ({}: {})", node.name(), self.name, self.why), mend: self.mend }
            }
        }
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

/// The unmet ones of a list, each with what is wrong and what to do.
pub fn unmet<'a>(node: &dyn Reader, list: impl IntoIterator<Item = &'a Requirement>) -> Vec<(&'a Requirement, Check)> {
    list.into_iter().map(|r| (r, r.look(node))).filter(|(_, c)| *c != Check::Met).collect()
}

/// A program that can be executed.
pub fn program(node: &dyn Reader, name: &str) -> Result<(), String> {
    find_program(node, name).map(drop).ok_or_else(|| format!("no program {name} in PATH"))
}

/// Effective user id 0.
pub fn root(node: &dyn Reader) -> Result<(), String> {
    match effective_uid(node) {
        Some(0) => Ok(()),
        Some(uid) => Err(format!("this is user {uid}, not root")),
        None => Err("cannot tell the user id from /proc/self/status".to_owned()),
    }
}

/// A mend, as it is told to this user: whoever is root is not told to be.
pub fn mend_for(node: &dyn Reader, mend: &str) -> String {
    if root(node).is_ok() { for_root(mend) } else { mend.to_owned() }
}

/// What helps whom a process's own links are refused (`/proc/PID/ns`, `/proc/PID/fd`): the kernel shows them to who
/// may trace the process (ptrace(2), "Ptrace access mode checking"). Who is root and may trace is refused by
/// something else, which nothing here can change.
pub fn mend_for_links(node: &dyn Reader) -> String {
    const SYS_PTRACE: u64 = 1 << 19;
    let traces = || Status::of(node, "self").ok()?.capabilities().map(|set| set & SYS_PTRACE != 0);
    match root(node).is_ok() {
        false => "run as root, with all of its capabilities",
        true if traces() == Some(false) => "run it with all of its capabilities: CAP_SYS_PTRACE is missing",
        true => "only outside of this container or sandbox, or without its security module, can that be read",
    }
    .to_owned()
}

/// What helps root where others are told to run as root: what refuses root is a container, a rule of a security
/// module, or a file server.
fn for_root(mend: &str) -> String {
    const REFUSED: &str = "root was refused: look whether vmio runs in a container or without some of root's \
                           capabilities, under SELinux or AppArmor, or whether a file server maps root to nobody";
    let Some((before, rest)) = ["run as root", "run it as root"].iter().find_map(|words| mend.split_once(words)) else {
        return mend.to_owned();
    };
    let other = |how: &str| format!("{before}run it {how}");
    match rest {
        " on the host" => other("on the host itself, not in a container"),
        _ => match ["; if it says the same, ", "; "].iter().find_map(|words| rest.strip_prefix(words)) {
            Some(tail) => format!("{before}{tail}"),
            None => match [", or in ", ", in "].iter().find_map(|words| rest.strip_prefix(words)) {
                Some(place) => other(&format!("in {place}")),
                None if rest.starts_with(", with ") => other(rest.trim_start_matches(", ")),
                None => format!("{before}{REFUSED}"),
            },
        },
    }
}

/// A file whose content can be read.
pub fn readable(node: &dyn Reader, path: &str) -> Result<(), String> {
    node.read(Path::new(path)).map(drop).map_err(|e| e.to_string())
}

/// A feature of the kernel that shows as a path in `/proc`, `/sys` or `/dev`.
pub fn kernel(node: &dyn Reader, feature: &str, path: &str) -> Result<(), String> {
    match node.stat(Path::new(path)) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(format!("no {feature} ({path} is missing)")),
        Err(e) => Err(e.to_string()),
    }
}

/// Effective user id of the process that looks.
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
        Requirement { name: "fio", why: "the workloads", mend: "apt install fio", check: |n| program(n, "fio") };
    const KVM: Requirement = Requirement {
        name: "KVM",
        why: "speed",
        mend: "enable it in the firmware",
        check: |n| kernel(n, "KVM", "/dev/kvm"),
    };

    #[test]
    fn root_is_not_told_to_be_root() {
        let fake = |uid: u32| Fake::new("fake").file("/proc/self/status", format!("Uid:\t{uid}\t{uid}\t0\t0\n"));
        let told = |mend: &str| mend_for(&fake(0), mend);
        for (mend, root) in [
            (
                "run as root, in the mount namespace of the guest's process",
                "run it in the mount namespace of the guest's process",
            ),
            ("run as root; if it says the same, look at the links", "look at the links"),
            ("run as root; if it is missing, see that it runs", "if it is missing, see that it runs"),
            ("run as root, with all of its capabilities", "run it with all of its capabilities"),
            ("look again", "look again"),
        ] {
            assert_eq!((told(mend).as_str(), mend_for(&fake(7), mend).as_str()), (root, mend));
        }
        for mend in ["run as root", "run as root or as a member of group libvirt", "no rights; run as root"] {
            assert!(told(mend).contains("root was refused") && !told(mend).contains("as root"), "{}", told(mend));
        }
    }

    /// Whoever has what is asked for is not told to get it.
    #[test]
    fn links_of_a_process_are_refused_for_a_reason() {
        let told = |uid: u32, set: &str| {
            let status = format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{set}\n");
            mend_for_links(&Fake::new("fake").file("/proc/self/status", status))
        };
        assert_eq!(told(7, "0000000000000000"), "run as root, with all of its capabilities");
        assert!(told(0, "0000000000000000").starts_with("run it with all of its capabilities: CAP_SYS_PTRACE"));
        let guarded = told(0, "000001fffeffffff");
        assert!(guarded.contains("outside of this container or sandbox"), "{guarded}");
        assert!(!guarded.contains("as root") && !guarded.contains("capabilities"), "{guarded}");
        assert_eq!(mend_for(&Fake::new("fake").file("/proc/self/status", "Uid:\t0\t0\t0\t0\n"), &guarded), guarded);
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
        assert_eq!(root(&with("0\t1000\t0\t0")).unwrap_err(), "this is user 1000, not root");
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
        assert!(readable(&fake, "/dev/nothing").unwrap_err().contains("/dev/nothing"));
    }
}
