//! A CPU quota that the guest's vCPUs can use up: then all threads of its process stop until the next period (100 ms),
//! also in interrupt handlers and with locks held. It is of the hypervisor's own threads, too, which submit and
//! complete I/O beside the vCPUs: a quota of as many CPUs as there are vCPUs is used up by a guest that computes on
//! all of them and does some I/O (Proxmox VE, qm.adoc, "Resource Limits"; kubevirt/kubevirt pull request 2870 adds a
//! CPU for them).

use super::change::{AppliesAt, Names, shell};
use super::live::seen;
use super::{Change, Check, Finding, Kinds, Need, Rule, Severity};
use crate::facts::{Processors, Source, Throttled};
use crate::words::count;

/// Share of a processor that each of the hypervisor's own threads is taken to need. KubeVirt gives all of them one
/// processor, which is for a guest that does much I/O.
const OWN_THREAD: f64 = 0.25;

/// Share of the periods, in percent, from which being throttled is a warning.
const OFTEN_PERCENT: u64 = 1;

/// Length of a period where it is not known: the kernel's own.
const PERIOD_US: u64 = 100_000;

pub(super) const RULE: Rule = Rule {
    id: "cpu-quota",
    title: "CPU quota below the number of vCPUs",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://www.kernel.org/doc/html/latest/scheduler/sched-bwc.html",
        "https://libvirt.org/formatdomain.html#cpu-tuning (vcpu_quota, global_quota)",
        "Proxmox VE, qm.adoc, \"Resource Limits\" (cpulimit)",
        "https://github.com/kubevirt/kubevirt/pull/2870 (a CPU for the emulator's threads)",
    ],
    checks: &[Check::Processors(live)],
    kinds: Kinds::Any,
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

/// The title where the quota is not below the vCPUs.
const NO_ROOM: &str = "CPU quota leaves no room for I/O threads";

fn live(rule: &Rule, p: &Processors) -> Option<Finding> {
    let vcpus = (*p.vcpus)?;
    let quota = (*p.quota_cpus)?;
    let below = quota < f64::from(vcpus);
    let own = 1 + p.threads.iter().filter(|t| matches!(t.role.as_str(), "iothread" | "vhost")).count();
    let more = OWN_THREAD * own as f64;
    if !below && (p.quota_of_vcpus == Some(true) || quota >= f64::from(vcpus) + more) {
        return None;
    }
    let used_up = (*p.throttled).map(|t| format!(" {}", in_words(t))).unwrap_or_default();
    let has = count(vcpus as usize, "vCPU");
    let (cause, change) = if below {
        let cause = format!(
            "The guest has {has} but may use the time of {quota:.2} CPUs: when that is used up, all vCPUs stop \
             until the next period, and so does I/O.{used_up}"
        );
        (cause, without_quota(p))
    } else {
        let period = p.throttled.map_or(PERIOD_US, |t| t.period_us) as f64 / 1e3;
        let cause = format!(
            "The guest has {has}, and its whole process may use the time of {quota:.2} CPUs: its main and I/O \
             threads take theirs from it, and when it is used up everything stops until the next period \
             ({period:.0} ms).{used_up}"
        );
        (cause, with_room(p, u64::from(vcpus) + more.ceil() as u64))
    };
    let mut finding = rule.advice(p, &seen![p; vcpus, quota_cpus], &cause, change);
    let times = p.throttled.map_or(0, |t| t.throttled);
    finding.severity = match *p.throttled {
        Some(t) if times > 0 && times.saturating_mul(100) >= t.periods.saturating_mul(OFTEN_PERCENT) => {
            Severity::Warning
        }
        _ if below || times > 0 => Severity::Advice,
        _ => Severity::Note,
    };
    if !below {
        NO_ROOM.clone_into(&mut finding.title);
    }
    Some(finding)
}

/// How often the quota was used up.
fn in_words(t: Throttled) -> String {
    match t.throttled {
        0 => format!("It was not throttled so far (0 of {}).", count(t.periods as usize, "period")),
        n => {
            let periods = count(t.periods as usize, "period");
            format!("It was throttled in {n} of {periods}, {:.1} s in all.", t.stopped_us as f64 / 1e6)
        }
    }
}

fn without_quota(p: &Processors) -> Change {
    let names = Names(&p.place);
    Change {
        what:
            "Give it as many vCPUs as it may use, or weights instead of a quota: weights only limit while others need \
             the CPU."
                .into(),
        qemu: unlimited(p),
        libvirt: format!("virsh schedinfo {} --live --config vcpu_quota=-1 global_quota=-1", names.domain()),
        proxmox: format!("qm set {} --cpulimit 0", names.vmid()),
        takes: AppliesAt::Running,
        sets: None,
    }
}

fn with_room(p: &Processors, cpus: u64) -> Change {
    let names = Names(&p.place);
    Change {
        what: format!(
            "Allow the process {cpus} CPUs, or use weights instead of a quota: weights only limit while others need \
             the CPU."
        ),
        qemu: limited(p, cpus),
        libvirt: format!(
            "virsh schedinfo {} --live --config global_quota={} global_period={PERIOD_US}",
            names.domain(),
            cpus.saturating_mul(PERIOD_US)
        ),
        proxmox: format!("qm set {} --cpulimit {cpus}", names.vmid()),
        takes: AppliesAt::Running,
        sets: None,
    }
}

