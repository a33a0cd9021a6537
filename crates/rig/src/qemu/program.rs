//! Which QEMU this host has: where it is, and its version by its own word.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vmio_look::require::{Missing, find_program};
use vmio_model::cell::Arch;
use vmio_node::{Exec, Node, Reader};

/// Names under which QEMU is installed: Debian and most; Proxmox; RHEL, outside of `PATH`. The last two run guests of
/// the host's own processor alone.
fn names(arch: Arch) -> &'static [&'static str] {
    match arch {
        Arch::X86_64 => &["qemu-system-x86_64", "kvm", "/usr/libexec/qemu-kvm"],
        Arch::Aarch64 => &["qemu-system-aarch64"],
    }
}
/// It answers within some 50 ms.
const LIMIT: Duration = Duration::from_secs(20);

/// Why there is no QEMU to use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host cannot run it.
    #[error("no QEMU on this host (looked for {looked_for}): apt install {package}")]
    NoQemu {
        /// Debian's package.
        package: &'static str,
        /// Names.
        looked_for: String,
    },
    /// QEMU does not tell its version.
    #[error("{} --version says no version of QEMU's but: {said}", qemu.display())]
    Version {
        /// The program.
        qemu: PathBuf,
        /// Its answer.
        said: String,
    },
    /// The machine failed.
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
}

/// Path of the QEMU that runs guests of a processor.
pub fn find_qemu(node: &dyn Reader, arch: Arch) -> Result<PathBuf, Error> {
    let package = match arch {
        Arch::X86_64 => "qemu-system-x86",
        Arch::Aarch64 => "qemu-system-arm",
    };
    let none = || Error::NoQemu { package, looked_for: names(arch).join(", ") };
    found(node, arch).ok_or_else(none)
}

/// Whether there is one, as a requirement asks.
pub fn there(node: &dyn Reader, arch: Arch) -> Result<(), Missing> {
    let none = || Missing::NoneOf(format!("{} in PATH", names(arch).join(", ")));
    found(node, arch).map(drop).ok_or_else(none)
}

fn found(node: &dyn Reader, arch: Arch) -> Option<PathBuf> {
    names(arch).iter().find_map(|name| find_program(node, name))
}

/// A release of QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QemuVersion {
    /// 9 of `9.2.1`.
    pub major: u32,
    /// 2 of `9.2.1`.
    pub minor: u32,
}

impl QemuVersion {
    /// Whether it is new enough for something (its name, and since when), else why not.
    pub fn meets(self, (what, since): (&'static str, QemuVersion)) -> Result<(), TooOld> {
        if self < since { Err(TooOld { what, since, has: self }) } else { Ok(()) }
    }
}

/// A QEMU that cannot do something yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} needs QEMU {since}, this host has {has}")]
pub struct TooOld {
    /// What it cannot do.
    pub what: &'static str,
    /// The first that can.
    pub since: QemuVersion,
    /// It itself.
    pub has: QemuVersion,
}

impl fmt::Display for QemuVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Version of a QEMU.
pub fn ask(node: &dyn Node, qemu: &Path) -> Result<QemuVersion, Error> {
    let output = node.exec(&Exec::new(qemu.to_string_lossy()).args(["--version"]).limit(LIMIT))?;
    let said = output.out();
    parse(&said).ok_or_else(|| Error::Version { qemu: qemu.to_owned(), said: format!("{said}{}", output.err()) })
}

/// From `QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)`.
fn parse(said: &str) -> Option<QemuVersion> {
    let mut numbers = said.split("version ").nth(1)?.split(['.', ' ', '\n']);
    let mut next = || numbers.next()?.parse().ok();
    Some(QemuVersion { major: next()?, minor: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_distributions() {
        for (said, major, minor) in [
            ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright (c) 2003-2022\n", 7, 2),
            ("QEMU emulator version 9.2.0 (pve-qemu-kvm_9.2.0-2)\n", 9, 2),
            ("QEMU emulator version 10.0.50 (v10.0.0-1)\n", 10, 0),
            ("QEMU emulator version 11.1\n", 11, 1),
        ] {
            assert_eq!(parse(said), Some(QemuVersion { major, minor }), "{said}");
        }
        assert_eq!(parse("bash: not found"), None);
    }
}
