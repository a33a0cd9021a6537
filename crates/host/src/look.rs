//! How code that only looks (`scan`, `top`) sees this machine: files through a [`Reader`], and a
//! short list of questions to programs. The list is closed: each [`Question`] becomes one command
//! that reads, so nothing that looks can change a guest or the host, whatever is wrong in it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use vmio_model::facts::{Provenance, Unread};
use vmio_node::{Exec, Node, Reader};

use crate::gentle::neighbours::{Others, split};
use crate::guests::qemu::qmp::ReadOnly;
use crate::require;

/// What may be asked of a program. Each only reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Question {
    /// How many bytes of files the page cache holds: `fincore --json --bytes`.
    PageCache {
        /// Files.
        paths: Vec<PathBuf>,
    },
    /// Commands of one read-only `virsh` session: `list`, `dumpxml`, `domstats`, `domblkinfo`.
    Virsh {
        /// Where libvirt is: `qemu:///system`.
        uri: String,
        /// The commands, one a line; see [`Question::command`] for those that are allowed.
        commands: Vec<String>,
    },
    /// A command to a guest's monitor through libvirt (`virsh qemu-monitor-command`). libvirt marks
    /// a guest as tainted by it, so it is asked only with `--monitor`. Only `query-` commands.
    VirshMonitor {
        /// Where libvirt is.
        uri: String,
        /// Domain.
        domain: String,
        /// A QMP command without arguments: `query-block`.
        command: String,
    },
}

/// What `virsh` is asked: all of these only read (virsh(1)).
const VIRSH: [&str; 6] = ["list", "dumpxml", "domstats", "dominfo", "domblkinfo", "iothreadinfo"];
/// How a refusal begins where the program said nothing at all.
const NO_ANSWER: &str = "no answer";
/// Longest time for an answer: a dead file server or daemon never gives one.
const LIMIT: Duration = Duration::from_secs(5);

/// Longest time that a guest's monitor is held: a look must not keep its owner waiting for 50 ms.
pub(crate) const MONITOR_LIMIT: Duration = Duration::from_millis(30);

/// Bytes of a command line that are looked at; that of a guest with 200 disks has a third of it. A process can
/// make its own as long as its memory (prctl(2), `PR_SET_MM_MAP`).
pub(crate) const COMMAND_LINE_BYTES: usize = 512 << 10;

/// Bytes of a table of mounts that are looked at: a process can have 100,000 of its own.
pub(crate) const MOUNTS_BYTES: usize = 4 << 20;

/// Time for the files of one guest, after which none is begun to be looked at; one takes a second at most.
const GUEST_TIME: Duration = Duration::from_secs(1);

impl Question {
    /// The command; `None` when it is not one of those that only read.
    pub fn command(&self) -> Option<Exec> {
        let plain = |text: &str| !text.contains(['\n', ';', '\'', '"', '\\']);
        Some(match self {
            Question::PageCache { paths } => {
                Exec::new("fincore").args(["--json", "--bytes"]).args(paths.iter().map(|p| p.display().to_string()))
            }
            Question::Virsh { uri, commands } => {
                let known = |c: &String| VIRSH.contains(&c.split(' ').next().unwrap_or_default()) && plain(c);
                if !commands.iter().all(known) {
                    return None;
                }
                let script: String = commands.iter().map(|c| format!("{c}\n")).collect();
                let mut command = Exec::new("virsh").args(["--readonly", "--quiet", "--connect", uri]);
                command.stdin = script.into_bytes();
                command
            }
            Question::VirshMonitor { uri, domain, command } => {
                let reads = command
                    .strip_prefix("query-")
                    .is_some_and(|c| !c.is_empty() && c.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
                if !reads || domain.starts_with('-') {
                    return None;
                }
                let json = format!("{{\"execute\": \"{command}\"}}");
                Exec::new("virsh").args(["--quiet", "--connect", uri, "qemu-monitor-command", domain, &json])
            }
        })
    }
}

/// A process of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub pid: u32,
    /// Short name (`/proc/PID/comm`).
    pub comm: String,
    /// Command line; empty for a kernel thread, `None` where no permission to read it.
    pub args: Option<Vec<String>>,
}

impl Seen {
    /// File name of the program, from the first argument; the short name for a kernel thread.
    pub fn program(&self) -> &str {
        let first = self.args.iter().flatten().next().map_or("", |a| a.as_str());
        let base = first.rsplit('/').next().unwrap_or_default();
        if base.is_empty() { &self.comm } else { base }
    }

