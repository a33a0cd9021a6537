//! What a policy promises guests of their memory.

use std::collections::BTreeMap;

use super::{HOST_KEEPS, LEAST_BYTES};

/// A guest's memory: what it always has, and the most that it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contract {
    /// Never less, whatever others want.
    pub min_bytes: u64,
    /// Never more, whatever it wants.
    pub max_bytes: u64,
}

/// Why contracts cannot be held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its own limits exclude each other.
    #[error("guest {guest}: its minimum of {min_bytes} bytes of memory is above its maximum of {max_bytes}")]
    MinAboveMax {
        /// The guest.
        guest: String,
        /// Its minimum.
        min_bytes: u64,
        /// Its maximum.
        max_bytes: u64,
    },
    /// No guest works in so little.
    #[error("guest {guest}: a minimum of {min_bytes} bytes of memory is too little to work in; at least {LEAST_BYTES}")]
    TooLittle {
        /// The guest.
        guest: String,
        /// Its minimum.
        min_bytes: u64,
    },
    /// The host does not have all minima.
    #[error("the minima add up to {minima_bytes} bytes of memory, and the host has {host_bytes} for its guests")]
    TooMuch {
        /// All minima.
        minima_bytes: u64,
        /// The host's memory without its reserve.
        host_bytes: u64,
    },
}

/// All that is wrong with contracts on a host with that much memory; in the order of the guests' names.
pub fn check(contracts: &BTreeMap<String, Contract>, host_bytes: u64) -> Vec<Refusal> {
    let mut wrong = Vec::new();
    for (guest, Contract { min_bytes, max_bytes }) in contracts.iter().map(|(guest, own)| (guest.clone(), *own)) {
        if min_bytes > max_bytes {
            wrong.push(Refusal::MinAboveMax { guest, min_bytes, max_bytes });
        } else if min_bytes < LEAST_BYTES {
            wrong.push(Refusal::TooLittle { guest, min_bytes });
        }
    }
    let minima_bytes = contracts.values().map(|own| own.min_bytes).fold(0, u64::saturating_add);
    let host_bytes = host_bytes - host_bytes / HOST_KEEPS;
    if minima_bytes > host_bytes {
        wrong.push(Refusal::TooMuch { minima_bytes, host_bytes });
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_held_is_refused_with_the_reason() {
        let of = |all: &[(&str, u64, u64)], host_bytes: u64| {
            let own =
                |&(name, min_bytes, max_bytes): &(&str, u64, u64)| (name.to_owned(), Contract { min_bytes, max_bytes });
            let wrong = check(&all.iter().map(own).collect(), host_bytes);
            wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let gib = 1 << 30;
        assert_eq!(of(&[("a", gib, 2 * gib), ("b", gib, gib)], 4 * gib), "");
        assert!(of(&[("a", 2 * gib, gib)], 4 * gib).contains("guest a: its minimum of 2147483648 bytes"));
        assert!(of(&[("a", LEAST_BYTES - 1, gib)], 4 * gib).contains("too little to work in"));
        // Each fits, and both do not.
        let said = of(&[("a", 2 * gib, 2 * gib), ("b", 2 * gib, 2 * gib)], 4 * gib);
        assert_eq!(said, "the minima add up to 4294967296 bytes of memory, and the host has 4026531840 for its guests");
    }
}
