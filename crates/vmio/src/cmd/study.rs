//! `vmio study`: the studies that come with vmio, and one's own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};
use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::cell::Cell;
use vmio_model::failure::{Exit, Failure};
use vmio_model::paper::{self, Paper};
use vmio_model::run::Run;
use vmio_model::simulate::measured::{self, Load, Trial};
use vmio_model::simulate::paper::Paper as Experiment;
use vmio_model::simulate::{self, Scenario, judged};
use vmio_model::study::Study;
use vmio_model::summary::summarise;
use vmio_rig::workloads::net::family;

use crate::context::{Context, Outcome};
use crate::report::{self, Forms, experiment};
use crate::run::{self, Mode, RunOptions};
use crate::store::{RunId, Store};
use crate::{fit, papers, studies, term};

/// List, show and run studies: whole experiments from a TOML file
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  vmio study list
  vmio study show sparse > mine.toml   a file to start your own study from
  vmio study run sparse --yes          first writes: sparse against preallocated
  vmio study run ./mine.toml --dry-run
  vmio study compare shafer2010-storage paper
                                       which of the paper's effects appear here
  vmio study compare amamou2012 paper --html amamou2012.html
                                       rates over time next to those simulated")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the studies that come with vmio
    List,
    /// Print a study's TOML
    Show {
        /// Name of a study
        #[arg(value_parser = Offered(bundled), hide_possible_values = true)]
        name: String,
    },
    /// Run a study
    Run {
        /// Name of a study, or path of a TOML file
        #[arg(value_parser = Offered(bundled), hide_possible_values = true)]
        study: String,
        #[command(flatten)]
        options: Box<RunOptions>,
        #[command(flatten)]
        forms: Forms,
    },
    /// Check which effects that a paper reports appear in your newest run of its study
    Compare {
        /// Name of a study that repeats a paper's measurements
        #[arg(value_parser = Offered(of_papers), hide_possible_values = true)]
        study: String,
        /// What to compare it with
        #[arg(value_enum)]
        with: With,
        /// Use this run instead: its number, or `last`
        #[arg(long, value_name = "RUN")]
        of: Option<RunId>,
        /// Write rates over time to FILE as HTML (amamou2012 and its variants alone)
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
}

/// Takes any word, and offers these to a shell that completes it.
#[derive(Clone)]
struct Offered(fn() -> Vec<&'static str>);

impl TypedValueParser for Offered {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}

/// Names of the studies that come with vmio.
pub(super) fn bundled() -> Vec<&'static str> {
    studies::ALL.iter().map(|(name, _)| *name).collect()
}

/// Of these, those that repeat a paper's measurements.
pub(super) fn of_papers() -> Vec<&'static str> {
    papers::all().iter().flat_map(Paper::all_studies).chain(papers::experiments()).collect()
}

/// What a study can be compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum With {
    /// The paper's published figures
    Paper,
}

/// The studies that come with vmio.
#[derive(Serialize, JsonSchema)]
pub struct Listed {
    /// Version of this document.
    schema_version: &'static str,
    /// The studies.
    studies: Vec<ListedStudy>,
}

/// A study in the list.
#[derive(Serialize, JsonSchema)]
struct ListedStudy {
    /// Its name, for `vmio study run`.
    name: String,
    /// What it is about.
    title: String,
    /// What it follows or reproduces; may be empty.
    cites: String,
    /// Cells that it measures.
    cells: usize,
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    match &args.verb {
        Verb::List => list(context),
        Verb::Show { name } => {
            let text = match studies::ALL.iter().find(|(known, _)| known == name) {
                Some((_, text)) => (*text).to_owned(),
                None => studies::named(name)?.to_toml(),
            };
            term::print(&text)?;
            Ok(Exit::Done)
        }
        Verb::Run { study, options, forms } => {
            options.supervise(context);
            run::start(&studies::named(study)?, Mode::Study, options, forms, None, context)
        }
        Verb::Compare { study, with: With::Paper, of, html } => compare(study, *of, html.as_deref(), context),
    }
}

