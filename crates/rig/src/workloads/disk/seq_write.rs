//! Sequential writes past the page cache, eight in flight, so that bandwidth is measured and
//! not the round trip of one request (that is what `dd` and the depth-1 jobs show).

use std::borrow::Cow;

use super::fio::{Engine, FioJob, Rw};

/// Entry `seq-write`.
pub const ENTRY: FioJob = FioJob {
    name: Cow::Borrowed("seq-write"),
    about: Cow::Borrowed("fio: 64 KiB sequential writes, direct, 8 in flight"),
    rw: Rw::Write,
    block_bytes: 64 << 10,
    depth: 8,
    engine: Engine::Libaio,
    buffered: false,
};
