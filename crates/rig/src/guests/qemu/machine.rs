//! The machines that guests of vmio's own are: one for each kind of processor (QEMU, docs/system/i386/pc.rst and
//! docs/system/arm/virt.rst).

use vmio_look::require::Requirement;
use vmio_model::cell::{Actor, Arch};

use crate::disks::drivers;
use crate::nics;
use crate::ours::AGENT;
use crate::qemu::{self, find_qemu};

/// What differs from one kind of processor to another.
pub struct Machine {
    /// QEMU `-machine`.
    pub name: &'static str,
    /// QEMU `-cpu` under emulation.
    pub emulated: &'static str,
    /// Device of the kernel's console.
    pub console: &'static str,
    /// What the kernel is told under emulation.
    pub kernel: &'static str,
    /// Further properties (`-global`).
    pub globals: &'static [&'static str],
}

const Q35: Machine = Machine {
    name: "q35",
    emulated: "max",
    console: "ttyS0",
    // Under emulation the kernel's watchdog may distrust the TSC when the host is busy and fall back to a clock that
    // costs an exit at each reading, in the middle of a measurement.
    kernel: " tsc=reliable",
    globals: &[],
};

/// With the virtio of today also where it is on no bus: QEMU's default there is that before version 1.0, which differs
/// from what the same devices are on PCI.
const VIRT: Machine = Machine {
    name: "virt",
    emulated: "cortex-a57",
    console: "ttyAMA0",
    kernel: "",
    globals: &["virtio-mmio.force-legacy=false"],
};

/// That of a kind of processor.
pub fn of(arch: Arch) -> &'static Machine {
    match arch {
        Arch::X86_64 => &Q35,
        Arch::Aarch64 => &VIRT,
    }
}

/// What a host needs for guests of 64-bit ARM.
pub const AARCH64: &[Requirement] = &[
    Requirement {
        name: "QEMU for aarch64",
        why: "emulates 64-bit ARM",
        mend: "apt install qemu-system-arm",
        check: |n| match find_qemu(n, Arch::Aarch64) {
            Ok(_) => Ok(()),
            Err(qemu::Error::NoQemu { looked_for, .. }) => Err(format!("none of {looked_for} in PATH")),
            Err(other) => Err(other.to_string()),
        },
    },
    Requirement {
        name: "vmio-agent for aarch64",
        why: "is the first process of a guest of 64-bit ARM",
        mend: "run `make agent-arm64` in vmio's sources (docs/arm.md), or name its file by VMIO_AGENT_AARCH64",
        check: |n| {
            let tried = |tried: Vec<std::path::PathBuf>| format!("none of {}", listed(&tried));
            AGENT.find_for(Arch::Aarch64, n).map(drop).map_err(tried)
        },
    },
];

fn listed(paths: &[std::path::PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Why no guest of its processor has the device by which an actor sees its subject.
pub fn why_not(actor: &Actor) -> Option<String> {
    let arch = actor.side.shape.arch;
    let machine = of(arch).name;
    let lacks = |name: &str, there: Vec<&str>| {
        Some(format!("a guest of {arch} (machine {machine}) has no {name}: use {}", there.join(", ")))
    };
    if let Some(driver) = actor.attachment().and_then(|asked| drivers::find(&asked.driver))
        && !driver.arches().contains(&arch)
    {
        let there = drivers::ALL.iter().filter(|d| d.arches().contains(&arch)).map(|d| d.name());
        return lacks(driver.name(), there.collect());
    }
    let nic = actor.nic().and_then(|nic| nics::find(&nic.model)).filter(|nic| !nic.arches().contains(&arch))?;
    lacks(nic.name(), nics::ALL.iter().filter(|n| n.arches().contains(&arch)).map(|n| n.name()).collect())
}
