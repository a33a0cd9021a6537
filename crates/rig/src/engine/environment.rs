//! Where a run is made: what is known of the host before anything runs on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vmio_model::cell::Cell;
use vmio_model::result::Environment;
use vmio_node::linux::system;
use vmio_node::{Exec, Node};

use super::afar::{Afar, Peer};
use super::plan::Planned;
use crate::image::{self, Image};
use crate::workloads;

/// Seconds since the epoch.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// The CPU model of a machine.
pub fn cpu(local: &dyn Node) -> String {
    system::cpu_model(&system::cpuinfo(local.reader())).unwrap_or("unknown").to_owned()
}

/// The memory of a machine in bytes; 0 where it cannot be read.
pub fn memory_bytes(local: &dyn Node) -> u64 {
    system::memory_bytes(local.reader(), "MemTotal").unwrap_or(0)
}

/// Version lines of the programs that cells run on either side: the guests' image has the host's own files.
pub fn programs(cells: &[Cell], image: Option<&Image>, local: &dyn Node) -> BTreeMap<String, String> {
    let used = cells.iter().flat_map(Cell::actors).filter_map(|actor| workloads::find(&actor.workload));
    let names: BTreeSet<&str> = used.flat_map(|workload| workload.programs().collect::<Vec<_>>()).collect();
    let version = |name: &str| match image.and_then(|image| image.programs.get(name)) {
        Some(version) => Some(version.clone()),
        None => image::version(local, name),
    };
    names.into_iter().filter_map(|name| Some((name.to_owned(), version(name)?))).collect()
}

/// Version line of fio, whether cells run it or not; `None` where there is none.
pub fn fio(image: Option<&Image>, local: &dyn Node) -> Option<String> {
    match image {
        Some(image) => Some(image.fio_version.clone()).filter(|version| !version.is_empty()),
        None => image::version(local, "fio"),
    }
}

/// The environment as far as it is known before the first guest.
pub fn of(planned: &Planned, local: &dyn Node) -> Environment {
    let arch = planned.study.arches().into_iter().next().unwrap_or_default();
    let qemu = crate::qemu::find_qemu(local.reader(), arch).ok().and_then(|qemu| {
        let asked = Exec::new(qemu.to_string_lossy()).args(["--version"]).limit(Duration::from_secs(10));
        let output = local.exec(&asked).ok().filter(vmio_node::Output::ok)?;
        output.out().lines().next().map(str::to_owned)
    });
    Environment {
        vmio: env!("CARGO_PKG_VERSION").into(),
        kernel: system::release(local.reader()).unwrap_or_default(),
        guest_kernel: None,
        cpu: cpu(local),
        cpus: system::cpus_online(&system::cpuinfo(local.reader())) as u32,
        memory_bytes: memory_bytes(local),
        accel: None,
        accel_reason: String::new(),
        qemu,
        fio: None,
        programs: BTreeMap::new(),
        backing: planned.placed.as_ref().map(|p| p.backing.describe()).unwrap_or_default(),
        modelled: planned.placed.as_ref().and_then(|p| p.place.ground.modelled().cloned()),
        vcpus: planned.study.guest.vcpus,
        memory_mib: planned.study.guest.memory_mib,
        native_limits: String::new(),
        qemu_limits: None,
        guest_kernel_file: planned.kernel.as_ref().map(|(kernel, _)| kernel.file.display().to_string()),
        other_guests: planned.others.guests.len() as u32,
        cap_ratio: None,
        afar: planned.afar.as_ref().map(Afar::told),
        peer: planned.peer.as_ref().map(Peer::to_string),
        node: std::env::var(crate::lab::NODE_VARIABLE).ok().filter(|n| !n.is_empty()),
        written_beside_bytes: 0,
    }
}
