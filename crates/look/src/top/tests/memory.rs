//! The limit of a guest's memory, and how much of the time it waits for memory.

use vmio_model::top::load::MemoryLimit;

use super::*;

#[test]
fn a_limit_above_and_waits_of_its_own_group() {
    let slice = "/sys/fs/cgroup/machine.slice";
    let scope = format!("{slice}/machine-qemu-a.scope");
    let waited = |us: u64| format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={us}\nfull avg10=0.00 total=0\n");
    let with = |listed: &str| {
        machine()
            .file("/proc/self/mountinfo", "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
            .file(format!("{slice}/memory.max"), "67108864\n")
            .file(format!("{slice}/memory.current"), "65011712\n")
            .file(format!("{scope}/memory.max"), "max\n")
            .file(format!("{scope}/memory.swap.current"), "1048576\n")
            .file(format!("{scope}/memory.pressure"), waited(5))
            .file(format!("{scope}/cgroup.procs"), listed)
            .file("/proc/100/status", "Name:\tqemu\nVmRSS:\t1024 kB\nVmSwap:\t64 kB\n")
    };
    let after = |fake: &Fake| {
        let mut sampler = Sampler::new(fake, false, untraced());
        sampler.tick();
        fake.set(format!("{scope}/memory.pressure"), waited(3_000_005));
        // Each guest's memory is read once in ten readings.
        (1..=9).for_each(|n| {
            work(fake, n);
            sampler.tick();
        });
        work(fake, 10);
        let interval = sampler.tick().unwrap();
        let a = named(&interval, "a");
        (a.memory.unwrap(), a.memory_stalled_ratio)
    };
    let (memory, stalled) = after(&with("100\n"));
    assert_eq!(memory.limit, Some(MemoryLimit { used_bytes: 62 << 20, limit_bytes: 64 << 20 }));
    // Shared memory is in the group's count alone.
    assert_eq!((memory.resident_bytes, memory.swapped_bytes), (1 << 20, Some(1 << 20)));
    assert!(stalled.is_some_and(|ratio| (ratio - 3.0 / 9.0).abs() < 1e-6), "{stalled:?}");
    // Others in its group may be who waits.
    let (memory, stalled) = after(&with("100\n7\n"));
    assert_eq!((memory.swapped_bytes, stalled), (Some(64 << 10), None));
}

#[test]
fn systemd_is_below_the_group_of_its_container() {
    let of = |path: &str| {
        let mut path = path.to_owned();
        crate::top::member::of_container(&mut path);
        path
    };
    assert_eq!(of("/lxc.payload.web/init.scope"), "/lxc.payload.web");
    assert_eq!((of("/docker/0123"), of("/init.scope")), ("/docker/0123".to_owned(), "/init.scope".to_owned()));
}
