//! A process that runs a guest, as /proc shows it (proc(5)); its command line is read as QEMU's.

use std::cell::OnceCell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use vmio_model::facts::{CommandLineOption, Provenance, Source, Unread};
use vmio_node::linux::mounts::{self, Mount, NetworkMount};
use vmio_node::linux::net::{self, Interfaces};
use vmio_node::linux::process;
use vmio_node::{Error, FileStat, Reader};

use crate::host_view::HostView;
use crate::qemu::options::CommandLine;
use crate::require::Fix;

/// What is said of a setting that QEMU was not given.
pub const DEFAULT: Source = Source::QemuDefault;

/// A process that runs a guest.
pub struct Process<'a> {
    /// This machine.
    pub look: &'a HostView<'a>,
    /// Its number.
    pub pid: u32,
    /// Its command line.
    pub line: CommandLine,
    /// Arguments as they are.
    pub args: &'a [String],
    /// The guest's name.
    pub name: String,
    fds: OnceCell<Result<Vec<(u32, String)>, Unread>>,
    interfaces: OnceCell<Option<Interfaces<'a>>>,
    mounts: OnceCell<Vec<Mount>>,
}

impl<'a> Process<'a> {
    /// A process with that command line.
    pub fn new(look: &'a HostView<'a>, pid: u32, args: &'a [String]) -> Self {
        let line = CommandLine::parse(args);
        let name = line.guest_name().map_or_else(|| format!("pid {pid}"), str::to_owned);
        Self { look, pid, line, args, name, fds: OnceCell::new(), interfaces: OnceCell::new(), mounts: OnceCell::new() }
    }

