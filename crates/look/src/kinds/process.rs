//! A process that runs a guest, by /proc (proc(5)); its command line is parsed as QEMU's.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use vmio_model::facts::{CommandLineOption, Provenance, Source, Unread};
use vmio_node::linux::mounts::{self, Mount, NetworkMount};
use vmio_node::linux::net::{self, Interfaces};
use vmio_node::linux::process;
use vmio_node::{Error, FileStat, Reader};

use crate::host_view::HostView;
use crate::qemu::options::{CommandLine, Opt};
use crate::require::Fix;

/// How often a process's interfaces are compared with those that a sysfs shows.
const LOOKS: usize = 3;

/// Source of a setting that the command line does not name.
pub const DEFAULT: Source = Source::QemuDefault;

/// A process that runs a guest.
pub struct Process<'a> {
    /// This machine.
    pub host: &'a HostView<'a>,
    /// Its number.
    pub pid: u32,
    /// Its command line.
    pub line: CommandLine,
    /// The arguments.
    pub args: &'a [String],
    /// The guest's name.
    pub name: String,
    /// Where options were read that are not on the command line.
    elsewhere: BTreeMap<String, String>,
    fds: OnceCell<Result<Vec<(u32, String)>, Unread>>,
    interfaces: OnceCell<Option<Interfaces<'a>>>,
    /// `None` where they are vmio's own.
    mounts: OnceCell<Option<Vec<Mount>>>,
}

impl<'a> Process<'a> {
    /// A process with that command line.
    pub fn new(host: &'a HostView<'a>, pid: u32, args: &'a [String]) -> Self {
        let line = CommandLine::parse(args);
        let name = line.guest_name().map_or_else(|| format!("pid {pid}"), str::to_owned);
        Self {
            host,
            pid,
            line,
            args,
            name,
            elsewhere: BTreeMap::new(),
            fds: OnceCell::new(),
            interfaces: OnceCell::new(),
            mounts: OnceCell::new(),
        }
    }

    /// Adds options to its command line that QEMU got elsewhere, as `place` says.
    pub fn take(&mut self, options: Vec<Opt>, place: &str) {
        for option in &options {
            if self.elsewhere.contains_key(&option.name) || self.line.all(&option.name).next().is_none() {
                self.elsewhere.insert(option.name.clone(), place.to_owned());
            }
        }
        self.line.take(options);
    }

