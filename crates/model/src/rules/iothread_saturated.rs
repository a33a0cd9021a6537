//! One I/O thread uses one core at most: when it is always running, the disk's queues wait for it. QEMU 9 and newer
//! spread the queues of one virtio-blk disk over several.

use super::support::{caution, cite_count, cite_share};
use super::{Change, Check, Finding, Need, Rule, Severity};
use crate::facts::Measured;
use crate::summary::CellRow;

/// Share of a core from which the thread counts as saturated: the rest is wake-up time.
const FULL: f64 = 0.9;
/// Its role in [`crate::result::CpuUse::by_role`].
const ROLE: &str = "iothread";

pub(super) const RULE: Rule = Rule {
    id: "iothread-saturated",
    title: "The I/O thread uses a full core",
    needs: Need::Measured,
    severity: Severity::Advice,
    references: &[
        "QEMU, docs/devel/multiple-iothreads; iothread-vq-mapping since 9.0",
        "libvirt, formatdomain.html, iothreads of a disk's driver (10.0.0)",
    ],
    checks: &[Check::Cell(full)],
    // Silent: half of a core is unused.
    #[cfg(test)]
    fixture: (|| fixture::busy(0.97), || fixture::busy(0.5)),
    ..Rule::PLAIN
};

fn full(rule: &Rule, m: &Measured, cell: &CellRow) -> Option<Finding> {
    let attachment = cell.cell.attachment().filter(|a| a.iothread && a.options.mapped_iothreads.is_none())?;
    // Without a loss against native a busy thread does no harm.
    let share = m.known_share(&cell.cell).filter(|s| s.share_ratio.surely_below(1.0))?;
    let per_request = cell.cpu.role_seconds_per_request.get(ROLE)?;
    let cores = per_request * cell.disk.as_ref()?.requests_per_second?.value;
    if cores < FULL {
        return None;
    }
    let cause = format!(
        "During {} the disk's I/O thread was busy {:.0} % of the time: the thread, not the disk, is the bottleneck.{}",
        cell.cell.workload(),
        cores * 100.0,
        caution(m)
    );
    let mut finding = rule.finding(Severity::Warning, share.key.clone(), cause, advice(&attachment.driver));
    finding.figures.push(cite_count(m, format!("CPU of the I/O thread: {}", cell.key), cores, "cores"));
    finding.figures.extend(cite_share(m, &cell.cell));
    Some(finding)
}

fn advice(driver: &str) -> Change {
    let note = if driver == "virtio-blk" { "" } else { " (of virtio-blk; other drivers have one thread)" };
    Change {
        what: format!("Spread the disk's queues{note} over several I/O threads, each on its own core."),
        qemu: "# QEMU 9.0 and newer; as many queues as the guest has CPUs\n\
               -object iothread,id=iothread0 -object iothread,id=iothread1 \\\n\
               -device '{\"driver\": \"virtio-blk-pci\", \"drive\": \"disk0\", \"iothread-vq-mapping\": \
               [{\"iothread\": \"iothread0\"}, {\"iothread\": \"iothread1\"}]}'"
            .into(),
        libvirt: "<iothreads>2</iothreads>  <!-- directly below <domain>; libvirt 10.0 and newer -->\n\
                  <driver name='qemu' type='raw' cache='none' io='native' queues='2'>  <!-- in <disk> -->\n  \
                    <iothreads><iothread id='1'/><iothread id='2'/></iothreads>\n\
                  </driver>"
            .into(),
        proxmox: "# Proxmox VE has one I/O thread per disk: spread the load over two disks\n\
                  qm set VMID --virtio0 STORAGE:VOLUME,iothread=1 --virtio1 STORAGE:SIZE,iothread=1"
            .into(),
        takes: super::change::AppliesAt::NextStart,
        sets: None,
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, native, virtio};

    pub fn busy(cores: f64) -> Facts {
        let mut threaded = virtio("device", "rand-read-32");
        if let Some(a) = threaded.attachment_mut() {
            a.iothread = true;
        }
        Bench::new()
            .cell(native("device", "rand-read-32"), 60e3)
            .cell(threaded.clone(), 19e3)
            .iothread(&threaded, cores)
            .facts()
    }
}
