//! Offloads turned off: without segmentation offload each packet of 1,500 bytes takes the path through the hypervisor
//! that 64 KiB could take at once, and checksums are computed for packets that never leave the host. A guest is offered
//! none where its tap has no header for them: QEMU clears them then (hw/net/virtio-net.c, `virtio_net_get_features`).
//! What ethtool shows as `tx` and `tso` of a tap is what the guest's driver took (`TUNSETOFFLOAD`; Linux
//! drivers/net/tun.c, `set_offload`), and off until it runs: no fault.

use super::change::{AppliesAt, Names, NicChange, comment, on_host, own_nic, shell};
use super::live::seen;
use super::support::away_from;
use super::{Change, Check, Finding, Need, Rule, Severity};
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
            "Here the offloads were off, on the guest's card and along the whole path. Over the same path, {} with them ran {} as \
             fast.",
            g.after.workload(),
            g.ratio.times()
        )
    };
    rule.from_gains(m, away_from(m, SETTING, |set| set == "off", GAIN), cause, |_| {
        on_host("Leave the offloads on: on the guest's tap (TAP), and in the guest on its INTERFACE.", both_ends())
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
    if nic.tap_header == Some(false) && nic.model.as_deref() == Some("virtio-net") {
        return Some(without_header(rule, nic));
    }
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
        // The guest's driver turns the rest on.
        (Some(tap), true) => on_host(what, format!("ethtool -K {} sg on gso on gro on", shell(tap))),
        _ => own_nic(what, nic, to),
    };
    Some(rule.advice(nic, &seen![nic; offloads_off], &cause, change))
}

/// A tap that was opened without a header for offloads.
fn without_header(rule: &Rule, nic: &Nic) -> Finding {
    let tap = nic.interface.as_deref().unwrap_or("its tap");
    let cause = format!(
        "{tap} was opened without a header for offloads (vnet_hdr): the guest is offered none, so each packet of 1,500 \
         bytes goes through the hypervisor, and the guest computes all checksums."
    );
    let names = Names(&nic.place);
    let change = Change {
        what: format!("Open {tap} with the header (vnet_hdr), which is QEMU's default."),
        qemu: format!(
            "# in its own -netdev tap,...: remove these, keep all else\nvnet_hdr=off\n\
             # with fd= in place of it: whoever opens {} for the guest has to pass IFF_VNET_HDR\n\
             # (TUNSETIFF with 0x5002)",
            comment(tap)
        ),
        libvirt: format!(
            "# libvirt opens taps of virtio cards with it: find who opens this one\nvirsh dumpxml {}",
            names.domain()
        ),
        proxmox: format!(
            "# Proxmox VE opens taps with it: find what takes it away\nqm config {} | grep -e ^args",
            names.vmid()
        ),
        takes: AppliesAt::NextStart,
        sets: None,
    };
    rule.advice(nic, &seen![nic; model, interface, tap_header], &cause, change)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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

    #[test]
    fn a_tap_without_a_header_is_named_with_how_to_open_it() {
        let found = |header: Option<bool>, model: &str| {
            let nic = Nic { tap_header: header.into(), model: model.into(), ..live_nic() };
            findings(&of_nic(nic)).into_iter().find(|found| found.rule == RULE.id)
        };
        let finding = found(Some(false), "virtio-net").unwrap();
        assert!(finding.cause.starts_with("tap0 was opened without a header"), "{}", finding.cause);
        assert!(finding.change.qemu.contains("keep all else\nvnet_hdr=off\n#"), "{}", finding.change.qemu);
        assert!(finding.evidence.iter().any(|e| e.setting == "tap header" && e.value == "no"), "{finding:#?}");
        assert_eq!((found(None, "virtio-net"), found(Some(false), "rtl8139")), (None, None));
    }

    /// What the guest's driver turns on is not advised.
    #[test]
    fn what_was_turned_off_by_hand_at_the_tap_is_turned_on_there() {
        let nic = Nic { offloads_off: vec!["tap gso".into()].into(), ..live_nic() };
        let finding = findings(&of_nic(nic)).into_iter().find(|found| found.rule == RULE.id).unwrap();
        assert_eq!(finding.change.qemu, "ethtool -K tap0 sg on gso on gro on");
    }
}
