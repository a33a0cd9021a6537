//! Small reads from the host's page cache still take the whole path through the hypervisor; reads from the guest's own
//! page cache would not.

use super::support::{caution, cite_count, cite_share, mostly_cached};
use super::{Check, Finding, Need, Rule, Severity, change};
use crate::facts::Measured;
use crate::result::Mark;
use crate::summary::Share;

/// Larger reads spend their time on copying.
const MOST_BLOCK_BYTES: u64 = 16 * 1024;

pub(super) const RULE: Rule = Rule {
    id: "host-cache-hits",
    title: "Small reads are served from the host's memory",
    needs: Need::Measured,
    severity: Severity::Advice,
    references: &["lu2016, section 3, observations 1 to 3, and section 4 (read-ahead in the guest)"],
    checks: &[Check::Share(hit)],
    // Silent: served by the disk.
    #[cfg(test)]
    fixture: (|| fixture::reads(Some(crate::result::Mark::Cached)), || fixture::reads(None)),
    ..Rule::PLAIN
};

fn hit(rule: &Rule, m: &Measured, share: &Share) -> Option<Finding> {
    share.cell.attachment().filter(|a| !a.cache.direct())?;
    let small = |t: &&crate::result::DiskTraits| t.reads && t.block_bytes <= MOST_BLOCK_BYTES;
    m.job(share.cell.workload()).filter(small)?;
    // Faster than native is another rule's finding.
    if !mostly_cached(m, &share.cell) || !share.share_ratio.surely_below(1.0) {
        return None;
    }
    let cell = m.cell(&share.cell)?;
    let marked = cell.marks.get(&Mark::Cached).copied().unwrap_or_default();
    let cause = format!(
        "In {marked} of {} samples of {} the disk moved less than requested: the host's page cache served it, and \
         each hit still paid for the path through the hypervisor.{}",
        cell.samples,
        share.cell.workload(),
        caution(m)
    );
    let change = change::in_guest(
        "Move the memory and the read-ahead into the guest.",
        "# more memory for the guest instead of for the host's page cache, and in the guest for sequential readers:\n\
         blockdev --setra 256 /dev/vda    # in sectors of 512 bytes: 128 KiB",
    );
    let mut finding = rule.finding(Severity::Note, share.key.clone(), cause, change);
    let label = format!("samples marked cached: {}", share.key);
    finding.figures.push(cite_count(m, label, f64::from(marked), "samples"));
    finding.figures.extend(cite_share(m, &share.cell));
    Some(finding)
}

#[cfg(test)]
mod fixture {
    use crate::cell::{Aio, Cache};
    use crate::facts::Facts;
    use crate::result::Mark;
    use crate::testing::{Bench, native, virtio};

    pub fn reads(mark: Option<Mark>) -> Facts {
        let mut cached = virtio("device", "rand-read-1");
        if let Some(a) = cached.attachment_mut() {
            (a.cache, a.aio) = (Cache::Writeback, Aio::Threads);
        }
        let bench = Bench::new().cell(native("device", "rand-read-1"), 15e3).cell(cached.clone(), 5.5e3);
        match mark {
            Some(mark) => bench.mark(&cached, mark).facts(),
            None => bench.facts(),
        }
    }
}
