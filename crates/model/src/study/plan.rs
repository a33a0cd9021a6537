//! What a study will cost, before anything is measured. Every assumption is a named field of
//! [`Rates`]: assumed by the caller, or measured by a short probe.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Study;
use crate::result::WorkloadTraits;
use crate::setup::Setup;

/// How fast things go on the machine: the assumptions behind a [`Plan`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Bytes a second that sequential writing reaches at most, on either side.
    pub write_bytes_per_second: f64,
    /// Bytes a second that sequential reading reaches.
    pub read_bytes_per_second: f64,
    /// Requests a second that small writes (random, durable append) reach at most at depth 1;
    /// at greater depth the sequential rate bounds the bytes.
    pub small_ios_per_second: f64,
    /// Seconds that a cell takes beside its measured part: starting the tool, readings before
    /// and after.
    pub cell_overhead_seconds: f64,
    /// Seconds until a guest is ready.
    pub boot_seconds: f64,
    /// Bytes that a workload moves whatever the time, by name: `dd`'s
    /// ([`Study::buffered_bytes`]). The others run for `repeat.seconds`.
    pub fixed_bytes: BTreeMap<String, u64>,
    /// Targets that are written out in full once before the first cell, by name
    /// (preallocated file, scratch volume behind the whole device).
    pub written_targets: Vec<String>,
    /// Targets that lose their data when a cell writes to them afresh, by name: each reading cell
    /// may have to write them out again (sparse file).
    pub refilled_targets: Vec<String>,
    /// What share of the reckoned space is kept free on top (0.2 is 20 %).
    pub spare_ratio: f64,
}

/// What a study will cost. Bytes and space are upper bounds under the [`Rates`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Cells in a round, native ones included.
    pub cells: u32,
    /// Of these, native ones.
    pub native_cells: u32,
    /// Rounds until the first share can count as known.
    pub min_rounds: u32,
    /// Rounds at most.
    pub max_rounds: u32,
    /// Guests booted at each boot: one a kind.
    pub guests_per_boot: u32,
    /// Seconds until every cell ran once: when the first figures are there.
    pub first_round_seconds: f64,
    /// Seconds for the fewest rounds.
    pub min_seconds: f64,
    /// Seconds at most: the most rounds, or the time budget.
    pub max_seconds: f64,
    /// Bytes written by one round.
    pub round_bytes_written: u64,
    /// Bytes written before the first round.
    pub prepare_bytes_written: u64,
    /// Bytes written at most: the most rounds, or the write budget and the cell that overruns it.
    pub max_bytes_written: u64,
    /// Space taken at the same time, spare included.
    pub peak_space_bytes: u64,
    /// Cores that each side has.
    pub vcpus: u32,
    /// Memory that each side has, in bytes.
    pub memory_bytes: u64,
    /// Whether even the fewest rounds do not fit the time budget.
    pub over_time: bool,
    /// Whether even the fewest rounds do not fit the write budget.
    pub over_bytes: bool,
    /// The assumptions.
    pub rates: Rates,
}

