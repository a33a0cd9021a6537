#![allow(clippy::unwrap_used)]
use super::*;
use crate::{Fake, Local};

const V1: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                  32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                  33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                  34 31 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
const V2: &str = "31 23 0:28 / /my\\040groups rw - cgroup2 cgroup2 rw\n";

fn hierarchies(table: &str) -> Hierarchies {
    Hierarchies::among(mounts::parse(table.as_bytes()))
}

fn dir(table: &str, cgroup: &str, controller: &str) -> Option<String> {
    hierarchies(table).group(cgroup, controller).map(|g| g.dir.display().to_string())
}

#[test]
fn group_of_a_process() {
    let both = "5:cpu,cpuacct:/vm/1\n4:memory:/vm\n1:name=systemd:/s\n0::/two/1\n";
    assert_eq!(dir(V1, both, "cpuacct").as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct/vm/1"));
    assert_eq!(dir(V1, both, "memory").as_deref(), Some("/sys/fs/cgroup/memory/vm"));
    // The controller is in no hierarchy of version 1: it is in version 2.
    assert_eq!(dir(V1, both, "io").as_deref(), Some("/sys/fs/cgroup/unified/two/1"));
    assert!(hierarchies(V1).group(both, "io").unwrap().v2 && !hierarchies(V1).group(both, "cpu").unwrap().v2);
    // A blank in the path of a mount is escaped; `acct` is no controller of `cpuacct`.
    assert_eq!(dir(V2, "0::/a b\n", "memory").as_deref(), Some("/my groups/a b"));
    assert_eq!((dir(V2, "", "memory"), hierarchies(V1).v1("acct")), (None, None));
    assert!(Hierarchies::of(&Fake::new("fake")).is_err());
    // Of this machine, whatever it has.
    let own = Local::new().read_text(Path::new("/proc/self/cgroup")).unwrap_or_default();
    if let Some(group) = Hierarchies::of(&Local::new()).unwrap().group(&own, "memory") {
        assert!(group.dir.is_dir(), "{group:?}");
    }
}

/// In a container a part of the hierarchy is mounted, and the paths of processes are of all of it.
#[test]
fn paths_in_a_partly_mounted_hierarchy() {
    let part = "33 31 0:30 /docker/1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    assert_eq!(dir(part, "4:memory:/docker/1\n", "memory").as_deref(), Some("/sys/fs/cgroup/memory"));
    assert_eq!(dir(part, "4:memory:/docker/1/in\n", "memory").as_deref(), Some("/sys/fs/cgroup/memory/in"));
    for elsewhere in ["4:memory:/docker/12\n", "4:memory:/\n"] {
        assert_eq!(dir(part, elsewhere, "memory"), None, "another group is shown there");
    }
    assert_eq!(dir(V2, "0::/../other.slice\n", "memory"), None, "it is outside of our namespace");
}

#[test]
fn a_limit_above_holds_too() {
    let group =
        |fake: &Fake, cgroup: &str, controller: &str| Hierarchies::of(fake).unwrap().group(cgroup, controller).unwrap();
    let two = Fake::new("fake")
        .file("/proc/self/mountinfo", "31 23 0:28 / /c rw - cgroup2 cgroup2 rw\n")
        .file("/c/pod/cpu.max", "50000 100000\n")
        .file("/c/pod/memory.max", "1048576\n")
        .file("/c/pod/one/cpu.max", "max 100000\n")
        .file("/c/pod/one/memory.max", "max\n")
        .file("/c/pod/two/cpu.max", "20000 100000\n")
        .file("/c/pod/two/memory.max", "4096\n");
    let of = |path: &str| group(&two, &format!("0::{path}\n"), "cpu");
    assert_eq!(of("/pod/one").own_cpu_limit(&two), None);
    assert_eq!(of("/pod/one").cpu_limit(&two), Some((0.5, "/c/pod/cpu.max".into())));
    assert_eq!(of("/pod/two").cpu_limit(&two), Some((0.2, "/c/pod/two/cpu.max".into())));
    assert_eq!(of("/pod/one").memory_limit_bytes(&two), Some((1 << 20, "/c/pod/memory.max".into())));
    assert_eq!(of("/pod/two").memory_limit_bytes(&two), Some((4096, "/c/pod/two/memory.max".into())));
    assert!(of("/").cpu_limit(&two).is_none() && of("/").is_first() && of("/").parent().is_none());
    let one = |hierarchy: &str| {
        Fake::new("fake")
            .file("/proc/self/mountinfo", "33 31 0:30 / /m rw - cgroup cgroup rw,memory,cpu\n")
            .file("/m/cpu.cfs_quota_us", "-1\n")
            .file("/m/memory.limit_in_bytes", "9223372036854771712\n")
            .file("/m/lxc/cpu.cfs_quota_us", "150000\n")
            .file("/m/lxc/cpu.cfs_period_us", "100000\n")
            .file("/m/lxc/memory.limit_in_bytes", "1048576\n")
            .file("/m/lxc/memory.use_hierarchy", hierarchy)
            .file("/m/lxc/5/memory.limit_in_bytes", "9223372036854771712\n")
    };
    for (hierarchy, bytes) in [("1\n", Some(1 << 20)), ("0\n", None)] {
        let fake = one(hierarchy);
        let own = group(&fake, "4:memory,cpu:/lxc/5\n", "memory");
        assert_eq!(own.memory_limit_bytes(&fake).map(|l| l.0), bytes, "{hierarchy}");
        assert_eq!(own.cpu_limit(&fake), Some((1.5, "/m/lxc/cpu.cfs_quota_us".into())));
    }
}

#[test]
fn memory_by_node_of_a_lone_process() {
    let fake = |procs: &str| {
        Fake::new("fake")
            .file("/proc/self/mountinfo", "31 23 0:28 / /c rw - cgroup2 cgroup2 rw\n")
            .file("/c/vm/memory.numa_stat", "anon N0=4096 N1=8192\nfile N0=1\nshmem N0=1 N1=0\n")
            .file("/c/vm/cgroup.procs", procs)
    };
    let of = |fake: &Fake| {
        Hierarchies::of(fake).unwrap().group("0::/vm/emulator\n", "memory").unwrap().memory_by_node(fake, 8)
    };
    let (bytes, file) = of(&fake("8\n")).unwrap();
    assert_eq!((bytes, file), ([(0, 4097), (1, 8192)].into(), "/c/vm/memory.numa_stat".into()));
    assert_eq!(of(&fake("8\n9\n")), None);
    assert_eq!(
        numa_stat("total=9 N0=9\nanon=3 N0=1 N1=2\nunevictable=1 N1=1\n", false),
        [(0, 4096), (1, 3 * 4096)].into()
    );
}

#[test]
fn swap_of_a_lone_process() {
    let fake = |procs: &str| {
        Fake::new("fake")
            .file("/proc/self/mountinfo", "31 23 0:28 / /c rw - cgroup2 cgroup2 rw\n")
            .file("/c/vm/memory.swap.current", "8192\n")
            .file("/c/vm/cgroup.procs", procs)
    };
    let of = |fake: &Fake, cgroup: &str| {
        Hierarchies::of(fake).unwrap().group(cgroup, "memory").unwrap().swapped_bytes(fake, 8)
    };
    assert_eq!(of(&fake("8\n"), "0::/vm/emulator\n"), Some((8192, "/c/vm/memory.swap.current".into())));
    assert_eq!(of(&fake("8\n9\n"), "0::/vm\n"), None);
    let one = Fake::new("fake")
        .file("/proc/self/mountinfo", "33 31 0:30 / /m rw - cgroup cgroup rw,memory\n")
        .file("/m/vm/memory.stat", "cache 1\nswap 0\ntotal_cache 1\ntotal_swap 4096\n")
        .file("/m/vm/cgroup.procs", "8\n");
    assert_eq!(of(&one, "4:memory:/vm\n"), Some((4096, "/m/vm/memory.stat".into())));
}

#[test]
fn quotas_that_were_used_up() {
    let fake = Fake::new("fake")
        .file("/c/a/cpu.max", "200000 50000\n")
        .file("/c/a/cpu.stat", "usage_usec 9\nnr_periods 3400\nnr_throttled 12\nthrottled_usec 800000\n")
        .file("/c/off/cpu.max", "200000 100000\n")
        .file("/c/off/cpu.stat", "usage_usec 9\n")
        .file("/m/a/cpu.cfs_period_us", "100000\n")
        .file("/m/a/cpu.stat", "nr_periods 10\nnr_throttled 1\nthrottled_time 7000\n");
    let of = |file: &str| throttled(&fake, Path::new(file));
    let two = Throttled { period_us: 50_000, periods: 3400, throttled: 12, stopped_us: 800_000 };
    let one = Throttled { period_us: 100_000, periods: 10, throttled: 1, stopped_us: 7 };
    assert_eq!((of("/c/a/cpu.max"), of("/m/a/cpu.cfs_quota_us")), (Some(two), Some(one)));
    assert_eq!((of("/c/off/cpu.max"), of("/c/none/cpu.max")), (None, None));
}

#[test]
fn weights_of_io_and_who_holds_them() {
    let of = |fake: &Fake, cgroup: &str| Hierarchies::of(fake).unwrap().group(cgroup, "io").unwrap();
    let two = Fake::new("fake")
        .file("/proc/self/mountinfo", "31 23 0:28 / /c rw - cgroup2 cgroup2 rw\n")
        .file("/c/io.cost.qos", "259:0 enable=1 ctrl=auto\n8:0 enable=0 ctrl=user\n")
        .file("/c/m.slice/io.weight", "default 700\n")
        .file("/c/m.slice/a.scope/io.weight", "default 300\n8:16 200\n")
        .file("/c/m.slice/a.scope/emulator/io.bfq.weight", "default 100\n")
        .file("/c/m.slice/a.scope/emulator/io.stat", "8:0 rbytes=1 wbytes=0 rios=1 wios=0\n8:16 \n");
    let own = of(&two, "0::/m.slice/a.scope/emulator\n");
    assert_eq!(own.io_weight(&two), Some((300, "/c/m.slice/a.scope/io.weight".into())));
    assert_eq!((own.io_devices(&two), own.iocost_devices(&two)), (vec![(8, 0)], vec![(259, 0)]));
    // A slice's weight is of all guests in it.
    assert_eq!(of(&two, "0::/m.slice/b.scope\n").io_weight(&two), None);
    assert_eq!(own.v1_write_limit(&two), None);
    let one = Fake::new("fake")
        .file("/proc/self/mountinfo", "33 31 0:30 / /b rw - cgroup cgroup rw,blkio\n")
        .file("/b/a/blkio.bfq.weight", "100\n")
        .file("/b/a/blkio.weight", "1000\n")
        .file("/b/a/blkio.throttle.io_serviced", "8:0 Read 1\n8:0 Write 2\nTotal 3\n")
        .file("/b/blkio.throttle.write_bps_device", "8:0 1048576\n");
    let own = Hierarchies::of(&one).unwrap().group("4:blkio:/a\n", "blkio").unwrap();
    assert_eq!(own.io_weight(&one), Some((1000, "/b/a/blkio.weight".into())));
    assert_eq!((own.io_devices(&one), own.iocost_devices(&one)), (vec![(8, 0)], vec![]));
    assert_eq!(own.v1_write_limit(&one), Some("/b/blkio.throttle.write_bps_device".into()));
}

#[test]
fn counters_of_groups() {
    let all: Vec<_> =
        io_stat("254:0 rbytes=4096 wbytes=512 rios=1 wios=2 dbytes=8192 dios=3\n8:0 \n8:16 rbytes=x\n").collect();
    let moved =
        Moved { read_ios: 1, read_bytes: 4096, write_ios: 2, write_bytes: 512, discard_ios: 3, discard_bytes: 8192 };
    assert_eq!(all, [((254, 0), moved)]);
    assert_eq!(blkio("254:0 Read 10\n254:0 Write 20\n254:0 Total 30\nTotal 30\n"), [((254, 0), (10, 20))].into());
    assert_eq!(cpu_used_ns("usage_usec 7\nuser_usec 1\n"), Some(7000));
    assert_eq!(cpu_used_ns("user_usec 1\n"), None);
    assert_eq!(throttled_periods("nr_periods 5\nnr_throttled 2\nthrottled_usec 9\n"), Some((5, 2)));
    assert_eq!(throttled_periods("nr_periods 5\n"), None);
}
