//! The counters' files in figures.

use std::collections::{BTreeMap, BTreeSet};

use vmio_model::top::cpu_users::ProcessCounters;
use vmio_model::top::load::{Device, Packets};
use vmio_model::top::reading::{CpuCounters, DiskCounters, Sides};

/// Sectors of these counters are 512 bytes whatever the device (kernel document block/stat.rst).
const SECTOR: u64 = 512;
/// Ticks a second of `/proc/stat` (USER_HZ, which is 100 on every architecture that Linux has
/// guests on).
const USER_HZ: f64 = 100.0;

/// Those disks of `/proc/diskstats` whose names are `wanted` (admin-guide/iostats.rst).
pub(super) fn diskstats(text: &str, wanted: &BTreeSet<String>) -> BTreeMap<Device, DiskCounters> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let device = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let name = words.next().filter(|name| wanted.contains(*name))?.to_owned();
        let fields: Vec<u64> = words.map(|w| w.parse().unwrap_or(0)).collect();
        // Discards came with Linux 4.18, flushes (without bytes) with 5.5.
        let at = |i: usize| fields.get(i).copied().unwrap_or(0);
        let kind = |i: usize| (at(i), at(i + 2) * SECTOR, at(i + 3));
        let kinds = [kind(0), kind(4), kind(11), (at(15), 0, at(16))];
        (fields.len() >= 11).then(|| (device, DiskCounters { name, kinds, busy_ms: at(9) }))
    };
    text.lines().filter_map(line).collect()
}

/// `run wait slices` in nanoseconds.
pub(super) fn schedstat(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_ascii_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// `/proc/PID/stat` (proc_pid_stat(5)). The name may hold anything, parentheses too.
pub(super) fn process(text: &str) -> Option<ProcessCounters> {
    let (head, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let at = |i: usize| fields.get(i)?.parse::<u64>().ok();
    Some(ProcessCounters {
        comm: head.split_once('(')?.1.to_owned(),
        // Children of kthreadd, and itself.
        kernel: at(1)? == 2 || head.starts_with("2 "),
        run_seconds: (at(11)? + at(12)?) as f64 / USER_HZ,
        began: at(19)?,
    })
}

/// Interfaces of a `net/dev` (proc_pid_net(5)): what was received and sent, by name.
pub(super) fn net_dev(text: &str) -> BTreeMap<String, (Packets, Packets)> {
    let line = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let fields: Vec<u64> = rest.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect();
        let side = |i: usize| {
            Some(Packets { bytes: *fields.get(i)?, packets: *fields.get(i + 1)?, dropped: *fields.get(i + 3)? })
        };
        Some((name.trim().to_owned(), (side(0)?, side(8)?)))
    };
    text.lines().filter_map(line).collect()
}

/// `/proc/stat` (proc_stat(5)). Time of guests is in user time.
pub(super) fn stat(text: &str) -> CpuCounters {
    let mut counters = CpuCounters::default();
    for line in text.lines().filter(|l| l.starts_with("cpu")) {
        if !line.starts_with("cpu ") {
            counters.cpus += 1;
            continue;
        }
        let ticks: Vec<f64> = line.split_ascii_whitespace().skip(1).filter_map(|w| w.parse().ok()).collect();
        let at = |i: usize| ticks.get(i).copied().unwrap_or(0.0) / USER_HZ;
        // user nice system idle iowait irq softirq steal
        counters.busy_seconds = [0, 1, 2, 5, 6].map(at).iter().sum();
        counters.stolen_seconds = at(7);
    }
    counters
}

/// `some … total=` of a pressure file, in microseconds.
pub(super) fn pressure(text: &str) -> Option<u64> {
    text.lines().find(|l| l.starts_with("some"))?.rsplit_once("total=")?.1.trim().parse().ok()
}

/// `/proc/PID/io` (proc_pid_io(5)): bytes that storage really moved. What was written to files that
/// were cut before it reached the disk never moved.
pub(super) fn process_io(text: &str) -> Option<Sides> {
    let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": ")?.trim().parse().ok());
    Some([(None, field("read_bytes")?), (None, field("write_bytes")?)])
}

