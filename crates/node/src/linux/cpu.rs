//! Processors, how they hang together, and lists of them (Linux Documentation/admin-guide/cputopology.rst,
//! Documentation/ABI/stable/sysfs-devices-node).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{number, word};
use crate::Reader;

/// Numbers of processors are below this (Linux allows 8192 of them, `NR_CPUS`).
const MOST: usize = 8192;

/// A processor that is online.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub cpu: u32,
    /// Number of its core; its own where the kernel does not tell (or says -1).
    pub core: u32,
    /// Number of its package; 0 where the kernel does not tell.
    pub package: u32,
    /// Number of its NUMA node; 0 where the kernel knows none.
    pub node: u32,
}

/// Processors that are online, by number; empty where /sys does not say.
pub fn online(reader: &dyn Reader) -> Vec<Cpu> {
    let root = Path::new("/sys/devices/system/cpu");
    let node_of: BTreeMap<u32, u32> =
        nodes(reader).into_iter().flat_map(|(node, cpus)| cpus.into_iter().map(move |cpu| (cpu, node))).collect();
    let found = |cpu: u32| {
        let dir = root.join(format!("cpu{cpu}/topology"));
        Cpu {
            cpu,
            core: number(reader, &dir.join("core_id")).unwrap_or(cpu),
            package: number(reader, &dir.join("physical_package_id")).unwrap_or(0),
            node: node_of.get(&cpu).copied().unwrap_or(0),
        }
    };
    let all = word(reader, &root.join("online")).and_then(|text| list(&text)).unwrap_or_default();
    all.into_iter().map(found).collect()
}

/// NUMA nodes and their processors; empty where the kernel knows none.
pub fn nodes(reader: &dyn Reader) -> BTreeMap<u32, Vec<u32>> {
    let root = PathBuf::from("/sys/devices/system/node");
    let names = reader.list(&root).unwrap_or_default();
    let numbers = names.iter().filter_map(|n| n.strip_prefix("node")?.parse().ok());
    let cpus = |node: u32| word(reader, &root.join(format!("node{node}/cpulist"))).and_then(|text| list(&text));
    numbers.map(|node| (node, cpus(node).unwrap_or_default())).collect()
}

/// Processors whose frequency is chosen together, and what chooses it (Linux Documentation/admin-guide/pm/cpufreq.rst).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrequencyPolicy {
    /// Those that are online.
    pub cpus: Vec<u32>,
    /// Scaling driver: `acpi-cpufreq`, `intel_pstate`, `amd-pstate-epp`.
    pub driver: String,
    /// Governor: `performance`, `powersave`, `schedutil`.
    pub governor: String,
    /// What a driver that chooses by itself prefers (`energy_performance_preference`): `balance_power`; `None` where
    /// the driver has no such file, as generic ones.
    pub preference: Option<String>,
}

/// Where the policies of the processors' frequency are.
const POLICIES: &str = "/sys/devices/system/cpu/cpufreq";

/// Numbers of the policies of the processors' frequency; none where the kernel does not choose it, as mostly in guests.
pub fn frequency_policies(reader: &dyn Reader) -> Vec<u32> {
    let names = reader.list(Path::new(POLICIES)).unwrap_or_default();
    names.iter().filter_map(|name| name.strip_prefix("policy")?.parse().ok()).take(MOST).collect()
}

/// A policy. The frequency itself is not read, which would take the processors' time.
pub fn frequency_policy(reader: &dyn Reader, number: u32) -> Option<FrequencyPolicy> {
    let dir = Path::new(POLICIES).join(format!("policy{number}"));
    let driver = word(reader, &dir.join("scaling_driver"))?;
    let chooses = driver == "intel_pstate" || driver.starts_with("amd-pstate");
    let preference = if chooses { word(reader, &dir.join("energy_performance_preference")) } else { None };
    Some(FrequencyPolicy {
        cpus: list(&word(reader, &dir.join("affected_cpus"))?.replace(' ', ","))?,
        governor: word(reader, &dir.join("scaling_governor"))?,
        driver,
        preference,
    })
}

