//! The stage of an actor: its subject brought into the state that the workload needs, the ends of its roles,
//! what is watched of it.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use vmio_model::cell::{Actor, Millis, Subject as On};
use vmio_model::result::DiskTraits;
use vmio_model::study::MIB;
use vmio_node::{Exec, held};

use super::Machine;
use crate::disks::targets::State;
use crate::engine::measure::Impossible;
use crate::limits::OOM_SCORE_ADJ;
use crate::probes::foreign::Circumstances;
use crate::probes::{Qemu, Subject, Thing};
use crate::workloads::{self, At, End, Found, Gentle, Role, Span, Stage, Wants};

/// An actor that is ready to start.
pub(super) struct Act {
    pub(super) actor: Actor,
    pub(super) workload: Found,
    pub(super) stage: Stage,
    /// What is watched while it works.
    pub(super) subjects: Vec<Subject>,
    pub(super) disk: Option<OnDisk>,
    /// What is opened by its descriptor, and its name in the result.
    named: Option<(String, String)>,
}

/// What is known of an actor's disk.
pub(super) struct OnDisk {
    pub(super) traits: DiskTraits,
    pub(super) circumstances: Circumstances,
}

/// How a cell is run: for how long, over how much of its targets, under which caps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms<'a> {
    /// Seconds of an actor that has none of its own.
    pub(super) seconds: f64,
    /// Most bytes of a target that a writing actor goes over; `None`: as the write budget allows.
    pub(super) most_bytes: Option<u64>,
    /// By actor.
    pub(super) caps: &'a [Option<Gentle>],
}

