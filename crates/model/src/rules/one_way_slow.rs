//! A guest whose network is much slower in one direction than in the other: sent and received packets take different
//! paths through the hypervisor (offloads and notification of the sender, merged buffers, ring and interrupts of the
//! receiver), so the slow direction shows where to search.

use super::change::in_guest;
use super::support::{cite_gain, cite_known};
use super::{Change, Check, Finding, Need, Proof, Rule, Severity};
use crate::facts::{Gain, Measured};
use crate::summary::Share;

/// Least ratio of the two directions: they differ a little on every machine.
const TIMES: f64 = 1.5;
/// Suffix of workloads that send from the peer; without it the actor sends.
const REVERSE: &str = "-reverse";

pub(super) const RULE: Rule = Rule {
    id: "one-way-slow",
    title: "The network is much slower in one direction",
    needs: Need::Measured,
    references: &[
        "shafer2010, section 3.4 (transmit and receive apart)",
        "Linux, Documentation/networking/scaling.rst; ethtool(8)",
    ],
    checks: &[Check::Run(measured)],
    // Silent: a third less is a normal difference.
    #[cfg(test)]
    fixture: (|| fixture::run(2e9), || fixture::run(8e9)),
    ..Rule::PLAIN
};

fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let sending = m.shares.iter().filter(|share| share.cell.lead.nic().is_some());
    let both = sending.filter_map(|sends| {
        let reverse = format!("{}{REVERSE}", sends.cell.workload());
        let receives = m.known_share(&sends.cell.clone().running(reverse))?;
        m.known_share(&sends.cell).map(|sends| (sends, receives))
    });
    both.filter_map(|(sends, receives)| finding(rule, m, sends, receives)).collect()
}

fn finding(rule: &Rule, m: &Measured, sends: &Share, receives: &Share) -> Option<Finding> {
    let surely = |fast: &Share, slow: &Share| {
        let (fast, slow) = (fast.share_ratio.interval?, slow.share_ratio.interval?);
        Some(fast.low > TIMES * slow.high)
    };
    let (slow, change) = match (surely(receives, sends)?, surely(sends, receives)?) {
        (true, _) => (sends, of_sender()),
        (_, true) => (receives, of_receiver()),
        _ => return None,
    };
    let said = |share: &Share| share.share_ratio.times();
    let mut cause = format!(
        "Sending this guest runs {} as fast as natively, receiving {}.{}",
        said(sends),
        said(receives),
        super::support::caution(m)
    );
    // What made the slow direction faster in this run can be measured again.
    let faster = m.gains.iter().filter(|g| g.citable && g.before == slow.cell && g.ratio.surely_above(1.0));
    let best: Option<&Gain> = faster.max_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value));
    if let Some(best) = best {
        cause += &format!(" Of what was measured, {} helped most: {} as fast.", best.after.key(), best.ratio.times());
    }
    let mut finding = rule.finding(Severity::Warning, slow.cell.place_key(), cause, change);
    finding.figures = [sends, receives].map(|share| cite_known(m, share)).into();
    finding.figures.extend(best.into_iter().flat_map(|g| cite_gain(m, g).into_iter().take(1)));
    finding.cost_ratio = best.map(|g| g.ratio);
    finding.proof = best.map(|g| Proof { before: g.before.clone(), after: g.after.clone() });
    Some(finding)
}

fn of_sender() -> Change {
    in_guest(
        "Look at what sends: the segmentation and checksum offloads of the guest's card should be on, and its queues as \
         many as its vCPUs.",
        "ethtool -k INTERFACE | grep -E 'checksumming|scatter|segmentation'\nethtool -l INTERFACE",
    )
}

fn of_receiver() -> Change {
    in_guest(
        "Look at what receives: the receive offloads of the guest's card should be on, its ring large, and its interrupts \
         not all on one busy vCPU.",
        "ethtool -k INTERFACE | grep -E 'receive-offload|checksumming'\nethtool -g INTERFACE\ngrep virtio /proc/interrupts",
    )
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, over_bridge};

    pub fn run(receives: f64) -> Facts {
        let cell = |nic, workload: &str| over_bridge(nic, workload);
        Bench::new()
            .cell(cell(None, "iperf3-tcp"), 40e9)
            .cell(cell(None, "iperf3-tcp-reverse"), 40e9)
            .cell(cell(Some("virtio-net"), "iperf3-tcp"), 10e9)
            .cell(cell(Some("virtio-net"), "iperf3-tcp-reverse"), receives)
            .facts()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::RULE;
    use crate::rules::findings;
    use crate::testing::{Bench, over_bridge};

    #[test]
    fn what_made_the_slow_direction_faster_can_be_proven() {
        let card = |model, workload: &str| over_bridge(Some(model), workload);
        let facts = Bench::new()
            .cell(over_bridge(None, "iperf3-tcp"), 40e9)
            .cell(over_bridge(None, "iperf3-tcp-reverse"), 40e9)
            .cell(card("e1000", "iperf3-tcp"), 1e9)
            .cell(card("e1000", "iperf3-tcp-reverse"), 4e9)
            .cell(card("virtio-net", "iperf3-tcp"), 8e9)
            .cell(card("virtio-net", "iperf3-tcp-reverse"), 8e9)
            .facts();
        let all = findings(&facts);
        let found: Vec<_> = all.iter().filter(|f| f.rule == RULE.id).collect();
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].change.what.starts_with("Look at what sends"), "{}", found[0].change.what);
        let proof = found[0].proof.as_ref().unwrap();
        assert_eq!((&proof.before, &proof.after), (&card("e1000", "iperf3-tcp"), &card("virtio-net", "iperf3-tcp")));
    }
}
