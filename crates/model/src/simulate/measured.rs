//! A published experiment measured on real machines: each cell as a scenario of its own, with its result as an
//! [`Outcome`], to compare with the simulation. Cells with the paper's loads are scaled copies of its scenario; others
//! vary it: a link with less than the contracts were made for, many tenants, floods of the host and of an unmatched
//! interface, other senders.

mod reports;

use super::{Enforcement, MILLISECOND, Outcome, SECOND, Scenario, Settings, Source, Vif};
use crate::allocate::Member;
use crate::cell::{Cell, Side};
use crate::control::Allocator;
use crate::figure::Reading;
use crate::rate::BitRate;
use crate::result::{CpuUse, Sample as Taken, Watched};
use crate::run::Run;
use crate::study::Study;

use reports::{Reports, outcome};

/// The setting that selects a cell's system.
const GUARD: &str = "guard";
/// Queue of the link, in milliseconds of its rate.
const WAIT_MS: u64 = 50;
/// The uplink of the network `shared`.
const UPLINK: &str = "wire";
/// Names of members that are not the paper's: traffic of an interface that no policy names, and the host's own.
const UNMATCHED: &str = "unmatched";
const HOST: &str = "host";

/// How members send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// Datagrams on schedule, whatever becomes of them.
    OpenLoop,
    /// Datagrams on schedule, by a sender that waits where its buffer is full.
    Blocking,
    /// TCP, as fast as it goes.
    Tcp,
}

/// The load of a workload of datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// (From second, rate).
    pub steps: Vec<(u64, BitRate)>,
    /// Whether the sender waits.
    pub waits: bool,
}

/// A cell of the experiment.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The leading actor's side.
    pub side: Side,
    /// The guard's policy; `None` without a guard.
    pub guard: Option<String>,
    /// How members send.
    pub sender: Sender,
    /// What the link carries, as a part of what loads and contracts were made for; `None` where the loads are not the
    /// paper's.
    pub capacity_ratio: Option<f64>,
    /// Whether the loads are the paper's over the whole time, so that its losses can be compared.
    pub is_whole: bool,
    /// Whether others than the paper's members send, too: the host, and an unmatched interface.
    pub is_flooded: bool,
    /// Number of rounds, whose mean the outcome is.
    pub rounds: usize,
    /// Its scenario.
    pub scenario: Scenario,
    /// Settings of its simulation.
    pub settings: Settings,
    /// Its measured outcome.
    pub measured: Outcome,
    /// Largest share of late packets of any actor's generator.
    pub late_ratio: f64,
    /// Packets that came to the host and did not leave by the uplink, as a share of those that came; `None` without
    /// counters, and where the host itself sends.
    pub host_drop_ratio: Option<f64>,
    /// What was copied from senders to the host, in bit/s: bytes received at their ports; `None` without counters.
    pub copied_bps: Option<f64>,
    /// Processor time of the host, hypervisors and generators included, in processors.
    pub host_cpus: Option<f64>,
    /// Processor time of all hypervisors, in processors; `None` without one.
    pub hypervisor_cpus: Option<f64>,
}

impl Trial {
    /// Whether the simulation has such senders.
    pub fn can_be_simulated(&self) -> bool {
        self.sender == Sender::OpenLoop
    }

    /// Whether it differs from another one only in who shapes.
    pub fn is_beside(&self, other: &Trial) -> bool {
        let of = |t: &Trial| (t.side.clone(), t.sender, t.scenario.capacity, t.scenario.vifs.len(), t.is_flooded);
        of(self) == of(other)
    }
}