    /// `/proc/PID`.
    pub fn dir(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.pid))
    }
}

/// This machine to those who only look.
pub struct Look<'a> {
    node: &'a dyn Node,
    /// Whether libvirt may be asked to pass a query to a guest's monitor (`--monitor`).
    pub monitor: bool,
    /// When it was looked, in seconds since the epoch.
    pub at_unix_seconds: f64,
    processes: OnceLock<(Vec<Seen>, bool)>,
    /// Time that files took which a guest has a hand in, by its process.
    spent: Mutex<BTreeMap<Option<u32>, Duration>>,
}

impl<'a> Look<'a> {
    /// Looks at a machine.
    pub fn new(node: &'a dyn Node) -> Self {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        Self { node, monitor: false, at_unix_seconds: at, processes: OnceLock::new(), spent: Mutex::default() }
    }

    /// Files of the machine.
    pub fn reader(&self) -> &dyn Reader {
        self.node.reader()
    }

    /// Looks at what a guest has a hand in (the files that its command line names), in its own time: `None`
    /// where that is used up, so that no guest keeps a scan for long, whatever its storage is.
    pub(crate) fn charged<T>(&self, pid: Option<u32>, work: impl FnOnce() -> T) -> Option<T> {
        let spent = || self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if spent().get(&pid).is_some_and(|spent| *spent >= GUEST_TIME) {
            return None;
        }
        let begun = Instant::now();
        let done = work();
        *spent().entry(pid).or_default() += begun.elapsed();
        Some(done)
    }

    /// Asks a program.
    ///
    /// # Errors
    /// When it is not there, refuses, gives no answer in time, or the question is none that only
    /// reads: what, why, and what would let it answer.
    pub fn ask(&self, question: &Question) -> Result<String, Unread> {
        let unread = |what: String, why: String, mend: &str| Unread { what, why, mend: mend.to_owned() };
        let Some(command) = question.command() else {
            return Err(unread(format!("{question:?}"), "it is not a read-only query".into(), "report this"));
        };
        let what = command.shown();
        if require::find_program(self.reader(), &command.program).is_none() {
            let package = match command.program.as_str() {
                "virsh" => "install libvirt-clients",
                _ => "install util-linux",
            };
            return Err(unread(what, format!("no program {} in PATH", command.program), package));
        }
        match self.node.exec(&command.limit(LIMIT)) {
            Ok(output) if output.ok() => Ok(output.out()),
            Ok(output) => {
                let said = output.err().trim().to_owned();
                let why = if said.is_empty() { format!("{NO_ANSWER} ({:?})", output.end) } else { said };
                let denied = why.to_lowercase().contains("permission denied") || why.contains("authentication");
                let mend = if denied { "run as root" } else { "run the command by hand" };
                Err(unread(what, why, mend))
            }
            Err(e) => Err(unread(what, e.to_string(), "run the command by hand")),
        }
    }

    /// Asks a guest's monitor, for [`MONITOR_LIMIT`] at most from the connection to its end; gives
    /// what `ask` made of it, and how long the monitor was held.
    ///
    /// # Errors
    /// When it is not there, may not be used, or does not greet in time; and how long it was held.
    pub(crate) fn monitor<T>(
        &self,
        guest: &str,
        socket: &Path,
        ask: impl FnOnce(&mut ReadOnly) -> T,
    ) -> Result<(T, Duration), (Unread, Duration)> {
        let began = Instant::now();
        let refused = |why: String, mend: &str| {
            let what = format!("monitor {}", socket.display());
            (Unread { what, why, mend: mend.to_owned() }, began.elapsed())
        };
        let stream = self.node.connect(socket).map_err(|e| match &e {
            vmio_node::Error::File { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
                refused(e.to_string(), "run as root")
            }
            vmio_node::Error::File { source, .. } if source.kind() == ErrorKind::WouldBlock => refused(
                "others are already waiting for it; QEMU does not respond".into(),
                "check that the guest still runs",
            ),
            _ => refused(e.to_string(), "look again"),
        })?;
        let answered = ReadOnly::over(guest, stream, began + MONITOR_LIMIT).map(|mut monitor| ask(&mut monitor));
        match answered {
            Ok(answers) => Ok((answers, began.elapsed())),
            Err(e) => Err(refused(e.to_string(), "scan again when the guest is less busy")),
        }
    }

