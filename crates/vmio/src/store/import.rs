//! Runs of another store, of another host or of a lab host, and runs that were exported. Each comes whole or
//! not at all, and nothing is written where it comes from.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{ErrorCode, Transaction, TransactionBehavior, params};
use vmio_model::kind::RunKind;
use vmio_model::result::{Environment, Run, RunState};
use vmio_model::study::Study;

use super::{NewRun, Result, Store, StoreError, bounds, exported, guard, insert, to_json};

/// What became of a run that was to come over.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// It cannot be taken, and others can.
    Refused {
        /// Its number there.
        there: i64,
        /// In words.
        why: String,
    },
}

/// How a proof is called whose run is not here, before the number of that run.
const ELSEWHERE: &str = "proof-of-";

/// Numbers that runs of the other store have here, by those that they have there.
type Numbers = BTreeMap<i64, i64>;

impl Store {
    /// Takes over what is in a file; what became of each run, all at once. See [`Store::import_each`].
    ///
    /// # Errors
    /// As there.
    pub fn import_file(&self, file: &Path) -> Result<Vec<Imported>> {
        let mut all = Vec::new();
        self.import_each(file, &mut |imported| all.push(imported))?;
        Ok(all)
    }

    /// Takes over what is in a file: all runs of a store, or the run of a JSON export. What becomes of each is told
    /// as soon as it is so.
    ///
    /// # Errors
    /// See [`Store::import`]; when the export cannot be read, with the place in it.
    pub fn import_each(&self, file: &Path, tell: &mut dyn FnMut(Imported)) -> Result<()> {
        if let Some(run) = exported::read(file)? {
            tell(self.import_run(&run, file, &Numbers::new())?);
            return Ok(());
        }
        Store::open_taking(file).and_then(|from| self.import(&from, tell)).map_err(|e| match e {
            StoreError::Corrupt { path, .. } if path == file => {
                StoreError::NoStore { path, what: "it is no SQLite database, or is damaged" }
            }
            StoreError::Missing { path } if path == file => StoreError::NoFile { path },
            other => other,
        })
    }

    /// Takes over all runs of another store with all samples, the oldest first, and tells what becomes of each. A run
    /// that is here already (same command, same start, same host) is not taken twice. One that cannot be read or is
    /// too large is refused, and the others come.
    ///
    /// # Errors
    /// When one store cannot be read or the other not written; the runs that were told of are here then.
    pub fn import(&self, from: &Store, tell: &mut dyn FnMut(Imported)) -> Result<()> {
        let sql = format!("SELECT id FROM runs ORDER BY id LIMIT {}", bounds::RUNS + 1);
        let there = from.rows(&sql, params![], |row| row.get::<_, i64>(0))?;
        if there.len() > bounds::RUNS {
            return Err(from.too_much(format!("it has more runs than the {} that vmio takes at once", bounds::RUNS)));
        }
        let (mut numbers, mut proofs, mut refused) = (Numbers::new(), Vec::new(), 0);
        for id in there {
            let take = || {
                let run = from.load_whole(id)?;
                if let Some(at) = run.samples.iter().position(|s| s.beside.len() != s.cell.beside.len()) {
                    let what = format!("sample {at} of run {id} has not one result for each actor of its cell");
                    return Err(StoreError::Foreign { path: from.path.clone(), what });
                }
                Ok((self.import_run(&run, &from.path, &numbers)?, run.study))
            };
            let imported = match take() {
                Ok((imported, study)) => {
                    if let Imported::New(here) | Imported::Known(here) | Imported::Longer { here, .. } = imported {
                        numbers.insert(id, here);
                        proofs.extend(proven(&study).map(|of| (here, of)));
                    }
                    imported
                }
                Err(e) if is_of_one_run(&e, &from.path) && refused < bounds::REFUSED => {
                    refused += 1;
                    Imported::Refused { there: id, why: whole(&e) }
                }
                Err(e) => return Err(e),
            };
            tell(imported);
        }
        // A run may have come after its proof, or have another number since the proof came.
        proofs.into_iter().try_for_each(|(here, of)| numbers.get(&of).map_or(Ok(()), |of| self.proves(here, *of)))
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
        let fail = |e: rusqlite::Error| match e.sqlite_error_code() {
            // It is the other file that has it.
            Some(ErrorCode::TooBig) => StoreError::of(from, e),
            _ => self.error(e),
        };
        let transaction =
            Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate).map_err(|e| self.error(e))?;
        // Another import may have taken it meanwhile.
        if let Some(known) = self.known(run)? {
            return Ok(known);
        }
        let put = || {
            let here = head(&transaction, run, numbers)?;
            for (sample, texts) in run.samples.iter().zip(&texts) {
                insert::sample(&transaction, here, sample, texts)?;
            }
            Ok(here)
        };
        let here = put().map_err(fail)?;
        transaction.commit().map_err(fail)?;
        Ok(Imported::New(here))
    }

    /// Has a proof that is here name the run here whose finding it proves.
    fn proves(&self, proof: i64, of: i64) -> Result<()> {
        let words = self.rows("SELECT study, study_toml FROM runs WHERE id = ?", params![proof], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })?;
        let name = RunKind::Proof(of).to_string();
        // Nobody's file makes a proof of what is none here.
        let other_proof = |study: &str| study != name && (proven(&study.into()).is_some() || is_elsewhere(study));
        for (study, study_toml) in words.into_iter().filter(|(study, _)| other_proof(study)) {
            let sql = "UPDATE runs SET study = ?, study_toml = ? WHERE id = ?";
            let changed = self.connection.execute(sql, params![name, named(&study_toml, &study, &name), proof]);
            changed.map_err(|e| self.error(e))?;
        }
        Ok(())
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
    let Some(of) = proven(&run.study) else { return (run.study.clone(), run.study_toml.clone()) };
    let here = match numbers.get(&of) {
        Some(here) => RunKind::Proof(*here),
        None => RunKind::Study(format!("{ELSEWHERE}{of}-elsewhere")),
    };
    let toml = named(&run.study_toml, &run.study.to_string(), &here.to_string());
    (here, toml)
}

/// Whether it is what [`renumbered`] calls a proof whose run is not here.
fn is_elsewhere(study: &str) -> bool {
    let number = study.strip_prefix(ELSEWHERE).and_then(|rest| rest.strip_suffix("-elsewhere"));
    number.is_some_and(|number| number.parse::<i64>().is_ok())
}

/// The run whose finding a proof proves.
fn proven(study: &RunKind) -> Option<i64> {
    match study {
        RunKind::Proof(of) => Some(*of),
        _ => None,
    }
}

/// A study under another name, if it has the one that it is to have. The words of an old proof are no study.
fn named(study_toml: &str, name: &str, other: &str) -> String {
    match toml::from_str::<Study>(study_toml) {
        Ok(study) if study.name == name => Study { name: other.to_owned(), ..study }.to_toml(),
        _ => study_toml.to_owned(),
    }
}

/// Whether it is the fault of one run of that store, so that the others can come.
fn is_of_one_run(e: &StoreError, from: &Path) -> bool {
    match e {
        StoreError::TooMuch { path, .. } | StoreError::Json { path, .. } | StoreError::Foreign { path, .. } => {
            path == from
        }
        StoreError::NotFinite { .. } => true,
        _ => false,
    }
}

/// An error with what caused it.
fn whole(e: &StoreError) -> String {
    match std::error::Error::source(e) {
        Some(source) => format!("{e}: {source}"),
        None => e.to_string(),
    }
}
