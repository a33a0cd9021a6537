//! The Linux plane: a hierarchy of queues ([`htb`]) on what leaves one interface (an uplink, or an [`ifb`] that a
//! guest's packets, or those that arrive at an uplink, are led through), and eBPF programs at each guest's interface and at
//! the uplink ([`classifier`]) that say which class a packet is of. All by netlink ([`netlink`]) and bpf(2); no program is started.
//! What a guest's hypervisor may have waiting there is set on its [`tap`], by an I/O task, which a thread of its own
//! asks for.
//!
//! A [`Netlink`] socket belongs to the network namespace of the thread that opened it, and so do eBPF links: one
//! namespace, one thread that has entered it (setns(2)).
//!
//! With a ledger that outlives the process, what is in force does, too. The next plane takes over from what it finds, and its
//! undo takes off what it finds: what is ours is known by looking at it, and what is not is in the ledger (`undo_log.rs`).

use std::io;

pub mod classifier;
pub mod counters;
pub mod functions;
pub mod htb;
pub mod ifb;
pub mod links;
pub mod netlink;
mod plane;
mod requirements;
pub mod tap;
mod undo_log;

pub use links::Device;
pub use netlink::Netlink;
pub use plane::{ENTRY, Linux};
pub use requirements::REQUIREMENTS;

/// What went wrong: what was tried, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a request.
    #[error("linux plane: cannot {what}: {source}{}\n  help: {}", quoted(said), help(source))]
    Refused {
        /// What was tried, on which interface.
        what: String,
        /// The kernel's error.
        source: io::Error,
        /// What it said beside it (extended acknowledgement), often nothing.
        said: String,
    },
    /// The kernel's answer makes no sense.
    #[error(
        "linux plane: cannot {what}: the kernel's answer {why}\n  help: please report it with the kernel's version"
    )]
    Malformed {
        /// What was tried.
        what: String,
        /// What is wrong with the answer.
        why: String,
    },
    /// What is to be put in force cannot be.
    #[error("linux plane: {what}: {why}")]
    Invalid {
        /// Which part.
        what: String,
        /// Why not.
        why: String,
    },
    /// No interface has that name.
    #[error("linux plane: {0}: there is no such interface; see: ip link")]
    NoInterface(String),
    /// A process does not hold a tap, or not as far as can be told.
    #[error("linux plane: tap {device}: {}", tap::told(*pid, found))]
    NotHolder {
        /// The tap.
        device: Device,
        /// The process.
        pid: u32,
        /// What was found there.
        found: vmio_node::tap::Found,
    },
    /// Another's qdisc or interface is in the place.
    #[error("linux plane: {place}: {what} is another's and is left alone\n  help: {help}")]
    Foreign {
        /// The interface.
        place: String,
        /// What is there.
        what: String,
        /// What one may do.
        help: String,
    },
    /// What was written is not what is read back.
    #[error(
        "linux plane: {place}: {field} is {found} where {wanted} was written\n  help: look whether something else \
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
    /// What is about to be done cannot be written down, or what was done cannot be read.
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

const BPF_HELP: &str = "it needs CAP_BPF and CAP_NET_ADMIN on the host, and CONFIG_NET_CLS_ACT, CONFIG_BPF_SYSCALL; \
                        else please report it with the kernel's version";

/// Result with this module's error.
pub type Result<T> = std::result::Result<T, Error>;

/// What stands in the way of queues on these interfaces, in a sentence each: one that is not there, another's queues. It
/// looks, and changes nothing.
///
/// # Errors
/// When the kernel gives no netlink socket.
pub fn in_the_way<'a>(uplinks: impl IntoIterator<Item = &'a String>, takeover: bool) -> Result<Vec<String>> {
    let mut netlink = Netlink::open()?;
    let mut look = |uplink: &String| {
        let device = links::find(&mut netlink, uplink)?;
        htb::may_put(&mut netlink, &device, takeover)
    };
    Ok(uplinks.into_iter().filter_map(|uplink| Some(look(uplink).err()?.to_string())).collect())
}

/// Whether queues of ours stand on some interface, by whichever guard.
///
/// # Errors
/// When the kernel gives no netlink socket, or refuses.
pub fn stands() -> Result<bool> {
    Ok(!htb::placed(&mut Netlink::open()?, htb::Placed::Ours)?.is_empty())
}

fn quoted(said: &str) -> String {
    let said = said.trim();
    if said.is_empty() { String::new() } else { format!(" ({said})") }
}

fn help(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "it needs CAP_NET_ADMIN in the interface's network namespace",
        Some(libc::ENODEV) => "the interface is gone; look with: ip link",
        Some(libc::ENOENT) => "something else took it away meanwhile; the next comparison puts it back",
        Some(libc::EEXIST | libc::EBUSY) => "something else uses or made it meanwhile; look with: tc qdisc; tc class",
        Some(libc::EOPNOTSUPP) => "the kernel lacks it; it needs CONFIG_NET_SCH_HTB, NET_SCH_FIFO and, for IFBs, IFB",
        Some(libc::ENOBUFS | libc::ENOMEM) => "memory was short; try again",
        _ => "the kernel's own words are above; tc -s qdisc and tc class show what is in force",
    }
}
