//! Runs of another store, of another host or of a lab host, and runs that were exported. Each comes whole or
//! not at all.

use std::path::Path;

use rusqlite::{ErrorCode, params};
use vmio_model::result::{Run, RunState};

use super::{NewRun, Result, Store, StoreError, exported, guard, insert, to_json};

/// What became of a run that was to come over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imported {
    /// It is here now under this number.
    New(i64),
    /// It was here before under this number.
    Known(i64),
    /// Somebody still measured it there: it has this number there.
    Running(i64),
}

impl Store {
    /// Takes over what is in a file: all runs of a store, or the run of a JSON export.
    ///
    /// # Errors
    /// See [`Store::import`]; when the export cannot be read, with the place in it.
    pub fn import_file(&self, file: &Path) -> Result<Vec<Imported>> {
        match exported::read(file)? {
            Some(run) => Ok(vec![self.import_run(&run, file)?]),
            None => self.import(&Store::open_existing(file)?),
        }
    }

    /// Takes over all runs of another store with all samples, the oldest first. A run that is here
    /// already (same command, same start, same host) is not taken twice.
    ///
    /// # Errors
    /// When one store cannot be read or the other not written; the runs before are here then.
    pub fn import(&self, from: &Store) -> Result<Vec<Imported>> {
        from.list()?.iter().rev().map(|info| self.import_run(&from.load_whole(info.id)?, &from.path)).collect()
    }

    fn import_run(&self, run: &Run, from: &Path) -> Result<Imported> {
        if run.state == RunState::Running {
            return Ok(Imported::Running(run.id));
        }
        let known = self.one(
            "SELECT id FROM runs WHERE started_unix = ? AND command = ? AND environment = ?",
            params![run.started_unix, to_json(&run.command), to_json(&run.environment)],
        )?;
        if let Some(known) = known {
            return Ok(Imported::Known(known));
        }
        let texts = run.samples.iter().map(insert::Texts::of).collect::<Result<Vec<_>>>()?;
        // What could not be loaded again is not taken.
        if texts.iter().map(insert::Texts::bytes).sum::<usize>() > guard::MOST as usize {
            return Err(StoreError::TooMuch { path: from.into(), what: format!("run {} is too long", run.id) });
        }
        let take = || {
            let transaction = self.connection.unchecked_transaction()?;
            let new = NewRun {
                study: &run.study,
                study_toml: &run.study_toml,
                command: &run.command,
                started_unix: run.started_unix,
                environment: &run.environment,
                workloads: &run.workloads,
            };
            let here = insert::run(&transaction, &new, &run.state)?;
            for (sample, texts) in run.samples.iter().zip(&texts) {
                insert::sample(&transaction, here, sample, texts)?;
            }
            for (attachment, settings) in &run.effective {
                insert::effective(&transaction, here, attachment, settings)?;
            }
            for skipped in &run.skipped {
                insert::skipped(&transaction, here, skipped)?;
            }
            transaction.commit()?;
            Ok(here)
        };
        take().map(Imported::New).map_err(|e: rusqlite::Error| match e.sqlite_error_code() {
            // It is the other file that has it.
            Some(ErrorCode::TooBig) => StoreError::of(from, e),
            _ => self.error(e),
        })
    }
}
