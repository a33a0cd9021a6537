//! `vmio runs`: the store of results.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::cell::Cell;
use vmio_model::failure::{Exit, Failure};
use vmio_model::kind::RunKind;
use vmio_model::result::Accel;
use vmio_model::study::WordError;
use vmio_model::{sanitize, summary};

use crate::context::{Context, Outcome};
use crate::report::document::{Column, Document, Layout, Row, Table};
use crate::report::export::{self, Format};
use crate::report::{self, Forms, Report, format};
use crate::store::{Import, Imported, RunId, RunInfo, Store, StoreError};
use crate::{fit, run, term};

/// Columns of a study's name.
const STUDY: usize = 18;

/// List, show, compare, export, import and delete stored runs
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  vmio runs list                       all runs, newest first
  vmio runs show last                  the report of the newest run
  vmio runs show last --verbose        with every table and setting
  vmio runs show 7 --html report.html  the same as one HTML file
  vmio runs compare 3 7                what changed between two runs
  vmio runs export 7 --format csv      every sample, for other tools
  vmio runs import run-7.json          copy the run that was exported to this file
  vmio runs delete 3 --yes")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List all runs, newest first
    List,
    /// Show the report of a run
    Show {
        /// Number of the run, or `last`
        #[arg(default_value = "last")]
        run: RunId,
        #[command(flatten)]
        forms: Forms,
    },
    /// Compare two runs cell by cell, differences of their environments first
    Compare {
        /// The run to compare against: a number, or `last`
        a: RunId,
        /// The run to compare: a number, or `last`
        b: RunId,
    },
    /// Print a run for other tools
    Export {
        /// Number of the run, or `last`
        run: RunId,
        /// The format
        #[arg(long, value_enum, default_value = "json")]
        format: Format,
    },
    /// Copy runs that were exported elsewhere as JSON, with all samples
    Import {
        /// What `runs export --format json` wrote; a proof and the run that it proves belong together
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Delete a run and all its samples
    Delete {
        /// Number of the run
        #[arg(value_parser = number)]
        run: i64,
        /// Delete without asking
        #[arg(long, short)]
        yes: bool,
    },
}

/// The run to delete: by its number, since `last` is another one after the next.
fn number(text: &str) -> Result<i64, WordError> {
    let wrong = || WordError("name the run by its number in `vmio runs list`; `last` is not taken here".to_owned());
    text.parse().map_err(|_| wrong())
}

/// The help of `runs show`, where a file replaces the printed report.
pub fn instead(show: clap::Command) -> clap::Command {
    show.mut_args(|arg| {
        let Some(help) = arg.get_help().map(ToString::to_string) else { return arg };
        match help.strip_prefix("Also write ") {
            Some(what) => arg.help(format!("Write {what}, instead of printing the report")),
            None => arg,
        }
    })
}

/// The runs of a store, newest first.
#[derive(Serialize, JsonSchema)]
pub struct Listed<'a> {
    /// Version of this document.
    schema_version: &'static str,
    /// Its runs; empty where nothing is stored.
    runs: Vec<ListedRun<'a>>,
}

/// A run in the list.
#[derive(Serialize, JsonSchema)]
struct ListedRun<'a> {
    /// Its number.
    run: i64,
    /// Name of its study.
    study: &'a RunKind,
    /// When it began, in seconds since the epoch.
    started_unix_seconds: f64,
    /// How it ended: `running`, `done`, `interrupted`, `failed`.
    state: &'a str,
    /// Why it was broken off or failed.
    reason: Option<&'a str>,
    /// Samples.
    samples: u64,
    /// Cells that did not run.
    skipped: u64,
    /// Accelerator of its guests; `None` where none ran.
    accelerator: Option<Accel>,
    /// `uname -r` of the host.
    kernel: &'a str,
    /// CPU model of the host.
    cpu: &'a str,
}

impl<'a> ListedRun<'a> {
    fn of(r: &'a RunInfo) -> Self {
        let (state, reason) = format::state(&r.state);
        let RunInfo { id: run, kind: study, started_unix: started_unix_seconds, environment, samples, skipped, .. } = r;
        let (accelerator, kernel, cpu) = (environment.accel, &environment.kernel, &environment.cpu);
        let (run, samples, skipped, started_unix_seconds) = (*run, *samples, *skipped, *started_unix_seconds);
        Self { run, study, started_unix_seconds, state, reason, samples, skipped, accelerator, kernel, cpu }
    }
}

