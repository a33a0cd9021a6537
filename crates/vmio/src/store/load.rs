//! Loads a whole run from the store.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, params};
use vmio_model::result::{Sample, Skipped, WorkloadResult};
use vmio_model::run::Run;

use super::bounds::{self, Weight};
use super::{Result, Store, StoreError};

/// Memory of a row beside its texts, in bytes.
const ROW: usize = 100;

impl Store {
    /// The run with all its samples, but without the tools' raw output (`result.raw` is null):
    /// no conclusion needs it, and it is the greater part of the file.
    pub fn load(&self, run: i64) -> Result<Run> {
        self.read(run, &mut Weight::default())
    }

    fn read(&self, run: i64, weight: &mut Weight) -> Result<Run> {
        self.bounded(run)?;
        let head = self
            .connection
            .query_row(
                "SELECT study, study_toml, command, started_unix, state, environment, workloads FROM runs WHERE id = ?",
                [run],
                |row| {
                    let texts: [String; 4] = [row.get(2)?, row.get(4)?, row.get(5)?, row.get(6)?];
                    Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get(3)?, texts))
                },
            )
            .optional()
            .map_err(|e| self.error(e))?;
        let Some((kind, study, started_unix, [command, state, environment, workloads])) = head else {
            return Err(self.no_run(run)?);
        };
        let whole = format!("run {run}");
        let what = |what: &str| format!("{what} of {whole}");
        for text in [&command, &environment, &workloads] {
            self.weighed(weight, &whole, text)?;
        }
        let samples = self
            .rows("SELECT sample FROM samples WHERE run = ? ORDER BY id", params![run], |row| row.get::<_, String>(0))?
            .into_iter()
            .map(|text| {
                self.weighed(weight, &whole, &text)?;
                self.json(what("a sample"), &text)
            })
            .collect::<Result<_>>()?;
        let skipped = self
            .rows("SELECT whole, reason FROM skipped WHERE run = ? ORDER BY rowid", params![run], |row| {
                Ok((row.get::<_, String>(0)?, row.get(1)?))
            })?
            .into_iter()
            .map(|(cell, reason)| {
                self.weighed(weight, &whole, &cell)?;
                Ok(Skipped { cell: self.json(what("a skipped cell"), &cell)?, reason })
            })
            .collect::<Result<_>>()?;
        let effective = self
            .rows("SELECT attachment, settings FROM effective WHERE run = ?", params![run], |row| {
                Ok((row.get(0)?, row.get::<_, String>(1)?))
            })?
            .into_iter()
            .map(|(attachment, settings)| {
                self.weighed(weight, &whole, &settings)?;
                Ok((attachment, self.json(what("the settings"), &settings)?))
            })
            .collect::<Result<_>>()?;
        bounds::short("its study", study.len(), bounds::STUDY)
            .map_err(|why| self.too_much(format!("{whole}: {why}")))?;
        let study_of = |source| StoreError::Study { run, path: self.path.clone(), source };
        Ok(Run {
            id: run,
            kind: kind.as_str().into(),
            study: toml::from_str(&study).map_err(study_of)?,
            command: self.json(what("the command"), &command)?,
            started_unix,
            state: self.state(run, &state)?,
            environment: self.json(what("the environment"), &environment)?,
            workloads: self.json(what("the workloads"), &workloads)?,
            effective,
            samples,
            skipped,
        })
    }

    /// The run with all that was ever stored of it.
    pub fn load_whole(&self, run: i64) -> Result<Run> {
        let mut weight = Weight::default();
        let mut whole = self.read(run, &mut weight)?;
        let numbers = self.rows("SELECT id FROM samples WHERE run = ? ORDER BY id", params![run], |row| row.get(0))?;
        let mut samples: BTreeMap<i64, &mut Sample> = numbers.into_iter().zip(&mut whole.samples).collect();
        let sql = "SELECT raw.sample, actor, output FROM raw JOIN samples ON raw.sample = samples.id WHERE run = ?";
        let outputs = self.rows(sql, params![run], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
        })?;
        for (number, actor, output) in outputs {
            // A sample that was stored after the samples were read: the run still goes on.
            let Some(sample) = samples.get_mut(&number) else { continue };
            let Some(result) = usize::try_from(actor).ok().and_then(|actor| of_actor(sample, actor)) else {
                let what = format!("sample {number} of run {run} has a raw output of an actor that is not in it");
                return Err(StoreError::Foreign { path: self.path.clone(), what });
            };
            self.weighed(&mut weight, &format!("run {run}"), &output)?;
            result.raw = self.json(format!("a raw output of run {run}"), &output)?;
        }
        Ok(whole)
    }

    /// Seconds that the leading actor of each sample took to submit a request (`slat_ns` of fio's output), in the order
    /// of the samples; `None` where its output does not tell. The outputs stay in the file: they are the greater part of
    /// it.
    pub fn submissions(&self, run: i64) -> Result<Vec<Option<f64>>> {
        let of = |side: &str| format!("coalesce(json_extract(output, '$.jobs[0].{side}.slat_ns.mean'), 0.0)");
        let told = "json_valid(output) AND json_type(output, '$.jobs[0].read.slat_ns.mean') IS NOT NULL";
        let sql = format!(
            "SELECT CASE WHEN {told} THEN max({}, {}) END FROM samples LEFT JOIN raw ON raw.sample = samples.id \
             AND raw.actor = 0 WHERE run = ? ORDER BY samples.id",
            of("read"),
            of("write")
        );
        let nanoseconds = self.rows(&sql, params![run], |row| row.get::<_, Option<f64>>(0))?;
        Ok(nanoseconds.into_iter().map(|ns| ns.map(|ns| ns * 1e-9)).collect())
    }

    /// Refuses a run that would not fit into memory, by the lengths of its texts.
    fn bounded(&self, run: i64) -> Result<()> {
        // Each row takes memory, even when its texts are empty.
        let sum =
            |texts: &str, from: &str| format!("(SELECT coalesce(sum({texts} + {ROW}), 0) FROM {from} WHERE run = ?1)");
        let sums = [
            sum("octet_length(sample)", "samples"),
            sum("octet_length(output)", "raw JOIN samples ON raw.sample = samples.id"),
            sum("octet_length(attachment) + octet_length(settings)", "effective"),
            sum("octet_length(whole) + octet_length(reason)", "skipped"),
        ];
        let sql = format!("SELECT {}", sums.join(" + "));
        self.fits(&format!("run {run}"), self.one(&sql, params![run])?)
    }
}

/// The result of the actor of that number; the leading one is 0.
fn of_actor(sample: &mut Sample, actor: usize) -> Option<&mut WorkloadResult> {
    std::iter::once(&mut sample.result).chain(&mut sample.beside).nth(actor)
}
