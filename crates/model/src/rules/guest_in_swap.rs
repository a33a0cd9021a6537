//! Memory of the guest that the host swapped out. A vCPU that touches it stands still until a disk has answered,
//! whatever the guest takes for its memory; the guest sees only that it is slow, since nothing in it waits for I/O.
//! The kernel counts private memory (`VmSwap`, proc_pid_status(5)); shared memory (memfd) is counted by the control
//! group alone.

use super::change::{AppliesAt, Names};
use super::live::{bytes_shown, seen};
use super::{Change, Check, Evidence, Finding, Kinds, Need, Rule, Severity};
use crate::facts::{Processors, Swap};

/// Least swapped memory, absolute and as a share of the guest's: less is what a system starts with once and never needs
/// again.
const LEAST_BYTES: u64 = 64 << 20;
const LEAST_PERCENT: u64 = 1;
/// Share from which it surely is memory that the guest works with.
const MUCH_PERCENT: u64 = 10;

pub(super) const RULE: Rule = Rule {
    id: "guest-in-swap",
    title: "Memory of the guest is in the host's swap",
    needs: Need::Settings,
    severity: Severity::Warning,
    references: &[
        "man 5 proc_pid_status (VmSwap)",
        "https://libvirt.org/formatdomain.html#memory-backing (locked)",
        "QEMU, docs/system/invocation, -overcommit mem-lock; virtio-balloon, free-page-reporting",
    ],
    checks: &[Check::Processors(live)],
    kinds: Kinds::Any,
    #[cfg(test)]
    fixture: (|| fixture::swapped(1 << 30), || fixture::swapped(40 << 20)),
    ..Rule::PLAIN
};

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    let memory = p.memory_bytes.filter(|bytes| *bytes > 0)?;
    let swapped = p.swapped_bytes.filter(|bytes| {
        let share = bytes.saturating_mul(100) >= memory.saturating_mul(LEAST_PERCENT);
        *bytes >= LEAST_BYTES && share && p.huge_pages != Some(true)
    })?;
    let zram = p.host_state.as_ref().is_some_and(|host| host.swap == Some(Swap::Zram));
    let waits = if zram { "until it was unpacked (zram)" } else { "until a disk answered" };
    let kept = if p.free_page_reporting == Some(false) {
        " Memory that the guest freed counts as used, since its balloon does not report it."
    } else {
        ""
    };
    let cause = format!(
        "{} of the guest's {} lie in the host's swap: a vCPU that touches them stands still {waits}, and the guest \
         sees only that it is slow.{kept}",
        bytes_shown(swapped),
        bytes_shown(memory)
    );
    // The amount changes from moment to moment: a comparison of two scans would call that another setting.
    let evidence = Evidence {
        setting: "memory in swap".to_owned(),
        value: format!("at least {}", bytes_shown(1u64 << swapped.ilog2())),
        from: p.swapped_bytes.source_or(&p.from),
    };
    let [size] = seen![p; memory_bytes];
    let mut finding = rule.advice(p, &[Some(evidence), size], &cause, change(p));
    let much = swapped.saturating_mul(100) >= memory.saturating_mul(MUCH_PERCENT);
    if zram || !much {
        finding.severity = Severity::Advice;
    }
    Some(finding)
}

fn change(p: &Processors) -> Change {
    let names = Names(&p.place);
    let (domain, vmid) = (names.domain(), names.vmid());
    let zram = p.host_state.as_ref().is_some_and(|host| host.swap == Some(Swap::Zram));
    let back = if zram {
        "# zram: what is used comes back by itself; swapoff would remove the device"
    } else {
        "# brings all of it back, where there is room for it:\n\
         awk '/^MemAvailable/{a=$2} /^SwapTotal/{t=$2} /^SwapFree/{f=$2} END{exit !(a>t-f)}' /proc/meminfo && \\\n\
         swapoff -a && swapon -a"
    };
    Change {
        what:
            "Make room in the host's memory (fewer or smaller guests), then bring the guest's back. Lock it there only \
               on a host that does not overcommit memory: that takes all of it at once."
                .into(),
        qemu: format!(
            "{back}\n# from the next start on, one more option; needs LimitMEMLOCK for the service:\n\
             -overcommit mem-lock=on"
        ),
        libvirt: format!(
            "{back}\n# from the next start on; directly below <domain>, and <memtune><hard_limit> above the memory:\n\
             virsh edit {domain}\n<memoryBacking><locked/></memoryBacking>"
        ),
        proxmox: format!(
            "{back}\n# from the next start on:\n\
             args=\"$(qm config {vmid} | sed -n 's/^args: //p')\" && \\\n\
             qm set {vmid} --args \"${{args:+$args }}-overcommit mem-lock=on\""
        ),
        takes: AppliesAt::Running,
        sets: None,
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Processors};
    use crate::testing::{live_processors, of_processors};

    /// A guest with 4 GiB of memory, of which that many bytes are swapped out.
    pub fn swapped(bytes: u64) -> Facts {
        of_processors(Processors { swapped_bytes: Some(bytes).into(), ..live_processors() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::HostState;
    use crate::testing::live_processors;

    #[test]
    fn little_is_what_is_never_needed() {
        let of = |bytes: u64, memory: u64| {
            let p = Processors {
                swapped_bytes: Some(bytes).into(),
                memory_bytes: Some(memory).into(),
                ..live_processors()
            };
            live(&RULE, &p).map(|f| f.severity)
        };
        assert_eq!((of(64 << 20, 4 << 30), of(1 << 30, 4 << 30)), (Some(Severity::Advice), Some(Severity::Warning)));
        assert_eq!((of(63 << 20, 4 << 30), of(64 << 20, 64 << 30), of(64 << 20, 0)), (None, None, None));
    }

    #[test]
    fn where_it_waits_and_what_would_be_reported() {
        let host = HostState { swap: Some(Swap::Zram), ..HostState::default() };
        let p = Processors {
            swapped_bytes: Some(3 << 29).into(),
            free_page_reporting: Some(false).into(),
            host_state: Some(host).into(),
            ..live_processors()
        };
        let found = live(&RULE, &p).unwrap();
        assert_eq!(found.severity, Severity::Advice);
        assert!(found.cause.starts_with("1.5 GiB of the guest's 4 GiB lie in the host's swap"), "{}", found.cause);
        assert!(found.cause.contains("zram") && found.cause.contains("its balloon"), "{}", found.cause);
        assert!(found.cause.len() < 330, "{}", found.cause);
        assert_eq!(found.evidence[0].value, "at least 1 GiB");
    }
}
