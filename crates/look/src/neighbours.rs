//! Other people's guests on this host: the reason for a measurement to be gentle.
//!
//! A guest is recognised by its program (the first argument's file name, else the process name, both of proc(5)), a Xen
//! domain by its back ends. Containers are counted apart: nearly every host runs some, and their requests are those of
//! ordinary processes, so they are shown but do not make a run gentle.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use vmio_node::linux::{bus, kind, process};
use vmio_node::machine::OWNER_VARIABLE;
use vmio_node::{Reader, Result};

use crate::backing::Backing;
use crate::qemu::options::CommandLine;

/// What runs a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// QEMU with KVM or TCG, also under Proxmox's and Red Hat's names.
    Qemu,
    /// Firecracker.
    Firecracker,
    /// Cloud Hypervisor.
    CloudHypervisor,
    /// crosvm.
    Crosvm,
    /// A Xen domain whose devices this host serves.
    XenDomain,
    /// VirtualBox or VMware on this host.
    Other,
}

impl Kind {
    /// Name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "QEMU guest",
            Self::Firecracker => "Firecracker guest",
            Self::CloudHypervisor => "Cloud Hypervisor guest",
            Self::Crosvm => "crosvm guest",
            Self::XenDomain => "Xen domain",
            Self::Other => "guest",
        }
    }
}

/// A guest that is not ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Process that runs it; for a Xen domain its first back-end thread or its QEMU, 0 if neither.
    pub pid: u32,
    /// What runs it.
    pub kind: Kind,
    /// Its name as given to the hypervisor, else empty; for a Xen domain the domain's number.
    pub name: String,
    /// Threads at the time of the scan. They come and go: see `vmio-rig`, `gentle/watch`.
    pub threads: Vec<u32>,
}

impl Neighbour {
    /// Name in messages: `QEMU guest web1 (pid 812)`.
    pub fn label(&self) -> String {
        // Its owner chose the name: keep it on one line.
        let name =
            if self.name.is_empty() { String::new() } else { format!(" {}", vmio_model::sanitize::line(&self.name)) };
        format!("{}{name} (pid {})", self.kind.name(), self.pid)
    }
}

/// The guests found, and what may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Others {
    /// Guests that are not ours.
    pub guests: Vec<Neighbour>,
    /// Number of containers, by their monitor processes.
    pub containers: u32,
    /// Processes whose command line could not be read, which might be guests.
    pub unreadable: u32,
    /// Whether `/proc` shows only a part of the processes (`hidepid`, or a process namespace).
    pub hidden: bool,
}

impl Others {
    /// Why there may be more guests than were found.
    pub fn unseen(&self) -> Option<&'static str> {
        (self.hidden || self.unreadable > 0).then_some(
            "/proc hides processes from this user (hidepid, or a process namespace): there may be more guests",
        )
    }
}

/// The guests on this machine except those with `VMIO_OWNER=cookie` in their environment. A process whose environment
/// may not be read (another user's) is not ours.
pub fn others(reader: &dyn Reader, cookie: &str) -> Result<Others> {
    let mut found = Others::default();
    let mut domains = xen_domains(reader);
    let pids = process::all(reader)?;
    found.hidden = !pids.contains(&1);
    for pid in pids {
        let Ok(comm) = process::comm(reader, pid) else { continue }; // it has ended
        let Ok(args) = process::command_line(reader, pid) else {
            found.unreadable += 1;
            continue;
        };
        // Kernel threads have no command line. Those of Xen's block back end have the domain's number in their names:
        // `3.xvda-0` (drivers/block/xen-blkback/xenbus.c).
        if args.is_empty() {
            let domain = comm.split_once('.').and_then(|(id, _)| domains.get_mut(id));
            if let Some(domain) = domain {
                domain.threads.push(pid);
            }
            continue;
        }
        if is_container_monitor(&args[0]) {
            found.containers += 1;
        }
        let Some(kind) = kind_of(&args[0], &comm) else { continue };
        if owner(reader, pid).is_some_and(|o| o == cookie) {
            continue;
        }
        let threads = process::threads(reader, pid).unwrap_or_default();
        // The device model of a Xen domain belongs to that domain.
        if let Some(domain) = after(&args, "-xen-domid").and_then(|id| domains.get_mut(&id)) {
            domain.pid = pid;
            domain.threads.extend(threads);
            continue;
        }
        found.guests.push(Neighbour { pid, kind, name: guest_name(kind, &args), threads });
    }
    for mut domain in domains.into_values() {
        if domain.pid == 0 {
            domain.pid = domain.threads.first().copied().unwrap_or(0);
        }
        found.guests.push(domain);
    }
    Ok(found)
}

