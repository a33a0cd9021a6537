//! Cells that cannot run on this machine, and why.

use vmio_look::require::Requirement;
use vmio_model::cell::{Actor, Cell, Subject};
use vmio_model::study::Study;
use vmio_node::Node;

use super::paths::{no_co_sender, two_cards_at_once, unreachable};
use super::why_not::{LeftOut, WhyNot, missing};
use super::{PlanOptions, elsewhere, states};
use crate::disks::places::PlaceBackend;
use crate::disks::targets::{self, CacheAt, Unfit, own_client};
use crate::engine::bed::net;
use crate::settings::Fit;
use crate::{guests, hadoop, image, nets, settings, workloads};

/// Why a disk that another host serves does not go with a workload of which a part is on another host.
const TWO_PATHS: &str = "it is reached over a link, and the workload has one of its own: take a local target";

/// Why a container has no servers of a workload on a disk.
const OPEN_NETWORK: &str = "others may reach a container's network, and the servers of this workload let everybody in: run \
                            it on the host or in a guest";

/// Cells that cannot run here, with the first unmet requirement of the entries that they name.
pub(super) fn unmet(
    study: &Study,
    local: &dyn Node,
    gentle: bool,
    options: &PlanOptions,
    backend: Option<&PlaceBackend>,
) -> Vec<LeftOut> {
    let why = |cell: &Cell| {
        let mut actors = cell.actors();
        let unfit = actors.find_map(|actor| {
            let why = why_not(actor, local, gentle, options, backend);
            why.or_else(|| too_much_asked(actor, study, backend))
        });
        unfit
            .or_else(|| unsettable(cell, local))
            .or_else(|| in_each_others_way(cell))
            .or_else(|| two_cards_at_once(cell))
    };
    study.cells().into_iter().filter_map(|cell| Some(LeftOut { why: why(&cell)?, cell })).collect()
}

/// Why what a cell sets cannot be set there.
fn unsettable(cell: &Cell, local: &dyn Node) -> Option<WhyNot> {
    if !cell.settings.is_empty() && cell.actors().any(|actor| actor.side.is_afar()) {
        return Some(WhyNot::SettingOnOtherMachine);
    }
    cell.settings.iter().find_map(|(name, value)| {
        let Some(setting) = settings::find(name) else { return Some(WhyNot::NoSetting(name.clone())) };
        if let Some(missing) = missing(setting.requirements(), local) {
            return Some(missing);
        }
        let fits: Vec<Fit> = cell.actors().map(|actor| setting.fits(value, actor)).collect();
        let refused = fits.iter().find_map(|fit| if let Fit::Refused(why) = fit { Some(why) } else { None });
        // What one actor has nothing for is for the others; what none has anything for is a mistake.
        let nothing = || fits.iter().find_map(|fit| if let Fit::Nothing(why) = fit { Some(why) } else { None });
        let none = || if fits.contains(&Fit::Sets) { None } else { nothing() };
        refused.or_else(none).map(|why| WhyNot::Setting { name: name.clone(), why: why.clone() })
    })
}

/// Why actors cannot work on their targets at the same time: one would write over what the other reads.
fn in_each_others_way(cell: &Cell) -> Option<WhyNot> {
    let writes = |actor: &Actor| workloads::find(&actor.workload).is_some_and(|w| w.traits().writes());
    cell.actors().enumerate().find_map(|(i, actor)| {
        let target = actor.target()?;
        let other = cell.actors().take(i).find(|other| other.target() == Some(target))?;
        let (clash, target) = (writes(actor) || writes(other), target.to_owned());
        if actor.state() != other.state() {
            return Some(WhyNot::OtherState { target });
        }
        if targets::find(&target).is_some_and(|found| found.flash_cache() == Some(CacheAt::Native)) {
            let why = "this host's own flash cache is set up for one actor of a cell: give the others another target";
            return Some(WhyNot::Target(Unfit::NotFor(why)));
        }
        clash.then_some(WhyNot::WritesToOthersTarget { target })
    })
}

