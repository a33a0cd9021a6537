//! A small hierarchy of queues, for unit tests and tests with root.

use vmio_model::policy::program::{Framing, Hierarchy, Leaf};
use vmio_model::rate::MBIT as M;

pub fn leaf(name: &str, rate_mbit: u64, ceil_mbit: u64) -> Leaf {
    Leaf {
        name: name.to_owned(),
        rate_bps: rate_mbit * M,
        ceil_bps: ceil_mbit * M,
        priority: 3,
        quantum_bytes: 15_140,
        burst_bytes: 131_072,
        policed_bytes: 0,
        queue_bytes: 250_000,
        flows: Vec::new(),
    }
}

/// 100 Mbit/s for three: `default` with 1, `web` with 60, `db` with 20.
pub fn three() -> Hierarchy {
    Hierarchy {
        rate_bps: 100 * M,
        burst_bytes: 131_072,
        framing: Framing::NONE,
        leaves: vec![leaf("default", 1, 100), leaf("web", 60, 100), leaf("db", 20, 50)],
    }
}
