//! Proofs of findings: the cell without and with the change, measured again, interleaved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cell::{Baseline, Cell};
use crate::facts::gain_ratio;
use crate::run::Run;
use crate::stats::Ratio;
use crate::study::{NamedCell, Study};
use crate::words::count;

/// Two cells whose comparison proves a finding (`vmio tax --prove`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// Without the change.
    pub before: Cell,
    /// With the change.
    pub after: Cell,
}

/// Result of a proof.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proven {
    /// The cells.
    pub proof: Proof,
    /// After over before: above 1 is faster.
    pub gain_ratio: Ratio,
    /// Whether the interval excludes 1, with enough pairs and boots.
    pub proven: bool,
    /// The result in one sentence.
    pub verdict: String,
}

impl Proof {
    /// The study that measures both cells (and their baselines) as the given one would. Parts that only other cells
    /// need are left out, so that it can be parsed again when it is stored.
    pub fn study(&self, like: &Study) -> Study {
        let mut study = Study {
            name: format!("{}-proof", like.name),
            title: format!("{} against {}", self.after.key(), self.before.key()),
            control: None,
            matrix: Vec::new(),
            named: [&self.before, &self.after].map(NamedCell::from).into(),
            ..like.clone()
        };
        study.drop_what_only_disks_need();
        // Without a comparison there is no baseline.
        let compared = study.named_cells().any(|cell| study.compares(&cell));
        if matches!(study.baseline, Baseline::Like(_)) && !compared {
            study.baseline = Baseline::None;
        }
        study
    }

    /// The result by the run of [`Proof::study`]; `None` without a round in which both cells ran.
    pub fn verdict(&self, run: &Run) -> Option<Proven> {
        let ratio = gain_ratio(run, &self.before, &self.after)?;
        let rule = run.study.repeat.convergence();
        let enough = ratio.pairs >= rule.min_pairs && ratio.boots >= rule.min_boots;
        let figure = ratio.times();
        let (faster, slower) = (ratio.surely_above(1.0), ratio.surely_below(1.0));
        let verdict = match (enough, faster, slower) {
            (false, ..) => {
                let of = (count(ratio.pairs as usize, "pair"), count(ratio.boots as usize, "boot"));
                format!("not enough: {} from {}; so far {figure}.", of.0, of.1)
            }
            (_, true, _) => format!("proven: with the change it ran {figure} as fast."),
            (.., true) => format!("refuted: with the change it ran {figure} as fast, which is slower."),
            _ => format!("no difference: with the change it ran {figure} as fast."),
        };
        Some(Proven { proof: self.clone(), gain_ratio: ratio, proven: enough && faster, verdict })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::study::{Names, SubjectKind, WorkloadName};
    use crate::testing::{Bench, guest, native, virtio};

    const QUICK: &str = include_str!("../../../../studies/quick.toml");

    fn proof() -> Proof {
        let workload = "rand-read-32";
        Proof { before: guest("device", "lsi53c895a", workload), after: virtio("device", workload) }
    }

    fn proven(after: f64, rounds: u32) -> Proven {
        let p = proof();
        let bench = Bench::new().cell(native("device", "rand-read-32"), 60e3).cell(p.before.clone(), 4e3);
        p.verdict(&bench.cell(p.after.clone(), after).rounds(rounds).run()).unwrap()
    }

    #[test]
    fn its_study_measures_both_cells_and_the_baseline() {
        let list = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
        let names = Names {
            guests: list(&["native", "qemu"]),
            targets: list(&["device", "sparse"]),
            drivers: list(&["lsi53c895a", "virtio-blk"]),
            workloads: ["durable-append", "seq-write", "seq-read", "rand-read-1", "rand-read-32"]
                .map(|name| WorkloadName { name: name.into(), works_on: SubjectKind::Disk })
                .into(),
            ..Names::default()
        };
        // Its disk blocks.
        let disks = QUICK.split("\n# Two machines").next().unwrap();
        let study = proof().study(&Study::parse("quick.toml", disks, &names).unwrap());
        assert_eq!(study.cells(), [native("device", "rand-read-32"), proof().before, proof().after]);
        assert_eq!(Study::parse("stored", &study.to_toml(), &names).unwrap(), study);
    }

    #[test]
    fn gain_no_difference_and_loss_are_told_apart() {
        assert!(proven(12e3, 6).proven && proven(12e3, 6).verdict.starts_with("proven: with the change it ran"));
        assert!(!proven(4e3, 6).proven && proven(4e3, 6).verdict.starts_with("no difference"));
        assert!(!proven(2e3, 6).proven && proven(2e3, 6).verdict.starts_with("refuted"));
        assert!(!proven(12e3, 3).proven && proven(12e3, 3).verdict.starts_with("not enough: 3 pairs from 2 boots"));
    }
}
