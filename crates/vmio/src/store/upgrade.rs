//! From format 1 to format 2: cells with actors, workloads with figures. Samples are rewritten one by one, in
//! the transaction that also changes the tables: a file has one format or the other, whenever vmio ends.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, params};
use serde::de::DeserializeOwned;
use vmio_model::result::WorkloadTraits;

use super::guard::Limit;
use super::old::{self, Timed};
use super::owner::Owner;
use super::{StoreError, insert, to_json};

/// A file on its way to another format, within a transaction.
pub(super) struct Upgrade<'a> {
    pub(super) path: &'a Path,
    pub(super) connection: &'a Connection,
    pub(super) limit: &'a Limit,
}

/// The tables that differ. What is selected from most is in columns, all else in the JSON of a sample.
const TABLES: &str = "
    DROP INDEX samples_of_run;
    ALTER TABLE samples RENAME TO old_samples;
    ALTER TABLE raw RENAME TO old_raw;
    ALTER TABLE skipped RENAME TO old_skipped;
    CREATE TABLE samples (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        cell TEXT NOT NULL,          -- Cell::key()
        round INTEGER NOT NULL,
        boot INTEGER NOT NULL,
        started_unix REAL NOT NULL,
        seconds REAL NOT NULL,
        sample TEXT NOT NULL         -- JSON of Sample; each raw output is null
    ) STRICT;
    CREATE INDEX samples_of_run ON samples (run, cell);
    CREATE TABLE raw (               -- the tools' own outputs whole, apart so that reports need not read them
        sample INTEGER NOT NULL REFERENCES samples ON DELETE CASCADE,
        actor INTEGER NOT NULL,      -- 0: the leading one; then those beside it
        output TEXT NOT NULL,        -- JSON
        PRIMARY KEY (sample, actor)
    ) STRICT;
    CREATE TABLE skipped (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        cell TEXT NOT NULL,          -- Cell::key()
        whole TEXT NOT NULL,         -- JSON of Cell
        reason TEXT NOT NULL,
        PRIMARY KEY (run, cell)
    ) STRICT;
";

/// What is left to do once the samples are rewritten. Whoever deleted a run with `sqlite3`, which minds no references
/// unless it is told to, left rows that belong to nothing: they stay behind.
const REST: &str = "
    INSERT INTO raw (sample, actor, output)
        SELECT sample, 0, output FROM old_raw WHERE sample IN (SELECT id FROM samples);
    DROP TABLE old_raw;
    DROP TABLE old_samples;
    DROP TABLE old_skipped;
";

/// The same of the table that stays as it is.
const LEFT: &str = "DELETE FROM effective WHERE run NOT IN (SELECT id FROM runs)";

/// The least that a row takes in a file, whatever is in it.
const ROW: &str = "4";

/// See the module.
pub(super) fn to_format_2(upgrade: &Upgrade<'_>) -> Result<(), StoreError> {
    upgrade.is_nobodys()?;
    upgrade.is_no_more_than_its_file()?;
    let sql = |text: &str| upgrade.connection.execute_batch(text).map_err(|e| upgrade.error(e));
    sql(TABLES)?;
    let timed = upgrade.samples()?;
    upgrade.runs(&timed)?;
    upgrade.skipped()?;
    sql(REST)?;
    let _asking = upgrade.limit.asking();
    sql(LEFT)
}

