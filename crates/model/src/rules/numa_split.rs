//! Memory on another NUMA node than the vCPUs are bound to: each access that misses the caches crosses the link between
//! the nodes.

use std::collections::BTreeSet;

use super::change::{AppliesAt, Names};
use super::live::seen;
use super::placement::list_of;
use super::{Change, Check, Finding, Kinds, Need, Rule, Severity};
use crate::facts::Processors;

/// Share of the memory on other nodes from which it is reported: libraries and page cache of the hypervisor may be
/// anywhere.
const SHARE: f64 = 0.1;

pub(super) const RULE: Rule = Rule {
    id: "numa-split",
    title: "Memory on another node than the vCPUs",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://libvirt.org/formatdomain.html#numa-node-tuning",
        "Linux, Documentation/admin-guide/mm/numa_memory_policy.rst",
        "Proxmox VE, qm.adoc, \"NUMA\"",
    ],
    checks: &[Check::Processors(live)],
    kinds: Kinds::Any,
    // Silent: the vCPUs may run on both nodes.
    #[cfg(test)]
    fixture: (|| fixture::bound_to(&[0, 1, 2, 3]), || fixture::bound_to(&[0, 1, 2, 3, 4, 5, 6, 7])),
    ..Rule::PLAIN
};

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    let nodes: BTreeSet<u32> = p.host.iter().map(|c| c.node).collect();
    let node_of = |cpu: &u32| p.host.iter().find(|c| c.cpu == *cpu).map(|c| c.node);
    let mine: BTreeSet<u32> =
        p.threads.iter().filter(|t| t.role == "vcpu").flat_map(|t| t.cpus.iter().filter_map(node_of)).collect();
    // vCPUs with affinity to all nodes have no node of their own.
    if mine.is_empty() || mine == nodes {
        return None;
    }
    let sum =
        |near: bool| p.memory_by_node.iter().filter(|(n, _)| mine.contains(n) == near).map(|(_, b)| *b).sum::<u64>();
    let (near, far) = (sum(true) as f64, sum(false) as f64);
    let share = far / (near + far);
    // Also where no memory is known.
    if share.is_nan() || share < SHARE {
        return None;
    }
    let cause = format!(
        "The vCPUs are pinned to node {} but {:.0} % of the memory is elsewhere: cache misses cross the link between \
         the nodes.",
        list_of(&mine),
        share * 100.0
    );
    Some(rule.advice(p, &seen![p; memory_by_node], &cause, advice(p, &list_of(&mine), &nodes, &mine)))
}

fn advice(p: &Processors, mine: &str, nodes: &BTreeSet<u32>, own: &BTreeSet<u32>) -> Change {
    let names = Names(&p.place);
    let others = list_of(&nodes.difference(own).copied().collect());
    // The kernel accepts any thread of the process (migrate_pages(2)).
    let tid = p.threads.iter().find(|t| t.role == "vcpu" && t.tid != 0);
    let pid = tid.map_or_else(|| "PID".to_owned(), |t| t.tid.to_string());
    let moved =
        format!("migratepages {pid} {others} {mine}    # package numactl; takes some time, the guest keeps running");
    Change {
        what: format!("Move the memory to node {mine}, and keep it there after the next start."),
        qemu: format!("{moved}\n# from the next start on: numactl --membind={mine} qemu-system-x86_64 ..."),
        libvirt: format!("virsh numatune {} --mode strict --nodeset {mine} --live --config", names.domain()),
        proxmox: format!(
            "{moved}\n# from the next start on, with as many memory bytes as the guest has:\n\
             qm set {} --numa 1 --numa0 cpus=VCPUS,hostnodes={mine},memory=MIB,policy=bind",
            names.vmid()
        ),
        takes: AppliesAt::Running,
        sets: None,
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{live_processors, of_processors};

    pub fn bound_to(cpus: &[u32]) -> Facts {
        let mut processors = live_processors();
        processors.threads.amend().iter_mut().filter(|t| t.role == "vcpu").for_each(|t| t.cpus = cpus.to_vec());
        of_processors(processors)
    }
}
