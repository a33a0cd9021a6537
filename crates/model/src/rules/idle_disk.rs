//! A disk that looks busy and is not. %util counts the time with any request in flight; a device that serves many at
//! once can be "90 % busy" with one and many times faster with thirty-two. So idleness is judged by queue depth and by
//! the gain of a greater depth.

use super::support::{cite_estimate, cite_gain};
use super::{Check, Finding, Need, Rule, Severity, change};
use crate::facts::{Changed, Gain, Measured};
use crate::stats::Estimate;
use crate::summary::Device;

/// Least gain by depth.
const GAIN: f64 = 1.5;
/// One request in flight, and a few of the file system.
const QUEUE_DEPTH: f64 = 1.1;
/// %util from which it looks busy and misleads.
const LOOKS_BUSY: f64 = 0.5;

pub(super) const RULE: Rule = Rule {
    id: "idle-disk",
    title: "The disk looks busy but has capacity left",
    needs: Need::DeviceCounters,
    severity: Severity::Advice,
    references: &[
        "iostat(1), %util: says nothing of the limit of devices that serve requests in parallel",
        "shafer2010, section 3.3, columns avgqu-sz and %util",
    ],
    checks: &[Check::Run(measured)],
    // Silent: as busy as it looks: a greater depth has no gain.
    #[cfg(test)]
    fixture: (|| fixture::deeper(13e3), || fixture::deeper(4.9e3)),
    ..Rule::PLAIN
};

fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    m.sure_gains(Changed::Depth, GAIN).filter_map(|g| idle(rule, m, g)).collect()
}

fn idle(rule: &Rule, m: &Measured, gain: &Gain) -> Option<Finding> {
    let deeper = m.job(gain.after.workload())?.depth;
    let (device, busy) = seen(m, gain)?;
    let cause = format!(
        "During {} the device was busy {:.0} % of the time by %util, with {:.2} requests in flight, yet it gave {} as \
         much with {deeper} in flight. %util does not measure the remaining capacity of flash or an array.",
        gain.before.workload(),
        busy.value * 100.0,
        device.queue_depth.value,
        gain.ratio.times(),
    );
    let cause = format!("{cause}{}", super::support::caution(m));
    let change = change::in_guest(
        "Judge the disk by queue depth and latency, and put more work in flight: parallel jobs in the guest, or more \
         guests.",
        "# on the host: look at aqu-sz and r_await/w_await, not at %util\n\
         iostat -x 1",
    );
    let mut finding = rule.finding(Severity::Note, gain.before.key(), cause, change);
    let key = gain.before.key();
    finding.figures = cite_gain(m, gain);
    finding.figures.push(cite_estimate(
        m,
        format!("requests in flight at the device: {key}"),
        "requests",
        &device.queue_depth,
    ));
    finding.figures.push(cite_estimate(m, format!("%util as a ratio: {key}"), "ratio", &busy));
    finding.cost_ratio = Some(gain.ratio);
    Some(finding)
}

/// The device in the shallow cell, if it certainly looked busy with a short queue.
fn seen(m: &Measured, gain: &Gain) -> Option<(Device, Estimate)> {
    let device = m.cell(&gain.before)?.device?;
    let enough = device.queue_depth.n >= m.convergence.min_pairs;
    let busy = device.busy_ratio?;
    (enough && device.queue_depth.interval?.below(QUEUE_DEPTH) && busy.interval?.above(LOOKS_BUSY))
        .then_some((device, busy))
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::one_and_many;

    pub fn deeper(iops: f64) -> Facts {
        one_and_many("rand-write", (0.8, 0.8), iops)
    }
}
