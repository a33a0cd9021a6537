//! Offloads turned off: without segmentation offload each packet of 1,500 bytes takes the path through the hypervisor
//! that 64 KiB could take at once, and checksums are computed for packets that never leave the host.

use super::change::{NicChange, on_host, own_nic, shell};
use super::live::seen;
use super::support::away_from;
use super::{Check, Finding, Need, Rule, Severity};
use crate::facts::{Gain, Measured, Nic};

/// Any significant gain counts: they are on by default.
const GAIN: f64 = 1.0;
/// The setting of a study that sets them at both ends of a path.
const SETTING: &str = "offloads";

pub(super) const RULE: Rule = Rule {
    id: "offloads-off",
    title: "Offloads of the network card are off",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Advice,
    references: &[
        "https://libvirt.org/formatdomain.html#setting-nic-driver-specific-options (host, guest)",
        "Linux, Documentation/networking/segmentation-offloads.rst",
    ],
    checks: &[Check::Run(measured), Check::Nic(live)],
    // Silent: without a difference.
    #[cfg(test)]
    fixture: (
        || crate::testing::over_bridge_under(SETTING, "off", 5e9),
        || crate::testing::over_bridge_under(SETTING, "off", 10e9),
    ),
    ..Rule::PLAIN
};

/// In a run: the same over the same path with them off, and on or as found.
fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let cause = |g: &Gain| {
        format!(
            "Here the offloads were off, on the guest's card and all the way. Over the same path, {} with them ran {} as \
             fast.",
            g.after.workload(),
            g.ratio.times()
        )
    };
    rule.from_gains(m, away_from(m, SETTING, |set| set == "off", GAIN), cause, |_| {
        on_host("Leave the offloads on, of the guest's tap (TAP) and in the guest, on its INTERFACE.", both_ends())
    })
}

/// What the setting turns on and off, and where.
fn both_ends() -> String {
    format!("{}\n# and in the guest\n{}", on("TAP"), on("INTERFACE"))
}

/// Segmentation and receive offloads, and what segmentation requires: checksums and scatter-gather.
fn on(interface: &str) -> String {
    format!("ethtool -K {interface} tx on sg on tso on gso on gro on")
}

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    if nic.offloads_off.is_empty() {
        return None;
    }
    let cause = format!(
        "Turned off: {}. Packets go through the hypervisor in small pieces instead of large ones.",
        nic.offloads_off.join(", ")
    );
    let what = "Leave the offloads on, unless the guest routes packets with a driver that mangles large ones.";
    let to = NicChange { offloads: true, ..NicChange::default() };
    let of_tap = nic.offloads_off.iter().all(|name| name.starts_with("tap"));
    let change = match (&*nic.interface, of_tap) {
        (Some(tap), true) => on_host(what, on(&shell(tap))),
        _ => own_nic(what, nic, to),
    };
    Some(rule.advice(nic, &seen![nic; offloads_off], &cause, change))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::facts::Nic;
    use crate::rules::findings;
    use crate::testing::{live_nic, of_nic};

    /// For running guests the settings alone decide.
    #[test]
    fn what_is_off_in_a_guest_that_runs_is_told() {
        let fires = |nic: Nic| findings(&of_nic(nic)).iter().any(|found| found.rule == RULE.id);
        assert!(fires(Nic { offloads_off: vec!["host_tso4".into(), "guest_tso4".into()].into(), ..live_nic() }));
        assert!(!fires(live_nic()));
    }
}
