//! What serves an actor on a disk in roles of its own: on the actor's machine, held to what the actor is held to, or on
//! another host over a path of vmio's own. Only these roles reach each other: on the host in a network namespace that
//! the cell has for itself, in a guest of vmio's own at its loopback interface.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Context as _;
use vmio_model::cell::{Actor, Side};

use super::{Stager, held_to_nothing};
use crate::engine::measure::Impossible;
use crate::nets::{Namespace, REMOTE};
use crate::nodes::NodeId;
use crate::workloads::{At, End, Stage, Wants, Workload};

impl Stager<'_, '_> {
    /// Gives the roles that serve an actor on a disk their ends, and the last one the way to them. Returns their
    /// network, where it is not the actor's own.
    pub(super) fn serve_beside(
        &self,
        actor: &Actor,
        workload: &dyn Workload,
        stage: &mut Stage,
    ) -> anyhow::Result<Option<Namespace>> {
        let roles = workload.roles();
        let Some((last, serving)) = roles.split_last().filter(|(_, serving)| !serving.is_empty()) else {
            return Ok(None);
        };
        let needed = needs_network(&actor.side)?;
        let (network, address, enter) = match workload.other_host() {
            Some(other) => {
                let (address, enter) = self.on_other_host(actor, other.ends, stage)?;
                (None, address, enter)
            }
            None => {
                let network = needed.then(|| Namespace::make(&*self.bed.local)).transpose()?;
                let enter = network.as_ref().map(Namespace::enter).unwrap_or_default();
                (network, IpAddr::V4(Ipv4Addr::LOCALHOST), enter)
            }
        };
        let own = End { enter: enter.clone(), ..self.end(actor)? };
        for role in serving.iter().filter(|role| workload.other_host().is_none_or(|o| !o.ends.contains(&role.name))) {
            let at = match role.wants {
                Wants::Address => At::address(address),
                Wants::Nothing => At::Nothing,
                Wants::Path => anyhow::bail!("only the last role of {} works on its disk", actor.workload),
            };
            stage.ends.insert(role.name, End { at, ..own.clone() });
        }
        if let Some(end) = stage.ends.get_mut(last.name) {
            end.enter = enter;
        }
        Ok(network)
    }

    /// Puts ends on the other host of an actor's path. Returns the actor's address on it, and what enters its network.
    fn on_other_host(
        &self,
        actor: &Actor,
        names: &[&'static str],
        stage: &mut Stage,
    ) -> anyhow::Result<(IpAddr, Vec<String>)> {
        let no_path = || format!("there is no path to another host for {}", actor.key());
        let path = self.bed.paths.of(actor).with_context(no_path)?;
        let there = path.peers.get(REMOTE).with_context(no_path)?;
        let end = End {
            on: NodeId::Played,
            enter: there.enter.clone(),
            exec_base: held_to_nothing(),
            ..End::here(self.bed.local.clone(), At::address(there.address))
        };
        stage.ends.extend(names.iter().map(|name| (*name, end.clone())));
        match (&path.native, &path.plug) {
            (Some(end), _) => Ok((end.address, end.enter.clone())),
            (None, Some(plug)) => Ok((plug.address, Vec::new())),
            (None, None) => anyhow::bail!("the path for {} has no end of its own", actor.key()),
        }
    }
}

/// Whether what serves a side there needs a network made for it; refused where others could reach it.
fn needs_network(side: &Side) -> Result<bool, Impossible> {
    match NodeId::of(side) {
        NodeId::Host => Ok(true),
        NodeId::Guest(guest) if !guest.shares_kernel() => Ok(false),
        _ => Err(Impossible(format!(
            "others may reach the network of {side}, and the servers of this workload let everybody in: run it on the \
             host or in a guest of vmio's own"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_where_nobody_else_reaches_them() {
        let of = |kind: &str| needs_network(&Side::of(kind)).map_err(|why| why.to_string());
        assert_eq!((needs_network(&Side::native()).ok(), of("qemu")), (Some(true), Ok(false)));
        for kind in ["container", "ssh"] {
            assert!(of(kind).is_err_and(|why| why.contains(kind)), "{kind}");
        }
    }
}
