//! Estimates the cost of a study before it is measured. All assumptions are fields of [`Rates`]: assumed by the caller,
//! or measured by a short probe.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::spans::Spans;
use super::Study;
use crate::cell::{Actor, Cell, Millis, Side, State};
use crate::result::WorkloadTraits;

pub mod spans;

/// Speeds of the machine: the assumptions of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rates {
    /// Highest rate of sequential writes in bytes a second, on either side.
    pub write_bytes_per_second: f64,
    /// Rate of sequential reads in bytes a second.
    pub read_bytes_per_second: f64,
    /// Highest rate of small writes (random, durable append) at depth 1, in requests a second; at greater depth the
    /// sequential rate limits them.
    pub small_ios_per_second: f64,
    /// Seconds of a cell besides its measured part: starting the tool, readings before and after.
    pub cell_overhead_seconds: f64,
    /// Seconds to boot a guest.
    pub boot_seconds: f64,
    /// Bytes that a workload moves regardless of time, by name: `dd`'s. The others run for `repeat.seconds`.
    pub fixed_bytes: BTreeMap<String, u64>,
    /// Seconds of a workload that takes its own time, or rounds the study's up, by name: `hdparm`'s, `iperf3-tcp`'s. An
    /// actor's own duration goes before.
    #[serde(default)]
    pub fixed_seconds: BTreeMap<String, f64>,
    /// Targets that are fully written once before the first cell, by name (preallocated file, scratch volume behind the
    /// whole device).
    pub written_targets: Vec<String>,
    /// Targets that use, or whose making writes, more than their size, by name.
    #[serde(default)]
    pub target_space: BTreeMap<String, TargetSpace>,
    /// Targets that lose their data before a cell that requires a fresh one, by name: each reading cell may have to
    /// write them again (sparse file).
    pub refilled_targets: Vec<String>,
    /// Share of the calculated space that is kept free in addition (0.2 is 20 %).
    pub spare_ratio: f64,
    /// Bytes written to the same device besides targets and cells: a guest image to build, the store.
    #[serde(default)]
    pub beside_bytes: u64,
    /// Whether each workload runs natively once more for a moment, by which `--gentle` finds its cap.
    #[serde(default)]
    pub probed: bool,
    /// Whether the machine is measured at rest, too, before each boot and at the end: where it has a power meter.
    #[serde(default)]
    pub metered: bool,
    /// The probes by which power is likely measured, by name, as far as files tell: no meter was asked. Empty for none.
    #[serde(default)]
    pub meters: Vec<String>,
}

/// Cost of a target besides the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetSpace {
    /// Bytes that it uses at most.
    pub taken_bytes: u64,
    /// Bytes written before the first cell.
    pub prepared_bytes: u64,
}

/// Cost of a study. Space is an upper bound under the `rates`; `max_bytes_written` is an upper bound under any rates,
/// since a run keeps to `spans` and does nothing that could exceed its budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Cells of a round, native ones included.
    pub cells: u32,
    /// Native cells of a round.
    pub native_cells: u32,
    /// Most control cells of a round from the second on; the first round decides their number.
    pub control_cells: u32,
    /// Rounds until the first share can converge.
    pub min_rounds: u32,
    /// Most rounds.
    pub max_rounds: u32,
    /// Guests of each boot: one for each side.
    pub guests_per_boot: u32,
    /// Seconds of the first round, after which there are figures.
    pub first_round_seconds: f64,
    /// Seconds for the fewest rounds.
    pub min_seconds: f64,
    /// Most seconds: for the most rounds, or the time budget.
    pub max_seconds: f64,
    /// Bytes written in a round.
    pub round_bytes_written: u64,
    /// Bytes written before the first round.
    pub prepare_bytes_written: u64,
    /// The part of them that brings flash into its steady state, for each group before its first round.
    #[serde(default)]
    pub precondition_bytes_written: u64,
    /// The part of them before anything is measured or probed: targets, and other writes.
    #[serde(default)]
    pub making_bytes_written: u64,
    /// Most bytes written, targets included: for the most rounds, or the write budget.
    pub max_bytes_written: u64,
    /// Bytes written in the fewest rounds at the `rates`, targets included.
    #[serde(default)]
    pub likely_bytes_written: u64,
    /// Least write budget for the fewest rounds, however little each cell writes.
    #[serde(default)]
    pub least_bytes_written: u64,
    /// The write budget in bytes; `None` where no cell is on a disk.
    #[serde(default)]
    pub budget_bytes: Option<u64>,
    /// Span of each writing workload: so large that the fewest rounds fit into the write budget.
    #[serde(default)]
    pub spans: BTreeMap<String, u64>,
    /// Space used at the same time, spare included.
    pub peak_space_bytes: u64,
    /// Processors of each side; the largest number, where they differ.
    pub vcpus: u32,
    /// Memory of each side, in bytes; the largest, where they differ.
    pub memory_bytes: u64,
    /// Whether even the fewest rounds do not fit the time budget.
    pub over_time: bool,
    /// Whether the write budget does not suffice for the fewest rounds, however little each cell writes.
    pub over_bytes: bool,
    /// The assumptions.
    pub rates: Rates,
}

