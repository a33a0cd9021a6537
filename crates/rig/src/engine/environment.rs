//! Where a run is made: what is known of the host before anything runs on it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use vmio_model::cell::{Actor, Cell};
use vmio_model::result::{self, Environment};
use vmio_model::versions::unlike;
use vmio_node::linux::system;
use vmio_node::{Local, Node};

use super::plan::{Planned, hypervisors};
use crate::image::{self, Image};
use crate::nets;
use crate::nodes::{Is, Machine, Measured, Nodes, Peer};
use crate::workloads::{self, Role, Workload};

/// Seconds since the epoch.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// The CPU model of a machine.
pub fn cpu(local: &dyn Node) -> String {
    system::cpu_model(&system::cpuinfo(local.reader())).unwrap_or("unknown").to_owned()
}

/// The memory of a machine in bytes; 0 where it cannot be read.
pub fn memory_bytes(local: &dyn Node) -> u64 {
    system::memory_bytes(local.reader(), "MemTotal").unwrap_or(0)
}

/// What a machine that is measured as it is says of itself.
pub fn of_measured(machine: &Machine, own: &Measured) -> result::RemoteHostInfo {
    let reader = machine.node.reader();
    result::RemoteHostInfo {
        address: machine.address.clone(),
        dir: own.dir.display().to_string(),
        device: own.device.as_ref().map(|device| format!("{}, {}", device.named(), device.identity.describe())),
        kernel: system::release(reader).unwrap_or_default(),
        cpu: cpu(&*machine.node),
        cpus: system::cpus_online(&system::cpuinfo(reader)) as u32,
        memory_bytes: memory_bytes(&*machine.node),
        settings: own.scan.settings.clone(),
        findings: own.scan.findings.clone(),
    }
}

/// The peer of paths to another machine, which is asked for what these cells need to know of it. Only looks.
pub fn peer(address: &str, node: Arc<dyn Node>, ends: (IpAddr, IpAddr), cells: &[Cell]) -> Machine {
    let theirs = programs_of_peer(cells, &*node);
    let told = unlike(&programs(cells, None, &Local::new(), &Nodes::default()), &theirs);
    let own = Peer { programs: theirs, told, ..Peer::of(&*node, ends) };
    Machine { address: address.to_owned(), node, is: Is::Peer(own) }
}

/// Version lines of the programs that cells run: on either side of this host, whose guests' image has the host's own
/// files, and on the other machine that is measured, which has programs of its own. Where both run one, both are told.
pub fn programs(cells: &[Cell], image: Option<&Image>, local: &dyn Node, nodes: &Nodes) -> BTreeMap<String, String> {
    let version = |name: &str| match image.and_then(|image| image.programs.get(name)) {
        Some(version) => Some(version.clone()),
        None => image::version(local, name),
    };
    let mut all = versions(cells, |actor| !actor.side.is_afar(), |workload| workload.roles(), version);
    let Some((afar, _)) = nodes.measured() else { return all };
    let there =
        versions(cells, |a| a.side.is_afar(), |workload| workload.roles(), |name| image::version(&*afar.node, name));
    for (name, theirs) in there {
        match all.get_mut(&name) {
            Some(ours) if *ours != theirs => *ours += &format!("; on {}: {theirs}", afar.address),
            Some(_) => {}
            None => _ = all.insert(name, theirs),
        }
    }
    all
}

/// Version lines of the programs that cells run at the peer of the network `wire`.
pub fn programs_of_peer(cells: &[Cell], node: &dyn Node) -> BTreeMap<String, String> {
    let serve: Roles = |workload| workload.roles().split_last().map_or(&[][..], |(_, serve)| serve);
    versions(cells, nets::is_over_wire, serve, |name| image::version(node, name))
}

/// Which of its roles count.
type Roles = fn(&dyn Workload) -> &'static [Role];

/// Version lines of what actors run in roles.
fn versions(
    cells: &[Cell],
    of: impl Fn(&Actor) -> bool,
    roles: Roles,
    version: impl Fn(&str) -> Option<String>,
) -> BTreeMap<String, String> {
    let used = cells.iter().flat_map(Cell::actors).filter(|a| of(a)).filter_map(|a| workloads::find(&a.workload));
    let programs =
        used.flat_map(|w| roles(&*w).iter().flat_map(|role| role.programs).chain(w.host_programs()).copied());
    let names: BTreeSet<&str> = programs.collect();
    names.into_iter().filter_map(|name| Some((name.to_owned(), version(name)?))).collect()
}

