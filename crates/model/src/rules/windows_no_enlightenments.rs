//! Windows that lacks Hyper-V enlightenments: it reads clocks and timers of emulated hardware, each with an exit to the
//! hypervisor, and its watchdogs report a pause of the host as a fault. Without synthetic timers (stimer, which needs
//! synic, vpindex and time) it takes the HPET or the RTC, with ticks also while it is idle.

use super::change::{AppliesAt, Names};
use super::hyperv::{self, TIMERS};
use super::live::seen;
use super::withheld::{self, Advice};
use super::{Change, Check, Finding, Need, Rule, Severity};
use crate::facts::{Processors, Source};
use crate::result::Accel;

/// So many of the lesser ones have to be missing.
const FEW: usize = 2;

pub(super) const RULE: Rule = Rule {
    id: "windows-no-enlightenments",
    title: "Windows without Hyper-V enlightenments",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://qemu.org/docs/master/system/i386/hyperv.html",
        "https://libvirt.org/formatdomain.html#hypervisor-features (hyperv)",
        "https://github.com/OpenNebula/addon-storpool/issues/79 (idle from 30 to 40 % of a processor to 1 to 3 %)",
        "Proxmox VE, qm.adoc, \"OS Settings\" (ostype); qemu-server, PVE/QemuServer/CPUConfig.pm, \
         `get_hyperv_enlightenments`",
    ],
    checks: &[Check::Processors(live)],
    #[cfg(test)]
    fixture: (|| fixture::windows(&["+aes"]), || fixture::windows(&hyperv::ADVISED)),
    ..Rule::PLAIN
};

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    // Without a model the flags were not read either; and enlightenments require KVM.
    let windows = p.windows == Some(true) && p.model.is_some() && p.accel == Some(Accel::Kvm);
    if !windows || hyperv::all_passed_through(p) || withheld::of_processors(p, Advice::Enlightenments).is_some() {
        return None;
    }
    let (on, missing) = (hyperv::enlightenments(p), hyperv::missing(p));
    let lacks: Vec<&str> = TIMERS.into_iter().filter(|name| !on.contains(name)).collect();
    let (title, severity, cause) = if on.is_empty() {
        // Proxmox VE gives these none with UEFI firmware.
        let by_proxmox = matches!(p.os_release.as_deref(), Some("wvista" | "w2k8" | "win7"));
        if by_proxmox {
            return None;
        }
        let name = if hyperv::has_vendor_id(p) { " (hv_vendor_id is a name alone and turns nothing on)" } else { "" };
        let cause = format!(
            "Windows runs without Hyper-V enlightenments{name}: clocks, timers and interrupts go through emulated \
             hardware, and an idle guest burns CPU time."
        );
        (rule.title, rule.severity, cause)
    } else if !lacks.is_empty() {
        let has: Vec<&str> = hyperv::ADVISED.into_iter().filter(|name| on.contains(name)).collect();
        let cause = format!(
            "Windows has {}, but not {}: its timers are emulated devices. Elsewhere an idle guest took 30 to \
             40 % of a processor so, and 1 to 3 % with them.",
            has.join(", "),
            lacks.join(", ")
        );
        ("Windows without synthetic timers", rule.severity, cause)
    } else if missing.len() >= FEW && p.place.vmid.is_none() {
        // What Proxmox VE leaves out is its choice.
        let cause = format!("Windows lacks {}: each saves exits to the hypervisor.", missing.join(", "));
        ("Some Hyper-V enlightenments are missing", Severity::Note, cause)
    } else {
        return None;
    };
    let mut finding = rule.advice(p, &seen![p; windows, model, flags], &cause, change(p, &missing, on.is_empty()));
    title.clone_into(&mut finding.title);
    finding.severity = severity;
    Some(finding)
}

