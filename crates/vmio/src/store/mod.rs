//! The store: every run with its raw samples, in one SQLite file `vmio.db` of the state directory.
//!
//! A sample is committed when [`Store::add_sample`] returns (see `open.rs` for the settings), so a
//! run that is broken off by Ctrl-C, SIGKILL or a power cut keeps all that was measured. Whoever
//! measures a run owns it (see `owner.rs`); a run that says "running" without an owner was
//! broken off, and every reader gets to see it as interrupted.

mod bounds;
mod engine;
mod error;
mod exported;
mod guard;
mod ids;
mod import;
mod insert;
mod load;
mod open;
mod owner;
mod private;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::de::DeserializeOwned;
use vmio_model::kind::RunKind;
use vmio_model::result::{Environment, RunState, Sample, Skipped, WorkloadTraits};
use vmio_model::study::Study;

pub use error::StoreError;
pub use ids::{RunId, proofs_of};
pub use import::{Import, Imported};
use owner::Owner;

/// An open store.
pub struct Store {
    path: PathBuf,
    connection: Connection,
    limit: guard::Limit,
    owned: RefCell<HashMap<i64, Owner>>,
}

/// A run when it begins.
#[derive(Debug, Clone)]
pub struct NewRun<'a> {
    /// Its kind.
    pub kind: &'a RunKind,
    /// The study as it was resolved.
    pub study: &'a Study,
    /// The command line.
    pub command: &'a [String],
    /// Seconds since the epoch.
    pub started_unix: f64,
    /// Where it is made; [`Store::set_environment`] completes it.
    pub environment: &'a Environment,
    /// The workloads' traits.
    pub workloads: &'a [WorkloadTraits],
}

/// A run in a list: all but its samples.
#[derive(Debug, Clone, PartialEq)]
pub struct RunInfo {
    /// Number in the store.
    pub id: i64,
    /// Its kind.
    pub kind: RunKind,
    /// Seconds since the epoch.
    pub started_unix: f64,
    /// How it ended; a run whose owner died is [`RunState::Interrupted`].
    pub state: RunState,
    /// Where it was made.
    pub environment: Environment,
    /// Samples stored.
    pub samples: u64,
    /// Cells that did not run.
    pub skipped: u64,
}

type Result<T> = std::result::Result<T, StoreError>;

/// Why a run without an owner ended.
const KILLED: &str = "vmio was killed, or the host went down, while it measured";

impl Store {
    fn of(path: &Path, (connection, limit): (Connection, guard::Limit)) -> Store {
        Store { path: path.into(), connection, limit, owned: RefCell::default() }
    }

    /// Opens the store for writing; makes it where there is none.
    pub fn open(path: &Path) -> Result<Store> {
        Ok(Store::of(path, open::writable(path)?))
    }

    /// Opens a store that must be there, for reading and deleting. Where the user may only read,
    /// nothing is written.
    pub fn open_existing(path: &Path) -> Result<Store> {
        Ok(Store::of(path, open::existing(path)?))
    }

    /// Opens a store that must be there, and changes nothing in it, whoever the user is.
    pub fn open_reading(path: &Path) -> Result<Store> {
        Ok(Store::of(path, open::reading(path)?))
    }

    /// Begins a run, owned by this store until it is closed or [`Store::set_state`] ends it.
    pub fn new_run(&self, new: &NewRun<'_>) -> Result<i64> {
        let transaction = self.connection.unchecked_transaction().map_err(|e| self.error(e))?;
        let id = insert::run(&transaction, new, &RunState::Running).map_err(|e| self.error(e))?;
        // Locked before the run is visible, so that no reader shows it as interrupted.
        self.take(id)?;
        transaction.commit().map_err(|e| self.error(e))?;
        Ok(id)
    }

    /// Resumes an interrupted run, which this store then owns.
    pub fn resume(&self, run: i64) -> Result<()> {
        self.exists(run)?;
        self.take(run)?;
        self.update(run, "state", &to_json(&RunState::Running))
    }

    /// Stores a sample; it is on the disk when this returns.
    pub fn add_sample(&self, run: i64, sample: &Sample) -> Result<()> {
        let texts = insert::Texts::of(sample)?;
        let insert = || {
            let transaction = self.connection.unchecked_transaction()?;
            insert::sample(&transaction, run, sample, &texts)?;
            transaction.commit()
        };
        insert().map_err(|e| self.error(e))
    }

    /// Stores the state of a run. Any state but `Running` also releases its lock.
    pub fn set_state(&self, run: i64, state: &RunState) -> Result<()> {
        self.update(run, "state", &to_json(state))?;
        if *state != RunState::Running {
            self.owned.borrow_mut().remove(&run);
        }
        Ok(())
    }

    /// Replaces the environment, once more of it is known.
    pub fn set_environment(&self, run: i64, environment: &Environment) -> Result<()> {
        self.update(run, "environment", &to_json(environment))
    }

    /// Stores settings by the place where they were read (a key of `ReadAt`), in place of earlier ones.
    pub fn add_effective(&self, run: i64, at: &str, settings: &BTreeMap<String, String>) -> Result<()> {
        insert::effective(&self.connection, run, at, settings).map_err(|e| self.error(e))?;
        Ok(())
    }

    /// Stores a cell that did not run, in place of an earlier reason.
    pub fn add_skipped(&self, run: i64, skipped: &Skipped) -> Result<()> {
        insert::skipped(&self.connection, run, skipped).map_err(|e| self.error(e))?;
        Ok(())
    }

    /// The newest run.
    pub fn last(&self) -> Result<Option<i64>> {
        self.one("SELECT max(id) FROM runs", params![])
    }

