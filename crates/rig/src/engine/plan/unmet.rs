//! Cells that cannot run on this machine, and why.

use vmio_look::require::Requirement;
use vmio_model::cell::{Actor, Cell};
use vmio_model::result::Skipped;
use vmio_model::study::Study;
use vmio_node::Node;

use super::Wishes;
use crate::disks::places::Ground;
use crate::disks::targets;
use crate::settings::Fit;
use crate::{guests, settings, workloads};

/// Why it is gentle, and what to do.
const GENTLE: &str = "gentle is on because other guests run here or it was asked for (--no-gentle)";

/// Cells that cannot run here, with the first unmet requirement of the entries that they name.
pub(super) fn unmet(
    study: &Study,
    local: &dyn Node,
    gentle: bool,
    wishes: &Wishes,
    ground: Option<&Ground>,
) -> Vec<Skipped> {
    let why = |cell: &Cell| {
        let mut actors = cell.actors();
        let unfit = actors.find_map(|actor| why_not(actor, local, gentle, wishes, ground));
        unfit.or_else(|| unsettable(cell)).or_else(|| in_each_others_way(cell))
    };
    study.cells().into_iter().filter_map(|cell| Some(Skipped { reason: why(&cell)?, cell })).collect()
}

/// Why what a cell sets cannot be set there.
fn unsettable(cell: &Cell) -> Option<String> {
    cell.settings.keys().find_map(|name| {
        let Some(setting) = settings::find(name) else { return Some(format!("there is no setting {name}")) };
        let fits: Vec<Fit> = cell.actors().map(|actor| setting.fits(actor)).collect();
        let refused = fits.iter().find_map(|fit| if let Fit::Refused(why) = fit { Some(why) } else { None });
        // What one actor has nothing for is for the others; what none has anything for is a mistake.
        let nothing = || fits.iter().find_map(|fit| if let Fit::Nothing(why) = fit { Some(why) } else { None });
        let none = || if fits.contains(&Fit::Sets) { None } else { nothing() };
        refused.or_else(none).map(|why| format!("{name}: {why}"))
    })
}

/// Why actors cannot work on their targets at the same time: one would write over what the other reads.
fn in_each_others_way(cell: &Cell) -> Option<String> {
    let writes = |actor: &Actor| workloads::find(&actor.workload).is_some_and(|w| w.traits().writes());
    cell.actors().enumerate().find_map(|(i, actor)| {
        let target = actor.target()?;
        let other = cell.actors().take(i).find(|other| other.target() == Some(target))?;
        let clash = writes(actor) || writes(other);
        clash.then(|| format!("two actors work on the target {target} at once, and one of them writes to it"))
    })
}

fn why_not(actor: &Actor, local: &dyn Node, gentle: bool, wishes: &Wishes, ground: Option<&Ground>) -> Option<String> {
    let mut needs: Vec<&Requirement> = Vec::new();
    if let Some(guest) = guests::find(&actor.side.kind) {
        let shape = &actor.side.shape;
        if let Err(reason) = guest.fits(shape, local.reader()) {
            return Some(reason);
        }
        if gentle && !shape.pins.is_empty() {
            return Some(format!("a guest has no processors of its own choice while it is held to one core; {GENTLE}"));
        }
        needs.extend(guest.requirements());
    }
    if let (Some(target), Some(ground)) = (actor.target().and_then(targets::find), ground)
        && (wishes.device.is_none() || !target.takes_device())
    {
        if let Err(reason) = target.fits(ground) {
            return Some(reason);
        }
        match ground.pool() {
            Some(pool) => {
                needs.extend(pool.requirements());
                // What a hypervisor needs to open its volumes.
                if actor.attachment().is_some() {
                    needs.extend(targets::find(pool.target()).map_or(&[][..], |t| t.requirements()));
                }
            }
            None => needs.extend(target.requirements()),
        }
    }
    let workload = workloads::find(&actor.workload)?;
    needs.extend(workload.requirements());
    let missing = needs
        .iter()
        .find_map(|r| (r.check)(local.reader()).err().map(|found| format!("{}: {found}; {}", r.name, r.mend)));
    missing.or_else(|| guests::qemu::why_not(local, actor)).or_else(|| {
        let unfit = gentle.then(|| workload.can_be_gentle().err()).flatten()?;
        Some(format!("{unfit}; {GENTLE}"))
    })
}
