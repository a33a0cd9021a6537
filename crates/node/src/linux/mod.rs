//! The kernel's files, read in one place: `/proc`, `/sys`, control groups, tables of mounts.
//!
//! Everything that vmio knows of a machine by such a file is read here, and nowhere else, so that there is
//! one answer to what a field means, in which unit it is, and what an absent file or a senseless value says.
//! What follows from it (whether a setting costs speed, which disk fills) is for those who ask.
//!
//! | a file of … | goes to |
//! |---|---|
//! | one process or thread (`/proc/PID/…`) | [`process`]; its mapped files: [`maps`] |
//! | functions of the kernel (`/proc/kallsyms`) | [`kallsyms`] |
//! | the whole machine (`/proc/stat`, `/proc/meminfo`, `/proc/swaps`, `/proc/sys/…`, its clock source) | [`system`] |
//! | processors and NUMA nodes, lists of processors | [`cpu`] |
//! | block devices (`/sys/block`, `/sys/dev/block`, `/proc/diskstats`) | [`block`] |
//! | tables of mounts (`mountinfo`) | [`mounts`] |
//! | journals of ext4 (`/proc/fs/jbd2`) | [`journal`] |
//! | what of all this has to be answered by somebody else | [`silent`] |
//! | control groups of both versions | [`cgroup`] |
//! | network interfaces (`/sys/class/net`, `net/dev`) | [`net`] |
//! | tracked connections (`nf_conntrack`) and the table of neighbours | [`conntrack`] |
//! | sockets (`net/unix`, `net/tcp`, `net/udp`) | [`sockets`] |
//! | the machine's own addresses (`net/fib_trie`, `net/if_inet6`) | [`addresses`] |
//! | devices by their bus: PCI, Xen's back ends | [`bus`] |
//! | counters of NFS mounts (`mountstats`) | [`nfs`] |
//! | counters of energy (`/sys/class/powercap`) | [`powercap`] |
//! | sensors of power and energy (`/sys/class/hwmon`) | [`hwmon`] |
//! | histograms of events (`tracing/events/…/hist`) | [`histogram`] |
//! | the numbers of devices | [`device`] |
//! | the type bits of a mode | [`kind`] |
//!
//! A new file of the kernel's goes to the module of the thing that it speaks of; a new thing (thermal
//! zones, pages of hugetlbfs) is a new module here and a row above.
//!
//! How they are written:
//! - **Parsing is apart from reading.** What takes a text (`parse`, `of_text`) allocates nothing that the
//!   caller does not get, since `top` reads thousands of files a second by descriptors that it keeps open,
//!   and a probe gets its texts from a schedule. What takes a [`Reader`](crate::Reader) reads, then parses.
//! - **Units are in the names** (`_bytes`, `_bps`, `_ns`), whatever the kernel's own are.
//! - **`None` is "not known"**: the file is absent (an older kernel, a feature that is off), may not be
//!   read, or holds what the kernel has for "unknown" (-1 for the speed of a link, `max` for a limit). Where
//!   the difference counts, the function gives the error of the reader.
//! - **A field that is no number makes the line unknown.** It is neither taken for 0 nor left out, which
//!   would move the columns behind it.
//! - **What others control is read as theirs**: below `/proc/PID/root`, and wherever a name comes from a
//!   guest, by the reader's `*_foreign` functions; what a process can make as long as it likes (its command
//!   line, environment, table of mounts) no further than a bound.
//! - **The kernel's document or source is named** beside each format.

use std::path::Path;
use std::str::FromStr;

use crate::Reader;

pub mod addresses;
pub mod block;
pub mod bus;
pub mod cgroup;
pub mod conntrack;
pub mod cpu;
pub mod device;
pub mod histogram;
pub mod hwmon;
pub mod journal;
pub mod kallsyms;
pub mod kind;
pub mod maps;
pub mod mounts;
pub mod net;
pub mod nfs;
pub mod powercap;
pub mod process;
pub mod silent;
pub mod sockets;
pub mod system;

/// A file with one word or line, without the blanks around it.
fn word(reader: &dyn Reader, path: &Path) -> Option<String> {
    let mut text = reader.read_text(path).ok()?;
    text.truncate(text.trim_end().len());
    let blanks = text.len() - text.trim_start().len();
    text.drain(..blanks);
    Some(text)
}

/// A file with one number.
fn number<T: FromStr>(reader: &dyn Reader, path: &Path) -> Option<T> {
    reader.read_text(path).ok()?.trim().parse().ok()
}

/// Whether there is something at a path.
fn is_there(reader: &dyn Reader, path: &Path) -> bool {
    matches!(reader.stat(path), Ok(Some(_)))
}

/// A text of the kernel's with the name of a file of the machine in it, as `text` without its last newline:
/// names may begin and end with blanks of their own.
fn line(text: &str) -> &str {
    text.strip_suffix('\n').unwrap_or(text)
}