impl Upgrade<'_> {
    /// Refuses to change what an older vmio is about to write to. A copy, which has no name, is written by nobody.
    fn is_nobodys(&self) -> Result<(), StoreError> {
        if self.connection.path().is_none_or(str::is_empty) {
            return Ok(());
        }
        let running = self.rows("SELECT id, state FROM runs", |id, state| Ok((id, state.to_owned())))?;
        let alive = |(id, state): &(i64, String)| state.contains("running") && Owner::is_alive(self.path, *id);
        match running.iter().find(|run| alive(run)) {
            Some(&(id, _)) => Err(StoreError::Owned { id }),
            None => Ok(()),
        }
    }

    /// Pages that somebody linked in a ring would be copied without an end. No honest file holds more than its
    /// size.
    fn is_no_more_than_its_file(&self) -> Result<(), StoreError> {
        let _asking = self.limit.asking();
        let number = |sql: &str| -> Result<i64, StoreError> {
            self.connection.query_row(sql, [], |row| row.get(0)).map_err(|e| self.error(e))
        };
        let size = number("PRAGMA page_count")?.saturating_mul(number("PRAGMA page_size")?);
        for (table, texts) in [
            ("runs", "octet_length(workloads) + octet_length(study_toml)"),
            ("samples", "octet_length(sample) + octet_length(cell)"),
            ("raw", "octet_length(output)"),
            ("skipped", "octet_length(setup) + octet_length(reason)"),
            ("effective", "octet_length(attachment) + octet_length(settings)"),
        ] {
            if number(&format!("SELECT coalesce(sum({texts} + {ROW}), 0) FROM {table}"))? > size {
                return Err(StoreError::Corrupt { path: self.path.into(), source: None });
            }
        }
        Ok(())
    }

    /// Rewrites the samples. Which workloads of which run were timed.
    fn samples(&self) -> Result<BTreeMap<i64, Timed>, StoreError> {
        let mut timed: BTreeMap<i64, Timed> = BTreeMap::new();
        let fail = |e| self.error(e);
        let sql = "SELECT id, run, sample FROM old_samples WHERE run IN (SELECT id FROM runs) ORDER BY id";
        let mut all = self.connection.prepare(sql).map_err(fail)?;
        let mut rows = all.query([]).map_err(fail)?;
        while let Some(row) = rows.next().map_err(fail)? {
            let read = || Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            let (id, run, text): (i64, i64, String) = read().map_err(fail)?;
            let sample = self.json::<old::Sample>(&text, || format!("sample {id} of run {run}"))?.now();
            timed.entry(run).or_default().note(&sample);
            insert::row(self.connection, Some(id), run, &sample, &to_json(&sample)).map_err(fail)?;
        }
        Ok(timed)
    }

    /// Rewrites workloads and studies of the runs.
    fn runs(&self, timed: &BTreeMap<i64, Timed>) -> Result<(), StoreError> {
        let none = Timed::default();
        for id in self.rows("SELECT id, '' FROM runs", |id, _| Ok(id))? {
            let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let (workloads, study): (String, String) = self
                .connection
                .query_row("SELECT workloads, study_toml FROM runs WHERE id = ?", [id], read)
                .map_err(|e| self.error(e))?;
            let timed = timed.get(&id).unwrap_or(&none);
            let workloads: Vec<old::WorkloadTraits> = self.json(&workloads, || format!("the workloads of run {id}"))?;
            let workloads: Vec<WorkloadTraits> = workloads.into_iter().map(|w| w.now(timed)).collect();
            self.connection
                .execute(
                    "UPDATE runs SET workloads = ?, study_toml = ? WHERE id = ?",
                    params![to_json(&workloads), old::study_toml(study), id],
                )
                .map_err(|e| self.error(e))?;
        }
        Ok(())
    }

    /// Rewrites the cells that did not run.
    fn skipped(&self) -> Result<(), StoreError> {
        let fail = |e| self.error(e);
        let sql = "SELECT run, setup, reason FROM old_skipped WHERE run IN (SELECT id FROM runs) ORDER BY rowid";
        let mut all = self.connection.prepare(sql).map_err(fail)?;
        let mut rows = all.query([]).map_err(fail)?;
        while let Some(row) = rows.next().map_err(fail)? {
            let read = || Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            let (run, setup, reason): (i64, String, String) = read().map_err(fail)?;
            let cell = self.json::<old::Setup>(&setup, || format!("a skipped cell of run {run}"))?.cell();
            let skipped = vmio_model::result::Skipped { cell, reason };
            insert::skipped(self.connection, run, &skipped).map_err(fail)?;
        }
        Ok(())
    }

    /// Of rows of a number and a text.
    fn rows<T>(&self, sql: &str, map: impl Fn(i64, &str) -> rusqlite::Result<T>) -> Result<Vec<T>, StoreError> {
        let query = || {
            let mut statement = self.connection.prepare(sql)?;
            let rows = statement.query_map([], |row| map(row.get(0)?, row.get_ref(1)?.as_str()?))?;
            rows.collect::<rusqlite::Result<Vec<T>>>()
        };
        query().map_err(|e| self.error(e))
    }

    fn json<T: DeserializeOwned>(&self, text: &str, what: impl Fn() -> String) -> Result<T, StoreError> {
        serde_json::from_str(text).map_err(|source| StoreError::Unconverted {
            what: what(),
            path: self.path.into(),
            source,
        })
    }

    fn error(&self, e: rusqlite::Error) -> StoreError {
        StoreError::of(self.path, e)
    }
}
