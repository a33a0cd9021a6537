//! What a rule's change does to a disk, where `vmio tax --like` can measure that.

use crate::cell::Aio;

/// What a rule's change does to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mend {
    /// The paravirtual driver.
    Driver,
    /// `cache=none` with the engine that suits the image.
    Pair,
    /// Another AIO engine.
    Aio(Aio),
    /// An I/O thread.
    Iothread,
    /// As many queues as QEMU gives by itself.
    Queues,
    /// Other storage, by the target's name.
    Target(&'static str),
}
