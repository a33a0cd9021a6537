//! Files of a process or thread: `/proc/PID/…` and `/proc/PID/task/TID/…` (proc(5) and the pages that it names).
//!
//! `of` is a process's number, or `self`: the process that looks.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::{cpu, line};
use crate::{Reader, Result};

/// `USER_HZ`: ticks a second of the times in `/proc`, 100 on every architecture that Linux has guests on (time(7)).
pub const USER_HZ: f64 = 100.0;

/// Bytes of a command line that are looked at; that of a guest with 200 disks has a third of it. A process can
/// make its own as long as its memory (prctl(2), `PR_SET_MM_MAP`).
pub const COMMAND_LINE_BYTES: usize = 512 << 10;

/// Bytes of an environment that are looked at: more than execve(2) lets a program begin with (6 MiB). It can be made
/// as long as a command line.
pub const ENVIRONMENT_BYTES: usize = 8 << 20;

/// Descriptors of a process that are listed at the most: there may be a million of them.
pub const MOST_DESCRIPTORS: usize = 1 << 16;

/// Bytes of an `fdinfo` that are looked at: what a file's kind adds follows a few lines that all have.
const INFO_BYTES: usize = 4096;

/// `/proc/PID/NAME`.
pub fn file(of: impl Display, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{of}/{name}"))
}

/// `/proc/PID/task/TID/NAME`.
pub fn task_file(pid: u32, tid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/task/{tid}/{name}"))
}

/// Numbers of all processes that this user sees.
///
/// # Errors
/// When `/proc` cannot be listed.
pub fn all(reader: &dyn Reader) -> Result<Vec<u32>> {
    numbers(reader, Path::new("/proc"))
}

