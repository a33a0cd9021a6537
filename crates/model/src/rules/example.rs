//! Memory in pages of 4 KiB: on a TLB miss the guest's processor walks its own page tables and the host's, up to 24
//! reads; with pages of 2 MiB there are fewer, and a TLB entry covers 512 times as much.

use super::change::{AppliesAt, Names};
use super::live::seen;
use super::{Change, Check, Finding, Need, Rule, Severity};
use crate::facts::Processors;

pub(super) const RULE: Rule = Rule {
    id: "small-pages",
    title: "Memory in pages of 4 KiB",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "Linux, Documentation/admin-guide/mm/hugetlbpage.rst",
        "https://libvirt.org/formatdomain.html#memory-backing",
    ],
    checks: &[Check::Processors(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    if (*p.huge_pages)? {
        return None;
    }
    let cause = "The guest's memory is not of huge pages: what the TLB does not know takes two walks through tables.";
    let names = Names(&p.place);
    let change = Change {
        what: "Reserve huge pages on the host (vm.nr_hugepages) and give the guest its memory from them.".into(),
        qemu: "-object memory-backend-memfd,id=mem0,size=SIZE,hugetlb=on -machine memory-backend=mem0".into(),
        libvirt: format!("virsh edit {}    # <memoryBacking><hugepages/></memoryBacking>", names.domain()),
        proxmox: format!("qm set {} --hugepages 2", names.vmid()),
        takes: AppliesAt::NextStart,
        sets: None,
    };
    Some(rule.advice(p, &seen![p; huge_pages], cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Processors};
    use crate::testing::{live_processors, of_processors};

    pub fn fires() -> Facts {
        of_processors(live_processors())
    }

    pub fn silent() -> Facts {
        of_processors(Processors { huge_pages: Some(true).into(), ..live_processors() })
    }
}