/// Estimates the cost of a study. Workloads without traits count as sequential writers, the most expensive case.
pub fn estimate(study: &Study, traits: &[WorkloadTraits], rates: &Rates) -> Plan {
    estimate_of(study, &study.cells(), traits, rates)
}

/// The same of those of its cells that will run.
pub fn estimate_of(study: &Study, cells: &[Cell], traits: &[WorkloadTraits], rates: &Rates) -> Plan {
    let making_bytes: u64 = made_bytes(study, cells, rates) + rates.beside_bytes;
    let (spans, least_bytes) = spans::of(study, cells, traits, rates, making_bytes);
    let costs: Vec<(f64, u64)> = cells.iter().map(|cell| cell_cost(study, cell, traits, rates, &spans)).collect();
    // Cells without a guest to compare run the fewest rounds; the others up to the most. With steady state writing ones
    // may continue, too.
    let lone: Vec<Cell> = study
        .groups()
        .into_iter()
        .filter(|g| !g.iter().any(|cell| study.compares(cell)))
        .flatten()
        .filter(|cell| !study.repeat.steady_state || !jobs(cell).any(|job| writes(traits, job.workload)))
        .collect();
    let lone_cost = cells.iter().zip(&costs).filter(|(cell, _)| lone.contains(cell));
    let lone_seconds: f64 = lone_cost.map(|(_, c)| c.0).sum();
    let round_seconds: f64 = costs.iter().map(|c| c.0).sum();
    let refills = refills(study, cells, traits, rates);
    let round_bytes: u64 = costs.iter().map(|c| c.1).sum::<u64>() + refills;
    let round_seconds = round_seconds + writing_seconds(refills, rates);
    let (control_cells, control_seconds, control_bytes) = control_costs(study, cells, traits, rates, &spans);
    let guests = guests(cells);
    let targets = targets(cells);
    let precondition_bytes = precondition_bytes(study, traits, rates);
    let prepare_bytes = making_bytes + precondition_bytes + spans.probes(cells, rates);
    let prepare_seconds = writing_seconds(prepare_bytes, rates);
    let seconds = |rounds: u32| {
        // With steady state each group has its own rounds.
        let turns = if study.repeat.steady_state { study.groups().len() as u32 } else { 1 };
        let boots = study.repeat.boots_of(rounds * turns);
        let without_lone = f64::from(rounds.saturating_sub(study.repeat.min_pairs)) * lone_seconds;
        let controls = f64::from(rounds.saturating_sub(1)) * control_seconds;
        prepare_seconds + f64::from(rounds) * round_seconds - without_lone
            + controls
            + f64::from(boots * guests) * rates.boot_seconds
            + if rates.metered { f64::from(boots + 1) * study.repeat.rest_phase_seconds() } else { 0.0 }
    };
    let budget_seconds = study.repeat.max_minutes * 60.0;
    let budget_bytes = budget_bytes(study);
    let least = study.repeat.min_pairs;
    let compares = cells.iter().any(|cell| study.compares(cell));
    let most = if compares || study.repeat.steady_state { study.repeat.max_pairs } else { least };
    let dearest = costs.iter().map(|c| c.0).fold(0.0, f64::max);
    let taken: u64 = targets.iter().map(|t| space_of(study, t, rates).taken_bytes).sum();
    let space = taken as f64 * (1.0 + rates.spare_ratio);
    let max_bytes = spans.most_bytes(study, cells, rates, prepare_bytes, most).min(budget_bytes);
    let likely_bytes =
        prepare_bytes + u64::from(least) * round_bytes + u64::from(least.saturating_sub(1)) * control_bytes;
    Plan {
        cells: cells.len() as u32,
        native_cells: cells.iter().filter(|c| c.is_native()).count() as u32,
        control_cells,
        min_rounds: least,
        max_rounds: most,
        guests_per_boot: guests,
        first_round_seconds: seconds(1),
        min_seconds: seconds(least),
        max_seconds: seconds(most).min(budget_seconds + dearest),
        round_bytes_written: round_bytes,
        prepare_bytes_written: prepare_bytes,
        precondition_bytes_written: precondition_bytes,
        making_bytes_written: making_bytes,
        max_bytes_written: max_bytes,
        likely_bytes_written: likely_bytes.min(max_bytes),
        least_bytes_written: least_bytes,
        budget_bytes: study.repeat.max_gib_written.map(|_| budget_bytes),
        peak_space_bytes: space as u64,
        vcpus: cells.iter().flat_map(Cell::actors).filter_map(|a| a.side.shape.vcpus).fold(study.guest.vcpus, u32::max),
        memory_bytes: u64::from(study.most_memory_mib()) * super::MIB,
        over_time: seconds(least) > budget_seconds,
        over_bytes: spans.most_bytes(study, cells, rates, prepare_bytes, least) > budget_bytes,
        spans: spans.by_workload,
        rates: rates.clone(),
    }
}

