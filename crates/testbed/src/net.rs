//! Network namespaces that go with whoever made them, and what is set up in them by `ip` and its like.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces, unshare_unsafe};
use vmio_node::linux::sockets::unix_sockets;

use crate::must_be_root;

/// Does this on a thread with a network namespace of its own. With the thread, its sockets and what it opened, the
/// kernel takes it down.
pub fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    must_be_root();
    on_thread(|| {
        // SAFETY: a network namespace alone: no memory, descriptors or file system is unshared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
        work()
    })
}

/// As [`apart`], with a mount namespace of its own, where a bpffs is mounted if one is to be.
pub fn apart_with_bpffs<T: Send>(mounted: bool, work: impl FnOnce() -> T + Send) -> T {
    apart(|| {
        // SAFETY: the thread's mounts alone, and with them its working directory.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
        run(&["mount --make-rprivate /"]);
        // One of the host's must not be seen.
        run(&[if mounted { "mount -t bpf bpf /sys/fs/bpf" } else { "mount -t tmpfs none /sys/fs/bpf" }]);
        work()
    })
}

/// Another namespace, held by a descriptor.
pub struct Namespace(File);

impl Namespace {
    /// A new one, with nothing in it but `lo`, which is down.
    pub fn make() -> Self {
        apart(|| Self(File::open("/proc/thread-self/ns/net").unwrap()))
    }

    /// By which `ip link set … netns` finds it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Does this on a thread in it.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        on_thread(|| {
            move_into_thread_name_spaces(self.0.as_fd(), ThreadNameSpaceType::NETWORK).unwrap();
            work()
        })
    }

    /// As [`run`], in it.
    pub fn run(&self, lines: &[&str]) {
        self.inside(|| run(lines));
    }
}

fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match thread::scope(|scope| scope.spawn(work).join()) {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Each a program with its arguments, in the thread's namespace; it must succeed.
#[track_caller]
pub fn run(lines: &[&str]) {
    for line in lines {
        let (done, output) = tried(line);
        assert!(done, "{line}: {output}");
    }
}

/// Runs a program with its arguments; returns whether it succeeded, and its output.
pub fn tried(line: &str) -> (bool, String) {
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Whether somebody listens at a Unix socket of this network namespace. Its file is there a moment earlier; asked of
/// the kernel (proc(5), /proc/net/unix), since whoever connects to find out may be the only client.
pub fn listens(socket: &Path) -> bool {
    let all = fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
    unix_sockets(&all).any(|there| there.listens && Path::new(there.path) == socket)
}
