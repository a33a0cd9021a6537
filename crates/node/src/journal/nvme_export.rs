//! A file that this kernel serves by NVMe over TCP, and this kernel's own connections to that: objects in configfs
//! (Linux drivers/nvme/target/configfs.c) and controllers (drivers/nvme/host/fabrics.c), which nobody ends when their
//! maker is killed.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::journal::error::NotUndone;
use crate::machine;

/// Where the kernel's NVMe target is set up; there once its module is loaded and configfs is mounted.
pub const NVMET: &str = "/sys/kernel/config/nvmet";
/// The kernel's own connections.
const CONTROLLERS: &str = "/sys/class/nvme";
/// How vmio's names begin (NVM Express Base Specification 2.0, 4.5): of a domain that nobody has (RFC 2606).
const AUTHORITY: &str = "nqn.2026-11.invalid.vmio:";
/// Number of the one namespace of a subsystem.
const NAMESPACE: &str = "namespaces/1";
/// How long a connection may take to end.
const LIMIT: Duration = Duration::from_secs(30);

/// A subsystem with one namespace, which is the file, at one port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvmeExport {
    /// Name of the subsystem.
    nqn: String,
    /// Number of the port among the kernel's own.
    port: u16,
    /// Where the port listens.
    address: SocketAddr,
}

impl NvmeExport {
    /// The one of an owner, who has one at most.
    pub fn of(cookie: &str, address: SocketAddr) -> Self {
        let number = serial_of(cookie).get(..4).and_then(|digits| u16::from_str_radix(digits, 16).ok());
        Self { nqn: format!("{AUTHORITY}{cookie}"), port: number.unwrap_or(0).max(1), address }
    }

    /// Name of the subsystem, by which clients ask for it.
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// Where it is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The serial number of the disk: no other export has it.
    fn serial(&self) -> &str {
        serial_of(&self.nqn)
    }

    /// Whether the kernel works past the page cache; `None` where it does not say.
    pub fn is_direct(&self) -> Option<bool> {
        let buffered = fs::read_to_string(self.subsystem(Path::new(NVMET)).join(NAMESPACE).join("buffered_io"));
        buffered.ok().map(|value| value.trim() == "0")
    }

    /// Has the kernel serve a file, which it opens by this path. `listen` makes a symbolic link to its first argument
    /// at its second one: the kernel then listens in the network namespace of the process that does.
    ///
    /// # Errors
    /// What the kernel refused. Then all is taken back.
    pub fn serve(&self, file: &Path, listen: impl FnOnce(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
        let root = Path::new(NVMET);
        let listening = || listen(&self.subsystem(root), &self.link(root));
        self.set_up(root, file).and_then(|()| listening()).inspect_err(|_| {
            let _ = self.remove(root, Path::new(CONTROLLERS));
        })
    }

    /// All but the link.
    fn set_up(&self, root: &Path, file: &Path) -> io::Result<()> {
        let (subsystem, port) = (self.subsystem(root), self.port(root));
        let namespace = subsystem.join(NAMESPACE);
        at(&subsystem, fs::create_dir(&subsystem))?;
        put(&subsystem.join("attr_serial"), self.serial())?;
        put(&subsystem.join("attr_allow_any_host"), "1")?;
        at(&namespace, fs::create_dir_all(&namespace))?;
        put(&namespace.join("device_path"), &file.to_string_lossy())?;
        put(&namespace.join("buffered_io"), "0")?;
        put(&namespace.join("enable"), "1")?;
        at(&port, fs::create_dir(&port))?;
        put(&port.join("addr_trtype"), "tcp")?;
        put(&port.join("addr_adrfam"), if self.address.is_ipv4() { "ipv4" } else { "ipv6" })?;
        put(&port.join("addr_traddr"), &self.address.ip().to_string())?;
        put(&port.join("addr_trsvcid"), &self.address.port().to_string())
    }

    fn subsystem(&self, root: &Path) -> PathBuf {
        root.join("subsystems").join(&self.nqn)
    }

    fn port(&self, root: &Path) -> PathBuf {
        root.join("ports").join(self.port.to_string())
    }

    fn link(&self, root: &Path) -> PathBuf {
        self.port(root).join("subsystems").join(&self.nqn)
    }

    /// Ends it: this kernel's connections to it, then what it serves.
    pub(crate) fn undo(&self) -> Result<(), NotUndone> {
        self.remove(Path::new(NVMET), Path::new(CONTROLLERS)).map_err(NotUndone::cannot("remove", Path::new(NVMET)))
    }

    fn remove(&self, root: &Path, controllers: &Path) -> io::Result<()> {
        let ours = self.nqn.strip_prefix(AUTHORITY).is_some_and(|rest| !rest.is_empty() && !rest.contains('/'));
        if !ours {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("{} is no subsystem of vmio's", self.nqn)));
        }
        for controller in fs::read_dir(controllers).into_iter().flatten().flatten() {
            let directory = controller.path();
            if fs::read_to_string(directory.join("subsysnqn")).is_ok_and(|nqn| nqn.trim() == self.nqn) {
                let delete = directory.join("delete_controller");
                let write = delete.clone();
                // The kernel waits for what the controller has begun.
                let ended = machine::within(LIMIT, move || fs::write(write, "1"));
                gone(&delete, ended.unwrap_or_else(|| Err(ErrorKind::TimedOut.into())))?;
            }
        }
        let (link, port, subsystem) = (self.link(root), self.port(root), self.subsystem(root));
        gone(&link, fs::remove_file(&link))?;
        // Another one's has another address, or serves something.
        let address = fs::read_to_string(port.join("addr_traddr")).unwrap_or_default();
        if [self.address.ip().to_string().as_str(), ""].contains(&address.trim()) {
            match fs::remove_dir(&port) {
                Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => {}
                other => gone(&port, other)?,
            }
        }
        let namespace = subsystem.join(NAMESPACE);
        gone(&namespace, fs::remove_dir(&namespace))?;
        gone(&subsystem, fs::remove_dir(&subsystem))
    }
}

