//! virtio-net on a tap without vhost-net: QEMU's main loop reads and writes each packet by a system call. With vhost a
//! kernel thread does it.

use super::change::{NicChange, own_nic};
use super::live::seen;
use super::support::{cards, studied_card};
use super::{Change, Check, Finding, Need, Rule, Severity};
use crate::cell;
use crate::facts::{Changed, Gain, Measured, Nic};

/// Any significant gain counts: it only takes a kernel module.
const GAIN: f64 = 1.0;

pub(super) const RULE: Rule = Rule {
    id: "no-vhost",
    title: "Packets go through QEMU (no vhost-net)",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Advice,
    references: &[
        "https://libvirt.org/formatdomain.html#setting-nic-driver-specific-options (driver name='vhost')",
        "QEMU, qemu(1), \"Network options\": tap, vhost=on",
    ],
    checks: &[Check::Run(measured), Check::Nic(live)],
    // Silent: where both are equally fast.
    #[cfg(test)]
    fixture: (|| fixture::run(25e9), || fixture::run(10e9)),
    ..Rule::PLAIN
};

/// In a run: the same card over the same path without and with it.
fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let to_vhost = |g: &&Gain| {
        cards(g).is_some_and(|(before, after)| !before.vhost && *after == cell::Nic { vhost: true, ..before.clone() })
    };
    let cause = |g: &Gain| {
        format!(
            "QEMU's main loop copies each packet between the tap and this guest. Over the same path, {} by vhost-net ran {} \
             as fast.",
            g.after.workload(),
            g.ratio.times()
        )
    };
    rule.from_gains(m, m.sure_gains(Changed::Nic, GAIN).filter(to_vhost), cause, |g| {
        let card = studied_card(m, g.before.lead.nic(), true);
        Change { sets: None, ..own_nic("Use vhost-net.", &card, NicChange { vhost: true, ..NicChange::default() }) }
    })
}

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    let tap = nic.backend.as_deref().is_some_and(|b| b == "tap" || b == "macvtap");
    let virtio = nic.model.as_deref() == Some("virtio-net");
    if !(tap && virtio && nic.vhost == Some(false) && nic.vhost_here == Some(true)) {
        return None;
    }
    let cause = "QEMU's main loop copies each packet between the tap and the guest, although this host has vhost-net, \
                 which does it in the kernel.";
    let change = own_nic("Use vhost-net.", nic, NicChange { vhost: true, ..NicChange::default() });
    Some(rule.advice(nic, &seen![nic; model, backend, vhost, vhost_here], cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::cell::Subject;
    use crate::facts::Facts;
    use crate::testing::{Bench, over_bridge};

    pub fn run(speed: f64) -> Facts {
        let mut by_kernel = over_bridge(Some("virtio-net"), "iperf3-tcp");
        if let Subject::Path { nic: Some(nic), .. } = &mut by_kernel.lead.subject {
            nic.vhost = true;
        }
        Bench::new()
            .cell(over_bridge(None, "iperf3-tcp"), 40e9)
            .cell(over_bridge(Some("virtio-net"), "iperf3-tcp"), 10e9)
            .cell(by_kernel, speed)
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
    fn a_host_without_vhost_net_is_not_told_to_use_it() {
        let fires = |nic: Nic| findings(&of_nic(nic)).iter().any(|found| found.rule == RULE.id);
        assert!(fires(Nic { vhost: Some(false).into(), ..live_nic() }));
        assert!(!fires(Nic { vhost: Some(false).into(), vhost_here: Some(false).into(), ..live_nic() }));
    }
}