/// Guests that run at the same time (containers start at once): one for each side, with the subjects of all its cells.
fn guests(cells: &[Cell]) -> u32 {
    let actors = cells.iter().flat_map(Cell::with_neighbours).filter(|a| !a.side.shares_kernel());
    actors.map(|actor| actor.side).collect::<BTreeSet<Side>>().len() as u32
}

/// Seconds to write this much; nothing takes none, at any rate.
fn writing_seconds(bytes: u64, rates: &Rates) -> f64 {
    if bytes == 0 { 0.0 } else { bytes as f64 / rates.write_bytes_per_second }
}

/// Control cells of a round, their seconds and written bytes, at most: the first of a chain is shared by a baseline's
/// guests, the others are each guest's own.
fn control_costs(
    study: &Study,
    cells: &[Cell],
    traits: &[WorkloadTraits],
    rates: &Rates,
    spans: &Spans,
) -> (u32, f64, u64) {
    let Some(controlled) = &study.control else { return (0, 0.0, 0) };
    let (mut count, mut bytes) = (0, 0);
    let wanted = |cell: &&Cell| cell.disk().is_some_and(|d| controlled.workloads.iter().any(|w| w == d.workload));
    for cell in cells.iter().filter(wanted) {
        let n: u32 = if cell.is_native() { 1 } else { OWN_CONTROLS };
        count += n;
        if writes(traits, cell.workload()) {
            let most = (rates.write_bytes_per_second * study.repeat.seconds) as u64;
            bytes += u64::from(n) * most.min(spans.of(cell.workload()));
        } else if cell.targets().any(|target| rates.refilled_targets.iter().any(|r| r == target)) {
            bytes += u64::from(n) * study.target_bytes();
        }
    }
    (count, f64::from(count) * (study.repeat.seconds + rates.cell_overhead_seconds), bytes)
}

/// Most control cells of a guest's own: at its request size, at its depth, and the job in the guest itself.
const OWN_CONTROLS: u32 = 3;

fn space_of(study: &Study, target: &str, rates: &Rates) -> TargetSpace {
    let bytes = study.target_bytes();
    let written = rates.written_targets.iter().any(|w| w == target);
    let usual = TargetSpace { taken_bytes: bytes, prepared_bytes: if written { bytes } else { 0 } };
    rates.target_space.get(target).copied().unwrap_or(usual)
}

impl Study {
    /// The targets that are written once more before the first round of a group: with steady state, those that its
    /// cells write to. A target that loses its data before each write has no state to keep.
    pub fn preconditions(&self, group: &[Cell], traits: &[WorkloadTraits], refilled: &[String]) -> BTreeSet<String> {
        if !self.repeat.steady_state {
            return BTreeSet::new();
        }
        let written = group.iter().flat_map(jobs).filter(|job| writes(traits, job.workload));
        written.map(|job| job.target.to_owned()).filter(|target| !refilled.contains(target)).collect()
    }
}

/// Whether a workload writes; one without traits counts as writing.
fn writes(traits: &[WorkloadTraits], workload: &str) -> bool {
    traits.iter().find(|t| t.name == workload).is_none_or(WorkloadTraits::writes)
}

/// Whether it requires a fresh target, so that some targets lose their data.
fn empties(traits: &[WorkloadTraits], job: &Job<'_>) -> bool {
    job.actor.state().map_or_else(|| writes(traits, job.workload), |state| state == State::Fresh)
}

/// An actor's work on a disk.
#[derive(Debug, Clone, Copy)]
struct Job<'a> {
    actor: &'a Actor,
    target: &'a str,
    workload: &'a str,
}

/// The work of a cell's actors on disks.
fn jobs(cell: &Cell) -> impl Iterator<Item = Job<'_>> {
    cell.actors().filter_map(|actor| Some(Job { actor, target: actor.target()?, workload: &actor.workload }))
}

