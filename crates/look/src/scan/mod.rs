//! The guests of this host and their settings: every kind of guest is searched for, managers add the configured
//! settings, disk images are read, and facts across guests are worked out. Nothing is changed; unread settings are
//! listed.

mod across;
mod below;
mod handed;
mod hosted;
mod memory;
mod shared_network;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use vmio_model::facts::{Guest, Unread};

use crate::host_view::HostView;
use crate::{images, kinds, limits, managers, parallel};

pub use memory::{MemoryOf, memory};

/// Result of a scan.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Scan {
    /// Guests, by unique name.
    pub guests: Vec<Guest>,
    /// Number of guests of each kind.
    pub kinds: BTreeMap<String, usize>,
    /// What could not be read and belongs to no guest.
    pub unread: Vec<Unread>,
    /// Duration in seconds; `None` where the machine's clock cannot be read.
    pub seconds: Option<f64>,
}

/// Scans all running guests.
pub fn scan(host: &HostView<'_>) -> Scan {
    let start = host.reader().clock_seconds().ok();
    let mut scan = Scan { unread: host.unseen().into_iter().collect(), ..Scan::default() };
    for running in parallel::map(kinds::ALL.to_vec(), |kind| kind.running(host)) {
        scan.guests.extend(running.guests);
        scan.unread.extend(running.unread);
    }
    scan.guests = parallel::map(scan.guests, |mut guest| {
        if let Some(kind) = kinds::find(&guest.kind) {
            kind.ask(host, &mut guest);
        }
        guest
    });
    let mut known = Known::default();
    scan.guests.iter().enumerate().for_each(|(at, guest)| known.add(at, guest));
    for managed in parallel::map(managers::ALL.to_vec(), |manager| manager.guests(host)) {
        scan.unread.extend(managed.unread);
        for asked in managed.guests {
            let at = known.find(&scan.guests, &asked).unwrap_or(scan.guests.len());
            match scan.guests.get_mut(at) {
                Some(guest) => guest.configured(asked),
                None => scan.guests.push(asked),
            }
            known.add(at, &scan.guests[at]);
        }
    }
    scan.guests = parallel::map(scan.guests, |guest| hosted::settle(host, guest));
    across::settle(host, &mut scan.guests);
    shared_network::settle(host, &mut scan.guests);
    scan.unread.extend(limits::settle(host, &mut scan.guests));
    scan.unread.extend(host.ovs_unread());
    images::fill(host, &mut scan.guests);
    below::settle(host, &mut scan.guests);
    handed::settle(host, &mut scan.guests);
    for guest in &mut scan.guests {
        shorten(&mut guest.unread);
    }
    for guest in &scan.guests {
        *scan.kinds.entry(guest.kind.clone()).or_default() += 1;
    }
    scan.seconds = start.and_then(|start| Some(host.reader().clock_seconds().ok()? - start));
    scan
}

/// Most unread settings of one guest that are listed.
const MOST_UNREAD: usize = 60;

/// Removes duplicates and shortens the list.
fn shorten(unread: &mut Vec<Unread>) {
    let mut listed = BTreeSet::new();
    unread.retain(|one| listed.insert((one.what.clone(), one.why.clone())));
    let more = unread.len().saturating_sub(MOST_UNREAD);
    if more > 0 {
        unread.truncate(MOST_UNREAD);
        unread.push(Unread {
            what: format!("{more} further settings"),
            why: "too many of one guest to list".into(),
            mend: "start with those listed".into(),
        });
    }
}

/// Whether both are one guest: by Xen's number, then process, then UUID, then kind and name (a container may have a
/// virtual machine's name).
fn same(a: &Guest, b: &Guest) -> bool {
    if let (Some(a), Some(b)) = (a.ids.get("domid"), b.ids.get("domid")) {
        return a == b;
    }
    if let (Some(a), Some(b)) = (a.pid, b.pid) {
        return a == b;
    }
    if let (Some(a), Some(b)) = (&a.uuid, &b.uuid) {
        return a == b;
    }
    a.kind == b.kind && a.name == b.name
}

