//! Guests: starting those that a round needs, reading back how their disks are set up.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use vmio_model::cell::{Actor, Aio, Attachment, Cache, Cell, Side, State};
use vmio_model::read_at::ReadAt;
use vmio_node::linux::block;
use vmio_node::linux::process::Status;

use super::Runner;
use crate::disks::targets::own_client::{self, OwnClient};
use crate::disks::{Storage, targets};
use crate::engine::bed::prepare::read_ahead;
use crate::engine::bed::sides::DiskKey;
use crate::engine::bed::{Bed, net};
use crate::engine::stage::Running;
use crate::guests::{self, DiskSpec, Guest, GuestKind, GuestSpec, LaunchCtx, Unfit};
use crate::limits::{Limits, OOM_SCORE_ADJ};
use crate::nodes::{Machine, NodeId};
use crate::settings::memory;

/// How long a guest may take to boot: ten times what emulation takes here.
const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// What a container is held to, and the processors that it may use as its own kernel says: keys of what is read back.
const HELD: &str = "held";
const PROCESSORS: &str = "processors";

/// The processors that the processes of a guest may use.
fn processors(guest: &dyn Guest) -> anyhow::Result<Option<String>> {
    let cpus = Status::of(guest.node().reader(), "self")?.cpus();
    Ok(cpus.map(|cpus| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")))
}

impl Runner<'_> {
    /// Ends the guests that run, if any, and boots those that the study needs.
    pub fn boot_guests(&mut self, boot: u32) -> anyhow::Result<()> {
        self.end_guests();
        self.measure_rest()?;
        for (at, (side, keys)) in self.bed.sides.clone().into_iter().enumerate() {
            let kind = guests::find(&side.kind).with_context(|| format!("no guest {}", side.kind))?;
            let running = match launch(&mut self.bed, kind, at, &side, &keys, boot) {
                // Under emulation on a busy host a boot may hang by chance, and a run is more than one boot.
                Err(error) if self.may_try_again(&error) => {
                    let what = error.to_string();
                    let first = what.lines().next().unwrap_or_default();
                    (self.bed.progress)(&format!("{first}; it is booted once more"));
                    launch(&mut self.bed, kind, at, &side, &keys, boot)?
                }
                launched => launched?,
            };
            self.enter(side, running);
        }
        Ok(())
    }

    /// Ends the guests that run, if any.
    pub fn end_guests(&mut self) {
        for (side, running) in std::mem::take(&mut self.guests) {
            self.bed.nodes.remove(&NodeId::Guest(side));
            // One that died is no reason to stop; what it left is in the journal.
            if let Err(e) = running.guest.stop() {
                (self.bed.progress)(&format!("the guest did not shut down cleanly: {e}"));
            }
        }
    }

    /// A guest that has booted is one of the run's machines.
    pub fn enter(&mut self, side: Side, running: Running) {
        // Another machine is one already.
        if !NodeId::of(&side).is_elsewhere() {
            self.bed.nodes.add(Machine::guest(&side, running.guest.node()));
        }
        self.guests.insert(side, running);
    }

    /// Whether a guest that did not come up may do so another time: not where its storage keeps it down, nor while
    /// the run is being ended.
    fn may_try_again(&self, error: &anyhow::Error) -> bool {
        let down = matches!(error.downcast_ref(), Some(guests::Error::Down { .. }));
        let healthy = || self.bed.targets.health.as_ref().is_none_or(|health| health.look().is_ok());
        down && !self.bed.storage_failed() && !self.bed.journal.is_closed() && healthy()
    }
}

/// Launches a guest of this kind, and sees that it is as it was asked for.
pub fn launch(
    bed: &mut Bed<'_>,
    entry: &dyn GuestKind,
    at: usize,
    side: &Side,
    keys: &[DiskKey],
    boot: u32,
) -> anyhow::Result<Running> {
    let kind = &side.kind;
    // Unique in the run, and short: it is part of the names of sockets.
    let name = if at == 0 { format!("{kind}-{boot}") } else { format!("{kind}-{boot}-{at}") };
    let has = bed.study.guest.of(side);
    let pins = side.shape.pins.clone();
    let arch = side.shape.arch;
    let mut spec = GuestSpec { arch, pins, ..GuestSpec::of(name, has.vcpus, has.memory_mib) };
    let (mut disks, mut without, mut raw) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let (mut caches, mut held, mut clients) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    // What is warm in the guest is held open there by a loop device.
    let is_warm = |actor: &Actor| actor.side == *side && actor.state() == Some(State::WarmGuest);
    spec.modules.extend(bed.study.cells().iter().flat_map(Cell::actors).any(is_warm).then_some("loop"));
    let is_sized = |cell: &Cell| memory::is_set_by(cell) && cell.actors().any(|actor| actor.side == *side);
    spec.balloon = bed.study.cells().iter().any(is_sized);
    for (target, attachment) in keys {
        let found = targets::find(target);
        let client = found.and_then(|target| target.own_client());
        let client = client.filter(|_| attachment.is_none() && !side.shares_kernel());
        let of_client = client.map_or(&[][..], |client| client.modules);
        let modules = found.map_or(&[][..], |target| target.guest_modules()).iter().chain(of_client).copied();
        let lacks = |module: &&str| bed.image.as_ref().is_some_and(|image| image.lacks_module(module));
        if let Some(module) = modules.clone().find(lacks) {
            without.insert((target.clone(), attachment.clone()), Unfit::NoModule(module));
            continue;
        }
        let programs = found.map_or(&[][..], |target| target.guest_programs());
        let left_out = |program: &&'static str| Some((*program, bed.image.as_ref()?.lacks(program)?.to_owned()));
        if let Some((program, why)) = programs.iter().find_map(left_out) {
            without.insert((target.clone(), attachment.clone()), Unfit::NoProgram(program, why));
            continue;
        }
        spec.modules.extend(modules);
        let id = format!("d{}", spec.disks.len());
        if let Some(client) = client {
            clients.push((target.clone(), client, attach(bed, target, &own_client::asked())?));
            continue;
        }
        let Some(attachment) = attachment else {
            let made = bed.targets.made.get(target).with_context(|| format!("target {target} is not there"))?;
            let storage = Storage::File(made.native().to_owned());
            spec.disks.push(DiskSpec { id: id.clone(), storage, attachment: None });
            disks.insert((target.clone(), None), id);
            continue;
        };
        let storage = attach(bed, target, attachment)?;
        let (asked, owner) = (attachment.clone(), side.to_string());
        let cache = bed.on_target(target, move |t| t.cache_disk(&asked, &owner))??;
        // One disk that a hypervisor would refuse costs its own cells, not the guest.
        if let Err(why) = entry.fits_disk(attachment, Some(&storage)) {
            without.insert((target.clone(), Some(attachment.clone())), why);
            continue;
        }
        // All guests run at the same time.
        let before = || bed.sides.values().take(at).flatten().any(|(of, _)| of == target);
        if matches!(storage, Storage::PassedThrough { .. }) && before() {
            without.insert((target.clone(), Some(attachment.clone())), Unfit::OfAnotherGuest(target.clone()));
            continue;
        }
        if let Storage::File(path) | Storage::BlockDevice(path) = &storage {
            raw.insert((target.clone(), Some(attachment.clone())), path.clone());
        }
        spec.disks.push(DiskSpec { id: id.clone(), storage, attachment: Some(attachment.clone()) });
        let key = (target.clone(), Some(attachment.clone()));
        disks.insert(key.clone(), id);
        if let Some(path) = cache {
            // It lies in memory, as the host's page cache does.
            let attachment = Attachment { cache: Cache::Writeback, aio: Aio::Threads, ..attachment.clone() };
            let id = format!("d{}", spec.disks.len());
            spec.disks.push(DiskSpec { id: id.clone(), storage: Storage::File(path), attachment: Some(attachment) });
            caches.insert(key, id);
        }
    }
    let nics = bed.paths.of_guest(side);
    spec.nics = nics.iter().map(|nic| nic.spec.clone()).collect();
    let (cgroup_procs, enter) = if !side.shares_kernel() {
        let procs = bed.hypervisors.as_ref().map(Limits::procs_files).unwrap_or_default();
        let linked = |(target, _): &DiskKey| bed.targets.made.get(target).is_some_and(|t| t.link().is_some());
        let alone = spec.nics.is_empty() && !keys.iter().any(linked);
        (procs, if alone { Vec::new() } else { bed.paths.host_end() })
    } else if side.is_afar() {
        (Vec::new(), Vec::new())
    } else {
        let limits = bed.natives.get(side).with_context(|| format!("nothing was prepared for {side}"))?;
        let limits = limits.as_ref().map_err(|why| anyhow::anyhow!("{side} has no control group: {why}"))?;
        held.insert(HELD.to_owned(), limits.describe().to_owned());
        (limits.procs_files(), bed.paths.of_container(side))
    };
    let ctx = LaunchCtx {
        node: bed.local.clone(),
        nodes: &bed.nodes,
        journal: bed.journal.clone(),
        image: bed.image.as_ref(),
        run_dir: &bed.run_dir,
        state_dir: &bed.state_dir,
        accel: None,
        boot_limit: BOOT_LIMIT,
        oom_score_adj: OOM_SCORE_ADJ,
        cgroup_procs,
        progress: bed.progress,
        enter,
    };
    let guest = entry.launch(&ctx, &spec)?;
    // What the guest said until then tells why its network is not there.
    let addressed = net::address(&*guest, &spec.name, &nics).map_err(|e| guest.give_up(&format!("{e:#}")))?;
    for (at, found) in addressed.set_up {
        bed.record.effective(&at, &found)?;
    }
    let mut own = BTreeMap::new();
    for (nth, (target, client, storage)) in clients.iter().enumerate() {
        let connected = connect(bed, &*guest, (target.as_str(), side), client, (storage, nth));
        let device = connected.map_err(|e| guest.give_up(&format!("did not reach {target} by itself: {e:#}")))?;
        own.insert(target.clone(), device);
    }
    if guest.processes().is_some() {
        held.extend(processors(&*guest)?.map(|cpus| (PROCESSORS.to_owned(), cpus)));
        bed.record.effective(&ReadAt::side(side), &held)?;
    }
    let effective = guest.effective()?;
    for ((target, attachment), id) in &disks {
        let Some(attachment) = attachment else {
            let found = read_ahead(guest.node().reader(), &guest.disk_path(id)?).into_iter().collect();
            bed.record.effective(&ReadAt::disk(target, side, None), &found)?;
            continue;
        };
        let mut found = effective.get(id).cloned().unwrap_or_default();
        found.extend(read_ahead(guest.node().reader(), &guest.disk_path(id)?));
        found.extend(bed.targets.made.get(target).map(|t| t.attached(attachment)).unwrap_or_default());
        bed.record.effective(&ReadAt::disk(target, side, Some(attachment)), &found)?;
    }
    if let Some(accelerator) = guest.accelerator() {
        bed.record.environment.accel = Some(accelerator.accel);
        bed.record.environment.accel_reason = accelerator.reason.clone();
    }
    if !side.shares_kernel() {
        bed.record.environment.guest_kernel = bed.image.as_ref().map(|i| i.kernel_release.clone());
    }
    bed.record.keep()?;
    let hypervisor = guest.hypervisor()?;
    Ok(Running { guest, disks, raw, own, caches, without, hypervisor, rivals: addressed.rivals })
}

/// What a guest opens of a target that is asked for like this. What serves it in a hypervisor's place is held like one.
fn attach(bed: &mut Bed<'_>, target: &str, asked: &Attachment) -> anyhow::Result<Storage> {
    let wanted = asked.clone();
    // A disk's first image is written out here.
    let (storage, servers) = bed.on_target(target, move |t| {
        let storage = t.intact().and_then(|()| t.attach(&wanted));
        (storage, t.servers(&wanted))
    })?;
    let storage = storage?;
    bed.hold_servers(&servers)?;
    Ok(storage)
}

/// Has a guest reach a target by itself, and stores how. Its device is as large as the target.
fn connect(
    bed: &Bed<'_>,
    guest: &dyn Guest,
    (target, side): (&str, &Side),
    client: &OwnClient,
    (storage, nth): (&Storage, usize),
) -> anyhow::Result<PathBuf> {
    let node = guest.node();
    let device = (client.connect)(&*node, storage, nth)?;
    let made = bed.targets.made.get(target).with_context(|| format!("target {target} is not there"))?;
    let name = block::name_at(&device).unwrap_or_default();
    let (wanted, found) = (made.bytes(), block::Device::whole(node.reader(), &name).size_bytes());
    anyhow::ensure!(found == Some(wanted), "{} has {found:?} bytes, not {wanted}", device.display());
    let mut all = made.attached(&own_client::asked());
    all.extend(read_ahead(node.reader(), &device));
    all.insert("client".to_owned(), format!("{}, in the guest", storage.server().unwrap_or_default()));
    for program in client.programs {
        let version = bed.image.as_ref().and_then(|image| image.programs.get(*program));
        all.extend(version.map(|version| (format!("client {program}"), version.clone())));
    }
    bed.record.effective(&ReadAt::disk(target, side, None), &all)?;
    Ok(device)
}
