//! A weight of I/O that nothing reads. Weights are held by BFQ, or by iocost where it was turned on for the disk; the
//! schedulers none, mq-deadline and kyber know none (Linux Documentation/admin-guide/cgroup-v2.rst, "IO"). Control
//! groups of version 1 do not charge writes through the page cache to who wrote (cgroup-v1/blkio-controller.rst).

use super::change::{AppliesAt, Change, Names, shell};
use super::{Check, Evidence, Finding, Kinds, Need, Rule, Severity};
use crate::facts::{Disk, Facts, IoWeight, Processors, WeightedDisk};

pub(super) const RULE: Rule = Rule {
    id: "io-weight-ignored",
    title: "I/O weight that nothing holds",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://www.kernel.org/doc/html/latest/admin-guide/cgroup-v2.html#io (io.weight, io.cost.qos)",
        "https://www.kernel.org/doc/html/latest/block/bfq-iosched.html",
        "https://libvirt.org/formatdomain.html#block-i-o-tuning (weight)",
    ],
    checks: &[Check::Guests(live)],
    kinds: Kinds::Any,
    #[cfg(test)]
    fixture: (|| fixture::on("none", false), || fixture::on("bfq", false)),
    ..Rule::PLAIN
};

fn live(rule: &Rule, facts: &Facts) -> Vec<Finding> {
    facts.processors.iter().filter_map(|p| of_guest(rule, facts, p)).collect()
}

fn of_guest(rule: &Rule, facts: &Facts, p: &Processors) -> Option<Finding> {
    let io = p.io_weight.as_ref()?;
    let own: Vec<&Disk> = facts.disks.iter().filter(|disk| disk.subject.guest == p.subject.guest).collect();
    let cached = |cache: &str| matches!(cache, "writeback" | "writethrough" | "unsafe");
    let buffered = !own.is_empty() && own.iter().all(|disk| disk.cache.as_deref().is_some_and(cached));
    let unheld = !io.disks.is_empty() && !io.disks.iter().any(WeightedDisk::holds_weights);
    let cause = if unheld {
        let first = &io.disks[0];
        let more = match io.disks.len() {
            1 => String::new(),
            n => format!(" (and so have {} more)", n - 1),
        };
        format!(
            "The guest's I/O weight is {}, and {} has the scheduler {} without iocost{more}: nothing reads the weight, \
             and all guests are served alike.",
            io.weight, first.name, first.scheduler
        )
    } else if io.v1 && buffered {
        format!(
            "The guest's I/O weight is {}, its disks go through the page cache, and its control group is of version 1: \
             such writes are not charged to the guest, so the weight holds for its reads alone.",
            io.weight
        )
    } else {
        return None;
    };
    let evidence = Evidence {
        setting: "I/O weight".to_owned(),
        value: io.weight.to_string(),
        from: p.io_weight.source_or(&p.from),
    };
    let target = own.iter().find_map(|disk| disk.place.target.as_deref());
    Some(rule.advice(p, &[Some(evidence)], &cause, change(p, io, unheld, target)))
}

fn change(p: &Processors, io: &IoWeight, unheld: bool, target: Option<&str>) -> Change {
    let names = Names(&p.place);
    let hold = match io.disks.first().filter(|_| unheld) {
        Some(disk) if io.v1 => format!("# BFQ costs throughput of fast flash\n{}", bfq(disk)),
        Some(disk) => format!(
            "# iocost, from Linux 5.4 on; it guesses what the disk can do, so measure afterwards\n\
             echo '{} enable=1 ctrl=auto' > /sys/fs/cgroup/io.cost.qos\n\
             # or BFQ, for slow disks:\n{}",
            disk.number,
            bfq(disk)
        ),
        None => "# a cache mode with O_DIRECT (none, directsync) for its disks, or control groups of version 2:\n\
                 # systemd.unified_cgroup_hierarchy=1 on the kernel's command line, from the next boot on"
            .to_owned(),
    };
    let limit = format!(
        "# or a limit, which needs neither:\nvirsh blkdeviotune {} {} --total-iops-sec N --live --config",
        names.domain(),
        shell(target.unwrap_or("vda"))
    );
    Change {
        what: "Let something hold the weight, or use limits in its place.".into(),
        qemu: hold.clone(),
        libvirt: format!("{hold}\n{limit}"),
        proxmox: hold,
        takes: AppliesAt::Running,
        sets: None,
    }
}

fn bfq(disk: &WeightedDisk) -> String {
    format!("echo bfq > {}", shell(&format!("/sys/block/{}/queue/scheduler", disk.name.replace('/', "!"))))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Details, Facts, IoWeight, Processors, WeightedDisk};
    use crate::testing::{live_disk, live_processors};

    /// A guest with a weight, on a disk with this scheduler.
    pub fn on(scheduler: &str, iocost: bool) -> Facts {
        let disk = WeightedDisk { name: "sda".into(), number: "8:0".into(), scheduler: scheduler.into(), iocost };
        let io = IoWeight { weight: 300, v1: false, disks: vec![disk] };
        Facts {
            disks: vec![live_disk(Details::default())],
            processors: vec![Processors { io_weight: Some(io).into(), ..live_processors() }],
            ..Facts::default()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_a_weight() {
        let of = |scheduler: &str, iocost| RULE.check(&fixture::on(scheduler, iocost)).len();
        assert_eq!(["none", "mq-deadline", "kyber", "bfq", "cfq"].map(|s| of(s, false)), [1, 1, 1, 0, 0]);
        assert_eq!(of("none", true), 0);
        let mut unknown = fixture::on("none", false);
        unknown.processors[0].io_weight.amend().as_mut().unwrap().disks.clear();
        assert_eq!(RULE.check(&unknown), []);
    }

    #[test]
    fn version_1_charges_no_buffered_writes() {
        let with = |v1: bool, cache: &str| {
            let mut facts = fixture::on("bfq", false);
            facts.processors[0].io_weight.amend().as_mut().unwrap().v1 = v1;
            facts.disks[0].cache = cache.into();
            RULE.check(&facts).first().map(|f| f.cause.clone())
        };
        assert!(with(true, "writeback").is_some_and(|cause| cause.contains("version 1") && cause.len() < 330));
        assert_eq!((with(true, "none"), with(false, "writeback")), (None, None));
    }
}
