//! Makes all that the cells need but the guests: targets, control groups, the guest image.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use vmio_look::backing::{Backing, NotVisible, write_cache};
use vmio_model::cell::{Actor, Cell, Kind, Side};
use vmio_model::read_at::{FILE_SERVER, LOGICAL_BLOCK_BYTES, ReadAt, WRITE_CACHE};
use vmio_model::result::{Skipped, WorkloadTraits};
use vmio_model::run::Run;
use vmio_model::study::Study;
use vmio_model::study::plan::Plan;
use vmio_node::linux::block;
use vmio_node::{Change, Journal, Node, Reader, held};

use super::net::Paths;
use super::sides::{hypervisor_share, sides};
use super::{Bed, Record, Targets, native, net};
use crate::disks::modelled::{self, Modelled};
use crate::disks::places::{Health, Pool};
use crate::disks::targets::elsewhere::Elsewhere;
use crate::disks::targets::{self, Given, Prepared, TargetCtx};
use crate::engine::environment;
use crate::engine::plan::Placed;
use crate::engine::stop::StopCause;
use crate::engine::store::Store;
use crate::engine::watcher::Watcher;
use crate::hadoop::Fetch;
use crate::image::{Image, OwnKernel};
use crate::nets::Namespace;
use crate::nodes::{Machine, Measured, Nodes};
use crate::probes::components;
use crate::probes::power::{self, PowerChoice};
use crate::workloads::{self, ResolvedWorkload};

/// Key of the read-ahead, in KiB, in what is read back of targets and of guests' disks.
const READ_AHEAD: &str = "read_ahead_kib";

/// What [`Bed::prepare`] needs to know.
pub struct Parts<'a> {
    /// The study.
    pub study: &'a Study,
    /// Where results go.
    pub store: &'a dyn Store,
    /// This machine, owned by the journal.
    pub local: Arc<dyn Node>,
    /// Journal of the run.
    pub journal: Arc<Journal>,
    /// Where targets are made; `None` where no cell is on a disk.
    pub placed: Option<Placed>,
    /// The other machines that take part.
    pub nodes: Nodes,
    /// What the run costs: how much each cell may write, and what making the targets writes.
    pub cost: &'a Plan,
    /// What the study's workloads are like.
    pub traits: &'a [WorkloadTraits],
    /// Use it whatever it holds.
    pub force: bool,
    /// The meters that tell this machine's power.
    pub power: &'a PowerChoice,
    /// `--gentle`: share of the time in which writing targets out keeps the disk busy.
    pub pace: Option<f64>,
    /// `--gentle`: the watch over the other guests, where they can be seen. It ends the run, also
    /// while targets are made.
    pub watcher: Option<Watcher>,
    /// Sockets of the guests.
    pub run_dir: PathBuf,
    /// Images, and whether KVM works.
    pub state_dir: PathBuf,
    /// The kernel that guests boot, where the user names one.
    pub kernel: Option<&'a OwnKernel>,
    /// Hadoop's jars that are to be fetched.
    pub fetch: Option<&'a Fetch>,
    /// Told what is being done.
    pub progress: &'a dyn Fn(&str),
}

/// The run has to end before all targets are made: why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MustStop(pub StopCause);

