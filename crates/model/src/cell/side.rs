//! Who works: the host itself, or a guest of some shape. Guests are booted by shape: two cells whose
//! sides are equal share one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Arch, Kind};

/// A guest, or the host itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// Entry of `guests/`: `native`, `qemu`, `container`.
    pub kind: String,
    /// What of it is not as the study's `[guest]` says.
    #[serde(default, skip_serializing_if = "Shape::is_plain")]
    pub shape: Shape,
    /// Which of this shape, from 0: cells with several guests have more than one, and as many native sides
    /// stand against them.
    #[serde(default, skip_serializing_if = "is_first")]
    pub nth: u32,
}

/// What a guest has, and the host itself in its place. What is not said is as the study's `[guest]` says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    /// What its processors understand.
    #[serde(skip_serializing_if = "Arch::is_own")]
    pub arch: Arch,
    /// The machine that it is given: `q35`, `virt`, `microvm` (QEMU `-machine`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Virtual CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    /// Memory in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u32>,
    /// Release of its kernel (`uname -r`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Processors of the host that it is held to; empty: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<u32>,
}

impl Shape {
    /// Whether all of it is as the study says.
    pub fn is_plain(&self) -> bool {
        *self == Shape::default()
    }

    /// What of it the host itself, or a container on it, can be held to: processors and memory.
    #[must_use]
    pub fn natively(&self) -> Self {
        Self { arch: Arch::default(), machine: None, kernel: None, ..self.clone() }
    }
}

impl Side {
    /// The first guest of a kind, in the study's own shape.
    pub fn of(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), shape: Shape::default(), nth: 0 }
    }

    /// The host itself.
    pub fn native() -> Self {
        Self::of(Kind::NATIVE.name)
    }

    /// Whether it is the host itself.
    pub fn is_native(&self) -> bool {
        Kind::of(&self.kind).is_host
    }

    /// Whether it is another machine than this host ([`Kind::is_afar`]).
    pub fn is_afar(&self) -> bool {
        Kind::of(&self.kind).is_afar
    }

    /// Whether it works under a kernel that runs already: it sees its subject by no device of its own.
    pub fn shares_kernel(&self) -> bool {
        Kind::of(&self.kind).shares_kernel
    }
}

fn is_first(nth: &u32) -> bool {
    *nth == 0
}

/// `qemu`, `qemu:vcpus=2:memory=512#2`.
impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shape { arch, machine, vcpus, memory_mib, kernel, pins } = &self.shape;
        f.write_str(&self.kind)?;
        let mut say = |name: &str, value: Option<String>| match value {
            Some(value) => write!(f, ":{name}={value}"),
            None => Ok(()),
        };
        say("arch", (!arch.is_own()).then(|| arch.to_string()))?;
        say("machine", machine.clone())?;
        say("vcpus", vcpus.map(|n| n.to_string()))?;
        say("memory", memory_mib.map(|n| n.to_string()))?;
        say("kernel", kernel.clone())?;
        let list: Vec<String> = pins.iter().map(u32::to_string).collect();
        say("pins", (!list.is_empty()).then(|| list.join("+")))?;
        if self.nth > 0 {
            // A stored run may say anything.
            write!(f, "#{}", u64::from(self.nth) + 1)?;
        }
        Ok(())
    }
}
