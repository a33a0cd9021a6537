//! Exchanges the image, or the server with a cache, under a disk while its guest runs: QMP `blockdev-add`,
//! `blockdev-reopen` ([`NEEDED`]), `blockdev-del`.
//!
//! A disk image that a hypervisor has open must never be changed by anybody else. So where a cell
//! needs another image, the guest's disk is pointed at it: above each image stands a node of
//! format `raw`, which only hands requests on and whose child can be replaced. The old image is
//! then closed in order, with all of its tables written.

use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use vmio_model::cell::Attachment;
use vmio_node::qmp::Qmp;

use super::super::{Error, GuestSpec, Result};
use super::args::{exchanged_layers, node_name};
use crate::disks::Storage;
use crate::qemu::QemuVersion;

/// What it demands of QEMU's version: which command, and since when it is stable.
pub const NEEDED: (&str, QemuVersion) =
    ("exchanging images while the guest runs (blockdev-reopen)", QemuVersion { major: 6, minor: 1 });

/// The disks of a guest, and how often the image of each was exchanged.
pub struct Exchanger {
    guest: String,
    disks: Vec<(String, Attachment)>,
    generations: Mutex<Vec<u32>>,
}

impl Exchanger {
    /// For a guest that was started from this specification.
    pub fn of(spec: &GuestSpec) -> Self {
        let disks: Vec<_> = spec.disks.iter().filter_map(|d| Some((d.id.clone(), d.attachment.clone()?))).collect();
        let generations = Mutex::new(vec![0; disks.len()]);
        Self { guest: spec.name.clone(), disks, generations }
    }

    /// Puts another image or server under a disk that is idle.
    pub fn exchange(&self, qmp: &mut Qmp, id: &str, storage: &Storage) -> Result<()> {
        let wrong = |reason: String| Error::Spec { guest: self.guest.clone(), reason };
        let (index, (_, attachment)) = self
            .disks
            .iter()
            .enumerate()
            .find(|(_, (disk, _))| disk == id)
            .ok_or_else(|| Error::NoDisk { guest: self.guest.clone(), disk: id.to_owned(), hint: String::new() })?;
        if !storage.is_exchanged() {
            return Err(wrong(format!("disk {id}: what it is made of cannot be exchanged while the guest runs")));
        }
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let node = node_name(index);
        let nodes = |generation| exchanged_layers(storage, attachment, &node, generation);
        let old = nodes(generations[index]);
        generations[index] += 1;
        let new = nodes(generations[index]);
        let [protocol, image, top] = &new[..] else {
            return Err(wrong(format!("disk {id}: its image has {} nodes", new.len())));
        };
        let done = (|| {
            qmp.execute("blockdev-add", protocol.clone())?;
            qmp.execute("blockdev-add", image.clone())?;
            qmp.execute("blockdev-reopen", json!({"options": [top]}))
        })();
        if let Err(e) = done {
            // The disk has its old image still; what was added is in nobody's way.
            let _ = close(qmp, &new);
            return Err(e.into());
        }
        close(qmp, &old)
    }
}

/// Closes an image: the format's node, then the file's.
fn close(qmp: &mut Qmp, layers: &[Value]) -> Result<()> {
    for layer in layers[..layers.len() - 1].iter().rev() {
        qmp.execute("blockdev-del", json!({"node-name": layer["node-name"]}))?;
    }
    Ok(())
}
