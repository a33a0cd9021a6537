//! Imports runs that were exported on another host or in a lab host. Each one is imported whole or not at all.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{ErrorCode, Transaction, TransactionBehavior, params};
use vmio_model::kind::RunKind;
use vmio_model::result::{Environment, RunState};
use vmio_model::run::Run;
use vmio_model::study::Study;

use super::bounds::{self, Excess};
use super::{NewRun, Result, Store, StoreError, exported, guard, insert, to_json};

/// The outcome of importing a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Imported {
    /// It was imported under this number.
    New(i64),
    /// It was already here under this number.
    Known(i64),
    /// It was already here, with fewer samples: it was resumed on the other host.
    Longer {
        /// Its number here.
        here: i64,
        /// Its samples here.
        has: u64,
        /// Its samples there.
        there: u64,
    },
    /// It is still being measured there, under this number of that store.
    Running(i64),
}

/// Prefix of the kind of a proof whose run is not here; the number of that run follows.
const ELSEWHERE: &str = "proof-of-";

/// Runs that are imported together. A proof names its run by that run's number in the other store; the run may be
/// imported before or after it.
#[derive(Debug, Default)]
pub struct Import {
    /// Whether their host has ended, so that a run in state `running` was interrupted.
    orphaned: bool,
    /// Numbers here by numbers there; `None` where runs of several stores had the same number.
    numbers: Numbers,
    /// Numbers of proofs here, each with the number that its run has there.
    proofs: Vec<(i64, i64)>,
}

type Numbers = BTreeMap<i64, Option<i64>>;

impl Import {
    /// Runs of a host that has ended, such as a lab host.
    pub fn of_ended_host() -> Self {
        Self { orphaned: true, ..Self::default() }
    }

    /// Imports the run of an export with all samples. One that is here already (same command, start and host) is not
    /// imported twice.
    ///
    /// # Errors
    /// When the export cannot be read, with the place in it; when it is too large; when the store cannot be written.
    pub fn take(&mut self, store: &Store, file: &Path) -> Result<Imported> {
        let mut run = exported::read(file)?;
        if self.orphaned && run.state == RunState::Running {
            run.state = RunState::Interrupted("its host ended while it was measured".to_owned());
        }
        let imported = store.import_run(&run, file)?;
        if let Imported::New(here) | Imported::Known(here) | Imported::Longer { here, .. } = imported {
            let number = self.numbers.entry(run.id).or_insert(Some(here));
            if *number != Some(here) {
                *number = None;
            }
            self.proofs.extend(proven(&run.kind).map(|of| (here, of)));
        }
        Ok(imported)
    }

    /// Makes each proof name its run by that run's number here.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn finish(self, store: &Store) -> Result<()> {
        // The proven run may be imported after its proof, and may have another number here.
        let here = |of: &i64| self.numbers.get(of).copied().flatten();
        self.proofs.iter().try_for_each(|(proof, of)| here(of).map_or(Ok(()), |of| store.proves(*proof, of)))
    }
}

impl Store {
    fn import_run(&self, run: &Run, from: &Path) -> Result<Imported> {
        if run.state == RunState::Running {
            return Ok(Imported::Running(run.id));
        }
        if let Some(known) = self.imported_before(run)? {
            return Ok(known);
        }
        // A run that could not be loaded again is refused.
        let too_much = |why: Excess| StoreError::TooMuch { path: from.into(), what: format!("run {}: {why}", run.id) };
        bounds::check(run).map_err(too_much)?;
        // Serialised before the store is locked, since another process may be storing samples.
        let (mut texts, mut bytes) = (Vec::new(), 0);
        for sample in &run.samples {
            let text = insert::Texts::of(sample)?;
            bounds::short("a sample", text.own_bytes(), bounds::TEXT).map_err(too_much)?;
            bytes += text.bytes();
            texts.push(text);
            if bytes > guard::MOST as usize {
                return Err(too_much(Excess::Samples));
            }
        }
        let fail = |e: rusqlite::Error| match e.sqlite_error_code() {
            // The imported file has the text that is too long, not the store.
            Some(ErrorCode::TooBig) => StoreError::of(from, e),
            _ => self.error(e),
        };
        let transaction =
            Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate).map_err(|e| self.error(e))?;
        // Another process may have imported it meanwhile.
        if let Some(known) = self.imported_before(run)? {
            return Ok(known);
        }
        let put = || {
            let here = head(&transaction, run)?;
            for (sample, texts) in run.samples.iter().zip(&texts) {
                insert::sample(&transaction, here, sample, texts)?;
            }
            Ok(here)
        };
        let here = put().map_err(fail)?;
        transaction.commit().map_err(fail)?;
        Ok(Imported::New(here))
    }

    /// Makes a proof name its run by that run's number here.
    fn proves(&self, proof: i64, of: i64) -> Result<()> {
        let words = self.rows("SELECT study, study_toml FROM runs WHERE id = ?", params![proof], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })?;
        let name = RunKind::Proof(of).to_string();
        // An imported file cannot make a proof of a run that is none here.
        let other_proof = |kind: &str| kind != name && (proven(&kind.into()).is_some() || is_elsewhere(kind));
        for (kind, study_toml) in words.into_iter().filter(|(kind, _)| other_proof(kind)) {
            let sql = "UPDATE runs SET study = ?, study_toml = ? WHERE id = ?";
            let study: Study = toml::from_str(&study_toml).map_err(|source| StoreError::Study {
                run: proof,
                path: self.path.clone(),
                source,
            })?;
            let changed = self.connection.execute(sql, params![name, named(&study, &kind, &name).to_toml(), proof]);
            changed.map_err(|e| self.error(e))?;
        }
        Ok(())
    }

    /// The stored run with the same command, start and host.
    fn imported_before(&self, run: &Run) -> Result<Option<Imported>> {
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

/// The part of an environment that names the host and does not change during a run.
fn host(environment: &Environment) -> impl PartialEq + '_ {
    let Environment { vmio, kernel, cpu, cpus, memory_bytes, node, .. } = environment;
    (vmio, kernel, cpu, cpus, memory_bytes, node)
}

/// Inserts all of a run but its samples; its number.
fn head(transaction: &Transaction<'_>, run: &Run) -> rusqlite::Result<i64> {
    let (kind, study) = not_here(run);
    let new = NewRun {
        kind: &kind,
        study: &study,
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

/// The kind of the run, and its study. A proof has a kind of its own ([`not_here`]) until [`Import::finish`] knows its
/// run here.
fn not_here(run: &Run) -> (RunKind, Study) {
    let Some(of) = proven(&run.kind) else { return (run.kind.clone(), run.study.clone()) };
    let kind = RunKind::Study(format!("{ELSEWHERE}{of}-elsewhere"));
    let study = named(&run.study, &run.kind.to_string(), &kind.to_string());
    (kind, study)
}

/// Whether a kind is one of [`not_here`].
fn is_elsewhere(kind: &str) -> bool {
    let number = kind.strip_prefix(ELSEWHERE).and_then(|rest| rest.strip_suffix("-elsewhere"));
    number.is_some_and(|number| number.parse::<i64>().is_ok())
}

/// The number of the run whose finding a proof proves.
fn proven(kind: &RunKind) -> Option<i64> {
    match kind {
        RunKind::Proof(of) => Some(*of),
        _ => None,
    }
}

/// A study under another name, if it has the one that it is to have.
fn named(study: &Study, name: &str, other: &str) -> Study {
    let name = if study.name == name { other } else { &study.name };
    Study { name: name.to_owned(), ..study.clone() }
}
