//! What the published experiment claims of bandwidth, loss, processor time and copies, judged by measured cells.
//! Figures 5 and 6 have no printed numbers: their claims compare a system with the unshaped one of the same run.

use schemars::JsonSchema;
use serde::Serialize;

use super::measured::{Sender, Trial};
use super::{Allocator, MILLISECOND, Sample, Source, Vif};
use crate::rate::BitRate;

/// How far a measured rate may be from a limit or a guarantee: 2 %.
const TOLERANCE: f64 = 0.02;
/// How unequal the paper's equal shares are: 350 Mbit/s against 300.
const EQUAL: f64 = 350.0 / 300.0;
/// Processor time within 5 % is no higher.
const NO_HIGHER: f64 = 1.05;
/// Of the loop's periods from this one on, the paper sees less loss and no higher processor time (section V.C.2).
const FROM_PERIOD: u64 = 100 * MILLISECOND;

/// A claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Claim {
    /// Unshaped, or with equal contracts, those who offer the same get the same.
    EqualShare,
    /// Nobody gets more than its maximum.
    Cap,
    /// Everybody gets its minimum, or what it offers below that.
    Minimum,
    /// What the first class leaves of its minimum is not lent.
    Reserve,
    /// The first class loses less than unshaped, by loops from 100 ms on.
    Loss,
    /// The host's processors are no busier than unshaped, by loops from 100 ms on.
    ProcessorTime,
    /// Less is copied from guests to the host than unshaped.
    Copies,
}

/// A claim held against a cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Judged {
    /// The claim.
    pub claim: Claim,
    /// What was found: a ratio of rates (equal share, cap, minimum, reserve), a loss ratio, processors, bit/s.
    pub found: f64,
    /// What it is held against, in the same unit.
    pub bound: f64,
    /// Whether it holds.
    pub holds: bool,
}

impl Claim {
    /// In words.
    pub fn label(self) -> &'static str {
        match self {
            Claim::EqualShare => "equal shares: most / least",
            Claim::Cap => "cap: received / maximum",
            Claim::Minimum => "minimum: received / owed",
            Claim::Reserve => "reserve: others / what is left",
            Claim::Loss => "loss of class 1, against unshaped",
            Claim::ProcessorTime => "processors busy, against unshaped",
            Claim::Copies => "copied Mbit/s, against unshaped",
        }
    }
}

/// The claims that a cell can be held against, among all cells of its run.
pub fn judge(trial: &Trial, all: &[Trial]) -> Vec<Judged> {
    let at_most =
        |claim, found: Option<f64>, bound: f64| found.map(|f| Judged { claim, found: f, bound, holds: f <= bound });
    let steady = Steady::of(trial);
    if trial.guard.is_none() {
        return at_most(Claim::EqualShare, steady.inequality(), EQUAL).into_iter().collect();
    }
    let unshaped = all.iter().find(|other| other.guard.is_none() && other.is_beside(trial));
    let alike = trial.scenario.vifs.windows(2).all(|two| two[0].contract == two[1].contract);
    let below = |claim, found: Option<f64>, bound: Option<f64>| {
        Some(Judged { claim, found: found?, bound: bound?, holds: found? < bound? })
    };
    let loss = |t: &Trial| t.measured.totals.first().map(super::Totals::loss_ratio);
    // What blocks or adapts loses nothing that it offers.
    let open = trial.sender == Sender::OpenLoop;
    let looped_often = matches!(trial.settings.allocator, Allocator::Dba(_) | Allocator::ExactLoop)
        && trial.settings.period < FROM_PERIOD;
    let judged = [
        at_most(Claim::EqualShare, steady.inequality().filter(|_| alike), EQUAL),
        at_most(Claim::Cap, steady.over_maximum(), 1.0 + TOLERANCE),
        steady.of_minimum().map(|found| {
            let bound = 1.0 - TOLERANCE;
            Judged { claim: Claim::Minimum, found, bound, holds: found >= bound }
        }),
        at_most(Claim::Reserve, steady.of_what_is_left(), 1.0 + TOLERANCE),
        below(Claim::Loss, loss(trial).filter(|_| trial.is_whole && open && !looped_often), unshaped.and_then(loss)),
        unshaped
            .and_then(|other| other.host_cpus)
            .filter(|_| !looped_often && trial.sender != Sender::Tcp)
            .and_then(|cpus| at_most(Claim::ProcessorTime, trial.host_cpus, cpus * NO_HIGHER)),
        below(
            Claim::Copies,
            trial.copied_bps.filter(|_| trial.sender != Sender::Tcp),
            unshaped.and_then(|other| other.copied_bps),
        ),
    ];
    judged.into_iter().flatten().collect()
}

