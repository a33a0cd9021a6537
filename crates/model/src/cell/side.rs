//! Sides: the host itself, or a guest of some shape. Cells with equal sides share one booted guest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Arch, Kind};

/// A guest, or the host itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// Entry of `guests/`: `native`, `qemu`, `container`.
    pub kind: String,
    /// Differences from the study's `[guest]`.
    #[serde(default, skip_serializing_if = "Shape::is_plain")]
    pub shape: Shape,
    /// Index among guests of this shape, from 0: a cell with several guests has more than one, compared with as many
    /// native sides.
    #[serde(default, skip_serializing_if = "is_first")]
    pub nth: u32,
}

/// Shape of a guest, applied to the host itself in native cells. What is not set is as in the study's `[guest]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    /// Instruction set.
    #[serde(skip_serializing_if = "Arch::is_own")]
    pub arch: Arch,
    /// Machine type: `q35`, `virt`, `microvm` (QEMU `-machine`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Virtual CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    /// Memory in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u32>,
    /// Kernel release (`uname -r`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Processors of the host that it is pinned to; empty for any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<u32>,
}

impl Shape {
    /// Whether it is as the study says.
    pub fn is_plain(&self) -> bool {
        *self == Shape::default()
    }

    /// The part that the host itself, or a container, can be limited to: processors and memory.
    #[must_use]
    pub fn natively(&self) -> Self {
        Self { arch: Arch::default(), machine: None, kernel: None, ..self.clone() }
    }
}

impl Side {
    /// The first guest of a kind, in the study's shape.
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

    /// Whether it runs under an existing kernel, so that it has no attachment or card.
    pub fn shares_kernel(&self) -> bool {
        Kind::of(&self.kind).shares_kernel
    }

    /// What its hypervisor is called in messages; `None` where it shares a kernel.
    pub fn hypervisor(&self) -> Option<&str> {
        (!self.shares_kernel()).then(|| Kind::hypervisor_of(&self.kind))
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
            // A stored run may hold any number.
            write!(f, "#{}", u64::from(self.nth) + 1)?;
        }
        Ok(())
    }
}
