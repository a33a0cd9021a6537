//! Guests of our own under QEMU: machine q35, KVM where a guest really runs with it, else TCG; or machine virt with
//! 64-bit ARM, which is always emulated.

mod accel;
mod args;
mod balloon;
mod block_clients;
mod cards;
mod console;
mod device;
mod disks;
mod drive;
mod drivers;
mod effective;
mod exchange;
mod guard;
mod launch;
mod machine;
mod pins;
mod threads;
mod unfit;
mod version;

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vmio_look::qemu::threads::Role;
use vmio_look::require::{Missing, Requirement, readable};
use vmio_model::cell::{Actor, Arch, Attachment, Kind, Nic, Shape};
use vmio_model::result::Accel;
use vmio_node::qmp::{self, Qmp};
use vmio_node::{Node, Reader};

use super::{
    Accelerator, Balloon, Disks, Drive, Error, Guest, GuestKind, GuestSpec, Hypervisor, Images, LaunchCtx, NicSpec,
    Result, Unfit,
};
use crate::disks::{BlockClient, Storage};
use crate::{nics, qemu};
use balloon::QemuBalloon;
use drive::QemuDrive;
use effective::{Asked, Sources};
use exchange::Exchanger;
use launch::Booted;

pub use accel::{NoKvm, known as known_accelerator, test as test_kvm};
pub use machine::AARCH64;

/// Entry `qemu`.
pub struct Qemu;

/// What it is called.
const NAME: &str = Kind::QEMU.hypervisor;
/// Memory that it may use beside the guest's.
const OWN_MIB: u32 = 512;

/// Whether guests of the host's own processor can be made on a host with this one.
fn for_host(arch: &str) -> std::result::Result<(), Missing> {
    if arch == Arch::default().name() { Ok(()) } else { Err(Missing::Unlike(format!("this host is {arch}"))) }
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
                fix: "`vmio tax --guests container` measures containers there; guests of aarch64 are emulated (docs/arm.md)",
                check: |_| for_host(ARCH),
            },
            Requirement {
                name: "QEMU",
                why: "runs the guest",
                fix: "apt install qemu-system-x86 (Proxmox includes it; Debian's package would remove Proxmox)",
                check: |n| qemu::there(n, Arch::X86_64),
            },
            Requirement {
                name: "/proc",
                why: "shows the threads of QEMU",
                fix: "mount -t proc proc /proc",
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
    fn requirements_for(&self, client: BlockClient) -> &'static [Requirement] {
        block_clients::needs(client)
    }
    fn fits(&self, shape: &Shape, host: &dyn Reader) -> Result<(), Unfit> {
        match shape {
            Shape { arch, machine: Some(asked), .. } if asked != machine::of(*arch).name => {
                let own = machine::of(*arch).name;
                Err(unfit::Unfit::Machine { arch: *arch, own, asked: asked.clone() }.into())
            }
            Shape { kernel: Some(kernel), .. } => Err(Unfit::Kernel(kernel.clone())),
            Shape { pins, .. } => pins::can_be_had(pins, host),
        }
    }
    fn unfit(&self, host: &dyn Node, actor: &Actor) -> Option<Unfit> {
        machine::why_not(actor).or_else(|| version::unfit_disk(host, actor))
    }
    fn fits_card(&self, asked: &Nic) -> Result<(), Unfit> {
        cards::find(&asked.model).map_or(Ok(()), |card| card.fits(asked).map_err(Unfit::from))
    }
    fn fits_disk(&self, asked: &Attachment, storage: Option<&Storage>) -> Result<(), Unfit> {
        let no_row = || unfit::Unfit::NoDriver(asked.driver.clone());
        let model = drivers::find(&asked.driver).ok_or_else(no_row)?;
        let fits = match storage {
            Some(storage) => model.fits_storage(asked, storage),
            None => model.fits(asked),
        };
        fits.map_err(Unfit::from)
    }
    fn hypervisor(&self) -> &'static str {
        NAME
    }
    fn own_mib(&self) -> u32 {
        OWN_MIB
    }
    fn version(&self, host: &dyn Node, arch: Arch) -> Option<String> {
        version::words(host, arch)
    }
    fn accelerator(&self, host: &dyn Reader, arch: Arch, state_dir: &Path) -> Option<Accelerator> {
        accel::emulated(arch).or_else(|| accel::known(host, state_dir))
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
        let (asked, nics) = (asked.collect(), spec.nics.clone());
        let exchanger = Exchanger::of(spec);
        let watch = args::Paths::below(&ctx.run_dir.join(&spec.name)).watch;
        let (host, balloon) = (Arc::clone(&ctx.node), spec.balloon);
        Ok(Box::new(QemuGuest { asked, nics, balloon, exchanger, accelerator, host, watch, booted }))
    }
}