/// Times at which offers have not just changed ([`Outcome::settling`](super::Outcome::settling)), by offers: mean rates
/// of each member.
struct Steady<'a> {
    trial: &'a Trial,
    phases: Vec<Phase>,
}

struct Phase {
    offered: Vec<BitRate>,
    received: Vec<f64>,
}

impl Steady<'_> {
    fn of(trial: &Trial) -> Steady<'_> {
        let vifs = &trial.scenario.vifs;
        let offers = |at: u64| vifs.iter().map(|vif| offered(vif, at)).collect::<Vec<_>>();
        let mut phases: Vec<(Phase, u32)> = Vec::new();
        let settling = trial.measured.settling();
        // What waits after the end is none of it.
        let steady = |s: &&Sample| s.at >= settling && s.at <= trial.scenario.duration;
        for sample in trial.measured.series.iter().filter(steady) {
            let now = offers(sample.at - 1);
            if offers(sample.at - settling) != now {
                continue;
            }
            let rates = || sample.received.iter().map(|rate| rate.bits() as f64);
            match phases.last_mut().filter(|(phase, _)| phase.offered == now) {
                Some((phase, count)) => {
                    phase.received.iter_mut().zip(rates()).for_each(|(sum, rate)| *sum += rate);
                    *count += 1;
                }
                None => phases.push((Phase { offered: now, received: rates().collect() }, 1)),
            }
        }
        let mean = |(mut phase, count): (Phase, u32)| {
            phase.received.iter_mut().for_each(|sum| *sum /= f64::from(count));
            phase
        };
        Steady { trial, phases: phases.into_iter().map(mean).collect() }
    }

    fn members(&self) -> impl Iterator<Item = (&Vif, BitRate, f64)> {
        let vifs = &self.trial.scenario.vifs;
        self.phases.iter().flat_map(move |phase| {
            vifs.iter().zip(&phase.offered).zip(&phase.received).map(|((vif, offered), got)| (vif, *offered, *got))
        })
    }

    /// The most that anybody got against the least, in phases in which all offer the same; the worst of these.
    fn inequality(&self) -> Option<f64> {
        if self.trial.is_flooded {
            return None;
        }
        let equal = self.phases.iter().filter(|phase| phase.offered.windows(2).all(|two| two[0] == two[1]));
        let of = |phase: &Phase| {
            let (least, most) =
                phase.received.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), r| (a.min(*r), b.max(*r)));
            most / least.max(1.0)
        };
        equal.map(of).reduce(f64::max)
    }

    /// The most that anybody who must not exceed its maximum got of it, where it offered as much.
    fn over_maximum(&self) -> Option<f64> {
        let capacity = self.trial.scenario.capacity;
        let capped = self.members().filter(|(vif, offered, _)| {
            let contract = vif.contract;
            !contract.over_max && contract.max < capacity && *offered >= contract.max
        });
        // The published loop shares what is left beyond the maxima.
        let dba = matches!(self.trial.settings.allocator, Allocator::Dba(_));
        let first = self.trial.scenario.vifs.first()?;
        let capped = capped.filter(|(vif, ..)| !dba || vif.name == first.name);
        capped.map(|(vif, _, got)| got / vif.contract.max.bits() as f64).reduce(f64::max)
    }

    /// The least that anybody got of what it was owed.
    fn of_minimum(&self) -> Option<f64> {
        let owed = self.members().filter(|(vif, ..)| vif.contract.min > BitRate::ZERO);
        let ratio =
            |(vif, offered, got): (&Vif, BitRate, f64)| got / offered.min(vif.contract.min).bits().max(1) as f64;
        owed.map(ratio).reduce(f64::min)
    }

    /// What the others got of the link less the first one's minimum, while that one offers less; where it is reserved.
    fn of_what_is_left(&self) -> Option<f64> {
        let scenario = &self.trial.scenario;
        let first = scenario.vifs.first()?.contract;
        let reserves = first.hard || matches!(self.trial.settings.allocator, Allocator::Dba(_));
        let idle = self.phases.iter().filter(|phase| phase.offered.first().is_some_and(|o| *o < first.min));
        let left = scenario.capacity.saturating_sub(first.min).bits().max(1) as f64;
        idle.filter(|_| reserves).map(|phase| phase.received.iter().skip(1).sum::<f64>() / left).reduce(f64::max)
    }
}

