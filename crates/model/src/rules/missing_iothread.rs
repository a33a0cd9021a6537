//! Without an I/O thread, QEMU's main loop serves the disk as well as the monitor, timers and all other devices, under
//! one lock.

use super::change::{self, DiskChange};
use super::live::{processors_of, seen};
use super::support::better;
use super::{Check, DiskRemedy, Finding, Need, Rule, Severity};
use crate::facts::{Changed, Disk, Facts, Gain, Measured, Setting};
use crate::result::Accel;

/// Any significant gain counts.
const GAIN: f64 = 1.0;
/// What to do.
const WHAT: &str = "Give the disk its own I/O thread, on a core that no vCPU needs.";
/// Drivers that support an I/O thread.
const THREADED: [&str; 2] = ["virtio-blk", "virtio-scsi"];

pub(super) const RULE: Rule = Rule {
    id: "missing-iothread",
    title: "No I/O thread",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Advice,
    references: &["Proxmox VE, qm.adoc, \"IO Thread\"", "QEMU, docs/devel/multiple-iothreads"],
    checks: &[Check::Run(measured), Check::Guests(live)],
    remedy: Some(DiskRemedy::Iothread),
    // Silent: the thread has no gain.
    #[cfg(test)]
    fixture: (|| fixture::thread(19e3), || fixture::thread(13e3)),
    ..Rule::PLAIN
};

fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let gained = |g: &&Gain| g.after.attachment().is_some_and(|a| a.iothread);
    rule.from_gains(m, m.sure_gains(Changed::Iothread, GAIN).filter(gained), cause, |g| {
        change::settings(WHAT, &better(g))
    })
}

fn live(rule: &Rule, facts: &Facts) -> Vec<Finding> {
    // Under emulation an I/O thread requires PCI (QEMU 7.2: "ioeventfd is required for iothread").
    let emulated = |disk: &Disk| processors_of(disk, &facts.processors).is_some_and(|p| p.accel == Some(Accel::Tcg));
    let takes_one = |disk: &&Disk| disk.details.transport.as_deref() != Some("mmio") || !emulated(disk);
    facts.disks.iter().filter(takes_one).filter_map(|disk| without(rule, disk)).collect()
}

fn without(rule: &Rule, disk: &Disk) -> Option<Finding> {
    // Other drivers support none in some QEMU versions; an emulated controller is another rule's finding.
    disk.driver.as_deref().filter(|name| disk.iothread == Some(false) && THREADED.contains(name))?;
    // One that was asked for and is not in force is another rule's, too.
    if disk.details.overridden.iter().any(|o| o.setting == Setting::Iothread) {
        return None;
    }
    let cause = "QEMU's main loop serves this disk along with everything else; a dedicated I/O thread handles its \
                 requests in parallel.";
    let change = change::own_disk(WHAT, disk, &DiskChange { iothread: true, ..DiskChange::default() });
    Some(rule.advice(disk, &seen![disk; driver, iothread], cause, change))
}

fn cause(gain: &Gain) -> String {
    format!(
        "QEMU's main loop serves the disk. With its own I/O thread, {} ran {} as fast.",
        gain.after.workload(),
        gain.ratio.times()
    )
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, native, virtio};

    pub fn thread(with: f64) -> Facts {
        let mut threaded = virtio("device", "rand-read-32");
        if let Some(a) = threaded.attachment_mut() {
            a.iothread = true;
        }
        Bench::new()
            .cell(native("device", "rand-read-32"), 60e3)
            .cell(virtio("device", "rand-read-32"), 13e3)
            .cell(threaded, with)
            .facts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Details, Processors};
    use crate::testing::{live_disk, live_processors};

    #[test]
    fn no_thread_is_asked_of_a_device_that_would_not_start_with_one() {
        let count = |transport: Option<&str>, accel: Accel| {
            let details = Details { transport: transport.map(str::to_owned), ..Details::default() };
            let disk = Disk { iothread: Some(false).into(), ..live_disk(details) };
            let processors = vec![Processors { accel: Some(accel).into(), ..live_processors() }];
            live(&RULE, &Facts { disks: vec![disk], processors, ..Facts::default() }).len()
        };
        assert_eq!(
            (count(None, Accel::Tcg), count(Some("mmio"), Accel::Kvm), count(Some("mmio"), Accel::Tcg)),
            (1, 1, 0)
        );
    }
}
