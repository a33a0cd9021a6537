//! More vCPUs than processors to run on: more than the host has, more than they are bound to together,
//! or bound where a neighbour's are bound. A vCPU that does not run while it holds a lock lets the
//! guest's other vCPUs spin.

use std::collections::BTreeSet;

use super::change::{Names, Takes, comment};
use super::live::seen;
use super::placement::list_of;
use super::{Change, Check, Evidence, Finding, Kinds, Need, Rule, Severity};
use crate::facts::{PlacedThread, Processors};

pub(super) const RULE: Rule = Rule {
    id: "vcpus-over-cores",
    title: "vCPUs compete for processors",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "Proxmox VE, qm.adoc, \"CPU\" (no more vCPUs than physical cores for one guest)",
        "https://libvirt.org/formatdomain.html#cpu-tuning (vcpupin)",
    ],
    checks: &[Check::Processors(live)],
    kinds: Kinds::Any,
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
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
            format!("{threads} vCPUs may only run on {}.", list_of(&bound))
        }
        () if !p.shares_cpus_with.is_empty() => {
            evidence.push(("vCPUs may run on".to_owned(), list_of(&bound)));
            format!(
                "vCPUs are pinned to processors to which vCPUs of {} are pinned, too.",
                p.shares_cpus_with.join(", ")
            )
        }
        () => return None,
    };
    let cause = format!("{cause} A vCPU that waits for a processor delays those that wait for it.");
    let change = if !p.host.is_empty() && vcpus > p.host.len() { fewer(p) } else { unbound(p) };
    let mut finding = rule.advice(p, &seen![p; vcpus, shares_cpus_with], &cause, change);
    let from = p.threads.source_or(&p.from);
    finding.evidence.retain(|e| e.value != "none");
    finding.evidence.extend(evidence.into_iter().map(|(setting, value)| Evidence {
        setting,
        value,
        from: from.clone(),
    }));
    Some(finding)
}

/// More vCPUs than the host has processors: no binding helps.
fn fewer(p: &Processors) -> Change {
    let names = Names(&p.place);
    let most = p.host.len();
    Change {
        what: format!("Give the guest no more vCPUs than the host has processors ({most})."),
        qemu: format!("# in place of its own -smp\n-smp {most}"),
        libvirt: format!("virsh setvcpus {} {most} --config", names.domain()),
        proxmox: format!(
            "qm set {} --sockets 1 --cores {most}\n# takes effect after the guest is shut down and started",
            names.vmid()
        ),
        takes: Takes::NextStart,
        sets: None,
    }
}

/// Bound too closely: the kernel finds a free processor better than a binding that is shared.
fn unbound(p: &Processors) -> Change {
    let names = Names(&p.place);
    let all = match p.host.is_empty() {
        true => "CPUS".to_owned(),
        false => list_of(&p.host.iter().map(|cpu| cpu.cpu).collect()),
    };
    let vcpus: Vec<&PlacedThread> = p.threads.iter().filter(|t| t.role == "vcpu").collect();
    let taskset = |t: &&PlacedThread| {
        let tid = if t.tid == 0 { "TID".to_owned() } else { t.tid.to_string() };
        format!("taskset -cp {all} {tid}    # vCPU {}", comment(&t.name))
    };
    let by_tid = vcpus.iter().map(taskset).collect::<Vec<String>>().join("\n");
    let pin = |n: usize| format!("virsh vcpupin {} {n} {all} --live --config", names.domain());
    Change {
        what: "Bind nothing and let the kernel place the vCPUs (as below), or give each a processor that no other \
               vCPU of \
               any guest is bound to."
            .into(),
        libvirt: (0..vcpus.len()).map(pin).collect::<Vec<String>>().join("\n"),
        proxmox: format!("{by_tid}\n# and from the next start on\nqm set {} --affinity {all}", names.vmid()),
        qemu: by_tid,
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
        processors.threads.amend().iter_mut().filter(|t| t.role == "vcpu").for_each(|t| t.cpus = (0..n).collect());
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
        let neighbour = Processors { shares_cpus_with: vec!["web2".into()].into(), ..live_processors() };
        assert!(cause(neighbour).starts_with("vCPUs are pinned to processors to which vCPUs of web2 are pinned"));
        let many = Processors { vcpus: Some(12).into(), ..live_processors() };
        assert!(cause(many).starts_with("The guest has 12 vCPUs and the host 8 processors."));
    }
}
