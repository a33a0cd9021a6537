//! Facts of the host as a whole, which all its guests share: frequency of the processors, merging of pages, swap,
//! memory. About four files a frequency policy, and seven more; all are readable by everybody, and none is a guest's.

use std::path::Path;

use vmio_model::facts::{Governor, HostState, Ksm, Swap};
use vmio_node::Reader;
use vmio_node::linux::process::{self, Stat};
use vmio_node::linux::{block, cpu, system};

use crate::parallel;

/// Where these facts are read, for people.
pub const SOURCE: &str = "/sys/devices/system/cpu/cpufreq, /sys/kernel/mm/ksm, /proc/swaps, /proc/meminfo";

/// Reads them; `ksmd` is the process of that name.
pub fn of(reader: &dyn Reader, ksmd: Option<u32>) -> HostState {
    HostState {
        governors: governors(reader),
        ksm: ksm(reader, ksmd),
        swap: swap(reader),
        memory_bytes: system::memory_bytes(reader, "MemTotal"),
        available_bytes: system::memory_bytes(reader, "MemAvailable"),
    }
}

/// The processors by what chooses their frequency: mostly all in one.
fn governors(reader: &dyn Reader) -> Vec<Governor> {
    let mut all: Vec<Governor> = Vec::new();
    let policies = parallel::map(cpu::frequency_policies(reader), |number| cpu::frequency_policy(reader, number));
    for policy in policies.into_iter().flatten() {
        let known = all
            .iter_mut()
            .find(|g| g.driver == policy.driver && g.governor == policy.governor && g.preference == policy.preference);
        match known {
            Some(known) => known.cpus.extend(policy.cpus),
            None => all.push(Governor {
                driver: policy.driver,
                governor: policy.governor,
                preference: policy.preference,
                cpus: policy.cpus,
            }),
        }
    }
    all.iter_mut().for_each(|g| g.cpus.sort_unstable());
    all
}

/// Merging of pages, where it is on and its thread is seen.
fn ksm(reader: &dyn Reader, ksmd: Option<u32>) -> Option<Ksm> {
    let merging = system::merging(reader)?;
    let text = reader.read_text(&process::file(ksmd?, "stat")).ok()?;
    let thread = Stat::parse(&text).filter(Stat::is_of_kernel)?;
    Some(Ksm {
        saved_bytes: merging.saved_bytes,
        memory_bytes: system::memory_bytes(reader, "MemTotal")?,
        run_seconds: thread.run_seconds()? as u64,
        up_seconds: system::uptime_seconds(reader)? as u64,
        across_nodes: merging.across_nodes,
    })
}

fn swap(reader: &dyn Reader) -> Option<Swap> {
    let is_zram = |path: &Path| {
        let name = path.strip_prefix("/dev").ok().and_then(Path::to_str);
        name.is_some_and(|name| block::is_numbered(name, "zram"))
    };
    let all = system::swaps_in_use(reader);
    let kind = || if all.iter().all(|path| is_zram(path)) { Swap::Zram } else { Swap::Disk };
    (!all.is_empty()).then(kind)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_node::fake::Fake;

    #[test]
    fn processors_of_one_kind_are_one_entry() {
        let policy = |fake: Fake, n: u32, governor: &str| {
            let dir = format!("/sys/devices/system/cpu/cpufreq/policy{n}");
            fake.file(format!("{dir}/affected_cpus"), format!("{n}\n"))
                .file(format!("{dir}/scaling_driver"), "acpi-cpufreq\n")
                .file(format!("{dir}/scaling_governor"), format!("{governor}\n"))
        };
        let fake = policy(policy(policy(Fake::new("fake"), 0, "powersave"), 1, "performance"), 2, "powersave");
        let found: Vec<_> = of(&fake, None).governors.into_iter().map(|g| (g.governor, g.cpus)).collect();
        assert_eq!(found, [("powersave".to_owned(), vec![0, 2]), ("performance".to_owned(), vec![1])]);
        assert_eq!(of(&Fake::new("fake"), None), HostState::default());
    }

    #[test]
    fn merging_is_that_of_the_kernels_thread() {
        let with = |flags: u32| {
            let stat = format!("40 (ksmd) S 2 0 0 0 -1 {flags} 0 0 0 0 100 800 0 0 25 5 1 0 50 0 0\n");
            let fake = Fake::new("fake")
                .file("/sys/kernel/mm/ksm/run", "1\n")
                .file("/sys/kernel/mm/ksm/pages_sharing", "256\n")
                .file("/sys/kernel/mm/ksm/merge_across_nodes", "1\n")
                .file("/proc/meminfo", "MemTotal: 1024 kB\n")
                .file("/proc/uptime", "100.50 7.00\n")
                .file("/proc/40/stat", stat);
            of(&fake, Some(40)).ksm
        };
        let on =
            Ksm { saved_bytes: 1 << 20, memory_bytes: 1 << 20, run_seconds: 9, up_seconds: 100, across_nodes: true };
        assert_eq!((with(0x0020_0040), with(0x40)), (Some(on), None), "any process may have that name");
    }

    #[test]
    fn memory_is_that_of_meminfo() {
        let fake = Fake::new("fake").file("/proc/meminfo", "MemTotal: 8 kB\nMemFree: 1 kB\nMemAvailable: 3 kB\n");
        let state = of(&fake, None);
        assert_eq!((state.memory_bytes, state.available_bytes), (Some(8192), Some(3072)));
    }

    #[test]
    fn swap_to_memory_is_told_from_a_disk() {
        let with = |lines: &str| {
            swap(&Fake::new("fake").file("/proc/swaps", format!("Filename Type Size Used Priority\n{lines}")))
        };
        let (zram, disk) = ("/dev/zram0 partition 1 0 100\n", "/dev/sda3 partition 1 0 -2\n");
        assert_eq!((with(zram), with(disk)), (Some(Swap::Zram), Some(Swap::Disk)));
        assert_eq!((with(&format!("{zram}{disk}")), with("")), (Some(Swap::Disk), None));
    }
}