/// What was taken over from exports.
#[derive(Serialize, JsonSchema)]
pub struct Taken {
    /// Version of this document.
    schema_version: &'static str,
    /// Numbers that the runs have here; those that were here already are left out.
    imported: Vec<i64>,
    /// Files that could not be taken.
    refused: Vec<Refused>,
}

/// A file that could not be taken.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Refused {
    /// Its path.
    file: PathBuf,
    /// Why.
    reason: String,
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let store = match Store::open_existing(&context.paths.db()) {
        Err(StoreError::Missing { .. }) if matches!(args.verb, Verb::List) => None,
        Err(StoreError::Missing { .. }) if matches!(args.verb, Verb::Import { .. }) => {
            Some(Store::open(&context.paths.db())?)
        }
        other => Some(other?),
    };
    let Some(store) = store else {
        // A missing store is an empty list, not an error.
        if context.json {
            term::json(&Listed { schema_version: summary::SCHEMA_VERSION, runs: Vec::new() })?;
        }
        term::note(&format!("no runs yet in {}: start one with `vmio tax`", context.paths.state.display()));
        return Ok(Exit::Done);
    };
    match &args.verb {
        Verb::List => list(&store, context),
        Verb::Show { run, forms } => show(&store, run.find(&store)?, forms, context),
        Verb::Compare { a, b } => compare(&store, a.find(&store)?, b.find(&store)?, context),
        Verb::Export { run, format } => {
            let run = store.load_whole(run.find(&store)?)?;
            term::print_exact(&export::export(&run, *format))?;
            Ok(Exit::Done)
        }
        Verb::Delete { run, yes } => delete(&store, *run, *yes),
        Verb::Import { files } => {
            let mut import = Import::default();
            let (imported, mut failed) = import_all(files, &store, &mut import);
            import.finish(&store)?;
            if context.json {
                let refused =
                    failed.iter().map(|(file, e)| Refused { file: file.clone(), reason: with_causes(e) }).collect();
                term::json(&Taken { schema_version: summary::SCHEMA_VERSION, imported, refused })?;
            }
            match (files.len(), failed.len()) {
                (_, 0) => Ok(Exit::Done),
                (1, _) => Err(failed.remove(0).1.into()),
                (all, some) => {
                    failed.iter().for_each(|(_, e)| term::note(&format!("warning: {}", with_causes(e))));
                    let what = format!("{some} of {all} files could not be imported");
                    Err(Failure::new(Exit::Failed, what).help("the warnings above say why; the others are here").into())
                }
            }
        }
    }
}

/// Imports runs and notes the outcome of each. Returns the numbers of the new runs, and the files that could not be
/// imported.
pub fn import_all(files: &[PathBuf], store: &Store, import: &mut Import) -> (Vec<i64>, Vec<(PathBuf, StoreError)>) {
    let (mut new, mut refused) = (Vec::new(), Vec::new());
    for file in files {
        match import.take(store, file) {
            Ok(Imported::New(id)) => {
                term::note(&format!("imported as run {id}: `vmio runs show {id}` shows it"));
                new.push(id);
            }
            Ok(Imported::Known(id)) => term::note(&format!("already here as run {id}")),
            Ok(Imported::Longer { here, has, there }) => term::note(&format!(
                "warning: already here as run {here} with {has} samples; the export has {there}, since the run \
                 continued there. To get all: `vmio runs delete {here}`, then import it again"
            )),
            Ok(Imported::Running(id)) => {
                term::note(&format!("warning: run {id} is still being measured there and was skipped"));
            }
            Err(e) => refused.push((file.clone(), e)),
        }
    }
    (new, refused)
}

/// An error with those causes that its message does not already have.
pub fn with_causes(e: &StoreError) -> String {
    let said = e.to_string();
    let causes = term::new_causes(&said, anyhow::Chain::new(e).skip(1));
    std::iter::once(said).chain(causes).collect::<Vec<_>>().join(": ")
}

