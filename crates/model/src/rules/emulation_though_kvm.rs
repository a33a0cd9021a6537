//! A guest under QEMU's software emulation (TCG): every instruction is translated. Whether KVM works on this host is
//! not tried: `/dev/kvm` can exist and be unusable, as in a guest without nested virtualisation. So the change says how
//! to try it.

use super::change::{AppliesAt, Names};
use super::live::seen;
use super::withheld::{self, Advice};
use super::{Change, Check, Finding, Need, Rule, Severity};
use crate::facts::Processors;
use crate::result::Accel;

pub(super) const RULE: Rule = Rule {
    id: "emulation-though-kvm",
    title: "Software emulation",
    needs: Need::Settings,
    severity: Severity::Warning,
    references: &[
        "QEMU, docs/system/introduction.rst, \"Virtualisation Accelerators\"",
        "Proxmox VE, qm.adoc, `kvm`: enable or disable KVM hardware virtualization",
    ],
    checks: &[Check::Processors(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    let here = p.kvm_here.filter(|_| p.accel == Some(Accel::Tcg))?;
    let tried = withheld::of_processors(p, Advice::Kvm).is_some();
    let reason = if here {
        "This host has /dev/kvm; whether KVM works was not tested."
    } else if tried {
        "/dev/kvm opens, but a test guest failed to boot: see `vmio doctor`."
    } else {
        "This host has no working KVM: check the firmware's settings (VT-x, AMD-V), the kvm module, or, if the \
         host is itself a guest, nested virtualisation."
    };
    let cause = format!(
        "QEMU emulates each instruction of this guest in software (TCG), which takes many times the CPU time. {reason}"
    );
    let change = if tried { mend() } else { use_kvm(Names(&p.place)) };
    let mut finding = rule.advice(p, &seen![p; accel, kvm_here], &cause, change).of_host();
    if !here {
        finding.severity = Severity::Note;
    }
    Some(finding)
}

/// Where KVM was tried and failed.
fn mend() -> Change {
    Change {
        what: "Mend KVM first; vmio's own test guest failed to boot with it.".into(),
        qemu: "vmio doctor    # says how it failed\n\
               # where this host is itself a guest, on the host below:\n\
               cat /sys/module/kvm_*/parameters/nested"
            .into(),
        libvirt: "virt-host-validate qemu".into(),
        proxmox: "dmesg | grep -i kvm".into(),
        takes: AppliesAt::NextStart,
        sets: None,
    }
}

/// Where it was not tried.
fn use_kvm(names: Names<'_>) -> Change {
    Change {
        what: "Run the guest with KVM; test it first with a disposable guest, which must boot to its login prompt."
            .into(),
        qemu: "-accel kvm -cpu host".into(),
        libvirt: format!(
            "virt-host-validate qemu\nvirsh edit {}    # the first line, in place of type='qemu':\n<domain type='kvm'>",
            names.domain()
        ),
        proxmox: format!("qm set {} --kvm 1\n# takes effect after the guest is shut down and started", names.vmid()),
        takes: AppliesAt::NextStart,
        sets: None,
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Processors};
    use crate::result::Accel;
    use crate::testing::{live_processors, of_processors};

    pub fn fires() -> Facts {
        of_processors(Processors { accel: Some(Accel::Tcg).into(), ..live_processors() })
    }

    pub fn silent() -> Facts {
        of_processors(live_processors())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Fact, Source};
    use crate::testing::{live_processors, of_processors};

    /// Where the device exists the firmware's switch is on.
    #[test]
    fn a_kvm_that_was_tried_is_not_told_to_be_switched_on() {
        let cause = |kvm_here| {
            let facts = of_processors(Processors { accel: Some(Accel::Tcg).into(), kvm_here, ..live_processors() });
            RULE.check(&facts).remove(0).cause
        };
        let (missing, tried) = (cause(Some(false).into()), cause(Fact::read(Some(false), Source::TestBoot)));
        assert!(missing.contains("firmware") && !tried.contains("firmware"), "{tried}");
        assert!(tried.contains("failed to boot: see `vmio doctor`"), "{tried}");
    }

    #[test]
    fn a_host_without_kvm_is_a_note() {
        let of = |kvm_here| {
            let facts = of_processors(Processors { accel: Some(Accel::Tcg).into(), kvm_here, ..live_processors() });
            RULE.check(&facts).first().map(|f| f.severity)
        };
        assert_eq!(
            [of(Some(true).into()), of(Some(false).into()), of(None.into())],
            [Some(Severity::Warning), Some(Severity::Note), None]
        );
    }
}