impl<'a> Bed<'a> {
    /// Makes all that the cells need but the guests. What was made up to an error is in the
    /// journal and undone by its owner.
    pub fn prepare(mut parts: Parts<'a>, run: &mut Run) -> anyhow::Result<Bed<'a>> {
        let Parts { study, store, progress, .. } = parts;
        let (local, journal) = (parts.local.clone(), parts.journal.clone());
        if parts.power.command.is_some() {
            progress("listening to the meter of --power-command");
        }
        let meters = power::subjects(&local, parts.power, study.repeat.seconds).context("cannot use a power meter")?;
        let cells = study.cells_but(&Skipped::keys(&run.skipped));
        let sides = sides(&cells);
        // Guests of a study have one kind of processor (`Study::arches`).
        let guest = sides.keys().find(|side| !side.shares_kernel());
        if let Some(fetch) = parts.fetch {
            fetch.run(&*local, &journal, progress).context("cannot fetch Hadoop's jars")?;
        }
        let image = guest.map(|guest| {
            Image::with_kernel(guest.shape.arch, parts.kernel, &*local, &parts.state_dir, progress)
                .context("no guest image")
        });
        let image = image.transpose()?;
        let host = net::host(&*local, &cells)?;
        let (spans, refilled) = (parts.cost.spans.clone(), parts.cost.rates.refilled_targets.clone());
        let mut targets = Targets { spans, refilled, ..Targets::default() };
        if let Some((machine, own)) = parts.nodes.measured() {
            targets.made = targets_of(&parts, (machine, own), &cells, run)?;
        }
        if let Some(mut placed) = parts.placed.clone() {
            targets.modelled = modelled_disk(&parts, &mut placed, &cells)?;
            let given = placed.device.clone().map(Given::Own);
            let given = given.or_else(|| Some(Given::Served(targets.modelled.as_ref()?.whole.clone())));
            let passed = placed.place.backend.passed_through().cloned().map(Given::PassedThrough);
            let given = given.or(passed);
            let (made, health) = storage(&mut parts, (&placed, given, host.clone()), &cells, run)?;
            for (name, (target, backing)) in made {
                targets.made.insert(name.clone(), target);
                targets.backings.insert(name, backing);
            }
            targets.health = Some(health);
        }
        let paths = Paths::build(&*local, &cells, host, &parts.nodes, &targets.made)?;
        let natives = native::hold(study, &cells, &*local, &journal);
        let mut environment = run.environment.clone();
        // It is what disks are measured with, and those are on the other machine where there is one.
        let programs = parts.nodes.measured().map_or(&local, |(machine, _)| &machine.node);
        environment.fio = environment::fio(image.as_ref(), &**programs);
        environment.programs = environment::programs(&cells, image.as_ref(), &*local, &parts.nodes);
        environment.peer_programs = parts.nodes.peer().map(|(_, own)| own.programs.clone()).unwrap_or_default();
        environment.native_limits = native::told(&natives);
        let interrupt_seconds = || components::interrupt_seconds(local.reader());
        environment.sample_interrupt_seconds = study.components.then(interrupt_seconds).flatten();
        environment.meters_planned = parts.cost.rates.meters.clone();
        environment.meters = power::names(&meters);
        for (side, why) in natives.iter().filter_map(|(side, held)| Some((side, held.as_ref().err()?))) {
            let whose = if *side == Side::native() { "native side".to_owned() } else { format!("side {side}") };
            progress(&format!("the {whose} is not held to the guest's resources: {why}"));
        }
        // Images are written out when a guest first opens them: the plan knows the sum.
        environment.written_beside_bytes += parts.cost.making_bytes_written;
        let record = Record { store, run: run.id, environment };
        record.keep()?;
        let mut nodes = parts.nodes;
        nodes.add(Machine::host(local.clone()));
        let share = hypervisor_share(study, false, &*local);
        let mut bed = Bed {
            study,
            traits: parts.traits,
            record,
            nodes,
            targets,
            paths,
            natives,
            meters,
            sides,
            hypervisors: None,
            image,
            run_dir: parts.run_dir,
            state_dir: parts.state_dir,
            watcher: parts.watcher,
            stop: None,
            local,
            journal,
            progress,
        };
        bed.hold_hypervisors(share);
        Ok(bed)
    }
}

/// The targets on another machine.
fn targets_of(
    parts: &Parts<'_>,
    (machine, own): (&Machine, &Measured),
    cells: &[Cell],
    run: &mut Run,
) -> anyhow::Result<BTreeMap<String, Box<dyn Prepared>>> {
    let mut made = BTreeMap::new();
    for name in cells.iter().flat_map(Cell::targets) {
        if made.contains_key(name) {
            continue;
        }
        let Machine { address, node, .. } = machine;
        let make = targets::find(name).and_then(|target| target.elsewhere());
        let make = make.with_context(|| format!("no target {name} on {address}"))?;
        let bytes = parts.study.target_bytes();
        (parts.progress)(&format!("making the target {name} ({} MiB) on {address}", bytes >> 20));
        let file = format!("vmio-{name}-{}", parts.journal.cookie());
        let prepared = make(&Elsewhere { node, own, file: &file, bytes })
            .with_context(|| format!("cannot make the target {name} on {address}"))?;
        let (at, settings) = (ReadAt::disk(name, &Side::of(Kind::SSH.name), None), prepared.effective());
        parts.store.add_effective(run.id, &at, &settings)?;
        run.effective.insert(at.to_string(), settings);
        made.insert(name.to_owned(), prepared);
    }
    Ok(made)
}

/// Makes the modelled disk of a place that is one; targets then go there.
fn modelled_disk(parts: &Parts<'_>, placed: &mut Placed, cells: &[Cell]) -> anyhow::Result<Option<Modelled>> {
    let Some(disk) = placed.place.backend.modelled() else { return Ok(None) };
    let bytes = modelled::size(disk, placed.needed_bytes);
    (parts.progress)(&format!("making the modelled disk ({} MiB of memory)", bytes >> 20));
    let takes = |name: &str| targets::find(name).is_some_and(|target| target.takes_device());
    let whole = if cells.iter().flat_map(Cell::targets).any(takes) { parts.study.target_bytes() } else { 0 };
    let by = (&*parts.local, &*parts.journal);
    let made = Modelled::make(by, disk, (bytes, whole), &parts.state_dir, modelled::helper())
        .context("cannot make the modelled disk")?;
    placed.dir = made.dir.clone();
    Ok(Some(made))
}

/// Targets by their names, each with the disks below it.
type Made = BTreeMap<String, (Box<dyn Prepared>, Backing)>;

/// Where targets are made, with what is there already for the target `device`, and the namespace that plays the host.
type Spot<'a> = (&'a Placed, Option<Given>, Option<Arc<Namespace>>);

