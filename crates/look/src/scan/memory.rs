//! What decides on the memory of running guests, and no more than that: a monitor is held for two round trips, and no
//! manager is asked.

use std::collections::BTreeSet;

use vmio_model::facts::{Guest, Unread};

use super::hosted;
use crate::host_view::HostView;
use crate::{images, kinds, parallel};

/// A guest with a kernel of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryOf {
    /// The guest; its balloon, its reads and what the host's page cache holds of its disks only where it was asked.
    pub guest: Guest,
    /// Why its hypervisor told nothing; `None` where it did, or was not asked.
    pub unread: Option<Vec<Unread>>,
}

/// The running guests with kernels of their own; those of these processes are asked.
pub fn memory(host: &HostView<'_>, wanted: &BTreeSet<u32>) -> Vec<MemoryOf> {
    let running = kinds::ALL.iter().flat_map(|kind| kind.running(host).guests);
    let own_kernel = running.filter(|guest| !guest.shares_kernel() && guest.processors.is_some());
    let is_wanted = |guest: &Guest| guest.pid.is_some_and(|pid| wanted.contains(&pid));
    let (asked, others): (Vec<Guest>, Vec<Guest>) = own_kernel.partition(is_wanted);
    let asked = parallel::map(asked, |mut guest| {
        let answered = kinds::find(&guest.kind).map_or(Err(Vec::new()), |kind| kind.memory(host, &mut guest));
        (hosted::settle(host, guest), answered.err())
    });
    let (mut guests, unread): (Vec<Guest>, Vec<_>) = asked.into_iter().unzip();
    images::fill(host, &mut guests);
    let of_others = others.into_iter().map(|guest| MemoryOf { guest, unread: None });
    guests.into_iter().zip(unread).map(|(guest, unread)| MemoryOf { guest, unread }).chain(of_others).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use vmio_node::fake::Fake;

    use super::*;

    #[test]
    fn only_those_that_are_wanted_are_asked() {
        let fake = [(10, "web"), (11, "db")].into_iter().fold(Fake::new("fake"), |fake, (pid, name)| {
            let args = format!("/usr/bin/qemu-system-x86_64\0-name\0{name}\0-m\0{pid}\0");
            fake.file(format!("/proc/{pid}/comm"), "qemu-system-x86\n")
                .file(format!("/proc/{pid}/cmdline"), args)
                .file(format!("/proc/{pid}/io"), "read_bytes: 4096\nwrite_bytes: 0\n")
        });
        let all = memory(&HostView::new(&fake), &BTreeSet::from([11]));
        let of = |pid: u32| all.iter().find(|found| found.guest.pid == Some(pid)).unwrap();
        let read = |pid: u32| *of(pid).guest.processors.as_ref().unwrap().storage_read_bytes;
        assert_eq!((all.len(), read(10), read(11)), (2, None, Some(4096)));
        // Neither has a monitor on a socket.
        assert_eq!((&of(10).unread, &of(11).unread), (&None, &Some(Vec::new())));
        let bytes = *of(10).guest.processors.as_ref().unwrap().memory_bytes;
        assert_eq!(bytes, Some(10 << 20));
    }
}
