//! The guests that the cells of a run need, and what their hypervisors are held to.

use std::collections::BTreeMap;

use vmio_model::cell::{Attachment, Cell, Side};
use vmio_model::study::{MIB, Study};
use vmio_node::Node;

use super::Bed;
use crate::engine::environment;
use crate::guests::{self, GuestKind};
use crate::limits::{self, Limits, Share};

/// A disk of a guest: its target, and how it is attached; `None` where a container has the target itself.
pub type DiskKey = (String, Option<Attachment>);

/// The guests that cells need, each with the disks that it has in any of them: a round boots one of each. One that
/// another one sends to is among them.
pub fn sides(cells: &[Cell]) -> BTreeMap<Side, Vec<DiskKey>> {
    let mut all: BTreeMap<Side, Vec<DiskKey>> = BTreeMap::new();
    for actor in cells.iter().flat_map(Cell::with_neighbours).filter(|a| !a.side.is_native()) {
        let keys = all.entry(actor.side.clone()).or_default();
        if let Some(target) = actor.target() {
            let key = (target.to_owned(), actor.attachment().cloned());
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
    all
}

/// Cores and memory that the hypervisors of a study's guests have: all that vmio may use here, as a guest of the user's
/// would have it; under `--gentle` one core, and little memory beside that of the guests that run at the same time.
pub fn hypervisor_share(study: &Study, gentle: bool, local: &dyn Node) -> (u32, u64) {
    let memory = |side: &Side| {
        let own_mib = guests::find(&side.kind).map_or(0, GuestKind::own_mib);
        u64::from(study.guest.of(side).memory_mib) + u64::from(own_mib)
    };
    if gentle {
        (1, sides(&study.cells()).keys().filter(|side| !side.shares_kernel()).map(memory).sum::<u64>() * MIB)
    } else {
        (limits::usable_cpus(local.reader()).unwrap_or(1), environment::memory_bytes(local))
    }
}

impl Bed<'_> {
    /// Caps each workload from now on at this share of what a short native probe of it reaches, and hypervisors at one
    /// core: the other guests are spared.
    pub fn cap_to_share(&mut self, share: f64) -> anyhow::Result<()> {
        self.hold_hypervisors(hypervisor_share(self.study, true, &*self.local));
        self.record.environment.cap_ratio = Some(share);
        self.record.keep()
    }

    /// Holds what serves a disk in a hypervisor's place like the hypervisor.
    pub fn hold_servers(&self, servers: &[u32]) -> anyhow::Result<()> {
        let Some(limits) = &self.hypervisors else { return Ok(()) };
        for server in servers {
            for procs in limits.procs_files() {
                self.local.write(&procs, server.to_string().as_bytes(), None)?;
            }
        }
        Ok(())
    }

    /// Puts hypervisors into a control group of their own. Unless the run is gentle it has all of the host:
    /// a guest of the user's would have it too.
    pub fn hold_hypervisors(&mut self, (cores, memory_bytes): (u32, u64)) {
        let Some(Side { kind, .. }) = self.sides.keys().find(|side| !side.shares_kernel()) else { return };
        if let Some(old) = self.hypervisors.take() {
            let _ = old.remove(&self.journal);
        }
        let name = format!("vmio-{}-{kind}", self.journal.cookie());
        match Limits::create(&*self.local, &self.journal, &name, &Share::of(cores, memory_bytes)) {
            Ok(limits) => {
                self.record.environment.qemu_limits = Some(limits.describe().to_owned());
                self.hypervisors = Some(limits);
            }
            Err(why) => {
                self.record.environment.qemu_limits = Some(format!("not held: {why}"));
                let hypervisor = guests::find(kind).map_or(kind.as_str(), |kind| kind.hypervisor());
                (self.progress)(&format!("{hypervisor} has no control group of its own: {why}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::cell::{Actor, Aio, Cache, Nic, Shape, Subject};
    use vmio_model::study::{Names, SubjectKind, WorkloadName};
    use vmio_node::fake::Fake;

    use super::*;

    #[test]
    fn a_guest_is_booted_once_a_round_whatever_its_cells() {
        let on = |kind: &str, target: &str, workload: &str| {
            Cell::on(kind, target, Some(Attachment::new("virtio-blk", Cache::None, Aio::Native)), workload)
        };
        let large = Side { shape: Shape { vcpus: Some(2), ..Shape::default() }, ..Side::of("qemu") };
        let second = Side { nth: 1, ..Side::of("qemu") };
        let mut two = on("qemu", "sparse", "seq-read");
        two.beside.push(Actor { side: second.clone(), ..on("qemu", "device", "seq-read").lead });
        let sends = |peer: &str| {
            let nic = Nic::new("virtio-net");
            let path = Subject::path("shared", peer, Some(nic));
            let cell = Cell::of(Side { nth: 1, ..Side::of("qemu") }, path, "iperf3-tcp");
            sides(&[cell]).keys().map(Side::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            (sends("host"), sends("neighbour")),
            (vec!["qemu#2".into()], vec!["qemu#2".into(), "qemu#3".into()])
        );
        let cells = [
            on("qemu", "sparse", "seq-read"),
            on("qemu", "sparse", "seq-write"),
            on("other", "sparse", "seq-read"),
            on("qemu", "device", "seq-read"),
            on("native", "device", "seq-read").natively(),
            Cell::of(large.clone(), Subject::Machine, "openssl"),
            two,
        ];
        let sides = sides(&cells);
        let booted: Vec<(String, usize)> = sides.iter().map(|(side, keys)| (side.to_string(), keys.len())).collect();
        let wanted = [("other", 1), ("qemu", 2), ("qemu#2", 1), ("qemu:vcpus=2", 0)];
        assert_eq!(booted, wanted.map(|(side, keys)| (side.to_owned(), keys)));
    }

    #[test]
    fn under_gentle_qemu_has_memory_for_all_guests_of_a_round() {
        let text = "name = 'x'\ntitle = 'x'\nguest = { vcpus = 1, memory_mib = 256 }\n\
                    repeat = { min_pairs = 2, max_pairs = 2, min_boots = 1, half_width = 0.05, seconds = 1.0, \
                    max_minutes = 1.0 }\n[[matrix]]\nsides = ['qemu']\nshapes = [{}, { memory_mib = 1024 }]\n\
                    machine = true\nworkloads = ['a']\n\
                    [[cell]]\nactors = [{ side = 'qemu', machine = true, workload = 'a' }, \
                    { side = 'qemu', nth = 2, machine = true, workload = 'a' }]\n";
        let workload = WorkloadName { name: "a".into(), works_on: SubjectKind::Machine };
        let guests = ["native", "qemu"].map(str::to_owned).into();
        let study = Study::parse("x.toml", text, &Names { guests, workloads: vec![workload], ..Names::default() });
        let (study, node) = (study.unwrap(), Fake::new("fake").file("/proc/meminfo", "MemTotal: 8388608 kB\n"));
        assert_eq!(hypervisor_share(&study, true, &node), (1, (256 + 1024 + 256 + 3 * 512) * MIB));
        assert_eq!(hypervisor_share(&study, false, &node), (1, 8 << 30));
    }
}