/// Turns on what is missing. `none`: the guest has no enlightenment yet.
fn change(p: &Processors, missing: &[&str], none: bool) -> Change {
    let mut what =
        "Turn on what is missing. The guest then sees another processor: snapshots with memory no longer fit, \
                    and live migration needs the same on both sides."
            .to_owned();
    if missing.contains(&"hv_tlbflush") {
        what.push_str(" Leave tlbflush out on old processors: Proxmox VE warns of blue screens there.");
    }
    let names = Names(&p.place);
    Change {
        what,
        qemu: of_qemu(p, missing),
        libvirt: of_libvirt(&names.domain(), missing, none),
        proxmox: of_proxmox(&names.vmid(), p.os_release.as_deref()),
        takes: AppliesAt::NextStart,
        sets: None,
    }
}

fn of_qemu(p: &Processors, missing: &[&str]) -> String {
    let keys = missing.iter().map(|name| if *name == "hv_spinlocks" { "hv_spinlocks=0x1fff" } else { *name });
    let keys = keys.collect::<Vec<&str>>().join(",");
    match p.model.as_deref() {
        Some(model) if p.model.source() == Some(&Source::QemuDefault) => {
            format!("# one more option\n-cpu {model},{keys}")
        }
        _ => format!("# in its own -cpu: set these, keep all else\n{keys}"),
    }
}

fn of_libvirt(domain: &str, missing: &[&str], none: bool) -> String {
    let element = |name: &str| match name.trim_start_matches("hv_") {
        "time" => None, // libvirt has it as a timer
        "spinlocks" => Some("<spinlocks state='on' retries='8191'/>".to_owned()),
        name => Some(format!("<{name} state='on'/>")),
    };
    let elements: Vec<String> = missing.iter().filter_map(|name| element(name)).collect();
    let mut lines = vec![format!("virsh edit {domain}")];
    if none {
        lines.push("# in <features>: this\n<hyperv mode='custom'>".to_owned());
        lines.extend(elements.iter().map(|element| format!("  {element}")));
        lines.push("</hyperv>".to_owned());
    } else if !elements.is_empty() {
        lines.push("# in <features>, in its <hyperv ...>: these, keep all else".to_owned());
        lines.extend(elements);
    }
    if missing.contains(&"hv_time") {
        lines.push("# in <clock>: this, keep all else\n<timer name='hypervclock' present='yes'/>".to_owned());
    }
    lines.join("\n")
}

/// Proxmox VE sets enlightenments by `ostype`, whose names are fixed (QemuServer.pm).
fn of_proxmox(vmid: &str, ostype: Option<&str>) -> String {
    if ostype.is_some_and(|ostype| ostype.starts_with('w')) {
        return find_what_prevents_it(vmid);
    }
    format!(
        "qm set {vmid} --ostype win11    # 11, 2022, 2025; win10: 10, 2016, 2019; win8: 8, 2012; win7: 7, 2008r2\n\
         # takes effect after the guest is shut down and started"
    )
}

