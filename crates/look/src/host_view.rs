//! Read-only view of this machine for `scan` and `top`: files through a [`Reader`], and a closed list of questions to
//! programs and monitors ([`Questions`]).

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use vmio_model::facts::{Guest, HostSeen, HostState, Provenance, Unread};
use vmio_node::linux::cgroup::Hierarchies;
use vmio_node::linux::mounts::{self, Mount};
use vmio_node::linux::net::Interfaces;
use vmio_node::linux::{process, system};
use vmio_node::qmp::ReadOnly;
use vmio_node::{NetworkAnswer, NetworkQuestion, NoMonitor, Questions, Reader, Unanswered};

pub use vmio_node::Question;

use crate::behind::{Behind, Once};
use crate::host_state;
use crate::neighbours::Others;
use crate::ovs::Ovs;
use crate::require::{self, Fix};

/// Start of the reason where a program failed without a message.
const NO_ANSWER: &str = "no answer";
/// Longest time that a guest's monitor is occupied; its owner must not wait for 50 ms.
pub(crate) const MONITOR_LIMIT: Duration = Duration::from_millis(30);

/// Time for the files of one guest, after which no further file is opened; one file takes a second at most.
const GUEST_TIME: Duration = Duration::from_secs(1);

/// Guests found by a kind, or known to a manager.
#[derive(Debug, Default)]
pub struct Managed {
    /// Running guests. Each has a `pid`, a `uuid` or at least a name, by which the scan matches it to a process. A
    /// manager's have the configured settings besides.
    pub guests: Vec<Guest>,
    /// What could not be read.
    pub unread: Vec<Unread>,
}

/// A process of this machine: its number, name and command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its number.
    pub pid: u32,
    /// Short name (`/proc/PID/comm`).
    pub comm: String,
    /// Command line; empty for a kernel thread, `None` where no permission to read it.
    pub args: Option<Vec<String>>,
}

impl ProcessInfo {
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

/// Read-only view of this machine.
pub struct HostView<'a> {
    node: &'a dyn Questions,
    /// Whether libvirt may be asked to pass a query to a guest's monitor (`--monitor`).
    pub monitor: bool,
    /// Longest time that a monitor is held.
    pub(crate) monitor_limit: Duration,
    /// When the view was made, in seconds since the epoch.
    pub at_unix_seconds: f64,
    processes: OnceLock<(Vec<ProcessInfo>, bool)>,
    seen: OnceLock<HostSeen>,
    state: OnceLock<HostState>,
    /// Time spent on files that a guest's owner chooses, by the guest's process.
    spent: Mutex<BTreeMap<Option<u32>, Duration>>,
    /// Interfaces by number.
    interfaces: OnceLock<BTreeMap<u32, String>>,
    /// Whether `/sys/class/net` was seen to show the network namespace that vmio is in.
    shows_own: AtomicBool,
    /// The mounts of vmio's own mount namespace.
    mounts: OnceLock<Vec<Mount>>,
    groups: OnceLock<Hierarchies>,
    /// What is behind bridges, by their name.
    bridges: Once<Arc<Behind>>,
    ovs: OnceLock<Result<Ovs, Unread>>,
}

