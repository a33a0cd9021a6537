//! More vCPUs than processors to run on: more than the host has, more than they are bound to together,
//! or bound where a neighbour's are bound. A vCPU that does not run while it holds a lock lets the
//! guest's other vCPUs spin.

use std::collections::BTreeSet;

use super::change::{Names, Takes};
use super::placement::list_of;
use super::{Change, Check, Evidence, Finding, Live, Need, Rule, Severity};
use crate::facts::Processors;

pub(super) const RULE: Rule = Rule {
    id: "vcpus-over-cores",
    title: "vCPUs wait for each other's processors",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "Proxmox VE, qm.adoc, \"CPU\" (no more vCPUs than physical cores for one guest)",
        "https://libvirt.org/formatdomain.html#cpu-tuning (vcpupin)",
    ],
    checks: &[Check::Processors(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
};

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    let bound: BTreeSet<u32> =
        p.threads.iter().filter(|t| t.role == "vcpu").flat_map(|t| t.cpus.iter().copied()).collect();
    let threads = p.threads.iter().filter(|t| t.role == "vcpu" && !t.cpus.is_empty()).count();
    let vcpus = p.vcpus.map_or(threads, |n| n as usize);
    let mut evidence = Vec::new();
    let cause = match () {
        () if !p.host.is_empty() && vcpus > p.host.len() => {
            evidence.push(("host's processors".to_owned(), p.host.len().to_string()));
            format!("The guest has {vcpus} vCPUs and the host {} processors.", p.host.len())
        }
        () if threads > bound.len() && !bound.is_empty() => {
            evidence.push(("vCPUs may run on".to_owned(), list_of(&bound)));
            format!("{threads} vCPUs may run on no processor but {}.", list_of(&bound))
        }
        () if !p.shares_cpus_with.is_empty() => {
            evidence.push(("vCPUs may run on".to_owned(), list_of(&bound)));
            format!("vCPUs are bound to processors that vCPUs of {} are bound to, too.", p.shares_cpus_with.join(", "))
        }
        () => return None,
    };
    let cause = format!("{cause} A vCPU that waits for a processor holds up those that wait for it.");
    let mut finding = rule.advice(p, &["vcpus", "shares_cpus_with"], &cause, advice(p));
    let from = p.read.get("threads").cloned().unwrap_or_else(|| Live::from(p).place());
    finding.evidence.retain(|e| e.value != "none");
    finding.evidence.extend(evidence.into_iter().map(|(setting, value)| Evidence {
        setting,
        value,
        from: from.clone(),
    }));
    Some(finding)
}

fn advice(p: &Processors) -> Change {
    let names = Names(&p.place);
    let tid = |n: usize| {
        let thread = p.threads.iter().filter(|t| t.role == "vcpu").nth(n).filter(|t| t.tid != 0);
        thread.map_or_else(|| "TID".to_owned(), |t| t.tid.to_string())
    };
    Change {
        what: "Give each vCPU a processor of its own (CPUS: ones that no other guest is bound to), or the guest fewer \
               vCPUs, or bind nothing and let the kernel place them."
            .into(),
        qemu: format!("taskset -cp CPUS {}    # vCPU 0; and so on for each", tid(0)),
        libvirt: format!("virsh vcpupin {} 0 CPUS --live --config    # and so on for each vCPU", names.domain()),
        proxmox: format!(
            "taskset -cp CPUS {}    # vCPU 0, and so on; from the next start on:\nqm set {} --affinity CPUS",
            tid(0),
            names.vmid()
        ),
        takes: Takes::Running,
        sets: None,
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{live_processors, of_processors};

    pub fn fires() -> Facts {
        bound_to(2)
    }

    pub fn silent() -> Facts {
        bound_to(4)
    }

    fn bound_to(n: u32) -> Facts {
        let mut processors = live_processors();
        processors.threads.iter_mut().filter(|t| t.role == "vcpu").for_each(|t| t.cpus = (0..n).collect());
        of_processors(processors)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testing::live_processors;

    #[test]
    fn neighbours_and_small_hosts_are_told() {
        let cause = |p: Processors| live(&RULE, &p).map(|f| f.cause).unwrap();
        let neighbour = Processors { shares_cpus_with: vec!["web2".into()], ..live_processors() };
        assert!(cause(neighbour).starts_with("vCPUs are bound to processors that vCPUs of web2 are bound to"));
        let many = Processors { vcpus: Some(12), ..live_processors() };
        assert!(cause(many).starts_with("The guest has 12 vCPUs and the host 8 processors."));
    }
}
