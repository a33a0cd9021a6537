//! Inserts the rows of a run, measured or imported.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use vmio_model::result::{RunState, Sample, Skipped};

use super::{NewRun, StoreError, to_json};

/// Inserts a run without samples; its number.
pub(super) fn run(connection: &Connection, new: &NewRun<'_>, state: &RunState) -> rusqlite::Result<i64> {
    connection.execute(
        "INSERT INTO runs (study, study_toml, command, started_unix, state, environment, workloads)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
        params![
            new.kind.to_string(),
            new.study.to_toml(),
            to_json(new.command),
            new.started_unix,
            to_json(state),
            to_json(new.environment),
            to_json(new.workloads)
        ],
    )?;
    Ok(connection.last_insert_rowid())
}

/// A sample as the store holds it, with the raw outputs of the tools apart.
pub(super) struct Texts {
    sample: String,
    /// The raw outputs by actor, the leading one first.
    raw: Vec<Option<String>>,
}

impl Texts {
    /// Refuses a figure that could not be read back.
    pub(super) fn of(sample: &Sample) -> Result<Texts, StoreError> {
        let mut slim = sample.clone();
        let outputs = std::iter::once(&mut slim.result).chain(&mut slim.beside).map(|result| result.raw.take());
        let raw = outputs.map(|raw| (!raw.is_null()).then(|| raw.to_string())).collect();
        let text = to_json(&slim);
        // JSON has no NaN: it would be written as null and make the whole run unreadable later.
        serde_json::from_str::<Sample>(&text)
            .map_err(|source| StoreError::NotFinite { cell: sample.cell.key(), source })?;
        Ok(Texts { sample: text, raw })
    }

    /// Length in bytes without the raw outputs.
    pub(super) fn own_bytes(&self) -> usize {
        self.sample.len()
    }

    /// Length of the raw outputs in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.sample.len() + self.raw.iter().flatten().map(String::len).sum::<usize>()
    }
}

/// Inserts a sample, in a transaction of the caller.
pub(super) fn sample(connection: &Connection, run: i64, sample: &Sample, texts: &Texts) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO samples (run, cell, round, boot, started_unix, seconds, sample) VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            run,
            sample.cell.key(),
            sample.round,
            sample.boot,
            sample.started_unix,
            sample.result.seconds,
            texts.sample
        ])?;
    let number = connection.last_insert_rowid();
    let outputs = texts.raw.iter().enumerate().filter_map(|(actor, raw)| Some((actor, raw.as_ref()?)));
    for (actor, raw) in outputs {
        connection.prepare_cached("INSERT INTO raw (sample, actor, output) VALUES (?, ?, ?)")?.execute(params![
            number,
            actor as i64,
            raw
        ])?;
    }
    Ok(())
}

/// Inserts the settings of an attachment, in place of earlier ones.
pub(super) fn effective(
    connection: &Connection,
    run: i64,
    attachment: &str,
    settings: &BTreeMap<String, String>,
) -> rusqlite::Result<usize> {
    connection.execute(
        "INSERT OR REPLACE INTO effective (run, attachment, settings) VALUES (?, ?, ?)",
        params![run, attachment, to_json(settings)],
    )
}

/// Inserts a cell that did not run, in place of an earlier reason.
pub(super) fn skipped(connection: &Connection, run: i64, skipped: &Skipped) -> rusqlite::Result<usize> {
    connection.execute(
        "INSERT OR REPLACE INTO skipped (run, cell, whole, reason) VALUES (?, ?, ?, ?)",
        params![run, skipped.cell.key(), to_json(&skipped.cell), skipped.reason],
    )
}
