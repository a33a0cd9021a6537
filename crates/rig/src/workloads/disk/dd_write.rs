//! The paper's `dd` write.

use super::dd::Dd;

/// Entry `dd-write`.
pub const ENTRY: Dd =
    Dd { name: "dd-write", about: "dd: 64 KiB buffered writes of twice the memory, flush counted", writes: true };
