//! Lets one guard run in a network namespace, whatever its state directory: two would undo each other's settings. The
//! guard holds a lock (flock(2)) on the namespace itself: no file has to be made for it, and the kernel releases it
//! however the process ends. Anybody in the namespace can lock it, so only a lock of root's or of this user's process
//! counts.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

/// The network namespace of this thread.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// The inode of this thread's network namespace, which names it on this host.
///
/// # Errors
/// When /proc cannot be read.
pub fn inode() -> io::Result<u64> {
    Ok(fs::metadata(NAMESPACE)?.ino())
}

/// Holds the lock on the network namespace; dropping it lets another guard start.
#[derive(Debug)]
pub struct NamespaceLock(#[allow(dead_code, reason = "closing it unlocks")] File);

impl NamespaceLock {
    /// Locks this thread's network namespace; the process of the other guard where that holds the lock.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn take() -> io::Result<Result<NamespaceLock, u32>> {
        let file = File::open(NAMESPACE)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Another user's lock does not count.
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(holder_of(&file)?.map_or(Ok(NamespaceLock(file)), Err)),
            Err(e) => Err(e.into()),
            Ok(()) => Ok(Ok(NamespaceLock(file))),
        }
    }

    /// The process that guards this thread's network namespace.
    ///
    /// # Errors
    /// As [`NamespaceLock::take`].
    pub fn holder() -> io::Result<Option<u32>> {
        holder_of(&File::open(NAMESPACE)?)
    }
}

fn holder_of(namespace: &File) -> io::Result<Option<u32>> {
    let inode = namespace.metadata()?.ino();
    let trusted = |pid: &u32| {
        let owner = fs::metadata(format!("/proc/{pid}")).map(|process| process.uid());
        owner.is_ok_and(|uid| uid == 0 || uid == geteuid().as_raw())
    };
    Ok(holders(&fs::read_to_string("/proc/locks")?, inode).into_iter().find(trusted))
}

/// Processes that hold an exclusive flock(2) on this inode (proc_locks(5)). The device is not compared, since its
/// number there may differ from stat(2)'s; only kernel file systems (major 0) count.
fn holders(text: &str, inode: u64) -> Vec<u32> {
    let held = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Waiting processes have `->` before the kind.
        let [_, "FLOCK", _, "WRITE", pid, place, ..] = words[..] else { return None };
        let (device, number) = place.rsplit_once(':')?;
        // File systems without a device.
        let is = device.starts_with("00:") && number.parse() == Ok(inode);
        pid.parse().ok().filter(|_| is)
    };
    text.lines().filter_map(held).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn holders_are_read() {
        let text = "1: FLOCK  ADVISORY  WRITE 9355 00:04:4026531833 0 EOF\n\
                    1: -> FLOCK  ADVISORY  WRITE 77 00:04:4026531833 0 EOF\n\
                    2: POSIX  ADVISORY  WRITE 78 00:04:4026531833 0 EOF\n\
                    3: FLOCK  ADVISORY  READ 79 00:04:4026531833 0 EOF\n\
                    4: FLOCK  ADVISORY  WRITE 80 fe:00:4026531833 0 EOF\n\
                    5: FLOCK  ADVISORY  WRITE 81 00:04:4026531834 0 EOF\nx\n";
        assert_eq!(holders(text, 4_026_531_833), [9355]);
        assert_eq!(holders(text, 1), [0; 0]);
    }

    #[test]
    fn a_namespace_has_one_guard() {
        let first = NamespaceLock::take().unwrap().unwrap();
        assert_eq!(NamespaceLock::take().unwrap().unwrap_err(), std::process::id());
        assert_eq!(NamespaceLock::holder().unwrap(), Some(std::process::id()));
        drop(first);
        assert_eq!(NamespaceLock::holder().unwrap(), None);
    }
}
