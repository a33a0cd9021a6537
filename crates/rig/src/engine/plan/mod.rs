//! What a run will do, found out without changing anything: where, how long, how much is written,
//! what is unmet. Printed before anything is measured; `--dry-run` stops here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use vmio_look::neighbours::{self, Others};
use vmio_model::cell::Cell;
use vmio_model::failure::{Exit, Failure};
use vmio_model::result::{Skipped, WorkloadTraits};
use vmio_model::run::Run;
use vmio_model::study::plan::{self as reckon, Plan};
use vmio_model::study::{GIB, Study};
use vmio_node::Node;

use self::elsewhere::refuse_idle;
use self::place::{existing_part, place, room_elsewhere};
use self::rates::{jars, needed_bytes, rates, refilled};
use self::unmet::unmet;
use super::bed::{native, net, sides};
use crate::disks::places::PlaceBackend;
use crate::disks::space::gib;
use crate::disks::targets;
use crate::gentle::instance::{self, Unseen};
use crate::hadoop::{Fetch, Repository};
use crate::image::{self, OwnKernel};
use crate::limits::{self, Share};
use crate::nodes::Nodes;
use crate::probes::power::{self, PowerChoice};
use crate::{guests, workloads};

mod elsewhere;
mod paths;
mod place;
mod rates;
mod states;
#[cfg(test)]
mod tests;
mod unmet;
mod why_not;

pub use self::place::Placed;
pub use self::rates::takes_device;
pub use self::why_not::{LeftOut, NoRoom, WhyNot};

/// Options of a run besides its study.
#[derive(Debug, Clone, Default)]
pub struct PlanOptions {
    /// Where targets are made, as a user names it; else where guest images are.
    pub on: Option<String>,
    /// The user's own device, which may be overwritten.
    pub device: Option<PathBuf>,
    /// Use it even if it holds data.
    pub force: bool,
    /// Spare the other guests also where none is seen.
    pub gentle: bool,
    /// Do not spare them.
    pub no_gentle: bool,
    /// Make the directory that `on` names where it is missing.
    pub make_place: bool,
    /// The kernel that guests boot, where the user names one.
    pub kernel: Option<OwnKernel>,
    /// Where Hadoop's jars may be fetched from, where this machine lacks them.
    pub maven: Option<Repository>,
    /// The meters that tell this machine's power.
    pub power: PowerChoice,
    /// The other machines that take part, which were reached for it.
    pub nodes: Nodes,
    /// What the plan says of the study itself.
    pub told: Vec<String>,
    /// Why this form of the study was chosen, where nobody named one.
    pub form: Option<String>,
    /// Images, journals, and targets where nothing better is there.
    pub state_dir: PathBuf,
}

/// All that is known before the first change.
pub struct Planned {
    /// The study, with the user's budgets.
    pub study: Study,
    /// What is to be said of it.
    pub told: Vec<String>,
    /// Why this form of it was chosen.
    pub form: Option<String>,
    /// Traits of its workloads.
    pub traits: Vec<WorkloadTraits>,
    /// Where its targets are made; `None` where no cell is on a disk.
    pub placed: Option<Placed>,
    /// The other machines that take part.
    pub nodes: Nodes,
    /// Space left where targets are made, or what is below the other machine's directory, in words; empty where
    /// neither is asked.
    pub space: Result<String, NoRoom>,
    /// Cells that cannot run here.
    pub left_out: Vec<LeftOut>,
    /// What it costs.
    pub cost: Plan,
    /// Whether the rates behind it were measured here before.
    pub rates_from: String,
    /// What guests run on here, as far as it is known.
    pub accelerator: Option<guests::Accelerator>,
    /// The user's kernel for the guests, with its release.
    pub kernel: Option<(OwnKernel, String)>,
    /// What building the guests' image takes, in words, where none is kept.
    pub image_ahead: Option<String>,
    /// Hadoop's jars that a cell which runs needs, where they are not here and are to be fetched.
    pub fetch: Option<Fetch>,
    /// The meters that tell this machine's power.
    pub power: PowerChoice,
    /// Who else runs here.
    pub others: Others,
    /// Whether to spare them.
    pub gentle: bool,
    /// Why their latency is not visible here, where they are to be spared: then the cap and the one core are all
    /// that they get.
    pub latency_unseen: Option<Unseen>,
    /// The control groups of the native side and of hypervisors, in the words of the result, with the CPUs.
    pub cgroups: CgroupPlan,
}