/// What a member offers; TCP all that it can.
fn offered(vif: &Vif, at: u64) -> BitRate {
    if matches!(vif.source, Source::Aimd { .. }) { BitRate::MAX } else { vif.source.offers(at) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::allocate::dba::Measures;
    use crate::cell::Side;
    use crate::rate::MBIT as M;
    use crate::simulate::{Outcome, SECOND, Scenario, Settings, Totals};

    /// Three containers at 200 Mbit/s for 60 s who get so many Mbit/s while MV1 offers 160, and while it offers 40.
    fn trial(allocator: Allocator, period_ms: u64, busy: [u64; 3], idle: [u64; 3]) -> Trial {
        let paper = include_str!("../../../../papers/amamou2012.toml");
        let scenario = Scenario::from_toml("amamou2012.toml", paper).unwrap().scaled(200 * M, 60 * SECOND);
        let sample = |point: u64| {
            let at = (point + 1) * SECOND / 2;
            let of = if scenario.vifs[0].source.offers(at - 1) < 60 * M { idle } else { busy };
            Sample { at, received: of.map(|mbit| mbit * M).into(), scheduled: Vec::new(), caps: Vec::new() }
        };
        let totals = |got: u64| Totals { scheduled_bits: 100, received_bits: got, ..Totals::default() };
        let guarded = allocator != Allocator::None;
        let totals = vec![totals(if guarded { 83 } else { 44 }); 3];
        let series = (0..120).map(sample).collect();
        Trial {
            side: Side::native(),
            guard: guarded.then(|| allocator.word().to_owned()),
            sender: Sender::OpenLoop,
            capacity_ratio: Some(1.0),
            is_whole: true,
            is_flooded: false,
            rounds: 2,
            settings: Settings::new(allocator, period_ms * MILLISECOND),
            measured: Outcome { totals, series, duration: 60 * SECOND, packets: true },
            late_ratio: 0.0,
            host_drop_ratio: Some(0.5),
            copied_bps: Some(if guarded { 2e8 } else { 4e8 }),
            host_cpus: Some(1.0),
            hypervisor_cpus: None,
            scenario,
        }
    }

    fn verdicts(trial: &Trial, all: &[Trial]) -> Vec<(Claim, bool)> {
        judge(trial, all).into_iter().map(|judged| (judged.claim, judged.holds)).collect()
    }

    #[test]
    fn what_the_paper_shows_holds() {
        let unshaped = trial(Allocator::None, 100, [70, 60, 60], [30, 80, 80]);
        let exact = trial(Allocator::Exact, 10, [120, 60, 20], [40, 100, 40]);
        let dba = trial(Allocator::Dba(Measures::Passed), 10, [118, 60, 20], [40, 100, 38]);
        let all = [unshaped, exact, dba];
        assert_eq!(verdicts(&all[0], &all), [(Claim::EqualShare, true)]);
        let held = [Claim::Cap, Claim::Minimum, Claim::Reserve, Claim::Loss, Claim::ProcessorTime, Claim::Copies];
        assert_eq!(verdicts(&all[1], &all), held.map(|claim| (claim, true)));
        let often = [Claim::Cap, Claim::Minimum, Claim::Reserve, Claim::Copies];
        assert_eq!(verdicts(&all[2], &all), often.map(|claim| (claim, true)), "below 100 ms");
        let seldom = trial(Allocator::Dba(Measures::Passed), 100, [118, 60, 20], [40, 100, 38]);
        assert_eq!(verdicts(&seldom, &all), held.map(|claim| (claim, true)), "from 100 ms on");
        let alone = verdicts(&all[1], &all[1..]);
        assert_eq!(alone, [Claim::Cap, Claim::Minimum, Claim::Reserve].map(|claim| (claim, true)), "nothing unshaped");
    }

    #[test]
    fn what_is_broken_is_told() {
        let unshaped = trial(Allocator::None, 100, [90, 60, 50], [30, 80, 80]);
        let mut exact = trial(Allocator::Exact, 10, [125, 18, 57], [40, 120, 40]);
        (exact.host_cpus, exact.copied_bps) = (Some(1.2), Some(4.1e8));
        exact.measured.totals[0].received_bits = 30;
        let all = [unshaped, exact];
        assert_eq!(verdicts(&all[0], &all), [(Claim::EqualShare, false)]);
        assert!(verdicts(&all[1], &all).iter().all(|(_, holds)| !holds), "{:?}", judge(&all[1], &all));
        assert_eq!(judge(&all[1], &all).len(), 6);
        let minimum = judge(&all[1], &all).into_iter().find(|judged| judged.claim == Claim::Minimum).unwrap();
        assert!((minimum.found - 0.9).abs() < 1e-9, "18 of 20: {minimum:?}");
    }

    #[test]
    fn equal_contracts_are_equal_shares() {
        for (got, holds) in [([70, 60, 60], true), ([90, 60, 50], false)] {
            let mut alike = trial(Allocator::Exact, 10, got, [30, 80, 80]);
            let contract = alike.scenario.vifs[1].contract;
            alike.scenario.vifs.iter_mut().for_each(|vif| vif.contract = contract);
            assert_eq!(verdicts(&alike, &[])[0], (Claim::EqualShare, holds));
        }
    }

    /// With points of 2.5 s, as of 300 s: the one after a change is not counted.
    #[test]
    fn what_follows_a_change_is_not_judged() {
        let mut long = trial(Allocator::Exact, 10, [120, 60, 20], [40, 100, 40]);
        long.scenario = long.scenario.scaled(200 * M, 300 * SECOND);
        let offers = |at: u64| long.scenario.vifs[0].source.offers(at);
        let sample = |point: u64| {
            let (from, at) = (point * 5 * SECOND / 2, (point + 1) * 5 * SECOND / 2);
            let just_changed = from > 0 && offers(from - 1) != offers(from);
            let got: [u64; 3] = if just_changed { [0; 3] } else { [120, 60, 20] };
            Sample { at, received: got.map(|mbit| mbit * M).into(), scheduled: Vec::new(), caps: Vec::new() }
        };
        let series: Vec<Sample> = (0..120).map(sample).collect();
        long.measured.series = series;
        let minimum = judge(&long, &[]).into_iter().find(|judged| judged.claim == Claim::Minimum).unwrap();
        assert!(minimum.holds, "{minimum:?}");
    }

    #[test]
    fn tcp_wants_all_and_is_owed_its_minimum() {
        let mut tcp = trial(Allocator::Exact, 10, [70, 21, 105], [70, 21, 105]);
        tcp.sender = Sender::Tcp;
        tcp.scenario.vifs.iter_mut().for_each(|vif| vif.source = Source::Aimd { rtt: MILLISECOND });
        let all = [tcp];
        assert_eq!(verdicts(&all[0], &all), [(Claim::Cap, true), (Claim::Minimum, true)]);
    }
}