/// The targets of cells, each once.
fn targets(cells: &[Cell]) -> Vec<&str> {
    cells.iter().flat_map(Cell::targets).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Bytes for writing targets again in a round: at most before each cell that needs data.
fn refills(study: &Study, cells: &[Cell], traits: &[WorkloadTraits], rates: &Rates) -> u64 {
    let on = |name: &String| {
        let mine = cells.iter().flat_map(jobs).filter(|job| job.target == name);
        let (emptying, filling): (Vec<_>, Vec<_>) = mine.partition(|job| empties(traits, job));
        if emptying.is_empty() { 0 } else { filling.len() as u64 }
    };
    rates.refilled_targets.iter().map(on).sum::<u64>() * study.target_bytes()
}

/// Bytes written to make the targets.
fn made_bytes(study: &Study, cells: &[Cell], rates: &Rates) -> u64 {
    targets(cells).iter().map(|t| space_of(study, t, rates).prepared_bytes).sum()
}

/// Bytes that steady state writes before the first rounds of its groups.
fn precondition_bytes(study: &Study, traits: &[WorkloadTraits], rates: &Rates) -> u64 {
    let of = |group: &Vec<Cell>| study.preconditions(group, traits, &rates.refilled_targets).len() as u64;
    study.groups().iter().map(of).sum::<u64>() * study.target_bytes()
}

/// The write budget in bytes; the maximum where no cell is on a disk.
pub fn budget_bytes(study: &Study) -> u64 {
    study.repeat.max_gib_written.map_or(u64::MAX, |gib| (gib * super::GIB as f64) as u64)
}

/// Seconds and written bytes of a cell, which goes over its span once at most.
fn cell_cost(study: &Study, cell: &Cell, traits: &[WorkloadTraits], rates: &Rates, spans: &Spans) -> (f64, u64) {
    let over_link = cell.link_rate().map(|rate| {
        let most = |disk: f64| disk.min(rate.bits() as f64 / 8.0);
        let (read, write) = (most(rates.read_bytes_per_second), most(rates.write_bytes_per_second));
        Rates { read_bytes_per_second: read, write_bytes_per_second: write, ..rates.clone() }
    });
    let rates = over_link.as_ref().unwrap_or(rates);
    let each = cell.actors().map(|actor| {
        let (seconds, bytes) = actor_cost(study, actor, traits, rates, spans);
        (actor.start.seconds() + seconds, bytes)
    });
    let (seconds, bytes) = each.fold((0.0, 0), |(longest, sum), (s, b)| (f64::max(longest, s), sum + b));
    (seconds + rates.cell_overhead_seconds, bytes)
}

/// Seconds of an actor whose workload runs for a time.
fn seconds_of(study: &Study, actor: &Actor) -> f64 {
    actor.duration.map_or_else(|| study.repeat.seconds_on(&actor.subject), Millis::seconds)
}

fn actor_cost(study: &Study, actor: &Actor, traits: &[WorkloadTraits], rates: &Rates, spans: &Spans) -> (f64, u64) {
    let fixed = rates.fixed_seconds.get(&actor.workload).copied().filter(|_| actor.duration.is_none());
    let timed = fixed.unwrap_or_else(|| seconds_of(study, actor));
    if !actor.subject.is_disk() {
        return (timed, 0);
    }
    if actor.is_warm() {
        // Warm data are read once before, and by dd once more from the cache.
        let warming = study.warm_bytes(actor) as f64 / rates.read_bytes_per_second;
        let working = if rates.fixed_bytes.contains_key(&actor.workload) { 0.0 } else { timed };
        return (warming + working, 0);
    }
    let job = traits.iter().find(|t| t.name == actor.workload);
    let writes = job.is_none_or(WorkloadTraits::writes);
    if let Some(&bytes) = rates.fixed_bytes.get(&actor.workload) {
        let rate = if writes { rates.write_bytes_per_second } else { rates.read_bytes_per_second };
        return (bytes as f64 / rate, if writes { bytes } else { 0 });
    }
    let rate = match job.and_then(|t| t.disk.as_ref()) {
        _ if !writes => 0.0,
        Some(t) if t.depth == 1 && (!t.sequential || t.block_bytes <= SMALL_BLOCK) => {
            (rates.small_ios_per_second * t.block_bytes as f64).min(rates.write_bytes_per_second)
        }
        _ => rates.write_bytes_per_second,
    };
    let bytes = ((rate * timed) as u64).min(spans.of(&actor.workload));
    (if rate > 0.0 { bytes as f64 / rate } else { timed }, if writes { bytes } else { 0 })
}

/// Blocks up to this size are small: the fixed cost of a request limits their rate, not their bytes.
const SMALL_BLOCK: u64 = 16 * 1024;
