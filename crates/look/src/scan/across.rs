//! What needs all guests to be known: unique names and subjects, facts that devices have from their guest, and guests
//! that share processors.

use std::collections::{BTreeMap, BTreeSet};

use vmio_model::facts::{DeviceId, Disk, Fact, Guest, Nic, Place, Processors, Provenance, Subject, tell_apart};
use vmio_node::linux::system::CLOCK_SOURCE;

use crate::host_view::HostView;

/// Completes the guests and sorts them by name.
pub fn settle(host: &HostView<'_>, guests: &mut [Guest]) {
    tell_apart(guests);
    for guest in guests.iter_mut() {
        inside(guest);
        of_host(host, guest);
    }
    share(guests);
    guests.sort_by(|a, b| a.name.cmp(&b.name).then(a.pid.cmp(&b.pid)));
}

/// BSD systems, and firewalls and file servers made of them, as names of guests and images have them.
const BSD: [&str; 9] =
    ["freebsd", "openbsd", "netbsd", "ghostbsd", "hardenedbsd", "dragonflybsd", "pfsense", "opnsense", "freenas"];

/// Whether a name of the guest, or of an image of its, is a BSD's. What a configuration says of the system may be what
/// its form proposed: Proxmox VE's has Linux there.
fn is_named_bsd(guest: &Guest) -> bool {
    let images = guest.disks.iter().filter_map(|disk| disk.place.source.as_deref()?.rsplit('/').next());
    let names = [guest.name.as_str()].into_iter().chain(guest.ids.values().map(String::as_str)).chain(images);
    names.map(str::to_lowercase).any(|name| BSD.iter().any(|system| name.contains(system)))
}

/// Copies facts of a guest to its devices and processors.
fn inside(guest: &mut Guest) {
    // Who has told Proxmox VE nothing of Windows has "other", too.
    let windows = guest.os.as_deref().filter(|os| *os != "other").map(|os| os == "windows");
    let known = guest.processors.as_ref();
    let windows = windows.or(known.and_then(|p| *p.windows));
    let bsd = windows != Some(true) && is_named_bsd(guest);
    let vcpus = known.and_then(|p| *p.vcpus);
    let owner =
        Place { domain: guest.ids.get("domain").cloned(), vmid: guest.ids.get("vmid").cloned(), ..Place::default() };
    let belongs = |place: &mut Place| {
        place.domain = place.domain.take().or_else(|| owner.domain.clone());
        place.vmid = place.vmid.take().or_else(|| owner.vmid.clone());
    };
    let name = guest.name.clone();
    let mut alike: BTreeMap<String, u32> = BTreeMap::new();
    guest.disks.iter().filter_map(|d| d.driver.value().clone()).for_each(|d| *alike.entry(d).or_default() += 1);
    for disk in &mut guest.disks {
        disk.details.alike_in_guest = disk.driver.as_ref().and_then(|d| alike.get(d).copied()).into();
        disk.subject = Subject::disk(&name, called(disk));
        belongs(&mut disk.place);
        rename(&mut disk.from, &name);
    }
    for nic in &mut guest.nics {
        if nic.vcpus.is_none() {
            nic.vcpus = vcpus.into();
        }
        if nic.windows.is_none() {
            nic.windows = windows.into();
        }
        if bsd {
            nic.os = Fact::read(Some("bsd".into()), "a name of the guest or its image");
        } else if nic.os.is_none() {
            nic.os = guest.os.clone().into();
        }
        nic.subject = Subject::net(&name, nic_called(nic));
        belongs(&mut nic.place);
        rename(&mut nic.from, &name);
    }
    number(guest.disks.iter_mut().map(|disk| &mut disk.subject));
    number(guest.nics.iter_mut().map(|nic| &mut nic.subject));
    if let Some(processors) = &mut guest.processors {
        processors.windows = processors.windows.or(windows).into();
        processors.subject = Subject::guest(&name);
        belongs(&mut processors.place);
        rename(&mut processors.from, &name);
    }
}

