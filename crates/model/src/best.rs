//! The best set-up of a run: on the target with most of them, by the geometric mean of the shares
//! over the workloads that all of them ran.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cell::Attachment;
use crate::result::Mark;
use crate::rules::change::known_everywhere;
use crate::run::Run;
use crate::stats::Ratio;
use crate::summary::{Share, Summary, overall};

/// The set-up with the highest shares of a run, as a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Best {
    /// The target that it was measured on.
    pub target: String,
    /// The disk as it is set up.
    pub attachment: Attachment,
    /// Workloads that all compared set-ups ran.
    pub workloads: Vec<String>,
    /// Geometric mean of its shares of native over these workloads.
    pub share_value: f64,
    /// Its gain over each other set-up on the same target, over these workloads.
    pub over: Vec<Over>,
}

/// Gain of the best set-up over another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Over {
    /// The other set-up.
    pub attachment: Attachment,
    /// Best over other: geometric mean over the workloads, paired by round.
    pub ratio: Ratio,
    /// Whether the difference is significant.
    pub sure: bool,
}

/// The best set-up; `None` when no guest has a share. Set-ups that lose acknowledged writes (`cache=unsafe`), that a
/// cache served, or that libvirt and Proxmox cannot configure are left out.
pub fn best(run: &Run, summary: &Summary) -> Option<Best> {
    let fit: Vec<&Share> = summary.shares.iter().filter(|s| fits(summary, s)).collect();
    let target = target_of_most(&fit)?;
    let mut ran: BTreeMap<&Attachment, BTreeMap<&str, &Share>> = BTreeMap::new();
    for share in fit.into_iter().filter(|s| s.cell.target() == Some(&target)) {
        ran.entry(share.cell.attachment()?).or_default().insert(share.cell.workload(), share);
    }
    // A set-up that skipped a workload would be judged by the easier rest.
    let most = ran.values().map(BTreeMap::len).max()?;
    ran.retain(|_, shares| shares.len() == most);
    let common = ran
        .values()
        .map(|shares| shares.keys().copied().collect::<BTreeSet<&str>>())
        .reduce(|a, b| a.intersection(&b).copied().collect())?;
    let score = |shares: &BTreeMap<&str, &Share>| {
        let logs: f64 = common.iter().map(|w| shares[w].share_ratio.value.ln()).sum();
        (logs / common.len().max(1) as f64).exp()
    };
    if common.is_empty() {
        return None;
    }
    let (&attachment, shares) = ran.iter().max_by(|a, b| score(a.1).total_cmp(&score(b.1)))?;
    let rule = &summary.convergence;
    let over = ran.iter().filter(|(a, _)| **a != attachment).filter_map(|(&other, theirs)| {
        let ratio = overall(run, common.iter().map(|w| (&theirs[w].cell, &shares[w].cell)))?;
        let sure = ratio.pairs >= rule.min_pairs && ratio.boots >= rule.min_boots && ratio.surely_above(1.0);
        Some(Over { attachment: other.clone(), ratio, sure })
    });
    let mut over: Vec<Over> = over.collect();
    over.sort_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value));
    Some(Best {
        attachment: attachment.clone(),
        workloads: common.iter().map(|w| (*w).to_owned()).collect(),
        share_value: score(shares),
        over,
        target,
    })
}

fn fits(summary: &Summary, share: &Share) -> bool {
    let cached = summary
        .cell(&share.key)
        .is_some_and(|c| c.marks.get(&Mark::Cached).is_some_and(|marked| 2 * marked >= c.samples));
    // Alone, with the study's own guest, without settings, compared with the host itself.
    let plain = share.cell.settings.is_empty() && share.cell.lead.side.shape.is_plain();
    let natively = share.baseline == share.cell.natively().key();
    let had = |a: &Attachment| !a.cache.no_flush() && known_everywhere(a);
    plain && natively && share.cell.disk().is_some_and(|on| on.attachment.is_some_and(had)) && !cached
}