impl Scenario {
    /// The same on another link for another time: rates scaled to the one, times to the other.
    #[must_use]
    pub fn scaled(&self, capacity: BitRate, duration: u64) -> Scenario {
        let part = |value: u64, of: u64, to: u64| {
            u64::try_from(u128::from(value) * u128::from(to) / u128::from(of.max(1))).unwrap_or(u64::MAX)
        };
        let rate = |rate: BitRate| BitRate::new(part(rate.bits(), self.capacity.bits(), capacity.bits()));
        let time = |at: u64| part(at, self.duration, duration);
        let vif = |vif: &Vif| {
            let mut vif = vif.clone();
            (vif.contract.min, vif.contract.max) = (rate(vif.contract.min), rate(vif.contract.max));
            if let Source::OpenLoop(steps) = &mut vif.source {
                steps.iter_mut().for_each(|(at, offer)| (*at, *offer) = (time(*at), rate(*offer)));
            }
            vif
        };
        Scenario { capacity, duration, vifs: self.vifs.iter().map(vif).collect(), ..self.clone() }
    }

    /// The capacity for which these sources are the scenario's, all rates scaled; `None` where they are not.
    fn capacity_of(&self, sources: &[Source]) -> Option<BitRate> {
        let (last, its) = (sources.get(self.vifs.len().checked_sub(1)?)?, self.vifs.last()?);
        let (Source::OpenLoop(last), Source::OpenLoop(its)) = (last, &its.source) else { return None };
        let (mine, printed) = (last.first()?.1.bits(), its.first()?.1.bits());
        let bits = u128::from(self.capacity.bits()) * u128::from(mine) / u128::from(printed.max(1));
        let capacity = BitRate::of_sum(bits);
        let scaled = self.scaled(capacity, self.duration);
        let fits = |(vif, source): (&Vif, &Source)| {
            let (Source::OpenLoop(known), Source::OpenLoop(steps)) = (&vif.source, source) else { return false };
            steps.iter().all(|step| known.iter().any(|known| known.1 == step.1))
        };
        scaled.vifs.iter().zip(sources).all(fits).then_some(capacity)
    }
}

/// The cells of a run that are this experiment, in the order of the study. `load` reads the name of a workload of
/// datagrams.
pub fn trials(run: &Run, study: &Study, scenario: &Scenario, load: &dyn Fn(&str) -> Option<Load>) -> Vec<Trial> {
    let of = |cell: &Cell| {
        let taken: Vec<&Taken> = run.samples.iter().filter(|sample| sample.cell == *cell).collect();
        trial(&taken, study, scenario, load)
    };
    study.cells().iter().filter_map(of).collect()
}

