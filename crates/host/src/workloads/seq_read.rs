//! Sequential reads past the page cache, eight in flight; the counterpart of `seq-write`.

use super::fio::{FioJob, Rw};

/// Entry `seq-read`.
pub const ENTRY: FioJob = FioJob {
    name: "seq-read",
    about: "fio: 64 KiB sequential reads, direct, 8 in flight",
    rw: Rw::Read,
    block_bytes: 64 << 10,
    depth: 8,
    durable: false,
};