/// Makes the scratch directory and the targets in it.
fn storage(
    parts: &mut Parts<'_>,
    (placed, given, host): Spot<'_>,
    cells: &[Cell],
    run: &mut Run,
) -> anyhow::Result<(Made, Health)> {
    let journal = parts.journal.clone();
    let scratch = placed.dir.join(format!("vmio-scratch-{}", journal.cookie()));
    let health = Health::of(&placed.place);
    health.during({
        let (dir, scratch) = (placed.dir.clone(), scratch.clone());
        let in_state = placed.place.backend.pool().is_some() || placed.place.backend.passed_through().is_some();
        move || {
            // Our own state directory may lie behind a link.
            let dir = if in_state { dir.canonicalize()? } else { dir };
            let dir = hold_dir(&journal, &dir)
                .with_context(|| format!("cannot make or open the directory {}", dir.display()))?;
            anyhow::Ok(journal.scratch_dir_in(&dir, &scratch)?)
        }
    })??;
    let mut made = BTreeMap::new();
    if let Err(e) = make_targets(parts, (placed, given, host), cells, (&scratch, &health), run, &mut made) {
        if health.look().is_err() {
            // Even closing a file waits for a server that is gone; the journal removes with a limit.
            std::mem::forget(made);
        }
        return Err(e);
    }
    Ok((made, health))
}

/// Makes the targets of the cells, one after another, and stores how each is set up.
fn make_targets(
    parts: &mut Parts<'_>,
    (placed, given, host): Spot<'_>,
    cells: &[Cell],
    (scratch, health): (&Path, &Health),
    run: &mut Run,
    made: &mut Made,
) -> anyhow::Result<()> {
    let Parts { study, store, local, journal, progress, watcher, nodes, .. } = parts;
    for name in cells.iter().flat_map(Cell::targets) {
        if made.contains_key(name) {
            continue;
        }
        if let Some(reason) = watcher.as_mut().and_then(Watcher::must_stop) {
            return Err(MustStop(reason).into());
        }
        let target = targets::find(name).with_context(|| format!("no target {name}"))?;
        // One that is small by nature takes less than what the study has for a target.
        let bytes = study.target_bytes().min(target.space(study.target_bytes(), 0).taken_bytes);
        progress(&format!("making the target {name} ({} MiB)", bytes >> 20));
        let (prepared, backing, mut settings) = health
            .during({
                let (local, journal, dir) = (local.clone(), journal.clone(), scratch.to_owned());
                let (pool, device) = (placed.place.backend.pool().cloned(), given.clone());
                let (bytes, force, pace) = (study.target_bytes(), parts.force, parts.pace);
                let (place, host, nodes) = (placed.backing.clone(), host.clone(), nodes.clone());
                let by_kernel = |actor: &Actor| actor.target() == Some(name) && targets::by_host_kernel(actor);
                let native = cells.iter().flat_map(Cell::actors).any(by_kernel);
                let mounted =
                    cells.iter().flat_map(Cell::actors).any(|actor| actor.target() == Some(name) && mounts(actor));
                move || {
                    let (node, journal, in_pool) = (&*local, &journal, pool.clone());
                    let peer = nodes.peer();
                    let ctx = TargetCtx { node, journal, dir, pool, bytes, device, force, pace, native, host, peer };
                    let there = || {
                        let wrong = |reason| targets::Error::Exchanged { path: ctx.dir.clone(), reason };
                        journal.leads_to_held(&ctx.dir).map_err(|astray| wrong(astray.to_string()))
                    };
                    // Whatever failed in a directory that is not ours any more failed for that reason.
                    let mut prepared =
                        there().and_then(|()| target.prepare(&ctx)).map_err(|e| there().err().unwrap_or(e))?;
                    if mounted {
                        prepared.share()?;
                    }
                    prepared.intact()?;
                    let backing = match peer.filter(|_| target.by_peer().is_some()) {
                        Some((machine, _)) => {
                            let not_visible = Some(NotVisible::OtherMachine(machine.to_string()));
                            Backing { not_visible, ..Backing::default() }
                        }
                        None => below(node, prepared.lies_on(), in_pool.as_ref(), place),
                    };
                    let mut settings = prepared.effective();
                    settings.extend(read_ahead(node.reader(), prepared.native()));
                    Ok::<_, targets::Error>((prepared, backing, settings))
                }
            })?
            // What a full pool does to a write says less than the pool itself.
            .map_err(|e| health.look().err().map_or_else(|| anyhow::Error::new(e), anyhow::Error::new))
            .with_context(|| format!("cannot make the target {name}"))?;
        settings = without(scratch, settings);
        settings.insert("backing".into(), backing.describe());
        settings.extend(write_cache(local.reader(), &backing).map(|word| (WRITE_CACHE.to_owned(), word)));
        settings.insert(LOGICAL_BLOCK_BYTES.into(), prepared.demands().logical_block_bytes.to_string());
        settings.extend(backing.nfs.clone().map(|server| (FILE_SERVER.to_owned(), server)));
        let at = ReadAt::target(name);
        store.add_effective(run.id, &at, &settings)?;
        run.effective.insert(at.to_string(), settings);
        made.insert(name.to_owned(), (prepared, backing));
    }
    Ok(())
}

