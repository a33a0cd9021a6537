//! Runs a study on this machine: plan, question, measuring, report. What plans and measures is
//! `vmio_rig::engine`; here is what a person sees of it, and what is stored of it.

pub mod ended;
mod execute;
pub mod form;
pub mod like;
pub mod noise;
mod progress;
mod prove;
pub mod reach;
mod signals;

use std::path::PathBuf;

use vmio_model::failure::{Exit, Failure};
use vmio_model::kind::RunKind;
use vmio_model::result::{Environment, RemoteHostInfo};
use vmio_model::rules::Severity;
use vmio_model::run::Run;
use vmio_model::study::{Study, WordError};
use vmio_node::Local;
use vmio_node::ssh::Address;
use vmio_rig::disks::space::gib;
use vmio_rig::engine::measure::{Next, next_noise};
use vmio_rig::engine::spent;
use vmio_rig::engine::{environment, plan};
use vmio_rig::gentle::cap::DEFAULT_SHARE;
use vmio_rig::image::OwnKernel;

use crate::context::{Context, Outcome, has_meter};
use crate::report::{self, Forms, Report};
use crate::store::{RunId, Store, proofs_of};
use crate::{studies, term};
use reach::Reached;

/// What the user wants of a run beside the study.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Wishes {
    /// Where to create targets: DIR, lvm:VG, lvmthin:VG/POOL, zfs:POOL[/DATASET], rbd:POOL, pve:NAME, or a modelled disk
    /// in memory, modelled:RATE, such as modelled:40MB/s, then any of ,overhead=150us ,seek=8ms ,size=4GiB; default is
    /// where guest images are, else the state directory. ssh://[USER@]HOST[:PORT][/DIR] measures that machine
    /// (docs/ssh.md), libvirt://DOMAIN[/DIR] a guest in use through its guest agent (docs/libvirt.md)
    #[arg(long, value_name = "PLACE", value_hint = clap::ValueHint::AnyPath)]
    pub on: Option<String>,
    /// The machine at the other end of the network `wire`, by your own ssh: ssh://[USER@]HOST[:PORT] (docs/ssh.md)
    #[arg(long, value_name = "ADDRESS")]
    pub peer: Option<Address>,
    /// Use this whole block device as the target `device`; ALL DATA ON IT IS LOST. Give it
    /// twice to confirm
    #[arg(long, value_name = "DEVICE")]
    pub device: Vec<PathBuf>,
    /// With --device: use it even if it holds data (never if it is mounted or in use)
    #[arg(long, requires = "device")]
    pub force: bool,
    /// Protect other guests: cap the bandwidth, use one core, stop if they slow down (the
    /// default when others run)
    #[arg(long, conflicts_with = "no_gentle")]
    pub gentle: bool,
    /// Do not protect other guests. While others run, cells on networks and on the machine itself are measured only
    /// with this: they cannot be capped
    #[arg(long)]
    pub no_gentle: bool,
    /// Share of the measured bandwidth that --gentle may use
    #[arg(
        long,
        value_name = "RATIO",
        default_value_t = DEFAULT_SHARE,
        value_parser = number,
        allow_negative_numbers = true
    )]
    pub gentle_share: f64,
    /// Measure for at most so many minutes, instead of the study's limit
    #[arg(long, value_name = "MINUTES", value_parser = number, allow_negative_numbers = true)]
    pub minutes: Option<f64>,
    /// Write at most so many GiB in all, making the targets included, instead of the study's limit
    #[arg(long, value_name = "GIB", value_parser = number, allow_negative_numbers = true)]
    pub gib: Option<f64>,
    /// Bring flash into its steady state first (SNIA): fill each target once more, and repeat writing cells until
    /// five rounds agree
    #[arg(long)]
    pub steady_state: bool,
    /// Tell the energy of cells by a meter of your own, a command for the shell. It runs beside each cell; each line
    /// that it prints is WATTS or SECONDS WATTS, and one that ends is run again every second (docs/probes.md)
    #[arg(long, value_name = "CMD", value_hint = clap::ValueHint::CommandString)]
    pub power_command: Option<String>,
    /// Print the plan and exit; nothing is changed
    #[arg(long)]
    pub dry_run: bool,
    /// Start without asking
    #[arg(long, short)]
    pub yes: bool,
    /// Continue the last interrupted run of this study
    #[arg(long)]
    pub resume: bool,
    /// Make the directory that --on names, and those above it that are missing
    #[arg(long)]
    pub make_place: bool,
    /// Boot the guests with this kernel, a bzImage or a vmlinux with PVH, instead of the host's or Debian's
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub guest_kernel: Option<PathBuf>,
    /// With --guest-kernel: its modules, /lib/modules/RELEASE or where that lies; without, all that guests need is
    /// taken to be built in
    #[arg(long, value_name = "DIR", requires = "guest_kernel", value_hint = clap::ValueHint::DirPath)]
    pub guest_modules: Option<PathBuf>,
    /// What the plan says of the study itself.
    #[arg(skip)]
    pub told: Vec<String>,
    /// Why this form of the study was chosen, where nobody named one.
    #[arg(skip)]
    pub form: Option<String>,
    /// What follows the run that is planned.
    #[arg(skip)]
    pub then: Option<String>,
}

