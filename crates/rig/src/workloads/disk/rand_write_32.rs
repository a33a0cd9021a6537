//! Random writes, 32 in flight: how well a path carries many requests at once.

use std::borrow::Cow;

use super::fio::{Engine, FioJob, Rw};

/// Entry `rand-write-32`.
pub const ENTRY: FioJob = FioJob {
    name: Cow::Borrowed("rand-write-32"),
    about: Cow::Borrowed("fio: 4 KiB random writes, direct, 32 in flight"),
    rw: Rw::RandWrite,
    block_bytes: 4096,
    depth: 32,
    engine: Engine::Libaio,
    buffered: false,
};