    /// The machine's files.
    pub fn reader(&self) -> &'a dyn Reader {
        self.look.reader()
    }

    /// `/proc/PID/PATH`.
    pub fn path(&self, path: &str) -> PathBuf {
        process::file(self.pid, path)
    }

    /// Its command line as a place where something was read.
    pub fn provenance(&self) -> Provenance {
        self.look.from(&self.name, format!("/proc/{}/cmdline", self.pid))
    }

    /// An option of the command line as a source.
    pub fn option(&self, name: &str) -> Source {
        CommandLineOption::new(self.pid, name).into()
    }

    /// An option by what stands at its head or by keys of it.
    pub fn option_by(&self, name: &str, kind: Option<&'static str>, keys: Option<&'static str>) -> Source {
        CommandLineOption { kind, keys, ..CommandLineOption::new(self.pid, name) }.into()
    }

    /// Whether it still runs.
    pub fn runs(&self) -> bool {
        process::comm(self.reader(), self.pid).is_ok()
    }

    /// Its open files by descriptor, with what each is (`/dev/net/tun`, `anon_inode:kvm-vm`).
    pub fn fds(&self) -> Result<&[(u32, String)], Unread> {
        let read = || {
            let open = process::descriptors(self.reader(), self.pid);
            let open = open.map_err(|e| unread(self.reader(), format!("open files of guest {}", self.name), &e))?;
            Ok(open.into_iter().map(|(fd, to)| (fd, to.display().to_string())).collect())
        };
        self.fds.get_or_init(read).as_deref().map_err(Clone::clone)
    }

    /// What descriptor `fd` is.
    pub fn fd(&self, fd: u32) -> Option<String> {
        Some(process::descriptor(self.reader(), self.pid, fd).ok()??.display().to_string())
    }

    /// Interface of a descriptor of /dev/net/tun (`iff:` in fdinfo, Linux drivers/net/tun.c).
    ///
    /// # Errors
    /// When no permission to read it.
    pub fn tun(&self, fd: u32) -> Result<Option<String>, Error> {
        let text = self.reader().read_text(&self.path(&format!("fdinfo/{fd}")))?;
        let name = process::fdinfo(&text, "iff");
        Ok(name.filter(|n| !n.is_empty()).map(str::to_owned))
    }

    /// Its mounts; none where they may not be read.
    pub fn mounts(&self) -> &[Mount] {
        self.mounts.get_or_init(|| mounts::of_process(self.reader(), self.pid).unwrap_or_default())
    }

    /// The file server that holds a path as the process names it, by its mounts.
    pub fn server(&self, path: &str) -> Option<NetworkMount> {
        mounts::server_of(self.mounts(), Path::new(path))
    }

    /// A path of the process as an absolute one: a relative one counts from its working directory. `None` where
    /// that may not be read.
    pub fn absolute(&self, path: &str) -> Option<String> {
        if path.starts_with('/') {
            return Some(path.to_owned());
        }
        let link = |name: &str| self.reader().link(&self.path(name)).ok().flatten();
        let cwd = link("cwd")?;
        // Both as we see them.
        let inner = link("root").and_then(|root| cwd.strip_prefix(root).ok().map(|inner| Path::new("/").join(inner)));
        let plain = path.trim_start_matches("./");
        let here = inner.unwrap_or(cwd).join(plain).display().to_string();
        // With -daemonize QEMU is in / by now, and was elsewhere when it opened its files.
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

    /// What a file of its is, and where it is for us: QEMU may be in another mount namespace, as
    /// libvirt's are.
    pub fn stat(&self, path: &str) -> (PathBuf, Result<Option<FileStat>, Error>) {
        let inside = self.path("root").join(path.trim_start_matches('/'));
        let stat = |path: &Path| {
            let late = || {
                Err(Error::File {
                    node: self.reader().name().to_owned(),
                    what: "look at",
                    path: path.to_owned(),
                    source: std::io::Error::new(ErrorKind::TimedOut, "the guest's files took all the time for it"),
                })
            };
            self.look.charged(Some(self.pid), || self.reader().stat_foreign(path)).unwrap_or_else(late)
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

    /// The network interfaces that its own mounts show.
    pub fn inner_interfaces(&self) -> Interfaces<'a> {
        Interfaces::shown_at(self.reader(), self.path("root/sys/class/net"))
    }

    /// The network interfaces that it sees, where they can be seen from here: this machine's, or those of its own
    /// mounts when it is in another network namespace.
    pub fn interfaces(&self) -> Option<&Interfaces<'a>> {
        let find = || {
            // Another user's may not be told: then the interfaces alone decide.
            let same = process::same_namespace(self.reader(), self.pid, "net");
            let here = same.then(|| Interfaces::here(self.reader()));
            let candidates = [here, Some(self.inner_interfaces())];
            candidates.into_iter().flatten().find(|all| self.shows_its_interfaces(all))
        };
        self.interfaces.get_or_init(find).as_ref()
    }

    /// A sysfs shows the network namespace that it was mounted in, whoever looks. Whether that is
    /// the process's is seen by the names in it.
    fn shows_its_interfaces(&self, all: &Interfaces<'_>) -> bool {
        let names = || {
            let there = all.names().ok()?;
            let Ok(table) = self.reader().read_text(&self.path("net/dev")) else { return Some(true) };
            let mut known: Vec<&str> = net::names(&table).collect();
            known.sort_unstable();
            Some(known == there)
        };
        // Once more, since an interface may have come or gone in between.
        names() == Some(true) || names() == Some(true)
    }
}

/// Something that could not be read, and what would help.
pub fn unread(reader: &dyn Reader, what: impl Into<String>, error: &Error) -> Unread {
    let why = match error.kind() {
        Some(ErrorKind::NotFound) => "it no longer exists, or this kernel does not provide it".to_owned(),
        _ => error.to_string(),
    };
    let otherwise = match error.kind() {
        Some(ErrorKind::TimedOut) => "check that its storage responds",
        _ => "look again",
    };
    Unread { what: what.into(), why, mend: Fix::of(error, otherwise).words(reader) }
}
