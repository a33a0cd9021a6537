//! An I/O thread or vhost thread whose affinity has only processors that vCPUs are bound to and fill: while it runs, a
//! vCPU stands still, and the reverse.

use std::collections::BTreeSet;

use super::change::{AppliesAt, Names, shell};
use super::placement::{free_cpus, list_of, taken_cpus};
use super::{Change, Check, Evidence, Finding, Need, Rule, Severity};
use crate::facts::{PlacedThread, Processors};

pub(super) const RULE: Rule = Rule {
    id: "iothread-on-vcpu-core",
    title: "I/O thread shares a core with a vCPU",
    needs: Need::Settings,
    severity: Severity::Warning,
    references: &[
        "https://github.com/kubevirt/kubevirt/pull/3103 (I/O threads on the vCPUs' processors add to their latency)",
        "rasmusson2013 (network throughput by where threads are pinned)",
    ],
    checks: &[Check::Processors(live)],
    // Silent: one of the two processors is unused.
    #[cfg(test)]
    fixture: (|| fixture::with_iothread_on(&[2, 3]), || fixture::with_iothread_on(&[5, 6])),
    ..Rule::PLAIN
};

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    let taken = taken_cpus(p);
    let squeezed = |t: &&PlacedThread| {
        matches!(t.role.as_str(), "iothread" | "vhost")
            && !t.cpus.is_empty()
            && t.cpus.iter().all(|c| taken.contains(c))
    };
    let threads: Vec<&PlacedThread> = p.threads.iter().filter(squeezed).collect();
    threads.first()?;
    let cause = format!(
        "{} may only run on {}, and vCPUs are pinned to all of these processors: one waits while the other runs.",
        threads.iter().map(|t| name(t)).collect::<Vec<String>>().join(", "),
        list_of(&threads.iter().flat_map(|t| t.cpus.iter().copied()).collect()),
    );
    let free = free_cpus(p, &taken);
    let cpus = if free.is_empty() { "CPUS".to_owned() } else { list_of(&free) };
    // One processor more than those filled; where the whole guest is bound, no more is known.
    let wider = free.first().map(|one| list_of(&taken.iter().copied().chain([*one]).collect()));
    let mut finding = rule.advice(p, &[], &cause, advice(p, &threads, &cpus, wider.as_deref()));
    let bound = p.threads.iter().filter(|t| t.role == "vcpu" && t.cpus.iter().all(|c| taken.contains(c)));
    for thread in threads.iter().copied().chain(bound) {
        let from = p.threads.source_or(&p.from);
        let value = format!("may run on {}", list_of(&thread.cpus.iter().copied().collect()));
        finding.evidence.push(Evidence { setting: name(thread), value, from });
    }
    Some(finding)
}

/// `I/O thread iothread0`, `vCPU 2`.
fn name(thread: &PlacedThread) -> String {
    let role = match thread.role.as_str() {
        "iothread" => "I/O thread",
        "vhost" => "vhost thread",
        "vcpu" => "vCPU",
        other => other,
    };
    let which = if thread.name.is_empty() { thread.tid.to_string() } else { thread.name.clone() };
    format!("{role} {which}")
}

fn advice(p: &Processors, threads: &[&PlacedThread], cpus: &str, wider: Option<&str>) -> Change {
    let names = Names(&p.place);
    let domain = names.domain();
    let by_tid: Vec<String> = threads
        .iter()
        .map(|t| {
            let tid = if t.tid == 0 { "TID".to_owned() } else { t.tid.to_string() };
            format!("taskset -cp {cpus} {tid}    # {}", name(t))
        })
        .collect();
    let by_tid = by_tid.join("\n");
    // libvirt numbers its I/O threads; QEMU's names are iothread1, iothread2.
    let number = |t: &PlacedThread| match t.name.trim_start_matches("iothread") {
        n if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => n.to_owned(),
        _ => "ID".to_owned(),
    };
    let pins: Vec<String> = threads
        .iter()
        .map(|t| match t.role.as_str() {
            "iothread" => format!("virsh iothreadpin {domain} {} {} --live --config", shell(&number(t)), cpus),
            // vhost threads inherit the emulator's affinity at their start.
            _ => format!("virsh emulatorpin {domain} {cpus} --live --config"),
        })
        .collect::<BTreeSet<String>>()
        .into_iter()
        .collect();
    let where_to = if wider.is_none() {
        "processors without pinned vCPUs; here all are taken: pin fewer vCPUs".to_owned()
    } else {
        "processors without pinned vCPUs (of any guest)".to_owned()
    };
    Change {
        what: format!("Let it run on {where_to}."),
        qemu: by_tid.clone(),
        libvirt: pins.join("\n"),
        proxmox: format!(
            "{by_tid}\n# Proxmox VE pins the whole guest: give it one processor more than it has vCPUs, from the next \
             start on\nqm set {} --affinity {}",
            names.vmid(),
            wider.unwrap_or("CPUS")
        ),
        takes: AppliesAt::Running,
        sets: None,
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{live_processors, of_processors};

    pub fn with_iothread_on(cpus: &[u32]) -> Facts {
        let mut processors = live_processors();
        processors.threads.amend().iter_mut().filter(|t| t.role == "iothread").for_each(|t| t.cpus = cpus.to_vec());
        of_processors(processors)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testing::live_processors;

    #[test]
    fn the_change_names_thread_and_free_processors() {
        let found = RULE.check(&(RULE.fixture.0)());
        assert!(found[0].change.qemu.contains("taskset -cp 0-1,6-7 106"), "{}", found[0].change.qemu);
        assert!(
            found[0].change.libvirt.contains("virsh iothreadpin DOMAIN 0 0-1,6-7 --live"),
            "{}",
            found[0].change.libvirt
        );
        // The vCPUs fill 2 to 5; one more has room.
        assert!(found[0].change.proxmox.ends_with("qm set VMID --affinity 0,2-5"), "{}", found[0].change.proxmox);
        assert!(found[0].evidence.iter().any(|e| e.setting == "vCPU 0" && e.value == "may run on 2"));
    }

    #[test]
    fn vcpus_that_float_leave_room() {
        let mut p = live_processors();
        p.threads.amend().iter_mut().for_each(|t| t.cpus = (0..8).collect());
        assert_eq!(live(&RULE, &p), None);
        // Four vCPUs and the thread on four of the host's eight processors: none is left.
        p.threads.amend().iter_mut().for_each(|t| t.cpus = (0..4).collect());
        assert!(live(&RULE, &p).is_some());
        // On five there is one.
        p.threads.amend().iter_mut().for_each(|t| t.cpus = (0..5).collect());
        assert_eq!(live(&RULE, &p), None);
    }
}
