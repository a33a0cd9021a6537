//! The host's processors and how they hang together, from /sys (Linux
//! Documentation/admin-guide/cputopology.rst, Documentation/ABI/stable/sysfs-devices-node).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use vmio_model::facts::HostCpu;
use vmio_node::Reader;

/// Numbers of processors are below this (Linux allows 8192 of them, `NR_CPUS`).
const MOST: u32 = 8192;
/// Numbers that are looked at in a list, which may name one again and again.
const LONGEST: usize = 1 << 16;

/// Processors that are online, by number; empty where /sys does not say.
pub fn host_cpus(reader: &dyn Reader) -> Vec<HostCpu> {
    let root = Path::new("/sys/devices/system/cpu");
    let online = reader.read_text(&root.join("online")).unwrap_or_default();
    let node_of: BTreeMap<u32, u32> =
        nodes(reader).into_iter().flat_map(|(node, cpus)| cpus.into_iter().map(move |cpu| (cpu, node))).collect();
    let number = |path: PathBuf| reader.read_text(&path).ok()?.trim().parse::<u32>().ok();
    let host_cpu = |cpu: u32| {
        let dir = root.join(format!("cpu{cpu}/topology"));
        HostCpu {
            cpu,
            core: number(dir.join("core_id")).unwrap_or(cpu),
            package: number(dir.join("physical_package_id")).unwrap_or(0),
            node: node_of.get(&cpu).copied().unwrap_or(0),
        }
    };
    cpu_list(&online).into_iter().map(host_cpu).collect()
}

/// NUMA nodes and their processors; empty where the kernel knows none.
pub fn nodes(reader: &dyn Reader) -> BTreeMap<u32, Vec<u32>> {
    let root = Path::new("/sys/devices/system/node");
    let names = reader.list(root).unwrap_or_default();
    let numbers = names.iter().filter_map(|n| n.strip_prefix("node")?.parse().ok());
    let cpus = |node: u32| reader.read_text(&root.join(format!("node{node}/cpulist"))).unwrap_or_default();
    numbers.map(|node| (node, cpu_list(&cpus(node)))).collect()
}

/// A list of processors as the kernel writes it (`0-3,8`), each once and in order; parts that are
/// none are left out.
pub fn cpu_list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.trim().parse::<u32>().ok()?..=to.trim().parse::<u32>().ok().filter(|to| *to < MOST)?)
    };
    let numbers = text.trim().split(',').filter_map(range).flatten().take(LONGEST);
    numbers.collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmio_node::fake::Fake;

    #[test]
    fn lists_of_processors_are_as_the_kernel_writes_them() {
        assert_eq!(cpu_list("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(cpu_list("3,1-2,2"), [1, 2, 3]);
        assert_eq!(cpu_list(&"0-8191,".repeat(10_000)).len(), 8192);
        for none in ["", "\n", "a", "3-1", "0-8192", "0-4294967295"] {
            assert_eq!(cpu_list(none), [0u32; 0], "{none}");
        }
    }

    #[test]
    fn processors_have_their_core_package_and_node() {
        let topology = |fake: Fake, cpu: u32, core: u32, package: u32| {
            let dir = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
            fake.file(format!("{dir}/core_id"), format!("{core}\n"))
                .file(format!("{dir}/physical_package_id"), format!("{package}\n"))
        };
        let mut fake = Fake::new("fake")
            .file("/sys/devices/system/cpu/online", "0-3\n")
            .file("/sys/devices/system/node/node0/cpulist", "0,2\n")
            .file("/sys/devices/system/node/node1/cpulist", "1,3\n")
            .file("/sys/devices/system/node/possible", "0-1\n");
        for (cpu, core, package) in [(0, 0, 0), (1, 0, 1), (2, 0, 0), (3, 1, 1)] {
            fake = topology(fake, cpu, core, package);
        }
        let found: Vec<_> = host_cpus(&fake).iter().map(|c| (c.cpu, c.core, c.package, c.node)).collect();
        assert_eq!(found, [(0, 0, 0, 0), (1, 0, 1, 1), (2, 0, 0, 0), (3, 1, 1, 1)]);
        assert_eq!(host_cpus(&Fake::new("fake")), []);
    }
}
