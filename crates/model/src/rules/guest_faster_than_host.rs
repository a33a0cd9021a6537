//! A guest that is certainly faster than its host measures something else: its requests end in a cache that the native
//! side does not have: the host's page cache, shared reads of unwritten blocks, a write cache that ignores flushes.

use super::support::{caution, cite_count, cite_known};
use super::{Check, Finding, Need, Rule, Severity, change};
use crate::facts::Measured;
use crate::result::Mark;
use crate::summary::Share;

/// A share above this is beyond the accuracy of shares.
const SHARE: f64 = 1.05;

pub(super) const RULE: Rule = Rule {
    id: "guest-faster-than-host",
    title: "Guest faster than the host: a cache was measured",
    needs: Need::Measured,
    severity: Severity::Advice,
    references: &[
        "https://github.com/kata-containers/kata-containers/issues/4149 (direct I/O on both sides)",
        "lu2016, section 4 (where the cache lies)",
    ],
    checks: &[Check::Share(cached)],
    // Silent: three per cent above the host is within the accuracy of shares.
    #[cfg(test)]
    fixture: (|| fixture::share(1.6), || fixture::share(1.03)),
    ..Rule::PLAIN
};

fn cached(rule: &Rule, m: &Measured, share: &Share) -> Option<Finding> {
    if !share.share_ratio.surely_above(SHARE) {
        return None;
    }
    let (marked, samples) =
        m.cell(&share.cell).map_or((0, 0), |c| (c.marks.get(&Mark::Cached).copied().unwrap_or_default(), c.samples));
    let seen = match marked {
        0 => "the device's counters do not show it, so it is below them or affects the native side's speed".to_owned(),
        _ => format!("in {marked} of {samples} samples the device moved over 10 % fewer bytes than requested"),
    };
    let cause = format!(
        "The guest gets {} of what the host gets natively. A guest cannot be faster than no guest: a cache was \
         measured; {seen}. Do not read this cell as the speed of the disk.{}",
        share.share_ratio.times(),
        caution(m)
    );
    let change = change::settings(
        "Measure and run with O_DIRECT (cache=none) if the disk's own speed matters.",
        &crate::cell::Attachment { iothread: false, ..change::recommended() },
    );
    let mut finding = rule.finding(Severity::Severe, share.key.clone(), cause, change);
    finding.figures.push(cite_known(m, share));
    let label = format!("samples marked cached: {}", share.key);
    finding.figures.push(cite_count(m, label, f64::from(marked), "samples"));
    Some(finding)
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, native, virtio};

    pub fn share(of_native: f64) -> Facts {
        Bench::new()
            .cell(native("device", "seq-read"), 500e6)
            .cell(virtio("device", "seq-read"), 500e6 * of_native)
            .half_width(0.1)
            .facts()
    }
}