impl Machine<'_> {
    /// Makes an actor ready.
    pub(super) fn stage(&mut self, actor: &Actor, terms: Terms<'_>, cap: Option<Gentle>) -> anyhow::Result<Act> {
        let name = &actor.workload;
        let workload = workloads::find(name).with_context(|| format!("no workload {name}"))?;
        let seconds = actor.duration.map_or(terms.seconds, Millis::seconds);
        if let (false, Some(image)) = (actor.side.is_native(), &self.image)
            && let Some(why) = workload.programs().find_map(|program| image.lacks(program))
        {
            return Err(Impossible(format!("{name} cannot run in a guest: {why}")).into());
        }
        match &actor.subject {
            On::Disk { target, .. } => self.on_disk(actor, target, workload, (seconds, terms.most_bytes), cap),
            On::Machine => self.on_machine(actor, workload, seconds),
            other => anyhow::bail!("nothing in vmio prepares {} yet", other.place()),
        }
    }

    fn on_disk(
        &mut self,
        actor: &Actor,
        target: &str,
        workload: Found,
        (seconds, most): (f64, Option<u64>),
        gentle: Option<Gentle>,
    ) -> anyhow::Result<Act> {
        let unfit = || format!("{} works on no disk", actor.workload);
        let state = workload.disk().with_context(unfit)?.needs_state();
        let traits = workload.traits().disk.with_context(unfit)?;
        let role = workload.roles().last().with_context(unfit)?.name;
        let wrote = self.on_target(target, move |t| t.intact().and_then(|()| t.reset(state)))??;
        self.beside(wrote)?;
        let wrote = self.exchange(actor, state)?;
        self.beside(wrote)?;
        let own = || if traits.writes { self.span_of(&actor.workload) } else { u64::MAX };
        let most = most.unwrap_or_else(own);
        let prepared = self.targets.get(target).with_context(|| format!("target {target} is not there"))?;
        let native = actor.side.is_native();
        let span = Span { bytes: most.min(prepared.bytes()), memory_bytes: self.memory_bytes(actor), gentle };
        let allocates = if native { prepared.native_allocates() } else { prepared.allocates() };
        let path = prepared.native().to_owned();
        let servers = actor.attachment().map(|a| prepared.servers(a)).unwrap_or_default();
        let mut subjects = self.watched(actor, servers)?;
        let backing = self.backings.get(target).cloned();
        subjects.extend(backing.map(|b| Subject::here(self.local.clone(), Thing::Disk(b))));
        let (end, named) = match actor.attachment() {
            None => {
                // What is opened by its descriptor has its name in the result.
                let named = (path.display().to_string(), held::shown(&path).display().to_string());
                (End { at: At::Path(path), ..self.end(actor)? }, Some(named))
            }
            Some(attachment) => {
                let running = self.guests.get(&actor.side).with_context(|| format!("no guest {} runs", actor.side))?;
                let way = (target.to_owned(), attachment.clone());
                if let Some(why) = running.without.get(&way) {
                    return Err(Impossible(why.clone()).into());
                }
                let no_disk = || format!("guest {} has no disk for {}", actor.side, actor.key());
                let id = running.disks.get(&way).with_context(no_disk)?;
                (End { at: At::Path(running.guest.disk_path(id)?), ..self.end(actor)? }, None)
            }
        };
        let circumstances = Circumstances {
            first_write: allocates && state == State::Fresh,
            host_cache: actor.attachment().is_some_and(|a| !a.cache.direct()),
        };
        Ok(Act {
            actor: actor.clone(),
            stage: Stage { span: Some(span), ..Stage::of(role, end, seconds) },
            workload,
            subjects,
            disk: Some(OnDisk { traits, circumstances }),
            named,
        })
    }

    /// The machine itself: each role gets it, and where it wants an address, that by which a machine reaches itself.
    pub(super) fn on_machine(&mut self, actor: &Actor, workload: Found, seconds: f64) -> anyhow::Result<Act> {
        let base = self.end(actor)?;
        let end = |role: &Role| match role.wants {
            Wants::Path => anyhow::bail!("{} works on a disk, and its actor on none", actor.workload),
            Wants::Address => Ok((role.name, End { at: At::Address(Ipv4Addr::LOCALHOST.into()), ..base.clone() })),
            Wants::Nothing => Ok((role.name, base.clone())),
        };
        let ends = workload.roles().iter().map(end).collect::<anyhow::Result<_>>()?;
        let subjects = self.watched(actor, Vec::new())?;
        let stage = Stage { ends, seconds, span: None };
        Ok(Act { actor: actor.clone(), workload, stage, subjects, disk: None, named: None })
    }

    /// The machine that an actor works on, with the limits that its commands are held to.
    fn end(&self, actor: &Actor) -> anyhow::Result<End> {
        let mut exec_base = Exec { oom_score_adj: Some(OOM_SCORE_ADJ), ..Exec::default() };
        let node = match actor.side.is_native() {
            true => {
                exec_base.cgroup_procs = self.limits.as_ref().map(|l| l.procs_files().to_vec()).unwrap_or_default();
                self.local.clone()
            }
            false => {
                self.guests.get(&actor.side).with_context(|| format!("no guest {} runs", actor.side))?.guest.node()
            }
        };
        Ok(End { node, at: At::Nothing, exec_base })
    }

    /// What is watched of whoever works: the host's processors, and a guest's hypervisor.
    fn watched(&self, actor: &Actor, servers: Vec<u32>) -> anyhow::Result<Vec<Subject>> {
        let mut all = vec![Subject::here(self.local.clone(), Thing::Processors)];
        if let Some(qemu) = self.guests.get(&actor.side).and_then(|running| running.qemu.clone()) {
            let thing = Thing::Hypervisor(actor.side.to_string(), Qemu { servers, ..qemu });
            all.push(Subject::here(self.local.clone(), thing));
        }
        Ok(all)
    }

    fn memory_bytes(&self, actor: &Actor) -> u64 {
        u64::from(actor.side.shape.memory_mib.unwrap_or(self.study.guest.memory_mib)) * MIB
    }
}

impl Act {
    /// Its command as a person may type it.
    pub(super) fn command(&self, command: String) -> String {
        match &self.named {
            Some((open, name)) => command.replace(open, name),
            None => command,
        }
    }
}