/// Reckons what the study costs. Workloads without traits count as if they wrote sequentially:
/// the most expensive case.
pub fn estimate(study: &Study, traits: &[WorkloadTraits], rates: &Rates) -> Plan {
    let cells = study.cells();
    let costs: Vec<(f64, u64)> = cells.iter().map(|cell| cell_cost(study, cell, traits, rates)).collect();
    // Cells that no guest is compared with run the fewest rounds; the rest up to the most.
    let lone: Vec<Setup> = study.groups().into_iter().filter(|g| g.iter().all(Setup::is_native)).flatten().collect();
    let lone_cost = cells.iter().zip(&costs).filter(|(cell, _)| lone.contains(cell));
    let (lone_seconds, lone_bytes) = lone_cost.fold((0.0, 0), |sum, (_, c)| (sum.0 + c.0, sum.1 + c.1));
    let round_seconds: f64 = costs.iter().map(|c| c.0).sum();
    let round_bytes: u64 = costs.iter().map(|c| c.1).sum::<u64>() + refills(study, &cells, traits, rates);
    let largest = costs.iter().map(|c| c.1).max().unwrap_or(0);
    let round_seconds = round_seconds + refills(study, &cells, traits, rates) as f64 / rates.write_bytes_per_second;
    // One guest of a kind carries the disks of all its cells.
    let mut kinds: Vec<&str> = cells.iter().filter(|c| !c.is_native()).map(|c| c.guest.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let guests = kinds.len() as u32;
    let mut targets: Vec<&str> = cells.iter().map(|c| c.target.as_str()).collect();
    targets.sort_unstable();
    targets.dedup();
    let written = targets.iter().filter(|t| rates.written_targets.iter().any(|w| w == *t)).count() as u64;
    let prepare_bytes = written * study.target_bytes();
    let prepare_seconds = prepare_bytes as f64 / rates.write_bytes_per_second;
    let seconds = |rounds: u32| {
        let boots = rounds.div_ceil(study.repeat.rounds_per_boot());
        let without_lone = f64::from(rounds.saturating_sub(study.repeat.min_pairs)) * lone_seconds;
        prepare_seconds + f64::from(rounds) * round_seconds - without_lone
            + f64::from(boots * guests) * rates.boot_seconds
    };
    let bytes = |rounds: u32| {
        let without_lone = u64::from(rounds.saturating_sub(study.repeat.min_pairs)) * lone_bytes;
        prepare_bytes + u64::from(rounds) * round_bytes - without_lone
    };
    let budget_seconds = study.repeat.max_minutes * 60.0;
    let budget_bytes = (study.repeat.max_gib_written * super::GIB as f64) as u64;
    let least = study.repeat.min_pairs;
    let most = if guests == 0 { least } else { study.repeat.max_pairs };
    let dearest = costs.iter().map(|c| c.0).fold(0.0, f64::max);
    let space = targets.len() as f64 * study.target_bytes() as f64 * (1.0 + rates.spare_ratio);
    Plan {
        cells: cells.len() as u32,
        native_cells: cells.iter().filter(|c| c.is_native()).count() as u32,
        min_rounds: least,
        max_rounds: most,
        guests_per_boot: guests,
        first_round_seconds: seconds(1),
        min_seconds: seconds(least),
        max_seconds: seconds(most).min(budget_seconds + dearest),
        round_bytes_written: round_bytes,
        prepare_bytes_written: prepare_bytes,
        max_bytes_written: bytes(most).min(prepare_bytes.saturating_add(budget_bytes).saturating_add(largest)),
        peak_space_bytes: space as u64,
        vcpus: study.guest.vcpus,
        memory_bytes: u64::from(study.guest.memory_mib) * super::MIB,
        over_time: seconds(least) > budget_seconds,
        over_bytes: bytes(least) > budget_bytes,
        rates: rates.clone(),
    }
}

/// Bytes of writing targets out again in a round: at most before each reading cell.
fn refills(study: &Study, cells: &[Setup], traits: &[WorkloadTraits], rates: &Rates) -> u64 {
    let writes = |cell: &Setup| traits.iter().find(|t| t.name == cell.workload).is_none_or(|t| t.writes);
    let on = |name: &String| {
        let (writing, reading): (Vec<_>, Vec<_>) = cells.iter().filter(|c| c.target == *name).partition(|c| writes(c));
        if writing.is_empty() { 0 } else { reading.len() as u64 }
    };
    rates.refilled_targets.iter().map(on).sum::<u64>() * study.target_bytes()
}

/// Seconds and bytes written of one cell.
fn cell_cost(study: &Study, cell: &Setup, traits: &[WorkloadTraits], rates: &Rates) -> (f64, u64) {
    let traits = traits.iter().find(|t| t.name == cell.workload);
    let writes = traits.is_none_or(|t| t.writes);
    if let Some(&bytes) = rates.fixed_bytes.get(&cell.workload) {
        let rate = if writes { rates.write_bytes_per_second } else { rates.read_bytes_per_second };
        return (bytes as f64 / rate + rates.cell_overhead_seconds, if writes { bytes } else { 0 });
    }
    let rate = match traits {
        _ if !writes => 0.0,
        Some(t) if t.depth == 1 && (!t.sequential || t.block_bytes <= SMALL_BLOCK) => {
            (rates.small_ios_per_second * t.block_bytes as f64).min(rates.write_bytes_per_second)
        }
        _ => rates.write_bytes_per_second,
    };
    (study.repeat.seconds + rates.cell_overhead_seconds, (rate * study.repeat.seconds) as u64)
}

/// Blocks up to this size count as small: a request's fixed cost, not its bytes, bounds the rate.
const SMALL_BLOCK: u64 = 16 * 1024;
