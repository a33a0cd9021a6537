//! What a rule's change does to a disk, where `vmio tax --like` can measure that.

use crate::cell::Aio;

/// What a rule's change does to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskRemedy {
    /// The paravirtual driver, with an I/O thread: the advice names both.
    Driver,
    /// `cache=none` with the engine that suits the image.
    Pair,
    /// Another AIO engine.
    Aio(Aio),
    /// An I/O thread.
    Iothread,
    /// As many queues as QEMU gives by itself.
    Queues,
    /// Discards are passed on. By itself it makes nothing faster: it is measured with the other changes alone.
    Discard,
    /// Other storage, by the target's name.
    Target(&'static str),
}
