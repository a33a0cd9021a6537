//! Merging of pages of the same content (KSM): a thread of the kernel reads the memory of all guests for it, and the
//! first write to a merged page copies it (Linux Documentation/admin-guide/mm/ksm.rst). It saves memory where guests
//! are alike, and only takes time where they are not.

use super::change::{AppliesAt, Names};
use super::live::bytes_shown;
use super::{Change, Check, Evidence, Finding, Need, Rule, Severity};
use crate::facts::Processors;

/// Least share of a processor that its thread took since boot, in percent.
const LEAST_PERCENT: f64 = 5.0;
/// Share of the host's memory, in percent, that it saves at least where it is worth its time.
const WORTH_PERCENT: f64 = 1.0;

pub(super) const RULE: Rule = Rule {
    id: "ksm",
    title: "Memory merging (KSM) takes processor time",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://www.kernel.org/doc/html/latest/admin-guide/mm/ksm.html",
        "https://libvirt.org/formatdomain.html#memory-backing (nosharepages)",
        "Proxmox VE, qm(1), allow-ksm",
    ],
    checks: &[Check::Processors(live)],
    // Silent: the thread took little.
    #[cfg(test)]
    fixture: (|| fixture::took(900, 112 << 20), || fixture::took(90, 112 << 20)),
    ..Rule::PLAIN
};

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    let ksm = p.host_state.as_ref()?.ksm?;
    let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    let took = percent(ksm.run_seconds, ksm.up_seconds);
    if took < LEAST_PERCENT {
        return None;
    }
    let nodes = p.host.iter().any(|cpu| cpu.node != 0);
    let across = if ksm.across_nodes && nodes {
        " It also merges across NUMA nodes: what one node reads then lies on another."
    } else {
        ""
    };
    let cause = format!(
        "The kernel's thread ksmd took {took:.0} % of a processor since boot and saves {}; the first write to a merged \
         page has to copy it.{across}",
        bytes_shown(ksm.saved_bytes)
    );
    let evidence = Evidence { setting: "KSM".into(), value: "on".into(), from: "/sys/kernel/mm/ksm/run".into() };
    let names = Names(&p.place);
    let host = "# for the whole host: stops the thread; what is merged stays merged\necho 0 > /sys/kernel/mm/ksm/run\n\
         # echo 2 takes it apart, too, which needs the memory that it saves";
    let change = Change {
        what: "Leave it on where memory is short and guests are alike; else keep this guest out of it, or turn it off."
            .into(),
        qemu: format!(
            "{host}\n# or for one guest, from the next start on, as a part of its own -machine:\nmem-merge=off"
        ),
        libvirt: format!(
            "{host}\n# or for one guest, from the next start on, directly below <domain>:\nvirsh edit {}\n\
             <memoryBacking><nosharepages/></memoryBacking>",
            names.domain()
        ),
        proxmox: format!(
            "{host}\n# or for one guest, from the next start on (Proxmox VE 9)\nqm set {} --allow-ksm 0\n\
             # ksmtuned turns it on again where memory becomes short; for good:\nsystemctl disable --now ksmtuned",
            names.vmid()
        ),
        takes: AppliesAt::Running,
        sets: None,
    };
    let mut finding = rule.advice(p, &[Some(evidence)], &cause, change).of_host();
    if percent(ksm.saved_bytes, ksm.memory_bytes) >= WORTH_PERCENT {
        finding.severity = Severity::Note;
    }
    Some(finding)
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, HostState, Ksm, Processors};
    use crate::testing::{live_processors, of_processors};

    /// A host of 64 GiB that is up for 10,000 seconds.
    pub fn took(run_seconds: u64, saved_bytes: u64) -> Facts {
        let ksm = Ksm { saved_bytes, memory_bytes: 64 << 30, run_seconds, up_seconds: 10_000, across_nodes: true };
        let host = HostState { ksm: Some(ksm), ..HostState::default() };
        of_processors(Processors { host_state: Some(host).into(), ..live_processors() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_saves_much_may_take_time() {
        let of = |took, saved| RULE.check(&fixture::took(took, saved)).first().map(|f| (f.severity, f.cause.clone()));
        assert_eq!(of(900, 8 << 30).map(|f| f.0), Some(Severity::Note));
        let little = of(900, 112 << 20);
        assert_eq!(little.as_ref().map(|f| f.0), Some(Severity::Advice));
        let cause = little.map(|f| f.1).unwrap_or_default();
        assert!(cause.contains("9 % of a processor") && cause.contains("112 MiB"), "{cause}");
        assert!(cause.contains("NUMA") && cause.len() < 330, "{cause}");
        assert_eq!(of(499, 112 << 20), None);
    }
}
