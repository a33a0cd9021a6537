//! An emulated network card: each packet costs register accesses that end in QEMU. virtio-net hands
//! over whole queues. Nor can an emulated card be held back: QEMU's own queue takes what the guest
//! sends, so a bandwidth guarantee adds seconds of delay instead.

use super::change::{NicTo, Takes, own_nic};
use super::live::seen;
use super::support::times;
use super::{Change, Check, Finding, Need, Rule, Severity};
use crate::cell::Cell;
use crate::facts::{Changed, Gain, Measured, Nic};

/// What QEMU's emulated cards begin with (`qemu-system-x86_64 -device help`, "Network devices").
const EMULATED: [&str; 9] = ["e1000", "rtl8139", "pcnet", "vmxnet3", "ne2k", "i8255", "i8259", "tulip", "usb-net"];

/// Any sure gain counts: virtio costs nothing.
const GAIN: f64 = 1.0;

pub(super) const RULE: Rule = Rule {
    id: "emulated-nic",
    title: "Emulated network card",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Warning,
    references: &["Proxmox VE, qm.adoc, \"Network Device\"", "https://wiki.qemu.org/Documentation/Networking"],
    checks: &[Check::Run(measured), Check::Nic(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

/// In a run: the same path by an emulated card and by virtio-net.
fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let model = |cell: &Cell| cell.lead.nic().map_or_else(String::new, |nic| nic.model.clone());
    let to_virtio = |g: &&Gain| is_emulated(&model(&g.before)) && model(&g.after).starts_with("virtio");
    let cause = |g: &Gain| {
        format!(
            "This guest has the emulated card {}. Over the same path, {} by {} ran {} as fast.",
            model(&g.before),
            g.after.workload(),
            model(&g.after),
            times(&g.ratio)
        )
    };
    rule.from_gains(m, m.sure_gains(Changed::Nic, GAIN).filter(to_virtio), cause, |_| advice())
}

/// Of a guest of vmio's own: that of a guest that runs is in its own words.
fn advice() -> Change {
    let what = "Give the guest a virtio-net card (it needs the driver); `vmio scan` prints the change for each guest \
                that runs.";
    let how = "vmio scan".to_owned();
    Change {
        what: what.to_owned(),
        qemu: how.clone(),
        libvirt: how.clone(),
        proxmox: how,
        takes: Takes::NextStart,
        sets: None,
    }
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
    let to = NicTo { virtio: true, ..NicTo::default() };
    Some(rule.advice(nic, &seen![nic; model, backend], &cause, own_nic(what, nic, to)))
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, over_bridge};

    pub fn fires() -> Facts {
        run(4.0e9)
    }

    /// Where it is as fast.
    pub fn silent() -> Facts {
        run(20.0e9)
    }

    fn run(emulated: f64) -> Facts {
        Bench::new()
            .cell(over_bridge(None, "iperf3-tcp"), 40e9)
            .cell(over_bridge(Some("e1000"), "iperf3-tcp"), emulated)
            .cell(over_bridge(Some("virtio-net"), "iperf3-tcp"), 20e9)
            .facts()
    }
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::facts::Nic;
    use crate::rules::findings;
    use crate::testing::{live_nic, of_nic};

    #[test]
    fn a_card_that_runs_is_told_by_its_model() {
        let told = |model: &str| {
            let found = findings(&of_nic(Nic { model: model.into(), ..live_nic() }));
            found.iter().any(|f| f.rule == RULE.id)
        };
        assert!(told("e1000e") && told("rtl8139"));
        assert!(!told("virtio-net"));
        // A card of the host's, passed through.
        assert!(!told("vfio"));
    }
}