    /// The machine's files.
    pub fn reader(&self) -> &'a dyn Reader {
        self.host.reader()
    }

    /// `/proc/PID/PATH`.
    pub fn path(&self, path: &str) -> PathBuf {
        process::file(self.pid, path)
    }

    /// Provenance of its command line.
    pub fn provenance(&self) -> Provenance {
        self.host.from(&self.name, format!("/proc/{}/cmdline", self.pid))
    }

    /// Source of a setting: an option of the command line, or where it was read instead.
    pub fn option(&self, name: &str) -> Source {
        self.option_by(name, None, None)
    }

    /// As [`Process::option`], narrowed to a kind or to keys.
    pub fn option_by(&self, name: &str, kind: Option<&'static str>, keys: Option<&'static str>) -> Source {
        match self.elsewhere.get(name) {
            Some(place) => Source::Place(place.clone()),
            None => CommandLineOption { kind, keys, ..CommandLineOption::new(self.pid, name) }.into(),
        }
    }

    /// Whether it still runs.
    pub fn runs(&self) -> bool {
        process::comm(self.reader(), self.pid).is_ok()
    }

    /// Its open files: descriptor and target (`/dev/net/tun`, `anon_inode:kvm-vm`).
    pub fn fds(&self) -> Result<&[(u32, String)], Unread> {
        let read = || {
            let open = process::descriptors(self.reader(), self.pid);
            let open = open.map_err(|e| unread(self.reader(), format!("open files of guest {}", self.name), &e))?;
            Ok(open.into_iter().map(|(fd, to)| (fd, to.display().to_string())).collect())
        };
        self.fds.get_or_init(read).as_deref().map_err(Clone::clone)
    }

    /// Target of a descriptor.
    pub fn fd(&self, fd: u32) -> Option<String> {
        Some(process::descriptor(self.reader(), self.pid, fd).ok()??.display().to_string())
    }

    /// Interface of a descriptor of /dev/net/tun (`iff:` in fdinfo, Linux drivers/net/tun.c).
    ///
    /// # Errors
    /// When it may not be read.
    pub fn tun(&self, fd: u32) -> Result<Option<String>, Error> {
        let text = self.reader().read_text(&self.path(&format!("fdinfo/{fd}")))?;
        let name = process::fdinfo(&text, "iff");
        Ok(name.filter(|n| !n.is_empty()).map(str::to_owned))
    }

    /// Its mounts; empty where they may not be read.
    pub fn mounts(&self) -> &[Mount] {
        let read = || mounts::of_process(self.reader(), self.pid).unwrap_or_default();
        let own = self.mounts.get_or_init(|| (!self.has_vmios_mounts()).then(read));
        own.as_deref().unwrap_or_else(|| self.host.mounts())
    }

    /// Whether its table of mounts is that of vmio's process: both have one mount namespace and one root directory.
    fn has_vmios_mounts(&self) -> bool {
        let link = |path: PathBuf| self.reader().link(&path).ok().flatten();
        let is_same = |name: &str| {
            let theirs = link(self.path(name));
            theirs.is_some() && theirs == link(process::file("self", name))
        };
        is_same("ns/mnt") && is_same("root")
    }

    /// The file server that holds a path of the process, by its mounts.
    pub fn server(&self, path: &str) -> Option<NetworkMount> {
        mounts::server_of(self.mounts(), Path::new(path))
    }

    /// Makes a path of the process absolute: a relative one counts from its working directory. `None` where that may
    /// not be read.
    pub fn absolute(&self, path: &str) -> Option<String> {
        if path.starts_with('/') {
            return Some(path.to_owned());
        }
        let link = |name: &str| self.reader().link(&self.path(name)).ok().flatten();
        let cwd = link("cwd")?;
        // Both links as seen from here.
        let inner = link("root").and_then(|root| cwd.strip_prefix(root).ok().map(|inner| Path::new("/").join(inner)));
        let plain = path.trim_start_matches("./");
        let here = inner.unwrap_or(cwd).join(plain).display().to_string();
        // With -daemonize QEMU changes to / after it opened its files: match its open files instead.
        let open = self.fds().unwrap_or_default().iter().map(|(_, to)| to.strip_suffix(" (deleted)").unwrap_or(to));
        let mut ends: Vec<&str> =
            open.filter(|to| to.strip_suffix(plain).is_some_and(|dir| dir.ends_with('/'))).collect();
        ends.sort_unstable();
        ends.dedup();
        match ends[..] {
            [elsewhere] => Some(elsewhere.to_owned()),
            _ => Some(here),
        }
    }

    /// Status of a file, and its path on this machine: QEMU may be in another mount namespace, as libvirt's are.
    pub fn stat(&self, path: &str) -> (PathBuf, Result<Option<FileStat>, Error>) {
        let inside = self.path("root").join(path.trim_start_matches('/'));
        let stat = |path: &Path| {
            let late = || {
                Err(Error::File {
                    node: self.reader().name().to_owned(),
                    what: "look at",
                    path: path.to_owned(),
                    source: std::io::Error::new(
                        ErrorKind::TimedOut,
                        "reading the guest's files used up its time limit",
                    ),
                })
            };
            self.host.charged(Some(self.pid), || self.reader().stat_foreign(path)).unwrap_or_else(late)
        };
        match stat(&inside) {
            Ok(Some(stat)) => (inside, Ok(Some(stat))),
            Err(Error::File { source, what, node, .. }) if source.kind() == ErrorKind::TimedOut => {
                let path = PathBuf::from(path);
                (path.clone(), Err(Error::File { node, what, path, source }))
            }
            _ => (path.into(), stat(Path::new(path))),
        }
    }

    /// The network interfaces in its own /sys.
    pub fn inner_interfaces(&self) -> Interfaces<'a> {
        Interfaces::shown_at(self.reader(), self.path("root/sys/class/net"))
    }

    /// The network interfaces that it sees: this machine's, or those in its own /sys where it is in another network
    /// namespace. `None` where they are not visible.
    pub fn interfaces(&self) -> Option<&Interfaces<'a>> {
        let find = || {
            let reader = self.reader();
            let namespace = process::namespace(reader, self.pid, "net").ok().flatten();
            let is_ours = namespace.is_some() && namespace == process::namespace(reader, "self", "net").ok().flatten();
            let here = Interfaces::here(reader);
            let shows_here = || self.shows_its_interfaces(&here);
            // The namespace of another user's process may be unreadable: then the interfaces decide.
            let is_here = match namespace {
                _ if is_ours => self.host.shows_own_interfaces(shows_here),
                Some(_) => Some(false),
                None => shows_here(),
            };
            // What a process does not tell is taken for the same.
            if is_here.unwrap_or(true) {
                return Some(here);
            }
            Some(self.inner_interfaces()).filter(|all| self.shows_its_interfaces(all).unwrap_or(true))
        };
        self.interfaces.get_or_init(find).as_ref()
    }

    /// A sysfs shows the network namespace of whoever mounted it. Whether that is the process's is decided by the names
    /// in it; `None` where the process's own may not be read.
    fn shows_its_interfaces(&self, all: &Interfaces<'_>) -> Option<bool> {
        let known = || {
            let table = self.reader().read_text(&self.path("net/dev")).ok()?;
            Some(net::names(&table).map(str::to_owned).collect::<BTreeSet<String>>())
        };
        let shows = || {
            let before = known();
            let Ok(there) = all.names() else { return Some(false) };
            let before = before?;
            let there: BTreeSet<String> = there.into_iter().collect();
            Some(before == there || known().is_some_and(|after| are_between(&there, &before, &after)))
        };
        // Tried again, since an interface may have come and gone meanwhile.
        (0..LOOKS).map(|_| shows()).find(|shows| *shows != Some(false)).unwrap_or(Some(false))
    }
}

