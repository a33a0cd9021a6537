//! The paper's `dd` read.

use super::dd::Dd;

/// Entry `dd-read`.
pub const ENTRY: Dd = Dd { name: "dd-read", about: "dd: 64 KiB buffered reads of twice the memory", writes: false };
