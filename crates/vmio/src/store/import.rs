//! Runs of another store: of another host, or of a lab host. Each comes whole or not at all.

use rusqlite::params;
use vmio_model::result::RunState;

use super::{NewRun, Result, Store, insert, to_json};

/// What became of a run of the other store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imported {
    /// It is here now under this number.
    New(i64),
    /// It was here before under this number.
    Known(i64),
    /// Somebody still measures it there: it has this number there.
    Running(i64),
}

impl Store {
    /// Takes over all runs of another store with all samples, the oldest first. A run that is here
    /// already (same command, same start, same host) is not taken twice.
    ///
    /// # Errors
    /// When one store cannot be read or the other not written; the runs before are here then.
    pub fn import(&self, from: &Store) -> Result<Vec<Imported>> {
        from.list()?.iter().rev().map(|info| self.import_one(from, info.id)).collect()
    }

    fn import_one(&self, from: &Store, id: i64) -> Result<Imported> {
        let run = from.load_whole(id)?;
        if run.state == RunState::Running {
            return Ok(Imported::Running(id));
        }
        let known = self.one(
            "SELECT id FROM runs WHERE started_unix = ? AND command = ? AND environment = ?",
            params![run.started_unix, to_json(&run.command), to_json(&run.environment)],
        )?;
        if let Some(known) = known {
            return Ok(Imported::Known(known));
        }
        let texts = run.samples.iter().map(insert::Texts::of).collect::<Result<Vec<_>>>()?;
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
        take().map(Imported::New).map_err(|e| self.error(e))
    }
}
