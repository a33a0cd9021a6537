//! Hyper-V enlightenments as rules count them (QEMU, docs/system/i386/hyperv.rst).

use std::collections::BTreeSet;

use crate::facts::Processors;

/// What gives Windows its synthetic timers: stimer, and what that needs.
pub const TIMERS: [&str; 4] = ["hv_time", "hv_vpindex", "hv_synic", "hv_stimer"];

/// All enlightenments that are advised, in the order in which they are printed.
pub const ADVISED: [&str; 11] = [
    "hv_relaxed",
    "hv_vapic",
    "hv_spinlocks",
    "hv_vpindex",
    "hv_runtime",
    "hv_time",
    "hv_synic",
    "hv_stimer",
    "hv_frequencies",
    "hv_tlbflush",
    "hv_ipi",
];

/// Those of [`ADVISED`] that are for several vCPUs.
const FOR_SEVERAL: [&str; 3] = ["hv_spinlocks", "hv_tlbflush", "hv_ipi"];

/// Name of an enlightenment in QEMU's form, without value and sign; `None` for another flag and for one that is off.
/// Spinlocks that never notify the hypervisor are off, too.
fn name(flag: &str) -> Option<String> {
    let (name, value) = flag.trim_start_matches('+').split_once('=').unwrap_or((flag.trim_start_matches('+'), ""));
    let name = name.replace('-', "_");
    let off = value == "off" || (name == "hv_spinlocks" && value.eq_ignore_ascii_case("0xffffffff"));
    (name.starts_with("hv_") && !off).then_some(name)
}

/// The guest's enlightenments, of [`ADVISED`]. A vendor or version id is a name and turns nothing on (QEMU,
/// target/i386/kvm/kvm.c, `hyperv_enabled`).
pub fn enlightenments(p: &Processors) -> BTreeSet<&'static str> {
    let on: Vec<String> = p.flags.iter().filter_map(|flag| name(flag)).collect();
    ADVISED.into_iter().filter(|advised| on.iter().any(|name| name == advised)).collect()
}

/// Whether it has all that its processor offers.
pub fn all_passed_through(p: &Processors) -> bool {
    p.flags.iter().filter_map(|flag| name(flag)).any(|name| name == "hv_passthrough")
}

/// Whether it has a vendor id of Hyper-V's, which hides KVM.
pub fn has_vendor_id(p: &Processors) -> bool {
    p.flags.iter().filter_map(|flag| name(flag)).any(|name| name == "hv_vendor_id")
}

/// Those of [`ADVISED`] that the guest lacks. What is for several vCPUs is not missed by a guest with one.
pub fn missing(p: &Processors) -> Vec<&'static str> {
    let on = enlightenments(p);
    let wanted = |name: &&str| p.vcpus.is_none_or(|n| n > 1) || !FOR_SEVERAL.contains(name);
    ADVISED.into_iter().filter(wanted).filter(|name| !on.contains(name)).collect()
}

/// Whether the guest has synthetic timers.
pub fn has_timers(p: &Processors) -> bool {
    let on = enlightenments(p);
    all_passed_through(p) || TIMERS.iter().all(|name| on.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::live_processors;

    #[test]
    fn a_name_and_what_is_off_are_none() {
        let of = |flags: &[&str]| {
            let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
            enlightenments(&Processors { flags, ..live_processors() }).into_iter().collect::<Vec<&str>>()
        };
        assert_eq!(of(&["+hv-relaxed", "hv_spinlocks=0x1fff", "+aes"]), ["hv_relaxed", "hv_spinlocks"]);
        assert_eq!(of(&["hv_vendor_id=whatever", "hv_version_id_build=1", "hv_spinlocks=0xffffffff"]), [] as [&str; 0]);
        assert_eq!(of(&["-hv-time", "hv_time=off", "hv_passthrough", "hv_crash"]), [] as [&str; 0]);
    }

    #[test]
    fn timers_are_there_with_all_that_they_need() {
        let of = |flags: &[&str]| {
            let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
            has_timers(&Processors { flags, ..live_processors() })
        };
        assert!(of(&TIMERS) && of(&["hv_passthrough"]) && !of(&TIMERS[..3]) && !of(&[]));
    }
}