/// The control groups of a run.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Held")]
pub struct CgroupPlan {
    /// Of the native side.
    pub native: String,
    /// Of QEMU; `None` where no guest is booted.
    pub qemu: Option<String>,
}

impl CgroupPlan {
    /// Looks at what there is.
    fn of(study: &Study, left_out: &[LeftOut], gentle: bool, local: &dyn Node) -> Self {
        let (cores, memory_bytes) = sides::hypervisor_share(study, gentle, local);
        let hypervisor = || match limits::forecast(local.reader(), &Share::of(cores, memory_bytes)) {
            Ok(described) => described,
            Err(why) => format!("not held: {why}"),
        };
        let cells = study.cells_but(&keys(left_out));
        Self {
            native: native::forecast(study, &cells, local.reader()),
            qemu: (!study.boots_nothing()).then(hypervisor),
        }
    }
}

/// Looks at the machine; changes nothing.
pub fn look(study: Study, options: &PlanOptions, last: Option<&Run>, local: &dyn Node) -> anyhow::Result<Planned> {
    let reader = local.reader();
    refuse_idle(&study, options)?;
    // Of a run with another machine the targets are there.
    let here = options.nodes.measured().is_none();
    let mut placed = if study.has_disks() && here { Some(place(options, local)?) } else { None };
    if let (None, Some(word)) =
        (&placed, options.on.clone().or(options.device.as_ref().map(|d| d.display().to_string())))
    {
        let why = format!("no cell of the study {} is on a disk, and {word} is named for one", study.name);
        return Err(Failure::new(Exit::Usage, why).help("drop --on and --device").into());
    }
    let traits = traits(&study);
    let backend = placed.as_ref().map(|p| &p.place.backend);
    let backing = placed.as_ref().map(|p| &p.backing);
    let refilled = backend.map(|backend| refilled(backend, options)).unwrap_or_default();
    let (mut rates, rates_from) = rates(&study, last, backing, backend.and_then(PlaceBackend::modelled), refilled);
    let fits = |name: &str| targets::find(name).zip(backend).is_none_or(|(t, backend)| t.fits(backend).is_ok());
    rates.target_space.retain(|name, _| fits(name));
    // What takes its blocks when they are first written is not written before.
    for (_, space) in rates.target_space.iter_mut().filter(|(name, _)| rates.refilled_targets.contains(name)) {
        space.prepared_bytes = 0;
    }
    let others = neighbours::others(reader, "").context("cannot look for other guests")?;
    // Who works on this host could be in the way of others here.
    let gentle = options.gentle || (!options.no_gentle && !others.guests.is_empty() && study.uses_host());
    rates.beside_bytes = backing.map_or(0, |backing| rates::beside(local, &study, options, backing));
    rates.probed = gentle;
    rates.meters = if here { power::likely(reader, &options.power, study.repeat.seconds) } else { Vec::new() };
    rates.metered = !rates.meters.is_empty();
    let left_out = unmet(&study, local, gentle, options, backend);
    // Only what will run is counted, unless nothing can.
    let cells = Some(study.cells_but(&keys(&left_out))).filter(|cells| !cells.is_empty());
    let cost = reckon::estimate_of(&study, &cells.unwrap_or_else(|| study.cells()), &traits, &rates);
    let arch = study.arches().into_iter().next().unwrap_or_default();
    let accelerator = hypervisors(&study).iter().find_map(|kind| kind.accelerator(reader, arch, &options.state_dir));
    let needed_bytes = needed_bytes(&rates, options);
    let space = match (&mut placed, options.nodes.measured()) {
        (Some(placed), _) => {
            placed.needed_bytes = needed_bytes;
            let guest_bytes = if study.is_native_only() { 0 } else { cost.memory_bytes };
            placed.guest_bytes = guest_bytes + rates::cache_bytes(&study, &rates);
            placed.look_for_room(local)
        }
        (None, Some((machine, own))) => room_elsewhere(machine, own, study.target_bytes(), needed_bytes),
        (None, None) => Ok(String::new()),
    };
    let kernel = options.kernel.clone().map(|kernel| kernel_of(&study, kernel)).transpose()?;
    let own_image = !study.boots_nothing() && arch.is_own();
    let needed = jars(&study.cells_but(&keys(&left_out))).filter(|jars| jars.place(reader).is_none());
    let fetch = options.maven.clone().zip(needed).map(|(from, jars)| Fetch { from, jars });
    let with_beside = fetch.is_some() || image::has_beside(reader);
    let of_image = || image::ahead(reader, &options.state_dir, kernel.is_some(), with_beside);
    let image_ahead = own_image.then(of_image).flatten();
    let cgroups = CgroupPlan::of(&study, &left_out, gentle, local);
    let mut planned = Planned {
        study,
        told: options.told.clone(),
        form: options.form.clone(),
        traits,
        placed,
        nodes: options.nodes.clone(),
        space,
        left_out,
        cost,
        rates_from,
        accelerator,
        kernel,
        image_ahead,
        fetch,
        power: options.power.clone(),
        others,
        gentle,
        latency_unseen: None,
        cgroups,
    };
    if gentle {
        planned.latency_unseen = instance::visible(reader, &planned.devices(local)).err();
    }
    Ok(planned)
}

