//! One cell: the target brought into its state, the workload, the probes around it.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use vmio_look::backing::Backing;
use vmio_model::result::Sample;
use vmio_model::cell::{DetectZeroes, Cell};
use vmio_model::study::MIB;
use vmio_node::{Exec, held};

use super::Machine;
use crate::disks::targets::State;
use crate::engine::measure::Impossible;
use crate::limits::OOM_SCORE_ADJ;
use crate::probes::foreign::{self, Circumstances};
use crate::probes::{Qemu, Subject, Watch};
use crate::workloads::{self, Gentle, WorkCtx};

/// Length of the look at the device before a cell.
const LOOK_BEFORE: Duration = Duration::from_millis(150);

impl Machine<'_> {
    /// The device for a moment before the cell: what is not ours.
    fn look_before(&self, backing: Option<Backing>) -> anyhow::Result<Option<vmio_model::result::DeviceUse>> {
        let subject = Subject { backing, qemu: None };
        let watch = Watch::start(self.local.reader(), subject)?;
        thread::sleep(LOOK_BEFORE);
        Ok(watch.stop()?.device)
    }

    /// Runs a workload with the probes around it, a writing one over as much as the write budget leaves
    /// it.
    pub(super) fn observe(
        &mut self,
        setup: &Cell,
        round: u32,
        boot: u32,
        seconds: f64,
        gentle: Option<Gentle>,
    ) -> anyhow::Result<Sample> {
        let writes = workloads::find(&setup.workload).is_some_and(|w| w.traits().writes);
        let most = if writes { self.span_of(&setup.workload) } else { u64::MAX };
        self.observe_over(most, setup, (round, boot), seconds, gentle)
    }

    /// The same over at most so many bytes of the target.
    pub(super) fn observe_over(
        &mut self,
        most: u64,
        setup: &Cell,
        (round, boot): (u32, u32),
        seconds: f64,
        gentle: Option<Gentle>,
    ) -> anyhow::Result<Sample> {
        let workload = workloads::find(&setup.workload).with_context(|| format!("no workload {}", setup.workload))?;
        let traits = workload.traits();
        let state = workload.needs_state();
        let wrote = self.on_target(&setup.target, move |t| t.intact().and_then(|()| t.reset(state)))??;
        self.beside(wrote)?;
        if let Some(attachment) = &setup.attachment {
            let wrote = self.exchange(setup, attachment, state)?;
            self.beside(wrote)?;
        }
        let target =
            self.targets.get(&setup.target).with_context(|| format!("target {} is not there", setup.target))?;
        let span = most.min(target.bytes());
        let allocates = if setup.is_native() { target.native_allocates() } else { target.allocates() };
        let native = target.native().to_owned();
        let servers = setup.attachment.as_ref().map(|a| target.servers(a)).unwrap_or_default();
        let backing = self.backings.get(&setup.target).cloned();
        let before = self.look_before(backing.clone())?;

        let mut exec_base = Exec { oom_score_adj: Some(OOM_SCORE_ADJ), ..Exec::default() };
        // What is opened by its descriptor has its name in the result.
        let mut named = None;
        let (node, path, qemu) = match &setup.attachment {
            None => {
                named = Some((native.display().to_string(), held::shown(&native).display().to_string()));
                exec_base.cgroup_procs = self.limits.as_ref().map(|l| l.procs_files().to_vec()).unwrap_or_default();
                (self.local.clone(), native, None)
            }
            Some(attachment) => {
                let running =
                    self.guests.get(&setup.guest).with_context(|| format!("no guest {} runs", setup.guest))?;
                let disk = (setup.target.clone(), attachment.clone());
                if let Some(why) = running.without.get(&disk) {
                    return Err(Impossible(why.clone()).into());
                }
                let id = running
                    .disks
                    .get(&disk)
                    .with_context(|| format!("guest {} has no disk for {}", setup.guest, setup.key()))?;
                let qemu = running.qemu.clone().map(|q| Qemu { servers, ..q });
                (running.guest.node(), running.guest.disk_path(id)?, qemu)
            }
        };
        let ctx = WorkCtx {
            path,
            bytes: span,
            seconds,
            memory_bytes: u64::from(self.study.guest.memory_mib) * MIB,
            exec_base,
            gentle,
        };
        let started_unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let watch = Watch::start(self.local.reader(), Subject { backing, qemu })?;
        let result = self.on_storage(move || workload.run(&*node, &ctx))?;
        let seen = watch.stop()?;
        let host_cache = setup.attachment.as_ref().is_some_and(|a| !a.cache.direct());
        if let Some(asked) = setup.attachment.clone().filter(|_| host_cache) {
            // Where it fails, the next cell shows what is still written as foreign load.
            let _ = self.on_target(&setup.target, move |t| t.settle(&asked))?;
        }
        if let (Some(asked), Some(target)) = (&setup.attachment, self.targets.get_mut(&setup.target))
            && traits.writes
            && (asked.options.discard || asked.options.detect_zeroes != DetectZeroes::Off)
        {
            target.soiled(asked);
        }
        let result = result.map_err(|e| match (&e, self.guests.get(&setup.guest)) {
            (workloads::Error::Node(vmio_node::Error::Gone { .. }), Some(running)) => {
                anyhow::Error::new(running.guest.give_up(&e.to_string()))
            }
            _ => anyhow::Error::new(e),
        });
        let mut result = match (result, &setup.attachment, self.targets.get_mut(&setup.target)) {
            // Whatever the guest made of it: a server that is gone is the cause.
            (Err(e), Some(attachment), Some(target)) => match target.sound(attachment) {
                Ok(()) => return Err(e),
                Err(gone) => return Err(anyhow::anyhow!("{gone}; in the guest: {e:#}")),
            },
            (other, ..) => other?,
        };
        if let Some((open, name)) = named {
            result.command = result.command.replace(&open, &name);
        }
        let circumstances = Circumstances { first_write: allocates && state == State::Fresh, host_cache };
        let foreign = foreign::foreign(&traits, circumstances, &result, before.as_ref(), seen.device.as_ref());
        let marks = foreign::marks(&traits, &result, seen.device.as_ref(), &foreign);
        Ok(Sample {
            setup: setup.clone(),
            round,
            boot,
            started_unix,
            result,
            device: seen.device,
            cpu: seen.cpu,
            foreign,
            marks,
        })
    }
}
