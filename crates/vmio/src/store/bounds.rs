//! Bounds of a run from a file that anybody may have made. The memory of its texts is estimated before they are parsed;
//! the parts of the parsed run are counted. docs/runs.md states each bound.

use std::collections::BTreeSet;

use vmio_model::result::WorkloadResult;
use vmio_model::run::Run;
use vmio_model::study::cells::MOST_CELLS;

/// Most values (separated by commas) in the texts of a run.
const VALUES: u64 = 16_000_000;
/// Most memory of the values of a run, in bytes, as it is estimated. A sample of fio takes some 80 KB with its raw
/// output, so these are about 25,000 samples: three days of one every ten seconds.
const MEMORY: u64 = 2 << 30;
/// Least memory of an object: a B-tree node of eleven names and values.
const OBJECT: u64 = 640;
/// Least memory of a list: four values.
const LIST: u64 = 128;
/// Most memory of each further value beside its text: name, value, and spare capacity.
const VALUE: u64 = 96;

/// Most samples of a run: two days of one a second.
const SAMPLES: usize = 200_000;
/// Most cells, workloads, cells that did not run, and attachments of a run: a study's, and its controls.
const CELLS: usize = 2 * MOST_CELLS as usize;
/// Most actors of a cell.
const ACTORS: usize = 1_000;
/// Most readings of an actor in one sample, and of a probe.
const READINGS: usize = 10_000;
/// Most percentiles of a reading: fio gives 17.
const PERCENTILES: usize = 1_000;
/// Most figures that a workload declares.
const FIGURES: usize = 1_000;
/// Longest text of a study, in bytes: each of its lines may be a table, which takes a hundred times as much memory.
pub(super) const STUDY: usize = 1 << 20;
/// Longest command line of a run, and sample without its raw outputs, in bytes.
pub(super) const TEXT: usize = 16 << 20;

/// Something of which a run has too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Excess {
    #[error("it has more than {VALUES} values")]
    Values,
    #[error("its values would take more than {} MiB of memory", MEMORY >> 20)]
    Memory,
    #[error("{what} has {} MiB, and vmio takes {}", bytes.div_ceil(1 << 20), most >> 20)]
    Text { what: &'static str, bytes: usize, most: usize },
    #[error("it has {found} {what}, and vmio takes {most}")]
    Things { what: &'static str, found: usize, most: usize },
    #[error("it is too long")]
    Samples,
}

/// The memory that the JSON texts of a run would take.
#[derive(Debug, Default)]
pub(super) struct Weight {
    values: u64,
    bytes: u64,
}

impl Weight {
    /// Adds a text before it is parsed.
    ///
    /// # Errors
    /// When all together are too much.
    pub(super) fn add(&mut self, json: &[u8]) -> Result<(), Excess> {
        let (mut objects, mut lists, mut commas) = (0, 0, 0);
        let mut rest = json.iter();
        while let Some(byte) = rest.next() {
            match byte {
                b'{' => objects += 1,
                b'[' => lists += 1,
                b',' => commas += 1,
                // Skips the string.
                b'"' => {
                    while let Some(byte) = rest.next() {
                        match byte {
                            b'"' => break,
                            b'\\' => drop(rest.next()),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        self.values += commas;
        self.bytes += json.len() as u64 + objects * OBJECT + lists * LIST + commas * VALUE;
        if self.values > VALUES {
            return Err(Excess::Values);
        }
        if self.bytes > MEMORY { Err(Excess::Memory) } else { Ok(()) }
    }
}

/// Checks that a run is no larger than a measured one can be.
///
/// # Errors
/// What there is too much of.
pub(super) fn check(run: &Run) -> Result<(), Excess> {
    few("samples", run.samples.len(), SAMPLES)?;
    few("workloads", run.workloads.len(), CELLS)?;
    few("cells that did not run", run.skipped.len(), CELLS)?;
    few("attachments", run.effective.len(), CELLS)?;
    short("its command line", run.command.iter().map(String::len).sum(), TEXT)?;
    for traits in &run.workloads {
        few("figures of a workload", traits.figures.len(), FIGURES)?;
    }
    let skipped = run.skipped.iter().map(|s| &s.cell);
    for cell in run.samples.iter().map(|s| &s.cell).chain(skipped) {
        few("actors in a cell", cell.beside.len().saturating_add(1), ACTORS)?;
    }
    for sample in &run.samples {
        let readings = |result: &WorkloadResult| result.figures.len();
        let most = sample.results().map(readings).chain(sample.seen.iter().map(|probe| probe.figures.len())).max();
        few("readings in a sample", most.unwrap_or(0), READINGS)?;
        few("probes around a sample", sample.seen.len(), READINGS)?;
        let probes = sample.seen.iter().flat_map(|probe| &probe.figures);
        for reading in sample.results().flat_map(|result| &result.figures).chain(probes) {
            if let Some(d) = reading.value.distribution() {
                few("percentiles in a reading", d.percentiles.len(), PERCENTILES)?;
            }
        }
    }
    few("cells", run.samples.iter().map(|s| &s.cell).collect::<BTreeSet<_>>().len(), CELLS)
}

/// Checks that a text is no longer than vmio would write it.
///
/// # Errors
/// That it is too long.
pub(super) fn short(what: &'static str, bytes: usize, most: usize) -> Result<(), Excess> {
    if bytes > most { Err(Excess::Text { what, bytes, most }) } else { Ok(()) }
}

fn few(what: &'static str, found: usize, most: usize) -> Result<(), Excess> {
    if found > most { Err(Excess::Things { what, found, most }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn bytes(json: &str) -> u64 {
        let mut weight = Weight::default();
        weight.add(json.as_bytes()).unwrap();
        weight.bytes - json.len() as u64
    }

    #[test]
    fn what_opens_and_parts_is_counted_and_strings_are_not() {
        assert_eq!(bytes(r#"{"a": [1, 2.5]}"#), OBJECT + LIST + VALUE);
        assert_eq!(bytes(r#""{[,\"{[,\\""#), 0);
        assert_eq!(bytes(r#"["\\",{"#), LIST + VALUE + OBJECT);
        assert_eq!(bytes(r#""a string that does not end {{{ \"#), 0);
    }

    #[test]
    fn texts_are_too_much_together() {
        let deep = ["{\"\":".repeat(100), "0".into(), "}".repeat(100)].concat();
        let mut weight = Weight::default();
        let took = (0..100_000).take_while(|_| weight.add(deep.as_bytes()).is_ok()).count();
        assert_eq!(took as u64, MEMORY / (100 * OBJECT + deep.len() as u64));
        let commas = ",".repeat(1_000_000);
        let mut weight = Weight::default();
        assert!((0..16).all(|_| weight.add(commas.as_bytes()).is_ok()));
        assert_eq!(weight.add(b",").unwrap_err().to_string(), "it has more than 16000000 values");
    }
}
