//! Changes of rules to a disk that `vmio tax --like` can measure.

use crate::cell::Aio;

/// A rule's change to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskRemedy {
    /// The paravirtual driver, with an I/O thread, as in the advice.
    Driver,
    /// `cache=none` with the engine that fits the image.
    Pair,
    /// Another AIO engine.
    Aio(Aio),
    /// An I/O thread.
    Iothread,
    /// QEMU's default number of queues.
    Queues,
    /// Passing discards on. It makes nothing faster by itself, so it is measured only with other changes.
    Discard,
    /// Other storage, by target.
    Target(&'static str),
}
