//! A host that gave its TSC up as a clock. KVM then gives its guests no clock that they read without leaving: neither
//! kvm-clock's pages nor Hyper-V's TSC page are used, and each look at the time is an exit.

use super::change::on_host;
use super::live::seen;
use super::{Check, Finding, Kinds, Need, Rule, Severity};
use crate::facts::Processors;
use crate::result::Accel;

/// Clock sources that a PC falls back to. A host that is a guest itself has another one, of its own hypervisor.
const SLOW: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies"];

pub(super) const RULE: Rule = Rule {
    id: "host-clock-source",
    title: "The host's clock is not the TSC",
    needs: Need::Settings,
    severity: Severity::Warning,
    references: &[
        "Linux, arch/x86/kvm/x86.c, `pvclock_update_vm_gtod_copy`; arch/x86/kvm/hyperv.c, `kvm_hv_setup_tsc_page`",
        "Linux, Documentation/admin-guide/kernel-parameters.txt, tsc=",
    ],
    checks: &[Check::Processors(live)],
    kinds: Kinds::Any,
    #[cfg(test)]
    fixture: (|| fixture::clock("acpi_pm"), || fixture::clock("kvm-clock")),
    ..Rule::PLAIN
};

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    let clock = p.clock_source.as_deref().filter(|name| p.accel == Some(Accel::Kvm) && SLOW.contains(name))?;
    let cause = format!(
        "The host keeps time by {clock}: KVM can then give its guests no clock that they read without leaving, \
         neither kvm-clock's nor Hyper-V's, and each look at the time takes microseconds."
    );
    let what = "Find why the kernel gave the TSC up (firmware, an old kernel) and mend that. Force it with tsc=reliable \
                only where the TSCs of all sockets agree: wrong time is worse than slow time.";
    let dir = "/sys/devices/system/clocksource/clocksource0";
    let commands = format!(
        "cat {dir}/available_clocksource\n\
         journalctl -k -b | grep -i -e tsc -e clocksource    # why the kernel gave it up\n\
         # if tsc is available, and the reason is gone: echo tsc > {dir}/current_clocksource"
    );
    Some(rule.advice(p, &seen![p; clock_source, accel], &cause, on_host(what, commands)).of_host())
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Processors};
    use crate::testing::{live_processors, of_processors};

    pub fn clock(name: &str) -> Facts {
        of_processors(Processors { clock_source: name.into(), ..live_processors() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::live_processors;

    #[test]
    fn only_guests_of_kvm_on_a_host_with_a_slow_clock() {
        let fires = |clock: Option<&str>, accel: Option<Accel>| {
            let clock_source = clock.map(str::to_owned).into();
            live(&RULE, &Processors { clock_source, accel: accel.into(), ..live_processors() }).is_some()
        };
        assert!(fires(Some("hpet"), Some(Accel::Kvm)) && fires(Some("acpi_pm"), Some(Accel::Kvm)));
        for clock in [Some("tsc"), Some("hyperv_clocksource_tsc_page"), Some("arch_sys_counter"), None] {
            assert!(!fires(clock, Some(Accel::Kvm)), "{clock:?}");
        }
        assert!(!fires(Some("hpet"), Some(Accel::Tcg)) && !fires(Some("hpet"), None));
    }
}