/// The kinds of a study's guests, whose hypervisors are asked; all kinds where it boots nothing: what a run is recorded
/// with does not hang on whether a guest takes part.
pub fn hypervisors(study: &Study) -> Vec<&'static dyn guests::GuestKind> {
    let (all, cells) = (study.boots_nothing(), study.cells());
    let is_in = |name: &str| cells.iter().flat_map(Cell::actors).any(|actor| actor.side.kind == name);
    guests::ALL.iter().copied().filter(|kind| all || is_in(kind.name())).collect()
}

/// The user's kernel: refused before anything is made where no guest can be booted with it, or none is.
fn kernel_of(study: &Study, kernel: OwnKernel) -> anyhow::Result<(OwnKernel, String)> {
    if study.boots_nothing() {
        let why = format!("the study {} boots no guest, and a kernel is named for one", study.name);
        return Err(Failure::new(Exit::Usage, why).help("drop --guest-kernel and --guest-modules").into());
    }
    let release = kernel.release().map_err(|e| Failure::new(Exit::Usage, e.to_string()))?;
    Ok((kernel, release))
}

/// Traits of the study's workloads, in the order in which they are shown: those of the list first,
/// then the others as the study names them.
fn traits(study: &Study) -> Vec<WorkloadTraits> {
    let mut names: Vec<String> = workloads::ALL.iter().map(|w| w.traits().name).collect();
    let cells = study.cells();
    let used: Vec<&String> = cells.iter().flat_map(Cell::actors).map(|a| &a.workload).collect();
    for name in &used {
        if !names.contains(name) {
            names.push((*name).clone());
        }
    }
    names.retain(|name| used.contains(&name));
    names.iter().filter_map(|name| Some(workloads::find(name)?.traits())).collect()
}

/// What `--gib` has to be for so many bytes: one decimal, and never too little.
pub fn gib_for(bytes: u64) -> String {
    format!("{:.1}", (bytes as f64 / GIB as f64 * 10.0).ceil() / 10.0)
}

fn keys(left_out: &[LeftOut]) -> BTreeSet<String> {
    left_out.iter().map(|left_out| left_out.cell.key()).collect()
}

