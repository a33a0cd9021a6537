//! More vCPUs than processors: more than the host has, more than they are bound to together, or bound to processors of
//! other busy vCPUs. When a vCPU is preempted while it holds a lock, the guest's other vCPUs spin.

use std::collections::BTreeSet;

use super::change::{AppliesAt, Names, comment};
use super::live::seen;
use super::placement::list_of;
use super::{Change, Check, Evidence, Finding, Kinds, Need, Rule, Severity};
use crate::cell::{Actor, Cell};
use crate::facts::{Changed, Gain, Measured, PlacedThread, Processors, Subject};

/// Any significant gain counts: removing a binding costs nothing.
const GAIN: f64 = 1.0;

pub(super) const RULE: Rule = Rule {
    id: "vcpus-over-cores",
    title: "vCPUs compete for processors",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Advice,
    references: &[
        "Proxmox VE, qm.adoc, \"CPU\" (no more vCPUs than physical cores for one guest)",
        "https://libvirt.org/formatdomain.html#cpu-tuning (vcpupin)",
    ],
    checks: &[Check::Run(measured), Check::Processors(live)],
    kinds: Kinds::Any,
    // Silent: where one processor is enough.
    #[cfg(test)]
    fixture: (|| fixture::run(5e9), || fixture::run(10e9)),
    ..Rule::PLAIN
};

/// In a run: the same pinned to fewer processors than its vCPUs, or to those of others in the cell, and not so.
fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let freed = |g: &&Gain| crowding(&g.before, m).is_some() && crowding(&g.after, m).is_none();
    let cause = |g: &Gain| {
        format!(
            "{} A vCPU that waits for a processor delays those that wait for it. On its own processors, {} ran {} as \
             fast.",
            crowding(&g.before, m).unwrap_or_default(),
            g.after.workload(),
            g.ratio.times()
        )
    };
    rule.from_gains(m, m.sure_gains(Changed::Pins, GAIN).filter(freed), cause, |g| {
        let vcpus = g.before.actors().find(|actor| is_guest(actor)).map_or(0, |actor| vcpus(actor, m));
        let thread = |n: u32| PlacedThread { role: "vcpu".into(), name: n.to_string(), tid: 0, cpus: Vec::new() };
        let guest = Processors::unknown(Subject::guest("GUEST"), m.from());
        unbound(&Processors { threads: (0..vcpus).map(thread).collect(), ..guest })
    })
}

/// Why vCPUs of a cell's guests wait for each other or for others in the cell; `None` where they do not.
fn crowding(cell: &Cell, m: &Measured) -> Option<String> {
    let held: Vec<(&Actor, BTreeSet<u32>)> =
        cell.actors().map(|actor| (actor, actor.side.shape.pins.iter().copied().collect())).collect();
    let guests = held.iter().filter(|(actor, pins)| is_guest(actor) && !pins.is_empty());
    for (guest, pins) in guests {
        if vcpus(guest, m) as usize > pins.len() {
            return Some(format!("{} vCPUs of this guest may only run on {}.", vcpus(guest, m), list_of(pins)));
        }
        let other = held.iter().find(|(other, theirs)| other.side != guest.side && !theirs.is_disjoint(pins));
        if let Some((other, theirs)) = other {
            let shared = list_of(&theirs.intersection(pins).copied().collect());
            return Some(format!("This guest is bound to {shared}, and so is {}.", other.side));
        }
    }
    None
}

fn is_guest(actor: &Actor) -> bool {
    !actor.side.shares_kernel()
}

fn vcpus(actor: &Actor, m: &Measured) -> u32 {
    actor.side.shape.vcpus.unwrap_or(m.vcpus)
}

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    let bound: BTreeSet<u32> =
        p.threads.iter().filter(|t| t.role == "vcpu").flat_map(|t| t.cpus.iter().copied()).collect();
    let threads = p.threads.iter().filter(|t| t.role == "vcpu" && !t.cpus.is_empty()).count();
    let vcpus = p.vcpus.map_or(threads, |n| n as usize);
    let mut evidence = Vec::new();
    let cause = if !p.host.is_empty() && vcpus > p.host.len() {
        evidence.push(("host's processors".to_owned(), p.host.len().to_string()));
        format!("The guest has {vcpus} vCPUs and the host {} processors.", p.host.len())
    } else if threads > bound.len() && !bound.is_empty() {
        evidence.push(("vCPUs may run on".to_owned(), list_of(&bound)));
        format!("{threads} vCPUs may only run on {}.", list_of(&bound))
    } else if !p.shares_cpus_with.is_empty() {
        evidence.push(("vCPUs may run on".to_owned(), list_of(&bound)));
        format!("vCPUs are pinned to processors to which vCPUs of {} are pinned, too.", p.shares_cpus_with.join(", "))
    } else {
        return None;
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

/// More vCPUs than the host's processors: no binding helps.
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
        takes: AppliesAt::NextStart,
        sets: None,
    }
}

