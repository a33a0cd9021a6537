//! An emulated network card: each packet takes register accesses that exit to QEMU. virtio-net passes whole queues. An
//! emulated card cannot be throttled either: QEMU's own queue takes what the guest sends, so a bandwidth guarantee adds
//! seconds of delay.

use super::change::{NicChange, new_card, own_nic};
use super::live::seen;
use super::support::studied_card;
use super::{Change, Check, Finding, Need, Rule, Severity};
use crate::cell::Cell;
use crate::facts::{Changed, Gain, Measured, Nic};

/// Prefixes of QEMU's emulated cards (`qemu-system-x86_64 -device help`, "Network devices").
const EMULATED: [&str; 9] = ["e1000", "rtl8139", "pcnet", "vmxnet3", "ne2k", "i8255", "i8259", "tulip", "usb-net"];

/// Any significant gain counts: virtio costs nothing.
const GAIN: f64 = 1.0;

pub(super) const RULE: Rule = Rule {
    id: "emulated-nic",
    title: "Emulated network card",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Warning,
    references: &["Proxmox VE, qm.adoc, \"Network Device\"", "https://wiki.qemu.org/Documentation/Networking"],
    checks: &[Check::Run(measured), Check::Nic(live)],
    // Silent: where both are equally fast.
    #[cfg(test)]
    fixture: (|| fixture::run(4.0e9), || fixture::run(20.0e9)),
    ..Rule::PLAIN
};

/// In a run: the same path with an emulated card and with virtio-net.
fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let model = |cell: &Cell| cell.lead.nic().map_or_else(String::new, |nic| nic.model.clone());
    let to_virtio = |g: &&Gain| is_emulated(&model(&g.before)) && model(&g.after).starts_with("virtio");
    let cause = |g: &Gain| {
        format!(
            "This guest has the emulated card {}. Over the same path, {} by {} ran {} as fast.",
            model(&g.before),
            g.after.workload(),
            model(&g.after),
            g.ratio.times()
        )
    };
    rule.from_gains(m, m.sure_gains(Changed::Nic, GAIN).filter(to_virtio), cause, |g| advice(m, g))
}

/// The measured replacement card. For a running guest the change names its own device.
fn advice(m: &Measured, gain: &Gain) -> Change {
    let what = "Give the guest a virtio-net card (it needs the driver); `vmio scan` prints this with the names of each \
                guest that runs.";
    let after = gain.after.lead.nic();
    let vhost = after.is_some_and(|nic| nic.vhost);
    let nic = studied_card(m, gain.before.lead.nic(), vhost);
    let queues = after.and_then(|nic| nic.queues).filter(|n| *n > 1);
    let change = own_nic(what, &nic, NicChange { virtio: true, vhost, queues, ..NicChange::default() });
    Change { sets: None, proxmox: new_card(queues), ..change }
}

fn is_emulated(model: &str) -> bool {
    EMULATED.iter().any(|e| model.starts_with(e))
}

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    let model = nic.model.as_deref().filter(|m| is_emulated(m))?;
    let cause = format!(
        "QEMU emulates the guest's card ({model}) register by register; virtio-net passes many packets at once. Its \
         guest cannot be throttled either: a bandwidth guarantee needs virtio-net."
    );
    let what = "Make it a virtio-net card, and keep the MAC address (Windows: install virtio-win's NetKVM first; the \
                guest may give the new card another name).";
    let to = NicChange { virtio: true, ..NicChange::default() };
    Some(rule.advice(nic, &seen![nic; model, backend], &cause, own_nic(what, nic, to)))
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, over_bridge};

    pub fn run(emulated: f64) -> Facts {
        Bench::new()
            .cell(over_bridge(None, "iperf3-tcp"), 40e9)
            .cell(over_bridge(Some("e1000"), "iperf3-tcp"), emulated)
            .cell(over_bridge(Some("virtio-net"), "iperf3-tcp"), 20e9)
            .facts()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::RULE;
    use crate::cell::Subject;
    use crate::facts::Nic;
    use crate::rules::{Change, findings};
    use crate::testing::{Bench, live_nic, of_nic, over_bridge};

    /// A finding of a run has a change too: the measured card.
    #[test]
    fn a_run_says_the_card_that_was_faster() {
        let change = |vhost: bool, queues: Option<u32>| -> Change {
            let mut faster = over_bridge(Some("virtio-net"), "iperf3-tcp");
            let Subject::Path { nic: Some(nic), .. } = &mut faster.lead.subject else { panic!("a card") };
            (nic.vhost, nic.queues) = (vhost, queues);
            let bench = Bench::new()
                .cell(over_bridge(None, "iperf3-tcp"), 40e9)
                .cell(over_bridge(Some("e1000"), "iperf3-tcp"), 4e9)
                .cell(faster, 20e9);
            findings(&bench.facts()).into_iter().find(|f| f.rule == RULE.id).unwrap().change
        };
        let plain = change(false, None);
        assert_eq!(plain.qemu, "# in its own -device: this in place of e1000, keep netdev= and mac=\nvirtio-net-pci");
        assert!(plain.libvirt.starts_with("virsh edit DOMAIN\n") && plain.libvirt.ends_with("<model type='virtio'/>"));
        let set = "qm shutdown VMID && \\\nqm set VMID --net0 virtio=MAC,bridge=BRIDGE && \\\nqm start VMID";
        assert_eq!(plain.proxmox, set);
        assert!(plain.ways().iter().all(|(_, how)| !how.contains("vmio scan") && !how.contains("vhost")));
        let fast = change(true, Some(2));
        assert!(
            fast.qemu.contains("\nvhost=on,queues=2\n") && fast.qemu.ends_with("\nmq=on,vectors=6"),
            "{}",
            fast.qemu
        );
        assert!(fast.libvirt.ends_with("\nname='vhost' queues='2'"), "{}", fast.libvirt);
        assert!(fast.proxmox.contains("bridge=BRIDGE,queues=2 && "), "{}", fast.proxmox);
    }

    #[test]
    fn a_card_that_runs_is_told_by_its_model() {
        let fires_for = |model: &str| {
            let found = findings(&of_nic(Nic { model: model.into(), ..live_nic() }));
            found.iter().any(|f| f.rule == RULE.id)
        };
        assert!(fires_for("e1000e") && fires_for("rtl8139"));
        assert!(!fires_for("virtio-net"));
        // A card passed through.
        assert!(!fires_for("vfio"));
    }
}
