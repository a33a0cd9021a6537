//! What the host's kernel makes of a guest: memory that was swapped out, what storage read for it, the weight and limits
//! of its I/O, and facts of the host as a whole. All are the kernel's files: no name that a guest chose is followed.

use vmio_model::facts::{Fact, Guest, HostState, IoWeight, WeightedDisk};
use vmio_node::Reader;
use vmio_node::linux::block::Device;
use vmio_node::linux::cgroup::Group;
use vmio_node::linux::process::{self, Status};

use crate::host_state;
use crate::host_view::HostView;

/// Disks of a weight that are told.
const MOST_DISKS: usize = 64;

/// Adds these facts to a guest.
pub fn settle(host: &HostView<'_>, mut guest: Guest) -> Guest {
    let shared_kernel = guest.shares_kernel();
    let Some(own) = guest.processors.as_mut() else { return guest };
    let seen = host.state();
    if *seen != HostState::default() {
        own.host_state = Fact::read(Some(seen.clone()), host_state::SOURCE);
    }
    let Some(pid) = guest.pid else { return guest };
    let reader = host.reader();
    let member = reader.read_text(&process::file(pid, "cgroup")).unwrap_or_default();
    let group = |controller: &str| host.groups().group(&member, controller);
    // A container's memory is that of many processes.
    if seen.swap.is_some() && !shared_kernel {
        let found = swapped(reader, group("memory"), pid);
        if let Some((bytes, file)) = found {
            own.swapped_bytes = Fact::read(Some(bytes), file);
        }
    }
    let moved = || process::io_bytes(&reader.read_text(&process::file(pid, "io")).ok()?);
    if !shared_kernel && let Some((read, _)) = moved() {
        own.storage_read_bytes = Fact::read(Some(read), format!("/proc/{pid}/io, read_bytes"));
    }
    let Some(io) = group("blkio") else { return guest };
    if let Some((weight, file)) = io.io_weight(reader) {
        let weight = IoWeight { weight, v1: !io.v2, disks: disks(reader, &io) };
        own.io_weight = Fact::read(Some(weight), file.display().to_string());
    }
    // Which writes are charged matters where limits are told.
    let mut limited = guest.disks.iter_mut().filter(|disk| !disk.details.limits.is_empty()).peekable();
    if limited.peek().is_some()
        && let Some(file) = io.v1_write_limit(reader)
    {
        limited.for_each(|d| d.details.writes_uncharged = Fact::read(Some(true), file.display().to_string()));
    }
    guest
}

/// Memory in swap: as the control group counts it, which has shared memory too, else as the process has it.
fn swapped(reader: &dyn Reader, group: Option<Group>, pid: u32) -> Option<(u64, String)> {
    let counted = group.and_then(|group| group.swapped_bytes(reader, pid));
    if let Some((bytes, file)) = counted {
        return Some((bytes, file.display().to_string()));
    }
    Some((Status::of(reader, pid).ok()?.swapped_bytes()?, format!("/proc/{pid}/status, VmSwap")))
}

