//! What runs on this host and how it is set up: every kind of guest says what it sees, managers
//! add what was asked for, disk images are read, and what concerns several guests is worked out.
//! Nothing is changed; what could not be read is told.

mod images;
mod storage;

use vmio_model::facts::{Guest, Unread};

use crate::guests;
use crate::look::Look;
use crate::managers;

/// What was found.
#[derive(Debug, Default)]
pub struct Scan {
    /// Guests, by name.
    pub guests: Vec<Guest>,
    /// What could not be read and belongs to no guest.
    pub unread: Vec<Unread>,
}

/// Looks at all guests that run now.
pub fn scan(look: &Look<'_>) -> Scan {
    let mut scan = Scan::default();
    for kind in guests::ALL {
        let mut running = kind.running(look);
        running.guests.iter_mut().for_each(|guest| kind.ask(look, guest));
        scan.guests.extend(running.guests);
        scan.unread.extend(running.unread);
    }
    for manager in managers::ALL {
        let managed = manager.guests(look);
        scan.unread.extend(managed.unread);
        for asked in managed.guests {
            match scan.guests.iter_mut().find(|g| same(g, &asked)) {
                Some(guest) => guest.configured(asked),
                None => scan.guests.push(asked),
            }
        }
    }
    images::fill(look, &mut scan.guests);
    scan.guests.sort_by(|a, b| a.name.cmp(&b.name));
    scan
}

/// Whether both are one guest: by process, then UUID, then name.
fn same(a: &Guest, b: &Guest) -> bool {
    if let (Some(a), Some(b)) = (a.pid, b.pid) {
        return a == b;
    }
    if let (Some(a), Some(b)) = (&a.uuid, &b.uuid) {
        return a == b;
    }
    a.name == b.name
}
