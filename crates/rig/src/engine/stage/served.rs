//! What serves an actor on a disk in roles of its own: on the actor's machine, held to what the actor is held to. Only
//! these roles reach each other: on the host in a network namespace that the cell has for itself, in a guest of vmio's
//! own at its loopback interface.

use std::net::Ipv4Addr;

use vmio_model::cell::{Actor, Side};

use super::Stager;
use crate::engine::measure::Impossible;
use crate::nets::Namespace;
use crate::nodes::NodeId;
use crate::workloads::{At, End, Role, Stage, Wants};

impl Stager<'_, '_> {
    /// Gives the roles that serve an actor on a disk their ends, and the last one the way to them. Returns their
    /// network, where it is not the actor's own.
    pub(super) fn serve_beside(
        &self,
        actor: &Actor,
        roles: &'static [Role],
        stage: &mut Stage,
    ) -> anyhow::Result<Option<Namespace>> {
        let Some((last, serving)) = roles.split_last().filter(|(_, serving)| !serving.is_empty()) else {
            return Ok(None);
        };
        let needed = needs_network(&actor.side)?;
        let network = needed.then(|| Namespace::make(&*self.bed.local)).transpose()?;
        let enter = network.as_ref().map(Namespace::enter).unwrap_or_default();
        let own = End { enter: enter.clone(), ..self.end(actor)? };
        for role in serving {
            let at = match role.wants {
                Wants::Address => At::address(Ipv4Addr::LOCALHOST.into()),
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