/// `NVMe over TCP of nqn.2026-11.invalid.vmio:run-7-…`.
impl fmt::Display for NvmeExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NVMe over TCP of {}", self.nqn)
    }
}

/// The random number that ends a cookie: 16 digits, of which a serial number may have 20.
fn serial_of(cookie: &str) -> &str {
    cookie.rsplit('-').next().unwrap_or(cookie)
}

fn put(file: &Path, value: &str) -> io::Result<()> {
    at(file, fs::write(file, value))
}

/// Names what failed.
fn at(path: &Path, result: io::Result<()>) -> io::Result<()> {
    result.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

/// Success also when the object does not exist.
fn gone(path: &Path, result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        other => at(path, other),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn export() -> NvmeExport {
        NvmeExport::of("state-run-7-00ff0123456789ab", "198.18.255.3:4420".parse().unwrap())
    }

    #[test]
    fn the_kernel_is_told_the_file_and_where_to_listen() {
        let dir = tempfile::tempdir().unwrap();
        for made in ["subsystems", "ports"] {
            fs::create_dir(dir.path().join(made)).unwrap();
        }
        let export = export();
        export.set_up(dir.path(), Path::new("/proc/7/fd/9")).unwrap();
        let says = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
        let subsystem = "subsystems/nqn.2026-11.invalid.vmio:state-run-7-00ff0123456789ab";
        assert_eq!(says(&format!("{subsystem}/attr_serial")), "00ff0123456789ab");
        assert_eq!(says(&format!("{subsystem}/namespaces/1/device_path")), "/proc/7/fd/9");
        assert_eq!(says(&format!("{subsystem}/namespaces/1/buffered_io")), "0");
        assert_eq!(says("ports/255/addr_traddr"), "198.18.255.3");
        assert_eq!(says("ports/255/addr_trsvcid"), "4420");
        // What is there already is not taken for one's own.
        let why = export.set_up(dir.path(), Path::new("/proc/7/fd/9")).unwrap_err();
        assert!(why.kind() == ErrorKind::AlreadyExists && why.to_string().contains(subsystem), "{why}");
    }

    #[test]
    fn only_what_is_vmios_own_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, controllers) = (dir.path().join("nvmet"), dir.path().join("nvme"));
        let export = export();
        export.remove(&root, &controllers).unwrap();
        let controller = |name: &str, nqn: &str| {
            fs::create_dir_all(controllers.join(name)).unwrap();
            fs::write(controllers.join(name).join("subsysnqn"), format!("{nqn}\n")).unwrap();
            fs::write(controllers.join(name).join("delete_controller"), "").unwrap();
        };
        controller("nvme0", "nqn.2014-08.org.nvmexpress:uuid:others");
        controller("nvme1", export.nqn());
        // The port of this number is another one's.
        fs::create_dir_all(root.join("ports/255/subsystems")).unwrap();
        fs::write(root.join("ports/255/addr_traddr"), "192.0.2.1\n").unwrap();
        fs::create_dir_all(root.join("subsystems").join(export.nqn())).unwrap();
        export.remove(&root, &controllers).unwrap();
        let deleted = |name: &str| fs::read_to_string(controllers.join(name).join("delete_controller")).unwrap();
        assert_eq!((deleted("nvme0").as_str(), deleted("nvme1").as_str()), ("", "1"));
        assert!(root.join("ports/255").exists() && !root.join("subsystems").join(export.nqn()).exists());

        for nqn in ["nqn.2014-08.org.nvmexpress:uuid:others", "nqn.2026-11.invalid.vmio:../x", AUTHORITY] {
            let other = NvmeExport { nqn: nqn.to_owned(), ..export.clone() };
            assert!(other.undo().unwrap_err().to_string().contains("no subsystem of vmio's"), "{nqn}");
        }
    }
}
