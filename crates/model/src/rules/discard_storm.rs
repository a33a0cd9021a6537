//! Many small discards, as a guest sends that mounts with `discard`: each is a request that waits as a write does, and
//! what is smaller than a chunk of a thin pool frees nothing there (64 KiB or more: Linux,
//! Documentation/admin-guide/device-mapper/thin-provisioning.rst).

use super::live::{Live, bytes_shown};
use super::{Check, Evidence, Finding, Kinds, Need, Rule, Severity, change};
use crate::facts::Disk;

/// Fewest discards: fewer are an installation or a trim now and then.
const MANY: u64 = 10_000;
/// Fewest for each write request.
const FOR_EACH_WRITE: f64 = 0.1;
/// The smallest chunk of a thin pool.
const CHUNK_BYTES: u64 = 64 << 10;

pub(super) const RULE: Rule = Rule {
    id: "discard-storm",
    title: "Many small discards",
    needs: Need::Settings,
    severity: Severity::Note,
    references: &[
        "Linux, Documentation/admin-guide/cgroup-v2.rst, io.stat (dbytes, dios)",
        "Linux, Documentation/admin-guide/device-mapper/thin-provisioning.rst",
        "fstrim(8)",
    ],
    checks: &[Check::Disk(live)],
    kinds: Kinds::Any,
    #[cfg(test)]
    fixture: (|| fixture::discards(48_120), || fixture::discards(9_000)),
    ..Rule::PLAIN
};

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    let fact = &disk.details.below.discards;
    let seen = fact.as_ref().filter(|d| d.requests >= MANY && d.bytes / d.requests < CHUNK_BYTES)?;
    if (seen.requests as f64) < FOR_EACH_WRITE * seen.writes as f64 {
        return None;
    }
    let mean = bytes_shown(seen.bytes / seen.requests);
    let cause = format!(
        "The guest sent {} discards of {mean} on average beside {} writes: each waits as a write does, and below \
         64 KiB a thin pool frees nothing.",
        seen.requests, seen.writes
    );
    let what = "Trim once a week instead: in the guest, take discard out of the mount options (/etc/fstab).";
    let change = change::in_guest(what, "systemctl enable --now fstrim.timer");
    let evidence = Evidence {
        setting: "discards".to_owned(),
        value: format!("{} of {} in all", seen.requests, bytes_shown(seen.bytes)),
        from: fact.source_or(disk.from()),
    };
    Some(rule.advice(disk, &[Some(evidence)], &cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Below, Details, Discards, Facts};
    use crate::testing::settings;

    pub fn discards(requests: u64) -> Facts {
        let discards = Discards { requests, bytes: requests * 12_288, writes: 192_480 };
        let below = Below { discards: Some(discards).into(), ..Below::default() };
        settings(Details { below, ..Details::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Below, Details, Discards};
    use crate::testing::settings;

    #[test]
    fn few_or_large_ones_are_no_storm() {
        let fires = |requests: u64, kib: u64, writes: u64| {
            let discards = Discards { requests, bytes: requests * (kib << 10), writes };
            let below = Below { discards: Some(discards).into(), ..Below::default() };
            !RULE.check(&settings(Details { below, ..Details::default() })).is_empty()
        };
        assert!(fires(20_000, 12, 100_000));
        assert!(!fires(20_000, 64, 100_000) && !fires(20_000, 12, 1_000_000) && !fires(9_999, 12, 100));
    }
}
