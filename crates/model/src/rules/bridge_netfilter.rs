//! A bridge whose packets pass the host's firewall (the module br_netfilter): each packet between two guests of a
//! bridge goes through iptables' chains and connection tracking, though the host does not route it. It is on by default
//! in each network namespace once the module is loaded (Linux, `br_netfilter_hooks.c`, `br_netfilter_sysctl_default`).
//! Docker, Kubernetes and Proxmox's firewall need it for filtering.

use super::change::{enter, on_host, shell};
use super::live::seen;
use super::support::away_from;
use super::{Check, Finding, Need, Rule, Severity};
use crate::facts::{Gain, Measured, Nic};

/// Any significant gain counts: users who need it know why.
const GAIN: f64 = 1.0;
/// The setting of a study that turns it on for a path's bridge.
const SETTING: &str = "bridge-netfilter";

/// Who needs it.
const NEEDED: &str = "unless something filters there: Docker and Kubernetes isolate containers by it, Proxmox's firewall \
                      (`pve-firewall status`) and libvirt's network filters guests";

pub(super) const RULE: Rule = Rule {
    id: "bridge-netfilter",
    title: "Packets of the bridge go through the host's firewall",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Note,
    references: &[
        "Linux, Documentation/networking/ip-sysctl.rst, /proc/sys/net/bridge/*",
        "https://wiki.libvirt.org/Net.bridge.bridge-nf-call_and_sysctl.conf.html",
    ],
    checks: &[Check::Run(measured), Check::Nic(live)],
    // Silent: without a difference.
    #[cfg(test)]
    fixture: (
        || crate::testing::over_bridge_under(SETTING, "on", 8e9),
        || crate::testing::over_bridge_under(SETTING, "on", 10e9),
    ),
    ..Rule::PLAIN
};

/// In a run: the same over the same path with it on, and off, which vmio's own bridges are.
fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let cause = |g: &Gain| {
        format!(
            "Here the host's firewall saw the packets of the bridge. Over the same path, {} past it ran {} as fast.",
            g.after.workload(),
            g.ratio.times()
        )
    };
    rule.from_gains(m, away_from(m, SETTING, |set| set == "on", GAIN), cause, |_| {
        on_host(format!("Switch it off, {NEEDED}."), off("", None))
    })
}

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    nic.bridge_netfilter.filter(|on| *on)?;
    let cause = "Each packet between guests of this bridge goes through the host's iptables and connection tracking; its \
                 rules may drop them, too.";
    let what = format!("Switch it off for the guests, {NEEDED}.");
    let off = off(&enter(nic), nic.bridge.as_deref());
    Some(rule.advice(nic, &seen![nic; bridge_netfilter, bridge], cause, on_host(what, off)))
}

/// Turns it off for the namespace that this enters, and for the bridge: either one is enough to turn it on.
fn off(enter: &str, bridge: Option<&str>) -> String {
    format!(
        "# until the host restarts; to make it permanent, net.bridge.bridge-nf-call-iptables=0 and so on in \
         /etc/sysctl.d/\n\
         {enter}sysctl -w net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0 \
         net.bridge.bridge-nf-call-arptables=0 && \\\n\
         {enter}ip link set dev {} type bridge nf_call_iptables 0 nf_call_ip6tables 0 nf_call_arptables 0",
        shell(bridge.unwrap_or("BRIDGE"))
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testing::live_nic;

    /// For running guests the setting alone decides, and the change names their bridge.
    #[test]
    fn a_bridge_that_the_firewall_sees_is_told() {
        let of = |on| live(&RULE, &Nic { bridge_netfilter: on, bridge: "br 0".into(), ..live_nic() });
        let finding = of(Some(true).into()).unwrap();
        assert_eq!(finding.severity, Severity::Note);
        assert!(
            finding.change.qemu.contains("ip link set dev 'br 0' type bridge nf_call_iptables 0"),
            "{:?}",
            finding.change
        );
        assert!(of(Some(false).into()).is_none() && of(None.into()).is_none());
    }
}
