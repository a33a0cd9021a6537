//! What was tried on this host: doctor calls ready only what a stored run of this kernel used, or a test boot showed.

use std::collections::BTreeSet;

use vmio_model::cell::{Actor, Cell, Subject};
use vmio_model::result::Accel;
use vmio_node::linux::system;
use vmio_node::{Local, Node};
use vmio_rig::engine::environment;
use vmio_rig::guests::Accelerator;

use crate::store::{RunInfo, Store};

/// How many of the newest runs are read.
const RUNS: usize = 3;

/// What was tried, by extension point and name.
#[derive(Debug, Default)]
pub struct Tried {
    names: BTreeSet<(&'static str, String)>,
    /// The newest run in which a guest of the image ran.
    pub run: Option<i64>,
}

impl Tried {
    /// By the newest runs of this host with its present kernel, and what a test boot found.
    pub fn here(store: Option<&Store>, runs: &[RunInfo], known: Option<&Accelerator>, local: &Local) -> Self {
        let (kernel, cpu) = (system::release(local.reader()).unwrap_or_default(), environment::cpu(local));
        let own = |run: &&RunInfo| {
            let at = &run.environment;
            run.samples > 0 && at.kernel == kernel && at.cpu == cpu && at.node.is_none()
        };
        let mut tried = Self::default();
        for info in runs.iter().filter(own).take(RUNS) {
            let Some(run) = store.and_then(|store| store.load(info.id).ok()) else { continue };
            let cells: BTreeSet<&Cell> = run.samples.iter().map(|sample| &sample.cell).collect();
            let had_guest = cells.iter().any(|cell| cell.actors().any(is_image_guest));
            tried.run = tried.run.or(had_guest.then_some(run.id));
            cells.into_iter().for_each(|cell| tried.cell(cell));
        }
        // Only a guest that booted showed that KVM works.
        if known.is_some_and(|known| known.accel == Accel::Kvm) {
            tried.guest("qemu");
        }
        tried
    }

    /// Whether this was tried.
    pub fn has(&self, point: &'static str, name: &str) -> bool {
        self.names.contains(&(point, name.to_owned()))
    }

    pub(super) fn put(&mut self, point: &'static str, name: impl Into<String>) {
        self.names.insert((point, name.into()));
    }

    fn guest(&mut self, kind: &str) {
        self.put("guest", kind);
        self.put("image", "guest image");
    }

    fn cell(&mut self, cell: &Cell) {
        cell.actors().filter(|actor| !actor.side.is_afar()).for_each(|actor| self.actor(actor));
        cell.settings.keys().for_each(|name| self.put("setting", name));
    }

    fn actor(&mut self, actor: &Actor) {
        let side = &actor.side;
        if is_image_guest(actor) {
            self.guest(&side.kind);
        } else if !side.is_native() && side.shape.arch.is_own() {
            self.put("guest", &side.kind);
        }
        self.put("workload", &actor.workload);
        match &actor.subject {
            Subject::Disk { target, attachment, .. } => {
                self.put("target", target);
                attachment.iter().for_each(|attachment| self.put("driver", &attachment.driver));
            }
            Subject::Path { network, nic, .. } => {
                self.put("network", network);
                if let Some(nic) = nic {
                    self.put("nic", &nic.model);
                    self.put("nic", nic.label());
                }
            }
            Subject::Machine => {}
        }
    }
}

/// Whether it ran here, in a guest of the image, of this host's architecture.
fn is_image_guest(actor: &Actor) -> bool {
    let side = &actor.side;
    !side.is_afar() && !side.is_native() && side.shape.arch.is_own() && !side.shares_kernel()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmio_model::cell::{Aio, Attachment, Cache, Side};

    #[test]
    fn what_a_sample_used_was_tried_and_nothing_else() {
        let mut tried = Tried::default();
        let disk = Attachment::new("virtio-blk", Cache::None, Aio::Native);
        tried.cell(&Cell::on("qemu", "device", Some(disk), "seq-write"));
        let native = Cell::of(Side::native(), Subject::path("bridge", "host", None), "iperf3-tcp");
        tried.cell(&native);
        assert!(!native.actors().any(is_image_guest));
        for (point, name) in [
            ("guest", "qemu"),
            ("image", "guest image"),
            ("driver", "virtio-blk"),
            ("target", "device"),
            ("network", "bridge"),
            ("workload", "iperf3-tcp"),
        ] {
            assert!(tried.has(point, name), "{point} {name}: {tried:?}");
        }
        assert!(!tried.has("driver", "ahci") && !tried.has("guest", "native") && !tried.has("target", "sparse"));
    }
}