/// Whether a guest has a file open on these disks; yes where its descriptors or the disks are not visible.
pub fn uses(reader: &dyn Reader, guest: &Neighbour, backing: &Backing) -> bool {
    if backing.leaves.is_empty() {
        return true;
    }
    let dir = process::file(guest.pid, "fd");
    let Ok(open) = reader.list_foreign(&dir) else { return true };
    if open.len() >= process::MOST_DESCRIPTORS {
        return true;
    }
    let mut seen = BTreeSet::new();
    open.iter().map(|fd| dir.join(fd)).any(|fd| {
        let Ok(Some(stat)) = reader.stat_foreign(&fd) else { return false };
        // Regular files lie on their file system's device; of other types only block devices count.
        let number = match kind::of(stat.mode) {
            kind::FILE => stat.dev,
            kind::BLOCK => stat.rdev,
            _ => return false,
        };
        seen.insert((kind::of(stat.mode), number))
            && Backing::of(reader, &fd).is_ok_and(|below| below.leaves.keys().any(|l| backing.leaves.contains_key(l)))
    })
}

/// Cookie of the run that started the process.
pub(crate) fn owner(reader: &dyn Reader, pid: u32) -> Option<String> {
    process::variable_of(reader, pid, OWNER_VARIABLE)
}

/// By the program's file name. `comm` is cut at 15 bytes and may have been renamed, so it is used only where the first
/// argument is no help (jailers).
pub(crate) fn kind_of(arg0: &str, comm: &str) -> Option<Kind> {
    let program = |name: &str| match name {
        "kvm" | "qemu-kvm" => Some(Kind::Qemu),
        "firecracker" => Some(Kind::Firecracker),
        "cloud-hypervisor" | "cloud-hyperviso" => Some(Kind::CloudHypervisor),
        "crosvm" => Some(Kind::Crosvm),
        "vmware-vmx" | "VBoxHeadless" | "VirtualBoxVM" => Some(Kind::Other),
        _ if name.starts_with("qemu-system-") => Some(Kind::Qemu),
        _ => None,
    };
    let base = arg0.rsplit('/').next().unwrap_or(arg0);
    program(base).or_else(|| program(comm))
}

/// Whether it is a container's monitor, of which each container (or pod) has one.
fn is_container_monitor(arg0: &str) -> bool {
    let base = arg0.split(' ').next().and_then(|p| p.rsplit('/').next()).unwrap_or_default();
    // LXC and LXD write a title over their arguments: `[lxc monitor] /var/lib/lxc 101`.
    base.starts_with("containerd-shim")
        || matches!(base, "conmon" | "lxc-start" | "systemd-nspawn")
        || arg0.starts_with("[lxc monitor]")
}

fn after(args: &[String], option: &str) -> Option<String> {
    let at = args.iter().position(|a| a == option)?;
    args.get(at + 1).cloned()
}

/// `-name guest=web1,debug-threads=on`, `-name web1,...` (QEMU), `--id web1` (Firecracker).
fn guest_name(kind: Kind, args: &[String]) -> String {
    let name = match kind {
        Kind::Qemu => CommandLine::parse(args).guest_name().map(str::to_owned),
        Kind::Firecracker => after(args, "--id"),
        _ => None,
    };
    name.unwrap_or_default()
}