/// Whether names were read between two looks at a table that had them: what came or went is in one of both.
fn are_between(there: &BTreeSet<String>, before: &BTreeSet<String>, after: &BTreeSet<String>) -> bool {
    let stayed = before.intersection(after).all(|name| there.contains(name));
    stayed && there.iter().all(|name| before.contains(name) || after.contains(name))
}

/// An unread setting, after an error.
pub fn unread(reader: &dyn Reader, what: impl Into<String>, error: &Error) -> Unread {
    let why = match error.kind() {
        Some(ErrorKind::NotFound) => "it no longer exists, or this kernel does not provide it".to_owned(),
        _ => error.to_string(),
    };
    let otherwise = match error.kind() {
        Some(ErrorKind::TimedOut) => "check that its storage responds",
        _ => "look again",
    };
    Unread { what: what.into(), why, mend: Fix::of(error, otherwise).remedy(reader) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmio_node::Fake;

    #[test]
    fn the_hosts_interfaces_are_compared_once() {
        let table = |name: &str| format!("Inter-|\n face |\n  {name}: 1 2\n");
        let fake = Fake::new("fake")
            .file("/sys/class/net/tap0/mtu", "1500\n")
            .symlink("/proc/self/ns/net", "net:[1]")
            .symlink("/proc/8/ns/net", "net:[1]")
            .file("/proc/8/net/dev", table("tap0"))
            .symlink("/proc/9/ns/net", "net:[1]")
            .file("/proc/9/net/dev", table("eth0"))
            .symlink("/proc/10/ns/net", "net:[2]")
            .symlink("/proc/11/ns/net", "net:[1]");
        let host = HostView::new(&fake);
        let is_here = |pid: u32| Process::new(&host, pid, &[]).interfaces().is_some_and(Interfaces::is_here);
        assert!(is_here(11), "taken for the same, since it does not tell");
        assert!(!is_here(9), "they do not fit");
        assert!(is_here(8) && is_here(9), "seen by one process of the namespace");
        assert!(!is_here(10), "another namespace");
    }

    #[test]
    fn mounts_are_vmios_where_a_process_sees_the_same() {
        let server = |namespace: &str, root: &str| {
            let fake = Fake::new("fake")
                .file("/proc/self/mountinfo", "23 22 0:21 / /srv rw - nfs4 nas:/vm rw\n")
                .file("/proc/8/mountinfo", "")
                .symlink("/proc/self/ns/mnt", "mnt:[1]")
                .symlink("/proc/self/root", "/")
                .symlink("/proc/8/ns/mnt", namespace)
                .symlink("/proc/8/root", root);
            Process::new(&HostView::new(&fake), 8, &[]).server("/srv/a.raw").is_some()
        };
        assert!(server("mnt:[1]", "/"));
        assert!(!server("mnt:[2]", "/") && !server("mnt:[1]", "/jail"));
    }

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_comes_or_goes_meanwhile_is_no_other_namespace() {
        let is =
            |there: &[&str], before: &[&str], after: &[&str]| are_between(&names(there), &names(before), &names(after));
        assert!(is(&["lo", "tap0", "tap1"], &["lo", "tap0"], &["lo", "tap0", "tap1"]), "it came");
        assert!(is(&["lo", "tap0"], &["lo", "tap0", "tap1"], &["lo", "tap0"]), "it went");
        assert!(is(&["lo", "tap1"], &["lo", "tap0"], &["lo", "tap1"]), "one went, another came");
        assert!(!is(&["lo", "eth0"], &["lo", "tap0"], &["lo", "tap0"]), "another namespace");
        assert!(!is(&["lo"], &["lo", "tap0"], &["lo", "tap0", "tap1"]), "another one, where a tap came");
    }
}
