//! The test bed: what tests of all crates share. Nothing that users run knows this crate.
//!
//! | for | use |
//! |---|---|
//! | waiting for a state | [`poll_until`], [`poll_for`]; one limit for the whole machine, by its measured speed |
//! | a directory on a disk | [`scratch`] |
//! | something this machine lacks | [`skip`]: the test is counted as skipped, with its reason |
//! | a namespace with links and taps | [`net`] |
//! | a process that ends with its test | [`process::Companion`] |
//! | this program again, apart from the host | [`process::in_namespaces`] |
//! | a libvirt daemon | [`libvirt::Libvirtd`] |
//! | limits as other programs set them by eBPF | [`limits`] |
//! | the same random steps on every machine | [`Random`] |
//!
//! Each test with root has a mount and a network namespace of its own, an empty `TMPDIR`, `/var/tmp` and
//! `/dev/shm`: the program `suite` (`src/suite`) runs it so, and names the test that leaves something behind.
#![allow(clippy::unwrap_used)]

pub mod libvirt;
pub mod limits;
pub mod net;
pub mod process;
mod random;
mod wait;

use std::io::Write;

pub use random::Random;
pub use wait::{SLOWNESS, limit, poll_for, poll_until, slowness};

/// Name of the variable with the file that [`skip`] writes its reason to.
pub const SKIPPED: &str = "VMIO_TEST_SKIPPED";

/// Name of the variable by which the test of a guard's endurance lasts for so many seconds in place of its own; the
/// suite waits for it so much longer.
pub const CHURN_SECONDS: &str = "VMIO_CHURN_SECONDS";

/// What [`CHURN_SECONDS`] says.
pub fn churn_seconds() -> Option<u64> {
    std::env::var(CHURN_SECONDS).ok()?.parse().ok()
}

/// Name of the variable with a directory on a disk for this test alone ([`scratch`]).
pub const DISK: &str = "VMIO_TEST_DISK";
/// Where it lies; and where it is not set, who runs a test by cargo.
pub const DISK_OF_ALL: &str = "/var/tmp";

/// A directory on a disk (where `/tmp` may be memory), that nobody else may write to, with a short name: sockets lie in
/// it, whose paths have 107 bytes at most. It goes with the value.
pub fn scratch() -> tempfile::TempDir {
    let ground = std::env::var_os(DISK).unwrap_or_else(|| DISK_OF_ALL.into());
    tempfile::Builder::new().prefix("s").tempdir_in(ground).unwrap()
}

/// Says that this machine lacks what the test needs. The test returns after it.
pub fn skip(reason: &str) {
    if let Some(file) = std::env::var_os(SKIPPED) {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
        writeln!(file, "{reason}").unwrap();
    }
    // Who runs the test by cargo reads it here.
    #[allow(clippy::print_stdout)]
    {
        println!("SKIPPED: {reason}");
    }
}

/// Asserts that this process is root's.
#[track_caller]
pub fn must_be_root() {
    assert!(rustix::process::geteuid().is_root(), "needs root: sudo make test");
}
