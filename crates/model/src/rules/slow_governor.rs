//! Processors of the host that are kept at their lowest frequency. The governor `powersave` of a generic driver does
//! that whatever the load (Linux Documentation/admin-guide/pm/cpufreq.rst); with the drivers that choose by
//! themselves, it only is the name of their usual way (admin-guide/pm/intel_pstate.rst, "Active Mode";
//! amd-pstate.rst), and what they prefer is set apart.

use std::collections::BTreeSet;

use super::change::on_host;
use super::{Check, Evidence, Finding, Kinds, Need, Rule, Severity};
use crate::facts::{Governor, Processors};

/// Drivers that choose the frequency by load under the name of `powersave`.
const CHOOSE: [&str; 2] = ["intel_pstate", "amd-pstate-epp"];

/// Preferences that cost speed.
const SLOW: [&str; 2] = ["power", "balance_power"];

pub(super) const RULE: Rule = Rule {
    id: "slow-governor",
    title: "Processors at their lowest frequency",
    needs: Need::Settings,
    severity: Severity::Warning,
    references: &[
        "https://www.kernel.org/doc/html/latest/admin-guide/pm/cpufreq.html",
        "https://www.kernel.org/doc/html/latest/admin-guide/pm/intel_pstate.html (energy vs performance hints)",
    ],
    checks: &[Check::Processors(live)],
    kinds: Kinds::Any,
    #[cfg(test)]
    fixture: (|| fixture::with("acpi-cpufreq", None), || fixture::with("intel_pstate", None)),
    ..Rule::PLAIN
};

/// The title where the drivers choose, and prefer to save power.
const PREFERENCE: &str = "Processors prefer saving power";

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    let all = &p.host_state.as_ref()?.governors;
    let bound: BTreeSet<u32> =
        p.threads.iter().filter(|t| t.role == "vcpu").flat_map(|t| t.cpus.iter().copied()).collect();
    let mine = |g: &Governor| g.cpus.iter().filter(|cpu| bound.is_empty() || bound.contains(*cpu)).count();
    let count = |wanted: fn(&Governor) -> bool| {
        let found: Vec<&Governor> = all.iter().filter(|g| wanted(g) && mine(g) > 0).collect();
        (found.iter().map(|&g| mine(g)).sum::<usize>(), found.first().copied())
    };
    let (of, _) = count(|_| true);
    let lowest = |g: &Governor| g.governor == "powersave" && !CHOOSE.contains(&g.driver.as_str());
    let saving = |g: &Governor| g.preference.as_deref().is_some_and(|preference| SLOW.contains(&preference));
    let (slow, saves) = (count(lowest), count(saving));
    let (severity, cause, setting, value, file) = match (slow, saves) {
        ((n, Some(g)), _) => (
            Severity::Warning,
            format!(
                "{n} of {of} processors run at their lowest frequency whatever the load (governor powersave of {}).",
                g.driver
            ),
            "governor",
            "powersave",
            "scaling_governor",
        ),
        (_, (n, Some(g))) => {
            let preference = g.preference.as_deref()?;
            (
                Severity::Note,
                format!(
                    "{n} of {of} processors prefer saving power ({preference} of {}): they become fast late under a \
                     load that comes and goes.",
                    g.driver
                ),
                "energy performance preference",
                preference,
                "energy_performance_preference",
            )
        }
        _ => return None,
    };
    let evidence = Evidence {
        setting: setting.to_owned(),
        value: value.to_owned(),
        from: format!("/sys/devices/system/cpu/cpufreq/policy*/{file}"),
    };
    let change = on_host(
        "Let the processors be fast under load; it costs power and heat.",
        "cpupower frequency-set -g performance    # until the next boot\n\
         tuned-adm profile virtual-host    # for good, where tuned runs",
    );
    let mut finding = rule.advice(p, &[Some(evidence)], &cause, change).of_host();
    if severity == Severity::Note {
        PREFERENCE.clone_into(&mut finding.title);
    }
    finding.severity = severity;
    Some(finding)
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Governor, HostState, Processors};
    use crate::testing::{live_processors, of_processors};

    /// A guest on a host whose processors have the governor powersave of this driver.
    pub fn with(driver: &str, preference: Option<&str>) -> Facts {
        let governor = Governor {
            driver: driver.into(),
            governor: "powersave".into(),
            preference: preference.map(Into::into),
            cpus: (0..8).collect(),
        };
        let host = HostState { governors: vec![governor], ..HostState::default() };
        of_processors(Processors { host_state: Some(host).into(), ..live_processors() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_powersave_means_is_the_drivers_word() {
        let of = |driver: &str, preference: Option<&str>| {
            RULE.check(&fixture::with(driver, preference)).first().map(|f| (f.severity, f.cause.clone()))
        };
        let cause = "4 of 4 processors run at their lowest frequency whatever the load (governor powersave of \
                     acpi-cpufreq). Not measured here.";
        assert_eq!(of("acpi-cpufreq", None), Some((Severity::Warning, cause.to_owned())));
        for passive in ["intel_cpufreq", "amd-pstate"] {
            assert_eq!(of(passive, None).map(|f| f.0), Some(Severity::Warning), "{passive}");
        }
        for driver in CHOOSE {
            assert_eq!(of(driver, Some("balance_performance")), None);
            assert_eq!(of(driver, Some("balance_power")).map(|f| f.0), Some(Severity::Note));
        }
    }

    /// The slow ones are those that the guest is not on.
    #[test]
    fn what_counts_are_the_processors_of_the_guest() {
        let mut facts = fixture::with("acpi-cpufreq", None);
        for host in facts.processors.iter_mut().filter_map(|p| p.host_state.amend().as_mut()) {
            host.governors.iter_mut().for_each(|g| g.cpus = vec![0, 1, 6, 7]);
        }
        assert_eq!(RULE.check(&facts), []);
    }
}
