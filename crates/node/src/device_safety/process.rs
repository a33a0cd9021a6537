//! Whether a process uses a block device: by a descriptor of any of its threads, by a mapping whose
//! descriptor is closed, or by a mount in its mount namespace.
//!
//! Paths prove nothing here: a device node may lie outside of `/dev`, in the private `/dev` of a container,
//! or be deleted. So the links in `/proc/PID/fd` and `/proc/PID/map_files` are followed: the kernel leads
//! them to the very file that is open (proc_pid_fd(5), proc_pid_map_files(5)).

use std::collections::HashSet;
use std::ffi::{c_int, c_long};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

use crate::linux::maps::Mapping;
use crate::linux::{kind, mounts, process};
use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use rustix::io::Errno;

/// The devices whose users are looked for.
#[derive(Debug, Clone)]
pub struct DeviceQuery {
    /// Device numbers, with the names to tell them by.
    pub numbers: Vec<((u32, u32), String)>,
    /// A descriptor of this process that does not count: the one that holds the device.
    pub own: Option<i32>,
}

impl DeviceQuery {
    /// The name of a number that is looked for.
    pub fn name(&self, number: (u32, u32)) -> Option<&str> {
        self.numbers.iter().find(|(n, _)| *n == number).map(|(_, name)| name.as_str())
    }
}

/// A report of the examining thread.
pub(super) enum Report {
    /// It begins with the holder at this index of the list.
    At(usize),
    /// It makes progress.
    Alive,
    /// A user of the device.
    User(String),
    /// Something that could not be examined.
    Unseen(String),
    /// The same of the machine's first process (PID 1).
    Init(String),
    /// The whole list was examined.
    End,
}

/// What was examined for another process already.
#[derive(Debug, Default)]
pub(super) struct Visited {
    /// Mapped files by file system and inode: libraries are mapped by hundreds of processes.
    mapped: HashSet<((u32, u32), u64)>,
    /// Mount namespaces, each with the root directory from which its table is shown.
    mounts: HashSet<(PathBuf, PathBuf)>,
}

/// One process and how to name it.
struct Subject<'a> {
    dir: PathBuf,
    pid: u32,
    own: bool,
    query: &'a DeviceQuery,
    reports: &'a Sender<Report>,
    label: String,
}

/// `process 812 (kvm)`.
pub(super) fn label(proc: &Path, pid: u32) -> String {
    let comm = std::fs::read(proc.join(pid.to_string()).join("comm")).unwrap_or_default();
    format!("process {pid} ({})", printable(String::from_utf8_lossy(&comm).trim()))
}

/// A foreign text, without control characters.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

/// Examines a process. One that ends meanwhile uses nothing.
pub(super) fn examine(proc: &Path, pid: u32, query: &DeviceQuery, visited: &mut Visited, reports: &Sender<Report>) {
    let own = pid == std::process::id();
    let subject = Subject { dir: proc.join(pid.to_string()), pid, own, query, reports, label: label(proc, pid) };
    let mut denied: Vec<(&str, io::Error)> = Vec::new();
    for (what, result) in [
        ("descriptors", subject.descriptors()),
        ("maps", subject.maps(&mut visited.mapped)),
        ("mounts", subject.mounts(&mut visited.mounts)),
    ] {
        denied.extend(result.err().filter(|e| !gone(e)).map(|e| (what, e)));
    }
    if let Some((_, e)) = denied.first() {
        let what: Vec<&str> = denied.iter().map(|(what, _)| *what).collect();
        let message = format!("the {} of {} cannot be read ({e})", what.join(" and "), subject.label);
        let _ = reports.send(if pid == INIT { Report::Init(message) } else { Report::Unseen(message) });
    }
}

/// The machine's first process. Some confinements deny everybody a look into it, root too; it starts what
/// uses disks, and mounts them, but opens none for its own use. (In a container, where it may be anything,
/// nothing is overwritten at all.)
const INIT: u32 = 1;

