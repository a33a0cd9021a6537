//! Actors on disks: the target in the state that the workload needs, by the device that a guest sees it by.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use vmio_look::backing::Backing;
use vmio_model::cell::{Actor, Side};
use vmio_node::linux::block;
use vmio_node::linux::net::Interfaces;
use vmio_node::mapped::Mapped;
use vmio_node::{Node, held};

use super::dm_cache;
use super::inside::Wanted;
use super::warm::{CachePlace, Warm, cache_of};
use super::{OnDisk, PreparedActor, Stager};
use crate::disks::targets::{self, CacheAt, CacheDriver, State};
use crate::engine::measure::Impossible;
use crate::guests::Hypervisor;
use crate::nets::{NetEnd, Plug, Port, REMOTE};
use crate::nodes::NodeId;
use crate::probes::foreign::Circumstances;
use crate::probes::{Counter, ProbePoint, ProbeSubject};
use crate::workloads::{At, End, Gentle, ResolvedWorkload, Span, Stage};

/// The end of a disk that another host serves, beside that of who works on it.
const SERVER: &str = "server of the disk";

impl Stager<'_, '_> {
    pub(super) fn on_disk(
        &mut self,
        actor: &Actor,
        target: &str,
        workload: ResolvedWorkload,
        (seconds, most): (f64, Option<u64>),
        gentle: Option<Gentle>,
    ) -> anyhow::Result<PreparedActor> {
        let unfit = || format!("{} works on no disk", actor.workload);
        let traits = workload.traits().disk.with_context(unfit)?;
        // A plan has no such cell. Of a device that is passed through the data may be the user's.
        if let Some(why) = targets::find(target).and_then(|target| target.only_read()).filter(|_| traits.writes) {
            return Err(Impossible(why.to_owned()).into());
        }
        let state = actor.state().unwrap_or_else(|| traits.state());
        let role = workload.roles().last().with_context(unfit)?.name;
        let wrote = self.bed.on_target(target, move |t| t.intact().and_then(|()| t.reset(state)))??;
        self.bed.record.record_extra_writes(wrote)?;
        let wrote = self.exchange(actor, state)?;
        self.bed.record.record_extra_writes(wrote)?;
        // A flash cache, or a page cache below a guest; else the page cache of the actor's own side.
        let (is_below, warm_bytes) = (actor.is_warm_below(), self.bed.study.warm_bytes(actor));
        let is_own = actor.is_warm() && !is_below;
        let own = || {
            if traits.writes {
                self.bed.span_of(&actor.workload)
            } else if is_own {
                warm_bytes
            } else {
                u64::MAX
            }
        };
        let most = most.unwrap_or_else(own);
        let targets = &self.bed.targets;
        let prepared = targets.made.get(target).with_context(|| format!("target {target} is not there"))?;
        let native = actor.side.shares_kernel();
        let memory_bytes = self.bed.study.guest.of(&actor.side).memory_bytes();
        let span = Span { bytes: most.min(prepared.bytes()), memory_bytes, gentle, warm: is_own };
        let place = CachePlace::Own;
        let mut warm = actor.is_warm().then(|| Warm { bytes: warm_bytes.min(prepared.bytes()), place });
        // A flash cache over it, and what lies below that.
        let flash = targets::find(target).and_then(|target| target.flash_cache());
        let flash = flash.filter(|at| *at == CacheAt::Native || actor.attachment().is_some());
        let slow = flash.map(|at| (prepared.native().to_owned(), at));
        let misses = flash.filter(|_| state == State::Filled);
        let mut inside = actor.attachment().and_then(|_| prepared.inside()).map(Wanted::File);
        let allocates = if native { prepared.native_allocates() } else { prepared.allocates() };
        let path = prepared.native().to_owned();
        // What another host spends is no part of the price here.
        let priced = actor.attachment().filter(|_| prepared.link().is_none());
        let servers = priced.map(|a| prepared.servers(a)).unwrap_or_default();
        let here = |subject| ProbePoint::here(self.bed.local.clone(), subject);
        let mut points = self.watched(actor, servers)?;
        points.extend(targets.backings.get(target).cloned().map(|backing| here(ProbeSubject::Disk(backing))));
        // What another machine spends on it is watched there.
        let there = prepared.server_at_peer().zip(self.bed.nodes.peer());
        points.extend(there.map(|(pid, (machine, _))| {
            let server = Hypervisor { name: SERVER, pid, ..Hypervisor::default() };
            let subject = ProbeSubject::Hypervisor(SERVER.to_owned(), server);
            ProbePoint { node: machine.node.clone(), name: machine.address.clone(), subject }
        }));
        // Where its guest reaches it by itself.
        let own = self.guests.get(&actor.side).filter(|_| actor.attachment().is_none());
        let own = own.and_then(|running| Some((running.guest.node(), running.own.get(target)?.clone())));
        let (end, named) = match (&own, actor.attachment()) {
            _ if actor.side.is_native() => {
                if let (Some(fast), Some((slow, at))) = (prepared.native_cache(), &slow) {
                    if let Some(warm) = warm.as_mut() {
                        warm.place = CachePlace::Flash(slow.clone(), *at);
                    }
                    points.push(here(ProbeSubject::DmCache(dm_cache::device_name(&path)?)));
                    inside = Some(Wanted::Cache {
                        driver: CacheDriver::DmCache,
                        slow: path.clone(),
                        fast: fast.to_owned(),
                        held_bytes: warm.as_ref().map(|warm| warm.bytes),
                        owner: Some(Mapped::of(self.bed.journal.cookie())),
                    });
                }
                // What is opened by its descriptor has its name in the result.
                let named = (path.display().to_string(), held::shown(&path).display().to_string());
                (End { at: At::Path(path), ..self.end(actor)? }, Some(named))
            }
            (Some((node, device)), _) => {
                points.extend(in_guest(node.clone(), &actor.side.to_string(), device));
                points.extend(self.at_driver(node.clone(), &actor.side, device));
                (End { at: At::Path(device.clone()), ..self.end(actor)? }, None)
            }
            (None, attachment) => {
                let running = self.guests.get(&actor.side).with_context(|| format!("no guest {} runs", actor.side))?;
                let key = (target.to_owned(), attachment.cloned());
                if let Some(why) = running.without.get(&key) {
                    return Err(Impossible(why.to_string()).into());
                }
                let no_disk = || format!("guest {} has no disk for {}", actor.side, actor.key());
                let id = running.disks.get(&key).with_context(no_disk)?;
                let opened = running.raw.get(&key).cloned();
                if let Some(warm) = warm.as_mut().filter(|_| is_below) {
                    let none = || Impossible(format!("{} has no file or device of the host's", actor.key()));
                    warm.place = match &slow {
                        Some((slow, at)) => CachePlace::Flash(slow.clone(), *at),
                        None => CachePlace::Host(opened.clone().ok_or_else(none)?),
                    };
                }
                let stored = opened.or(slow.map(|(slow, _)| slow));
                let opened = stored.map(|path| ProbeSubject::Storage { target: target.to_owned(), path });
                points.extend(opened.map(here));
                let path = running.guest.disk_path(id)?;
                // For the layers of a request (`vmio explain`), and for stalls, of which a program that does not say how
                // long a request took cannot tell.
                if attachment.is_some() {
                    points.extend(in_guest(running.guest.node(), &actor.side.to_string(), &path));
                    points.extend(self.at_driver(running.guest.node(), &actor.side, &path));
                }
                let drive = running.guest.disks().and_then(|disks| disks.drive(id));
                // Where it counts nothing, only what is to be warm has to say so.
                let counts =
                    drive.filter(|drive| warm.is_some() || drive.counts().is_ok_and(|counts| counts.is_some()));
                points.extend(counts.map(|drive| ProbePoint {
                    name: actor.side.to_string(),
                    ..here(ProbeSubject::Drive { target: target.to_owned(), drive: Counter(drive) })
                }));
                if let Some((cache, CacheAt::Guest(driver))) = running.caches.get(&key).zip(flash) {
                    let held_bytes = warm.as_ref().map(|warm| warm.bytes);
                    if driver == CacheDriver::DmCache {
                        let subject = ProbeSubject::DmCache(dm_cache::device_name(&path)?);
                        let (node, name) = (running.guest.node(), actor.side.to_string());
                        points.push(ProbePoint { node, name, subject });
                    }
                    let (slow, fast) = (path.clone(), running.guest.disk_path(cache)?);
                    inside = Some(Wanted::Cache { driver, slow, fast, held_bytes, owner: None });
                    let drive = running.guest.disks().and_then(|disks| disks.drive(cache));
                    points.extend(drive.map(|drive| ProbePoint {
                        name: actor.side.to_string(),
                        ..here(ProbeSubject::Drive { target: cache_of(target), drive: Counter(drive) })
                    }));
                }
                (End { at: At::Path(path), ..self.end(actor)? }, None)
            }
        };
        // Of a file in the guest's file system the page cache has other pages than of the disk.
        if is_own && inside.is_none() {
            points.extend(cache(&end, &actor.side, target));
        }
        let mut stage = Stage { span: Some(span), ..Stage::of(role, end, seconds) };
        let network = self.serve_beside(actor, &*workload, &mut stage)?;
        let (mut ports, mut card) = (Vec::new(), None);
        let link = self.bed.paths.of(actor).or_else(|| prepared.link());
        if let (Some(link), Some(host)) = (link, &self.bed.paths.host) {
            ports = link.ports(&self.bed.local, host, REMOTE);
            card = own.zip(link.plug.as_ref()).map(|((node, _), plug)| card_of(node, plug)).transpose()?;
            let (node, first) = (&self.bed.local, link.native.as_ref().filter(|_| native));
            card = card.or_else(|| first.map(|end| first_port(node, end)));
            let uplink = link.uplink.clone().map(|name| ProbeSubject::Link { name, enter: host.enter() });
            points.extend(uplink.map(here));
            let server = link.peers.get(REMOTE).map(|end| End {
                on: NodeId::Played,
                enter: end.enter.clone(),
                ..End::here(self.bed.local.clone(), At::address(end.address))
            });
            stage.ends.extend(server.map(|server| (SERVER, server)));
        }
        let circumstances = Circumstances {
            first_write: allocates && state == State::Fresh,
            host_cache: actor.attachment().is_some_and(|a| !a.cache.direct()),
        };
        let disk = Some(OnDisk { traits, circumstances });
        let prepared = PreparedActor::of(actor, workload, stage, points);
        Ok(PreparedActor { disk, ports, card, inside, warm, misses, named, _network: network, ..prepared })
    }