    /// The processes as they were at the first call; threads and kernel threads' names included,
    /// those that ended meanwhile left out.
    pub fn processes(&self) -> &[Seen] {
        &self.listed().0
    }

    /// That there may be more guests than are seen, where `/proc` does not show all processes.
    pub fn unseen(&self) -> Option<Unread> {
        let others = Others { hidden: self.listed().1, ..Others::default() };
        Some(Unread { what: "processes".into(), why: others.unseen()?.into(), mend: "run as root on the host".into() })
    }

    /// The processes, and whether others are hidden: no list, no process 1 in it, or some that may not
    /// be read.
    fn listed(&self) -> &(Vec<Seen>, bool) {
        self.processes.get_or_init(|| {
            let reader = self.reader();
            let names = reader.list(Path::new("/proc")).unwrap_or_default();
            let mut hidden = !names.iter().any(|n| n == "1");
            let mut read = |path: PathBuf| match reader.read_start(&path, COMMAND_LINE_BYTES) {
                Ok(bytes) => Some(bytes),
                Err(vmio_node::Error::File { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
                    hidden = true;
                    None
                }
                Err(_) => None,
            };
            let pids = names.iter().filter_map(|n| n.parse::<u32>().ok());
            let seen = pids.filter_map(|pid| {
                let dir = PathBuf::from(format!("/proc/{pid}"));
                let comm = String::from_utf8_lossy(&read(dir.join("comm"))?).trim_end().to_owned();
                Some(Seen { pid, comm, args: read(dir.join("cmdline")).map(|bytes| split(&bytes)) })
            });
            let seen = seen.collect();
            (seen, hidden)
        })
    }

    /// A provenance of now.
    pub fn from(&self, guest: &str, read_from: impl Into<String>) -> Provenance {
        Provenance::Live { guest: guest.to_owned(), read_from: read_from.into(), at_unix_seconds: self.at_unix_seconds }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_node::fake::{Fake, fails, says};

    fn virsh(command: &str) -> Question {
        Question::Virsh { uri: "qemu:///system".into(), commands: vec![command.into()] }
    }

    #[test]
    fn only_what_reads_can_be_asked() {
        assert!(virsh("dumpxml web1").command().is_some());
        for wrong in ["destroy web1", "dumpxml web1; destroy web1", "dumpxml web1\ndestroy web1", "domstatsx", ""] {
            assert_eq!(virsh(wrong).command(), None, "{wrong}");
        }
        let monitor = |command: &str| Question::VirshMonitor {
            uri: "qemu:///system".into(),
            domain: "web1".into(),
            command: command.into(),
        };
        assert!(monitor("query-block").command().is_some());
        for wrong in ["quit", "query-", "query-block\"}, {\"", "device_del"] {
            assert_eq!(monitor(wrong).command(), None, "{wrong}");
        }
        let fake = Fake::new("fake");
        let refused = Look::new(&fake).ask(&virsh("destroy web1")).unwrap_err();
        assert!(refused.why.contains("read-only") && fake.ran().is_empty());
    }

    #[test]
    fn what_cannot_be_asked_says_why_and_what_helps() {
        let none = Fake::new("fake");
        let unread = Look::new(&none).ask(&virsh("list")).unwrap_err();
        assert!(unread.why.contains("no program virsh") && unread.mend.contains("libvirt-clients"), "{unread:?}");
        let denied = Fake::new("fake")
            .installed("virsh")
            .program("virsh", fails(1, "error: Failed to connect socket: Permission denied"));
        assert_eq!(Look::new(&denied).ask(&virsh("list")).unwrap_err().mend, "run as root");
        let there = Fake::new("fake").installed("virsh").program("virsh", says(" 1 web1 running\n"));
        assert_eq!(Look::new(&there).ask(&virsh("list")).unwrap(), " 1 web1 running\n");
    }

    #[test]
    fn hidden_processes_are_told() {
        let some = Fake::new("fake").file("/proc/7/comm", "sh\n").file("/proc/7/cmdline", "sh\0");
        assert!(Look::new(&some).unseen().unwrap().why.contains("there may be more guests"));
        assert!(Look::new(&Fake::new("fake")).unseen().is_some());
        let all = some.file("/proc/1/comm", "init\n").file("/proc/1/cmdline", "init\0");
        assert_eq!(Look::new(&all).unseen(), None);
    }
}
