//! Studies and the other machines that are named for them.

use vmio_model::cell::{Actor, Cell};
use vmio_model::failure::{Exit, Failure};
use vmio_model::study::Study;

use super::Wishes;
use crate::disks::targets::elsewhere::DEVICE;
use crate::nets;

/// Whether anybody works on this host, who could be in the way of others here.
pub(super) fn uses_host(study: &Study) -> bool {
    study.cells().iter().flat_map(Cell::actors).any(|actor| !actor.side.is_afar())
}

/// Another machine that is named for nothing is a mistake.
pub(super) fn refuse_idle(study: &Study, wishes: &Wishes) -> Result<(), Failure> {
    let cells = study.cells();
    let any = |is: &dyn Fn(&Actor) -> bool| cells.iter().flat_map(Cell::actors).any(is);
    let (what, help) = match (wishes.nodes.measured(), wishes.nodes.peer()) {
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
