//! virtio-net on a tap without vhost-net: QEMU's main loop reads and writes each packet by a system call. With vhost a
//! kernel thread does it. Where the host has no `/dev/vhost-net`, QEMU and libvirt go on without a word. The node is
//! made from the kernel's list of modules at boot (`kmod static-nodes` and systemd-tmpfiles), so a missing one means a
//! kernel without the module, or a system that makes no such nodes.

use super::change::{AppliesAt, NicChange, own_nic};
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
    if !(tap && virtio && nic.vhost == Some(false)) {
        return None;
    }
    if !(*nic.vhost_here)? {
        return Some(missing(rule, nic));
    }
    let cause = "QEMU's main loop copies each packet between the tap and the guest, although this host has vhost-net, \
                 which does it in the kernel.";
    let change = own_nic("Use vhost-net.", nic, NicChange { vhost: true, ..NicChange::default() });
    Some(rule.advice(nic, &seen![nic; model, backend, vhost, vhost_here], cause, change))
}

/// On a host without vhost-net: told once for all of its guests.
fn missing(rule: &Rule, nic: &Nic) -> Finding {
    let cause = "This host has no /dev/vhost-net: QEMU itself copies each packet of its guests, by system calls of one \
                 thread. The kernel's module would do it.";
    let load = "modprobe vhost_net && \\\necho vhost_net > /etc/modules-load.d/vhost_net.conf\n\
                # if modprobe finds no such module: the kernel was built without it (CONFIG_VHOST_NET)\n\
                # then shut the guests down and start them";
    let own = if nic.place.given.is_some() { "-nic" } else { "-netdev tap,..." };
    let change = Change {
        what: "Load the module (modprobe vhost_net), now and at each boot; then shut the guests down and start them."
            .into(),
        // libvirt and Proxmox ask for it by themselves.
        qemu: format!(
            "{load}\n# only once /dev/vhost-net is there (QEMU 7.2 aborts without it), in its own {own}: set this,\n\
                       # keep all else\nvhost=on"
        ),
        libvirt: load.into(),
        proxmox: load.into(),
        takes: AppliesAt::NextStart,
        sets: None,
    };
    let found = rule.advice(nic, &seen![nic; model, backend, vhost, vhost_here], cause, change);
    Finding { title: "The host has no vhost-net".into(), ..found }.of_host()
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::RULE;
    use crate::facts::Nic;
    use crate::rules::findings;
    use crate::testing::{live_nic, of_nic};

    /// For running guests the settings alone decide.
    #[test]
    fn a_host_without_vhost_net_is_told_once_to_load_it() {
        let found = |vhost_here: Option<bool>, model: &str| {
            let nic =
                Nic { vhost: Some(false).into(), vhost_here: vhost_here.into(), model: model.into(), ..live_nic() };
            findings(&of_nic(nic)).into_iter().find(|found| found.rule == RULE.id)
        };
        let own = found(Some(true), "virtio-net").unwrap();
        assert!(!own.of_host && own.title == RULE.title && !own.change.qemu.contains("modprobe"), "{own:#?}");
        let host = found(Some(false), "virtio-net").unwrap();
        assert!(host.of_host && host.title == "The host has no vhost-net", "{host:#?}");
        for text in [&host.change.qemu, &host.change.libvirt, &host.change.proxmox] {
            assert!(text.starts_with("modprobe vhost_net && ") && text.contains("/etc/modules-load.d/"), "{text}");
        }
        assert!(host.change.qemu.ends_with("\nvhost=on"), "{}", host.change.qemu);
        // Whether it is there is not known, or the card has no such back end.
        assert_eq!((found(None, "virtio-net"), found(Some(false), "e1000")), (None, None));
    }
}