/// Bound too closely: the scheduler finds a free processor better than a shared binding.
fn unbound(p: &Processors) -> Change {
    let names = Names(&p.place);
    let all = if p.host.is_empty() { "CPUS".to_owned() } else { list_of(&p.host.iter().map(|cpu| cpu.cpu).collect()) };
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
        takes: AppliesAt::Running,
        sets: None,
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, over_bridge};

    pub fn run(on_one: f64) -> Facts {
        let held = |pins: &[u32]| {
            let mut cell = over_bridge(Some("virtio-net"), "iperf3-tcp");
            cell.lead.side.shape.pins = pins.to_vec();
            cell.lead.side.shape.vcpus = Some(2);
            cell
        };
        let (one, both) = (held(&[0]), held(&[0, 1]));
        Bench::new().cell(one.natively(), 30e9).cell(both.natively(), 40e9).cell(one, on_one).cell(both, 10e9).facts()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::rules::{Finding, findings};
    use crate::testing::{Bench, live_processors, of_processors, over_bridge};

    #[test]
    fn neighbours_and_small_hosts_are_told() {
        let cause = |p: Processors| live(&RULE, &p).map(|f| f.cause).unwrap();
        let neighbour = Processors { shares_cpus_with: vec!["web2".into()].into(), ..live_processors() };
        assert!(cause(neighbour).starts_with("vCPUs are pinned to processors to which vCPUs of web2 are pinned"));
        let many = Processors { vcpus: Some(12).into(), ..live_processors() };
        assert!(cause(many).starts_with("The guest has 12 vCPUs and the host 8 processors."));
    }

    fn found(facts: &Facts) -> Option<Finding> {
        findings(facts).into_iter().find(|f| f.rule == RULE.id)
    }

    #[test]
    fn of_a_guest_that_runs_its_bindings_decide() {
        let bound_to = |n: u32| {
            let mut processors = live_processors();
            processors.threads.amend().iter_mut().filter(|t| t.role == "vcpu").for_each(|t| t.cpus = (0..n).collect());
            found(&of_processors(processors))
        };
        assert!(bound_to(2).is_some() && bound_to(4).is_none());
    }

    /// Two guests of one vCPU on one processor, and each on its own.
    #[test]
    fn two_guests_on_one_processor_are_told_and_can_be_proven() {
        let two = |second: u32| {
            let mut cell = over_bridge(Some("virtio-net"), "iperf3-tcp");
            cell.lead.side.shape.vcpus = Some(1);
            let mut beside = cell.lead.clone();
            cell.lead.side.shape.pins = vec![0];
            (beside.side.shape.pins, beside.side.nth) = (vec![second], 1);
            cell.beside.push(beside);
            cell
        };
        let natively = |second: u32, figure: f64| (two(second).natively(), figure);
        let run = |shared: f64| {
            let cells = [natively(0, 30e9), natively(1, 40e9), (two(0), shared), (two(1), 10e9)];
            cells.into_iter().fold(Bench::new(), |bench, (cell, figure)| bench.cell(cell, figure)).facts()
        };
        let finding = found(&run(5e9)).unwrap();
        assert!(finding.cause.starts_with("This guest is bound to 0, and so is qemu"), "{}", finding.cause);
        let proof = finding.proof.unwrap();
        assert_eq!((proof.before, proof.after), (two(0), two(1)));
        assert!(
            finding.change.libvirt.starts_with("virsh vcpupin DOMAIN 0 CPUS --live --config"),
            "{:?}",
            finding.change
        );
        assert!(found(&run(10e9)).is_none());
    }
}