struct QemuGuest {
    host: Arc<dyn Node>,
    accelerator: Accelerator,
    asked: Vec<Asked>,
    nics: Vec<NicSpec>,
    balloon: bool,
    exchanger: Exchanger,
    /// The monitor for whoever watches.
    watch: PathBuf,
    booted: Booted,
}

impl QemuGuest {
    fn qmp(&self) -> MutexGuard<'_, Qmp> {
        self.booted.qmp.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest for QemuGuest {
    fn node(&self) -> Arc<dyn Node> {
        Arc::clone(&self.booted.node)
    }
    fn hypervisor(&self) -> Result<Option<Hypervisor>> {
        let mut threads = self.booted.threads.now(self.host.reader())?;
        // Workers come and go, so they are left out: what they spend is told all the same.
        threads.retain(|_, role| *role != Role::Worker);
        let roles = threads.into_iter().map(|(tid, role)| (tid, role.key().to_owned())).collect();
        Ok(Some(Hypervisor { name: NAME, pid: self.booted.threads.pid, roles, servers: Vec::new() }))
    }
    fn disks(&self) -> Option<&dyn Disks> {
        Some(self)
    }
    fn balloon(&self) -> Option<Arc<dyn Balloon>> {
        let guest = self.booted.node.name().to_owned();
        self.balloon.then(|| -> Arc<dyn Balloon> { Arc::new(QemuBalloon { guest, qmp: Arc::clone(&self.booted.qmp) }) })
    }
    fn card(&self, tap: &str) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let Some(at) = self.nics.iter().position(|nic| nic.tap == tap) else { return found };
        let nic = &self.nics[at].nic;
        if nic.vhost {
            let threads = self.booted.threads.vhost(self.host.reader());
            let carried = nics::carried(threads, self.nics.iter().map(|nic| &nic.nic));
            found.insert(nics::VHOST.to_owned(), carried);
        }
        if nic.ring.is_some() {
            let ring = self.qmp().property(&format!("{}{}", args::PERIPHERAL, args::nic_id(at)), cards::RING);
            found.extend(ring.map(|ring| (nics::RING.to_owned(), ring.to_string())));
        }
        found
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
        let from = Sources { host: self.host.reader(), guest: self.booted.node.reader(), pid: self.booted.threads.pid };
        effective::read(&mut self.qmp(), &from, &self.asked)
    }
    fn drive(&self, id: &str) -> Option<Arc<dyn Drive>> {
        let at = self.asked.iter().position(|asked| asked.id == id)?;
        let (guest, monitor) = (self.booted.node.name().to_owned(), self.watch.clone());
        Some(Arc::new(QemuDrive { guest, monitor, device: args::device_id(at) }))
    }
    fn images(&self) -> Option<&dyn Images> {
        Some(self)
    }
}

impl Images for QemuGuest {
    fn exchange(&self, id: &str, storage: &Storage) -> Result<()> {
        self.exchanger.exchange(&mut self.qmp(), id, storage)
    }
}

/// What really runs the guest, by QEMU's own word.
fn running_accel(qmp: &mut Qmp) -> Result<Accel> {
    let kvm = qmp.execute("query-kvm", serde_json::json!({}))?;
    Ok(if kvm["enabled"] == true { Accel::Kvm } else { Accel::Tcg })
}

impl From<qmp::Error> for Error {
    fn from(e: qmp::Error) -> Error {
        Error::Hypervisor(Box::new(e))
    }
}

impl From<qemu::Error> for Error {
    fn from(e: qemu::Error) -> Error {
        Error::Hypervisor(Box::new(e))
    }
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