/// Version line of fio, whether cells run it or not; `None` where there is none.
pub fn fio(image: Option<&Image>, local: &dyn Node) -> Option<String> {
    match image {
        Some(image) => Some(image.fio_version.clone()).filter(|version| !version.is_empty()),
        None => image::version(local, "fio"),
    }
}

/// The environment as far as it is known before the first guest.
pub fn of(planned: &Planned, local: &dyn Node) -> Environment {
    let arch = planned.study.arches().into_iter().next().unwrap_or_default();
    Environment {
        vmio: env!("CARGO_PKG_VERSION").into(),
        kernel: system::release(local.reader()).unwrap_or_default(),
        guest_kernel: None,
        cpu: cpu(local),
        cpus: system::cpus_online(&system::cpuinfo(local.reader())) as u32,
        memory_bytes: memory_bytes(local),
        accel: None,
        accel_reason: String::new(),
        qemu: hypervisors(&planned.study).iter().find_map(|kind| kind.version(local, arch)),
        fio: None,
        programs: BTreeMap::new(),
        peer_programs: planned.nodes.peer().map(|(_, own)| own.programs.clone()).unwrap_or_default(),
        backing: planned.placed.as_ref().map(|p| p.backing.describe()).unwrap_or_default(),
        modelled: planned.placed.as_ref().and_then(|p| p.place.backend.modelled().cloned()),
        vcpus: planned.study.guest.vcpus,
        memory_mib: planned.study.guest.memory_mib,
        native_limits: String::new(),
        qemu_limits: None,
        guest_kernel_file: planned.kernel.as_ref().map(|(kernel, _)| kernel.file.display().to_string()),
        other_guests: planned.others.guests.len() as u32,
        cap_ratio: None,
        afar: planned.nodes.measured().map(|(machine, own)| of_measured(machine, own)),
        peer: planned.nodes.peer().map(|(machine, _)| machine.to_string()),
        node: std::env::var(crate::lab::NODE_VARIABLE).ok().filter(|n| !n.is_empty()),
        written_beside_bytes: 0,
        sample_interrupt_seconds: None,
        meters_planned: Vec::new(),
        meters: Vec::new(),
        at_rest: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use vmio_model::cell::{Side, Subject};
    use vmio_node::fake::{Fake, says};

    use super::*;
    use crate::nodes::GuestScan;

    #[test]
    fn each_machine_is_asked_for_what_it_runs() {
        let host = |name: &str, version: &'static str| {
            Fake::new(name).command(move |cmd| (cmd.args == ["--version"]).then(|| says(version)))
        };
        let (here, there, peer) = (host("here", "1.0\n"), host("there", "2.0\n"), host("peer", "3.0\n"));
        let own = Measured { dir: "/srv".into(), device: None, force: false, scan: GuestScan::default() };
        let there = Machine { address: "ssh://there".into(), node: Arc::new(there), is: Is::Measured(own) };
        let nodes = Nodes::from(there);
        let path = Subject::path("wire", "peer", None);
        let on = |side: &str, workload: &str| Cell::of(Side::of(side), Subject::Machine, workload);
        let wire = Cell::of(Side::native(), path, "iperf3-tcp");
        let told = |cells: &[Cell]| {
            let all = programs(cells, None, &here, &nodes);
            all.into_iter().map(|(name, version)| format!("{name} {version}")).collect::<Vec<_>>()
        };
        let away = on("ssh", "openssl-aes-256-cbc");
        assert_eq!(told(&[away.clone(), wire.clone()]), ["iperf3 1.0", "openssl 2.0"]);
        assert_eq!(told(&[away, on("native", "openssl-aes-256-cbc")]), ["openssl 1.0; on ssh://there: 2.0"]);
        // A server that no guest has, too.
        let store = Cell::of(Side::native(), Subject::path("wire", "peer", None), "s3-get");
        assert_eq!(programs_of_peer(&[store], &peer)["versitygw"], "3.0");
        let own = Cell { lead: vmio_model::cell::Actor { side: Side::of("ssh"), ..wire.lead.clone() }, ..wire.clone() };
        for cells in [[wire.clone(), on("native", "zstd-3")], [own, wire]] {
            let there = programs_of_peer(&cells, &peer);
            assert_eq!(there, BTreeMap::from([("iperf3".to_owned(), "3.0".to_owned())]));
        }
    }
}
