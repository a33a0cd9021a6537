//! What those who only look may ask of a machine's programs. The list is closed: each [`Question`]
//! becomes one command that reads, so nothing that looks can change a guest or the host, whatever is
//! wrong in it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::ethtool::{Offloads, Rings};
use crate::netlink::tc::{Class, Filter, Qdisc};
use crate::node::programs::find_program;
use crate::node::{Error, Exec, Node, Output, Reader};
use crate::qmp::{self, ReadOnly};

/// A machine to those who only look: files, and a closed list of questions.
pub trait Questions: Reader {
    /// Asks a program.
    ///
    /// # Errors
    /// [`Unanswered`].
    fn answer(&self, question: &Question) -> Result<Output, Unanswered>;

    /// Asks the kernel about the network; see [`NetworkQuestion`].
    ///
    /// # Errors
    /// [`Unanswered`].
    fn network(&self, question: &NetworkQuestion) -> Result<NetworkAnswer, Unanswered>;

    /// Opens a guest's monitor for a closed list of queries, until that time.
    ///
    /// # Errors
    /// [`NoMonitor`].
    fn monitor(&self, guest: &str, socket: &Path, until: Instant) -> Result<ReadOnly, NoMonitor>;
}

/// Why a program, or the kernel, gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The question is none that only reads.
    #[error("it is not a read-only query")]
    NotReadOnly,
    /// The machine failed.
    #[error(transparent)]
    Node(#[from] Error),
    /// That machine's kernel cannot be asked.
    #[error("it is not read over this connection")]
    NotHere,
    /// The kernel refused, or its answer makes no sense.
    #[error(transparent)]
    Netlink(#[from] crate::netlink::Error),
    /// The kernel does not tell it of that interface.
    #[error("cannot see the settings of {name}: {source}")]
    Interface {
        /// Its name.
        name: String,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// What may be asked of the kernel about the network, in the network namespace of vmio. Each only reads, and needs no
/// privilege.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NetworkQuestion {
    /// The qdiscs of all interfaces (`tc qdisc show`).
    Qdiscs,
    /// The classes of an interface, of htb and hfsc (`tc class show`).
    Classes {
        /// Its index.
        index: u32,
    },
    /// The filters of an interface that police or redirect (`tc filter show`).
    Filters {
        /// Its index.
        index: u32,
        /// Where they hang.
        parent: u32,
    },
    /// Offloads of an interface (`ethtool --show-offload`).
    Offloads {
        /// Its name.
        name: String,
    },
    /// Rings of an interface (`ethtool --show-ring`).
    Rings {
        /// Its name.
        name: String,
    },
}

/// The kernel's answer to the [`NetworkQuestion`] of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // they are named as the questions are
pub enum NetworkAnswer {
    Qdiscs(Vec<Qdisc>),
    Classes(Vec<Class>),
    Filters(Vec<Filter>),
    Offloads(Offloads),
    Rings(Option<Rings>),
}

/// Why a monitor cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum NoMonitor {
    /// It is not there, may not be used, or others wait for it.
    #[error(transparent)]
    Connect(#[from] Error),
    /// It did not greet in time.
    #[error(transparent)]
    Greeting(#[from] qmp::Error),
}

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
    /// The disks of a ZFS pool: `zpool list -vHP` (zpool-list(8)).
    Zpool {
        /// Its name.
        pool: String,
        /// Longest time for the answer.
        limit: Duration,
    },
    /// The interfaces, ports and bridges of Open vSwitch: three tables of its database by one `ovs-vsctl`, each a line
    /// of JSON (ovs-vswitchd.conf.db(5); lib/table.c, `table_print_json__`).
    Ovs,
    /// The dataset of a ZFS volume's device node, from udev's own helper.
    ZvolId {
        /// The device node.
        device: PathBuf,
    },
}

/// What `virsh` is asked: all of these only read (virsh(1)).
const VIRSH: [&str; 6] = ["list", "dumpxml", "domstats", "dominfo", "domblkinfo", "iothreadinfo"];
/// Longest time for an answer: a dead file server or daemon never gives one.
const LIMIT: Duration = Duration::from_secs(5);

impl Question {
    /// Its program.
    pub fn program(&self) -> &'static str {
        match self {
            Question::PageCache { .. } => "fincore",
            Question::Virsh { .. } | Question::VirshMonitor { .. } => "virsh",
            Question::Zpool { .. } => "zpool",
            Question::Ovs => "ovs-vsctl",
            Question::ZvolId { .. } => "/lib/udev/zvol_id",
        }
    }

    /// The command as a person would type it; `None` when it is not one of those that only read.
    pub fn shown(&self, reader: &dyn Reader) -> Option<String> {
        self.command(reader).map(|command| command.shown())
    }

    /// The command; `None` when it is not one of those that only read.
    fn command(&self, reader: &dyn Reader) -> Option<Exec> {
        let plain = |text: &str| !text.contains(['\n', ';', '\'', '"', '\\']);
        let command = Exec::new(self.program()).limit(LIMIT);
        Some(match self {
            Question::PageCache { paths } => {
                command.args(["--json", "--bytes"]).args(paths.iter().map(|p| p.display().to_string()))
            }
            Question::Virsh { uri, commands } => {
                let known = |c: &String| VIRSH.contains(&c.split(' ').next().unwrap_or_default()) && plain(c);
                if !commands.iter().all(known) {
                    return None;
                }
                let script: String = commands.iter().map(|c| format!("{c}\n")).collect();
                let mut command = command.args(["--readonly", "--quiet", "--connect", uri]);
                command.stdin = script.into_bytes();
                command
            }
            Question::VirshMonitor { uri, domain, command: query } => {
                let reads = query
                    .strip_prefix("query-")
                    .is_some_and(|c| !c.is_empty() && c.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
                if !reads || domain.starts_with('-') {
                    return None;
                }
                let json = format!("{{\"execute\": \"{query}\"}}");
                command.args(["--quiet", "--connect", uri, "qemu-monitor-command", domain, &json])
            }
            Question::Zpool { pool, limit } => {
                if pool.starts_with('-') {
                    return None;
                }
                // A user's PATH often lacks the directory that it is in.
                let zpool = find_program(reader, self.program()).unwrap_or_else(|| self.program().into());
                let command = Exec::new(zpool.display().to_string()).args(["list", "-vHP", pool]);
                command.limit(*limit)
            }
            // Without its database it would wait for ever.
            Question::Ovs => {
                let interfaces = "--columns=_uuid,name,type,options,ingress_policing_rate,ingress_policing_burst";
                let (ports, bridges) = ("--columns=_uuid,interfaces", "--columns=name,ports");
                command
                    .args(["--timeout=3", "--no-wait", "--format=json"])
                    .args(["--", interfaces, "list", "Interface"])
                    .args(["--", ports, "list", "Port"])
                    .args(["--", bridges, "list", "Bridge"])
            }
            Question::ZvolId { device } => command.args([device.display().to_string()]).limit(Duration::from_secs(10)),
        })
    }
}

/// [`Questions::answer`] for whatever can run commands.
pub(crate) fn answer(node: &dyn Node, question: &Question) -> Result<Output, Unanswered> {
    let command = question.command(node.reader()).ok_or(Unanswered::NotReadOnly)?;
    Ok(node.exec(&command)?)
}

/// [`Questions::monitor`] for whatever can connect to a socket.
pub(crate) fn monitor(node: &dyn Node, guest: &str, socket: &Path, until: Instant) -> Result<ReadOnly, NoMonitor> {
    Ok(ReadOnly::over(guest, node.connect(socket)?, until)?)
}

/// A node answers through its own commands and sockets.
macro_rules! questions {
    ($($node:ty),*) => {$(
        impl $crate::node::question::Questions for $node {
            fn answer(
                &self,
                question: &$crate::node::question::Question,
            ) -> Result<$crate::node::Output, $crate::node::question::Unanswered> {
                $crate::node::question::answer(self, question)
            }
            fn network(
                &self,
                question: &$crate::node::question::NetworkQuestion,
            ) -> Result<$crate::node::question::NetworkAnswer, $crate::node::question::Unanswered> {
                $crate::Node::ask_kernel(self, question)
            }
            fn monitor(
                &self,
                guest: &str,
                socket: &std::path::Path,
                until: std::time::Instant,
            ) -> Result<$crate::qmp::ReadOnly, $crate::node::question::NoMonitor> {
                $crate::node::question::monitor(self, guest, socket, until)
            }
        }
    )*};
}
pub(crate) use questions;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fake;

    #[test]
    fn only_what_reads_can_be_asked() {
        let fake = Fake::new("fake");
        let virsh = |command: &str| Question::Virsh { uri: "qemu:///system".into(), commands: vec![command.into()] };
        assert!(virsh("dumpxml web1").shown(&fake).is_some());
        for wrong in ["destroy web1", "dumpxml web1; destroy web1", "dumpxml web1\ndestroy web1", "domstatsx", ""] {
            assert_eq!(virsh(wrong).shown(&fake), None, "{wrong}");
        }
        let monitor = |command: &str| Question::VirshMonitor {
            uri: "qemu:///system".into(),
            domain: "web1".into(),
            command: command.into(),
        };
        assert!(monitor("query-block").shown(&fake).is_some());
        for wrong in ["quit", "query-", "query-block\"}, {\"", "device_del"] {
            assert_eq!(monitor(wrong).shown(&fake), None, "{wrong}");
        }
        assert_eq!(Question::Zpool { pool: "-x".into(), limit: LIMIT }.shown(&fake), None);
        assert!(Question::Ovs.shown(&fake).is_some_and(|shown| shown.contains("--timeout=3")));
        assert!(matches!(fake.answer(&virsh("destroy web1")), Err(Unanswered::NotReadOnly)));
        assert!(fake.ran().is_empty());
    }
}
