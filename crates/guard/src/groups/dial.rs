//! The kernel's files of a control group limit: the file of each version, the policy's value in it, and the kernel's
//! rounding, so that the value read back can be compared with the one written.
//!
//! | key | version 2 | version 1 |
//! |---|---|---|
//! | `cpu_weight` | `cpu.weight`, as it is | `cpu.shares`: weight × 1024 / 100, to the nearest, as the kernel itself converts one into the other (`sched_weight_from_cgroup` of kernel/sched/sched.h) |
//! | `cpu_max` | `cpu.max`: microseconds in the period that is there | `cpu.cfs_quota_us`, of the `cpu.cfs_period_us` that is there |
//! | `memory_max` | `memory.max`, down to whole pages | `memory.limit_in_bytes`, down to whole pages |
//!
//! Sources: Linux Documentation/admin-guide/cgroup-v2.rst, scheduler/sched-bwc.rst, admin-guide/cgroup-v1/memory.rst.
//! A value is a text in one form: that of the file, and of `cpu_max` that of version 2 (`max 100000`) in both.

use std::io;

use vmio_model::policy::groups::GroupKey;
use vmio_model::policy::units::PROCESSOR;

use super::host::Group;
use super::{InUse, WhyNot};

/// Least microseconds of a quota (`min_cfs_quota_period` of kernel/sched/core.c).
const LEAST_QUOTA_US: u64 = 1000;
const QUOTA: &str = "cpu.cfs_quota_us";
const PERIOD: &str = "cpu.cfs_period_us";

/// A limit of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dial {
    /// The limit.
    pub key: GroupKey,
    /// Whether the group is of version 2.
    pub v2: bool,
}

impl Dial {
    /// The controller that a group needs for it.
    pub fn controller(key: GroupKey) -> &'static str {
        match key {
            GroupKey::CpuWeight | GroupKey::CpuMax => "cpu",
            GroupKey::MemoryMax => "memory",
        }
    }

    /// The file that is written.
    pub fn file(self) -> &'static str {
        match (self.key, self.v2) {
            (GroupKey::CpuWeight, true) => "cpu.weight",
            (GroupKey::CpuWeight, false) => "cpu.shares",
            (GroupKey::CpuMax, true) => "cpu.max",
            (GroupKey::CpuMax, false) => QUOTA,
            (GroupKey::MemoryMax, true) => "memory.max",
            (GroupKey::MemoryMax, false) => "memory.limit_in_bytes",
        }
    }

    /// Current value.
    pub fn read(self, group: &impl Group) -> io::Result<String> {
        let word = |file: &str| Ok::<_, io::Error>(group.read(file)?.trim().to_owned());
        match (self.key, self.v2) {
            (GroupKey::CpuMax, false) => {
                let quota = word(QUOTA)?;
                let quota = if quota.starts_with('-') { "max" } else { &quota };
                Ok(format!("{quota} {}", word(PERIOD)?))
            }
            _ => word(self.file()),
        }
    }

    /// Writes a value of the form that [`Dial::read`] gives. Of version 1's period nothing is written.
    pub fn write(self, group: &impl Group, value: &str) -> io::Result<()> {
        match (self.key, self.v2) {
            (GroupKey::CpuMax, false) => {
                let quota = value.split(' ').next().unwrap_or_default();
                group.write(QUOTA, if quota == "max" { "-1" } else { quota })
            }
            _ => group.write(self.file(), value),
        }
    }

    /// The file's value for a policy's value, given the current one.
    ///
    /// # Errors
    /// When the kernel would not take it.
    pub fn wanted(self, value: u64, now: &str, page_bytes: u64) -> Result<String, WhyNot> {
        match (self.key, self.v2) {
            (GroupKey::CpuWeight, true) if now == "0" => Err(WhyNot::Idle),
            (GroupKey::CpuWeight, true) => Ok(value.to_string()),
            (GroupKey::CpuWeight, false) => Ok(((value * 1024 + 50) / 100).max(2).to_string()),
            (GroupKey::CpuMax, _) => {
                let (_, period_us) = quota(now).ok_or_else(|| WhyNot::Nonsense(now.to_owned()))?;
                let us = u128::from(value) * u128::from(period_us) / u128::from(PROCESSOR);
                if us < u128::from(LEAST_QUOTA_US) {
                    return Err(WhyNot::ShortPeriod { period_us, us, least_us: LEAST_QUOTA_US });
                }
                Ok(format!("{us} {period_us}"))
            }
            (GroupKey::MemoryMax, _) => Ok((value / page_bytes * page_bytes).to_string()),
        }
    }

    /// The value before, converted to the current period where somebody else has changed that.
    pub fn carried(self, before: &str, now: &str) -> String {
        match (self.key, quota(before), quota(now)) {
            (GroupKey::CpuMax, Some((was, period)), Some((_, other))) if period != other => match was {
                None => format!("max {other}"),
                Some(us) => {
                    let scaled = u128::from(us) * u128::from(other) / u128::from(period);
                    format!("{} {other}", scaled.max(u128::from(LEAST_QUOTA_US)))
                }
            },
            _ => before.to_owned(),
        }
    }

    /// Why a value must not be written now; `None` where it may. The kernel kills processes for a memory limit below
    /// what is in use.
    ///
    /// # Errors
    /// When the use cannot be read.
    pub fn kills(self, group: &impl Group, value: &str) -> io::Result<Option<InUse>> {
        let (GroupKey::MemoryMax, Ok(bytes)) = (self.key, value.parse::<u64>()) else { return Ok(None) };
        let file = if self.v2 { "memory.current" } else { "memory.usage_in_bytes" };
        let used: u64 = group.read(file)?.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        Ok((bytes < used).then_some(InUse { bytes: used, file }))
    }
}

