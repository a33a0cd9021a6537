//! Converts counter files to the types of [`vmio_model::top`]. Their fields are parsed in [`vmio_node::linux`].

use std::collections::{BTreeMap, BTreeSet};

use vmio_model::top::cpu_users::ProcessCounters;
use vmio_model::top::load::{Device, Packets};
use vmio_model::top::reading::{CpuCounters, DiskCounters, MemoryCounters, Sides};
use vmio_node::linux::block::{Counters, Requests, diskstats as lines};
use vmio_node::linux::cgroup;
use vmio_node::linux::net::{Traffic, traffic};
use vmio_node::linux::process::{Schedstat, Stat, io_bytes};
use vmio_node::linux::system::{CpuTimes, bytes_of, counter};

/// The process kthreadd, the parent of kernel threads.
const KTHREADD: u32 = 2;

/// The disks of `/proc/diskstats` that are `wanted`.
pub(super) fn diskstats(text: &str, wanted: &BTreeSet<String>) -> BTreeMap<Device, DiskCounters> {
    let disk = |(device, name, fields): (Device, &str, &str)| {
        let c = Counters::parse(fields)?;
        let kinds = [c.reads, c.writes, c.discards, c.flushes].map(|Requests { ios, bytes, ms }| (ios, bytes, ms));
        Some((device, DiskCounters { name: name.to_owned(), kinds, busy_ms: c.busy_ms }))
    };
    lines(text).filter(|(_, name, _)| wanted.contains(*name)).filter_map(disk).collect()
}

/// Nanoseconds that a thread ran and waited.
pub(super) fn schedstat(text: &str) -> Option<(u64, u64)> {
    Schedstat::parse(text).map(|s| (s.run_ns, s.wait_ns))
}

/// A process from its `stat`.
pub(super) fn process(text: &str) -> Option<ProcessCounters> {
    let stat = Stat::parse(text)?;
    Some(ProcessCounters {
        comm: stat.comm.to_owned(),
        kernel: stat.parent()? == KTHREADD || stat.number == KTHREADD,
        run_seconds: stat.run_seconds()?,
        began: stat.start_ticks()?,
    })
}

/// Received and sent packets of a `net/dev`, by interface.
pub(super) fn net_dev(text: &str) -> BTreeMap<String, (Packets, Packets)> {
    let side = |t: Traffic| Packets { bytes: t.bytes, packets: t.packets, dropped: t.dropped };
    traffic(text).map(|(name, received, sent)| (name.to_owned(), (side(received), side(sent)))).collect()
}

/// `/proc/stat`; zeros where it cannot be parsed.
pub(super) fn stat(text: &str) -> CpuCounters {
    let CpuTimes { cpus, busy_seconds, stolen_seconds } = CpuTimes::parse(text).unwrap_or_default();
    CpuCounters { cpus, busy_seconds, stolen_seconds, ..CpuCounters::default() }
}

/// `/proc/meminfo`; zeros where it cannot be parsed.
pub(super) fn meminfo(text: &str) -> MemoryCounters {
    let bytes = |name: &str| bytes_of(text, name).unwrap_or(0);
    MemoryCounters {
        total_bytes: bytes("MemTotal"),
        available_bytes: bytes("MemAvailable"),
        swapped_bytes: bytes("SwapTotal").saturating_sub(bytes("SwapFree")),
        swaps: None,
    }
}

/// Pages read from swap and written to it, of `/proc/vmstat`.
pub(super) fn swaps(text: &str) -> Option<(u64, u64)> {
    counter(text, "pswpin").zip(counter(text, "pswpout"))
}

/// Bytes that storage moved for a process, from its `io`.
pub(super) fn process_io(text: &str) -> Option<Sides> {
    io_bytes(text).map(|(read, written)| [(None, read), (None, written)])
}

/// `io.stat` of a control group of version 2, by disk.
pub(super) fn io_stat(text: &str) -> BTreeMap<Device, Sides> {
    let sides = |m: cgroup::Moved| [(Some(m.read_ios), m.read_bytes), (Some(m.write_ios), m.write_bytes)];
    cgroup::io_stat(text).map(|(device, moved)| (device, sides(moved))).collect()
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
        assert_eq!(process_io("rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\n"), Some([(None, 4096), (None, 8192)]));
        assert_eq!(process_io("rchar: 1\n"), None);
        let memory = meminfo("MemTotal: 8 kB\nMemAvailable: 3 kB\nSwapTotal: 5 kB\nSwapFree: 4 kB\n");
        assert_eq!((memory.total_bytes, memory.available_bytes, memory.swapped_bytes), (8192, 3072, 1024));
        assert_eq!(swaps("pswpin 3\npswpout 4\n"), Some((3, 4)));
        assert_eq!(swaps("nr_free_pages 1\n"), None);
        let io = io_stat("254:0 rbytes=4096 wbytes=512 rios=1 wios=2 dbytes=0 dios=0\n8:0 \n");
        assert_eq!(io, [((254, 0), [(Some(1), 4096), (Some(2), 512)])].into());
    }
}
