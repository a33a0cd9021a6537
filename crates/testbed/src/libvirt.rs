//! A libvirt daemon of the test's own, as root in a container without control groups and security drivers.
//!
//! The test runs this program again ([`process::in_namespaces`](crate::process::in_namespaces)) and hides there what
//! libvirt keeps on a host.

use std::fs;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};

use crate::poll_until;

const LOG: &str = "/var/log/libvirt/libvirtd.log";

/// Shell that hides what libvirt keeps, and lets it change files of `/etc`: file systems in memory, of this mount
/// namespace alone.
pub const HIDE: &str = r#"set -e
for dir in /run /var/lib/libvirt /var/log/libvirt /var/cache/libvirt; do [ ! -d $dir ] || mount -t tmpfs none $dir; done
mkdir /run/etc
cp -a /etc/. /run/etc
mount --bind /run/etc /etc
# It would make directories in it.
grep ' hugetlbfs ' /proc/self/mounts | cut -d' ' -f2 | xargs -r umount
ip link set lo up
"#;

/// A daemon; it is killed where this is dropped, its guests are not.
pub struct Libvirtd(Child);

impl Libvirtd {
    /// Starts one, and waits until it can be asked.
    pub fn start() -> Self {
        fs::write("/etc/libvirt/qemu.conf", include_str!("qemu.conf")).unwrap();
        let conf = format!("auth_unix_ro = \"none\"\nauth_unix_rw = \"none\"\nlog_outputs = \"3:file:{LOG}\"\n");
        fs::write("/etc/libvirt/libvirtd.conf", conf).unwrap();
        let mut daemon = Self(Command::new("libvirtd").spawn().expect("libvirtd (libvirt-daemon-system) is installed"));
        poll_until("libvirtd's socket", || {
            assert!(daemon.0.try_wait().unwrap().is_none(), "{}", log());
            UnixStream::connect("/run/libvirt/libvirt-sock").is_ok()
        });
        daemon
    }
}

impl Drop for Libvirtd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The daemon's log.
pub fn log() -> String {
    format!("libvirtd said:\n{}", fs::read_to_string(LOG).unwrap_or_default())
}
