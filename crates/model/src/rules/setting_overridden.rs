//! A setting that the configuration asks for and that is not in force: what people read in their
//! configuration is not what their guest has.

use super::change::{Names, Takes};
use super::{Change, Check, Evidence, Finding, Live, Need, Rule, Severity};
use crate::facts::{Disk, Nic, Overridden, Processors};

pub(super) const RULE: Rule = Rule {
    id: "setting-overridden",
    title: "A setting is not in force",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &["https://github.com/kubevirt/kubevirt/issues/12112 (io=native silently overridden)"],
    checks: &[Check::Disk(of_disk), Check::Nic(of_nic), Check::Processors(of_processors)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
};

fn of_disk(rule: &Rule, disk: &Disk) -> Option<Finding> {
    overridden(rule, disk, &disk.details.overridden)
}

fn of_nic(rule: &Rule, nic: &Nic) -> Option<Finding> {
    overridden(rule, nic, &nic.overridden)
}

fn of_processors(rule: &Rule, processors: &Processors) -> Option<Finding> {
    overridden(rule, processors, &processors.overridden)
}

fn overridden(rule: &Rule, device: &impl Live, wrong: &[Overridden]) -> Option<Finding> {
    let each: Vec<String> =
        wrong.iter().map(|o| format!("{} is {} where {} was asked for", o.setting, o.found, o.asked)).collect();
    if each.is_empty() {
        return None;
    }
    let cause = format!(
        "{}: something between the configuration and QEMU decided otherwise, or the configuration was changed and the \
         guest not started anew since.",
        each.join("; ")
    );
    let names: Vec<&str> = wrong.iter().map(|o| o.setting.as_str()).collect();
    let (domain, vmid) = (Names(device.place()).domain(), Names(device.place()).vmid());
    let running = "tr '\\0' '\\n' < /proc/PID/cmdline | grep -A1 -e -blockdev -e -drive -e -device -e -cpu -e -smp";
    let look = Change {
        what: format!("Find out who overrides {}; until then trust what is in force.", names.join(", ")),
        qemu: format!("# what QEMU was started with\n{running}"),
        libvirt: format!("diff <(virsh dumpxml {domain}) <(virsh dumpxml --inactive {domain})"),
        proxmox: format!(
            "qm pending {vmid}\n# and what it would be started with now, against the running process\nqm showcmd {vmid} --pretty"
        ),
        takes: Takes::Running,
        sets: None,
    };
    let mut finding = rule.advice(device, &[], &cause, look);
    finding.evidence = wrong.iter().map(|o| in_force(device, o)).collect();
    Some(finding)
}

fn in_force(device: &impl Live, o: &Overridden) -> Evidence {
    device.evidence(&o.setting).unwrap_or_else(|| Evidence {
        setting: o.setting.clone(),
        value: o.found.clone(),
        from: device.from().place(),
    })
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Details, Facts, Overridden};
    use crate::testing::settings;

    pub fn fires() -> Facts {
        let one = Overridden { setting: "aio".into(), asked: "native".into(), found: "threads".into() };
        settings(Details { overridden: vec![one], ..Details::default() })
    }

    /// All is as it was asked for.
    pub fn silent() -> Facts {
        settings(Details::default())
    }
}
