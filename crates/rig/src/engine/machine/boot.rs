//! Guests: starting those that a round needs, reading back how their disks are set up, giving a
//! disk another image while its guest runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use vmio_model::cell::{Actor, Attachment, Cell, Side};
use vmio_model::read_at::ReadAt;
use vmio_node::linux::process::Status;

use super::{Machine, net};
use crate::disks::targets::{self, State};
use crate::disks::{Storage, drivers};
use crate::guests::{self, DiskSpec, Guest, GuestSpec, LaunchCtx};
use crate::limits::OOM_SCORE_ADJ;
use crate::probes::Qemu;

/// How long a guest may take to boot: ten times what emulation takes here.
const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// A way to see a target: by a device, or as it is.
pub(super) type Way = (String, Option<Attachment>);

/// What a container is held to, and the processors that it may use as its own kernel says: keys of what is read back.
const HELD: &str = "held";
const PROCESSORS: &str = "processors";

/// The processors that the processes of a guest may use.
fn processors(guest: &dyn Guest) -> anyhow::Result<Option<String>> {
    let cpus = Status::of(guest.node().reader(), "self")?.cpus();
    Ok(cpus.map(|cpus| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")))
}

/// A guest and which of its disks serves which target and attachment.
pub(super) struct Running {
    pub(super) guest: Box<dyn Guest>,
    pub(super) disks: BTreeMap<Way, String>,
    /// The raw files and devices that its hypervisor opens for them. Images are exchanged while it runs.
    pub(super) raw: BTreeMap<Way, PathBuf>,
    /// Why it has no disk for these.
    pub(super) without: BTreeMap<Way, drivers::Unfit>,
    pub(super) qemu: Option<Qemu>,
    /// Its network devices that lie on a network with others of its own.
    pub(super) rivals: Vec<net::Rival>,
}

/// The guests that cells need, each with the disks that it has in any of them: a round boots one of each. One that
/// another one sends to is among them.
pub(super) fn sides(cells: &[Cell]) -> BTreeMap<Side, Vec<Way>> {
    let mut all: BTreeMap<Side, Vec<Way>> = BTreeMap::new();
    for actor in cells.iter().flat_map(Cell::with_neighbours).filter(|a| !a.side.is_native()) {
        let ways = all.entry(actor.side.clone()).or_default();
        if let Some(target) = actor.target() {
            let way = (target.to_owned(), actor.attachment().cloned());
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
    }
    all
}

impl Machine<'_> {
    /// Ends the guests that run, if any, and boots those that the study needs.
    pub(super) fn boot_guests(&mut self, boot: u32) -> anyhow::Result<()> {
        for (_, running) in std::mem::take(&mut self.guests) {
            // One that died is no reason to stop; what it left is in the journal.
            if let Err(e) = running.guest.stop() {
                (self.progress)(&format!("the guest did not shut down cleanly: {e}"));
            }
        }
        for (at, (side, ways)) in self.sides.clone().into_iter().enumerate() {
            let running = match self.launch(at, &side, &ways, boot) {
                // Under emulation on a busy host a boot may hang by chance, and a run is more than one boot.
                Err(error) if self.may_try_again(&error) => {
                    let what = error.to_string();
                    let first = what.lines().next().unwrap_or_default();
                    (self.progress)(&format!("{first}; it is booted once more"));
                    self.launch(at, &side, &ways, boot)?
                }
                launched => launched?,
            };
            self.guests.insert(side, running);
        }
        Ok(())
    }

    /// Whether a guest that did not come up may do so another time: not where its storage keeps it down, nor while
    /// the run is being ended.
    fn may_try_again(&self, error: &anyhow::Error) -> bool {
        let down = matches!(error.downcast_ref(), Some(guests::Error::Down { .. }));
        let healthy = || self.health.as_ref().is_none_or(|health| health.look().is_ok());
        down && !self.storage_failed() && !self.journal.is_closed() && healthy()
    }

    fn launch(&mut self, at: usize, side: &Side, ways: &[Way], boot: u32) -> anyhow::Result<Running> {
        let kind = &side.kind;
        let entry = guests::find(kind).with_context(|| format!("no guest {kind}"))?;
        // Unique in the run, and short: it is part of the names of sockets.
        let name = if at == 0 { format!("{kind}-{boot}") } else { format!("{kind}-{boot}-{at}") };
        let has = self.study.guest.of(side);
        let pins = side.shape.pins.clone();
        let arch = side.shape.arch;
        let mut spec = GuestSpec { arch, pins, ..GuestSpec::of(name, has.vcpus, has.memory_mib) };
        let (mut disks, mut without, mut raw) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut held = BTreeMap::new();
        for (target, attachment) in ways {
            spec.modules.extend(targets::find(target).iter().flat_map(|target| target.guest_modules()));
            let id = format!("d{}", spec.disks.len());
            let Some(attachment) = attachment else {
                let native =
                    self.targets.get(target).with_context(|| format!("target {target} is not there"))?.native();
                let storage = Storage::File(native.to_owned());
                spec.disks.push(DiskSpec { id: id.clone(), storage, attachment: None });
                disks.insert((target.clone(), None), id);
                continue;
            };
            let asked = attachment.clone();
            // A disk's first image is written out here.
            let (storage, servers) = self.on_target(target, move |t| {
                let storage = t.intact().and_then(|()| t.attach(&asked));
                (storage, t.servers(&asked))
            })?;
            let storage = storage?;
            // One disk that QEMU would refuse costs its own cells, not the guest.
            if let Some(Err(why)) = drivers::find(&attachment.driver).map(|d| d.fits_storage(attachment, &storage)) {
                without.insert((target.clone(), Some(attachment.clone())), why);
                continue;
            }
            // What serves a disk in QEMU's place is held like QEMU.
            if let Some(limits) = &self.qemu_limits {
                for server in servers {
                    for procs in limits.procs_files() {
                        self.local.write(&procs, server.to_string().as_bytes(), None)?;
                    }
                }
            }
            if let Storage::File(path) | Storage::BlockDevice(path) = &storage {
                raw.insert((target.clone(), Some(attachment.clone())), path.clone());
            }
            spec.disks.push(DiskSpec { id: id.clone(), storage, attachment: Some(attachment.clone()) });
            disks.insert((target.clone(), Some(attachment.clone())), id);
        }
        let nics = net::of_guest(&self.paths, side);
        spec.nics = nics.iter().map(|nic| nic.spec.clone()).collect();
        let (cgroup_procs, enter) = match side.shares_kernel() {
            true if side.is_afar() => (Vec::new(), Vec::new()),
            true => {
                let limits = self.natives.get(side).with_context(|| format!("nothing was prepared for {side}"))?;
                let limits = limits.as_ref().map_err(|why| anyhow::anyhow!("{side} has no control group: {why}"))?;
                held.insert(HELD.to_owned(), limits.describe().to_owned());
                (limits.procs_files(), net::of_container(&self.paths, side))
            }
            false => {
                let procs = self.qemu_limits.as_ref().map(|l| l.procs_files().to_vec()).unwrap_or_default();
                (procs, if spec.nics.is_empty() { Vec::new() } else { self.host_end() })
            }
        };
        let ctx = LaunchCtx {
            node: self.local.clone(),
            journal: self.journal.clone(),
            image: self.image.as_ref(),
            run_dir: &self.run_dir,
            state_dir: &self.state_dir,
            accel: None,
            afar: self.afar.as_ref().map(|afar| afar.node.clone()),
            boot_limit: BOOT_LIMIT,
            oom_score_adj: OOM_SCORE_ADJ,
            cgroup_procs,
            progress: self.progress,
            enter,
        };
        let guest = entry.launch(&ctx, &spec)?;
        // What the guest said until then tells why its network is not there.
        let addressed = net::address(&*guest, &spec.name, &nics, self.local.reader())
            .map_err(|e| guest.give_up(&format!("{e:#}")))?;
        for (at, found) in addressed.set_up {
            self.store.add_effective(self.run, &at, &found)?;
        }
        if guest.processes().is_some() {
            held.extend(processors(&*guest)?.map(|cpus| (PROCESSORS.to_owned(), cpus)));
            self.store.add_effective(self.run, &ReadAt::side(side), &held)?;
        }
        let effective = guest.effective()?;
        for ((target, attachment), id) in &disks {
            let Some(attachment) = attachment else {
                let found =
                    super::prepare::read_ahead(guest.node().reader(), &guest.disk_path(id)?).into_iter().collect();
                self.store.add_effective(self.run, &ReadAt::disk(target, side, None), &found)?;
                continue;
            };
            let mut found = effective.get(id).cloned().unwrap_or_default();
            if let Some(driver) = drivers::find(&attachment.driver) {
                driver
                    .readback(attachment, &found)
                    .map_err(|e| anyhow::anyhow!("QEMU did not set up {} as asked: {e}", attachment.label()))?;
            }
            found.extend(super::prepare::read_ahead(guest.node().reader(), &guest.disk_path(id)?));
            found.extend(self.targets.get(target).map(|t| t.attached(attachment)).unwrap_or_default());
            self.store.add_effective(self.run, &ReadAt::disk(target, side, Some(attachment)), &found)?;
        }
        if let Some(accelerator) = guest.accelerator() {
            self.environment.accel = Some(accelerator.accel);
            self.environment.accel_reason = accelerator.reason.clone();
        }
        if !side.shares_kernel() {
            self.environment.guest_kernel = self.image.as_ref().map(|i| i.kernel_release.clone());
        }
        self.store.set_environment(self.run, &self.environment)?;
        let qemu = guest.hypervisor().map(|h| Qemu::of(h, self.local.reader())).transpose()?;
        Ok(Running { guest, disks, raw, without, qemu, rivals: addressed.rivals })
    }

    /// Gives a guest other storage where the state that an actor needs cannot be had in place.
    /// Returns the bytes that were written for it.
    pub(super) fn exchange(&mut self, actor: &Actor, state: State) -> anyhow::Result<u64> {
        let Some((target, attachment)) = actor.target().zip(actor.attachment()) else { return Ok(0) };
        let way = (target.to_owned(), Some(attachment.clone()));
        // Without a guest or a disk the cell says so itself.
        if !self.guests.get(&actor.side).is_some_and(|running| running.disks.contains_key(&way)) {
            return Ok(0);
        }
        let asked = attachment.clone();
        let next = self.on_target(target, move |t| t.exchange(&asked, state))??;
        let (Some(next), Some(running)) = (next, self.guests.get(&actor.side)) else { return Ok(0) };
        running
            .guest
            .exchange(&running.disks[&way], &next.storage)
            .with_context(|| format!("cannot replace the image of {}", actor.key()))?;
        let asked = attachment.clone();
        self.on_target(target, move |t| t.exchanged(&asked))??;
        Ok(next.wrote_bytes)
    }
}

#[cfg(test)]
mod tests {
    use vmio_model::cell::{Aio, Cache, Nic, Shape, Subject};

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
            let path = Subject::Path { network: "shared".into(), peer: peer.into(), nic: Some(nic) };
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
        let booted: Vec<(String, usize)> = sides.iter().map(|(side, ways)| (side.to_string(), ways.len())).collect();
        let wanted = [("other", 1), ("qemu", 2), ("qemu#2", 1), ("qemu:vcpus=2", 0)];
        assert_eq!(booted, wanted.map(|(side, ways)| (side.to_owned(), ways)));
    }
}
