//! A CPU model that hides nearly all that the host's processor has: no AES, no AVX, no fast string
//! operations, and flags against known flaws of CPUs left out.

use super::change::{Names, Takes};
use super::{Change, Check, Finding, Need, Rule, Severity};
use crate::facts::Processors;
use crate::result::Accel;

/// Models that QEMU keeps for old configurations alone.
const OLD: [&str; 11] =
    ["qemu64", "qemu32", "kvm64", "kvm32", "486", "pentium", "pentium2", "pentium3", "athlon", "coreduo", "core2duo"];

pub(super) const RULE: Rule = Rule {
    id: "old-cpu-model",
    title: "The guest sees a CPU of long ago",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "QEMU, qemu-cpu-models(7), \"Other non-recommended x86 CPUs\" and \"Host passthrough\"",
        "Proxmox VE, qm.adoc, \"CPU Type\"",
    ],
    checks: &[Check::Processors(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
};

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    // Under emulation the model costs and gains nothing like it; that is another rule's finding.
    let model = p.model.as_deref().filter(|m| OLD.contains(m) && p.accel != Some(Accel::Tcg))?;
    let cause = format!(
        "The guest's CPU is {model}: without AES, AVX and the like, encryption, checksums and databases run by slower \
         code, and flags against flaws of the CPU are missing."
    );
    let names = Names(&p.place);
    let change = Change {
        what: "Let the guest see the host's CPU, or, where it moves between hosts (and for Windows), the newest model that \
               all of them have, for example x86-64-v3."
            .into(),
        qemu: "-cpu host".into(),
        libvirt: format!(
            "virsh edit {}    # in place of its own <cpu>:\n<cpu mode='host-passthrough' check='none' migratable='on'/>\n\
             <!-- where it moves between hosts: <cpu mode='host-model'/> -->",
            names.domain()
        ),
        proxmox: format!(
            "qm set {vmid} --cpu host    # where it moves between hosts: --cpu x86-64-v2-AES or x86-64-v3\n\
             # in force after the guest was stopped and started",
            vmid = names.vmid()
        ),
        takes: Takes::NextStart,
    };
    Some(rule.advice(p, &["model", "flags"], &cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Processors};
    use crate::testing::{live_processors, of_processors};

    pub fn fires() -> Facts {
        of_processors(Processors { model: Some("kvm64".into()), ..live_processors() })
    }

    pub fn silent() -> Facts {
        of_processors(Processors { model: Some("Skylake-Server".into()), ..live_processors() })
    }
}