fn xen_domains(reader: &dyn Reader) -> BTreeMap<String, Neighbour> {
    let domain = |back_end: bus::XenBackEnd| {
        let id = back_end.domain.to_string();
        (id.clone(), Neighbour { pid: 0, kind: Kind::XenDomain, name: id, threads: Vec::new() })
    };
    bus::xen_back_ends(reader).into_iter().map(domain).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_node::fake::Fake;
    use vmio_node::fake::Tree;

    fn host() -> Fake {
        Fake::new("fake").process(1, "init", &["/sbin/init"], Some(&[]), &[1])
    }

    #[test]
    fn guests_of_every_hypervisor_are_found_by_program() {
        let fake = host()
            .process(
                10,
                "qemu-system-x86",
                &["/usr/bin/qemu-system-x86_64", "-name", "guest=web1,debug-threads=on"],
                None,
                &[10, 11, 12],
            )
            .process(20, "kvm", &["/usr/bin/kvm", "-id", "101", "-name", "mail,debug-threads=on"], None, &[20])
            .process(30, "qemu-kvm", &["/usr/libexec/qemu-kvm", "-m", "64"], None, &[30])
            .process(40, "firecracker", &["./firecracker", "--id", "fc1"], None, &[40])
            .process(50, "cloud-hyperviso", &["cloud-hypervisor"], None, &[50])
            .process(60, "crosvm", &["/usr/bin/crosvm", "run"], None, &[60]);
        let found = others(&fake, "me").unwrap();
        let got: Vec<_> = found.guests.iter().map(|g| (g.pid, g.kind, g.name.as_str())).collect();
        let expected = [
            (10, Kind::Qemu, "web1"),
            (20, Kind::Qemu, "mail"),
            (30, Kind::Qemu, ""),
            (40, Kind::Firecracker, "fc1"),
            (50, Kind::CloudHypervisor, ""),
            (60, Kind::Crosvm, ""),
        ];
        assert_eq!(got, expected);
        assert_eq!(*found.guests[0].threads, [10, 11, 12]);
        assert_eq!(found.guests[0].label(), "QEMU guest web1 (pid 10)");
        assert!(!found.hidden);
    }

    #[test]
    fn what_only_looks_like_a_guest_is_none() {
        let fake = host()
            .process(10, "qemu-img", &["qemu-img", "create"], None, &[])
            .process(11, "bash", &["bash", "-c", "qemu-system-x86_64"], None, &[])
            .process(12, "qemu-storage-da", &["qemu-storage-daemon"], None, &[])
            .process(13, "kvm", &[], None, &[]) // a kernel thread
            .process(14, "vim", &["vim", "/usr/bin/kvm"], None, &[]);
        assert_eq!(others(&fake, "me").unwrap().guests, []);
    }

    #[test]
    fn ours_is_left_out_and_an_unreadable_environment_is_not_ours() {
        let qemu = &["/usr/bin/qemu-system-x86_64"];
        let fake = host()
            .process(10, "qemu", qemu, Some(&["HOME=/", "VMIO_OWNER=me"]), &[10])
            .process(11, "qemu", qemu, Some(&["VMIO_OWNER=someone-else"]), &[11])
            .process(12, "qemu", qemu, Some(&["XVMIO_OWNER=me", "VMIO_OWNERS=me"]), &[12])
            .process(13, "qemu", qemu, None, &[13]);
        let pids: Vec<u32> = others(&fake, "me").unwrap().guests.iter().map(|g| g.pid).collect();
        assert_eq!(pids, [11, 12, 13]);
    }

    #[test]
    fn xen_domains_have_their_back_end_threads_and_device_models() {
        let fake = host()
            .file("/sys/bus/xen-backend/devices/vbd-3-51712/uevent", "")
            .file("/sys/bus/xen-backend/devices/vif-3-0/uevent", "")
            .file("/sys/bus/xen-backend/devices/vbd-4-51712/uevent", "")
            .file("/sys/bus/xen-backend/devices/vbd-0-51712/uevent", "")
            .process(70, "3.xvda-0", &[], None, &[70])
            .process(71, "4.xvda-0", &[], None, &[71])
            .process(72, "qemu-system-i38", &["/usr/bin/qemu-system-i386", "-xen-domid", "4"], None, &[72, 73]);
        let found = others(&fake, "me").unwrap().guests;
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].pid, found[0].name.as_str(), &found[0].threads[..]), (70, "3", &[70][..]));
        assert_eq!((found[1].pid, found[1].name.as_str(), &found[1].threads[..]), (72, "4", &[71, 72, 73][..]));
    }

    #[test]
    fn a_guest_uses_the_disks_below_what_it_has_open() {
        let sysfs = |tree: Tree, disk: &str, number: &str| {
            tree.file(&format!("/sys/dev/block/{number}/uevent"), &format!("DEVNAME={disk}\n"), (0, 1)).file(
                &format!("/sys/block/{disk}/dev"),
                number,
                (0, 1),
            )
        };
        let mounts = "22 1 8:0 / / rw - ext4 /dev/sda rw\n23 1 8:16 / /srv rw - ext4 /dev/sdb rw\n";
        let host = || {
            let tree = sysfs(sysfs(sysfs(Tree::default(), "sda", "8:0"), "sdb", "8:16"), "sdc", "8:32");
            tree.file("/proc/self/mountinfo", mounts, (0, 2))
        };
        let guest = Neighbour { pid: 10, kind: Kind::Qemu, name: "web1".into(), threads: vec![] };
        let disk = |name: &str, number| Backing { leaves: [(name.to_owned(), number)].into(), ..Backing::default() };
        let of_file = host().file("/proc/10/fd/7", "", (8, 16));
        assert!(uses(&of_file, &guest, &disk("sdb", (8, 16))));
        assert!(!uses(&of_file, &guest, &disk("sda", (8, 0))));
        let of_device = host().block("/proc/10/fd/7", (8, 32));
        assert!(uses(&of_device, &guest, &disk("sdc", (8, 32))));
        assert!(!uses(&of_device, &guest, &disk("sdb", (8, 16))));
        // Its descriptors are not visible.
        assert!(uses(&host(), &guest, &disk("sda", (8, 0))));
        assert!(uses(&of_file, &guest, &Backing::default()));
    }

    #[test]
    fn containers_are_counted_apart_and_blind_spots_are_told() {
        let fake = Fake::new("fake")
            .process(10, "containerd-shim", &["/usr/bin/containerd-shim-runc-v2", "-id", "x"], None, &[])
            .process(11, "lxc-start", &["[lxc monitor] /var/lib/lxc 101"], None, &[])
            .process(12, "conmon", &["/usr/bin/conmon"], None, &[])
            .file("/proc/13/comm", "secret\n");
        let found = others(&fake, "me").unwrap();
        assert_eq!((found.guests.len(), found.containers, found.unreadable, found.hidden), (0, 3, 1, true));
    }
}