/// A path from the root on, as what names it from elsewhere needs it.
fn whole(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// A number as it is typed.
fn number(text: &str) -> Result<f64, WordError> {
    text.parse().map_err(|_| WordError("give a number, for example 5 or 0.5".to_owned()))
}

impl Wishes {
    /// Does the run under a supervisor where its storage may not answer ([`crate::supervisor`]).
    pub fn supervise(&self, context: &Context) {
        if reach::is_afar(self.on.as_deref()) {
            return;
        }
        crate::supervisor::supervise(
            self.on.as_deref(),
            self.device.first().map(PathBuf::as_path),
            &context.paths.state,
        );
    }

    /// What of them concerns the plan.
    fn of_plan(&self, context: &Context, reached: &Reached) -> plan::PlanOptions {
        plan::PlanOptions {
            on: self.on.clone().filter(|on| !reach::is_afar(Some(on))),
            nodes: reached.nodes.clone(),
            device: self.device.first().filter(|_| !reach::is_afar(self.on.as_deref())).cloned(),
            force: self.force,
            gentle: self.gentle,
            no_gentle: self.no_gentle,
            make_place: self.make_place,
            kernel: self
                .guest_kernel
                .clone()
                .map(|file| OwnKernel { file: whole(file), modules: self.guest_modules.clone().map(whole) }),
            power_command: self.power_command.clone(),
            told: self.told.clone(),
            form: self.form.clone(),
            state_dir: context.paths.state.clone(),
        }
    }
}

/// What is done with the study.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Measure it.
    Study,
    /// Measure each of its cells against itself.
    Noise,
    /// Measure it, or take a stored run, and prove a finding.
    Prove {
        /// Id of the rule; empty is the costliest finding.
        rule: String,
        /// A stored run.
        of: Option<RunId>,
    },
}

/// Runs a study from plan to report.
pub fn start(
    study: &Study,
    mode: Mode,
    wishes: &Wishes,
    forms: &Forms,
    fail_on: Option<Severity>,
    context: &Context,
) -> Outcome {
    check(wishes)?;
    forms.check()?;
    match mode {
        // What its cells show are no set-ups, one better than the other.
        Mode::Noise => forms.has_no_report()?,
        Mode::Study | Mode::Prove { .. } => forms.suits(&format!("the study {}", study.name), &study.cells())?,
    }
    let run = match &mode {
        Mode::Study => measure(study, engine_order(&mode), wishes, context)?,
        Mode::Noise => {
            let mut study = study.clone();
            study.name = RunKind::Noise(study.name).to_string();
            let run = measure(&study, engine_order(&mode), wishes, context)?;
            let Some(run) = run else { return Ok(Exit::Done) };
            noise::show(&run, context)?;
            return Ok(ended::exit_of(&run));
        }
        Mode::Prove { rule, of } => {
            let base = match of {
                Some(id) => {
                    let store = Store::open_existing(&context.paths.db())?;
                    Some(store.load(id.find(&store)?)?)
                }
                None => {
                    let wishes = Wishes { then: Some(prove::told(rule)), ..wishes.clone() };
                    measure(study, engine_order(&mode), &wishes, context)?
                }
            };
            let Some(base) = base else { return Ok(Exit::Done) };
            let Some(proof) = prove::study_of(&base, rule)? else {
                term::note("no finding of this run has a change that could be measured: nothing to prove");
                return finish(&base, forms, fail_on, context);
            };
            // --resume was for the base run, unless that is a stored one.
            let wishes = Wishes { resume: wishes.resume && of.is_some(), ..wishes.clone() };
            if let Some(run) = measure(&proof, engine_order(&mode), &wishes, context)? {
                term::note(&format!("proof measured as run {}", run.id));
            }
            Some(base)
        }
    };
    match run {
        None => Ok(Exit::Done),
        Some(run) => finish(&run, forms, fail_on, context),
    }
}

fn engine_order(mode: &Mode) -> Next {
    if *mode == Mode::Noise { next_noise } else { vmio_model::study::next }
}

