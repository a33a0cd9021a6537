//! One small request at a time: the path through the hypervisor (a notification out, an interrupt in) is added to each,
//! and nothing hides it. Polling shortens it at the cost of CPU time.

use super::support::{cite_ratio, cite_share};
use super::{Change, Check, Finding, Need, Rule, Severity};
use crate::facts::Measured;
use crate::summary::Share;

/// Tuned guests lose up to a fifth.
const SHARE: f64 = 0.8;
/// Larger requests are limited by bandwidth.
const MOST_BLOCK_BYTES: u64 = 16 * 1024;

pub(super) const RULE: Rule = Rule {
    id: "depth-one-latency",
    title: "Each request pays for the path through the hypervisor",
    needs: Need::Measured,
    severity: Severity::Advice,
    references: &[
        "Linux, Documentation/virt/guest-halt-polling.rst (haltpoll)",
        "QEMU, iothread poll-max-ns",
        "https://kb.blockbridge.com/technote/proxmox-optimizing-windows-server/ (latency at depth 1)",
    ],
    checks: &[Check::Share(slow)],
    // Silent: a tuned guest.
    #[cfg(test)]
    fixture: (|| fixture::one(9e3), || fixture::one(14e3)),
    ..Rule::PLAIN
};

fn slow(rule: &Rule, m: &Measured, share: &Share) -> Option<Finding> {
    // Under emulation the path is the emulator's; under a cap the share is the cap's.
    if m.emulated || m.capped {
        return None;
    }
    let one = |t: &&crate::result::DiskTraits| t.depth == 1 && t.block_bytes <= MOST_BLOCK_BYTES && t.direct;
    m.job(share.cell.workload()).filter(one)?;
    // An emulated controller is another rule's finding.
    share.cell.attachment().filter(|a| a.driver.starts_with("virtio"))?;
    let latency = share.latency_p50_ratio.filter(|r| r.surely_above(1.0))?;
    if !share.share_ratio.surely_below(SHARE) {
        return None;
    }
    let (guest, native) = (m.cell(&share.cell)?, m.baseline(share)?);
    let (here, there) =
        (guest.disk.as_ref()?.latency_p50_seconds?.value, native.disk.as_ref()?.latency_p50_seconds?.value);
    let cause = format!(
        "With one request in flight its median takes {} natively and {} more in the guest ({}): the path to the \
         hypervisor and back, which no queue depth hides.",
        micros(there),
        micros(here - there),
        latency.times()
    );
    let mut finding = rule.finding(Severity::Note, share.key.clone(), cause, advice());
    let stalls = share.stalls().map_or(String::new(), |stalls| format!(" ({stalls})"));
    finding.figures.push(cite_ratio(m, format!("median latency, guest over native: {}{stalls}", share.key), &latency));
    finding.figures.extend(cite_share(m, &share.cell));
    Some(finding)
}

fn micros(seconds: f64) -> String {
    format!("{:.0} us", seconds * 1e6)
}

fn advice() -> Change {
    let guest = "# in the guest: poll before the CPU halts; costs host CPU time and watts, so measure both\n\
                 modprobe cpuidle-haltpoll    # idle driver haltpoll: cat \
                 /sys/devices/system/cpu/cpuidle/current_driver";
    Change {
        what: "If latency matters more than CPU time: a polling I/O thread, haltpoll in the guest, pinned vCPUs."
            .into(),
        qemu: format!("-object iothread,id=iothread0,poll-max-ns=200000\n{guest}"),
        libvirt: format!(
            "virsh iothreadset DOMAIN 1 --poll-max-ns 200000 --live    # immediately; to make it permanent, virsh \
             edit DOMAIN:\n\
             <iothreadids>  <!-- directly below <domain>; libvirt 9.4 and newer -->\n  \
               <iothread id='1'><poll max='200000'/></iothread>\n\
             </iothreadids>\n{guest}"
        ),
        proxmox: format!("qm set VMID --virtio0 STORAGE:VOLUME,iothread=1 --affinity CORES\n{guest}"),
        takes: super::change::AppliesAt::NextStart,
        sets: None,
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, native, virtio};

    pub fn one(figure: f64) -> Facts {
        Bench::new().cell(native("device", "rand-read-1"), 15e3).cell(virtio("device", "rand-read-1"), figure).facts()
    }
}
