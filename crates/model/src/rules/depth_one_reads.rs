//! Synchronous reads, one at a time: the disk is idle between any two of them. Writes suffer less, since the guest's
//! kernel collects them; the application waits for each read.

use super::support::{cite_estimate, disk_key};
use super::{Check, Finding, Need, Rule, Severity, change};
use crate::facts::{Changed, Gain, Measured};
use crate::stats::Estimate;

/// Least gain by depth: a disk kept busy by one reader gains a few per cent.
const GAIN: f64 = 1.5;
/// With fewer requests in flight the device is idle part of the time.
const QUEUE_DEPTH: f64 = 1.0;

pub(super) const RULE: Rule = Rule {
    id: "depth-one-reads",
    title: "Single reads leave the disk idle",
    needs: Need::DeviceCounters,
    severity: Severity::Advice,
    references: &["shafer2010, section 3.3, table 2 (avgqu-sz 0.5, %util 57) and section 4 (asynchronous I/O)"],
    checks: &[Check::Run(measured)],
    // Silent: one reader keeps this disk's queue filled, by read-ahead.
    #[cfg(test)]
    fixture: (|| fixture::queue(0.4), || fixture::queue(2.5)),
    ..Rule::PLAIN
};

fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let synchronous = |g: &&Gain| {
        let one = m.job(g.before.workload()).is_some_and(|t| t.reads && !t.writes && t.depth == 1);
        one && depth(m, g).is_some()
    };
    let gains: Vec<&Gain> = m.sure_gains(Changed::Depth, GAIN).filter(synchronous).collect();
    let cause = |g: &Gain| {
        let queue = depth(m, g).map_or(f64::NAN, |d| d.value);
        let deeper = m.job(g.after.workload()).map_or(0, |t| t.depth);
        format!(
            "With one read in flight the device had {queue:.2} requests in its queue: it waits for the guest between \
             reads. With {deeper} in flight the same disk gave {} as many.",
            g.ratio.times()
        )
    };
    let mut all = rule.from_gains(m, gains.iter().copied(), cause, |_| advice());
    for finding in &mut all {
        let low = gains
            .iter()
            .find(|g| finding.subject.is_cell(&disk_key(&g.before)))
            .and_then(|g| depth(m, g).map(|d| (g, d)));
        if let Some((gain, queue)) = low {
            let label = format!("requests in flight at the device: {}", gain.before.key());
            finding.figures.push(cite_estimate(m, label, "requests", &queue));
        }
        // No setting of the disk is wrong, and `--prove` has nothing to change.
        finding.severity = Severity::Note;
        finding.proof = None;
    }
    all
}

/// The device's queue depth in the shallow cell, if it is certainly short.
fn depth(m: &Measured, gain: &Gain) -> Option<Estimate> {
    let queue = m.cell(&gain.before)?.device?.queue_depth;
    (queue.n >= m.convergence.min_pairs && queue.interval?.below(QUEUE_DEPTH)).then_some(queue)
}

fn advice() -> super::Change {
    change::in_guest(
        "Let the application keep several reads in flight; no hypervisor setting can do that.",
        "# in the guest: read ahead for sequential readers\n\
         blockdev --setra 4096 /dev/vda\n\
         # asynchronous or parallel reads in the application, for example PostgreSQL\n\
         psql -c \"ALTER SYSTEM SET effective_io_concurrency = 32\" -c \"SELECT pg_reload_conf()\"",
    )
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::one_and_many;

    pub fn queue(depth: f64) -> Facts {
        one_and_many("rand-read", (depth, 0.4), 13e3)
    }
}