/// Whether the error means that the process, thread, descriptor or mapping is gone.
fn gone(e: &io::Error) -> bool {
    e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// What a link of the kernel leads to, without asking a server. `None` where it is there no more, or is a
/// file whose own file system denies or has lost it (FUSE of another user, a file server): the link itself
/// can be read then. Such file systems open no devices.
fn behind(path: &Path) -> io::Result<Option<Statx>> {
    match statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE | StatxFlags::INO) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ACCESS | Errno::PERM | Errno::STALE | Errno::NOTCONN) if std::fs::read_link(path).is_ok() => {
            Ok(None)
        }
        Err(Errno::NOENT | Errno::SRCH) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn is_block(stat: &Statx) -> bool {
    kind::of(u32::from(stat.stx_mode)) == kind::BLOCK
}

impl Subject<'_> {
    fn report_user(&self, what: String) {
        let _ = self.reports.send(Report::User(what));
    }

    fn alive(&self) {
        let _ = self.reports.send(Report::Alive);
    }

    /// The name of a device that is asked about.
    fn wanted(&self, stat: &Statx) -> Option<&str> {
        self.query.name((stat.stx_rdev_major, stat.stx_rdev_minor)).filter(|_| is_block(stat))
    }

    fn descriptors(&self) -> io::Result<()> {
        self.table(&self.dir)?;
        // Threads have the process's descriptors, but for those that were made or made themselves otherwise.
        let threads = match std::fs::read_dir(self.dir.join("task")) {
            Err(e) if gone(&e) => return Ok(()),
            other => other?,
        };
        for thread in threads.flatten() {
            let Some(tid) = thread.file_name().to_str().and_then(|t| t.parse().ok()) else { continue };
            if tid == self.pid || same_files(self.pid, tid) == Some(true) {
                continue;
            }
            match self.table(&thread.path()) {
                Err(e) if !gone(&e) => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// The descriptors in the `fd` of a process or thread.
    fn table(&self, of: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(of.join("fd"))? {
            let entry = entry?;
            self.alive();
            let Some(stat) = behind(&entry.path())? else { continue };
            let Some(name) = self.wanted(&stat) else { continue };
            let held = entry.file_name();
            let held = held.to_str().unwrap_or_default();
            let is_ours = self.own && held.parse().is_ok_and(|n: i32| Some(n) == self.query.own);
            if !is_ours && !names_only(&of.join("fdinfo").join(held)) {
                self.report_user(format!("{} has it open{}", self.label, as_other(name, self.query)));
                return Ok(());
            }
        }
        Ok(())
    }

    fn maps(&self, visited: &mut HashSet<((u32, u32), u64)>) -> io::Result<()> {
        let maps = match std::fs::read(self.dir.join("maps")) {
            Err(e) if gone(&e) => return Ok(()),
            other => other?,
        };
        self.alive();
        for line in maps.split(|&b| b == b'\n') {
            let Some(mapping) = Mapping::parse(line) else { continue };
            let file = (mapping.dev, mapping.inode);
            if visited.contains(&file) {
                continue;
            }
            self.alive();
            let Some(stat) = behind(&self.dir.join("map_files").join(mapping.link()))? else { continue };
            visited.insert(file);
            if let Some(name) = self.wanted(&stat) {
                self.report_user(format!("{} has it mapped{}", self.label, as_other(name, self.query)));
            }
        }
        Ok(())
    }

    fn mounts(&self, visited: &mut HashSet<(PathBuf, PathBuf)>) -> io::Result<()> {
        let link = |name: &str| std::fs::read_link(self.dir.join(name));
        // Kernel threads and processes that have ended have no namespace.
        let (Ok(namespace), root) = (link("ns/mnt"), link("root").unwrap_or_default()) else { return Ok(()) };
        if visited.contains(&(namespace.clone(), root.clone())) {
            return Ok(());
        }
        self.alive();
        let table = match std::fs::read(self.dir.join("mountinfo")) {
            // It has ended.
            Err(e) if e.kind() == ErrorKind::InvalidInput => return Ok(()),
            other => mounts::parse(&other?),
        };
        let ours = std::fs::read_link("/proc/self/ns/mnt").is_ok_and(|own| own == namespace);
        for mount in table {
            let by_source =
                || self.query.numbers.iter().find(|(_, n)| Path::new(&mount.source) == Path::new("/dev").join(n));
            let name = self.query.name(mount.dev).or_else(|| by_source().map(|(_, name)| name.as_str()));
            if let Some(name) = name {
                let point = printable(&mount.point.display().to_string());
                let whose = if ours { String::new() } else { format!(" in the mount namespace of {}", self.label) };
                self.report_user(format!("{name} is mounted on {point}{whose}"));
            }
        }
        visited.insert((namespace, root));
        Ok(())
    }
}

/// ` (as sda1)` where it is not the device itself, which is the last of them.
fn as_other(name: &str, query: &DeviceQuery) -> String {
    match query.numbers.last() {
        Some((_, own)) if own == name => String::new(),
        _ => format!(" (as {name})"),
    }
}

/// Whether a descriptor only names what it leads to (`O_PATH`), and opened nothing.
fn names_only(fdinfo: &Path) -> bool {
    const O_PATH: u32 = 0o10_000_000;
    let text = std::fs::read_to_string(fdinfo).unwrap_or_default();
    let flags = process::fdinfo(&text, "flags").and_then(|flags| u32::from_str_radix(flags, 8).ok());
    flags.is_some_and(|flags| flags & O_PATH != 0)
}

/// Whether two threads have the same table of descriptors (kcmp(2), `KCMP_FILES`); `None` where the
/// kernel does not tell.
fn same_files(one: u32, other: u32) -> Option<bool> {
    const KCMP_FILES: c_int = 2;
    // Their numbers in the tables of system calls; the generic one is that of every newer architecture.
    let number: c_long = if cfg!(target_arch = "x86_64") {
        312
    } else if cfg!(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "loongarch64")) {
        272
    } else {
        return None;
    };
    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }
    let id = |of: u32| c_int::try_from(of).ok();
    // SAFETY: kcmp takes five numbers and follows no pointer of ours.
    let compared = unsafe { syscall(number, id(one)?, id(other)?, KCMP_FILES, 0 as c_long, 0 as c_long) };
    match compared {
        0 => Some(true),
        1..=3 => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn mounts_by_number_and_name() {
        let proc = tempfile::tempdir().unwrap();
        let dir = proc.path().join("812");
        for sub in ["fd", "ns"] {
            std::fs::create_dir_all(dir.join(sub)).unwrap();
        }
        std::fs::write(dir.join("comm"), "ns\x1bd\n").unwrap();
        std::os::unix::fs::symlink("mnt:[7]", dir.join("ns/mnt")).unwrap();
        let table = "22 1 8:2 / /srv rw - ext4 /dev/root rw\n23 1 0:40 / /b rw - btrfs /dev/sda1 rw\n24 1 8:9 / /x rw - ext4 /y rw\n";
        std::fs::write(dir.join("mountinfo"), table).unwrap();
        let numbers = [((8, 1), "sda1"), ((8, 2), "sda2"), ((8, 0), "sda")].map(|(n, name)| (n, name.to_owned()));
        let query = DeviceQuery { numbers: numbers.into(), own: None };
        let (reports, received) = channel();
        examine(proc.path(), 812, &query, &mut Visited::default(), &reports);
        drop(reports);
        let found: Vec<String> =
            received.iter().filter_map(|w| if let Report::User(f) = w { Some(f) } else { None }).collect();
        let of = "in the mount namespace of process 812 (ns?d)";
        assert_eq!(found, [format!("sda2 is mounted on /srv {of}"), format!("sda1 is mounted on /b {of}")]);
    }

    #[test]
    fn threads_share_descriptors() {
        let other = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
        // A thread that has ended is compared with nothing.
        assert_ne!(same_files(std::process::id(), other.join().unwrap()), Some(false));
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        // `None` is a kernel without kcmp(2).
        assert_ne!(same_files(std::process::id(), own), Some(false));
    }
}
