//! Measures a study: the plan, the question, and the run itself.

use vmio_model::cell::Cell;
use vmio_model::failure::{Exit, Failure};
use vmio_model::kind::RunKind;
use vmio_model::result::{Environment, RemoteHostInfo};
use vmio_model::run::Run;
use vmio_model::study::Study;
use vmio_node::Local;
use vmio_rig::disks::space::gib;
use vmio_rig::engine::measure::Next;
use vmio_rig::engine::plan::{self, Planned, gib_for};
use vmio_rig::engine::{environment, spent};

use super::execute;
use super::options::RunOptions;
use super::reach::Reached;
use crate::context::{Context, has_meter};
use crate::store::{Store, StoreError};
use crate::{report, studies, term};

/// Measures a study; `None` where only the plan was asked for, or the question was answered with no.
pub(super) fn measure(
    study: &Study,
    next: Next,
    options: &RunOptions,
    context: &Context,
) -> anyhow::Result<Option<Run>> {
    let local = Local::new();
    let (last, resumed) = stored(study, options, context)?;
    let study = match &resumed {
        Some(run) => {
            let study = studies::parse(&format!("run {}", run.id), &run.study.to_toml())?;
            check_resumed(run, &study, options)?;
            study
        }
        None => study.clone(),
    };
    let study = with_options(study, options)?;
    let reached = Reached::by(options, &study)?;
    let look = |study| plan::look(study, &options.for_plan(context, &reached.nodes), last.as_ref(), &local);
    let mut planned = look(study)?;
    if planned.cost.over_bytes && options.gib.is_none() && resumed.is_none() && is_like(&planned.study) {
        let mut study = planned.study.clone();
        study.repeat.max_gib_written = gib_for(planned.cost.least_bytes_written).parse().ok();
        planned = look(study)?;
    }
    if let Some(run) = &resumed {
        same_place(run, &planned, options, &local)?;
        enough_left(run, &planned)?;
    }
    show(&planned, resumed.as_ref(), options, context)?;
    planned.refuse()?;
    if options.dry_run {
        term::note("dry run: nothing was changed");
        return Ok(None);
    }
    if !options.yes && !confirmed()? {
        return Ok(None);
    }
    planned.still_holds(&local)?;
    execute::execute(&planned, resumed, next, options, context).map(Some)
}

/// Whether a study has the sizes of a guest (`--like`), for which the write budget of what it is made of may be too
/// small.
fn is_like(study: &Study) -> bool {
    matches!(RunKind::from(study.name.as_str()), RunKind::Like(_))
}

/// The newest run, which the plan takes rates from, and the one that `--resume` continues.
fn stored(study: &Study, options: &RunOptions, context: &Context) -> anyhow::Result<(Option<Run>, Option<Run>)> {
    let store = match Store::open_existing(&context.paths.db()) {
        Ok(store) => Some(store),
        Err(StoreError::Missing { .. }) => None,
        // Told now, and not after the plan.
        Err(e) => return Err(context.unusable(e)),
    };
    let last = store.as_ref().and_then(|store| store.load(store.last().ok()??).ok());
    if !options.resume {
        return Ok((last, None));
    }
    let unfinished = store.as_ref().map(|store| store.unfinished(&study.name.as_str().into())).transpose()?.flatten();
    let (Some(store), Some(id)) = (store, unfinished) else {
        return Err(Failure::new(Exit::Usage, format!("no run of {} was interrupted", study.name))
            .help("`vmio runs list` shows all runs")
            .into());
    };
    Ok((last, Some(store.load(id)?)))
}

/// Refuses options with which a run cannot be resumed.
fn check_resumed(run: &Run, study: &Study, options: &RunOptions) -> Result<(), Failure> {
    if has_meter(&run.command) && options.power_command.is_none() {
        let why = format!("run {} began with --power-command, whose command is not stored", run.id);
        return Err(Failure::new(Exit::Usage, why).help("give it again, or start a new run without --resume"));
    }
    if options.steady_state && !study.repeat.steady_state {
        let why = "this run began without --steady-state, so its samples follow another rule";
        return Err(Failure::new(Exit::Usage, why).help("start a new run: leave out --resume"));
    }
    if options.components && !study.components {
        let why = "this run began without --components, and sampling takes time of what is measured";
        return Err(Failure::new(Exit::Usage, why).help("start a new run: leave out --resume"));
    }
    if options.layers && !study.layers {
        let why = "this run began without --layers, and counting events takes time of what is measured";
        return Err(Failure::new(Exit::Usage, why).help("start a new run: leave out --resume"));
    }
    Ok(())
}

