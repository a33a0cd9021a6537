//! Actors over paths: the last role at the actor's end, those that serve at the peer's; at a third end, where the path
//! has one, what the actor does is done as well.

use anyhow::Context as _;
use vmio_model::cell::Actor;

use super::{PreparedActor, Stager, held_to_nothing};
use crate::engine::bed::net;
use crate::nets::{self, HOST, NEIGHBOUR};
use crate::nodes::NodeId;
use crate::probes::{ProbePoint, ProbeSubject};
use crate::workloads::net::CO_SENDER;
use crate::workloads::{At, End, ResolvedWorkload, Stage};

impl Stager<'_, '_> {
    pub(super) fn on_path(
        &mut self,
        actor: &Actor,
        (network, peer): (&str, &str),
        workload: ResolvedWorkload,
        seconds: f64,
    ) -> anyhow::Result<PreparedActor> {
        let (paths, local) = (&self.bed.paths, &self.bed.local);
        let path = paths.of(actor).with_context(|| format!("there is no path for {}", actor.key()))?;
        let theirs = path.peers.get(peer).with_context(|| format!("{network} has no end {peer}"))?;
        let mut own = self.end(actor)?;
        match (&path.native, &path.plug) {
            (Some(end), _) => {
                own.at = At::address(end.address);
                // A container is there already.
                if actor.side.is_native() {
                    own.enter = end.enter.clone();
                }
            }
            (None, Some(plug)) => own.at = At::address(plug.address),
            (None, None) => anyhow::bail!("the path for {} has no end of its own", actor.key()),
        }
        let network = nets::find(network).with_context(|| format!("no network {network}"))?;
        let ours = network.is_ours();
        let neighbour = actor.neighbour();
        for one in std::iter::once(actor).chain(&neighbour) {
            let Some(running) = self.guests.get(&one.side) else { continue };
            let by = || format!("{} cannot be had to work by the card that is meant", one.side);
            net::turn_to(&*running.guest.node(), &running.rivals, one).with_context(by)?;
        }
        let other_end = |name: &str| -> anyhow::Result<End> {
            if let Some(guest) = neighbour.as_ref().filter(|_| name == NEIGHBOUR) {
                let plug = paths.of(guest).and_then(|path| path.plug.as_ref());
                let plug = plug.with_context(|| format!("there is no path for {}", guest.key()))?;
                return Ok(End { at: At::address(plug.address), ..self.end(guest)? });
            }
            // It is held to nothing: what is measured is the actor.
            let end = path.peers.get(name).with_context(|| format!("{} has no end {name}", network.name()))?;
            let (enter, reached) = (end.enter.clone(), end.address);
            let (on, node, serves) = match self.bed.nodes.peer().filter(|_| !ours) {
                Some((machine, own)) => (machine.id(), machine.node.clone(), own.serves),
                None if name == HOST => (NodeId::Host, local.clone(), reached),
                None => (NodeId::Played, local.clone(), reached),
            };
            Ok(End { on, node, at: At::Address { reached, serves }, enter, exec_base: held_to_nothing() })
        };
        let served = if network.is_inside() { own.clone() } else { other_end(peer)? };
        let co_sender = actor.co_sender().map(other_end).transpose()?;
        // What goes round in a guest goes by no interface of the host's.
        let here = ours && (!network.is_inside() || actor.side.is_native() || actor.side.shares_kernel());
        let ports = paths.host.as_ref().filter(|_| here).map(|host| path.ports(local, host, peer)).unwrap_or_default();
        let mut points = self.watched(actor, Vec::new())?;
        if let Some(neighbour) = &neighbour {
            points.extend(self.hypervisor(&neighbour.side, Vec::new()));
        }
        let link = match &path.plug {
            Some(plug) => Some((plug.tap.clone(), paths.host_end())),
            None if actor.side.shares_kernel() => Some((theirs.interface.clone(), theirs.enter.clone())),
            // What goes round in a guest comes by no link of the host.
            None => None,
        };
        // What came to the host, and what of that left it by a link that others use too.
        let shared = || Some([path.port.clone()?, path.uplink.clone()?].map(|name| (name, paths.host_end())));
        let links = if network.is_shared() { shared() } else { None };
        // What else an interface of the host's own carries is not vmio's to tell apart.
        let links = if ours { links.map_or_else(|| Vec::from_iter(link), Vec::from) } else { Vec::new() };
        for (name, enter) in links {
            points.push(ProbePoint::here(local.clone(), ProbeSubject::Link { name, enter }));
        }
        let last = workload.roles().len().saturating_sub(1);
        let end_of = |i: usize| if i == last { own.clone() } else { served.clone() };
        let of_roles = workload.roles().iter().enumerate().map(|(i, role)| (role.name, end_of(i)));
        let ends = of_roles.chain(co_sender.map(|end| (CO_SENDER, end))).collect();
        let stage = Stage { ends, seconds, span: None, place: 0 };
        let named = Some((own.enter.join(" ") + " ", String::new())).filter(|_| !own.enter.is_empty());
        Ok(PreparedActor { ports, named, ..PreparedActor::of(actor, workload, stage, points) })
    }
}
