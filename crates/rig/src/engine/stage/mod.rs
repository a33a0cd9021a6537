//! The stage of a cell: its actors with the ends of their roles, their subjects brought into the state that the
//! workloads need ([`disk`], [`path`]), what caches are to hold of them ([`warm`]), what is watched of them, what
//! is set around them ([`settings`]).

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use vmio_model::cell::{Actor, Cell, Millis, Side, Subject};
use vmio_model::result::DiskTraits;
use vmio_node::Exec;

use self::inside::Wanted;
use self::warm::Warm;
use super::bed::Bed;
use super::bed::net::Rival;
use super::bed::sides::DiskKey;
use super::measure::Impossible;
use crate::disks::targets::CacheAt;
use crate::guests::{Guest, Hypervisor, Unfit};
use crate::limits::OOM_SCORE_ADJ;
use crate::nets::{Namespace, Port};
use crate::nodes::NodeId;
use crate::probes::foreign::Circumstances;
use crate::probes::{ProbePoint, ProbeSubject, Workers};
use crate::workloads::{self, At, End, Gentle, ResolvedWorkload, Role, Stage, Wants};

mod bcache;
mod disk;
mod dm_cache;
mod flash;
mod in_guest;
mod inside;
mod path;
mod served;
pub mod settings;
pub mod warm;
pub mod warming;

/// The guests that run.
pub type Guests = BTreeMap<Side, Running>;

/// A guest and which of its disks serves which target and attachment.
pub struct Running {
    pub guest: Box<dyn Guest>,
    pub disks: BTreeMap<DiskKey, String>,
    /// The raw files and devices that its hypervisor opens for them. Images are exchanged while it runs.
    pub raw: BTreeMap<DiskKey, PathBuf>,
    /// The devices that it has made of targets which it reaches by itself.
    pub own: BTreeMap<String, PathBuf>,
    /// The disks that it has beside them, for caches of its own.
    pub caches: BTreeMap<DiskKey, String>,
    /// Why it has no disk for these.
    pub without: BTreeMap<DiskKey, Unfit>,
    pub hypervisor: Option<Hypervisor>,
    /// Its network devices that lie on a network with others of its own.
    pub rivals: Vec<Rival>,
}

/// An actor that is ready to start: its ends, its disk, and what is watched of it.
pub struct PreparedActor {
    pub actor: Actor,
    pub workload: ResolvedWorkload,
    pub stage: Stage,
    /// What probes watch while it works.
    pub probe_points: Vec<ProbePoint>,
    pub disk: Option<OnDisk>,
    /// The interfaces of its path on the host's side, or of the link to what serves its disk.
    pub ports: Vec<Port>,
    /// Its guest's card, where that reaches what serves its disk by itself; or what this host's kernel does so by, where
    /// that is in vmio's own namespace.
    pub card: Option<Port>,
    /// What its guest is to have over the disk.
    inside: Option<Wanted>,
    /// What of its disk a cache is to hold.
    pub warm: Option<Warm>,
    /// Where a flash cache lies that is to hold nothing of its disk.
    misses: Option<CacheAt>,
    /// A path that is opened by its descriptor (or what enters a namespace), and what its command shows in the result
    /// instead.
    named: Option<(String, String)>,
    /// The network of what serves it on the host, which ends with it.
    _network: Option<Namespace>,
}

/// What is known of an actor's disk.
pub struct OnDisk {
    pub traits: DiskTraits,
    pub circumstances: Circumstances,
}

/// The limits of a cell: seconds, bytes of its targets, caps of its actors.
#[derive(Debug, Clone, Copy)]
pub struct RunLimits<'a> {
    /// Seconds of an actor that has none of its own.
    pub seconds: f64,
    /// Most bytes of a target that a writing actor goes over; `None`: as the write budget allows.
    pub most_bytes: Option<u64>,
    /// The cap of each actor, in their order.
    pub caps: &'a [Option<Gentle>],
}

/// Prepares the actors of cells, with what the bed has and the guests that run now.
pub struct Stager<'s, 'a> {
    pub bed: &'s mut Bed<'a>,
    pub guests: &'s Guests,
}

impl Stager<'_, '_> {
    /// Makes the actors of a cell ready.
    pub fn stage_all(&mut self, cell: &Cell, limits: RunLimits<'_>) -> anyhow::Result<Vec<PreparedActor>> {
        let mut actors = Vec::new();
        for (i, actor) in cell.actors().enumerate() {
            let mut prepared = self.stage(actor, limits, limits.caps.get(i).copied().flatten())?;
            prepared.stage.place = u16::try_from(i).context("a cell has 65,536 actors at most")?;
            actors.push(prepared);
        }
        Ok(actors)
    }

    /// Makes an actor ready.
    fn stage(&mut self, actor: &Actor, limits: RunLimits<'_>, cap: Option<Gentle>) -> anyhow::Result<PreparedActor> {
        let name = &actor.workload;
        let workload = workloads::find(name).with_context(|| format!("no workload {name}"))?;
        let whole = |tick: u32| Millis(Millis::from_seconds(limits.seconds).0.div_ceil(tick) * tick);
        let seconds = actor.duration.unwrap_or_else(|| whole(workload.tick().0)).seconds();
        if let (false, Some(image)) = (actor.side.shares_kernel(), &self.bed.image)
            && let Some(why) = workload.takes().find_map(|taken| image.lacks(taken))
        {
            return Err(Impossible(format!("{name} cannot run in a guest: {why}")).into());
        }
        match &actor.subject {
            Subject::Disk { target, .. } => self.on_disk(actor, target, workload, (seconds, limits.most_bytes), cap),
            Subject::Machine => self.on_machine(actor, workload, seconds),
            Subject::Path { network, peer, .. } => self.on_path(actor, (network, peer), workload, seconds),
        }
    }