/// The disks on which a group did I/O, with what could hold its weight there. What lies on other disks (LVM, LUKS, md,
/// loop devices) has no scheduler of its own that matters.
fn disks(reader: &dyn Reader, io: &Group) -> Vec<WeightedDisk> {
    let iocost = io.iocost_devices(reader);
    let disk = |number: (u32, u32)| {
        let device = Device::numbered(reader, number);
        if device.is_partition() || device.has_loop_file() || !device.slaves().is_empty() {
            return None;
        }
        Some(WeightedDisk {
            name: device.node_name().ok()??,
            number: format!("{}:{}", number.0, number.1),
            scheduler: device.scheduler()?,
            iocost: iocost.contains(&number),
        })
    };
    io.io_devices(reader).into_iter().filter_map(disk).take(MOST_DISKS).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_model::facts::{Details, Disk, Processors, Provenance, Subject};
    use vmio_node::fake::Fake;

    const V2: &str = "31 23 0:28 / /c rw - cgroup2 cgroup2 rw\n";
    const V1: &str = "33 31 0:30 / /b rw - cgroup cgroup rw,blkio\n";

    fn from() -> Provenance {
        Provenance::Live { guest: "web1".into(), read_from: "/proc/8/cmdline".into(), at_unix_seconds: 1.0 }
    }

    /// Process 8 in group `vm`, whose disk has a limit.
    fn settled(fake: Fake) -> Guest {
        settled_as("qemu", fake)
    }

    fn settled_as(kind: &str, fake: Fake) -> Guest {
        let limits = vec!["1000 IOPS by the control group".to_owned()].into();
        let details = Details { limits, ..Details::default() };
        let guest = Guest {
            name: "web1".into(),
            kind: kind.into(),
            pid: Some(8),
            disks: vec![Disk { details, ..Disk::unknown(Subject::disk("web1", "vda"), from()) }],
            processors: Some(Processors::unknown(Subject::guest("web1"), from())),
            ..Guest::default()
        };
        settle(&HostView::new(&fake), guest)
    }

    fn fake(mounts: &str, member: &str) -> Fake {
        Fake::new("fake").file("/proc/self/mountinfo", mounts).file("/proc/8/cgroup", member)
    }

    #[test]
    fn swap_is_asked_for_where_there_is_any() {
        let with = |swaps: &str| {
            fake(V2, "0::/vm\n")
                .file("/proc/8/status", "Name:\tqemu\nVmSwap:\t4 kB\n")
                .file("/proc/swaps", format!("Filename Type Size Used Priority\n{swaps}"))
        };
        let disk = "/dev/sda3 partition 1 0 -2\n";
        let of = |fake: Fake| {
            let own = settled(fake).processors.unwrap();
            (*own.swapped_bytes, own.read().get("swapped_bytes").cloned())
        };
        assert_eq!(of(with("")), (None, None));
        assert_eq!(of(with(disk)), (Some(4096), Some("/proc/8/status, VmSwap".into())));
        let counted = with(disk).file("/c/vm/memory.swap.current", "8192\n").file("/c/vm/cgroup.procs", "8\n");
        assert_eq!(of(counted), (Some(8192), Some("/c/vm/memory.swap.current".into())));
    }

    #[test]
    fn what_storage_read_is_that_of_the_guests_process() {
        let with = || fake(V2, "0::/vm\n").file("/proc/8/io", "rchar: 9\nread_bytes: 8192\nwrite_bytes: 1\n");
        let read = settled(with()).processors.unwrap().storage_read_bytes;
        assert_eq!((*read, read.source()), (Some(8192), Some(&"/proc/8/io, read_bytes".into())));
        // A container has many processes.
        assert_eq!(*settled_as("container", with()).processors.unwrap().storage_read_bytes, None);
    }

    #[test]
    fn a_weight_is_told_with_the_disks_that_the_group_used() {
        let fake = fake(V2, "0::/vm\n")
            .file("/c/io.cost.qos", "8:0 enable=1 ctrl=auto\n")
            .file("/c/vm/io.weight", "default 300\n")
            .file("/c/vm/io.stat", "8:0 rbytes=1 wbytes=0 rios=1 wios=0\n253:0 rbytes=1 wbytes=0 rios=1 wios=0\n")
            .file("/sys/dev/block/8:0/uevent", "DEVNAME=sda\n")
            .file("/sys/dev/block/8:0/queue/scheduler", "[none] mq-deadline\n")
            .file("/sys/dev/block/253:0/uevent", "DEVNAME=dm-0\n")
            .file("/sys/dev/block/253:0/queue/scheduler", "none\n")
            .file("/sys/dev/block/253:0/slaves/sda", "");
        let io = settled(fake).processors.unwrap().io_weight.value().clone().unwrap();
        let disk = WeightedDisk { name: "sda".into(), number: "8:0".into(), scheduler: "none".into(), iocost: true };
        assert_eq!(io, IoWeight { weight: 300, v1: false, disks: vec![disk] });
    }

    #[test]
    fn version_1_limits_of_writes_are_noted_with_the_disks() {
        let with = |limit: &str| {
            let fake = fake(V1, "4:blkio:/vm\n").file("/b/vm/blkio.throttle.write_bps_device", limit);
            *settled(fake).disks[0].details.writes_uncharged
        };
        assert_eq!((with("8:0 1048576\n"), with("")), (Some(true), None));
    }
}