/// The study with the user's budgets and `--steady-state`.
fn with_options(mut study: Study, options: &RunOptions) -> Result<Study, Failure> {
    study.repeat.max_minutes = options.minutes.unwrap_or(study.repeat.max_minutes);
    if options.gib.is_some() && study.repeat.max_gib_written.is_none() {
        let why = format!("no cell of the study {} is on a disk, and --gib limits what is written to one", study.name);
        return Err(Failure::new(Exit::Usage, why).help("leave out --gib"));
    }
    study.repeat.max_gib_written = study.repeat.max_gib_written.map(|gib| options.gib.unwrap_or(gib));
    if options.steady_state {
        if !study.can_become_steady() {
            let why = format!("no cell of the study {} can become steady: only native cells on disks do", study.name);
            return Err(Failure::new(Exit::Usage, why).help("leave out --steady-state"));
        }
        study.repeat.ask_for_steady_state();
    }
    study.components |= options.components;
    study.layers |= options.layers;
    Ok(study)
}

/// Shows the plan: on standard output where it alone is asked for as text, else on standard error.
fn show(planned: &Planned, resumed: Option<&Run>, options: &RunOptions, context: &Context) -> anyhow::Result<()> {
    let mut plan = report::plan::text(planned);
    if let Some(then) = &options.then {
        plan += &report::plan::row("then", then);
    }
    if options.dry_run && !context.json {
        term::print(&format!("{}\n", plan.trim_end()))?;
    } else {
        term::note(plan.trim_end());
    }
    if let Some(run) = resumed {
        let age = report::format::duration((environment::now() - run.started_unix).max(0.0));
        let text =
            format!("run {}, begun {age} ago, with {}", run.id, report::format::count(run.samples.len(), "sample"));
        term::note(report::plan::row("resumes", &text).trim_end());
    }
    if options.dry_run && context.json {
        term::json(&report::plan::json(planned))?;
    }
    Ok(())
}

/// Asks whether to measure.
fn confirmed() -> Result<bool, Failure> {
    let answer = term::confirm("Measure now?").ok_or_else(|| {
        Failure::new(Exit::Usage, "no terminal to ask on, so nothing was measured")
            .help("use --yes to start without asking, or --dry-run to see only the plan")
    })?;
    if !answer {
        term::note("nothing was done");
    }
    Ok(answer)
}

/// Refuses to resume a run whose write budget does not allow for making its targets anew.
fn enough_left(run: &Run, planned: &Planned) -> Result<(), Failure> {
    let wrote = spent(&run.samples).bytes_written.saturating_add(run.environment.written_beside_bytes);
    let making = planned.cost.making_bytes_written;
    let Some(budget) = planned.cost.budget_bytes.filter(|budget| wrote.saturating_add(making) > *budget) else {
        return Ok(());
    };
    let (wrote, making, budget) = (gib(wrote), gib(making), gib(budget));
    let what = format!("run {} wrote {wrote} of {budget}, and creating the targets again writes {making}", run.id);
    Err(Failure::new(Exit::Precondition, what).help("allow for more with --gib; it counts all parts of the run"))
}

/// Refuses to resume a run on another host, storage or kernel, or capped otherwise: its samples would not compare.
fn same_place(run: &Run, planned: &Planned, options: &RunOptions, local: &Local) -> Result<(), Failure> {
    let (then, now) = (&run.environment, environment::of(planned, local));
    let cap = planned.gentle.then_some(options.gentle_share);
    let guest_kernel = |e: &Environment| e.guest_kernel_file.clone().unwrap_or_else(|| "the image's own".to_owned());
    let gentle = |cap: Option<f64>| cap.map_or("no cap".to_owned(), |c| format!("--gentle-share {c}"));
    let disk = |e: &Environment| e.modelled.as_ref().map_or("none".to_owned(), ToString::to_string);
    let afar = |e: &Environment| {
        let place = |afar: &RemoteHostInfo| format!("{afar}, {}", afar.device.as_ref().unwrap_or(&afar.dir));
        e.afar.as_ref().map_or("none".to_owned(), place)
    };
    let cells = planned.study.cells();
    let differs = [
        ("the storage", then.backing.clone(), now.backing.clone()),
        ("the modelled disk", disk(then), disk(&now)),
        ("the kernel", then.kernel.clone(), now.kernel.clone()),
        ("the guests' kernel", guest_kernel(then), guest_kernel(&now)),
        (Cell::hypervisor(&cells), then.qemu.clone().unwrap_or_default(), now.qemu.clone().unwrap_or_default()),
        ("--gentle", gentle(then.cap_ratio), gentle(cap)),
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