impl<'a> HostView<'a> {
    /// A view of a machine.
    pub fn new(node: &'a dyn Questions) -> Self {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        Self {
            node,
            monitor: false,
            monitor_limit: MONITOR_LIMIT,
            at_unix_seconds: at,
            processes: OnceLock::new(),
            seen: OnceLock::new(),
            state: OnceLock::new(),
            spent: Mutex::default(),
            interfaces: OnceLock::new(),
            shows_own: AtomicBool::new(false),
            mounts: OnceLock::new(),
            groups: OnceLock::new(),
            bridges: Once::default(),
            ovs: OnceLock::new(),
        }
    }

    /// Files of the machine.
    pub fn reader(&self) -> &dyn Reader {
        self.node
    }

    /// Reads files that a guest's owner chooses, within the guest's time budget. `None` where that is used up, so that
    /// slow storage of one guest does not delay the scan.
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

    /// Queries a program.
    ///
    /// # Errors
    /// When the program is missing, refuses or does not answer in time, or the question could change something.
    pub fn ask(&self, question: &Question) -> Result<String, Unread> {
        self.ask_as(question, Fix::Root)
    }

    /// As [`HostView::ask`]; `rights` is the fix where the program lacks permission.
    pub(crate) fn ask_as(&self, question: &Question, rights: Fix) -> Result<String, Unread> {
        let unread = |what: String, why: String, fix: Fix| Unread { what, why, mend: fix.remedy(self.reader()) };
        let Some(what) = question.shown(self.reader()) else {
            return Err(unread(format!("{question:?}"), Unanswered::NotReadOnly.to_string(), Fix::Do("report this")));
        };
        if require::find_program(self.reader(), question.program()).is_none() {
            let package = match question.program() {
                "virsh" => "install libvirt-clients",
                _ => "install util-linux",
            };
            return Err(unread(what, format!("no program {} in PATH", question.program()), Fix::Do(package)));
        }
        let by_hand = Fix::Do("run the command manually");
        match self.node.answer(question) {
            Ok(output) if output.ok() => Ok(output.out()),
            Ok(output) => {
                let said = output.err().trim().to_owned();
                let why = if said.is_empty() { format!("{NO_ANSWER} ({:?})", output.end) } else { said };
                let denied = why.to_lowercase().contains("permission denied") || why.contains("authentication");
                Err(unread(what, why, if denied { rights } else { by_hand }))
            }
            Err(e) => Err(unread(what, e.to_string(), by_hand)),
        }
    }

    /// Asks the kernel about the network.
    ///
    /// # Errors
    /// When it cannot be asked, refuses, or its answer makes no sense.
    pub fn network(&self, question: &NetworkQuestion) -> Result<NetworkAnswer, Unanswered> {
        self.node.network(question)
    }

    /// Queries a guest's monitor, for [`MONITOR_LIMIT`] at most from connecting to disconnecting. Returns the result of
    /// `ask`, and how long the monitor was occupied.
    ///
    /// # Errors
    /// When it is missing, refuses or does not greet in time; and how long it was occupied.
    pub(crate) fn monitor<T>(
        &self,
        guest: &str,
        socket: &Path,
        ask: impl FnOnce(&mut ReadOnly) -> T,
    ) -> Result<(T, Duration), (Unread, Duration)> {
        let began = Instant::now();
        let refused = |why: String, fix: Fix| {
            let what = format!("monitor {}", socket.display());
            (Unread { what, why, mend: fix.remedy(self.reader()) }, began.elapsed())
        };
        match self.node.monitor(guest, socket, began + self.monitor_limit) {
            Ok(mut monitor) => {
                let answers = ask(&mut monitor);
                Ok((answers, began.elapsed()))
            }
            Err(NoMonitor::Connect(e)) => Err(match e.kind() {
                Some(ErrorKind::WouldBlock) => refused(
                    "others are already waiting for it; QEMU does not respond".into(),
                    Fix::Do("check that the guest still runs"),
                ),
                _ => refused(e.to_string(), Fix::of(&e, "look again")),
            }),
            Err(NoMonitor::Greeting(e)) => {
                Err(refused(e.to_string(), Fix::Do("scan again when the guest is less busy")))
            }
        }
    }

    /// The processes at the time of the first call, kernel threads included; those that ended meanwhile are left out.
    pub fn processes(&self) -> &[ProcessInfo] {
        &self.listed().0
    }

    /// This machine's interface with a number, at the time of the first call.
    pub(crate) fn interface(&self, index: u32) -> Option<&str> {
        let read = || {
            let here = Interfaces::here(self.reader());
            let names = here.names().unwrap_or_default();
            names.into_iter().filter_map(|name| Some((here.index(&name)?, name))).collect()
        };
        self.interfaces.get_or_init(read).get(&index).map(String::as_str)
    }

    /// Whether `/sys/class/net` shows the network namespace that vmio is in, as `look` finds it by a process that is
    /// there, too; `None` where that process does not tell. Once it was seen it is not looked at again: to compare a
    /// thousand interfaces for each of a thousand guests takes longer than all else.
    pub(crate) fn shows_own_interfaces(&self, look: impl FnOnce() -> Option<bool>) -> Option<bool> {
        if self.shows_own.load(Ordering::Relaxed) {
            return Some(true);
        }
        let shows = look();
        self.shows_own.fetch_or(shows == Some(true), Ordering::Relaxed);
        shows
    }

    /// The mounts of the mount namespace that vmio is in, at the time of the first call; none where they may not be
    /// read.
    pub(crate) fn mounts(&self) -> &[Mount] {
        self.mounts.get_or_init(|| mounts::own(self.reader()).unwrap_or_default())
    }

    /// The hierarchies of control groups among them.
    pub(crate) fn groups(&self) -> &Hierarchies {
        self.groups.get_or_init(|| Hierarchies::among(self.mounts().to_vec()))
    }

    /// What is behind this machine's bridges: all of a bridge's guests have the same.
    pub(crate) fn bridges(&self) -> &Once<Arc<Behind>> {
        &self.bridges
    }

    /// What Open vSwitch's database says, asked once; empty where it does not run.
    ///
    /// # Errors
    /// When it does not answer, or its answer cannot be parsed.
    pub fn ovs(&self) -> Result<&Ovs, &Unread> {
        let ask = || if Ovs::runs(self.reader()) { Ovs::parse(&self.ask(&Question::Ovs)?) } else { Ok(Ovs::default()) };
        self.ovs.get_or_init(ask).as_ref()
    }

    /// Why Open vSwitch said nothing, where it was asked.
    pub(crate) fn ovs_unread(&self) -> Option<Unread> {
        self.ovs.get()?.as_ref().err().cloned()
    }

    /// The host's kernel, at the time of the first call.
    pub(crate) fn seen(&self) -> &HostSeen {
        self.seen.get_or_init(|| {
            let reader = self.reader();
            HostSeen {
                kernel: system::kernel_version(reader),
                // Linux, Documentation/admin-guide/sysctl/kernel.rst; since 6.6.
                io_uring_disabled: system::sysctl(reader, "kernel.io_uring_disabled").ok().and_then(|n| n.parse().ok()),
                clock_source: system::clock_source(reader),
            }
        })
    }

    /// Facts of the machine as a whole, at the time of the first call.
    pub fn state(&self) -> &HostState {
        self.state.get_or_init(|| {
            let of_kernel = |p: &&ProcessInfo| p.comm == "ksmd" && p.args.iter().all(Vec::is_empty);
            host_state::of(self.reader(), self.processes().iter().find(of_kernel).map(|p| p.pid))
        })
    }

    /// A note that guests may be missing, where `/proc` does not show all processes.
    pub fn unseen(&self) -> Option<Unread> {
        let others = Others { hidden: self.listed().1, ..Others::default() };
        let why = others.unseen()?.to_owned();
        Some(Unread { what: "processes".into(), why, mend: Fix::RootOnHost.remedy(self.reader()) })
    }

    /// The processes, and whether some are hidden: no list, no process 1 in it, or one that may not be read.
    fn listed(&self) -> &(Vec<ProcessInfo>, bool) {
        self.processes.get_or_init(|| {
            let reader = self.reader();
            let pids = process::all(reader).unwrap_or_default();
            let mut hidden = !pids.contains(&1);
            let mut note_refusal =
                |error: vmio_node::Error| hidden |= error.kind() == Some(ErrorKind::PermissionDenied);
            let seen = pids.into_iter().filter_map(|pid| {
                let comm = process::comm(reader, pid).map_err(&mut note_refusal).ok()?;
                let args = process::command_line(reader, pid).map_err(&mut note_refusal).ok();
                Some(ProcessInfo { pid, comm, args })
            });
            let seen = seen.collect();
            (seen, hidden)
        })
    }

    /// A provenance with the time of this view.
    pub fn from(&self, guest: &str, read_from: impl Into<String>) -> Provenance {
        Provenance::Live { guest: guest.to_owned(), read_from: read_from.into(), at_unix_seconds: self.at_unix_seconds }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_model::facts::Remedy;
    use vmio_node::fake::{Fake, fails, says};

    fn virsh(command: &str) -> Question {
        Question::Virsh { uri: "qemu:///system".into(), commands: vec![command.into()] }
    }

    #[test]
    fn what_does_more_than_read_is_not_asked() {
        let fake = Fake::new("fake");
        let refused = HostView::new(&fake).ask(&virsh("destroy web1")).unwrap_err();
        assert!(refused.why.contains("read-only") && fake.ran().is_empty());
    }

    #[test]
    fn what_cannot_be_asked_says_why_and_what_helps() {
        let none = Fake::new("fake");
        let unread = HostView::new(&none).ask(&virsh("list")).unwrap_err();
        assert!(unread.why.contains("no program virsh") && unread.mend.contains("libvirt-clients"), "{unread:?}");
        let denied = Fake::new("fake")
            .installed("virsh")
            .program("virsh", fails(1, "error: Failed to connect socket: Permission denied"));
        assert_eq!(HostView::new(&denied).ask(&virsh("list")).unwrap_err().mend, Remedy::Root);
        let there = Fake::new("fake").installed("virsh").program("virsh", says(" 1 web1 running\n"));
        assert_eq!(HostView::new(&there).ask(&virsh("list")).unwrap(), " 1 web1 running\n");
    }

    #[test]
    fn hidden_processes_are_told() {
        let some = Fake::new("fake").file("/proc/7/comm", "sh\n").file("/proc/7/cmdline", "sh\0");
        assert!(HostView::new(&some).unseen().unwrap().why.contains("there may be more guests"));
        assert!(HostView::new(&Fake::new("fake")).unseen().is_some());
        let all = some.file("/proc/1/comm", "init\n").file("/proc/1/cmdline", "init\0");
        assert_eq!(HostView::new(&all).unseen(), None);
    }
}
