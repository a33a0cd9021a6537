//! The machines that guests of vmio's own are: one for each kind of processor (QEMU, docs/system/i386/pc.rst and
//! docs/system/arm/virt.rst).

use vmio_look::require::{Missing, Requirement};
use vmio_model::cell::{Actor, Arch};

use super::super::{Unfit, listed};
use super::{cards, drivers};
use crate::ours::AGENT;
use crate::{disks, nics, qemu};

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
        fix: "apt install qemu-system-arm",
        check: |n| qemu::there(n, Arch::Aarch64),
    },
    Requirement {
        name: "vmio-agent for aarch64",
        why: "is the first process of a guest of 64-bit ARM",
        fix: "run `make agent-arm64` in vmio's sources (docs/arm.md), or name its file by VMIO_AGENT_AARCH64",
        check: |n| AGENT.find_for(Arch::Aarch64, n).map(drop).map_err(|tried| Missing::NoneOf(listed(&tried))),
    },
];

/// Why no guest of its processor has the device by which an actor sees its subject.
pub fn why_not(actor: &Actor) -> Option<Unfit> {
    let arch = actor.side.shape.arch;
    let lacks = |device: &'static str, others: Vec<&'static str>| {
        (!others.contains(&device)).then(|| Unfit::Device { arch, machine: of(arch).name, device, others })
    };
    let disk = actor.attachment().and_then(|asked| disks::drivers::find(&asked.driver)).and_then(|driver| {
        let models = drivers::ALL.iter().map(|model| model.driver).filter(|driver| driver.arches.contains(&arch));
        lacks(driver.name, models.map(|driver| driver.name).collect())
    });
    disk.or_else(|| {
        let models = cards::ALL.iter().map(|card| card.model).filter(|model| model.arches.contains(&arch));
        lacks(nics::find(&actor.nic()?.model)?.name, models.map(|model| model.name).collect())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use vmio_model::cell::{Aio, Attachment, Cache, Cell, Nic, Shape, Side, Subject};
    use vmio_node::Fake;

    use super::*;
    use crate::guests::find;

    fn side(arch: Arch) -> Side {
        Side { shape: Shape { arch, ..Shape::default() }, ..Side::of("qemu") }
    }

    /// Each device that QEMU has is had by guests of the processors that it names. All else is refused with what they
    /// have.
    #[test]
    fn a_device_that_a_processor_does_not_have_is_refused() {
        for arch in Arch::ALL {
            for driver in disks::drivers::ALL {
                let attachment = Attachment::new(driver.name, Cache::None, Aio::Native);
                let subject = Subject::Disk { target: "sparse".into(), attachment: Some(attachment), state: None };
                let said = why_not(&Cell::of(side(arch), subject, "seq-read").lead);
                let has = drivers::find(driver.name).is_some() && driver.arches.contains(&arch);
                assert_eq!(said.is_none(), has, "{arch}: {said:?}");
            }
            for nic in nics::ALL {
                let nic_asked = Some(Nic::new(nic.name));
                let subject = Subject::path("bridge", "host", nic_asked);
                let said = why_not(&Cell::of(side(arch), subject, "iperf3-tcp").lead);
                let has = cards::find(nic.name).is_some() && nic.arches.contains(&arch);
                assert_eq!(said.is_none(), has, "{arch}: {said:?}");
            }
        }
        let mmio = Attachment::new("virtio-blk-mmio", Cache::None, Aio::Native);
        let said = why_not(&Cell::on("qemu", "sparse", Some(mmio), "seq-read").lead).unwrap().to_string();
        assert!(said.contains("x86_64 (machine q35) has no virtio-blk-mmio: use lsi53c895a"), "{said}");
    }

    #[test]
    fn a_host_without_the_emulator_or_the_agent_is_told_what_to_do() {
        let entry = find("qemu").unwrap();
        let of = |arch: Arch| entry.requirements_of(&side(arch).shape);
        assert_eq!(of(Arch::X86_64)[0].name, entry.requirements()[0].name);
        let unmet = |host: &Fake| {
            let all = of(Arch::Aarch64).iter().filter_map(|r| Some((r.name, (r.check)(host).err()?)));
            all.map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>()
        };
        let both = unmet(&Fake::new("bare").installed("qemu-system-x86_64"));
        assert!(both[0].contains("none of qemu-system-aarch64 in PATH"), "{both:?}");
        assert!(both[1].contains("/usr/lib/vmio/aarch64/vmio-agent"), "{both:?}");
        let able = Fake::new("able").installed("qemu-system-aarch64").file("/usr/lib/vmio/aarch64/vmio-agent", "x");
        assert_eq!(unmet(&able), Vec::<String>::new());
        // Each says a machine of its own, and a machine of another processor is refused.
        let shape = |machine: &str| Shape { machine: Some(machine.into()), ..side(Arch::Aarch64).shape };
        assert_eq!(entry.fits(&shape("virt"), &able), Ok(()));
        let said = entry.fits(&shape("q35"), &able).unwrap_err().to_string();
        assert!(said.contains("guests of aarch64 under QEMU have the machine virt, not q35"), "{said}");
    }
}
