//! Runs of another store, of another host or of a lab host, and runs that were exported. Each comes whole or
//! not at all, and nothing is written where it comes from.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{ErrorCode, Transaction, params};
use vmio_model::kind::RunKind;
use vmio_model::result::{Environment, Run, RunState};
use vmio_model::study::Study;

use super::{NewRun, Result, Store, StoreError, bounds, exported, guard, insert, to_json};

/// What became of a run that was to come over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imported {
    /// It is here now under this number.
    New(i64),
    /// It was here before under this number.
    Known(i64),
    /// It was here before, with fewer samples: it went on there.
    Longer {
        /// Its number here.
        here: i64,
        /// Samples that it has here.
        has: u64,
        /// Samples that it has there.
        there: u64,
    },
    /// Somebody still measured it there: it has this number there.
    Running(i64),
}

/// Numbers that runs of the other store have here, by those that they have there.
type Numbers = BTreeMap<i64, i64>;

impl Store {
    /// Takes over what is in a file: all runs of a store, or the run of a JSON export.
    ///
    /// # Errors
    /// See [`Store::import`]; when the export cannot be read, with the place in it.
    pub fn import_file(&self, file: &Path) -> Result<Vec<Imported>> {
        match exported::read(file)? {
            Some(run) => Ok(vec![self.import_run(&run, file, &Numbers::new())?]),
            None => Store::open_taking(file).and_then(|from| self.import(&from)).map_err(|e| match e {
                StoreError::Corrupt { path, source: Some(_) } if path == file => {
                    StoreError::NoStore { path, what: "it is no SQLite database, or is damaged" }
                }
                other => other,
            }),
        }
    }

    /// Takes over all runs of another store with all samples, the oldest first. A run that is here
    /// already (same command, same start, same host) is not taken twice.
    ///
    /// # Errors
    /// When one store cannot be read or the other not written; the runs before are here then.
    pub fn import(&self, from: &Store) -> Result<Vec<Imported>> {
        let there = from.list()?;
        if there.len() > bounds::RUNS {
            return Err(from.too_much(format!("it has {} runs, and vmio takes {}", there.len(), bounds::RUNS)));
        }
        let mut numbers = Numbers::new();
        let take = |info: &super::RunInfo| {
            let run = from.load_whole(info.id)?;
            if let Some(at) = run.samples.iter().position(|s| s.beside.len() != s.cell.beside.len()) {
                let what = format!("sample {at} of run {} has not one result for each actor of its cell", run.id);
                return Err(StoreError::Foreign { path: from.path.clone(), what });
            }
            let imported = self.import_run(&run, &from.path, &numbers)?;
            if let Imported::New(here) | Imported::Known(here) | Imported::Longer { here, .. } = imported {
                numbers.insert(run.id, here);
            }
            Ok(imported)
        };
        there.iter().rev().map(take).collect()
    }

    fn import_run(&self, run: &Run, from: &Path, numbers: &Numbers) -> Result<Imported> {
        if run.state == RunState::Running {
            return Ok(Imported::Running(run.id));
        }
        if let Some(known) = self.known(run)? {
            return Ok(known);
        }
        // What could not be loaded again is not taken.
        let too_much = |why: String| StoreError::TooMuch { path: from.into(), what: format!("run {}: {why}", run.id) };
        bounds::check(run).map_err(too_much)?;
        // Made before the store is locked: somebody may measure into it.
        let (mut texts, mut bytes) = (Vec::new(), 0);
        for sample in &run.samples {
            let text = insert::Texts::of(sample)?;
            bounds::short("a sample", text.own_bytes()).map_err(too_much)?;
            bytes += text.bytes();
            texts.push(text);
            if bytes > guard::MOST as usize {
                return Err(too_much("it is too long".into()));
            }
        }
        let take = || {
            let transaction = self.connection.unchecked_transaction()?;
            let here = head(&transaction, run, numbers)?;
            for (sample, texts) in run.samples.iter().zip(&texts) {
                insert::sample(&transaction, here, sample, texts)?;
            }
            transaction.commit()?;
            Ok(Imported::New(here))
        };
        take().map_err(|e: rusqlite::Error| match e.sqlite_error_code() {
            // It is the other file that has it.
            Some(ErrorCode::TooBig) => StoreError::of(from, e),
            _ => self.error(e),
        })
    }

    /// The run that is here already: same command, same start, same host.
    fn known(&self, run: &Run) -> Result<Option<Imported>> {
        let same = self.rows(
            "SELECT id, environment, (SELECT count(*) FROM samples WHERE run = runs.id) FROM runs
             WHERE started_unix = ? AND command = ?",
            params![run.started_unix, to_json(&run.command)],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, u64>(2)?)),
        )?;
        for (here, environment, has) in same {
            let environment: Environment = self.json(format!("the environment of run {here}"), &environment)?;
            if host(&environment) == host(&run.environment) {
                let there = run.samples.len() as u64;
                let longer = Imported::Longer { here, has, there };
                return Ok(Some(if there > has { longer } else { Imported::Known(here) }));
            }
        }
        Ok(None)
    }
}

/// What says where a run was made, and stays as it is while the run goes on.
fn host(environment: &Environment) -> impl PartialEq + '_ {
    let Environment { vmio, kernel, cpu, cpus, memory_bytes, node, .. } = environment;
    (vmio, kernel, cpu, cpus, memory_bytes, node)
}

/// All of a run but its samples; its number.
fn head(transaction: &Transaction<'_>, run: &Run, numbers: &Numbers) -> rusqlite::Result<i64> {
    let (study, study_toml) = renumbered(run, numbers);
    let new = NewRun {
        study: &study,
        study_toml: &study_toml,
        command: &run.command,
        started_unix: run.started_unix,
        environment: &run.environment,
        workloads: &run.workloads,
    };
    let here = insert::run(transaction, &new, &run.state)?;
    for (attachment, settings) in &run.effective {
        insert::effective(transaction, here, attachment, settings)?;
    }
    for skipped in &run.skipped {
        insert::skipped(transaction, here, skipped)?;
    }
    Ok(here)
}

/// What the run is of and its study, with the numbers that runs have here. A proof names the run whose finding it
/// proves; where that one did not come along, the number here is another run's or nobody's, and the word says so.
fn renumbered(run: &Run, numbers: &Numbers) -> (RunKind, String) {
    let RunKind::Proof(of) = run.study else { return (run.study.clone(), run.study_toml.clone()) };
    let here = match numbers.get(&of) {
        Some(here) => RunKind::Proof(*here),
        None => RunKind::Study(format!("proof-of-{of}-elsewhere")),
    };
    // The words of an old proof are no study.
    let toml = match toml::from_str::<Study>(&run.study_toml) {
        Ok(study) if study.name == run.study.to_string() => Study { name: here.to_string(), ..study }.to_toml(),
        _ => run.study_toml.clone(),
    };
    (here, toml)
}
