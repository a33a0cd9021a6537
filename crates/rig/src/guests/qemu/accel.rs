//! Which accelerator a guest gets. That `/dev/kvm` opens proves nothing: on some hosts (nested
//! ones above all) it opens and a stock kernel still hangs. So a small guest is booted with KVM
//! under a time limit, and the answer is remembered for this boot of the host and this QEMU.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
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
    let tcg = |reason: String| Accelerator { accel: Accel::Tcg, reason };
    if ctx.node.stat(Path::new(DEVICE))?.is_none() {
        return Ok(tcg(format!("software emulation: {DEVICE} does not exist")));
    }
    if let Err(e) = OpenOptions::new().read(true).write(true).open(DEVICE) {
        return Ok(tcg(format!("software emulation: {DEVICE} cannot be opened: {e}")));
    }
    let host = host(ctx.node.reader())?;
    let file = ctx.state_dir.join(REMEMBERED);
    if let Some(known) = recall(&file, &host) {
        return Ok(known);
    }
    (ctx.progress)(&format!(
        "testing whether a guest really runs with KVM (at most {} s, once a boot)",
        LIMIT.as_secs()
    ));
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
        Err(Error::Down { what, report, .. }) => {
            let last = report.lines().rev().find_map(|l| l.strip_prefix("  | ")).unwrap_or("no output");
            tcg(format!("software emulation: {DEVICE} can be opened, but a guest with KVM {what} (last line: {last})"))
        }
        Err(other) => return Err(other),
    };
    fs::create_dir_all(ctx.state_dir).map_err(file_error("make", ctx.state_dir))?;
    remember(&file, Remembered { host, accelerator: accelerator.clone() })?;
    Ok(accelerator)
}

/// This boot of the host, its kernel, and its QEMU.
fn host(node: &dyn Reader) -> Result<String> {
    let boot = system::boot_id(node)?;
    let kernel = system::release(node)?;
    Ok(format!("{boot} {kernel} {}", identity(&find_qemu(node)?)?))
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
