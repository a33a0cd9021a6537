//! Studies and the other machines that are named for them, and why a cell cannot work there.

use vmio_model::cell::{Actor, Cell, Subject};
use vmio_model::failure::{Exit, Failure};
use vmio_model::study::Study;
use vmio_node::Node;

use super::PlanOptions;
use super::why_not::{WhyNot, missing};
use crate::disks::targets;
use crate::disks::targets::elsewhere::DEVICE;
use crate::{nets, workloads};

/// Another machine that is named for nothing is a mistake.
pub(super) fn refuse_idle(study: &Study, options: &PlanOptions) -> Result<(), Failure> {
    let cells = study.cells();
    let any = |is: &dyn Fn(&Actor) -> bool| cells.iter().flat_map(Cell::actors).any(is);
    let (what, help) = match (options.nodes.measured(), options.nodes.peer()) {
        (Some((afar, _)), _) if !any(&|actor| actor.side.is_afar()) => (
            format!("no cell of the study {} works on the side ssh, and {} is named for one", study.name, afar.address),
            "--on",
        ),
        (Some((_, own)), _) if own.device.is_some() && !any(&|actor| actor.target() == Some(DEVICE)) => (
            format!("no cell of the study {} works on the target {DEVICE}, and one is named for it", study.name),
            "--device",
        ),
        (_, Some((peer, _))) if !any(&nets::is_over_wire) => (
            format!(
                "no cell of the study {} works over the network wire, and {} is named for one",
                study.name, peer.address
            ),
            "--peer",
        ),
        _ => return Ok(()),
    };
    Err(Failure::new(Exit::Usage, what).help(format!("drop {help}, or use a study with such cells (docs/ssh.md)")))
}

/// Why the side `ssh` cannot work so.
pub(super) fn why_not(actor: &Actor, options: &PlanOptions) -> Option<WhyNot> {
    let Some((afar, own)) = options.nodes.measured() else { return Some(WhyNot::NoMachine) };
    let workload = workloads::find(&actor.workload)?;
    if actor.state().is_some() {
        return Some(WhyNot::StateOnOtherMachine);
    }
    match &actor.subject {
        Subject::Disk { target, .. } if target == DEVICE && own.device.is_none() => {
            return Some(WhyNot::DeviceOnOtherMachine);
        }
        Subject::Disk { target, .. } if targets::find(target).is_none_or(|t| t.elsewhere().is_none()) => {
            return Some(WhyNot::TargetOnOtherMachine { target: target.clone() });
        }
        Subject::Disk { .. } if workload.traits().disk.is_some_and(|disk| !disk.direct && disk.engine != "psync") => {
            return Some(WhyNot::PageCacheOfOtherMachine { workload: actor.workload.clone() });
        }
        Subject::Path { .. } => return Some(WhyNot::PathFromOtherMachine),
        Subject::Disk { .. } | Subject::Machine => {}
    }
    if !actor.side.shape.is_plain() {
        return Some(WhyNot::ShapeOfOtherMachine);
    }
    missing(workload.requirements(), &*afar.node).map(on_other_machine(&afar.address))
}

fn on_other_machine(address: &str) -> impl Fn(WhyNot) -> WhyNot {
    move |why| WhyNot::OnOtherMachine { address: address.to_owned(), why: Box::new(why) }
}

/// Why a path to another machine cannot be.
pub(super) fn why_not_wire(actor: &Actor, local: &dyn Node, options: &PlanOptions) -> Option<WhyNot> {
    let Some((peer, _)) = options.nodes.peer() else { return Some(WhyNot::NoPeer) };
    if !actor.side.is_native() {
        return Some(WhyNot::WireOfHostAlone);
    }
    let workload = workloads::find(&actor.workload)?;
    let (last, serve) = workload.roles().split_last()?;
    let there = serve.iter().flat_map(|role| role.requirements);
    missing(last.requirements, local).or_else(|| missing(there, &*peer.node).map(on_other_machine(&peer.address)))
}
