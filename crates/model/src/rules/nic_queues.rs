//! One queue pair of a virtio-net card is served by one vCPU and one vhost thread, however many vCPUs the guest has.
//! Linux gained from a pair for each vCPU; Windows lost in the same report.

use super::change::{NicChange, new_card, own_nic};
use super::live::seen;
use super::support::{cards, studied_card};
use super::withheld::{self, Advice};
use super::{Change, Check, Finding, Need, Rule, Severity};
use crate::cell;
use crate::facts::{Changed, Gain, Measured, Nic};
use crate::rate::BitRate;

/// Least gain, since queues take memory and threads of the host.
const GAIN: f64 = 1.1;

/// More pairs gain little (each has its own vhost thread; libvirt's and Proxmox's limits are higher).
const MOST: u32 = 8;
/// Least rate of a limit on the card at which several queues matter.
const LEAST_LIMIT: BitRate = BitRate::new(5_000_000_000);

pub(super) const RULE: Rule = Rule {
    id: "nic-queues",
    title: "One network queue for several vCPUs",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Advice,
    references: &[
        "https://github.com/virtio-win/kvm-guest-drivers-windows/issues/237 (Linux 15.3 to 25.2 Gbit/s, Windows 4.3 to \
         2.3)",
        "Proxmox VE, qm.adoc, \"Network Device\", Multiqueue",
    ],
    checks: &[Check::Run(measured), Check::Nic(live)],
    // Silent: where more are not faster.
    #[cfg(test)]
    fixture: (|| fixture::run(16e9), || fixture::run(10e9)),
    ..Rule::PLAIN
};

/// In a run: the same card over the same path with one queue pair, or QEMU's default, and with more.
fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let more = |g: &&Gain| {
        let (before, after) = cards(g)?;
        let same = *after == cell::Nic { queues: after.queues, ..before.clone() };
        (same && before.queues.unwrap_or(1) == 1 && after.queues? > 1).then_some(after.queues?)
    };
    let cause = |g: &Gain| {
        format!(
            "One queue pair serves this guest. Over the same path, {} with {} ran {} as fast.",
            g.after.workload(),
            more(&g).unwrap_or(1),
            g.ratio.times()
        )
    };
    rule.from_gains(m, m.sure_gains(Changed::Nic, GAIN).filter(|g| more(g).is_some()), cause, |g| {
        let (queues, vhost) = (more(&g), g.before.lead.nic().is_some_and(|nic| nic.vhost));
        let card = studied_card(m, g.before.lead.nic(), vhost);
        let what = format!("Give it {} queue pairs.", queues.unwrap_or(1));
        let change = own_nic(what, &card, NicChange { queues, vhost, ..NicChange::default() });
        Change { sets: None, proxmox: new_card(queues), ..change }
    })
}

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    let vcpus = nic.vcpus.filter(|n| *n > 1 && nic.queues == Some(1))?;
    // A card that is held to less has no use for several; one whose flows are has.
    if nic.rate_limits.iter().any(|limit| !limit.per_flow && limit.most() < LEAST_LIMIT) {
        return None;
    }
    // Without vhost one loop serves all queues.
    let gains = nic.vhost == Some(true) && nic.model.as_deref() == Some("virtio-net");
    if !gains || withheld::of_nic(nic, Advice::NicQueues).is_some() {
        return None;
    }
    let cause = format!(
        "One queue pair serves {vcpus} vCPUs: all packets go through one vCPU and one host thread. In a report \
         Linux went from 15.3 to 25.2 Gbit/s with more."
    );
    let queues = vcpus.min(MOST);
    let doubt = match (*nic.windows, &*nic.os) {
        (None, _) => {
            " Not for Windows, which became slower there (4.3 to 2.3 Gbit/s), nor for FreeBSD (OPNsense, pfSense), \
             whose forwarding stalled."
        }
        (Some(_), None) => " Not for FreeBSD (OPNsense, pfSense), whose forwarding stalled.",
        (Some(_), Some(_)) => "",
    };
    let what = format!("Give it {queues} queue pairs, if the network is the guest's bottleneck.{doubt}");
    let change = own_nic(what, nic, NicChange { queues: Some(queues), ..NicChange::default() });
    Some(rule.advice(nic, &seen![nic; queues, vcpus, vhost], &cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::cell::Subject;
    use crate::facts::Facts;
    use crate::testing::{Bench, over_bridge};

    pub fn run(speed: f64) -> Facts {
        let mut four = over_bridge(Some("virtio-net"), "iperf3-tcp");
        if let Subject::Path { nic: Some(nic), .. } = &mut four.lead.subject {
            nic.queues = Some(4);
        }
        Bench::new()
            .cell(over_bridge(None, "iperf3-tcp"), 40e9)
            .cell(over_bridge(Some("virtio-net"), "iperf3-tcp"), 10e9)
            .cell(four, speed)
            .facts()
    }
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::facts::Nic;
    use crate::rules::findings;
    use crate::testing::{live_nic, of_nic};

    /// For running guests the settings alone decide.
    #[test]
    fn windows_and_freebsd_keep_their_one_queue() {
        let fires = |nic: Nic| findings(&of_nic(nic)).iter().any(|found| found.rule == RULE.id);
        assert!(fires(Nic { queues: Some(1).into(), ..live_nic() }));
        assert!(!fires(Nic { queues: Some(1).into(), windows: Some(true).into(), ..live_nic() }));
        for os in ["bsd", "other"] {
            let windows = None.into();
            assert!(!fires(Nic { queues: Some(1).into(), windows, os: os.into(), ..live_nic() }), "{os}");
        }
    }
}