/// `io.stat` of a control group of version 2 (admin-guide/cgroup-v2.rst), by disk.
pub(super) fn io_stat(text: &str) -> BTreeMap<Device, Sides> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (major, minor) = words.next()?.split_once(':')?;
        let fields: BTreeMap<&str, u64> =
            words.filter_map(|w| w.split_once('=')).filter_map(|(k, v)| Some((k, v.parse().ok()?))).collect();
        let side = |ios: &str, bytes: &str| Some((Some(*fields.get(ios)?), *fields.get(bytes)?));
        Some(((major.parse().ok()?, minor.parse().ok()?), [side("rios", "rbytes")?, side("wios", "wbytes")?]))
    };
    text.lines().filter_map(line).collect()
}

/// `blkio.throttle.io_service_bytes` or `io_serviced` of version 1: reads and writes by disk.
pub(super) fn blkio(text: &str) -> BTreeMap<Device, (u64, u64)> {
    let mut found: BTreeMap<Device, (u64, u64)> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let device =
            words.next().and_then(|d| d.split_once(':')).and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        if let (Some(device), Some(side), Some(value)) =
            (device, words.next(), words.next().and_then(|v| v.parse().ok()))
        {
            let sum = found.entry(device).or_default();
            match side {
                "Read" => sum.0 = value,
                "Write" => sum.1 = value,
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn disks_of_every_kernel() {
        let text = " 254 0 vda 10 1 80 5 20 2 160 7 3 9 12 4 0 32 1 6 2\n 254 1 vda1 9 1 80 5 20 2 160 7 3 9 12\n   8 0 sda 1 0 8 2 3 0 16 4 0 5 6\n 7 0 loop0 1 2 3\n";
        let wanted = ["vda", "sda", "loop0"].map(String::from).into();
        let disks = diskstats(text, &wanted);
        assert_eq!(disks.len(), 2, "{disks:?}");
        let vda = &disks[&(254, 0)];
        assert_eq!(vda.kinds, [(10, 80 * 512, 5), (20, 160 * 512, 7), (4, 32 * 512, 1), (6, 0, 2)]);
        assert_eq!((vda.name.as_str(), vda.busy_ms), ("vda", 9));
        assert_eq!(disks[&(8, 0)].kinds[2..], [(0, 0, 0), (0, 0, 0)]);
    }

    #[test]
    fn files_of_processes_interfaces_and_groups() {
        assert_eq!(schedstat("12 34 5\n"), Some((12, 34)));
        assert_eq!(schedstat(""), None);
        let dev = "Inter-| x\n face |bytes\n tap0: 100 2 0 1 0 0 0 0 700 8 0 3 0 0 0 0\n";
        let (received, sent) = net_dev(dev)["tap0"];
        assert_eq!(received, Packets { bytes: 100, packets: 2, dropped: 1 });
        assert_eq!(sent, Packets { bytes: 700, packets: 8, dropped: 3 });
        let cpu = stat("cpu  100 0 50 900 30 10 10 7 5 0\ncpu0 1 2\ncpu1 1 2\nintr 5\n");
        assert_eq!((cpu.cpus, cpu.stolen_seconds), (2, 0.07));
        assert!((cpu.busy_seconds - 1.7).abs() < 1e-9);
        assert_eq!(pressure("some avg10=1.00 avg60=0 avg300=0 total=1234\nfull total=9\n"), Some(1234));
        assert_eq!(process_io("rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\n"), Some([(None, 4096), (None, 8192)]));
        assert_eq!(process_io("rchar: 1\n"), None);
        let io = io_stat("254:0 rbytes=4096 wbytes=512 rios=1 wios=2 dbytes=0 dios=0\n8:0 \n");
        assert_eq!(io, [((254, 0), [(Some(1), 4096), (Some(2), 512)])].into());
        assert_eq!(blkio("254:0 Read 10\n254:0 Write 20\n254:0 Total 30\nTotal 30\n"), [((254, 0), (10, 20))].into());
    }
}
