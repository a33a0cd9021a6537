//! The Linux plane: a hierarchy of queues ([`htb`]) at the egress of an uplink or of an [`ifb`] through which packets
//! are redirected, and eBPF programs ([`classifier`]) at each guest's interface and at the uplink that give each packet
//! its class. It uses netlink ([`netlink`]) and bpf(2) and starts no program. The send buffer of a guest's [`tap`] is
//! set by an I/O task, from a thread of its own.
//!
//! A [`Netlink`] socket belongs to the network namespace of the thread that opened it, and so do eBPF links: one
//! namespace, one thread that has entered it (setns(2)).
//!
//! With a ledger on disk, limits outlive the process. The next plane takes them over, and its undo removes them: the
//! kernel shows which objects are the guard's, and the ledger has the rest (`undo_log.rs`).

use std::io;

use crate::undo_log::UndoLog;

pub mod classifier;
pub mod counters;
pub mod delays;
pub mod functions;
pub mod htb;
pub mod ifb;
mod left;
pub mod links;
pub mod netlink;
mod plane;
mod requirements;
mod routes;
pub mod tap;
mod undo_log;

pub use left::{Left, left};
pub use links::Device;
pub use netlink::Netlink;
pub use plane::{ENTRY, Linux};
pub use requirements::REQUIREMENTS;
pub use routes::gateways;

/// An error, with what was tried, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a request.
    #[error("linux plane: cannot {what}: {source}{}\n  help: {}", quoted(said), help(source))]
    Refused {
        /// What was tried, on which interface.
        what: String,
        /// The kernel's error.
        source: io::Error,
        /// Its extended acknowledgement, often empty.
        said: String,
    },
    /// The kernel's answer cannot be parsed.
    #[error(
        "linux plane: cannot {what}: the kernel's answer {why}\n  help: please report it with the kernel's version"
    )]
    Malformed {
        /// What was tried.
        what: String,
        /// What is wrong with the answer.
        why: String,
    },
    /// What was to be read changed all the time.
    #[error("linux plane: cannot {what}: it changed again and again while it was read; it is tried again")]
    Changing {
        /// What was tried.
        what: String,
    },
    /// A setting is invalid.
    #[error("linux plane: {what}: {why}")]
    Invalid {
        /// Which part.
        what: String,
        /// Why not.
        why: String,
    },
    /// No interface has that name.
    #[error("linux plane: {0}: no such interface; see: ip link")]
    NoInterface(String),
    /// A process does not hold a tap, as far as it could be examined.
    #[error("linux plane: tap {device}: {}", tap::describe_holder(*pid, found))]
    NotHolder {
        /// The tap.
        device: Device,
        /// The process.
        pid: u32,
        /// What was found there.
        found: vmio_node::tap::HolderState,
    },
    /// A foreign qdisc or interface is in the place.
    #[error("linux plane: {place}: {what} belongs to another program and was not changed\n  help: {help}")]
    Foreign {
        /// The interface.
        place: String,
        /// What is there.
        what: String,
        /// What one may do.
        help: String,
    },
    /// A value reads back differently than it was written.
    #[error(
        "linux plane: {place}: {field} is {found} where {wanted} was written\n  help: check whether another program \
         changes the same interface (tc monitor); else please report it with the kernel's version"
    )]
    Mismatch {
        /// Interface and class.
        place: String,
        /// Which field.
        field: String,
        /// What was written.
        wanted: String,
        /// What is there.
        found: String,
    },
    /// The ledger cannot be written or read.
    #[error("linux plane: {0}")]
    UndoLog(#[from] crate::undo_log::UndoLogError),
    /// The eBPF program cannot be loaded or attached.
    #[error("linux plane: cannot {what}: {source}{}\n  help: {BPF_HELP}", quoted(log))]
    Bpf {
        /// What was tried.
        what: String,
        /// libbpf's error.
        source: libbpf_rs::Error,
        /// What libbpf and the verifier had to say.
        log: String,
    },
}

impl From<vmio_node::netlink::Error> for Error {
    fn from(error: vmio_node::netlink::Error) -> Self {
        use vmio_node::netlink::Error as Kernel;
        match error {
            Kernel::Refused { what, source, said } => Error::Refused { what, source, said },
            Kernel::Malformed { what, why } => Error::Malformed { what, why },
            Kernel::Changing { what } => Error::Changing { what },
        }
    }
}

const BPF_HELP: &str = "it needs CAP_BPF and CAP_NET_ADMIN on the host, and CONFIG_NET_CLS_ACT, CONFIG_BPF_SYSCALL; \
                        else please report it with the kernel's version";

/// Result with this module's error.
pub type Result<T> = std::result::Result<T, Error>;

/// Obstacles to limits on these interfaces, a sentence each: missing interfaces, and foreign queues of those that are
/// not `queueless`. Changes nothing.
///
/// # Errors
/// When the kernel gives no netlink socket.
pub fn in_the_way<'a>(
    uplinks: impl IntoIterator<Item = &'a String>,
    takeover: bool,
    queueless: impl Fn(&str) -> bool,
) -> Result<Vec<String>> {
    let mut netlink = Netlink::open()?;
    let mut look = |uplink: &String| {
        let device = links::find(&mut netlink, uplink)?;
        if queueless(uplink) { Ok(()) } else { htb::may_put(&mut netlink, &device, takeover) }
    };
    Ok(uplinks.into_iter().filter_map(|uplink| Some(look(uplink).err()?.to_string())).collect())
}

/// Those of these interfaces that are set down. Changes nothing.
///
/// # Errors
/// When the kernel gives no netlink socket.
pub fn down<'a>(names: impl IntoIterator<Item = &'a String>) -> Result<Vec<String>> {
    let mut netlink = Netlink::open()?;
    let mut is_down = |name: &str| links::look(&mut netlink, name).is_ok_and(|link| link.is_some_and(|link| !link.up));
    Ok(names.into_iter().filter(|name| is_down(name)).cloned().collect())
}

/// Whether any interface has queues or filters of a guard, or programs that outlive it are pinned.
///
/// # Errors
/// When the kernel gives no netlink socket, or refuses.
pub fn stands() -> Result<bool> {
    let mut netlink = Netlink::open()?;
    if !htb::placed(&mut netlink, htb::Placed::Ours)?.is_empty() || classifier::has_filters(&mut netlink)? {
        return Ok(true);
    }
    let namespace = undo_log::PlaneLog::here(&UndoLog::memory())?.namespace();
    classifier::PinDirectory::find(namespace).map_or(Ok(false), |pins| pins.is_used())
}

fn quoted(said: &str) -> String {
    let said = said.trim();
    if said.is_empty() { String::new() } else { format!(" ({said})") }
}

fn help(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "it needs CAP_NET_ADMIN in the interface's network namespace",
        Some(libc::ENODEV) => "the interface is gone; see: ip link",
        Some(libc::ENOENT) => "another program removed it meanwhile; the next check restores it",
        Some(libc::EEXIST | libc::EBUSY) => "another program uses or created it meanwhile; see: tc qdisc; tc class",
        Some(libc::EOPNOTSUPP) => "the kernel lacks it; it needs CONFIG_NET_SCH_HTB, NET_SCH_FIFO and, for IFBs, IFB",
        Some(libc::ENOBUFS | libc::ENOMEM) => "memory was short; try again",
        _ => "see the kernel's message above; tc -s qdisc and tc class show what is in force",
    }
}