/// Quota, `None` for none, and period, in microseconds.
fn quota(text: &str) -> Option<(Option<u64>, u64)> {
    let (quota, period) = text.split_once(' ')?;
    let quota = if quota == "max" { None } else { Some(quota.parse().ok()?) };
    Some((quota, period.parse().ok().filter(|p| *p > 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_values_become_kernel_values() {
        let of = |key, v2, value, now: &str| Dial { key, v2 }.wanted(value, now, 4096);
        let weight = |v2, value| of(GroupKey::CpuWeight, v2, value, "100").unwrap_or_default();
        assert_eq!([1, 100, 10_000].map(|w| weight(true, w)), ["1", "100", "10000"]);
        assert_eq!(
            [1, 2, 39, 100, 400, 10_000].map(|w| weight(false, w)),
            ["10", "20", "399", "1024", "4096", "102400"]
        );
        let max = |share, now| of(GroupKey::CpuMax, true, share, now);
        assert_eq!(max(150_000, "max 100000").ok().as_deref(), Some("150000 100000"));
        assert_eq!(max(12_500, "3000 40000").ok().as_deref(), Some("5000 40000"));
        assert!(max(1_000, "max 50000").is_err_and(|why| why.to_string().contains("too short")));
        assert!(max(1_000, "nonsense").is_err() && max(1_000, "max 0").is_err());
        assert_eq!(of(GroupKey::MemoryMax, false, 4_000_000_001, "max").ok().as_deref(), Some("3999997952"));
        assert!(of(GroupKey::CpuWeight, true, 5, "0").is_err_and(|why| why.to_string().contains("cpu.idle")));
    }

    #[test]
    fn value_before_follows_the_period() {
        let dial = Dial { key: GroupKey::CpuMax, v2: true };
        assert_eq!(dial.carried("max 100000", "150000 100000"), "max 100000");
        assert_eq!(dial.carried("max 100000", "150000 50000"), "max 50000");
        assert_eq!(dial.carried("200000 100000", "150000 50000"), "100000 50000");
        assert_eq!(dial.carried("1000 100000", "150000 50000"), "1000 50000");
        assert_eq!(Dial { key: GroupKey::CpuWeight, v2: true }.carried("7", "8"), "7");
    }
}
