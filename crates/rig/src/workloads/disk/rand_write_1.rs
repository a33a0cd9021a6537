//! Random writes one at a time: the cost of one request's round trip.

use std::borrow::Cow;

use super::fio::{Engine, FioJob, Rw};

/// Entry `rand-write-1`.
pub const ENTRY: FioJob = FioJob {
    name: Cow::Borrowed("rand-write-1"),
    about: Cow::Borrowed("fio: 4 KiB random writes, direct, 1 in flight"),
    rw: Rw::RandWrite,
    block_bytes: 4096,
    depth: 1,
    engine: Engine::Libaio,
    buffered: false,
};
