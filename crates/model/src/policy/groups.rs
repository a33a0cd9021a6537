//! Limits of a guest's processors and memory in a class (amamou2012, section V.A, names both beside the network). A
//! class is a contract for each interface; a control group is a guest's. So the classes of all interfaces of a guest,
//! in both directions, are combined. A key with different values is left unset and both places are reported, since
//! setting one value would break the other contract.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::assign::{Interface, assign};
use super::units::{show_bytes, show_percent};
use super::{Direction, Entry, Policy};

/// Keys for a guest's control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupKey {
    /// Weight against other groups on busy processors.
    CpuWeight,
    /// Limit of processor time.
    CpuMax,
    /// Limit of memory.
    MemoryMax,
}

impl GroupKey {
    /// All.
    pub const ALL: [GroupKey; 3] = [GroupKey::CpuWeight, GroupKey::CpuMax, GroupKey::MemoryMax];

    /// The key in the policy.
    pub fn word(self) -> &'static str {
        match self {
            GroupKey::CpuWeight => "cpu_weight",
            GroupKey::CpuMax => "cpu_max",
            GroupKey::MemoryMax => "memory_max",
        }
    }
}

/// Limits for a guest's control group; one that is not set is not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Weight among groups that want the same processors, 1 to 10000; the kernel's default is 100 (cgroup-v2.rst,
    /// `cpu.weight`).
    pub cpu_weight: Option<u16>,
    /// Limit of processor time, in thousandths of a percent of one processor ([`super::units::PROCESSOR`]).
    pub cpu_max: Option<u64>,
    /// Limit of memory, in bytes.
    pub memory_max: Option<u64>,
}

impl Limits {
    /// Whether no limit is set.
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }

    /// The value of a key.
    pub fn value(&self, key: GroupKey) -> Option<u64> {
        match key {
            GroupKey::CpuWeight => self.cpu_weight.map(u64::from),
            GroupKey::CpuMax => self.cpu_max,
            GroupKey::MemoryMax => self.memory_max,
        }
    }

    /// The keys that are set.
    pub fn keys(&self) -> impl Iterator<Item = GroupKey> {
        GroupKey::ALL.into_iter().filter(move |key| self.value(*key).is_some())
    }

    /// The value of a key, as written.
    pub fn shown(&self, key: GroupKey) -> Option<String> {
        let value = self.value(key)?;
        Some(match key {
            GroupKey::CpuWeight => value.to_string(),
            GroupKey::CpuMax => show_percent(value),
            GroupKey::MemoryMax => show_bytes(value),
        })
    }

    fn forget(&mut self, key: GroupKey) {
        match key {
            GroupKey::CpuWeight => self.cpu_weight = None,
            GroupKey::CpuMax => self.cpu_max = None,
            GroupKey::MemoryMax => self.memory_max = None,
        }
    }

    /// Takes over limits that are not set.
    fn fill(&mut self, other: &Limits) {
        self.cpu_weight = self.cpu_weight.or(other.cpu_weight);
        self.cpu_max = self.cpu_max.or(other.cpu_max);
        self.memory_max = self.memory_max.or(other.memory_max);
    }
}

/// The limits of a guest's control group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupLimits {
    /// The limits.
    pub limits: Limits,
    /// Keys with different values in its classes, which are left unset: the key, and a sentence with both places.
    pub disputed: Vec<(GroupKey, String)>,
}

/// The limits of a guest by its interfaces, in any order.
pub fn owed(policy: &Policy, interfaces: &[Interface]) -> GroupLimits {
    let mut entries: Vec<&Entry> = interfaces.iter().filter_map(|i| Some(assign(policy, i)?.entry)).collect();
    // In the order of the files, so that messages do not depend on the order in which taps come up.
    entries.sort_by_key(|entry| policy.entries.iter().position(|e| e == *entry));
    of_entries(policy, entries)
}

/// The limits of one entry.
pub fn of_entry(policy: &Policy, entry: &Entry) -> Limits {
    of_entries(policy, vec![entry]).limits
}