/// Copies what advice needs to know of the host and the hypervisor.
fn of_host(host: &HostView<'_>, guest: &mut Guest) {
    for disk in &mut guest.disks {
        disk.details.host = Some(host.seen().clone()).into();
        disk.details.hypervisor = guest.version.clone().into();
    }
    if let (Some(processors), Some(clock)) = (&mut guest.processors, &host.seen().clock_source) {
        processors.clock_source = Fact::read(Some(clock.clone()), CLOCK_SOURCE);
    }
}

/// The owner's name of a disk.
fn called(disk: &Disk) -> String {
    let place = &disk.place;
    let given = [&place.slot, &place.target, &place.device_id].into_iter().flatten().next().cloned();
    given.unwrap_or_else(|| disk.subject.device_name().to_owned())
}

/// The owner's name of a network device; its MAC address says little, so it comes last.
fn nic_called(nic: &Nic) -> String {
    let place = &nic.place;
    let given = [&place.slot, &nic.interface, &place.device_id, &place.target].into_iter().flatten().next().cloned();
    given.unwrap_or_else(|| nic.subject.device_name().to_owned())
}

/// Numbers devices of the same name, so that each has a unique id.
fn number<'a>(subjects: impl Iterator<Item = &'a mut Subject>) {
    let mut before: BTreeMap<DeviceId, u32> = BTreeMap::new();
    for device in subjects.filter_map(|subject| subject.device.as_mut()) {
        let seen = before.entry(device.clone()).or_default();
        device.twin = *seen;
        *seen += 1;
    }
}

fn rename(from: &mut Provenance, name: &str) {
    if let Provenance::Live { guest, .. } = from {
        name.clone_into(guest);
    }
}

/// Finds guests whose vCPUs are bound to the same processor.
fn share(guests: &mut [Guest]) {
    let bound: Vec<BTreeSet<u32>> =
        guests.iter().map(|g| g.processors.as_ref().map(bound).unwrap_or_default()).collect();
    let names: Vec<String> = guests.iter().map(|g| g.name.clone()).collect();
    let mut on: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, cpus) in bound.iter().enumerate() {
        cpus.iter().for_each(|cpu| on.entry(*cpu).or_default().push(i));
    }
    for (i, guest) in guests.iter_mut().enumerate() {
        let Some(own) = guest.processors.as_mut().filter(|_| !bound[i].is_empty()) else { continue };
        let there: BTreeSet<usize> = bound[i].iter().filter_map(|cpu| on.get(cpu)).flatten().copied().collect();
        own.shares_cpus_with = there.into_iter().filter(|j| *j != i).map(|j| names[j].clone()).collect();
    }
}

