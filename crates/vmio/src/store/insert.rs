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
            new.study.to_string(),
            new.study_toml,
            to_json(new.command),
            new.started_unix,
            to_json(state),
            to_json(new.environment),
            to_json(new.workloads)
        ],
    )?;
    Ok(connection.last_insert_rowid())
}

/// A sample as the store holds it: the tool's own output apart.
pub(super) struct Texts {
    sample: String,
    raw: Option<String>,
}

impl Texts {
    /// Refuses a figure that could not be read back.
    pub(super) fn of(sample: &Sample) -> Result<Texts, StoreError> {
        let mut slim = sample.clone();
        let raw = slim.result.raw.take();
        let text = to_json(&slim);
        // JSON has no NaN: it would be written as null and make the whole run unreadable later.
        serde_json::from_str::<Sample>(&text)
            .map_err(|source| StoreError::NotFinite { cell: sample.cell.key(), source })?;
        Ok(Texts { sample: text, raw: (!raw.is_null()).then(|| raw.to_string()) })
    }
}

/// A sample, in a transaction of the caller's.
pub(super) fn sample(connection: &Connection, run: i64, sample: &Sample, texts: &Texts) -> rusqlite::Result<()> {
    let finite = |x: f64| x.is_finite().then_some(x);
    connection
        .prepare_cached(
            "INSERT INTO samples (run, cell, target, guest, attachment, workload, round, boot, started_unix,
             seconds, bandwidth_bytes_per_second, iops, sample) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
        )?
        .execute(params![
            run,
            sample.cell.key(),
            sample.cell.target(),
            sample.cell.lead.side.kind,
            sample.cell.attachment().map(|a| a.label()),
            sample.cell.workload(),
            sample.round,
            sample.boot,
            sample.started_unix,
            sample.result.seconds,
            finite(sample.work().bandwidth()),
            finite(sample.work().iops()),
            texts.sample
        ])?;
    if let Some(raw) = &texts.raw {
        connection
            .prepare_cached("INSERT INTO raw (sample, output) VALUES (?, ?)")?
            .execute(params![connection.last_insert_rowid(), raw])?;
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
        "INSERT OR REPLACE INTO skipped (run, cell, setup, reason) VALUES (?, ?, ?, ?)",
        params![run, skipped.cell.key(), to_json(&skipped.cell), skipped.reason],
    )
}
