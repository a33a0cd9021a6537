//! A loop device of a guest's own, over a file in the file system that one of its disks holds: set up before a cell by the
//! guest's agent, taken off after it, so that each cell begins without the file's pages in the guest's cache.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use vmio_node::{Exec, Node};

use super::{PreparedActor, Stager};
use crate::workloads::At;

/// Where it is mounted in a guest, whose image has the directory.
const POINT: &str = "/mnt";
/// How long a step may take.
const LIMIT: Duration = Duration::from_secs(60);

/// What was set up in a guest.
pub struct Inside {
    node: Arc<dyn Node>,
    device: Option<String>,
}

impl Inside {
    fn run(&self, program: &str, args: &[&str]) -> anyhow::Result<String> {
        let command = Exec::new(program).args(args.iter().copied()).limit(LIMIT);
        let output = self.node.exec(&command)?;
        let said = output.err();
        anyhow::ensure!(output.ok(), "in the guest {}: {} failed: {}", self.node.name(), command.shown(), said.trim());
        Ok(output.out().trim().to_owned())
    }

    /// Mounts what the disk holds, and attaches a loop device to a file there.
    fn set_up(node: Arc<dyn Node>, disk: &Path, file: &str, all: &mut Vec<Self>) -> anyhow::Result<PathBuf> {
        let mut inside = Self { node, device: None };
        inside.run("mount", &["-t", "ext4", "-o", "ro,noload", &disk.display().to_string(), POINT])?;
        let attached = inside.run("losetup", &["--find", "--show", "--read-only", &format!("{POINT}/{file}")]);
        inside.device = attached.as_ref().ok().cloned();
        all.push(inside);
        Ok(PathBuf::from(attached?))
    }

    fn take_off(&self) -> anyhow::Result<()> {
        let detached = self.device.as_ref().map_or(Ok(String::new()), |device| self.run("losetup", &["-d", device]));
        let unmounted = self.run("umount", &[POINT]);
        detached.and(unmounted).map(drop)
    }
}

impl Stager<'_, '_> {
    /// Gives actors whose target is a file in a guest's file system that file, by a loop device of the guest's own. What
    /// was set up until it failed is to be taken off all the same.
    pub fn go_inside(
        &mut self,
        mut actors: Vec<PreparedActor>,
    ) -> anyhow::Result<(Vec<PreparedActor>, Vec<Inside>, anyhow::Result<()>)> {
        if actors.iter().all(|prepared| prepared.inside.is_none()) {
            return Ok((actors, Vec::new(), Ok(())));
        }
        self.bed.on_storage(move || {
            let mut all = Vec::new();
            let done = actors.iter_mut().try_for_each(|prepared| {
                let Some(file) = prepared.inside else { return Ok(()) };
                for end in prepared.stage.ends.values_mut() {
                    let At::Path(path) = &end.at else { continue };
                    let device = Inside::set_up(end.node.clone(), path, file, &mut all)
                        .context("a loop device over a file in the guest could not be set up")?;
                    end.at = At::Path(device);
                }
                Ok(())
            });
            (actors, all, done)
        })
    }

    /// Takes off what was set up.
    pub fn come_out(&mut self, all: Vec<Inside>) -> anyhow::Result<()> {
        // Where the storage is sick guests may hang, and they are ended.
        if all.is_empty() || self.bed.storage_failed() {
            return Ok(());
        }
        let each = move || all.iter().rev().map(Inside::take_off).fold(Ok(()), Result::and);
        self.bed.on_storage(each)?.context("a loop device of a guest's own could not be detached")
    }
}