/// The target on which most set-ups were measured; among equals the first.
fn target_of_most(shares: &[&Share]) -> Option<String> {
    let mut counts: Vec<(&str, BTreeSet<&Attachment>)> = Vec::new();
    for cell in shares.iter().map(|s| &s.cell) {
        let (target, attachment) = (cell.target()?, cell.attachment()?);
        match counts.iter_mut().find(|(name, _)| *name == target) {
            Some((_, set)) => {
                set.insert(attachment);
            }
            None => counts.push((target, BTreeSet::from([attachment]))),
        }
    }
    let most = counts.iter().map(|(_, set)| set.len()).max()?;
    counts.into_iter().find(|(_, set)| set.len() == most).map(|(name, _)| name.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cell::Cache;
    use crate::summary::summarise;
    use crate::testing::{Bench, guest, native, virtio};

    fn best_of(bench: Bench) -> Option<Best> {
        let run = bench.run();
        best(&run, &summarise(&run))
    }

    #[test]
    fn the_one_with_the_best_mean_over_all_workloads() {
        let found = best_of(
            Bench::new()
                .cell(native("device", "rand-read-32"), 60e3)
                .cell(guest("device", "lsi53c895a", "rand-read-32"), 1.4e3)
                .cell(virtio("device", "rand-read-32"), 13e3)
                .cell(native("device", "seq-write"), 700e6)
                .cell(guest("device", "lsi53c895a", "seq-write"), 250e6)
                .cell(virtio("device", "seq-write"), 240e6)
                // Measured on one workload only: not comparable.
                .cell(guest("device", "ahci", "seq-write"), 690e6),
        )
        .unwrap();
        assert_eq!((found.target.as_str(), found.attachment.driver.as_str()), ("device", "virtio-blk"));
        assert_eq!(found.workloads, ["rand-read-32", "seq-write"]);
        assert_eq!(found.over.len(), 1);
        let over = &found.over[0];
        assert!(over.sure && (over.ratio.value - (13.0_f64 / 1.4 * 240.0 / 250.0).sqrt()).abs() < 0.2, "{over:?}");
    }

    #[test]
    fn what_is_unsafe_or_cached_or_nowhere_to_be_had_is_left_out() {
        let mut unsafe_disk = virtio("device", "seq-write");
        unsafe_disk.attachment_mut().unwrap().cache = Cache::Unsafe;
        let cached = guest("device", "virtio-scsi", "seq-write");
        let bench = Bench::new()
            .cell(native("device", "seq-write"), 700e6)
            .cell(unsafe_disk, 690e6)
            .cell(cached.clone(), 680e6)
            .mark(&cached, Mark::Cached)
            .cell(guest("device", "nvme", "seq-write"), 670e6)
            .cell(guest("device", "ahci", "seq-write"), 100e6);
        let found = best_of(bench).unwrap();
        assert_eq!((found.attachment.driver.as_str(), found.over.len()), ("ahci", 0));
        assert!(best_of(Bench::new().cell(native("device", "seq-write"), 1e6)).is_none());
    }

    /// A disk's configuration cannot express settings of a cell, other guests, or a shape.
    #[test]
    fn only_what_a_disk_alone_can_be_given_is_best() {
        let plain = guest("device", "ahci", "seq-write");
        let mut set = virtio("device", "seq-write");
        set.settings.insert("read-ahead".into(), "4096k".into());
        let mut large = virtio("device", "seq-write");
        large.lead.side.shape.vcpus = Some(8);
        let bench = Bench::new()
            .cell(native("device", "seq-write"), 700e6)
            .cell(set.natively(), 700e6)
            .cell(set, 690e6)
            .cell(large, 680e6)
            .cell(plain, 100e6);
        let found = best_of(bench).unwrap();
        assert_eq!((found.attachment.driver.as_str(), found.over.len()), ("ahci", 0));
    }
}
