//! Incus and LXD: virtual machines whose daemon starts QEMU with a file of options in the instance's own directory, and
//! keeps its monitor. What that file and the log of the monitor say is read with the process
//! (`kinds/qemu/elsewhere.rs`); here is whose the instance is, and which IP addresses its cards are given
//! (`leases.rs`). The daemon is not asked: its socket may be systemd's, which would start it.

use std::collections::BTreeSet;

use vmio_model::cell::Kind;
use vmio_model::facts::{Guest, Nic, Place, Subject};
use vmio_model::rules::change::ConfigTool;

use super::{Managed, Manager};
use crate::host_view::{HostView, ProcessInfo};
use crate::qemu::instance::{self, Daemon, Instance};
use crate::qemu::options::CommandLine;

mod leases;

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
        let mut all: Vec<_> = host.processes().iter().filter_map(|process| guest(self.daemon, process)).collect();
        let own: Vec<&mut (Instance<'_>, Guest)> = all.iter_mut().filter(|own| has_cards(host, own)).collect();
        add_addresses(host, self.daemon, own);
        Managed { guests: all.into_iter().map(|(_, guest)| guest).collect(), unread: Vec::new() }
    }
}

/// Whether the process is the instance's own, and its cards are known, by the log.
fn has_cards(host: &HostView<'_>, (instance, guest): &(Instance<'_>, Guest)) -> bool {
    let is_own = guest.pid.is_some() && instance.pid(host.reader()).is_ok_and(|pid| pid == guest.pid);
    is_own && matches!(host.reader().stat(&instance.log()), Ok(Some(_)))
}

/// Adds the IP addresses of their cards.
fn add_addresses(host: &HostView<'_>, daemon: &Daemon, own: Vec<&mut (Instance<'_>, Guest)>) {
    if own.is_empty() {
        return;
    }
    let names: BTreeSet<&str> = own.iter().map(|(instance, _)| instance.full).collect();
    let mut leases = leases::read(host.reader(), daemon, |name| names.contains(name));
    for (instance, guest) in own {
        for (mac, addresses) in leases.remove(instance.full).unwrap_or_default() {
            let from = host.from(&guest.name, format!("a static lease of {}", daemon.name));
            let nic = Nic::unknown(Subject::net(&guest.name, &mac), from);
            // Users of a project choose them.
            let place = Place { target: Some(mac), addresses, addresses_in_doubt: true, ..Place::default() };
            guest.nics.push(Nic { place, ..nic });
        }
    }
}

/// The instance that a QEMU of this daemon runs.
fn guest<'a>(daemon: &Daemon, process: &'a ProcessInfo) -> Option<(Instance<'a>, Guest)> {
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
    Some((instance, guest))
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

    #[test]
    fn addresses_of_cards() {
        let hosts = "/var/lib/incus/networks/incusbr0/dnsmasq.hosts";
        let leases = |host: Fake| {
            host.file("/run/incus/a.b_web1/qemu.pid", "700\n")
                .file("/var/log/incus/a.b_web1/qemu.qmp.log", "")
                .file(format!("{hosts}/a.b_web1.eth0"), "10:66:6a:00:00:01,10.0.3.7,[fd42::7],web1\n")
                .file(format!("{hosts}/a.b_web1.eth1.5"), "10:66:6a:00:00:02,10.0.3.8,web1\n")
                .file(format!("{hosts}/a.b_web1.eth2"), "10:66:6a:00:00:03,web1\n")
                .file(format!("{hosts}/web1.eth0"), "10:66:6a:00:00:04,10.0.3.9,web1\n")
        };
        let own = || host("-name web1 -readconfig /run/incus/a.b_web1/qemu.conf");
        let of = |fake: Fake| -> Vec<String> {
            let guest = INCUS.guests(&HostView::new(&fake)).guests.remove(0);
            assert!(guest.nics.iter().all(|nic| nic.place.addresses_in_doubt));
            let places = guest.nics.into_iter().map(|nic| nic.place);
            places.map(|place| format!("{} {:?}", place.target.unwrap(), place.addresses)).collect()
        };
        let both = ["10:66:6a:00:00:01 [10.0.3.7, fd42::7]", "10:66:6a:00:00:02 [10.0.3.8]"];
        assert_eq!(of(leases(own())), both);
        // Without its own number there, or a log by which cards are known.
        assert_eq!(of(leases(own()).file("/run/incus/a.b_web1/qemu.pid", "701\n")), [""; 0]);
        assert_eq!(of(own().file("/run/incus/a.b_web1/qemu.pid", "700\n")), [""; 0]);
    }
}