fn list(store: &Store, context: &Context) -> Outcome {
    let runs = store.list()?;
    if context.json {
        let runs = runs.iter().map(ListedRun::of).collect();
        term::json(&Listed { schema_version: summary::SCHEMA_VERSION, runs })?;
        return Ok(Exit::Done);
    }
    if runs.is_empty() {
        term::note("no runs yet: start one with `vmio tax`");
        return Ok(Exit::Done);
    }
    let mut doc = Document::new("");
    doc.put(table(&runs).into());
    term::print(&doc.text(context.style, fit::WIDTH))?;
    Ok(Exit::Done)
}

/// The runs as a table. Labels are aligned left, so the number is a column and the labels are empty.
fn table(runs: &[RunInfo]) -> Table {
    let columns = [
        Column::new("run", 4),
        Column::new("started (UTC)", 17).left().gap(2),
        Column::new("study", STUDY).left().gap(1),
        Column::new("state", 11).left().gap(1),
        Column::new("samples", 7).gap(1),
        Column::new("skipped", 7).gap(1),
        Column::new("guests on", 9).left().gap(1),
    ];
    let row = |run: &RunInfo| {
        let accel = match run.environment.accel {
            Some(Accel::Kvm) => "KVM",
            Some(Accel::Tcg) => "emulation",
            None => "–",
        };
        let cells = [
            run.id.to_string(),
            // To the minute.
            format::utc(run.started_unix).chars().take(16).collect::<String>(),
            fit::name(&run.kind.to_string(), STUDY),
            format::state(&run.state).0.to_owned(),
            run.samples.to_string(),
            run.skipped.to_string(),
            accel.to_owned(),
        ];
        Row::new("", cells)
    };
    Table::new("", Layout::flush(0), columns).with(runs.iter().map(row))
}

fn show(store: &Store, id: i64, forms: &Forms, context: &Context) -> Outcome {
    let run = store.load(id)?;
    let cells: Vec<Cell> = run.samples.iter().map(|s| s.cell.clone()).collect();
    forms.suits(&format!("run {id}"), &cells)?;
    let proofs = run::proofs(store, id)?;
    let report = Report::of(&run).with_proofs(&proofs).with_uncapped(run::uncapped(store, &run).as_ref());
    // With a file the report is not printed as well.
    if forms.writes() && !context.json && !forms.markdown {
        forms.write(&report)?;
    } else {
        forms.show(&report, context)?;
    }
    Ok(Exit::Done)
}

fn compare(store: &Store, a: i64, b: i64, context: &Context) -> Outcome {
    let (a, b) = (store.load(a)?, store.load(b)?);
    let emulated = [&a, &b].iter().any(|r| r.environment.accel == Some(Accel::Tcg));
    let comparison = summary::compare(&a, &b);
    if context.json {
        term::json(&comparison)?;
        return Ok(Exit::Done);
    }
    let mut text = report::comparison_text(&comparison, context.style);
    if emulated {
        text.truncate(text.trim_end().len());
        text += "\n! Guests ran under software emulation (TCG): rely on directions, not on sizes.\n";
    }
    term::print(&text)?;
    Ok(Exit::Done)
}

fn delete(store: &Store, id: i64, yes: bool) -> Outcome {
    let all = store.list()?;
    // The store reports a missing run; one that cannot be read is deleted without a question.
    if let Some(run) = all.iter().find(|run| run.id == id).filter(|_| !yes) {
        let question = format!(
            "delete run {id} ({}, {}, {})?",
            sanitize::line(&run.kind.to_string()),
            format::count(run.samples as usize, "sample"),
            format::utc(run.started_unix)
        );
        match term::confirm(&question) {
            Some(true) => {}
            Some(false) => {
                term::note("kept");
                return Ok(Exit::Done);
            }
            None => {
                return Err(Failure::new(Exit::Usage, format!("run {id} was not deleted: no terminal to ask on"))
                    .help("use --yes to delete without confirmation")
                    .into());
            }
        }
    }
    store.delete(id)?;
    term::note(&format!("run {id} deleted"));
    Ok(Exit::Done)
}
