//! What the tests share: network namespaces that go with the thread that made them, and what a policy would say.

#![allow(dead_code, clippy::unwrap_used, clippy::disallowed_types, clippy::print_stdout)]

use std::fs::File;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces, unshare_unsafe};
use vmio_guard::planes::linux::htb::{Numbers, Tree};
use vmio_guard::planes::linux::{Device, Netlink, links};
use vmio_model::facts::{Nic, Provenance, Subject};
use vmio_model::policy::program::{Framing, Hierarchy, Leaf};

pub mod bed;
pub mod holder;
pub mod state;

pub fn must_be_root() {
    assert!(rustix::process::geteuid().is_root(), "needs root: scripts/root-tests");
}

/// Does this on a thread with a network namespace of its own. With the thread, its sockets and what it opened, the
/// kernel takes it down.
pub fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    must_be_root();
    let run = || {
        // SAFETY: a network namespace alone: no memory, descriptors or file system is unshared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
        work()
    };
    match thread::scope(|s| s.spawn(run).join()) {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    }
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
    pub fn make() -> Self {
        apart(|| Self(File::open("/proc/thread-self/ns/net").unwrap()))
    }

    /// By which `ip link set … netns` finds it.
    pub fn path(&self) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Does this on a thread in it.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let run = || {
            use std::os::fd::AsFd;
            move_into_thread_name_spaces(self.0.as_fd(), ThreadNameSpaceType::NETWORK).unwrap();
            work()
        };
        match thread::scope(|s| s.spawn(run).join()) {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    pub fn run(&self, lines: &[&str]) {
        self.inside(|| run(lines));
    }
}

/// Each a program with its arguments, in the thread's namespace; it must succeed.
pub fn run(lines: &[&str]) {
    for line in lines {
        let (done, said) = tried(line);
        assert!(done, "{line}: {said}");
    }
}

/// A program with its arguments: whether it succeeded, and what it said.
pub fn tried(line: &str) -> (bool, String) {
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// An interface that is up, with a peer: `u0` of a veth pair, in the thread's namespace.
pub fn uplink() -> (Netlink, Device) {
    run(&["ip link add u0 type veth peer name u1", "ip link set u0 up", "ip link set u1 up"]);
    let mut netlink = Netlink::open().unwrap();
    let device = links::find(&mut netlink, "u0").unwrap();
    (netlink, device)
}

/// A guest's card and what it is connected to.
pub fn nic(model: &str, backend: &str) -> Nic {
    let from = Provenance::Transcript { name: "test".into() };
    Nic { model: model.into(), backend: backend.into(), ..Nic::unknown(Subject::net("guest", "net0"), from) }
}

pub fn leaf(name: &str, rate_mbit: u64, ceil_mbit: u64) -> Leaf {
    Leaf {
        name: name.to_owned(),
        rate_bps: rate_mbit * 1_000_000,
        ceil_bps: ceil_mbit * 1_000_000,
        priority: 3,
        quantum_bytes: 15_140,
        burst_bytes: 131_072,
        queue_bytes: 250_000,
    }
}

/// 100 Mbit/s for three: `default` with 1, `web` with 60, `db` with 20.
pub fn three() -> Hierarchy {
    Hierarchy {
        rate_bps: 100_000_000,
        burst_bytes: 131_072,
        framing: Framing::NONE,
        leaves: vec![leaf("default", 1, 100), leaf("web", 60, 100), leaf("db", 20, 50)],
    }
}

pub fn tree(hierarchy: &Hierarchy) -> Tree {
    let named = hierarchy.leaves.iter().zip(2u16..).map(|(leaf, number)| (leaf.name.clone(), number));
    Tree::wanted(hierarchy, &Numbers::given(named.collect()).unwrap()).unwrap()
}

/// Waits for what comes soon, within bounds.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(3);
    while !is() {
        assert!(Instant::now() < end, "{what}: not within 3 s");
        thread::sleep(Duration::from_millis(5));
    }
}