fn trial(taken: &[&Taken], study: &Study, paper: &Scenario, load: &dyn Fn(&str) -> Option<Load>) -> Option<Trial> {
    let cell = &taken.first()?.cell;
    let (capacity, actors) = (cell.link_rate()?, cell.actors().count());
    if actors < paper.vifs.len() {
        return None;
    }
    let duration = (study.repeat.seconds * SECOND as f64) as u64;
    let rounds: Vec<Vec<Reports>> =
        taken.iter().map(|sample| reports::of_sample(sample, duration)).collect::<Option<_>>()?;
    let senders = rounds.first()?.len();
    if rounds.iter().any(|round| round.len() != senders) {
        return None;
    }
    let loads: Vec<Option<Load>> = cell.actors().map(|actor| load(&actor.workload)).collect();
    let sources: Vec<Source> = loads.iter().map(|load| source(load.as_ref())).collect();
    let sender = match &loads[0] {
        None => Sender::Tcp,
        Some(load) if load.waits => Sender::Blocking,
        Some(_) => Sender::OpenLoop,
    };
    let guard = cell.settings.get(GUARD).cloned();
    let policy = guard.as_ref().and_then(|name| study.guards.get(name));
    let (allocator, period) = match (&guard, policy) {
        (None, _) => (Allocator::None, paper.period),
        (Some(_), policy) => policy?.kept()?,
    };
    let made_for = paper.capacity_of(&sources);
    let scaled = paper.scaled(made_for.unwrap_or(capacity), duration);
    let is_paper = actors == paper.vifs.len();
    let has_host = senders > actors;
    let few = is_paper || has_host;
    let contracts = policy.and_then(|policy| policy.contracts(actors, capacity).ok());
    let contract = |i: usize| match (&contracts, scaled.vifs.get(i).filter(|_| few && made_for.is_some())) {
        (Some(contracts), _) => contracts[i].member(capacity),
        (None, Some(vif)) => vif.contract,
        (None, None) => anybody(capacity),
    };
    let name = |i: usize| match paper.vifs.get(i).filter(|_| few) {
        Some(vif) => vif.name.clone(),
        None if few => UNMATCHED.to_owned(),
        None => format!("T{}", i + 1),
    };
    let vif = |(i, source): (usize, &Source)| Vif { name: name(i), contract: contract(i), source: source.clone() };
    let mut vifs: Vec<Vif> = sources.iter().enumerate().map(vif).collect();
    if has_host {
        let contract = policy.and_then(|policy| policy.host(actors, capacity)).unwrap_or_else(|| anybody(capacity));
        vifs.push(Vif { name: HOST.to_owned(), contract, source: sources.last()?.clone() });
    }
    let packet_bytes = rounds.first()?.first()?.packet_bytes;
    let scenario = Scenario { capacity, packet_bytes, duration, period: paper.period, vifs };
    let same_source = |(one, other): (&Vif, &Vif)| one.source == other.source;
    let is_whole = is_paper && made_for.is_some() && scenario.vifs.iter().zip(&scaled.vifs).all(same_source);
    let settings = settings(&scenario, allocator, period, (cell.is_native(), guard.is_some()));
    let drops: Option<Vec<f64>> = taken.iter().map(|sample| dropped_on_host(sample)).collect();
    let copied: Option<Vec<f64>> = taken.iter().map(|sample| received_at_ports(sample, "bytes")).collect();
    let seconds = study.repeat.seconds;
    let each = |of: &dyn Fn(CpuUse) -> f64| {
        mean(&taken.iter().map(|sample| of(CpuUse::of(&sample.seen)) / seconds).collect::<Vec<_>>())
    };
    let host_cpus = each(&|cpu| cpu.host_seconds);
    Some(Trial {
        side: cell.lead.side.clone(),
        guard,
        sender,
        capacity_ratio: made_for.filter(|_| few).map(|made| capacity.bits() as f64 / made.bits() as f64),
        is_whole,
        is_flooded: has_host,
        rounds: rounds.len(),
        late_ratio: rounds.iter().flatten().map(|member| member.late_ratio).fold(0.0, f64::max),
        measured: outcome(&rounds, &scenario),
        host_drop_ratio: drops.filter(|_| !has_host).map(|all| mean(&all)),
        copied_bps: copied.map(|all| mean(&all) * 8.0 / seconds),
        host_cpus: (host_cpus > 0.0).then_some(host_cpus),
        hypervisor_cpus: (!cell.is_native()).then(|| each(&|cpu| cpu.by_role.values().sum())),
        scenario,
        settings,
    })
}

/// What a workload offers; TCP offers all that it can.
fn source(load: Option<&Load>) -> Source {
    let Some(load) = load else { return Source::Aimd { rtt: MILLISECOND } };
    Source::OpenLoop(load.steps.iter().map(|(second, rate)| (second * SECOND, *rate)).collect())
}

/// Of whom no contract is known.
fn anybody(capacity: BitRate) -> Member {
    Member { priority: 1, min: BitRate::ZERO, max: capacity, weight: 1, hard: false, over_max: false }
}

/// Settings of the simulation of a cell that is native or not, shaped or not.
fn settings(scenario: &Scenario, allocator: Allocator, period: u64, (native, shaped): (bool, bool)) -> Settings {
    let enforcement = match (allocator, native) {
        (Allocator::Exact, _) => Enforcement::Hierarchy,
        // Plain HTB: the same hierarchy, in which nothing is left for a loop.
        (Allocator::None, _) if shaped => Enforcement::Hierarchy,
        (_, true) => Enforcement::Queued,
        (_, false) => Enforcement::Held,
    };
    let mut settings = Settings { enforcement, ..Settings::new(allocator, period) };
    if !shaped {
        let waits = scenario.capacity.bytes().bytes() * WAIT_MS / 1000 / u64::from(scenario.packet_bytes.max(1));
        settings.queue = u32::try_from(waits).unwrap_or(u32::MAX);
    }
    settings
}

