//! The jobs of fio that have a name of their own; the others are made from their names (`family.rs`).

use std::borrow::Cow;

use super::fio::{Engine, FioJob, Rw};

/// `seq-read`: sequential reads past the page cache, eight in flight; the counterpart of `seq-write`.
pub const SEQ_READ: FioJob = FioJob {
    name: Cow::Borrowed("seq-read"),
    about: Cow::Borrowed("fio: 64 KiB sequential reads, direct, 8 in flight"),
    rw: Rw::Read,
    block_bytes: 64 << 10,
    depth: 8,
    engine: Engine::Libaio,
    buffered: false,
    rate: None,
};

/// `seq-write`: sequential writes past the page cache, eight in flight, so that bandwidth is measured and not the round
/// trip of one request (that is what `dd` and the depth-1 jobs show).
pub const SEQ_WRITE: FioJob = FioJob {
    name: Cow::Borrowed("seq-write"),
    about: Cow::Borrowed("fio: 64 KiB sequential writes, direct, 8 in flight"),
    rw: Rw::Write,
    block_bytes: 64 << 10,
    depth: 8,
    engine: Engine::Libaio,
    buffered: false,
    rate: None,
};

/// `rand-read-1`: random reads one at a time: the cost of one request's round trip.
pub const RAND_READ_1: FioJob = FioJob {
    name: Cow::Borrowed("rand-read-1"),
    about: Cow::Borrowed("fio: 4 KiB random reads, direct, 1 in flight"),
    rw: Rw::RandRead,
    block_bytes: 4096,
    depth: 1,
    engine: Engine::Libaio,
    buffered: false,
    rate: None,
};

/// `rand-read-32`: random reads, 32 in flight: how well a path carries many requests at once.
pub const RAND_READ_32: FioJob = FioJob {
    name: Cow::Borrowed("rand-read-32"),
    about: Cow::Borrowed("fio: 4 KiB random reads, direct, 32 in flight"),
    rw: Rw::RandRead,
    block_bytes: 4096,
    depth: 32,
    engine: Engine::Libaio,
    buffered: false,
    rate: None,
};

/// `rand-write-1`: random writes one at a time: the cost of one request's round trip.
pub const RAND_WRITE_1: FioJob = FioJob {
    name: Cow::Borrowed("rand-write-1"),
    about: Cow::Borrowed("fio: 4 KiB random writes, direct, 1 in flight"),
    rw: Rw::RandWrite,
    block_bytes: 4096,
    depth: 1,
    engine: Engine::Libaio,
    buffered: false,
    rate: None,
};

/// `rand-write-32`: random writes, 32 in flight: how well a path carries many requests at once.
pub const RAND_WRITE_32: FioJob = FioJob {
    name: Cow::Borrowed("rand-write-32"),
    about: Cow::Borrowed("fio: 4 KiB random writes, direct, 32 in flight"),
    rw: Rw::RandWrite,
    block_bytes: 4096,
    depth: 32,
    engine: Engine::Libaio,
    buffered: false,
    rate: None,
};

/// `durable-append`: what the log of a database or of etcd does: append 4 KiB, make it durable, then the next.
pub const DURABLE_APPEND: FioJob = FioJob {
    name: Cow::Borrowed("durable-append"),
    about: Cow::Borrowed("fio: 4 KiB appends, fdatasync after each, 1 in flight; write and fdatasync timed together"),
    rw: Rw::Write,
    block_bytes: 4096,
    depth: 1,
    engine: Engine::Durable,
    buffered: true,
    rate: None,
};
