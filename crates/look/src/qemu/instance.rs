//! Instances of Incus and LXD, by the file of options that their daemon starts QEMU with:
//! `DIRECTORY/INSTANCE/qemu.conf`, where an instance of another project than `default` is called `PROJECT_NAME`
//! (lxc/incus, driver_qemu.go, `start`, `RunPath`, `LogPath`; LXD, lxd/instance/drivers/driver_qemu.go).

use std::path::PathBuf;

use vmio_node::{Reader, Result};

/// Longest file with the number of a process.
const PID_BYTES: usize = 32;

/// A daemon that starts QEMU.
#[derive(Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Name of its manager: `incus`.
    pub name: &'static str,
    /// Its client: `incus`, `lxc`.
    pub client: &'static str,
    /// Directories that may have those of its instances.
    configs: &'static [&'static str],
    /// The same for their logs, where that is another one.
    logs: Option<&'static str>,
    /// Directories that may have its state (internal/util/paths.go, `VarPath`).
    pub states: &'static [&'static str],
}

/// Incus.
pub const INCUS: Daemon = Daemon {
    name: "incus",
    client: "incus",
    configs: &["/run/incus", "/var/log/incus"],
    logs: Some("/var/log/incus"),
    states: &["/var/lib/incus"],
};
/// LXD, as a package of a distribution and as a snap.
pub const LXD: Daemon = Daemon {
    name: "lxd",
    client: "lxc",
    configs: &["/var/log/lxd", "/var/snap/lxd/common/lxd/logs"],
    logs: None,
    states: &["/var/lib/lxd", "/var/snap/lxd/common/lxd"],
};

/// All.
const DAEMONS: &[&Daemon] = &[&INCUS, &LXD];

/// An instance.
#[derive(Debug, PartialEq, Eq)]
pub struct Instance<'a> {
    /// Its daemon.
    pub daemon: &'static Daemon,
    /// Directory of instances that it is in.
    dir: &'static str,
    /// Its name with that of its project.
    pub full: &'a str,
}

impl<'a> Instance<'a> {
    /// By its file of options; `None` for any other file.
    pub fn of_config(file: &'a str) -> Option<Self> {
        DAEMONS.iter().find_map(|&daemon| {
            daemon.configs.iter().find_map(|&dir| {
                let (full, name) = file.strip_prefix(dir)?.strip_prefix('/')?.split_once('/')?;
                let named = name == "qemu.conf" && !["", ".", ".."].contains(&full);
                named.then_some(Instance { daemon, dir, full })
            })
        })
    }

    /// Its project, `name` being its own name.
    pub fn project(&self, name: &str) -> Option<&'a str> {
        match self.full.strip_suffix(name)? {
            "" => Some("default"),
            project => project.strip_suffix('_'),
        }
    }

    /// The file that has the number of its QEMU's process.
    pub fn pid_file(&self) -> PathBuf {
        [self.dir, self.full, "qemu.pid"].iter().collect()
    }

    /// The number of its QEMU's process; `None` where the file has none. Anybody can start a program with the name of
    /// an instance: a process is the instance's own only if it has this number.
    ///
    /// # Errors
    /// When the file cannot be read, or somebody other than root can have written it.
    pub fn pid(&self, reader: &dyn Reader) -> Result<Option<u32>> {
        let text = reader.read_trusted(&self.pid_file(), PID_BYTES + 1)?;
        let number = String::from_utf8_lossy(&text).trim().parse::<u32>().ok();
        Ok(number.filter(|_| text.len() <= PID_BYTES))
    }

    /// The log of the commands to its monitor.
    pub fn log(&self) -> PathBuf {
        [self.daemon.logs.unwrap_or(self.dir), self.full, "qemu.qmp.log"].iter().collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_known_by_the_file() {
        let own = Instance::of_config("/run/incus/shop_web1/qemu.conf").unwrap();
        assert_eq!(
            (own.daemon.name, own.project("web1"), own.project("shop_web1")),
            ("incus", Some("shop"), Some("default"))
        );
        assert_eq!((own.project("b1"), own.project("other")), (None, None));
        assert_eq!(own.pid_file(), PathBuf::from("/run/incus/shop_web1/qemu.pid"));
        assert_eq!(own.log(), PathBuf::from("/var/log/incus/shop_web1/qemu.qmp.log"));
        let snap = Instance::of_config("/var/snap/lxd/common/lxd/logs/web1/qemu.conf").unwrap();
        assert_eq!((snap.daemon.name, snap.project("web1")), ("lxd", Some("default")));
        assert_eq!(snap.log(), PathBuf::from("/var/snap/lxd/common/lxd/logs/web1/qemu.qmp.log"));
        for other in [
            "/run/incus/../secret/qemu.conf",
            "/run/incus/../qemu.conf",
            "/run/incus//qemu.conf",
            "/run/incus/web1/server.key",
            "/run/incusx/web1/qemu.conf",
            "/tmp/run/incus/web1/qemu.conf",
            "run/incus/web1/qemu.conf",
        ] {
            assert_eq!(Instance::of_config(other), None, "{other}");
        }
    }
}