/// Processors that vCPUs are bound to. A set larger than the guest's number of vCPUs, or all of the host's processors,
/// is no binding: several guests move about in it.
fn bound(processors: &Processors) -> BTreeSet<u32> {
    let vcpus = || processors.threads.iter().filter(|t| t.role == "vcpu");
    let most = vcpus().count().min(processors.host.len().saturating_sub(1));
    vcpus().filter(|t| t.cpus.len() <= most).flat_map(|t| t.cpus.iter().copied()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_model::facts::{HostCpu, PlacedThread};
    use vmio_node::Fake;

    fn from() -> Provenance {
        Provenance::Live { guest: "old".into(), read_from: "/proc/8/cmdline".into(), at_unix_seconds: 1.0 }
    }

    fn guest(name: &str, pid: u32, vcpus: &[&[u32]]) -> Guest {
        let threads = vcpus.iter().enumerate().map(|(i, cpus)| PlacedThread {
            role: "vcpu".into(),
            name: i.to_string(),
            tid: 0,
            cpus: cpus.to_vec(),
        });
        let host = (0..4).map(|cpu| HostCpu { cpu, core: cpu, package: 0, node: 0 });
        let processors = Processors {
            vcpus: Some(vcpus.len() as u32).into(),
            threads: threads.collect(),
            host: host.collect(),
            ..Processors::unknown(Subject::guest("old"), from())
        };
        Guest { name: name.into(), pid: Some(pid), processors: Some(processors), ..Guest::default() }
    }

    #[test]
    fn guests_bound_to_one_processor_share_it_and_others_do_not() {
        let all: &[u32] = &[0, 1, 2, 3];
        let mut guests = [
            guest("a", 1, &[&[1], &[2]]),
            guest("b", 2, &[&[2]]),
            guest("c", 3, &[all, all]),
            guest("d", 4, &[&[1, 2, 3]]), // moves about in a part of the host
            guest("e", 5, &[&[0]]),
        ];
        settle(&HostView::new(&Fake::new("fake")), &mut guests);
        let shared: Vec<Vec<String>> =
            guests.iter().map(|g| g.processors.as_ref().unwrap().shares_cpus_with.value().clone()).collect();
        assert_eq!(shared, [vec!["b".to_owned()], vec!["a".to_owned()], vec![], vec![], vec![]]);
    }

    #[test]
    fn devices_know_their_guest_and_bear_its_name() {
        let disk = |driver: &str, place: Place| Disk {
            driver: Some(driver.into()).into(),
            place,
            ..Disk::unknown(Subject::disk("old", "7"), from())
        };
        let mut own = guest("web", 9, &[&[0]]);
        own.os = Some("windows".into());
        own.ids.insert("vmid".into(), "101".into());
        let scsi = Place { slot: Some("scsi0".into()), device_id: Some("scsi0".into()), ..Place::default() };
        own.disks = vec![disk("virtio-scsi", scsi), disk("ahci", Place::default()), disk("ahci", Place::default())];
        own.nics = vec![Nic { interface: "tap101i0".into(), ..Nic::unknown(Subject::net("old", "0"), from()) }];
        let mut guests = [own];
        let fake =
            Fake::new("fake").file("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n").file(CLOCK_SOURCE, "hpet\n");
        settle(&HostView::new(&fake), &mut guests);
        let own = &guests[0];
        let seen: Vec<_> = own.disks.iter().map(|d| (d.subject.to_string(), *d.details.alike_in_guest)).collect();
        let expected =
            [("guest web, disk scsi0", Some(1)), ("guest web, disk 7", Some(2)), ("guest web, disk 7", Some(2))];
        assert_eq!(seen, expected.map(|(subject, alike)| (subject.to_owned(), alike)));
        // They look alike and are two.
        assert_ne!(own.disks[1].subject, own.disks[2].subject);
        assert!(own.disks.iter().all(|d| d.place.vmid.as_deref() == Some("101")));
        let seen = own.disks[0].details.host.as_ref().unwrap();
        assert_eq!((seen.kernel, seen.io_uring_disabled), (Some((6, 1)), None));
        assert_eq!(own.processors.as_ref().unwrap().clock_source.as_deref(), Some("hpet"));
        assert_eq!(own.nics[0].os.as_deref(), Some("windows"));
        let nic = &own.nics[0];
        assert_eq!(
            (nic.subject.to_string(), *nic.vcpus, *nic.windows),
            ("guest web, net tap101i0".to_owned(), Some(1), Some(true))
        );
        assert!(matches!(&nic.from, Provenance::Live { guest, .. } if guest == "web"));
    }

    /// Proxmox VE's form proposes Linux, and plain QEMU says nothing.
    #[test]
    fn a_bsd_is_known_by_its_name() {
        let os = |name: &str, configured: Option<&str>, image: Option<&str>| {
            let nic = Nic::unknown(Subject::net(name, "tap0"), from());
            let mut disk = Disk::unknown(Subject::disk(name, "vda"), from());
            disk.place.source = image.map(str::to_owned).into();
            let os = configured.map(str::to_owned);
            let (nics, disks) = (vec![nic], vec![disk]);
            let mut guest = Guest { name: name.into(), os, nics, disks, ..Guest::default() };
            inside(&mut guest);
            guest.nics[0].os.value().clone()
        };
        let bsd = Some("bsd".to_owned());
        assert_eq!(os("OPNsense", Some("linux"), None), bsd);
        assert_eq!(os("fw1", None, Some("/images/FreeBSD-14.1-amd64.qcow2")), bsd);
        assert_eq!(os("web1", Some("linux"), Some("/freebsd/web1.raw")), Some("linux".to_owned()));
        assert_eq!(os("web1", None, None), None);
        assert_eq!(os("opnsense-admin", Some("windows"), None), Some("windows".to_owned()));
    }
}