/// A list of processors as the kernel writes it (`0-3,8`; cpuset(7), "List format"), each once and in order; an
/// empty list is one. `None` for what is none: a part that is no number, or a number that no processor has.
pub fn list(text: &str) -> Option<Vec<u32>> {
    let mut there = [false; MOST];
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        there.get_mut(from..=to).filter(|_| from <= to)?.fill(true);
    }
    Some((0u32..).zip(there).filter(|(_, there)| *there).map(|(cpu, _)| cpu).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fake;

    #[test]
    fn lists_of_processors() {
        assert_eq!(list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        // Each counts once: two processors of `0,0` are one.
        assert_eq!(list("3,1-2,2"), Some(vec![1, 2, 3]));
        assert_eq!(list(&"0-8191,".repeat(10_000)).map(|l| l.len()), Some(8192));
        assert_eq!((list(""), list("\n")), (Some(vec![]), Some(vec![])));
        // No part is left out in silence, and no range fills the memory.
        for none in ["a", "3-1", "0-8192", "0-4294967295", "0-18446744073709551615", "0,x", "0-3:1/2"] {
            assert_eq!(list(none), None, "{none}");
        }
    }

    #[test]
    fn who_chooses_the_frequency() {
        let policy = |fake: Fake, n: u32, cpus: &str, driver: &str, governor: &str| {
            let dir = format!("/sys/devices/system/cpu/cpufreq/policy{n}");
            fake.file(format!("{dir}/affected_cpus"), format!("{cpus}\n"))
                .file(format!("{dir}/scaling_driver"), format!("{driver}\n"))
                .file(format!("{dir}/scaling_governor"), format!("{governor}\n"))
        };
        let fake = policy(Fake::new("fake"), 0, "0 1", "acpi-cpufreq", "powersave");
        let fake = policy(fake, 2, "2", "intel_pstate", "powersave")
            .file("/sys/devices/system/cpu/cpufreq/policy2/energy_performance_preference", "balance_power\n")
            .file("/sys/devices/system/cpu/cpufreq/boost", "1\n");
        assert_eq!((frequency_policies(&fake), frequency_policies(&Fake::new("fake"))), (vec![0, 2], vec![]));
        let of = |n: u32| frequency_policy(&fake, n).map(|p| (p.cpus, p.driver, p.preference));
        assert_eq!(of(0), Some((vec![0, 1], "acpi-cpufreq".to_owned(), None)));
        assert_eq!(of(2), Some((vec![2], "intel_pstate".to_owned(), Some("balance_power".to_owned()))));
        assert_eq!(of(3), None);
    }

    #[test]
    fn topology_of_processors() {
        let topology = |fake: Fake, cpu: u32, core: &str, package: u32| {
            let dir = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
            fake.file(format!("{dir}/core_id"), format!("{core}\n"))
                .file(format!("{dir}/physical_package_id"), format!("{package}\n"))
        };
        let mut fake = Fake::new("fake")
            .file("/sys/devices/system/cpu/online", "0-3\n")
            .file("/sys/devices/system/node/node0/cpulist", "0,2\n")
            .file("/sys/devices/system/node/node1/cpulist", "1,3\n")
            .file("/sys/devices/system/node/possible", "0-1\n");
        for (cpu, core, package) in [(0, "0", 0), (1, "0", 1), (2, "0", 0), (3, "-1", 1)] {
            fake = topology(fake, cpu, core, package);
        }
        let found: Vec<_> = online(&fake).iter().map(|c| (c.cpu, c.core, c.package, c.node)).collect();
        assert_eq!(found, [(0, 0, 0, 0), (1, 0, 1, 1), (2, 0, 0, 0), (3, 3, 1, 1)]);
        assert_eq!(online(&Fake::new("fake")), []);
    }
}