/// Whether a program of this machine's mounts an actor's disk.
fn mounts(actor: &Actor) -> bool {
    let mounts = |workload: ResolvedWorkload| workload.disk().is_some_and(|disk| disk.mounts());
    actor.side.shares_kernel() && workloads::find(&actor.workload).is_some_and(mounts)
}

/// The read-ahead in force for who reads a path through the page cache, for the result.
pub fn read_ahead(reader: &dyn Reader, path: &Path) -> Option<(String, String)> {
    Some((READ_AHEAD.to_owned(), block::read_ahead_kib(reader, path)?.to_string()))
}

/// The disks below a target. Where they cannot be followed down from a volume, those of its pool. A
/// Ceph cluster's are not this host's: the kernel's mapping that the native side opens is no disk.
fn below(node: &dyn Node, native: &Path, pool: Option<&Pool>, place: Backing) -> Backing {
    if let Some(Pool::Rbd { .. }) = pool {
        return place;
    }
    let found = match (Backing::below(node, native), pool) {
        // A disk in memory, beside the place.
        (Ok(found), _) if found.own_counters.values().any(|filesystem| filesystem == "tmpfs") => found,
        (Ok(found), _) if found.not_visible.is_none() => Backing { modelled: place.modelled, ..found },
        (_, Some(_)) => place,
        (Ok(found), None) => Backing { modelled: place.modelled, ..found },
        (Err(e), None) => Backing { modelled: place.modelled, not_visible: Some(e.into()), ..Backing::default() },
    };
    found.counted(node.reader())
}

/// Opens a directory whose path has no links, as the plan looked it up: one that was put there since
/// is not followed. Makes those of it that are missing; each goes again when it is empty.
fn hold_dir(journal: &Journal, dir: &Path) -> anyhow::Result<OwnedFd> {
    let there = dir.ancestors().find(|d| d.symlink_metadata().is_ok()).unwrap_or(Path::new("/"));
    let mut held = held::open_dir(there)?;
    let mut at = there.to_owned();
    for name in dir.strip_prefix(there)?.components() {
        at.push(name);
        let (name, above) = (name.as_os_str(), held);
        let ((next, made), id) = journal.make(Change::dir(&at), || held::make_dir(&above, name, 0o777))??;
        if !made {
            journal.forget(id)?;
        }
        held = next;
    }
    Ok(held)
}

/// Settings with the name of this run's scratch directory, which is new for every run, taken out.
fn without(scratch: &Path, settings: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let scratch = scratch.display().to_string();
    settings.into_iter().map(|(key, value)| (key, value.replace(&scratch, "SCRATCH"))).collect()
}
