//! Which accelerator a guest gets. That `/dev/kvm` opens proves nothing: on some hosts (nested
//! ones above all) it opens and a stock kernel still hangs. So a small guest is booted with KVM
//! under a time limit, and the answer is remembered for this boot of the host and this QEMU.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use serde::{Deserialize, Serialize};
use vmio_model::cell::Arch;
use vmio_model::result::Accel;
use vmio_node::Reader;
use vmio_node::linux::system;

use super::super::{Accelerator, Error, GuestSpec, LaunchCtx, Result, file_error};
use super::launch::boot;
use crate::image::{Image, identity};
use crate::qemu::find_qemu;

const DEVICE: &str = "/dev/kvm";
/// A guest answers within 1 s or 2 under KVM that works.
const LIMIT: Duration = Duration::from_secs(20);
const REMEMBERED: &str = "accelerator.json";

#[derive(Serialize, Deserialize)]
struct Remembered {
    /// For which host this holds.
    host: String,
    accelerator: Accelerator,
}

/// KVM when a guest really answers with it, else TCG; with the reason.
pub fn choose(ctx: &LaunchCtx<'_>, image: &Image) -> Result<Accelerator> {
    if let Some(emulated) = emulated(image.arch) {
        return Ok(emulated);
    }
    if ctx.node.stat(Path::new(DEVICE))?.is_none() {
        return Ok(tcg(format!("software emulation: {DEVICE} does not exist")));
    }
    if let Err(e) = OpenOptions::new().read(true).write(true).open(DEVICE) {
        return Ok(tcg(format!("software emulation: {DEVICE} cannot be opened: {e}")));
    }
    if let Some(known) = known(ctx.node.reader(), ctx.state_dir) {
        return Ok(known);
    }
    (ctx.progress)(&format!(
        "testing whether a guest really runs with KVM (at most {} s, once a boot)",
        LIMIT.as_secs()
    ));
    test(ctx, image)
}

/// Boots a guest with KVM under a time limit, whatever was found before, and remembers the answer.
pub fn test(ctx: &LaunchCtx<'_>, image: &Image) -> Result<Accelerator> {
    let host = host(ctx.node.reader())?;
    let file = ctx.state_dir.join(REMEMBERED);
    let short = LaunchCtx {
        node: ctx.node.clone(),
        journal: ctx.journal.clone(),
        boot_limit: LIMIT,
        cgroup_procs: ctx.cgroup_procs.clone(),
        enter: Vec::new(),
        ..*ctx
    };
    let spec = GuestSpec::of("kvm-probe", 1, 256);
    let accelerator = match boot(&short, image, &spec, Accel::Kvm) {
        Ok(booted) if booted.accel == Accel::Kvm => {
            let reason = format!("KVM: a guest answered after {:.1} s", booted.boot_seconds);
            booted.stop()?;
            Accelerator { accel: Accel::Kvm, reason }
        }
        Ok(booted) => {
            booted.stop()?;
            tcg(format!("software emulation: {DEVICE} can be opened, but QEMU did not use it"))
        }
        Err(Error::Down { what, last, .. }) => {
            let last = last.as_deref().unwrap_or("no output");
            tcg(format!("software emulation: {DEVICE} can be opened, but a guest with KVM {what} (last line: {last})"))
        }
        Err(other) => return Err(other),
    };
    fs::create_dir_all(ctx.state_dir).map_err(file_error("make", ctx.state_dir))?;
    remember(&file, Remembered { host, accelerator: accelerator.clone() })?;
    Ok(accelerator)
}

fn tcg(reason: String) -> Accelerator {
    Accelerator { accel: Accel::Tcg, reason }
}

/// What runs guests of another processor than the host's, whatever the host has; `None` of its own.
pub fn emulated(arch: Arch) -> Option<Accelerator> {
    let reason = format!("software emulation: the guest's processor is {arch}, not this host's");
    (!arch.is_own()).then_some(Accelerator { accel: Accel::Tcg, reason })
}

/// Why guests have no KVM here, as far as that is known without booting one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoKvm {
    /// What was seen.
    pub reason: String,
    /// What to do about just that.
    pub mend: &'static str,
}

