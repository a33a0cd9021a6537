//! What the log of a database or of etcd does: append 4 KiB, make it durable, then the next.

use std::borrow::Cow;

use super::fio::{Engine, FioJob, Rw};

/// Entry `durable-append`.
pub const ENTRY: FioJob = FioJob {
    name: Cow::Borrowed("durable-append"),
    about: Cow::Borrowed("fio: 4 KiB appends, fdatasync after each, 1 in flight; write and fdatasync timed together"),
    rw: Rw::Write,
    block_bytes: 4096,
    depth: 1,
    engine: Engine::Durable,
    buffered: true,
};
