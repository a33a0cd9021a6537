//! A tap that accepts larger packets than its bridge: a bridge silently drops packets larger than the MTU of the
//! outgoing port (Linux, `br_forward.c`, `is_skb_forwardable`). A smaller MTU at the tap is no fault: overlay networks
//! and Proxmox's `mtu=` are set up so. A virtio-net device may report an MTU to its guest (`host_mtu`): then the guest
//! sends packets of that size, whatever the tap's.

use super::change::{AppliesAt, Names, chained, on_host, read_slot, shell};
use super::live::seen;
use super::support::away_from;
use super::{Change, Check, Finding, Kinds, Need, Rule, Severity};
use crate::facts::{Gain, Measured, Nic};

/// Lost packets are retransmitted, and lost again: any significant gain counts.
const GAIN: f64 = 1.0;
/// The setting of a study that gives both ends a larger MTU than the link between them, as `9000-over-1500`.
const SETTING: &str = "mtu";

pub(super) const RULE: Rule = Rule {
    id: "mtu-mismatch",
    title: "The tap allows larger packets than its bridge",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Advice,
    references: &[
        "https://libvirt.org/formatdomain.html#mtu-configuration",
        "Proxmox VE, qm.adoc, \"Network Device\" (MTU; 1 takes the bridge's)",
    ],
    checks: &[Check::Run(measured), Check::Nic(live)],
    kinds: Kinds::Any,
    // Silent: a larger MTU on the whole path is no mismatch, whatever its gain.
    #[cfg(test)]
    fixture: (
        || crate::testing::over_bridge_under(SETTING, "9000-over-1500", 5e6),
        || crate::testing::over_bridge_under(SETTING, "9000", 5e9),
    ),
    ..Rule::PLAIN
};

/// In a run: the same over the same path with one MTU everywhere.
fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let cause = |g: &Gain| {
        let set = g.before.settings.get(SETTING).map_or("", String::as_str);
        let (ends, link) = set.split_once("-over-").unwrap_or((set, "less"));
        format!(
            "Here both ends and the tap took packets of {ends} bytes and the bridge's uplink of {link}: what was larger \
             was dropped. Over the same path without that, {} ran {} as fast.",
            g.after.workload(),
            g.ratio.times()
        )
    };
    let differs = |set: &str| set.contains("-over-");
    rule.from_gains(m, away_from(m, SETTING, differs, GAIN), cause, |_| {
        on_host(
            "Have both ends take no more than what lies between them: the guest's tap (TAP), and in the guest its INTERFACE.",
            "mtu=$(cat /sys/class/net/BRIDGE/mtu)\nip link set dev TAP mtu \"$mtu\"\n# and in the guest, with that number\n\
             # ip link set dev INTERFACE mtu NUMBER",
        )
    })
}

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    let (tap, bridge) = ((*nic.mtu_bytes)?, (*nic.bridge_mtu_bytes)?);
    let own = nic.host_mtu_bytes.unwrap_or(tap);
    if own <= bridge {
        return None;
    }
    let lets = match *nic.host_mtu_bytes {
        Some(_) => "The device allows the guest packets of",
        None => "The tap accepts packets of",
    };
    let cause = format!(
        "{lets} {own} bytes, but the bridge passes only {bridge}: larger packets are dropped silently, and \
         connections that carry large packets stall."
    );
    let (from, looked_at) = (nic.bridge.as_deref(), seen![nic; mtu_bytes, host_mtu_bytes, bridge_mtu_bytes, bridge]);
    let names = Names(&nic.place);
    let interface = shell(nic.interface.as_deref().unwrap_or("TAP"));
    // Effective at once, for devices that do not report an MTU and for received packets.
    let now = if tap > bridge { format!("ip link set dev {interface} mtu {bridge}\n") } else { String::new() };
    let or = format!(
        "# or instead, where all behind the bridge (its uplink, switches) passes {own} bytes on:\n\
         # ip link set dev {} mtu {own}",
        shell(from.unwrap_or("BRIDGE"))
    );
    let virtio = nic.model.as_deref() == Some("virtio-net");
    let (vmid, slot) = (names.vmid(), names.slot("net0"));
    let change = Change {
        what: format!(
            "Set the tap to the bridge's {bridge} bytes, and the guest's interface too (in the guest, or as below, \
             from its \
             next start on); or raise the bridge's MTU."
        ),
        qemu: format!("{now}{}{or}", qemu(nic, virtio, bridge)),
        libvirt: format!(
            "{now}virsh edit {}\n# in the <interface> with <mac address='{}'/>: this, in place of its own <mtu .../>\n\
             <mtu size='{bridge}'/>\n{or}",
            names.domain(),
            names.target("MAC")
        ),
        proxmox: if virtio {
            // Proxmox unplugs a running guest's card when its line changes; 1 means the bridge's MTU.
            format!(
                "{now}{}\n{or}",
                chained(&[
                    read_slot("card", &vmid, &slot, "s/,mtu=[^,]*//g;"),
                    format!("qm shutdown {vmid}"),
                    format!("qm set {vmid} --{slot} \"$card,mtu=1\""),
                    format!("qm start {vmid}"),
                ])
            )
        } else {
            // Only virtio reports an MTU (qm.conf(5), net[n], mtu).
            format!("{now}{or}")
        },
        takes: AppliesAt::Running,
        sets: None,
    };
    Some(rule.advice(nic, &looked_at, &cause, change))
}