/// Wishes that cannot be granted are refused before anything is looked at.
fn check(wishes: &Wishes) -> Result<(), Failure> {
    let refuse = |message: String, help: &str| Err(Failure::new(Exit::Usage, message).help(help));
    match wishes.device.as_slice() {
        [] => {}
        [a, b] if a == b => {}
        [a, b] => {
            return refuse(
                format!("--device names two devices: {} and {}", a.display(), b.display()),
                "name the same device twice; everything on it is lost",
            );
        }
        [a, ..] => {
            return refuse(
                format!("everything on {} would be lost, so it must be named exactly twice", a.display()),
                "for example: --device /dev/sdX --device /dev/sdX",
            );
        }
    }
    let not_there = [
        ("--gentle", wishes.gentle),
        ("--make-place", wishes.make_place),
        ("--steady-state", wishes.steady_state),
        ("--power-command", wishes.power_command.is_some()),
    ];
    if let (true, Some((name, _))) =
        (reach::is_afar(wishes.on.as_deref()), not_there.iter().find(|(_, wished)| *wished))
    {
        return refuse(format!("{name} concerns this host, and --on names another machine"), "leave it out");
    }
    if let (Some(device), Some(on)) = (wishes.device.first(), &wishes.on)
        && vmio_rig::disks::places::names_volumes(on)
    {
        return refuse(
            format!("--device {} and --on {on} both specify the target `device`", device.display()),
            "use only one of them",
        );
    }
    if !(wishes.gentle_share > 0.0 && wishes.gentle_share <= 1.0) {
        return refuse(format!("--gentle-share {} is not in 0 to 1", wishes.gentle_share), "0.25 is a quarter");
    }
    for (name, value) in [("--minutes", wishes.minutes), ("--gib", wishes.gib)] {
        if value.is_some_and(|v| !(v.is_finite() && v > 0.0)) {
            return refuse(format!("{name} must be above 0"), "leave it out to use the study's own budget");
        }
    }
    Ok(())
}

/// Measures a study; `None` when the user wanted the plan only, or said no.
fn measure(study: &Study, next: Next, wishes: &Wishes, context: &Context) -> anyhow::Result<Option<Run>> {
    let mut study = study.clone();
    let looker = Local::new();
    let known = Store::open_existing(&context.paths.db()).ok();
    let last = known.as_ref().and_then(|s| s.last().ok().flatten().and_then(|id| s.load(id).ok()));
    let resumed = match (wishes.resume, &known) {
        (false, _) => None,
        (true, known) => {
            let found = known.as_ref().map(|s| s.unfinished(&study.name.as_str().into())).transpose()?.flatten();
            let found = found.map(|id| known.as_ref().map(|s| s.load(id)).transpose()).transpose()?.flatten();
            let Some(run) = found else {
                return Err(Failure::new(Exit::Usage, format!("no run of {} was interrupted", study.name))
                    .help("`vmio runs list` shows all runs")
                    .into());
            };
            Some(run)
        }
    };
    if let Some(run) = &resumed {
        study = studies::parse(&format!("run {}", run.id), &run.study.to_toml())?;
    }
    if let Some(run) = resumed.as_ref().filter(|run| has_meter(&run.command) && wishes.power_command.is_none()) {
        let why = format!("run {} began with --power-command, whose command is not stored", run.id);
        return Err(Failure::new(Exit::Usage, why).help("give it again, or start a new run without --resume").into());
    }
    if resumed.is_some() && wishes.steady_state && !study.repeat.steady_state {
        return Err(Failure::new(
            Exit::Usage,
            "this run began without --steady-state, so its samples follow another rule",
        )
        .help("start a new run: leave out --resume")
        .into());
    }
    study.repeat.max_minutes = wishes.minutes.unwrap_or(study.repeat.max_minutes);
    if wishes.gib.is_some() && study.repeat.max_gib_written.is_none() {
        let why = format!("no cell of the study {} is on a disk, and --gib limits what is written to one", study.name);
        return Err(Failure::new(Exit::Usage, why).help("leave out --gib").into());
    }
    study.repeat.max_gib_written = study.repeat.max_gib_written.map(|gib| wishes.gib.unwrap_or(gib));
    if wishes.steady_state && !study.can_become_steady() {
        let why = format!("no cell of the study {} can become steady: only native cells on disks do", study.name);
        return Err(Failure::new(Exit::Usage, why).help("leave out --steady-state").into());
    }
    if wishes.steady_state {
        study.repeat.ask_for_steady_state();
    }
    drop(known);
    let reached = Reached::by(wishes, &study)?;
    let planned = plan::look(study, &wishes.of_plan(context, &reached), last.as_ref(), &looker)?;
    if let Some(run) = &resumed {
        same_place(run, &planned, wishes, &looker)?;
        enough_left(run, &planned)?;
    }
    let mut plan = report::plan::text(&planned);
    if let Some(then) = &wishes.then {
        plan += &report::plan::row("then", then);
    }
    // Asked for alone, the plan is the answer.
    if wishes.dry_run && !context.json {
        term::print(&format!("{}\n", plan.trim_end()))?;
    } else {
        term::note(plan.trim_end());
    }
    if let Some(run) = &resumed {
        let age = report::format::duration((environment::now() - run.started_unix).max(0.0));
        term::note(&format!("  {:<10} run {}, begun {age} ago, with {} samples", "resumes", run.id, run.samples.len()));
    }
    if wishes.dry_run {
        if context.json {
            term::json(&report::plan::json(&planned))?;
        }
        planned.refuse()?;
        term::note("dry run: nothing was changed");
        return Ok(None);
    }
    planned.refuse()?;
    if !wishes.yes {
        match term::confirm("Measure now?") {
            Some(true) => {}
            Some(false) => {
                term::note("nothing was done");
                return Ok(None);
            }
            None => {
                return Err(Failure::new(Exit::Usage, "there is nobody to ask, so nothing was measured")
                    .help("use --yes to start without asking, or --dry-run to see only the plan")
                    .into());
            }
        }
    }
    planned.still_holds(&looker)?;
    execute::execute(&planned, resumed, next, wishes, context).map(Some)
}