fn why_not(
    actor: &Actor,
    local: &dyn Node,
    gentle: bool,
    options: &PlanOptions,
    backend: Option<&PlaceBackend>,
) -> Option<WhyNot> {
    if actor.side.is_afar() {
        return elsewhere::why_not(actor, options);
    }
    if let (Some((afar, _)), true) = (options.nodes.measured(), actor.subject.is_disk()) {
        return Some(WhyNot::TargetsElsewhere { address: afar.address.clone() });
    }
    let mut needs: Vec<&Requirement> = Vec::new();
    if let Some(guest) = guests::find(&actor.side.kind) {
        let shape = &actor.side.shape;
        if let Err(unfit) = guest.fits(shape, local.reader()) {
            return Some(WhyNot::Guest(unfit));
        }
        if gentle && !shape.pins.is_empty() {
            let unfit = "pinning is not possible while --gentle uses one core".to_owned();
            return Some(WhyNot::Gentle { unfit });
        }
        needs.extend(guest.requirements_of(shape));
    }
    if let (Some(target), Some(backend)) = (actor.target().and_then(targets::find), backend)
        && (options.device.is_none() || !target.takes_device())
    {
        if let Err(unfit) = target.fits(backend) {
            return Some(WhyNot::Target(unfit));
        }
        let (own, client) = match backend.pool() {
            Some(pool) => (pool.requirements(), pool.block_client()),
            None => (target.requirements(), target.block_client()),
        };
        needs.extend(own);
        let guest = guests::find(&actor.side.kind).filter(|_| actor.attachment().is_some());
        needs.extend(client.zip(guest).map_or(&[][..], |(client, guest)| guest.requirements_for(client)));
    }
    if let Subject::Path { network, peer, nic, co_sender } = &actor.subject {
        match unreachable(network, peer, nic.as_ref()) {
            Ok(network) => {
                needs.extend(network.requirements());
                if let Some(why) = co_sender.as_ref().and_then(|end| no_co_sender(network, peer, end, &actor.workload))
                {
                    return Some(why);
                }
                if !network.is_ours()
                    && let Some(why) = elsewhere::why_not_wire(actor, local, options)
                {
                    return Some(why);
                }
            }
            Err(why) => return Some(why),
        }
        let card = nic.as_ref().zip(guests::find(&actor.side.kind));
        if let Some(Err(why)) = card.map(|(nic, kind)| kind.fits_card(nic)) {
            return Some(WhyNot::Guest(why));
        }
        if nic.as_ref().is_some_and(|nic| nic.vhost) {
            needs.push(&nets::VHOST);
        }
    }
    needs.extend(own_client::of(actor).map_or(&[][..], |client| client.requirements));
    let workload = workloads::find(&actor.workload)?;
    let target = actor.target().and_then(targets::find);
    let only_read = target.and_then(|target| target.only_read()).filter(|_| workload.traits().writes());
    let no_guest = target.and_then(|target| target.native_alone()).filter(|_| !actor.side.is_native());
    let no_native = target.and_then(|target| target.guests_alone()).filter(|_| actor.side.shares_kernel());
    if let Some(target) = target.filter(|_| targets::by_host_kernel(actor)) {
        needs.extend(target.native_requirements());
    }
    let no_driver = target.and_then(|target| target.no_hypervisor()).filter(|_| actor.attachment().is_some());
    let over_link = target.is_some_and(|target| target.over_link());
    let two_paths = workload.other_host().filter(|_| over_link).map(|_| TWO_PATHS);
    let is_container = actor.side.shares_kernel() && !actor.side.is_native();
    let serves = actor.subject.is_disk() && workload.roles().len() > 1;
    let open_network = (is_container && serves).then_some(OPEN_NETWORK);
    if let Some(why) = only_read.or(no_guest).or(no_native).or(no_driver).or(two_paths).or(open_network) {
        return Some(WhyNot::Target(Unfit::NotFor(why)));
    }
    let own = options.device.is_some() && target.is_some_and(|target| target.takes_device());
    if let Some(why) = states::why_not(actor, gentle, backend.and_then(PlaceBackend::pool).filter(|_| !own)) {
        return Some(why);
    }
    if let Some(why) = elsewhere::why_not_served(actor, options) {
        return Some(why);
    }
    if actor.is_warm() {
        needs.push(&workloads::disk::DD);
    }
    needs.extend(workload.roles().iter().flat_map(|role| role.requirements));
    // What is to be fetched is not there yet.
    needs.extend(workload.fetched().map(|jars| match (jars.requirement(), &options.maven) {
        (need, Some(_)) if (need.check)(local.reader()).is_err() => &hadoop::FETCHER,
        (need, _) => need,
    }));
    // Without its agent no guest of vmio's own starts; one for another processor has its own in `requirements_of`.
    if !actor.side.shares_kernel() && actor.side.shape.arch.is_own() {
        needs.push(&image::OWN_AGENT);
    }
    missing(needs, local).or_else(|| guests::find(&actor.side.kind)?.unfit(local, actor).map(WhyNot::Guest)).or_else(
        || {
            let unfit = gentle.then(|| workload.can_be_gentle().err()).flatten()?;
            Some(WhyNot::Gentle { unfit: unfit.to_string() })
        },
    )
}

/// Why an actor cannot work as the study asks, whatever this machine has.
fn too_much_asked(actor: &Actor, study: &Study, backend: Option<&PlaceBackend>) -> Option<WhyNot> {
    let (workload, tick) = (&actor.workload, workloads::find(&actor.workload)?.tick());
    // The study's own time is rounded up.
    if let Some(time) = actor.duration.filter(|time| !time.0.is_multiple_of(tick.0)) {
        return Some(WhyNot::Tick { workload: workload.clone(), tick, time });
    }
    if let Some(why) = elsewhere::out_of_reach(actor, study) {
        return Some(why);
    }
    let vcpus = study.guest.of(&actor.side).vcpus;
    if let Some(queues) = actor.nic().and_then(|nic| nic.queues).filter(|queues| *queues > vcpus) {
        return Some(WhyNot::Queues { vcpus, queues });
    }
    if !net::has_card(actor) {
        return None;
    }
    let on_ceph = backend.and_then(PlaceBackend::pool).is_some_and(|pool| pool.target() == "rbd");
    on_ceph.then(|| WhyNot::NetworkOnCeph { hypervisor: actor.side.hypervisor().unwrap_or_default().to_owned() })
}

#[cfg(test)]
#[path = "unmet_tests.rs"]
mod tests;