/// The key of a virtio-net device, if its option has keys.
fn qemu(nic: &Nic, virtio: bool, bridge: u64) -> String {
    match nic.place.given {
        None if virtio => {
            format!("# from the next start on, in its own -device: set this, keep all else\nhost_mtu={bridge}\n")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::Place;
    use crate::rules::findings;
    use crate::testing::{live_nic, of_nic};

    /// For running guests the settings alone decide.
    #[test]
    fn a_tap_above_its_bridge_is_told() {
        let fires = |tap: u64| {
            let nic = Nic { mtu_bytes: Some(tap).into(), ..live_nic() };
            findings(&of_nic(nic)).iter().any(|found| found.rule == RULE.id)
        };
        assert!(fires(9000));
        // An overlay network leaves room for one more header.
        assert!(!fires(1450));
    }

    #[test]
    fn a_measured_one_names_what_the_ends_and_the_link_took() {
        let all = findings(&(RULE.fixture.0)());
        let found = all.iter().find(|found| found.rule == RULE.id).unwrap();
        assert!(found.cause.contains("packets of 9000 bytes and the bridge's uplink of 1500"), "{}", found.cause);
    }

    #[test]
    fn what_the_guest_is_told_counts() {
        let place = Place { vmid: Some("101".into()), slot: Some("net0".into()), ..Place::default() };
        let nic =
            |tap, host| Nic { mtu_bytes: Some(tap).into(), host_mtu_bytes: host, place: place.clone(), ..live_nic() };
        let found = |tap, host| live(&RULE, &nic(tap, host));
        assert_eq!(found(9000, Some(1500).into()), None);
        assert_eq!(found(1500, None.into()), None);
        let finding = found(1500, Some(9000).into()).unwrap();
        assert!(finding.cause.starts_with("The device allows the guest packets of 9000 bytes"), "{}", finding.cause);
        assert_eq!(
            finding.change.qemu,
            "# from the next start on, in its own -device: set this, keep all else\nhost_mtu=1500\n# or instead, \
             where all \
             behind the bridge (its uplink, switches) passes 9000 bytes on:\n# ip link set dev br0 mtu 9000"
        );
        assert!(
            finding.change.proxmox.contains("sed -nE '/^net0: /{s///;s/,mtu=[^,]*//g;p}'"),
            "{}",
            finding.change.proxmox
        );
        assert!(finding.change.proxmox.contains("qm set 101 --net0 \"$card,mtu=1\" && "), "{}", finding.change.proxmox);
        let tap = found(9000, None.into()).unwrap();
        assert!(tap.change.qemu.starts_with("ip link set dev tap0 mtu 1500\n"), "{}", tap.change.qemu);
        // An emulated card has no such key, nor has -nic.
        let e1000 = live(&RULE, &Nic { model: "e1000".into(), ..nic(9000, None.into()) }).unwrap();
        assert!(!e1000.change.qemu.contains("host_mtu") && !e1000.change.proxmox.contains("qm "));
    }
}
