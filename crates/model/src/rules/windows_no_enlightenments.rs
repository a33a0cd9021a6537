//! Windows without Hyper-V enlightenments: it reads clocks and timers of emulated hardware, each with an exit to the
//! hypervisor, and its watchdogs report a pause of the host as a fault.

use super::change::{AppliesAt, Names};
use super::live::seen;
use super::{Change, Check, Finding, Need, Rule, Severity};
use crate::facts::Processors;
use crate::result::Accel;

pub(super) const RULE: Rule = Rule {
    id: "windows-no-enlightenments",
    title: "Windows without Hyper-V enlightenments",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://qemu.org/docs/master/system/i386/hyperv.html",
        "https://libvirt.org/formatdomain.html#hypervisor-features (hyperv)",
        "Proxmox VE, qm.adoc, \"OS Settings\" (ostype)",
    ],
    checks: &[Check::Processors(live)],
    #[cfg(test)]
    fixture: (|| fixture::windows(&["+aes"]), || fixture::windows(&["hv_relaxed", "hv_time"])),
    ..Rule::PLAIN
};

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    // Without a model the flags were not read either; and enlightenments require KVM.
    let windows = p.windows == Some(true) && p.model.is_some() && p.accel == Some(Accel::Kvm);
    let flag =
        |f: &String| f.trim_start_matches('+').starts_with("hv_") || f.trim_start_matches('+').starts_with("hv-");
    if !windows || p.flags.iter().any(flag) {
        return None;
    }
    let cause = "Windows runs without Hyper-V enlightenments: clocks, timers and interrupts go through emulated \
                 hardware, and an idle guest burns CPU time.";
    let names = Names(&p.place);
    let model = [p.model.as_deref().unwrap_or("host")].into_iter().chain(p.flags.iter().map(String::as_str));
    let model = model.collect::<Vec<&str>>().join(",");
    let change = Change {
        what: "Turn the enlightenments on.".into(),
        qemu: format!(
            "-cpu {model},hv_relaxed,hv_vapic,hv_spinlocks=0x1fff,hv_vpindex,hv_runtime,hv_time,hv_synic,hv_stimer,\
             hv_tlbflush,hv_ipi,hv_frequencies"
        ),
        libvirt: format!(
            "virsh edit {}    # in <features>, and the timer in <clock>:\n\
             <hyperv mode='custom'>\n  <relaxed state='on'/>\n  <vapic state='on'/>\n  \
             <spinlocks state='on' retries='8191'/>\n  <vpindex state='on'/>\n  <runtime state='on'/>\n  \
             <synic state='on'/>\n  <stimer state='on'/>\n  <tlbflush state='on'/>\n  <ipi state='on'/>\n  \
             <frequencies state='on'/>\n</hyperv>\n<timer name='hypervclock' present='yes'/>",
            names.domain()
        ),
        proxmox: format!(
            "qm set {} --ostype win11    # or win10, w2k12: the release in the guest\n\
             # takes effect after the guest is shut down and started",
            names.vmid()
        ),
        takes: AppliesAt::NextStart,
        sets: None,
    };
    Some(rule.advice(p, &seen![p; windows, model, flags], cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Processors};
    use crate::testing::{live_processors, of_processors};

    pub fn windows(flags: &[&str]) -> Facts {
        let flags = flags.iter().map(|f| (*f).into()).collect();
        of_processors(Processors { windows: Some(true).into(), flags, ..live_processors() })
    }
}
