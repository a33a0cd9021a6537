//! Instruction sets of guests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An instruction set. vmio itself runs on x86-64: a guest of another one is emulated, and has no native baseline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// 64-bit x86, the host's.
    #[default]
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Arch {
    /// All.
    pub const ALL: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

    /// As `uname -m` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        }
    }

    /// Debian's name of the architecture.
    pub fn debian(self) -> &'static str {
        match self {
            Arch::X86_64 => "amd64",
            Arch::Aarch64 => "arm64",
        }
    }

    /// Whether it is the host's.
    pub fn is_own(&self) -> bool {
        *self == Arch::default()
    }
}

impl std::fmt::Display for Arch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
