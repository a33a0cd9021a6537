//! Files that speak of the whole machine: `/proc/stat`, `/proc/meminfo`, `/proc/swaps`, `/proc/pressure`,
//! `/proc/sys`, `/sys/devices/system/clocksource`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::{mounts, number, process};
use crate::{Reader, Result};

/// Bytes of a page, in which merged memory is counted (x86-64).
const PAGE_BYTES: u64 = 4096;

/// A value below `/proc/sys` by its name in sysctl(8), `kernel.osrelease`, without blanks around it.
///
/// # Errors
/// When there is no such one, which is how older kernels say that they lack it.
pub fn sysctl(reader: &dyn Reader, name: &str) -> Result<String> {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    Ok(reader.read_text(&path)?.trim().to_owned())
}

/// Release of the kernel that runs: `6.1.0-18-amd64`.
///
/// # Errors
/// When `/proc` is not there.
pub fn release(reader: &dyn Reader) -> Result<String> {
    sysctl(reader, "kernel.osrelease")
}

/// First two numbers of the kernel's version: `(6, 1)` of the release `6.1.0-18-amd64`.
pub fn kernel_version(reader: &dyn Reader) -> Option<(u32, u32)> {
    let release = release(reader).ok()?;
    let (major, rest) = release.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The clock source in use (Linux, kernel/time/clocksource.c, `current_clocksource_show`).
pub fn clock_source(reader: &dyn Reader) -> Option<String> {
    let name = reader.read_text(Path::new(CLOCK_SOURCE)).ok()?.trim().to_owned();
    Some(name).filter(|name| !name.is_empty())
}

/// Names the clock source in use; writing another one's name there changes it.
pub const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Identity of this boot.
///
/// # Errors
/// When `/proc` is not there.
pub fn boot_id(reader: &dyn Reader) -> Result<String> {
    sysctl(reader, "kernel.random.boot_id")
}

/// Seconds since the machine was started (`/proc/uptime`, proc_uptime(5)).
pub fn uptime_seconds(reader: &dyn Reader) -> Option<f64> {
    let text = reader.read_text(Path::new("/proc/uptime")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// A field of `/proc/meminfo` (proc_meminfo(5)) in bytes: `MemTotal`, `MemAvailable`.
pub fn memory_bytes(reader: &dyn Reader, name: &str) -> Option<u64> {
    bytes_of(&reader.read_text(Path::new("/proc/meminfo")).ok()?, name)
}

/// The same of the file's content.
pub fn bytes_of(meminfo: &str, name: &str) -> Option<u64> {
    let value = process::field(meminfo, name)?;
    value.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// `/proc/cpuinfo` (proc_cpuinfo(5)); empty where it cannot be read.
pub fn cpuinfo(reader: &dyn Reader) -> String {
    reader.read_text(Path::new("/proc/cpuinfo")).unwrap_or_default()
}

/// Model of the processors in a `/proc/cpuinfo`; some architectures do not tell one.
pub fn cpu_model(cpuinfo: &str) -> Option<&str> {
    cpuinfo.lines().find_map(|l| l.strip_prefix("model name")?.trim_start().strip_prefix(':')).map(str::trim)
}

/// Processors that are online, of the same file.
pub fn cpus_online(cpuinfo: &str) -> usize {
    cpuinfo.lines().filter(|l| l.starts_with("processor")).count()
}

/// Swap that is in use, by file or device (proc_swaps(5)).
pub fn swaps(text: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let escaped = line.split_ascii_whitespace().next()?.as_bytes();
        Some(PathBuf::from(OsString::from_vec(mounts::unescape(escaped))))
    };
    text.lines().skip(1).filter_map(path).collect()
}

/// `/proc/swaps`; none where it cannot be read: a kernel without swap has no such file.
pub fn swaps_in_use(reader: &dyn Reader) -> Vec<PathBuf> {
    swaps(&reader.read_text(Path::new("/proc/swaps")).unwrap_or_default())
}

/// What merging pages of the same content does (`/sys/kernel/mm/ksm`, Linux Documentation/admin-guide/mm/ksm.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merging {
    /// Bytes that it saves now: pages that are only there as another one.
    pub saved_bytes: u64,
    /// Whether pages of several NUMA nodes become one; no, where the kernel knows one node.
    pub across_nodes: bool,
}

/// Merging of pages; `None` where it is off.
pub fn merging(reader: &dyn Reader) -> Option<Merging> {
    let of = |name: &str| number::<u64>(reader, &Path::new("/sys/kernel/mm/ksm").join(name));
    let saved_bytes = of("run").filter(|run| *run == 1).and_then(|_| of("pages_sharing"))?.checked_mul(PAGE_BYTES)?;
    Some(Merging { saved_bytes, across_nodes: of("merge_across_nodes") == Some(1) })
}

/// Microseconds in which some task waited (`some … total=`) in a file of `/proc/pressure`, or of a control group
/// (Linux Documentation/accounting/psi.rst).
pub fn stalled_us(pressure: &str) -> Option<u64> {
    pressure.lines().find(|l| l.starts_with("some "))?.rsplit_once("total=")?.1.trim().parse().ok()
}

/// A counter of `/proc/vmstat` (proc_vmstat(5)): `pswpin`, pages read from swap.
pub fn counter(vmstat: &str, name: &str) -> Option<u64> {
    vmstat.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '))?.trim().parse().ok()
}

/// Pages that were swapped in or out since boot (`/proc/vmstat`); `None` where that does not tell.
pub fn swapped_pages(reader: &dyn Reader) -> Option<u64> {
    let text = reader.read_text(Path::new("/proc/vmstat")).ok()?;
    Some(counter(&text, "pswpin")?.saturating_add(counter(&text, "pswpout")?))
}

/// Times of all processors since boot (`/proc/stat`, proc_stat(5)), in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CpuTimes {
    /// Processors that are online.
    pub cpus: u32,
    /// They worked: user (in which the time of guests is), nice, system, interrupts. Neither idle nor waiting for
    /// I/O, nor stolen.
    pub busy_seconds: f64,
    /// The host's own hypervisor gave it to others.
    pub stolen_seconds: f64,
}

impl CpuTimes {
    /// Of the content of the file. `None` where its line of all processors is not there, is not whole (steal came
    /// with Linux 2.6.11) or has something else than a number in it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut columns = [0u64; 8];
        let mut words = lines.next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
        for column in &mut columns {
            *column = words.next()?.parse().ok()?;
        }
        let [user, nice, system, _idle, _iowait, irq, softirq, steal] = columns;
        let seconds = |ticks: u64| ticks as f64 / process::USER_HZ;
        let cpus = lines.take_while(|l| l.starts_with("cpu")).count();
        Some(Self {
            cpus: u32::try_from(cpus).ok()?,
            busy_seconds: seconds(user + nice + system + irq + softirq),
            stolen_seconds: seconds(steal),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Fake, Local};

    #[test]
    fn values_of_the_kernel() {
        let fake = Fake::new("fake").file("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
        assert_eq!(release(&fake).unwrap(), "6.1.0-18-amd64");
        let version = |text: &str| kernel_version(&Fake::new("fake").file("/proc/sys/kernel/osrelease", text));
        assert_eq!((kernel_version(&fake), version("6.15-rc2\n"), version("6\n")), (Some((6, 1)), Some((6, 15)), None));
        assert!(sysctl(&fake, "kernel.io_uring_disabled").is_err());
        let version = |release: &str| kernel_version(&Fake::new("fake").file("/proc/sys/kernel/osrelease", release));
        assert_eq!((version("6.1.0-18-amd64\n"), version("7.0-rc1\n")), (Some((6, 1)), Some((7, 0))));
        assert_eq!((version("6\n"), version("x.y\n"), kernel_version(&Fake::new("fake"))), (None, None, None));
        let clock = |text: &str| clock_source(&Fake::new("fake").file(CLOCK_SOURCE, text));
        assert_eq!((clock("hpet\n").as_deref(), clock("\n")), (Some("hpet"), None));
        assert_eq!(boot_id(&Local::new()).unwrap().len(), 36);
        let up = Fake::new("fake").file("/proc/uptime", "58320.50 24008.28\n");
        assert_eq!((uptime_seconds(&up), uptime_seconds(&fake)), (Some(58320.5), None));
        let swapped = Fake::new("fake").file("/proc/vmstat", "pswpin 3\npswpout 4\n");
        assert_eq!((swapped_pages(&swapped), swapped_pages(&fake)), (Some(7), None));
    }

    #[test]
    fn cpu_times() {
        let times = CpuTimes::parse("cpu  100 20 50 900 700 3 2 11 40 5\ncpu0 1 2\ncpu1 1 2\nintr 5\n").unwrap();
        assert!((times.busy_seconds - 1.75).abs() < 1e-9 && (times.stolen_seconds - 0.11).abs() < 1e-9);
        assert_eq!(times.cpus, 2);
        // Columns are never moved, nor taken for 0: a machine that cannot be seen is not an idle one.
        for none in ["", "intr 1 2", "cpu  1 2 3 4 5 6 7", "cpu  100 x 50 900 700 3 2 11 40"] {
            assert_eq!(CpuTimes::parse(none), None, "{none}");
        }
        assert!(CpuTimes::parse(&Local::new().read_text(Path::new("/proc/stat")).unwrap()).unwrap().cpus > 0);
    }

    #[test]
    fn merged_pages() {
        let of = |run: &str| {
            let fake = Fake::new("fake")
                .file("/sys/kernel/mm/ksm/run", run)
                .file("/sys/kernel/mm/ksm/pages_sharing", "256\n")
                .file("/proc/uptime", "350735.47 234388.90\n");
            assert_eq!(uptime_seconds(&fake).map(f64::floor), Some(350_735.0));
            merging(&fake)
        };
        assert_eq!(of("1\n"), Some(Merging { saved_bytes: 1 << 20, across_nodes: false }));
        // 2 takes all apart, and ends.
        assert_eq!((of("0\n"), of("2\n"), merging(&Fake::new("fake"))), (None, None, None));
    }

    #[test]
    fn processors_of_cpuinfo() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC 7B13\n\nprocessor\t: 1\nmodel name\t: AMD EPYC 7B13\n";
        assert_eq!((cpu_model(text), cpus_online(text)), (Some("AMD EPYC 7B13"), 2));
        assert_eq!((cpu_model("CPU part\t: 0xd0c\n"), cpus_online("")), (None, 0));
    }

    #[test]
    fn memory_swap_and_pressure() {
        let text = "MemTotal:       16384 kB\nMemAvailable:    1024 kB\nHugePages_Total:       3\n";
        let meminfo = &Fake::new("fake").file("/proc/meminfo", text);
        assert_eq!(memory_bytes(meminfo, "MemTotal"), Some(16 << 20));
        assert_eq!(memory_bytes(meminfo, "MemAvailable"), Some(1 << 20));
        // A number of pages is no number of bytes.
        assert_eq!((memory_bytes(meminfo, "HugePages_Total"), memory_bytes(meminfo, "Mem")), (None, None));
        let swap =
            "Filename Type Size Used Priority\n/dev/sda3 partition 1 0 -2\n/var/swap\\040file\\040x file 1 0 -3\n";
        assert_eq!(swaps(swap), [PathBuf::from("/dev/sda3"), "/var/swap file x".into()]);
        assert!(swaps("Filename Type Size Used Priority\n").is_empty());
        assert!(swaps_in_use(&Fake::new("fake")).is_empty());
        assert_eq!(stalled_us("some avg10=1.00 avg60=0 avg300=0 total=1234\nfull total=9\n"), Some(1234));
        assert_eq!(stalled_us("full avg10=0 total=9\n"), None);
    }
}
