//! Memory of guests that moves between them.

use super::figures::Kind::{self, Gauge};
use super::figures::yes;
use super::{Status, Text};
use crate::manager::document::MemoryDocument;

/// A figure of each guest whose class has a `memory_min`: name, type, help, value.
type OfGuest = (&'static str, Kind, &'static str, fn(&MemoryDocument) -> Option<f64>);

const OF_GUESTS: [OfGuest; 5] = [
    ("memory_bytes", Gauge, "Memory that the guest's balloon leaves it.", |m| Some(m.actual_bytes? as f64)),
    ("memory_before_bytes", Gauge, "Memory that it had before the first move, which undo gives back.", |m| {
        Some(m.before_bytes? as f64)
    }),
    ("memory_due_bytes", Gauge, "Memory that it was moved to at the last check, or would be moved to.", |m| {
        Some(m.to_bytes? as f64)
    }),
    ("memory_host_cache_hits_ratio", Gauge, "Part of its reads that the host's page cache answered, 0 to 1.", |m| {
        Some(m.hits_percent? as f64 / 100.0)
    }),
    ("memory_moved", Gauge, "1 if the policy has its memory moved; 0: only told what would be moved.", |m| {
        Some(yes(m.is_moved))
    }),
];

pub(super) fn guests(out: &mut Text, status: &Status) {
    for (name, kind, help, value) in OF_GUESTS {
        let mut headed = false;
        for (guest, value) in status.memory.iter().filter_map(|memory| Some((&memory.guest, value(memory)?))) {
            if !std::mem::replace(&mut headed, true) {
                out.head(name, kind, help);
            }
            out.labelled(name, &[("guest", guest)], value);
        }
    }
}
