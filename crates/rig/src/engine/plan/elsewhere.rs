//! Studies and the other machines that are named for them, and why a cell cannot work there.

use vmio_model::cell::{Actor, Cell, Subject};
use vmio_model::failure::{Exit, Failure};
use vmio_model::study::Study;
use vmio_node::Node;

use super::PlanOptions;
use super::why_not::{WhyNot, missing};
use crate::disks::targets;
use crate::disks::targets::elsewhere::DEVICE;
use crate::engine::bed::net;
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
        (_, Some((peer, _))) if !any(&|actor| nets::is_over_wire(actor) || targets::of_peer(actor).is_some()) => (
            format!(
                "no cell of the study {} works over the network wire or on a disk that another machine serves, and {} \
                 is named for one",
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

/// Why no other machine serves the disk of an actor that has it from one.
pub(super) fn why_not_served(actor: &Actor, options: &PlanOptions) -> Option<WhyNot> {
    let needs = targets::of_peer(actor)?;
    let Some((peer, _)) = options.nodes.peer() else { return Some(WhyNot::NoServer) };
    let asked = || {
        let found = (needs.asked.check)(&*peer.node).err()?;
        Some(WhyNot::Requirement { name: needs.asked.name, found, fix: needs.asked.fix })
    };
    missing(needs.requirements, &*peer.node).or_else(asked).map(on_other_machine(&peer.address))
}

/// Why a guest cannot reach the machine that serves its disk: its hypervisor is in a network of vmio's own for what else
/// the study has it do.
pub(super) fn out_of_reach(actor: &Actor, study: &Study) -> Option<WhyNot> {
    targets::of_peer(actor)?;
    let is_linked = |target: &str| targets::find(target).is_some_and(|target| target.over_link());
    let in_own = |other: &Actor| net::has_card(other) || other.target().is_some_and(is_linked);
    let cells = study.cells();
    let mut others = cells.iter().flat_map(Cell::actors).filter(|other| other.side == actor.side);
    let target = actor.target().unwrap_or_default().to_owned();
    others.any(in_own).then(|| WhyNot::ServerOutOfReach { side: actor.side.to_string(), target })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use vmio_model::cell::{Aio, Attachment, Cache};
    use vmio_node::fake::{Fake, says};

    use super::*;
    use crate::engine::environment;

    fn guest(target: &str) -> Cell {
        let asked = Attachment::new("virtio-blk", Cache::None, Aio::Threads);
        Cell::on("qemu", target, Some(asked), "seq-read")
    }

    #[test]
    fn a_disk_is_served_by_the_machine_that_is_named_and_has_what_it_needs() {
        let told = |target: &str, peer: Option<Fake>| {
            let ends = ([192, 0, 2, 7].into(), [192, 0, 2, 1].into());
            let peer = peer.map(|node| environment::peer("ssh://b", Arc::new(node), ends, &[]));
            let options =
                PlanOptions { nodes: peer.map(crate::nodes::Nodes::from).unwrap_or_default(), ..Default::default() };
            why_not_served(&guest(target).lead, &options).map(|why| why.to_string()).unwrap_or_default()
        };
        assert_eq!(told("nbd", None), "", "a namespace serves that");
        assert!(told("nbd-wire", None).contains("--peer ssh://"));
        assert!(told("nbd-wire", Some(Fake::new("b"))).starts_with("on ssh://b: nbdkit: "));
        let able = |tls: &str| {
            let there = Fake::new("b").installed("nbdkit").installed("fio").installed("dd").file("/dev/shm", "");
            there.program("nbdkit", says(format!("tls={tls}\n")))
        };
        assert_eq!(told("nbd-wire", Some(able("yes"))), "");
        assert!(told("nbd-wire", Some(able("no"))).starts_with("on ssh://b: nbdkit with TLS: "));
    }

    #[test]
    fn a_guest_in_a_network_of_its_own_reaches_no_other_machine() {
        let study = |targets: &str, workload: &str| {
            let text = format!(
                "name = 's'\ntitle = 's'\nbaseline = 'none'\nguest = {{ vcpus = 1, memory_mib = 256 }}\n\
                 size = {{ target_mib = 1024 }}\n\
                 repeat = {{ min_pairs = 2, max_pairs = 2, min_boots = 1, half_width = 0.05, seconds = 0.5, \
                 max_minutes = 5.0, max_gib_written = 16.0 }}\n\
                 [[matrix]]\nsides = ['qemu']\nworkloads = ['{workload}']\n\
                 disks = {{ targets = [{targets}], drivers = ['virtio-blk'], caches = ['none'], aios = ['threads'] }}\n"
            );
            Study::parse("s.toml", &text, &crate::names()).unwrap()
        };
        let told = |target: &str, study: &Study| out_of_reach(&guest(target).lead, study).map(|why| why.to_string());
        let alone = study("'nbd-wire', 'preallocated'", "seq-read");
        let both = study("'nbd-wire', 'nbd'", "seq-read");
        assert_eq!((told("nbd-wire", &alone), told("nbd", &both)), (None, None));
        let said = told("nbd-wire", &both).unwrap();
        assert!(said.starts_with("qemu has a network of vmio's own") && said.contains("measure nbd-wire"), "{said}");
        // A part of the work is on another host.
        assert!(told("nbd-wire", &study("'nbd-wire'", "dfsio-hdfs-remote")).is_some());
    }
}