/// Where to look for a guest of Proxmox VE whose `ostype` is right.
pub(super) fn find_what_prevents_it(vmid: &str) -> String {
    format!(
        "# Proxmox VE does so by itself for Windows, from machine type 2.12 on: find what prevents it\n\
         qm config {vmid} | grep -e ^machine -e ^ostype -e ^bios -e ^cpu -e ^args"
    )
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::{Fact, Place};
    use crate::testing::live_processors;

    fn windows(flags: &[&str]) -> Processors {
        let flags = flags.iter().map(|f| (*f).to_owned()).collect();
        Processors { windows: Some(true).into(), flags, ..live_processors() }
    }

    const CASE: [&str; 4] = ["hv_relaxed", "hv_vapic", "hv_spinlocks=0x1fff", "hv_time"];

    #[test]
    fn enlightenments_without_timers_name_what_is_missing() {
        let found = live(&RULE, &windows(&CASE)).unwrap();
        assert_eq!((&*found.title, found.severity), ("Windows without synthetic timers", Severity::Advice));
        assert!(found.cause.contains("but not hv_vpindex, hv_synic, hv_stimer:"), "{}", found.cause);
        let Change { qemu, libvirt, proxmox, .. } = &found.change;
        let keys = "hv_vpindex,hv_runtime,hv_synic,hv_stimer,hv_frequencies,hv_tlbflush,hv_ipi";
        assert_eq!(qemu.lines().last(), Some(keys), "{qemu}");
        assert!(libvirt.contains("\n<stimer state='on'/>\n") && !libvirt.contains("hypervclock"), "{libvirt}");
        assert!(proxmox.contains("--ostype win11"), "{proxmox}");
        // All at once: nothing is left to say.
        let after = [&CASE[..], &keys.split(',').collect::<Vec<&str>>()].concat();
        assert_eq!(live(&RULE, &windows(&after)), None);
    }

    #[test]
    fn a_vendor_id_is_a_name_alone() {
        let of_default = Fact::read(Some("qemu64".to_owned()), Source::QemuDefault);
        let own = Processors { model: of_default, ..windows(&["-kvm", "hv_vendor_id=whatever"]) };
        let found = live(&RULE, &own).unwrap();
        assert_eq!(found.title, RULE.title);
        assert!(found.cause.contains("hv_vendor_id is a name alone"), "{}", found.cause);
        assert!(found.change.qemu.contains("\n-cpu qemu64,hv_relaxed,"), "{}", found.change.qemu);
        assert!(found.change.libvirt.contains("<hyperv mode='custom'>\n  <relaxed state='on'/>"));
        assert!(found.change.libvirt.ends_with("<timer name='hypervclock' present='yes'/>"));
    }

    #[test]
    fn what_proxmox_leaves_out_is_its_own() {
        let own = ["ipi", "relaxed", "reset", "runtime", "spinlocks=0x1fff", "stimer", "synic", "time", "vapic"];
        let own: Vec<String> = own.iter().chain(&["vpindex"]).map(|name| format!("hv_{name}")).collect();
        let flags: Vec<&str> = own.iter().map(String::as_str).collect();
        let by_hand = live(&RULE, &windows(&flags)).unwrap();
        assert_eq!((by_hand.severity, &*by_hand.title), (Severity::Note, "Some Hyper-V enlightenments are missing"));
        assert!(by_hand.cause.contains("lacks hv_frequencies, hv_tlbflush:"), "{}", by_hand.cause);
        let place = Place { vmid: Some("101".into()), ..Place::default() };
        let of = |flags: &[&str], ostype: &str| {
            let place = place.clone();
            live(&RULE, &Processors { place, os_release: ostype.into(), ..windows(flags) })
        };
        assert_eq!(of(&flags, "win11"), None);
        assert!(of(&[], "win11").unwrap().change.proxmox.starts_with("# Proxmox VE does so by itself"));
        // UEFI, and Windows that knows none.
        assert_eq!((of(&[], "win7"), of(&[], "wxp")), (None, None));
    }

    #[test]
    fn no_set_of_them_is_told_at_length() {
        for bits in 0u32..1 << hyperv::ADVISED.len() {
            let some = hyperv::ADVISED.into_iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
            let flags: Vec<&str> = some.map(|(_, name)| name).collect();
            if let Some(found) = live(&RULE, &windows(&flags)) {
                assert!(found.cause.len() < 330, "{}: {}", found.cause.len(), found.cause);
            }
        }
    }

    #[test]
    fn all_that_the_processor_offers_is_enough() {
        assert_eq!(live(&RULE, &windows(&["hv_passthrough"])), None);
        let one = Processors { vcpus: Some(1).into(), ..windows(&["hv_relaxed", "hv_vapic", "hv_runtime"]) };
        let flags: Vec<String> = one.flags.iter().cloned().chain(TIMERS.map(str::to_owned)).collect();
        assert_eq!(
            live(&RULE, &Processors { flags: flags.into(), ..one }),
            None,
            "with one vCPU only frequencies lack"
        );
    }
}