/// Share of packets received on all other links that did not leave by the uplink.
fn dropped_on_host(sample: &Taken) -> Option<f64> {
    let (_, uplink) = links(sample).find(|(name, _)| *name == UPLINK)?;
    let (left, came) = (counted(uplink, "packets", "sent")?, received_at_ports(sample, "packets")?);
    (came > 0.0).then(|| (1.0 - left / came).max(0.0))
}

/// A count of what the host received from all who send by a port; `None` where no port was watched.
fn received_at_ports(sample: &Taken, what: &str) -> Option<f64> {
    let ports = links(sample).filter(|(name, _)| *name != UPLINK);
    let all: Vec<f64> = ports.filter_map(|(_, figures)| counted(figures, what, "received")).collect();
    (!all.is_empty()).then(|| all.iter().sum())
}

fn links(sample: &Taken) -> impl Iterator<Item = (&str, &[Reading])> {
    sample.seen.iter().filter_map(|seen| match &seen.watched {
        Watched::Link(name) => Some((name.as_str(), seen.figures.as_slice())),
        _ => None,
    })
}

fn counted(figures: &[Reading], what: &str, way: &str) -> Option<f64> {
    let is = |r: &&Reading| r.figure == what && r.labels.get("way").is_some_and(|w| w == way);
    figures.iter().find(is).map(|r| r.value.typical())
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::rate::MBIT as M;

    fn paper() -> Scenario {
        Scenario::from_toml("amamou2012.toml", include_str!("../../../../papers/amamou2012.toml")).unwrap()
    }

    #[test]
    fn a_scenario_is_scaled_in_rate_and_time() {
        let scaled = paper().scaled(100 * M, 60 * SECOND);
        let first = &scaled.vifs[0];
        assert_eq!((first.contract.min, first.contract.max), (30 * M, 60 * M));
        let at = [0, 20, 28, 34, 38, 50].map(|s| s * SECOND);
        let rates = [80, 20, 60, 20, 50, 80].map(|m| m * M);
        assert_eq!(first.source, Source::OpenLoop(at.into_iter().zip(rates).collect()));
        assert_eq!(paper().scaled(1000 * M, 300 * SECOND), paper(), "as it is");
    }

    /// Loads tell for which link they were made, whatever the link carries.
    #[test]
    fn loads_in_proportion_are_the_papers() {
        let steady = |mbit: u64| Source::OpenLoop(vec![(0, mbit * M)]);
        let first = Source::OpenLoop(vec![(0, 160 * M), (5 * SECOND, 40 * M)]);
        let all = [first, steady(160), steady(160), steady(9)];
        assert_eq!(paper().capacity_of(&all), Some(200 * M), "a fourth one is not the paper's");
        assert_eq!(paper().capacity_of(&all[..2]), None);
        assert_eq!(paper().capacity_of(&[steady(150), steady(160), steady(160)]), None);
        assert_eq!(paper().capacity_of(&[steady(6), steady(6), steady(6)]), Some(75 * M / 10));
        let tcp = || Source::Aimd { rtt: MILLISECOND };
        assert_eq!(paper().capacity_of(&[tcp(), tcp(), tcp()]), None);
    }

    #[test]
    fn plain_htb_is_a_hierarchy_and_a_loop_is_not() {
        let scenario = paper().scaled(200 * M, SECOND);
        let of = |allocator, native, shaped| settings(&scenario, allocator, SECOND, (native, shaped)).enforcement;
        assert_eq!(of(Allocator::None, true, true), Enforcement::Hierarchy);
        assert_eq!(of(Allocator::Exact, false, true), Enforcement::Hierarchy);
        assert_eq!(of(Allocator::ExactLoop, false, true), Enforcement::Held);
        assert_eq!(of(Allocator::ExactLoop, true, true), Enforcement::Queued);
        assert_eq!(settings(&scenario, Allocator::None, SECOND, (true, false)).queue, 833, "50 ms of it");
    }
}
