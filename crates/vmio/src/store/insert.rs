//! The rows of a run, as they are written: by a run that is measured, and by one that is imported.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use vmio_model::result::{RunState, Sample, Skipped};

use super::{NewRun, StoreError, to_json};

/// The head of a run; its number.
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

/// A sample as the store holds it: the tools' own outputs apart.
pub(super) struct Texts {
    sample: String,
    /// By actor, the leading one first.
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

    /// How long it is without the tools' outputs.
    pub(super) fn own_bytes(&self) -> usize {
        self.sample.len()
    }

    /// How long they are together.
    pub(super) fn bytes(&self) -> usize {
        self.sample.len() + self.raw.iter().flatten().map(String::len).sum::<usize>()
    }
}

/// A sample, in a transaction of the caller's.
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

/// Settings of an attachment; later ones replace earlier ones.
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

/// A cell that did not run; a later reason replaces an earlier one.
pub(super) fn skipped(connection: &Connection, run: i64, skipped: &Skipped) -> rusqlite::Result<usize> {
    connection.execute(
        "INSERT OR REPLACE INTO skipped (run, cell, whole, reason) VALUES (?, ?, ?, ?)",
        params![run, skipped.cell.key(), to_json(&skipped.cell), skipped.reason],
    )
}
