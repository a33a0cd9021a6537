//! The stage of an actor: its subject brought into the state that the workload needs, the ends of its roles,
//! what is watched of it.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use vmio_look::backing::Backing;
use vmio_model::cell::{Actor, Cell, Millis, Side, Subject as On};
use vmio_model::result::{DiskTraits, LATENCY};
use vmio_node::linux::block;
use vmio_node::{Exec, Node, held};

use super::Machine;
use super::net::PathKey;
use crate::disks::targets::State;
use crate::engine::measure::Impossible;
use crate::limits::OOM_SCORE_ADJ;
use crate::nets::{self, Namespace, Port};
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
    /// The interfaces of its path on the host's side.
    pub(super) ports: Vec<Port>,
    /// The file of its disk's file system that it works on, in a guest.
    pub(super) inside: Option<&'static str>,
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
    /// Makes the actors of a cell ready.
    pub(super) fn stage_all(&mut self, cell: &Cell, terms: Terms<'_>) -> anyhow::Result<Vec<Act>> {
        let mut acts = Vec::new();
        for (i, actor) in cell.actors().enumerate() {
            let mut act = self.stage(actor, terms, terms.caps.get(i).copied().flatten())?;
            act.stage.place = u16::try_from(i).context("a cell has 65,536 actors at most")?;
            acts.push(act);
        }
        Ok(acts)
    }

    /// Makes an actor ready.
    fn stage(&mut self, actor: &Actor, terms: Terms<'_>, cap: Option<Gentle>) -> anyhow::Result<Act> {
        let name = &actor.workload;
        let workload = workloads::find(name).with_context(|| format!("no workload {name}"))?;
        let seconds = actor.duration.map_or(terms.seconds, Millis::seconds);
        if let (false, Some(image)) = (actor.side.shares_kernel(), &self.image)
            && let Some(why) = workload.programs().find_map(|program| image.lacks(program))
        {
            return Err(Impossible(format!("{name} cannot run in a guest: {why}")).into());
        }
        match &actor.subject {
            On::Disk { target, .. } => self.on_disk(actor, target, workload, (seconds, terms.most_bytes), cap),
            On::Machine => self.on_machine(actor, workload, seconds),
            On::Path { network, peer, .. } => self.on_path(actor, (network, peer), workload, seconds),
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
        let native = actor.side.shares_kernel();
        let span = Span { bytes: most.min(prepared.bytes()), memory_bytes: self.memory_bytes(actor), gentle };
        let allocates = if native { prepared.native_allocates() } else { prepared.allocates() };
        let path = prepared.native().to_owned();
        let servers = actor.attachment().map(|a| prepared.servers(a)).unwrap_or_default();
        let mut subjects = self.watched(actor, servers)?;
        let backing = self.backings.get(target).cloned();
        subjects.extend(backing.map(|b| Subject::here(self.local.clone(), Thing::Disk(b))));
        let (end, named) = match (actor.attachment(), actor.side.is_native()) {
            (_, true) => {
                // What is opened by its descriptor has its name in the result.
                let named = (path.display().to_string(), held::shown(&path).display().to_string());
                (End { at: At::Path(path), ..self.end(actor)? }, Some(named))
            }
            (attachment, false) => {
                let running = self.guests.get(&actor.side).with_context(|| format!("no guest {} runs", actor.side))?;
                let way = (target.to_owned(), attachment.cloned());
                if let Some(why) = running.without.get(&way) {
                    return Err(Impossible(why.to_string()).into());
                }
                let no_disk = || format!("guest {} has no disk for {}", actor.side, actor.key());
                let id = running.disks.get(&way).with_context(no_disk)?;
                let opened = running.raw.get(&way).cloned();
                let opened = opened.map(|path| Thing::Storage { target: target.to_owned(), path });
                subjects.extend(opened.map(|thing| Subject::here(self.local.clone(), thing)));
                let path = running.guest.disk_path(id)?;
                // A program that does not say how long a request took cannot tell a stall: the guest's kernel can.
                let own_disk = attachment.is_some();
                if own_disk && workload.traits().figures.iter().all(|figure| figure.name != LATENCY) {
                    subjects.extend(in_guest(running.guest.node(), &actor.side.to_string(), &path));
                }
                (End { at: At::Path(path), ..self.end(actor)? }, None)
            }
        };
        let inside = actor.attachment().and_then(|_| self.targets.get(target)?.inside());
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
            ports: Vec::new(),
            inside,
            named,
        })
    }

    /// The machine itself: each role gets it, and nothing else.
    pub(super) fn on_machine(&mut self, actor: &Actor, workload: Found, seconds: f64) -> anyhow::Result<Act> {
        let base = self.end(actor)?;
        let end = |role: &Role| match role.wants {
            Wants::Path => anyhow::bail!("{} works on a disk, and its actor on none", actor.workload),
            // The machine's own loopback interface is everybody's: `loopback` is a network.
            Wants::Address => anyhow::bail!("{} works over a path, and its actor over none", actor.workload),
            Wants::Nothing => Ok((role.name, base.clone())),
        };
        let ends = workload.roles().iter().map(end).collect::<anyhow::Result<_>>()?;
        let subjects = self.watched(actor, Vec::new())?;
        let stage = Stage { ends, seconds, span: None, place: 0 };
        Ok(Act {
            actor: actor.clone(),
            workload,
            stage,
            subjects,
            disk: None,
            ports: Vec::new(),
            inside: None,
            named: None,
        })
    }

    /// A path: its last role at the actor's end, those that serve at the peer's.
    fn on_path(
        &mut self,
        actor: &Actor,
        (network, peer): (&str, &str),
        workload: Found,
        seconds: f64,
    ) -> anyhow::Result<Act> {
        let path = PathKey::of(actor).and_then(|key| self.paths.get(&key));
        let path = path.with_context(|| format!("there is no path for {}", actor.key()))?;
        let theirs = path.peers.get(peer).with_context(|| format!("{network} has no end {peer}"))?;
        let mut own = self.end(actor)?;
        match (&path.native, &path.plug) {
            (Some(end), _) => {
                own.at = At::Address(end.address);
                // A container is there already.
                if actor.side.is_native() {
                    own.enter = end.enter.clone();
                }
            }
            (None, Some(plug)) => own.at = At::Address(plug.address),
            (None, None) => anyhow::bail!("the path for {} has no end of its own", actor.key()),
        }
        let network = nets::find(network).with_context(|| format!("no network {network}"))?;
        let ours = network.is_ours();
        let neighbour = actor.neighbour();
        for one in std::iter::once(actor).chain(&neighbour) {
            let Some(running) = self.guests.get(&one.side) else { continue };
            let by = || format!("{} cannot be had to work by the card that is meant", one.side);
            super::net::turn_to(&*running.guest.node(), &running.rivals, one).with_context(by)?;
        }
        let served = if network.is_inside() {
            own.clone()
        } else if let Some(neighbour) = &neighbour {
            let plug = PathKey::of(neighbour).and_then(|key| self.paths.get(&key)?.plug.as_ref());
            let plug = plug.with_context(|| format!("there is no path for {}", neighbour.key()))?;
            End { at: At::Address(plug.address), ..self.end(neighbour)? }
        } else {
            // The peer is held to nothing: what is measured is the actor.
            let exec_base = Exec { oom_score_adj: Some(OOM_SCORE_ADJ), ..Exec::default() };
            let (enter, reached) = (theirs.enter.clone(), theirs.address);
            let (node, at) = match self.peer.as_ref().filter(|_| !ours) {
                Some(peer) => (peer.node.clone(), At::Elsewhere { reached, serves: peer.serves }),
                None => (self.local.clone(), At::Address(reached)),
            };
            End { node, at, enter, exec_base }
        };
        // What goes round in a guest goes by no interface of the host's.
        let here = ours && (!network.is_inside() || actor.side.is_native() || actor.side.shares_kernel());
        let ports =
            self.bed.as_ref().filter(|_| here).map(|bed| path.ports(&self.local, bed, peer)).unwrap_or_default();
        let mut subjects = self.watched(actor, Vec::new())?;
        if let Some(neighbour) = &neighbour {
            subjects.extend(self.hypervisor(&neighbour.side, Vec::new()));
        }
        let link = match &path.plug {
            Some(plug) => Some((plug.tap.clone(), self.host_end())),
            None if actor.side.shares_kernel() => Some((theirs.interface.clone(), theirs.enter.clone())),
            // What goes round in a guest comes by no link of the host.
            None => None,
        };
        // What came to the host, and what of that left it by a link that others use too.
        let host = || self.host_end();
        let shared = || Some([path.port.clone()?, path.uplink.clone()?].map(|name| (name, host())));
        let links = if network.is_shared() { shared() } else { None };
        // What else an interface of the host's own carries is not vmio's to tell apart.
        let links = if ours { links.map_or_else(|| Vec::from_iter(link), Vec::from) } else { Vec::new() };
        for (name, enter) in links {
            subjects.push(Subject::here(self.local.clone(), Thing::Link { name, enter }));
        }
        let last = workload.roles().len().saturating_sub(1);
        let end_of = |i: usize| if i == last { own.clone() } else { served.clone() };
        let ends = workload.roles().iter().enumerate().map(|(i, role)| (role.name, end_of(i))).collect();
        let stage = Stage { ends, seconds, span: None, place: 0 };
        let named = Some((own.enter.join(" ") + " ", String::new())).filter(|_| !own.enter.is_empty());
        Ok(Act { actor: actor.clone(), workload, stage, subjects, disk: None, ports, inside: None, named })
    }

    /// What goes before a command so that it runs in the namespace that plays the host.
    pub(super) fn host_end(&self) -> Vec<String> {
        self.bed.as_ref().map(Namespace::enter).unwrap_or_default()
    }

    /// The machine that an actor works on, with the limits that its commands are held to.
    fn end(&self, actor: &Actor) -> anyhow::Result<End> {
        let mut exec_base = Exec { oom_score_adj: Some(OOM_SCORE_ADJ), ..Exec::default() };
        let node = match actor.side.is_native() {
            true => {
                let side = &actor.side;
                let held = self.natives.get(side).with_context(|| format!("nothing was prepared for {side}"))?;
                exec_base.cgroup_procs = match held {
                    Ok(limits) => limits.procs_files(),
                    // Without a group it is measured all the same, and told; but not on other processors than asked for.
                    Err(why) if !side.shape.pins.is_empty() => return Err(Impossible(why.to_string()).into()),
                    Err(_) => Vec::new(),
                };
                self.local.clone()
            }
            false => {
                self.guests.get(&actor.side).with_context(|| format!("no guest {} runs", actor.side))?.guest.node()
            }
        };
        Ok(End { node, at: At::Nothing, enter: Vec::new(), exec_base })
    }

    /// What is watched of whoever works: the host's processors, and a guest's hypervisor or a container's processes.
    fn watched(&self, actor: &Actor, servers: Vec<u32>) -> anyhow::Result<Vec<Subject>> {
        // What this host does meanwhile says nothing of another machine.
        if actor.side.is_afar() {
            return Ok(Vec::new());
        }
        let mut all = [Thing::Processors, Thing::Others { than: std::process::id() }]
            .map(|thing| Subject::here(self.local.clone(), thing))
            .to_vec();
        all.extend(self.hypervisor(&actor.side, servers));
        let (running, side) = (self.guests.get(&actor.side), actor.side.to_string());
        if let Some(processes) = running.and_then(|running| running.guest.processes()) {
            all.push(Subject::here(self.local.clone(), Thing::Container(side, processes)));
        }
        Ok(all)
    }

    /// The processes that run a guest, and those that serve its disks.
    fn hypervisor(&self, side: &Side, servers: Vec<u32>) -> Option<Subject> {
        let qemu = self.guests.get(side)?.qemu.clone()?;
        let thing = Thing::Hypervisor(side.to_string(), Qemu { servers, ..qemu });
        Some(Subject::here(self.local.clone(), thing))
    }

    fn memory_bytes(&self, actor: &Actor) -> u64 {
        self.study.guest.of(&actor.side).memory_bytes()
    }
}

/// A disk of a guest as its own kernel sees it.
fn in_guest(node: Arc<dyn Node>, guest: &str, path: &Path) -> Option<Subject> {
    let name = block::sysfs_name(path.file_name()?.to_str()?);
    // Its counters are found by its name.
    let backing = Backing { leaves: [(name, (0, 0))].into(), ..Backing::default() };
    Some(Subject { node, name: guest.to_owned(), thing: Thing::Disk(backing) })
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