/// Going on makes the targets anew: the write budget must allow for that beside what was written already.
fn enough_left(run: &Run, planned: &plan::Planned) -> Result<(), Failure> {
    let wrote = spent(&run.samples).bytes_written.saturating_add(run.environment.written_beside_bytes);
    let making = planned.cost.making_bytes_written;
    let Some(budget) = planned.cost.budget_bytes.filter(|budget| wrote.saturating_add(making) > *budget) else {
        return Ok(());
    };
    let (wrote, making, budget) = (gib(wrote), gib(making), gib(budget));
    let what = format!("run {} wrote {wrote} of {budget}, and making the targets again writes {making}", run.id);
    Err(Failure::new(Exit::Precondition, what).help("allow for more with --gib; it counts all parts of the run"))
}

/// A run goes on only where and as it began: else two hosts would be mixed in one result.
fn same_place(run: &Run, planned: &plan::Planned, wishes: &Wishes, local: &Local) -> Result<(), Failure> {
    let (then, now) = (&run.environment, environment::of(planned, local));
    let cap = planned.gentle.then_some(wishes.gentle_share);
    let own_kernel = |e: &Environment| e.guest_kernel_file.clone().unwrap_or_else(|| "the image's own".to_owned());
    let shown = |cap: Option<f64>| cap.map_or("no cap".to_owned(), |c| format!("--gentle-share {c}"));
    let disk = |e: &Environment| e.modelled.as_ref().map_or("none".to_owned(), ToString::to_string);
    let afar = |e: &Environment| {
        let told = |afar: &RemoteHostInfo| format!("{afar}, {}", afar.device.as_ref().unwrap_or(&afar.dir));
        e.afar.as_ref().map_or("none".to_owned(), told)
    };
    let differs = [
        ("the storage", then.backing.clone(), now.backing.clone()),
        ("the modelled disk", disk(then), disk(&now)),
        ("the kernel", then.kernel.clone(), now.kernel.clone()),
        ("the guests' kernel", own_kernel(then), own_kernel(&now)),
        ("QEMU", then.qemu.clone().unwrap_or_default(), now.qemu.clone().unwrap_or_default()),
        ("--gentle", shown(then.cap_ratio), shown(cap)),
        ("the other machine", afar(then), afar(&now)),
        ("the peer", then.peer.clone().unwrap_or_default(), now.peer.clone().unwrap_or_default()),
    ];
    match differs.iter().find(|(_, then, now)| then != now) {
        None => Ok(()),
        Some((what, then, now)) => Err(Failure::new(
            Exit::Usage,
            format!("run {} cannot be resumed: {what} was {then} and is {now}", run.id),
        )
        .help(
            "give the same --on, --device, --gentle and --guest-kernel as then, or start a new run without --resume",
        )),
    }
}

/// The proofs of a run's findings; those that cannot be read are told.
pub fn proofs(store: &Store, run: i64) -> anyhow::Result<Vec<Run>> {
    let (proofs, unread) = proofs_of(store, run)?;
    unread.iter().for_each(|e| term::note(&format!("warning: a proof of this run is left out: {e}")));
    Ok(proofs)
}

/// Shows a run and says how it ended.
fn finish(run: &Run, forms: &Forms, fail_on: Option<Severity>, context: &Context) -> Outcome {
    let store = Store::open_existing(&context.paths.db())?;
    let proofs = proofs(&store, run.id)?;
    let report = Report::of(run).with_proofs(&proofs);
    forms.show(&report, context)?;
    if fail_on.is_some_and(|least| report.findings.iter().any(|f| f.severity >= least)) {
        return Ok(Exit::Finding);
    }
    Ok(ended::exit_of(run))
}