impl Planned {
    /// A run with nothing to measure, or guests without anything to compare them with, is refused
    /// before it begins.
    pub fn refuse(&self) -> anyhow::Result<()> {
        if let Err(why) = &self.space {
            return Err(Failure::new(Exit::Precondition, why.to_string()).into());
        }
        if let Some(dir) = self.placed.as_ref().and_then(|p| p.missing.as_ref()) {
            let what = format!("{} is not there", dir.display());
            return Err(Failure::new(Exit::Precondition, what)
                .help("name a directory that is, or have it made with --make-place")
                .into());
        }
        if let Some(budget) = self.too_little_for_targets() {
            let (making, budget) = (gib(self.cost.making_bytes_written), gib(budget));
            let what = format!("creating the targets writes {making}, and at most {budget} may be written");
            let (rounds, least) = (self.cost.min_rounds, gib_for(self.cost.least_bytes_written));
            let help = format!(
                "allow for more with --gib, at least {least} for {rounds} rounds, or use a study with a smaller \
                 size.target_mib"
            );
            return Err(Failure::new(Exit::Precondition, what).help(help).into());
        }
        if self.measures_nothing() {
            // The plan has said it whole.
            let (why, help) = match self.left_out.first().map(|left_out| &left_out.why) {
                Some(WhyNot::Gentle { unfit }) => {
                    (unfit.clone(), "--no-gentle measures it at full speed and spares no other guest")
                }
                why => (
                    why.map(ToString::to_string).unwrap_or_default(),
                    "`vmio doctor` lists what this host has and lacks",
                ),
            };
            let what = format!("nothing can be measured here: {why}");
            return Err(Failure::new(Exit::Precondition, what).help(help).into());
        }
        match net::unbuildable(&self.runnable()) {
            Some(why) => Err(Failure::new(Exit::Precondition, why).into()),
            None => Ok(()),
        }
    }

    /// The cells that can run.
    pub fn runnable(&self) -> Vec<Cell> {
        self.study.cells_but(&keys(&self.left_out))
    }

    /// The cells that cannot run, as a result has them.
    pub fn skipped(&self) -> Vec<Skipped> {
        self.left_out.iter().map(Skipped::from).collect()
    }

    /// Whether no cell can run, or of a study that compares none together with what it is compared with.
    pub fn measures_nothing(&self) -> bool {
        let skipped = keys(&self.left_out);
        let baseline = |c: &Cell| self.study.baseline.of(c).is_none_or(|base| !skipped.contains(&base.key()));
        let can_run = |c: &Cell| !skipped.contains(&c.key()) && baseline(c);
        let cells = self.study.cells();
        let compares = cells.iter().any(|c| self.study.compares(c));
        !cells.iter().any(|c| (!compares || self.study.compares(c)) && can_run(c))
    }

    /// The write budget in bytes, where making the targets alone takes all of it.
    pub fn too_little_for_targets(&self) -> Option<u64> {
        self.cost.budget_bytes.filter(|budget| self.cost.making_bytes_written >= *budget)
    }

    /// Between the plan and the answer any time may pass: the user's own device must still be the one that
    /// was shown. (It is looked at once more when it is opened for writing.)
    pub fn still_holds(&self, local: &dyn Node) -> Result<(), Failure> {
        let device = self.placed.as_ref().and_then(|p| p.device.as_ref());
        let same = device.map_or(Ok(()), |device| device.same(local.reader()));
        same.map_err(|e| Failure::new(Exit::Precondition, e.to_string()))
    }

    /// Devices that the targets lie on, as (major, minor): what the gentle watch looks at.
    pub fn devices(&self, local: &dyn Node) -> Vec<(u32, u32)> {
        let Some(placed) = &self.placed else { return Vec::new() };
        let number = |path: &Path| Some(local.stat(path).ok()??.dev);
        let mut devices: Vec<(u32, u32)> = placed.device.iter().map(|d| d.identity.number).collect();
        if placed.device.is_some() && self.study.cells().iter().all(|c| c.targets().all(rates::takes_device)) {
            return devices;
        }
        match &placed.place.backend {
            // Its volumes are not there yet; they may lie on any disk below them.
            PlaceBackend::Volumes(_) => devices.extend(placed.backing.leaves.values()),
            // It is nobody else's.
            PlaceBackend::Modelled(_) | PlaceBackend::PassedThrough(_) => {}
            PlaceBackend::Files(_) => devices.extend(number(&existing_part(local.reader(), &placed.dir))),
        }
        devices
    }
}
