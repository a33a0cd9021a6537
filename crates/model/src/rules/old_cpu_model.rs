//! A CPU model without most features of the host's processor: no AES, no AVX, no fast string operations, and no flags
//! for mitigations of CPU flaws.

use super::change::{AppliesAt, Names};
use super::live::seen;
use super::{Change, Check, Finding, Need, Rule, Severity};
use crate::facts::Processors;
use crate::result::Accel;

/// Models that QEMU keeps only for old configurations.
const OLD: [&str; 11] =
    ["qemu64", "qemu32", "kvm64", "kvm32", "486", "pentium", "pentium2", "pentium3", "athlon", "coreduo", "core2duo"];

pub(super) const RULE: Rule = Rule {
    id: "old-cpu-model",
    title: "The guest has an outdated CPU model",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "QEMU, qemu-cpu-models(7), \"Other non-recommended x86 CPUs\" and \"Host passthrough\"",
        "Proxmox VE, qm.adoc, \"CPU Type\"",
    ],
    checks: &[Check::Processors(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

/// Whether an old model is only the base of a newer one: Proxmox starts its x86-64-v2 and x86-64-v2-AES (the default of
/// new guests) as `qemu64` with flags.
fn is_base_of_newer(p: &Processors) -> bool {
    let has = |flag: &str| p.flags.iter().any(|f| f.strip_prefix('+') == Some(flag));
    has("aes") || (has("ssse3") && (has("sse4.2") || has("sse4_2")))
}

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    // Under emulation the model matters less; that is another rule's finding.
    let model = p.model.as_deref().filter(|m| OLD.contains(m) && p.accel != Some(Accel::Tcg))?;
    if is_base_of_newer(p) {
        return None;
    }
    let cause = format!(
        "The guest's CPU is {model}: without AES, AVX and the like, encryption, checksums and databases use slower \
         code, and flags that mitigate CPU vulnerabilities are missing."
    );
    let names = Names(&p.place);
    let change = Change {
        what: "Give the guest the host's CPU model, or, if it migrates between hosts (and for Windows), the newest \
               model that all of them support, for example x86-64-v3."
            .into(),
        qemu: "-cpu host".into(),
        libvirt: format!(
            "virsh edit {}    # in place of its own <cpu>:\n<cpu mode='host-passthrough' check='none' \
             migratable='on'/>\n\
             <!-- if it migrates between hosts: <cpu mode='host-model'/> -->",
            names.domain()
        ),
        proxmox: format!(
            "qm set {vmid} --cpu host    # if it migrates between hosts: --cpu x86-64-v2-AES or x86-64-v3\n\
             # takes effect after the guest is shut down and started",
            vmid = names.vmid()
        ),
        takes: AppliesAt::NextStart,
        sets: None,
    };
    Some(rule.advice(p, &seen![p; model, flags], &cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Processors};
    use crate::testing::{live_processors, of_processors};

    pub fn fires() -> Facts {
        of_processors(Processors { model: "kvm64".into(), ..live_processors() })
    }

    pub fn silent() -> Facts {
        of_processors(Processors { model: "Skylake-Server".into(), ..live_processors() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::live_processors;

    #[test]
    fn a_model_of_proxmox_that_is_built_on_an_old_one_is_none() {
        let fires = |flags: &[&str]| {
            let flags = flags.iter().map(|f| (*f).to_owned()).collect();
            live(&RULE, &Processors { model: "qemu64".into(), flags, ..live_processors() }).is_some()
        };
        let x86_64_v2 = ["enforce", "+kvm_pv_eoi", "+pni", "+popcnt", "+sse4.1", "+sse4.2", "+ssse3"];
        assert!(!fires(&[&["+aes"], &x86_64_v2[..]].concat()), "x86-64-v2-AES");
        assert!(!fires(&x86_64_v2), "x86-64-v2");
        assert!(fires(&["enforce", "+kvm_pv_eoi", "+pni"]) && fires(&["-aes"]) && fires(&[]));
    }
}
