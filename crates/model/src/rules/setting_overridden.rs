//! A configured setting that is not in force, so that the guest is not what its configuration says.

use super::change::{AppliesAt, Names, slot_without};
use super::support::is_emulated;
use super::{Change, Check, Evidence, Finding, Live, Need, Rule, Severity};
use crate::facts::{Disk, Nic, Overridden, Processors, Setting};

pub(super) const RULE: Rule = Rule {
    id: "setting-overridden",
    title: "A setting is not in force",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://github.com/kubevirt/kubevirt/issues/12112 (io=native silently overridden)",
        "qemu-server, PVE/QemuServer.pm, config_to_command: \"iothread is only valid with virtio disk or \
         virtio-scsi-single controller, ignoring\"",
    ],
    checks: &[Check::Disk(of_disk), Check::Nic(of_nic), Check::Processors(of_processors)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

fn of_disk(rule: &Rule, disk: &Disk) -> Option<Finding> {
    // No emulated controller has an I/O thread: that is a part of another rule's finding.
    let emulated = disk.driver.as_deref().is_some_and(is_emulated);
    let told_there = |o: &&Overridden| emulated && o.setting == Setting::Iothread;
    overridden(rule, disk, &disk.details.overridden.iter().filter(|o| !told_there(o)).collect::<Vec<_>>())
}

fn of_nic(rule: &Rule, nic: &Nic) -> Option<Finding> {
    overridden(rule, nic, &nic.overridden.iter().collect::<Vec<_>>())
}

fn of_processors(rule: &Rule, processors: &Processors) -> Option<Finding> {
    overridden(rule, processors, &processors.overridden.iter().collect::<Vec<_>>())
}

fn overridden(rule: &Rule, device: &impl Live, wrong: &[&Overridden]) -> Option<Finding> {
    let each: Vec<String> =
        wrong.iter().map(|o| format!("{} is {}, but {} was configured", o.setting, o.found, o.asked)).collect();
    if each.is_empty() {
        return None;
    }
    // A certain reason needs no search.
    let whys: Vec<&str> = wrong.iter().filter_map(|o| o.why.as_deref()).collect();
    let cause = if whys.len() == wrong.len() {
        format!("{}: {}.", each.join("; "), whys.join("; "))
    } else {
        format!(
            "{}: something between the configuration and QEMU overrode it, or the configuration was changed and the \
             guest has not been restarted since.",
            each.join("; ")
        )
    };
    let names: Vec<&str> = wrong.iter().map(|o| o.setting.name()).collect();
    let (domain, vmid) = (Names(device.place()).domain(), Names(device.place()).vmid());
    let running = "tr '\\0' '\\n' < /proc/PID/cmdline | grep -A1 -e -blockdev -e -drive -e -device -e -cpu -e -smp";
    let look = Change {
        what: format!("Find out what overrides {}; until then rely on what is in force.", names.join(", ")),
        qemu: format!("# what QEMU was started with\n{running}"),
        libvirt: format!("diff <(virsh dumpxml {domain}) <(virsh dumpxml --inactive {domain})"),
        proxmox: format!(
            "qm pending {vmid}\n# and what it would be started with now, against the running process\nqm showcmd \
             {vmid} --pretty"
        ),
        takes: AppliesAt::Running,
        sets: None,
    };
    let change = match wrong {
        [one] if one.why.is_some() && one.setting == Setting::Iothread => no_iothread(device),
        _ => look,
    };
    let mut finding = rule.advice(device, &[], &cause, change);
    finding.evidence = wrong.iter().map(|o| in_force(device, o)).collect();
    Some(finding)
}

/// `iothread=1` on a disk whose controller has none: with virtio the disks get a controller each, for which the guest
/// has a driver; else the setting is removed.
fn no_iothread(device: &impl Live) -> Change {
    let names = Names(device.place());
    let (vmid, slot) = (names.vmid(), names.slot("scsi0"));
    let virtio = device.in_force(Setting::Driver).is_some_and(|driver| driver.value == "virtio-scsi");
    let (what, proxmox) = if virtio {
        (
            "Give each SCSI disk of the guest a controller with its own thread.",
            format!("qm set {vmid} --scsihw virtio-scsi-single"),
        )
    } else {
        (
            "Take the setting away, which has no effect there; emulated-driver says how the disk gets a thread.",
            format!("{} && \\\nqm set {vmid} --{slot} \"$disk\"", slot_without(&vmid, &slot, &["iothread"])),
        )
    };
    let only = "# only Proxmox VE ignores the setting so".to_owned();
    Change { what: what.into(), qemu: only.clone(), libvirt: only, proxmox, takes: AppliesAt::NextStart, sets: None }
}

fn in_force(device: &impl Live, o: &Overridden) -> Evidence {
    device.in_force(o.setting).unwrap_or_else(|| Evidence {
        setting: o.setting.name().to_owned(),
        value: o.found.clone(),
        from: device.from().place(),
    })
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Details, Facts, Overridden, Setting};
    use crate::testing::settings;

    pub fn fires() -> Facts {
        let one = Overridden { setting: Setting::Aio, asked: "native".into(), found: "threads".into(), why: None };
        settings(Details { overridden: vec![one], ..Details::default() })
    }

    /// All settings are in force.
    pub fn silent() -> Facts {
        settings(Details::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Details, Facts, Place};
    use crate::testing::live_disk;

    /// A disk of Proxmox VE with `iothread=1` that its controller ignores.
    fn without_iothread(driver: &str, slot: &str) -> Facts {
        let why = Some("Proxmox VE gives none there".to_owned());
        let one = Overridden { setting: Setting::Iothread, asked: "on".into(), found: "off".into(), why };
        let details = Details { overridden: vec![one], ..Details::default() };
        let place = Place { vmid: Some("101".into()), slot: Some(slot.into()), ..Place::default() };
        let disk =
            Disk { driver: Some(driver.into()).into(), iothread: Some(false).into(), place, ..live_disk(details) };
        Facts { disks: vec![disk], ..Facts::default() }
    }

    #[test]
    fn an_iothread_that_proxmox_ignores_says_why_and_how_the_disk_gets_one() {
        let found = |driver: &str, slot: &str| RULE.check(&without_iothread(driver, slot)).remove(0);
        let scsi = found("virtio-scsi", "scsi0");
        assert!(scsi.cause.contains("Proxmox VE gives none there") && !scsi.cause.contains("something between"));
        assert_eq!(scsi.change.proxmox, "qm set 101 --scsihw virtio-scsi-single");
        assert_eq!(scsi.change.takes, AppliesAt::NextStart);
        let vmware = found("pvscsi", "scsi0").change.proxmox;
        assert!(vmware.contains("iothread") && vmware.ends_with("qm set 101 --scsi0 \"$disk\""), "{vmware}");
    }

    /// `iothread=1` of Proxmox VE where the controller ignores it.
    #[test]
    fn an_iothread_that_is_ignored_is_one_finding() {
        let told = |driver: &str, slot: &str| {
            let found = crate::rules::findings(&without_iothread(driver, slot));
            found.into_iter().map(|f| (f.rule, f.cause.contains("iothread=1 is ignored there"))).collect::<Vec<_>>()
        };
        let emulated = vec![("emulated-driver".to_owned(), true)];
        assert_eq!((told("lsi53c895a", "scsi0"), told("ahci", "sata0")), (emulated.clone(), emulated));
        assert_eq!(told("virtio-scsi", "scsi0"), [("setting-overridden".to_owned(), false)]);
    }
}