fn compare(study: &str, of: Option<RunId>, html: Option<&Path>, context: &Context) -> Outcome {
    if let Some((paper, scenario)) = papers::experiment(study) {
        let store = Store::open_existing(&context.paths.db())?;
        // The rates over time are in the raw outputs of the programs.
        let run = store.load_whole(run_of(study, of, &store)?)?;
        return experiment(&run, paper, &scenario, html, context);
    }
    if html.is_some() {
        let what = format!("{study} is not an experiment over time; --html draws only those");
        return Err(Failure::new(Exit::Usage, what).help("`vmio runs show --html FILE` draws a run").into());
    }
    let Some(paper) = papers::of_study(study) else {
        let what = format!("{study} does not repeat a paper's measurements");
        return Err(Failure::new(Exit::Usage, what).help(format!("one of {}", of_papers().join(", "))).into());
    };
    let store = Store::open_existing(&context.paths.db())?;
    let run = store.load(run_of(study, of, &store)?)?;
    let compared = paper::judge(paper, &run, &summarise(&run));
    if context.json {
        term::json(&compared)?;
    } else {
        term::print(&report::effects_text(&compared, context.style))?;
    }
    Ok(Exit::Done)
}

/// An experiment over time, beside its simulation and the published figures.
fn experiment(run: &Run, paper: Experiment, scenario: &Scenario, html: Option<&Path>, context: &Context) -> Outcome {
    let trials = measured::trials(run, &run.study, scenario, &load);
    let beside = |trial: &Trial| {
        let simulated =
            trial.can_be_simulated().then(|| simulate::run(&trial.scenario, &trial.settings)).transpose()?;
        let judged = judged::judge(trial, &trials);
        anyhow::Ok(experiment::SimulatedCell { trial: trial.clone(), simulated, judged })
    };
    if trials.is_empty() {
        let what = format!("run {} measured no cell of the experiment", run.id);
        return Err(Failure::new(Exit::Precondition, what).help(format!("vmio runs show {} says why", run.id)).into());
    }
    let report = experiment::Report {
        run: run.id,
        cells: trials.iter().map(beside).collect::<anyhow::Result<_>>()?,
        printed: scenario.capacity,
        paper,
        missing: run.skipped.iter().map(|skipped| (short(&skipped.cell), skipped.reason.clone())).collect(),
        command: format!("{}\n{}", run.command.join(" "), context.command.join(" ")),
    };
    if let Some(file) = html {
        crate::files::write(file, &experiment::html(&report))?;
        term::note(&format!("Plots: {}", file.display()));
    }
    if context.json {
        term::json(&experiment::json(&report))?;
    } else {
        term::print(&experiment::text(&report, context.style))?;
    }
    Ok(Exit::Done)
}

/// The load of a workload of datagrams, in what it counts.
fn load(workload: &str) -> Option<Load> {
    let stream = family::parse(workload)?.ok()?;
    Some(Load { steps: stream.rates().collect(), waits: stream.waits })
}

/// A cell of an experiment in short: its side and settings.
fn short(cell: &Cell) -> String {
    let settings: Vec<String> = cell.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("{} {} [{}]", cell.actors().count(), cell.lead.side.kind, settings.join(", "))
}

/// The run to compare: the one that was named, else the newest one of the study with samples.
fn run_of(study: &str, of: Option<RunId>, store: &Store) -> anyhow::Result<i64> {
    let runs = store.list()?;
    let Some(named) = of else {
        let newest = runs.iter().find(|r| r.kind.study() == Some(study) && r.samples > 0);
        return newest.map(|r| r.id).ok_or_else(|| {
            Failure::new(Exit::Precondition, format!("no run of {study} is stored"))
                .help(format!("start one with `vmio study run {study}`"))
                .into()
        });
    };
    let id = named.find(store)?;
    match runs.iter().find(|r| r.id == id) {
        Some(run) if run.kind.study() != Some(study) => {
            let what = format!("run {id} belongs to the study {}, not to {study}", run.kind);
            Err(Failure::new(Exit::Usage, what).help("`vmio runs list` shows the study of each run").into())
        }
        // The store reports a run that is missing.
        _ => Ok(id),
    }
}

fn list(context: &Context) -> Outcome {
    let all: Vec<_> = studies::ALL.iter().map(|(name, _)| studies::named(name)).collect::<Result<_, _>>()?;
    if context.json {
        let entry = |s: &'_ Study| ListedStudy {
            name: s.name.clone(),
            title: s.title.clone(),
            cites: s.cites.clone(),
            cells: s.cells().len(),
        };
        term::json(&Listed { schema_version: "1.0", studies: all.iter().map(entry).collect() })?;
        return Ok(Exit::Done);
    }
    let width = all.iter().map(|s| s.name.len()).max().unwrap_or(0);
    let line = |s: &Study| {
        let lead = format!("{:<width$} {:>4} cells  ", s.name, s.cells().len());
        fit::paragraph(&lead, lead.len(), &s.title)
    };
    let lines: Vec<String> = all.iter().map(line).collect();
    term::print(&lines.concat())?;
    Ok(Exit::Done)
}