    /// The machine itself: each role gets it, and nothing else.
    pub fn on_machine(
        &mut self,
        actor: &Actor,
        workload: ResolvedWorkload,
        seconds: f64,
    ) -> anyhow::Result<PreparedActor> {
        let base = self.end(actor)?;
        let end = |role: &Role| match role.wants {
            Wants::Path => anyhow::bail!("{} works on a disk, and its actor on none", actor.workload),
            // The machine's own loopback interface is everybody's: `loopback` is a network.
            Wants::Address => anyhow::bail!("{} works over a path, and its actor over none", actor.workload),
            Wants::Nothing => Ok((role.name, base.clone())),
        };
        let ends = workload.roles().iter().map(end).collect::<anyhow::Result<_>>()?;
        let points = self.watched(actor, Vec::new())?;
        let stage = Stage { ends, seconds, span: None, place: 0 };
        Ok(PreparedActor::of(actor, workload, stage, points))
    }

    /// The machine that an actor works on, with the limits that its commands are held to.
    fn end(&self, actor: &Actor) -> anyhow::Result<End> {
        let (side, on) = (&actor.side, NodeId::of(&actor.side));
        let node = self.bed.nodes.node(&on).with_context(|| format!("no guest {side} runs"))?.clone();
        let mut exec_base = held_to_nothing();
        if on == NodeId::Host {
            let held = self.bed.natives.get(side).with_context(|| format!("nothing was prepared for {side}"))?;
            exec_base.cgroup_procs = match held {
                Ok(limits) => limits.procs_files(),
                // Without a group it is measured all the same, and told; but not on other processors than asked for.
                Err(why) if !side.shape.pins.is_empty() => return Err(Impossible(why.to_string()).into()),
                Err(_) => Vec::new(),
            };
        }
        Ok(End { on, node, at: At::Nothing, enter: Vec::new(), exec_base })
    }

    /// What is watched of whoever works: the host's processors and power, and a guest's hypervisor or a container's
    /// processes.
    fn watched(&self, actor: &Actor, servers: Vec<u32>) -> anyhow::Result<Vec<ProbePoint>> {
        // What this host does meanwhile says nothing of another machine.
        if NodeId::of(&actor.side).is_elsewhere() {
            return Ok(Vec::new());
        }
        let here = |subject| ProbePoint::here(self.bed.local.clone(), subject);
        let of_host = [ProbeSubject::Processors, ProbeSubject::Others { than: std::process::id() }];
        let mut all: Vec<ProbePoint> = of_host.into_iter().chain(self.bed.meters.iter().cloned()).map(here).collect();
        all.extend(self.workers(|workers| workers));
        all.extend(self.hypervisor(&actor.side, servers));
        let (running, side) = (self.guests.get(&actor.side), actor.side.to_string());
        if let Some(processes) = running.and_then(|running| running.guest.processes()) {
            all.push(here(ProbeSubject::Container(side, processes)));
            all.extend(self.workers(|workers| workers.with_container(processes)));
        }
        Ok(all)
    }

    /// Vmio's processes by component, with what is known of some, where the study asks for that.
    fn workers(&self, known: impl FnOnce(Workers) -> Workers) -> Option<ProbePoint> {
        let subject = || ProbeSubject::Components(known(Workers::of(std::process::id())));
        self.bed.study.components.then(|| ProbePoint::here(self.bed.local.clone(), subject()))
    }

    /// The processes that run a guest, and those that serve its disks.
    fn hypervisor(&self, side: &Side, servers: Vec<u32>) -> Vec<ProbePoint> {
        let running = self.guests.get(side).and_then(|running| running.hypervisor.clone());
        let Some(own) = running.map(|own| Hypervisor { servers, ..own }) else { return Vec::new() };
        let workers = self.workers(|workers| workers.with_hypervisor(&own));
        let subject = ProbeSubject::Hypervisor(side.to_string(), own);
        workers.into_iter().chain([ProbePoint::here(self.bed.local.clone(), subject)]).collect()
    }
}

/// The prototype of commands that no group holds.
fn held_to_nothing() -> Exec {
    Exec { oom_score_adj: Some(OOM_SCORE_ADJ), ..Exec::default() }
}

impl PreparedActor {
    /// One that works on no disk and over no path.
    fn of(actor: &Actor, workload: ResolvedWorkload, stage: Stage, probe_points: Vec<ProbePoint>) -> Self {
        Self {
            actor: actor.clone(),
            workload,
            stage,
            probe_points,
            disk: None,
            ports: Vec::new(),
            card: None,
            inside: None,
            warm: None,
            misses: None,
            named: None,
            _network: None,
        }
    }

    /// Its command as a person may type it.
    pub fn command(&self, command: String) -> String {
        match &self.named {
            Some((open, name)) => command.replace(open, name),
            None => command,
        }
    }
}