fn of_entries(policy: &Policy, mut entries: Vec<&Entry>) -> GroupLimits {
    entries.dedup();
    let mut classes: Vec<(&Entry, &str)> = Vec::new();
    for entry in entries {
        classes.extend(Direction::ALL.iter().filter_map(|d| Some((entry, entry.class_in(*d)?))));
    }
    let mut owed = GroupLimits::default();
    for key in GroupKey::ALL {
        let mut said = classes.iter().filter_map(|(e, c)| Some((e, c, policy.class(c).group.shown(key)?)));
        let Some((entry, class, value)) = said.next() else { continue };
        if let Some((other, another, differs)) = said.find(|(.., v)| *v != value) {
            owed.disputed.push((
                key,
                format!(
                    "{} is {value} by class {class} ({}) and {differs} by class {another} ({}): it is left as it is",
                    key.word(),
                    entry.place,
                    other.place
                ),
            ));
        }
    }
    for (_, class) in &classes {
        owed.limits.fill(&policy.class(class).group);
    }
    for (key, _) in &owed.disputed {
        owed.limits.forget(*key);
    }
    owed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::policy::Links;

    const TEXT: &str = "\
[uplink.eth0]
capacity = \"1Gbit\"
[class.gold]
cpu_weight = 400
cpu_max = \"150%\"
[class.memory]
memory_max = \"4GiB\"
[class.backup]
cpu_weight = 10
[class.plain]
[[interface]]
match = { name = \"a*\" }
class = \"gold\"
rx_class = \"memory\"
[[interface]]
match = { name = \"b*\" }
class = \"backup\"
[[interface]]
match = { name = \"c*\" }
class = \"plain\"
rx_class = \"gold\"
";

    fn policy() -> Policy {
        Policy::read(&[("guard.toml", TEXT)], &Links::default()).unwrap().policy
    }

    fn interfaces(names: &[&str]) -> Vec<Interface> {
        names.iter().map(|name| Interface { index: 1, name: (*name).into(), ..Interface::default() }).collect()
    }

    #[test]
    fn classes_of_all_interfaces_add_up() {
        let policy = policy();
        let of = |names: &[&str]| owed(&policy, &interfaces(names));
        let whole = Limits { cpu_weight: Some(400), cpu_max: Some(150_000), memory_max: Some(4 << 30) };
        assert_eq!(of(&["a0"]), GroupLimits { limits: whole, disputed: Vec::new() });
        // The same class twice, and classes with equal values, are no dispute.
        assert_eq!(of(&["a0", "a1", "c0", "z9"]).limits, whole);
        assert!(of(&[]).limits.is_empty() && of(&["z9"]).limits.is_empty());
        let torn = of(&["b0", "a0"]);
        assert_eq!(torn.limits, Limits { cpu_weight: None, ..whole });
        let (key, why) = &torn.disputed[0];
        assert_eq!((*key, torn.disputed.len()), (GroupKey::CpuWeight, 1));
        let said = "cpu_weight is 400 by class gold (guard.toml:12:9) and 10 by class backup (guard.toml:16:9)";
        assert!(why.starts_with(said), "{why}");
        assert_eq!(of_entry(&policy, &policy.entries[0]), whole);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        /// Order and repetition do not matter; the result has each value that all classes with the key agree on.
        #[test]
        fn it_is_a_set(mut names in prop::collection::vec("[abcz][0-9]", 0..6), turn in 0usize..6) {
            let policy = policy();
            let refs: Vec<&str> = names.iter().map(String::as_str).collect();
            let first = owed(&policy, &interfaces(&refs));
            let turn = turn.min(names.len());
            names.rotate_left(turn);
            names.extend(names.clone());
            let refs: Vec<&str> = names.iter().map(String::as_str).collect();
            prop_assert_eq!(&owed(&policy, &interfaces(&refs)), &first);
            for key in GroupKey::ALL {
                let mut said: Vec<u64> = Vec::new();
                for interface in interfaces(&refs) {
                    let Some(assigned) = assign(&policy, &interface) else { continue };
                    let classes = Direction::ALL.into_iter().filter_map(|d| assigned.entry.class_in(d));
                    said.extend(classes.filter_map(|c| policy.class(c).group.value(key)));
                }
                said.sort_unstable();
                said.dedup();
                let wanted = if let [one] = said.as_slice() { Some(*one) } else { None };
                prop_assert_eq!(first.limits.value(key), wanted);
                prop_assert_eq!(first.disputed.iter().any(|(k, _)| *k == key), said.len() > 1);
            }
        }
    }
}