/// Whether who looks is root there (`Uid` of `/proc/self/status`: the second is the effective one); no, where that
/// cannot be read.
pub fn is_root(reader: &dyn Reader) -> bool {
    let status = reader.read_text(&file("self", "status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1)) == Some("0")
}

/// Numbers of a process's threads.
///
/// # Errors
/// When it has ended.
pub fn threads(reader: &dyn Reader, pid: u32) -> Result<Vec<u32>> {
    numbers(reader, &file(pid, "task"))
}

fn numbers(reader: &dyn Reader, dir: &Path) -> Result<Vec<u32>> {
    Ok(reader.list(dir)?.iter().filter_map(|name| name.parse().ok()).collect())
}

/// Short name (`comm`), 15 bytes of anything; a kernel thread's may be longer (proc_pid_comm(5)).
///
/// # Errors
/// When it has ended.
pub fn comm(reader: &dyn Reader, pid: u32) -> Result<String> {
    Ok(line(&reader.read_text(&file(pid, "comm"))?).to_owned())
}

/// The same of a thread.
///
/// # Errors
/// When it has ended.
pub fn thread_comm(reader: &dyn Reader, pid: u32, tid: u32) -> Result<String> {
    Ok(line(&reader.read_text(&task_file(pid, tid, "comm"))?).to_owned())
}

/// Command line, no more than [`COMMAND_LINE_BYTES`] of it; empty for a kernel thread and for what is ending
/// (proc_pid_cmdline(5)).
///
/// # Errors
/// When it may not be read (`hidepid`), or the process has ended.
pub fn command_line(reader: &dyn Reader, pid: u32) -> Result<Vec<String>> {
    Ok(words(&reader.read_start(&file(pid, "cmdline"), COMMAND_LINE_BYTES)?))
}

/// The words of a command line or environment, each of which ends with a zero byte. Empty ones at the end are left
/// out: programs that write their title over their arguments leave some.
pub fn words(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    text.trim_end_matches('\0').split('\0').filter(|_| !bytes.is_empty()).map(str::to_owned).collect()
}

/// Value of a variable in the content of an `environ` (proc_pid_environ(5)): the first one counts, as for getenv(3).
pub fn variable<'a>(environ: &'a [u8], name: &str) -> Option<&'a [u8]> {
    environ.split(|&b| b == 0).find_map(|v| v.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// Value of a variable that a process began with; `None` too where its environment may not be read.
pub fn variable_of(reader: &dyn Reader, of: impl Display, name: &str) -> Option<String> {
    let environ = reader.read_start(&file(of, "environ"), ENVIRONMENT_BYTES).ok()?;
    variable(&environ, name).map(|value| String::from_utf8_lossy(value).into_owned())
}

/// A namespace of a process, as `net:[4026531840]` (namespaces(7)); `kind` is `net`, `mnt`, `pid`.
///
/// # Errors
/// When it may not be read: another user's.
pub fn namespace(reader: &dyn Reader, of: impl Display, kind: &str) -> Result<Option<PathBuf>> {
    reader.link(&file(of, &format!("ns/{kind}")))
}

/// Whether a process is in the same namespace as the one that looks. What may not be read is taken for the same:
/// its files are looked at either way, and a wrong one shows as missing.
pub fn same_namespace(reader: &dyn Reader, pid: u32, kind: &str) -> bool {
    let their = namespace(reader, pid, kind).ok().flatten();
    their.is_none() || their == namespace(reader, "self", kind).ok().flatten()
}

/// What a process has open by descriptor (proc_pid_fd(5)): a path, `socket:[123]`, `anon_inode:kvm-vm`; empty for one
/// that was closed meanwhile. No more than [`MOST_DESCRIPTORS`].
///
/// # Errors
/// When this may not be read, or the process has ended.
pub fn descriptors(reader: &dyn Reader, pid: u32) -> Result<Vec<(u32, PathBuf)>> {
    let dir = file(pid, "fd");
    let names = reader.list_foreign(&dir)?;
    let links = names.iter().filter_map(|name| {
        let number = name.parse().ok()?;
        Some(reader.link(&dir.join(name)).map(|to| (number, to.unwrap_or_default())))
    });
    links.collect()
}

/// Numbers of a process's descriptors, no more than [`MOST_DESCRIPTORS`]; what they are is not looked at.
///
/// # Errors
/// As [`descriptors`].
pub fn descriptor_numbers(reader: &dyn Reader, pid: u32) -> Result<Vec<u32>> {
    let mut numbers: Vec<u32> =
        reader.list_foreign(&file(pid, "fd"))?.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.truncate(MOST_DESCRIPTORS);
    Ok(numbers)
}

/// Whether a descriptor is of `/dev/net/tun` and attached to an interface: its `fdinfo` names that (`iff:`,
/// tun_chr_show_fdinfo of Linux drivers/net/tun.c), whatever the path by which it was opened. Neither the file nor
/// its file system is asked.
pub fn is_of_tun(reader: &dyn Reader, pid: u32, fd: u32) -> bool {
    tun_interface(reader, pid, fd).is_some()
}

/// Name of the interface that a descriptor of `/dev/net/tun` is attached to, as [`is_of_tun`] finds it. It is of the
/// network namespace in which the interface is, whichever that is.
pub fn tun_interface(reader: &dyn Reader, pid: u32, fd: u32) -> Option<String> {
    let info = reader.read_start(&file(pid, &format!("fdinfo/{fd}")), INFO_BYTES).unwrap_or_default();
    let mut lines = info.split(|b| *b == b'\n').filter_map(|line| line.strip_prefix(b"iff:"));
    let name = lines.find_map(|name| Some(name.trim_ascii()).filter(|name| !name.is_empty()))?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Inodes of the sockets that a process has open.
///
/// # Errors
/// As [`descriptors`].
pub fn sockets(reader: &dyn Reader, pid: u32) -> Result<Vec<u64>> {
    let inode = |to: &PathBuf| to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    Ok(descriptors(reader, pid)?.iter().filter_map(|(_, to)| inode(to)).collect())
}

/// Processes that a process has started and that still run (proc_pid_task(5), `children`); none where the kernel
/// does not tell them (without `CONFIG_PROC_CHILDREN`).
pub fn children(reader: &dyn Reader, pid: u32) -> Vec<u32> {
    let threads = threads(reader, pid).unwrap_or_default();
    let of = |tid: u32| reader.read_text(&task_file(pid, tid, "children")).unwrap_or_default();
    let numbers = |text: String| text.split_ascii_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<u32>>();
    threads.into_iter().map(of).flat_map(numbers).collect()
}

/// What one descriptor is.
///
/// # Errors
/// As [`descriptors`].
pub fn descriptor(reader: &dyn Reader, pid: u32, fd: u32) -> Result<Option<PathBuf>> {
    reader.link(&file(pid, &format!("fd/{fd}")))
}

/// Value of a field (`flags:`) in the content of a `fdinfo/N` (proc_pid_fdinfo(5)), without blanks around it.
pub fn fdinfo<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    field(text, name)
}

/// `NAME:   value` at the beginning of a line.
pub(super) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Content of a `status` (proc_pid_status(5)).
#[derive(Debug, Clone, Default)]
pub struct Status(String);

impl Status {
    /// Of a process.
    ///
    /// # Errors
    /// When it has ended or may not be read.
    pub fn of(reader: &dyn Reader, of: impl Display) -> Result<Self> {
        Ok(Self(reader.read_text(&file(of, "status"))?))
    }

    /// Of a thread.
    ///
    /// # Errors
    /// When it has ended or may not be read.
    pub fn of_thread(reader: &dyn Reader, pid: u32, tid: u32) -> Result<Self> {
        Ok(Self(reader.read_text(&task_file(pid, tid, "status"))?))
    }

    /// Of a content that was read.
    pub fn of_text(text: String) -> Self {
        Self(text)
    }

    fn field(&self, name: &str) -> Option<&str> {
        field(&self.0, name)
    }

    fn numbers(&self, name: &str) -> Option<Vec<u32>> {
        self.field(name)?.split_ascii_whitespace().map(|n| n.parse().ok()).collect()
    }

    /// Short name; empty where there is none.
    pub fn name(&self) -> &str {
        self.field("Name").unwrap_or_default()
    }

    /// Users: real, effective, saved, and that of file accesses.
    pub fn users(&self) -> Option<[u32; 4]> {
        self.numbers("Uid")?.try_into().ok()
    }

    /// Groups, as [`Status::users`].
    pub fn groups(&self) -> Option<[u32; 4]> {
        self.numbers("Gid")?.try_into().ok()
    }

    /// Supplementary groups.
    pub fn supplementary_groups(&self) -> Option<Vec<u32>> {
        self.numbers("Groups")
    }

    /// The process that a thread belongs to.
    pub fn process(&self) -> Option<u32> {
        self.field("Tgid")?.parse().ok()
    }

    /// Its number in its own, innermost process namespace (from Linux 4.1 on).
    pub fn inner_number(&self) -> Option<u32> {
        self.field("NSpid")?.split_ascii_whitespace().last()?.parse().ok()
    }

    /// Processors that it may run on; `None` where they are not told.
    pub fn cpus(&self) -> Option<Vec<u32>> {
        cpu::list(self.field("Cpus_allowed_list")?)
    }

    /// Memory that is there, without huge pages of hugetlbfs; kernel threads have none.
    pub fn resident_bytes(&self) -> Option<u64> {
        self.bytes("VmRSS")
    }

    /// Memory that was swapped out, without shared memory; kernel threads have none.
    pub fn swapped_bytes(&self) -> Option<u64> {
        self.bytes("VmSwap")
    }

    /// Huge pages of hugetlbfs that are mapped.
    pub fn huge_page_bytes(&self) -> Option<u64> {
        self.bytes("HugetlbPages")
    }

    fn bytes(&self, name: &str) -> Option<u64> {
        self.field(name)?.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    /// Effective capabilities, a bit each (capabilities(7)).
    pub fn capabilities(&self) -> Option<u64> {
        u64::from_str_radix(self.field("CapEff")?, 16).ok()
    }
}

/// A `stat` of a process or thread (proc_pid_stat(5)). Nothing is allocated for it.
#[derive(Debug, Clone, Copy)]
pub struct Stat<'a> {
    /// Its number.
    pub number: u32,
    /// Short name, which may hold anything, blanks and parentheses included.
    pub comm: &'a str,
    rest: &'a str,
}

impl<'a> Stat<'a> {
    /// Of the content of the file. What follows the last bracket is of fixed form.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (head, rest) = text.rsplit_once(')')?;
        let (number, comm) = head.split_once('(')?;
        Some(Self { number: number.trim().parse().ok()?, comm, rest })
    }

    /// A field by its number in the manual, from 3 on.
    fn field(&self, number: usize) -> Option<&'a str> {
        self.rest.split_ascii_whitespace().nth(number.checked_sub(3)?)
    }

    /// Whether it is stopped: by a signal (`T`), or by who traces it (`t`).
    pub fn is_stopped(&self) -> bool {
        self.field(3).is_some_and(|state| state.starts_with(['T', 't']))
    }

    /// Whether it runs, or waits for nothing but a processor (`R`).
    pub fn is_runnable(&self) -> bool {
        self.field(3) == Some("R")
    }

    /// Whether it has ended and waits to be reaped.
    pub fn is_dead(&self) -> bool {
        self.field(3) == Some("Z")
    }

    /// The process that made it.
    pub fn parent(&self) -> Option<u32> {
        self.field(4)?.parse().ok()
    }

    /// Seconds that it ran, in the kernel and out of it; a process's also those of threads that have ended.
    pub fn run_seconds(&self) -> Option<f64> {
        self.seconds(14)
    }

    /// Seconds that those of its children ran, and theirs, that have ended and were waited for.
    pub fn reaped_seconds(&self) -> Option<f64> {
        self.seconds(16)
    }

    /// Whether it is a thread of the kernel (`PF_KTHREAD`, Linux include/linux/sched.h).
    pub fn is_of_kernel(&self) -> bool {
        const PF_KTHREAD: u32 = 0x0020_0000;
        self.field(9).and_then(|flags| flags.parse::<u32>().ok()).is_some_and(|flags| flags & PF_KTHREAD != 0)
    }

    /// Of two fields of ticks, outside of the kernel and in it.
    fn seconds(&self, first: usize) -> Option<f64> {
        let mut fields = self.rest.split_ascii_whitespace().skip(first - 3);
        let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some((user + system) as f64 / USER_HZ)
    }

    /// When it began, in ticks since boot. With its number that names a process for good, since numbers are used again.
    pub fn start_ticks(&self) -> Option<u64> {
        self.field(22)?.parse().ok()
    }
}

/// A `schedstat` of a process's first thread, or of a thread (Linux Documentation/scheduler/sched-stats.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedstat {
    /// Nanoseconds on a processor.
    pub run_ns: u64,
    /// Nanoseconds that it waited for one.
    pub wait_ns: u64,
    /// Times that it was put on one.
    pub slices: u64,
}

impl Schedstat {
    /// Of the content of the file.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace().map(|word| word.parse().ok());
        Some(Self { run_ns: words.next()??, wait_ns: words.next()??, slices: words.next()?? })
    }

    /// Whether it counts at all: a kernel that does not (`sched_info_on`, Linux fs/proc/base.c) says `0 0 0` of
    /// every thread, as is said of one that never ran.
    pub fn counts(&self) -> bool {
        *self != Self { run_ns: 0, wait_ns: 0, slices: 0 }
    }
}

/// Bytes that storage really moved for a process, read and written, of its `io` (proc_pid_io(5)). What was written
/// to files that were cut before it reached the disk never moved, and is counted all the same.
pub fn io_bytes(text: &str) -> Option<(u64, u64)> {
    let number = |name: &str| field(text, name)?.parse().ok();
    Some((number("read_bytes")?, number("write_bytes")?))
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