/// What a guest may be known by.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Domain(String),
    Process(u32),
    Uuid(String),
    Name(String, String),
}

impl Key {
    fn all(guest: &Guest) -> impl Iterator<Item = Key> {
        let domain = guest.ids.get("domid").cloned().map(Key::Domain);
        let uuid = guest.uuid.clone().map(Key::Uuid);
        let name = Key::Name(guest.kind.clone(), guest.name.clone());
        [domain, guest.pid.map(Key::Process), uuid, Some(name)].into_iter().flatten()
    }
}

/// Places of guests by all that they were ever known by: a thousand need not be gone through for each.
#[derive(Debug, Default)]
struct Known(BTreeMap<Key, BTreeSet<usize>>);

impl Known {
    fn add(&mut self, at: usize, guest: &Guest) {
        for key in Key::all(guest) {
            self.0.entry(key).or_default().insert(at);
        }
    }

    /// The place of the first that is the same.
    fn find(&self, guests: &[Guest], asked: &Guest) -> Option<usize> {
        let places = Key::all(asked).filter_map(|key| self.0.get(&key)).flatten().copied();
        places.filter(|at| same(&guests[*at], asked)).min()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_node::fake::Fake;

    /// A machine with these guests, by pid and `-name`.
    fn host(guests: &[(u32, &str)]) -> Fake {
        guests.iter().fold(Fake::new("fake"), |fake, (pid, name)| {
            let args = format!("/usr/bin/qemu-system-x86_64\0-name\0{name}\0-nodefaults\0");
            fake.file(format!("/proc/{pid}/comm"), "qemu-system-x86\n").file(format!("/proc/{pid}/cmdline"), args)
        })
    }

    #[test]
    fn guests_are_in_the_order_of_their_names_which_are_distinct() {
        let fake = host(&[(10, "web"), (11, "db"), (12, "web"), (13, "")]);
        let scan = scan(&HostView::new(&fake));
        let names: Vec<&str> = scan.guests.iter().map(|g| g.name.as_str()).collect();
        assert_eq!(names, ["db", "pid 13", "web (pid 10)", "web (pid 12)"]);
        let subject = &scan.guests[2].processors.as_ref().unwrap().subject;
        assert_eq!(subject.to_string(), "guest web (pid 10)");
        assert_eq!((scan.kinds.get("qemu"), scan.seconds), (Some(&4), Some(0.0)));
    }

    #[test]
    fn a_container_and_a_machine_of_one_name_are_two() {
        let guest =
            |kind: &str, pid: Option<u32>| Guest { name: "102".into(), kind: kind.into(), pid, ..Guest::default() };
        assert!(same(&guest("qemu", Some(9)), &guest("qemu", None)));
        assert!(!same(&guest("qemu", Some(9)), &guest("container", None)));
    }

    #[test]
    fn a_guest_is_found_by_what_it_is_known_by() {
        let guest = |pid: Option<u32>, uuid: Option<&str>| Guest {
            name: "web".into(),
            kind: "qemu".into(),
            pid,
            uuid: uuid.map(str::to_owned),
            ..Guest::default()
        };
        let guests = [guest(Some(8), Some("a")), guest(Some(9), None), guest(None, Some("b"))];
        let mut known = Known::default();
        guests.iter().enumerate().for_each(|(at, guest)| known.add(at, guest));
        let of = |pid, uuid| known.find(&guests, &guest(pid, uuid));
        // By the process where both have one, then by the UUID, then by the name; the first.
        assert_eq!((of(Some(9), Some("a")), of(None, Some("b")), of(None, None)), (Some(1), Some(1), Some(0)));
        assert_eq!((of(Some(7), Some("b")), of(None, Some("a"))), (Some(2), Some(0)));
    }

    #[test]
    fn a_host_without_guests_has_none_and_nothing_is_unread() {
        let scan =
            scan(&HostView::new(&Fake::new("fake").file("/proc/1/comm", "init\n").file("/proc/1/cmdline", "init\0")));
        assert_eq!((scan.guests, scan.unread, scan.kinds.len()), (vec![], vec![], 0));
    }
}