    /// The driver of a disk of a guest, where the study asks for it; never of a machine whose kernel is not the guest's
    /// own.
    fn at_driver(&self, node: Arc<dyn Node>, side: &Side, path: &Path) -> Option<ProbePoint> {
        if !self.bed.study.layers || side.shares_kernel() {
            return None;
        }
        Some(ProbePoint { node, name: side.to_string(), subject: ProbeSubject::Driver(block::name_at(path)?) })
    }

    /// Gives a guest other storage where the state that an actor needs cannot be had in place.
    /// Returns the bytes that were written for it.
    fn exchange(&mut self, actor: &Actor, state: State) -> anyhow::Result<u64> {
        let Some((target, attachment)) = actor.target().zip(actor.attachment()) else { return Ok(0) };
        let key = (target.to_owned(), Some(attachment.clone()));
        // Without a guest or a disk the cell says so itself.
        let Some(running) = self.guests.get(&actor.side).filter(|running| running.disks.contains_key(&key)) else {
            return Ok(0);
        };
        let asked = attachment.clone();
        let (next, servers) = self.bed.on_target(target, move |t| (t.exchange(&asked, state), t.servers(&asked)))?;
        let Some(next) = next? else { return Ok(0) };
        self.bed.hold_servers(&servers)?;
        running
            .guest
            .exchange(&running.disks[&key], &next.storage)
            .with_context(|| format!("cannot replace the storage of {}", actor.key()))?;
        let asked = attachment.clone();
        self.bed.on_target(target, move |t| t.exchanged(&asked))??;
        Ok(next.wrote_bytes)
    }
}

