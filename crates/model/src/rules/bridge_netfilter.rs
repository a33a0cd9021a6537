//! A bridge whose packets the host's firewall sees (the module br_netfilter): each packet between two guests of a
//! bridge goes through iptables' chains and connection tracking of the host, though the host itself routes none of
//! them. Each network namespace begins with it on, once the module is there (Linux, `br_netfilter_hooks.c`,
//! `br_netfilter_sysctl_default`). Docker, Kubernetes and Proxmox's firewall switch it on, since they filter there.

use super::change::{on_host, shell};
use super::live::seen;
use super::support::away_from;
use super::{Check, Finding, Need, Rule, Severity};
use crate::facts::{Gain, Measured, Nic};

/// Any sure gain counts: who needs it knows why.
const GAIN: f64 = 1.0;
/// The setting of a study that switches it on the bridge of a path.
const SETTING: &str = "bridge-netfilter";

/// For what it is needed.
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
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
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
        on_host(format!("Switch it off, {NEEDED}."), off(None))
    })
}

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    nic.bridge_netfilter.filter(|on| *on)?;
    let cause = "Each packet between guests of this bridge goes through the host's iptables and connection tracking; its \
                 rules may drop them, too.";
    let what = format!("Switch it off for the guests, {NEEDED}.");
    Some(rule.advice(nic, &seen![nic; bridge_netfilter, bridge], cause, on_host(what, off(nic.bridge.as_deref()))))
}

/// Of the namespace, and of the bridge itself: the packets are seen where either says so.
fn off(bridge: Option<&str>) -> String {
    format!(
        "# until the host starts anew; for good, as net.bridge.bridge-nf-call-iptables=0 and so on in /etc/sysctl.d/\n\
         sysctl -w net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0 \
         net.bridge.bridge-nf-call-arptables=0 && \\\n\
         ip link set dev {} type bridge nf_call_iptables 0 nf_call_ip6tables 0 nf_call_arptables 0",
        shell(bridge.unwrap_or("BRIDGE"))
    )
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::over_bridge_under;

    pub fn fires() -> Facts {
        over_bridge_under(super::SETTING, "on", 8e9)
    }

    /// Where it makes no difference.
    pub fn silent() -> Facts {
        over_bridge_under(super::SETTING, "on", 10e9)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testing::live_nic;

    /// Of guests that run the fact alone decides, and the change names their bridge.
    #[test]
    fn a_bridge_that_the_firewall_sees_is_told() {
        let of = |on| live(&RULE, &Nic { bridge_netfilter: on, bridge: "br 0".into(), ..live_nic() });
        let told = of(Some(true).into()).unwrap();
        assert_eq!(told.severity, Severity::Note);
        assert!(
            told.change.qemu.contains("ip link set dev 'br 0' type bridge nf_call_iptables 0"),
            "{:?}",
            told.change
        );
        assert!(of(Some(false).into()).is_none() && of(None.into()).is_none());
    }
}