/// The file that the quota was read from.
fn file(p: &Processors) -> Option<&str> {
    match p.quota_cpus.source() {
        Some(Source::File(file)) => Some(file.as_str()),
        _ => None,
    }
}

/// The command that removes the quota in the file it was read from.
fn unlimited(p: &Processors) -> String {
    match file(p) {
        Some(file) if file.ends_with("/cpu.cfs_quota_us") => format!("echo -1 > {}", shell(file)),
        Some(file) => format!("echo max > {}", shell(file)),
        None => "echo max > /sys/fs/cgroup/GROUP/cpu.max    # control groups v1: echo -1 > .../cpu.cfs_quota_us".into(),
    }
}

/// The command that sets a quota in the file it was read from; for a unit of systemd, which would set its own again, by
/// systemd (systemd.resource-control(5), `CPUQuota`).
fn limited(p: &Processors, cpus: u64) -> String {
    let period = p.throttled.map_or(PERIOD_US, |t| t.period_us);
    let quota = cpus.saturating_mul(period);
    let Some(file) = file(p) else {
        return format!("echo '{quota} {period}' > /sys/fs/cgroup/GROUP/cpu.max");
    };
    let group = file.rsplit('/').nth(1).unwrap_or_default();
    if group.ends_with(".scope") || group.ends_with(".service") {
        let percent = cpus.saturating_mul(100);
        return format!("systemctl set-property --runtime {} CPUQuota={percent}%", shell(group));
    }
    if file.ends_with("/cpu.cfs_quota_us") {
        return format!("echo {quota} > {}", shell(file));
    }
    format!("echo '{quota} {period}' > {}", shell(file))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Processors};
    use crate::testing::{live_processors, of_processors};

    pub fn fires() -> Facts {
        of_processors(Processors { quota_cpus: Some(1.5).into(), ..live_processors() })
    }

    /// Four vCPUs, and room for the main and the I/O thread.
    pub fn silent() -> Facts {
        of_processors(Processors { quota_cpus: Some(4.5).into(), ..live_processors() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::{Fact, Place};
    use crate::testing::live_processors;

    fn with(quota: f64, of_vcpus: Option<bool>, throttled: Option<(u64, u64)>) -> Processors {
        let used = throttled.map(|(throttled, periods)| Throttled {
            period_us: 50_000,
            periods,
            throttled,
            stopped_us: 800_000,
        });
        Processors {
            quota_cpus: Fact::read(Some(quota), Source::File("/sys/fs/cgroup/a b/cpu.max".into())),
            quota_of_vcpus: of_vcpus.into(),
            throttled: used.into(),
            place: Place { domain: Some("web1".into()), vmid: Some("101".into()), ..Place::default() },
            ..live_processors()
        }
    }

    #[test]
    fn what_weighs_is_the_room_and_how_often_it_was_missed() {
        let of = |quota, of_vcpus, throttled| live(&RULE, &with(quota, of_vcpus, throttled)).map(|f| f.severity);
        let rows = [
            // Four vCPUs, a main thread and one of I/O: 4.5 CPUs are enough.
            (4.5, None, Some((500, 1000)), None),
            (4.4, None, None, Some(Severity::Note)),
            (4.0, None, Some((0, 3400)), Some(Severity::Note)),
            (4.0, Some(false), Some((12, 3400)), Some(Severity::Advice)),
            (4.0, Some(false), Some((34, 3400)), Some(Severity::Warning)),
            // libvirt's vCPUs have groups of their own, and the other threads another one.
            (4.0, Some(true), Some((34, 3400)), None),
            (3.9, Some(true), None, Some(Severity::Advice)),
            (1.5, None, Some((0, 3400)), Some(Severity::Advice)),
            (1.5, None, Some((900, 3400)), Some(Severity::Warning)),
        ];
        for (quota, of_vcpus, throttled, severity) in rows {
            assert_eq!(of(quota, of_vcpus, throttled), severity, "{quota} {of_vcpus:?} {throttled:?}");
        }
    }

    #[test]
    fn room_is_said_with_what_was_counted() {
        let found = live(&RULE, &with(4.0, None, Some((12, 3400)))).unwrap();
        assert_eq!(found.title, NO_ROOM);
        assert!(found.cause.contains("throttled in 12 of 3400 periods, 0.8 s in all"), "{}", found.cause);
        assert!(found.cause.contains("(50 ms)") && found.cause.len() < 330, "{}", found.cause);
        let change = &found.change;
        assert_eq!(change.qemu, "echo '250000 50000' > '/sys/fs/cgroup/a b/cpu.max'");
        assert_eq!(change.libvirt, "virsh schedinfo web1 --live --config global_quota=500000 global_period=100000");
        assert_eq!(change.proxmox, "qm set 101 --cpulimit 5");
        let of = |file: &str| {
            let quota_cpus = Fact::read(Some(4.0), Source::File(file.to_owned()));
            live(&RULE, &Processors { quota_cpus, ..with(4.0, None, None) }).unwrap().change.qemu
        };
        assert_eq!(of("/c/cpu/vm/cpu.cfs_quota_us"), "echo 500000 > /c/cpu/vm/cpu.cfs_quota_us");
        assert_eq!(of("/c/qemu.slice/101.scope/cpu.max"), "systemctl set-property --runtime 101.scope CPUQuota=500%");
    }
}