    /// All runs, the newest first.
    pub fn list(&self) -> Result<Vec<RunInfo>> {
        let sum = "SELECT sum(octet_length(study) + octet_length(state) + octet_length(environment) + 100) FROM runs";
        self.fits("its list of runs", self.one(sum, params![])?)?;
        let rows = self.rows(
            "SELECT id, study, started_unix, state, environment,
             (SELECT count(*) FROM samples WHERE run = runs.id), (SELECT count(*) FROM skipped WHERE run = runs.id)
             FROM runs ORDER BY id DESC",
            params![],
            |row| {
                let texts: (String, String) = (row.get(3)?, row.get(4)?);
                let counts: (u64, u64) = (row.get(5)?, row.get(6)?);
                Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?, texts, counts))
            },
        )?;
        let mut weight = bounds::Weight::default();
        rows.into_iter()
            .map(|(id, kind, started_unix, (state, environment), (samples, skipped))| {
                self.weighed(&mut weight, "its list of runs", &environment)?;
                Ok(RunInfo {
                    id,
                    kind: kind.as_str().into(),
                    started_unix,
                    state: self.state(id, &state)?,
                    environment: self.json(format!("the environment of run {id}"), &environment)?,
                    samples,
                    skipped,
                })
            })
            .collect()
    }

    /// The newest run of a kind that was interrupted by a signal or an error and can be resumed.
    pub fn unfinished(&self, kind: &RunKind) -> Result<Option<i64>> {
        let rows = self.rows(
            "SELECT id, state FROM runs WHERE study = ? ORDER BY id DESC",
            params![kind.to_string()],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)),
        )?;
        for (id, state) in rows {
            if matches!(self.state(id, &state)?, RunState::Interrupted(_) | RunState::Failed(_)) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Deletes a run and all that belongs to it; refused while it is being measured.
    pub fn delete(&self, run: i64) -> Result<()> {
        self.exists(run)?;
        if Owner::is_alive(&self.path, run) {
            return Err(StoreError::Owned { id: run });
        }
        self.connection.execute("DELETE FROM runs WHERE id = ?", [run]).map_err(|e| self.error(e))?;
        Owner::forget(&self.path, run);
        Ok(())
    }

    fn fits(&self, what: &str, bytes: Option<i64>) -> Result<()> {
        match bytes {
            Some(bytes) if bytes > guard::MOST => Err(self.too_much(format!("{what} has {} MiB", bytes >> 20))),
            _ => Ok(()),
        }
    }

    /// The stored state; a run in state `running` without an owner is interrupted.
    fn state(&self, run: i64, stored: &str) -> Result<RunState> {
        let state = self.json(format!("the state of run {run}"), stored)?;
        let orphan =
            state == RunState::Running && !self.owned.borrow().contains_key(&run) && !Owner::is_alive(&self.path, run);
        Ok(if orphan { RunState::Interrupted(KILLED.into()) } else { state })
    }

    fn take(&self, run: i64) -> Result<()> {
        let owner = Owner::take(&self.path, run)
            .map_err(|source| StoreError::Io { what: "lock a run beside", path: self.path.clone(), source })?
            .ok_or(StoreError::Owned { id: run })?;
        Owner::remove_dead(&self.path);
        self.owned.borrow_mut().insert(run, owner);
        Ok(())
    }

    fn exists(&self, run: i64) -> Result<()> {
        match self.one::<i64>("SELECT id FROM runs WHERE id = ?", params![run])? {
            Some(_) => Ok(()),
            None => Err(self.no_run(run)?),
        }
    }

    fn no_run(&self, id: i64) -> Result<StoreError> {
        let nearest = self.one("SELECT id FROM runs ORDER BY abs(id - ?), id DESC LIMIT 1", params![id])?;
        Ok(StoreError::NoRun { id, nearest, last: self.last()? })
    }

    fn update(&self, run: i64, column: &str, value: &str) -> Result<()> {
        let sql = format!("UPDATE runs SET {column} = ? WHERE id = ?");
        match self.connection.execute(&sql, params![value, run]).map_err(|e| self.error(e))? {
            0 => Err(self.no_run(run)?),
            _ => Ok(()),
        }
    }

    fn one<T: rusqlite::types::FromSql>(&self, sql: &str, params: &[&dyn rusqlite::ToSql]) -> Result<Option<T>> {
        let _asking = self.limit.asking();
        let found = self.connection.query_row(sql, params, |row| row.get(0)).optional();
        found.map(Option::flatten).map_err(|e| self.error(e))
    }

    fn rows<T>(
        &self,
        sql: &str,
        params: &[&dyn rusqlite::ToSql],
        map: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let _asking = self.limit.asking();
        let query = || self.connection.prepare_cached(sql)?.query_map(params, map)?.collect::<rusqlite::Result<_>>();
        query().map_err(|e| self.error(e))
    }

    /// Refuses a text that would not fit into memory, before it is parsed.
    fn weighed(&self, weight: &mut bounds::Weight, of: &str, text: &str) -> Result<()> {
        weight.add(text.as_bytes()).map_err(|why| self.too_much(format!("{of}: {why}")))
    }

    fn too_much(&self, what: String) -> StoreError {
        StoreError::TooMuch { path: self.path.clone(), what }
    }

    fn json<T: DeserializeOwned>(&self, what: String, text: &str) -> Result<T> {
        serde_json::from_str(text).map_err(|source| StoreError::Json { what, path: self.path.clone(), source })
    }

    fn error(&self, e: rusqlite::Error) -> StoreError {
        StoreError::of(&self.path, e)
    }
}

#[expect(clippy::disallowed_methods, reason = "for the database, not for a reader")]
fn to_json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("the model's types have string keys and no failing serialiser")
}