/// The card of a guest that is plugged in there.
fn card_of(node: Arc<dyn Node>, plug: &Plug) -> anyhow::Result<Port> {
    let interface = Interfaces::here(node.reader()).with_address(&plug.mac);
    let interface = interface.with_context(|| format!("{} has no card {} any more", node.name(), plug.mac))?;
    Ok(Port { node, enter: Vec::new(), interface, is_link: false, is_plug: false })
}

/// The end of a link that this host's kernel has in vmio's own namespace.
fn first_port(node: &Arc<dyn Node>, end: &NetEnd) -> Port {
    let (enter, interface) = (end.enter.clone(), end.interface.clone());
    Port { node: node.clone(), enter, interface, is_link: false, is_plug: false }
}

/// A disk of a guest as its own kernel sees it.
fn in_guest(node: Arc<dyn Node>, guest: &str, path: &Path) -> Option<ProbePoint> {
    let name = block::name_at(path)?;
    // Its counters are found by its name.
    let backing = Backing { leaves: [(name, (0, 0))].into(), ..Backing::default() };
    Some(ProbePoint { node, name: guest.to_owned(), subject: ProbeSubject::Disk(backing) })
}

/// What the page cache of a side has of a disk there.
fn cache(end: &End, side: &Side, target: &str) -> Option<ProbePoint> {
    let subject = ProbeSubject::Storage { target: target.to_owned(), path: end.path()?.to_owned() };
    let name = if side.is_native() { String::new() } else { side.to_string() };
    Some(ProbePoint { node: end.node.clone(), name, subject })
}
