//! An emulated HPET that Windows does not need: with synthetic timers it has better ones, and each read of an HPET
//! leaves the guest. Without them it would take the RTC, which is slower still, so the HPET stays there.

use super::change::{AppliesAt, Change, Names};
use super::live::seen;
use super::windows_no_enlightenments::find_what_prevents_it;
use super::withheld::{self, Advice};
use super::{Check, Finding, Need, Rule, Severity};
use crate::facts::Processors;
use crate::result::Accel;

pub(super) const RULE: Rule = Rule {
    id: "hpet-left-on",
    title: "The guest has an emulated HPET",
    needs: Need::Settings,
    severity: Severity::Note,
    references: &[
        "qemu-server, PVE/QemuServer/Cfg2Cmd/Timer.pm (off for Windows)",
        "https://github.com/virt-manager/virt-manager/issues/205 (without synthetic timers it has to stay)",
        "https://libvirt.org/formatdomain.html#time-keeping",
    ],
    checks: &[Check::Processors(live)],
    #[cfg(test)]
    fixture: (|| fixture::windows(true), || fixture::windows(false)),
    ..Rule::PLAIN
};

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    let windows = p.windows == Some(true) && p.accel == Some(Accel::Kvm);
    if !windows || p.hpet != Some(true) || withheld::of_processors(p, Advice::HpetOff).is_some() {
        return None;
    }
    let cause = "Windows can choose the emulated HPET as a clock, and each read of it leaves the guest. With its \
                 synthetic timers on it needs none.";
    let names = Names(&p.place);
    let change = Change {
        what: "Take the HPET away.".into(),
        qemu: "# in its own -machine: set this, keep all else\nhpet=off".into(),
        libvirt: format!(
            "virsh edit {}    # in <clock>, in place of its own timer of that name:\n<timer name='hpet' present='no'/>",
            names.domain()
        ),
        proxmox: find_what_prevents_it(&names.vmid()),
        takes: AppliesAt::NextStart,
        sets: None,
    };
    Some(rule.advice(p, &seen![p; hpet, windows, flags], cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Processors};
    use crate::rules::hyperv::ADVISED;
    use crate::testing::{live_processors, of_processors};

    pub fn windows(hpet: bool) -> Facts {
        let flags = ADVISED.into_iter().map(str::to_owned).collect();
        of_processors(Processors { windows: Some(true).into(), hpet: Some(hpet).into(), flags, ..live_processors() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::live_processors;

    #[test]
    fn it_stays_where_windows_has_nothing_better() {
        let fires = |flags: &[&str], windows: Option<bool>| {
            let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
            let p = Processors { windows: windows.into(), hpet: Some(true).into(), flags, ..live_processors() };
            live(&RULE, &p).is_some()
        };
        let timers = ["hv_time", "hv_vpindex", "hv_synic", "hv_stimer"];
        assert!(fires(&timers, Some(true)) && fires(&["hv_passthrough"], Some(true)));
        assert!(!fires(&timers[..3], Some(true)) && !fires(&timers, None) && !fires(&timers, Some(false)));
    }
}
