//! Guests: starting those that a round needs, reading back how their disks are set up, giving a
//! disk another image while its guest runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context as _;
use vmio_model::cell::{Attachment, Cell};

use super::Machine;
use crate::disks::drivers;
use crate::disks::targets::State;
use crate::guests::{self, DiskSpec, Guest, GuestSpec, LaunchCtx};
use crate::limits::OOM_SCORE_ADJ;
use crate::probes::Qemu;

/// How long a guest may take to boot: ten times what emulation takes here.
const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// A guest and which of its disks serves which target and attachment.
pub(super) struct Running {
    pub(super) guest: Box<dyn Guest>,
    pub(super) disks: BTreeMap<(String, Attachment), String>,
    /// Why it has no disk for these.
    pub(super) without: BTreeMap<(String, Attachment), String>,
    pub(super) qemu: Option<Qemu>,
}

/// The kinds of guests that the attachments are for, each once: a round boots one of each.
fn kinds(attachments: &[(String, String, Attachment)]) -> BTreeSet<String> {
    attachments.iter().map(|(kind, ..)| kind.clone()).collect()
}

impl Machine<'_> {
    /// Ends the guests that run, if any, and boots those that the study needs.
    pub(super) fn boot_guests(&mut self, boot: u32) -> anyhow::Result<()> {
        for (_, running) in std::mem::take(&mut self.guests) {
            // One that died is no reason to stop; what it left is in the journal.
            if let Err(e) = running.guest.stop() {
                (self.progress)(&format!("the guest did not shut down cleanly: {e}"));
            }
        }
        for kind in kinds(&self.attachments) {
            let running = self.launch(&kind, boot)?;
            self.guests.insert(kind, running);
        }
        Ok(())
    }

    fn launch(&mut self, kind: &str, boot: u32) -> anyhow::Result<Running> {
        let entry = guests::find(kind).with_context(|| format!("no guest {kind}"))?;
        let mut spec = GuestSpec {
            name: format!("{kind}-{boot}"),
            vcpus: self.study.guest.vcpus,
            memory_mib: self.study.guest.memory_mib,
            disks: Vec::new(),
        };
        let (mut disks, mut without) = (BTreeMap::new(), BTreeMap::new());
        let attachments = self.attachments.clone();
        for (_, target, attachment) in attachments.iter().filter(|(guest, ..)| guest == kind) {
            let id = format!("d{}", spec.disks.len());
            let asked = attachment.clone();
            // A disk's first image is written out here.
            let (storage, servers) = self.on_target(target, move |t| {
                let storage = t.intact().and_then(|()| t.attach(&asked));
                (storage, t.servers(&asked))
            })?;
            let storage = storage?;
            // One disk that QEMU would refuse costs its own cells, not the guest.
            if let Some(Err(why)) = drivers::find(&attachment.driver).map(|d| d.fits_storage(attachment, &storage)) {
                without.insert((target.clone(), attachment.clone()), why);
                continue;
            }
            // What serves a disk in QEMU's place is held like QEMU.
            if let Some(limits) = &self.qemu_limits {
                for server in servers {
                    for procs in limits.procs_files() {
                        self.local.write(&procs, server.to_string().as_bytes(), None)?;
                    }
                }
            }
            spec.disks.push(DiskSpec { id: id.clone(), storage, attachment: Some(attachment.clone()) });
            disks.insert((target.clone(), attachment.clone()), id);
        }
        let ctx = LaunchCtx {
            node: self.local.clone(),
            journal: self.journal.clone(),
            image: self.image.as_ref(),
            run_dir: &self.run_dir,
            state_dir: &self.state_dir,
            accel: None,
            boot_limit: BOOT_LIMIT,
            oom_score_adj: OOM_SCORE_ADJ,
            cgroup_procs: self.qemu_limits.as_ref().map(|l| l.procs_files().to_vec()).unwrap_or_default(),
            progress: self.progress,
        };
        let guest = entry.launch(&ctx, &spec)?;
        let effective = guest.effective()?;
        for ((target, attachment), id) in &disks {
            let mut found = effective.get(id).cloned().unwrap_or_default();
            if let Some(driver) = drivers::find(&attachment.driver) {
                driver
                    .readback(attachment, &found)
                    .map_err(|e| anyhow::anyhow!("QEMU did not set up {} as asked: {e}", attachment.label()))?;
            }
            found.extend(self.targets.get(target).map(|t| t.attached(attachment)).unwrap_or_default());
            self.store.add_effective(self.run, &format!("{target}/{kind}/{}", attachment.label()), &found)?;
        }
        if let Some(accelerator) = guest.accelerator() {
            self.environment.accel = Some(accelerator.accel);
            self.environment.accel_reason = accelerator.reason.clone();
        }
        self.environment.guest_kernel = self.image.as_ref().map(|i| i.kernel_release.clone());
        self.store.set_environment(self.run, &self.environment)?;
        let qemu = guest.hypervisor().map(|h| Qemu::of(h, self.local.reader())).transpose()?;
        Ok(Running { guest, disks, without, qemu })
    }

    /// Gives the guest other storage where the state that a cell needs cannot be had in place.
    /// Returns the bytes that were written for it.
    pub(super) fn exchange(&mut self, setup: &Cell, attachment: &Attachment, state: State) -> anyhow::Result<u64> {
        let disk = (setup.target.clone(), attachment.clone());
        // Without a guest or a disk the cell says so itself.
        let there = |running: &Running| running.disks.contains_key(&disk);
        if !self.guests.get(&setup.guest).is_some_and(there) {
            return Ok(0);
        }
        let asked = attachment.clone();
        let next = self.on_target(&setup.target, move |t| t.exchange(&asked, state))??;
        let (Some(next), Some(running)) = (next, self.guests.get(&setup.guest)) else { return Ok(0) };
        running
            .guest
            .exchange(&running.disks[&disk], &next.storage)
            .with_context(|| format!("cannot replace the image of {}", setup.key()))?;
        let asked = attachment.clone();
        self.on_target(&setup.target, move |t| t.exchanged(&asked))??;
        Ok(next.wrote_bytes)
    }
}

#[cfg(test)]
mod tests {
    use vmio_model::cell::{Aio, Cache};

    use super::*;

    #[test]
    fn a_second_kind_of_guest_is_booted_once_a_round_too() {
        let of = |kind: &str, target: &str| {
            (kind.to_owned(), target.to_owned(), Attachment::new("virtio-blk", Cache::None, Aio::Native))
        };
        let attachments = [of("qemu", "sparse"), of("other", "sparse"), of("qemu", "device"), of("other", "device")];
        assert_eq!(kinds(&attachments).into_iter().collect::<Vec<_>>(), ["other", "qemu"]);
    }
}
