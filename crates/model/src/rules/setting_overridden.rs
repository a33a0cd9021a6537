//! A setting that the configuration asks for and that is not in force: what people read in their
//! configuration is not what their guest has.

use super::{Finding, Need, Rule, change};
use crate::facts::Facts;

pub(super) const RULE: Rule = Rule {
    id: "setting-overridden",
    title: "A setting is not in force",
    needs: Need::Settings,
    references: &["https://github.com/kubevirt/kubevirt/issues/12112 (io=native silently overridden)"],
    check,
    #[cfg(test)]
    fires: fixture::fires,
    #[cfg(test)]
    silent: fixture::silent,
};

fn check(rule: &Rule, facts: &Facts) -> Vec<Finding> {
    let of = |disk: &crate::facts::Disk| -> Option<Finding> {
        let wrong = &disk.details.overridden;
        let each: Vec<String> =
            wrong.iter().map(|o| format!("{} is {} where {} was asked for", o.setting, o.found, o.asked)).collect();
        if each.is_empty() {
            return None;
        }
        let cause = format!("{}: something between the configuration and QEMU decided otherwise.", each.join("; "));
        let names: Vec<&str> = wrong.iter().map(|o| o.setting.as_str()).collect();
        let look = change::in_guest(
            format!("Find out who overrides {}; until then trust what is in force.", names.join(", ")),
            "# what QEMU was started with, and what it really has\n\
             tr '\\0' '\\n' < /proc/PID/cmdline | grep -A1 -e -blockdev -e -drive -e -device\n\
             # libvirt: virsh dumpxml DOMAIN against virsh dumpxml --inactive DOMAIN\n\
             # Proxmox: qm showcmd VMID --pretty against the running process",
        );
        Some(rule.advice(disk, &cause, look))
    };
    facts.disks.iter().filter_map(of).collect()
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
