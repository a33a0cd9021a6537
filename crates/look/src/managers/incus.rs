//! Incus and LXD: virtual machines whose daemon starts QEMU with a file of options in the instance's own directory, and
//! keeps its monitor. What that file and the log of the monitor say is read with the process
//! (`kinds/qemu/elsewhere.rs`); here is whose the instance is. The daemon is not asked: its socket may be systemd's,
//! which would start it.

use vmio_model::cell::Kind;
use vmio_model::facts::Guest;
use vmio_model::rules::change::ConfigTool;

use super::{Managed, Manager};
use crate::host_view::{HostView, ProcessInfo};
use crate::qemu::instance::{self, Daemon, Instance};
use crate::qemu::options::CommandLine;

/// Entries `incus` and `lxd`.
pub struct Incus {
    daemon: &'static Daemon,
    about: &'static str,
    way: ConfigTool,
}

/// Entry `incus`.
pub const INCUS: Incus = Incus {
    daemon: &instance::INCUS,
    about: "virtual machines of Incus: instance, project, and devices by the log of their monitor",
    way: ConfigTool::Incus,
};

/// Entry `lxd`.
pub const LXD: Incus =
    Incus { daemon: &instance::LXD, about: "virtual machines of LXD: instance and project", way: ConfigTool::Lxd };

impl Manager for Incus {
    fn name(&self) -> &'static str {
        self.daemon.name
    }
    fn about(&self) -> &'static str {
        self.about
    }
    fn way(&self) -> ConfigTool {
        self.way
    }
    fn guests(&self, host: &HostView<'_>) -> Managed {
        let guests = host.processes().iter().filter_map(|process| guest(self.daemon, process)).collect();
        Managed { guests, unread: Vec::new() }
    }
}

/// The instance that a QEMU of this daemon runs.
fn guest(daemon: &Daemon, process: &ProcessInfo) -> Option<Guest> {
    if !process.program().starts_with("qemu-") && !process.comm.starts_with("qemu-") {
        return None;
    }
    let args = process.args.as_deref()?;
    let file = args.windows(2).find(|pair| pair[0] == "-readconfig").map(|pair| pair[1].as_str())?;
    let instance = Instance::of_config(file).filter(|instance| instance.daemon == daemon)?;
    let line = CommandLine::parse(args);
    let name = line.guest_name()?;
    let mut guest = Guest { name: name.to_owned(), kind: Kind::QEMU.name.into(), ..Guest::default() };
    guest.manager = Some(daemon.name.into());
    guest.pid = Some(process.pid);
    guest.ids.insert("instance".into(), name.to_owned());
    guest.ids.extend(instance.project(name).map(|project| ("project".into(), project.to_owned())));
    Some(guest)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use vmio_node::fake::Fake;

    use super::*;

    fn host(args: &str) -> Fake {
        let line = format!("/usr/bin/qemu-system-x86_64 {args}").replace(' ', "\0");
        Fake::new("fake").file("/proc/700/comm", "qemu-system-x86\n").file("/proc/700/cmdline", line + "\0")
    }

    #[test]
    fn instances_are_told_with_their_project() {
        let of = |manager: &Incus, args: &str| {
            let managed = manager.guests(&HostView::new(&host(args)));
            assert_eq!(managed.unread, []);
            managed.guests.into_iter().next()
        };
        let shop = "-S -name web1 -readconfig /run/incus/shop_web1/qemu.conf";
        let own = of(&INCUS, shop).unwrap();
        assert_eq!((own.name.as_str(), own.pid, own.manager.as_deref()), ("web1", Some(700), Some("incus")));
        assert_eq!((own.ids["instance"].as_str(), own.ids["project"].as_str()), ("web1", "shop"));
        assert_eq!(of(&LXD, shop), None);
        let snap = "-name web1 -readconfig /var/snap/lxd/common/lxd/logs/web1/qemu.conf";
        let own = of(&LXD, snap).unwrap();
        assert_eq!((own.manager.as_deref(), own.ids["project"].as_str()), (Some("lxd"), "default"));
        for other in
            ["-name web1 -readconfig /etc/qemu/web1.cfg", "-name web1", "-readconfig /run/incus/web1/qemu.conf"]
        {
            assert_eq!(of(&INCUS, other), None, "{other}");
        }
    }
}
