//! Sequential reads past the page cache, eight in flight; the counterpart of `seq-write`.

use std::borrow::Cow;

use super::fio::{Engine, FioJob, Rw};

/// Entry `seq-read`.
pub const ENTRY: FioJob = FioJob {
    name: Cow::Borrowed("seq-read"),
    about: Cow::Borrowed("fio: 64 KiB sequential reads, direct, 8 in flight"),
    rw: Rw::Read,
    block_bytes: 64 << 10,
    depth: 8,
    engine: Engine::Libaio,
    buffered: false,
};
