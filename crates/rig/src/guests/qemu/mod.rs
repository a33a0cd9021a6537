//! Guests of our own under QEMU: machine q35, KVM where a guest really runs with it, else TCG; or machine virt with
//! 64-bit ARM, which is always emulated.

mod accel;
mod args;
mod console;
mod disks;
mod effective;
mod exchange;
mod guard;
mod launch;
mod machine;
mod pins;
mod version;

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use vmio_look::require::{Missing, Requirement, readable};
use vmio_model::cell::{Arch, Kind, Shape};
use vmio_model::result::Accel;
use vmio_node::qmp::Qmp;
use vmio_node::{Node, Reader};

use super::{Accelerator, Disks, Error, Guest, GuestKind, GuestSpec, Hypervisor, Images, LaunchCtx, Result, Unfit};
use crate::disks::Storage;
use crate::qemu::{self};
use effective::{Asked, Sources};
use exchange::Exchanger;
use launch::Booted;

pub use accel::{NoKvm, emulated, known as known_accelerator};
pub use machine::{AARCH64, why_not};
pub use version::unfit_disk;

/// Entry `qemu`.
pub struct Qemu;

/// Whether guests of the host's own processor can be made on a host with this one.
fn for_host(arch: &str) -> std::result::Result<(), Missing> {
    match arch == Arch::default().name() {
        true => Ok(()),
        false => Err(Missing::Unlike(format!("this host is {arch}"))),
    }
}

impl GuestKind for Qemu {
    fn name(&self) -> &'static str {
        Kind::QEMU.name
    }
    fn about(&self) -> &'static str {
        "a reference guest made by vmio under QEMU (q35; KVM, else TCG)"
    }
    fn requirements(&self) -> &'static [Requirement] {
        const REQUIREMENTS: &[Requirement] = &[
            Requirement {
                name: "x86-64",
                why: "is what reference guests are made for: of this host's own programs",
                mend: "`vmio tax --guests container` measures containers there; guests of aarch64 are emulated (docs/arm.md)",
                check: |_| for_host(ARCH),
            },
            Requirement {
                name: "QEMU",
                why: "runs the guest",
                mend: "apt install qemu-system-x86 (Proxmox includes it; Debian's package would remove Proxmox)",
                check: |n| qemu::there(n, Arch::X86_64),
            },
            Requirement {
                name: "/proc",
                why: "shows the threads of QEMU",
                mend: "mount -t proc proc /proc",
                check: |n| readable(n, "/proc/self/status"),
            },
        ];
        REQUIREMENTS
    }
    fn requirements_of(&self, shape: &Shape) -> &'static [Requirement] {
        match shape.arch {
            Arch::X86_64 => self.requirements(),
            Arch::Aarch64 => AARCH64,
        }
    }
    fn fits(&self, shape: &Shape, host: &dyn Reader) -> Result<(), Unfit> {
        match shape {
            Shape { arch, machine: Some(asked), .. } if asked != machine::of(*arch).name => {
                Err(Unfit::Machine { arch: *arch, own: machine::of(*arch).name, asked: asked.clone() })
            }
            Shape { kernel: Some(kernel), .. } => Err(Unfit::Kernel(kernel.clone())),
            Shape { pins, .. } => pins::can_be_had(pins, host),
        }
    }
    fn launch(&self, ctx: &LaunchCtx<'_>, spec: &GuestSpec) -> Result<Box<dyn Guest>> {
        let image = ctx.image.ok_or_else(|| Error::Spec {
            guest: spec.name.clone(),
            reason: format!("no image was built for it; run `vmio image build --arch {}`", spec.arch.debian()),
        })?;
        if image.arch != spec.arch {
            let (has, wants, deb) = (image.arch, spec.arch, spec.arch.debian());
            let reason = format!("its image is for {has}, and it is of {wants}; run `vmio image build --arch {deb}`");
            return Err(Error::Spec { guest: spec.name.clone(), reason });
        }
        let mut accelerator = match ctx.accel {
            Some(accel) => Accelerator { accel, reason: "asked for".into() },
            None => accel::choose(ctx, image)?,
        };
        let booted = launch::boot(ctx, image, spec, accelerator.accel)?;
        if booted.accel != accelerator.accel {
            accelerator.reason = format!("QEMU took another than asked for ({})", accelerator.reason);
            accelerator.accel = booted.accel;
        }
        let asked = spec.disks.iter().filter_map(|d| {
            let guest = booted.disk_path(&d.id).ok()?;
            Some(Asked { id: d.id.clone(), attachment: d.attachment.clone()?, storage: d.storage.clone(), guest })
        });
        let asked = asked.collect();
        let exchanger = Exchanger::of(spec);
        Ok(Box::new(QemuGuest { asked, exchanger, accelerator, host: Arc::clone(&ctx.node), booted }))
    }
}

struct QemuGuest {
    host: Arc<dyn Node>,
    accelerator: Accelerator,
    asked: Vec<Asked>,
    exchanger: Exchanger,
    booted: Booted,
}

impl Guest for QemuGuest {
    fn node(&self) -> Arc<dyn Node> {
        Arc::clone(&self.booted.node)
    }
    fn hypervisor(&self) -> Option<&Hypervisor> {
        Some(&self.booted.hypervisor)
    }
    fn disks(&self) -> Option<&dyn Disks> {
        Some(self)
    }
    fn accelerator(&self) -> Option<&Accelerator> {
        Some(&self.accelerator)
    }
    fn boot_seconds(&self) -> Option<f64> {
        Some(self.booted.boot_seconds)
    }
    fn give_up(&self, seen: &str) -> Error {
        self.booted.process.give_up(seen)
    }
    fn stop(self: Box<Self>) -> Result<()> {
        self.booted.stop()
    }
}

impl Disks for QemuGuest {
    fn path(&self, id: &str) -> Result<PathBuf> {
        self.booted.disk_path(id)
    }
    fn effective(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
        let mut qmp = self.booted.qmp.lock().unwrap_or_else(PoisonError::into_inner);
        let from =
            Sources { host: self.host.reader(), guest: self.booted.node.reader(), pid: self.booted.hypervisor.pid };
        effective::read(&mut qmp, &from, &self.asked)
    }
    fn images(&self) -> Option<&dyn Images> {
        Some(self)
    }
}

impl Images for QemuGuest {
    fn exchange(&self, id: &str, storage: &Storage) -> Result<()> {
        let mut qmp = self.booted.qmp.lock().unwrap_or_else(PoisonError::into_inner);
        self.exchanger.exchange(&mut qmp, id, storage)
    }
}

/// What really runs the guest, by QEMU's own word.
fn running_accel(qmp: &mut Qmp) -> Result<Accel> {
    let kvm = qmp.execute("query-kvm", serde_json::json!({}))?;
    Ok(if kvm["enabled"] == true { Accel::Kvm } else { Accel::Tcg })
}

/// A monitor that is shared by calls on `&self`.
type SharedQmp = Mutex<Qmp>;

#[cfg(test)]
mod tests {
    use super::for_host;

    #[test]
    fn reference_guests_are_of_one_processor() {
        assert_eq!(for_host("x86_64"), Ok(()));
        assert!(for_host("aarch64").is_err_and(|why| why.to_string().contains("aarch64")));
    }
}
