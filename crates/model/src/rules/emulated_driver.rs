//! An emulated controller where a paravirtual one is possible. Each register access of the guest exits to QEMU, and the
//! controller's model limits the requests in flight. At depth 1 both can be equal: then that workload shows no
//! significant gain and is left out.

use super::change::{self, DiskChange};
use super::live::seen;
use super::support::{better, driver, is_emulated};
use super::{Check, DiskRemedy, Finding, Need, Rule, Severity};
use crate::facts::{Changed, Disk, Gain, Measured, Setting};
use crate::paper;

/// Any significant gain counts: virtio costs nothing.
const GAIN: f64 = 1.0;

pub(super) const RULE: Rule = Rule {
    id: "emulated-driver",
    title: "Emulated disk controller",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Warning,
    references: &[
        "shafer2010, section 3.3, tables 1 and 2 (emulated SCSI against virtio)",
        "Proxmox VE, qm.adoc, \"Bus/Controller\"",
    ],
    checks: &[Check::Run(measured), Check::Disk(live)],
    remedy: Some(DiskRemedy::Driver),
    published: Some(published),
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let to_virtio = |g: &&Gain| is_emulated(driver(&g.before)) && driver(&g.after).starts_with("virtio");
    rule.from_gains(m, m.sure_gains(Changed::Driver, GAIN).filter(to_virtio), cause, |g| {
        let to = better(g);
        change::virtio_disk(format!("Attach the disk by {} (the guest needs its driver).", to.driver), &to)
    })
}

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    let driver = disk.driver.as_deref().filter(|name| is_emulated(name))?;
    let ignored = disk.details.overridden.iter().any(|o| o.setting == Setting::Iothread);
    let cause = format!(
        "The disk is attached to an emulated {driver} controller, which QEMU emulates register by register; a \
         paravirtual one needs one notification for many requests.{}",
        if ignored { " iothread=1 is ignored there." } else { "" }
    );
    let to = DiskChange { driver: Some("virtio-blk"), iothread: true, ..DiskChange::default() };
    let what = "Attach the disk by virtio. The guest needs the driver before the system disk moves; Windows: install \
                virtio-win and attach a small second virtio disk once.";
    Some(rule.advice(disk, &seen![disk; driver], &cause, change::own_disk(what, disk, &to)))
}

fn cause(gain: &Gain) -> String {
    format!(
        "This setup has its disk on the emulated controller {}. On the same target, {} by {} ran {} as fast.",
        driver(&gain.before),
        gain.after.workload(),
        driver(&gain.after),
        gain.ratio.times()
    )
}

/// Whether a published figure compares an emulated controller with a paravirtual one, on the same storage.
fn published(slow: &paper::Pattern, fast: &paper::Pattern) -> bool {
    let emulated = |cell: &paper::Pattern| cell.driver.as_deref().map(is_emulated);
    slow.target.is_some() && slow.target == fast.target && emulated(slow) == Some(true) && emulated(fast) == Some(false)
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, guest, native, virtio};

    pub fn fires() -> Facts {
        let lsi = guest("device", "lsi53c895a", "rand-read-32");
        Bench::new()
            .cell(native("device", "rand-read-32"), 60e3)
            .cell(lsi, 1.4e3)
            .cell(virtio("device", "rand-read-32"), 13e3)
            .facts()
    }

    /// At depth 1 both are equal.
    pub fn silent() -> Facts {
        let lsi = guest("device", "lsi53c895a", "rand-read-1");
        Bench::new()
            .cell(native("device", "rand-read-1"), 15e3)
            .cell(lsi, 4.65e3)
            .cell(virtio("device", "rand-read-1"), 4.6e3)
            .facts()
    }
}
