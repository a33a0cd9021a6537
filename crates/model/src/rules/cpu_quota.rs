//! A CPU quota below the number of vCPUs: once it is used up, all threads of the guest stop until the next period (100
//! ms), also in interrupt handlers and with locks held.

use super::change::{AppliesAt, Names, shell};
use super::live::seen;
use super::{Change, Check, Finding, Kinds, Need, Rule, Severity};
use crate::facts::{Processors, Source};

pub(super) const RULE: Rule = Rule {
    id: "cpu-quota",
    title: "CPU quota below the number of vCPUs",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://www.kernel.org/doc/html/latest/scheduler/sched-bwc.html",
        "https://libvirt.org/formatdomain.html#cpu-tuning (vcpu_quota, global_quota)",
        "Proxmox VE, qm.adoc, \"Resource Limits\" (cpulimit)",
    ],
    checks: &[Check::Processors(live)],
    kinds: Kinds::Any,
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    let vcpus = (*p.vcpus)?;
    let quota = p.quota_cpus.filter(|q| *q < f64::from(vcpus))?;
    let cause = format!(
        "The guest has {vcpus} vCPUs but may use the time of {quota:.2} CPUs: when that is used up, all vCPUs stop \
         until the next period, and so does I/O."
    );
    let names = Names(&p.place);
    let change = Change {
        what:
            "Give it as many vCPUs as it may use, or weights instead of a quota: weights only limit while others need \
             the CPU."
                .into(),
        qemu: unlimited(p),
        libvirt: format!("virsh schedinfo {} --live --config vcpu_quota=-1 global_quota=-1", names.domain()),
        proxmox: format!("qm set {} --cpulimit 0", names.vmid()),
        takes: AppliesAt::Running,
        sets: None,
    };
    Some(rule.advice(p, &seen![p; vcpus, quota_cpus], &cause, change))
}

/// The command that removes the quota in the file it was read from.
fn unlimited(p: &Processors) -> String {
    let file = match p.quota_cpus.source() {
        Some(Source::File(file)) => Some(file.as_str()),
        _ => None,
    };
    match file {
        Some(file) if file.ends_with("/cpu.cfs_quota_us") => format!("echo -1 > {}", shell(file)),
        Some(file) => format!("echo max > {}", shell(file)),
        None => "echo max > /sys/fs/cgroup/GROUP/cpu.max    # control groups v1: echo -1 > .../cpu.cfs_quota_us".into(),
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Processors};
    use crate::testing::{live_processors, of_processors};

    pub fn fires() -> Facts {
        of_processors(Processors { quota_cpus: Some(1.5).into(), ..live_processors() })
    }

    pub fn silent() -> Facts {
        of_processors(Processors { quota_cpus: Some(4.0).into(), ..live_processors() })
    }
}