impl NoKvm {
    /// Of the device as it is now, and of what a test boot found (`known`). Only looks.
    pub fn of(node: &dyn Reader, known: Option<&Accelerator>) -> Option<Self> {
        let there = matches!(node.stat(Path::new(DEVICE)), Ok(Some(_)));
        let (both, effective) = (Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS);
        let opens = || accessat(CWD, DEVICE, both, effective).is_ok();
        Self::seen(there, there && opens(), known)
    }

    fn seen(there: bool, opens: bool, known: Option<&Accelerator>) -> Option<Self> {
        let (reason, mend) = match (there, opens) {
            (false, _) => (
                format!("software emulation: {DEVICE} does not exist"),
                "for KVM, enable hardware virtualisation in the firmware (on a virtual host: nested virtualisation) \
                 and load kvm_intel or kvm_amd",
            ),
            (true, false) => (
                format!("software emulation: {DEVICE} cannot be opened by this user"),
                "for KVM, add this user to the device's group (most often kvm)",
            ),
            (true, true) => (
                known.filter(|known| known.accel == Accel::Tcg)?.reason.clone(),
                "/dev/kvm opens, so virtualisation is enabled, but KVM cannot run a guest here. If the host is itself \
                 a guest, its own host must pass on \
                 virtualisation of the same maker (nested); else try another kernel or QEMU",
            ),
        };
        Some(Self { reason, mend })
    }
}

/// This boot of the host, its kernel, and its QEMU.
fn host(node: &dyn Reader) -> Result<String> {
    let boot = system::boot_id(node)?;
    let kernel = system::release(node)?;
    Ok(format!("{boot} {kernel} {}", identity(&find_qemu(node, Arch::default())?)?))
}

/// The remembered answer, where there is one for this boot of the host and this QEMU. Only looks.
pub fn known(node: &dyn Reader, state_dir: &Path) -> Option<Accelerator> {
    recall(&state_dir.join(REMEMBERED), &host(node).ok()?)
}

fn recall(file: &Path, host: &str) -> Option<Accelerator> {
    let known: Remembered = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    (known.host == host).then_some(known.accelerator)
}

fn remember(file: &Path, answer: Remembered) -> Result<()> {
    // Renamed into place: another vmio may be reading.
    let new = file.with_extension(format!("{}.new", std::process::id()));
    let text = serde_json::to_vec_pretty(&answer).expect("plain data");
    fs::write(&new, text).map_err(file_error("write", &new))?;
    fs::rename(&new, file).map_err(file_error("rename to", file))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A switch that is on is not told to be turned on.
    #[test]
    fn advice_follows_what_keeps_kvm_from_running_guests() {
        let tried = |accel: Accel| Accelerator { accel, reason: "a guest with KVM ended (kvm_buf_set_msrs)".into() };
        let (tcg, kvm) = (tried(Accel::Tcg), tried(Accel::Kvm));
        let missing = NoKvm::seen(false, false, Some(&tcg)).unwrap();
        assert!(missing.reason.contains("does not exist") && missing.mend.contains("in the firmware"), "{missing:?}");
        let refused = NoKvm::seen(true, false, None).unwrap();
        assert!(refused.mend.contains("group") && !refused.mend.contains("firmware"), "{refused:?}");
        let fails = NoKvm::seen(true, true, Some(&tcg)).unwrap();
        assert_eq!(fails.reason, tcg.reason);
        assert!(fails.mend.contains("nested") && !fails.mend.contains("enable hardware"), "{fails:?}");
        assert_eq!((NoKvm::seen(true, true, Some(&kvm)), NoKvm::seen(true, true, None)), (None, None));
    }

    #[test]
    fn an_answer_holds_for_its_host_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(REMEMBERED);
        assert_eq!(recall(&file, "boot1 6.1 qemu"), None);
        let accelerator = Accelerator { accel: Accel::Kvm, reason: "KVM: a guest answered after 1.2 s".into() };
        remember(&file, Remembered { host: "boot1 6.1 qemu".into(), accelerator: accelerator.clone() }).unwrap();
        assert_eq!(recall(&file, "boot1 6.1 qemu"), Some(accelerator));
        assert_eq!(recall(&file, "boot2 6.1 qemu"), None);
        fs::write(&file, "half a fi").unwrap();
        assert_eq!(recall(&file, "boot1 6.1 qemu"), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
