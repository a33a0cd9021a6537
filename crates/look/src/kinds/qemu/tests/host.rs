//! Facts of the host about a guest: taps, threads, control groups.

use vmio_model::facts::{Source, way_shown};

use super::*;

/// A guest with a tap that is a port of a bridge.
fn on_a_bridge() -> Fake {
    host(&args("libvirt-9-q35"))
        .file("/proc/812/fdinfo/33", "pos:\t0\nflags:\t02104002\niff:\tvnet7\n")
        .file("/sys/class/net/vnet7/mtu", "1500\n")
        .file("/sys/class/net/virbr0/mtu", "9000\n")
        .file("/sys/class/net/virbr0/bridge/stp_state", "0\n")
        .symlink("/sys/class/net/vnet7/master", "../../virtual/net/virbr0")
        .file("/dev/vhost-net", "")
}

#[test]
fn what_the_firewall_sees_of_a_bridge_is_the_namespaces_and_its_own() {
    let found = |fake: Fake| *read(&fake).nics[0].bridge_netfilter;
    let whole = |on: &str| {
        on_a_bridge()
            .file("/proc/sys/net/bridge/bridge-nf-call-iptables", on)
            .file("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "0\n")
    };
    let own = |fake: Fake| fake.file("/sys/class/net/virbr0/bridge/nf_call_ip6tables", "1\n");
    let elsewhere = |fake: Fake| {
        fake.symlink("/proc/self/ns/net", "net:[1]")
            .symlink("/proc/812/ns/net", "net:[2]")
            .file("/proc/812/root/sys/class/net/vnet7/mtu", "1500\n")
            .file("/proc/812/root/sys/class/net/virbr0/mtu", "1500\n")
            .file("/proc/812/root/sys/class/net/virbr0/bridge/stp_state", "0\n")
            .symlink("/proc/812/root/sys/class/net/vnet7/master", "../../virtual/net/virbr0")
    };
    assert_eq!((found(whole("1\n")), found(whole("0\n"))), (Some(true), Some(false)));
    assert_eq!(found(own(whole("0\n"))), Some(true));
    assert_eq!(
        (found(on_a_bridge()), found(own(on_a_bridge()))),
        (Some(false), Some(false)),
        "no module, no netfilter"
    );
    // The namespace's switch is not visible from here; the bridge's own is.
    assert_eq!(found(elsewhere(whole("1\n"))), None);
    let own = elsewhere(whole("0\n")).file("/proc/812/root/sys/class/net/virbr0/bridge/nf_call_iptables", "1\n");
    assert_eq!(found(own), Some(true));
}

#[test]
fn taps_are_found_by_descriptor_and_their_bridge_in_sys() {
    let own = read(&on_a_bridge());
    let nic = &own.nics[0];
    assert_eq!((text(&nic.interface), text(&nic.bridge)), ("vnet7", "virbr0"));
    assert_eq!((*nic.mtu_bytes, *nic.bridge_mtu_bytes, *nic.vhost_here), (Some(1500), Some(9000), Some(true)));
    assert_eq!(way_shown(&nic.way), "vnet7 1500, virbr0 9000");
    assert_eq!(nic.read()["interface"], "/proc/812/fdinfo/33");
    assert_eq!(nic.send_buffer_bytes, Some(i32::MAX as u64));

    // In another network namespace whose interfaces are not visible here.
    let away = host(&args("libvirt-9-q35"))
        .file("/proc/812/fdinfo/33", "iff:\ttap0\n")
        .symlink("/proc/self/ns/net", "net:[1]")
        .symlink("/proc/812/ns/net", "net:[2]")
        .file("/proc/self/status", "Uid:\t0\t0\t0\t0\n")
        .file("/sys/class/net/tap0/mtu", "1500\n");
    let own = read(&away);
    assert_eq!((text(&own.nics[0].interface), *own.nics[0].mtu_bytes), ("tap0", None));
    let told = own.unread.iter().find(|u| u.what.contains("bridge and MTU of tap0"));
    let told = told.unwrap_or_else(|| panic!("{:?}", own.unread));
    // Not by a `/sys`, which stays that of the namespace in which it was mounted.
    assert_eq!(&*told.mend, "look at it there: nsenter -t 812 -n ip -d link show dev tap0");
    // Its own sysfs shows them.
    let inside = away
        .file("/proc/812/root/sys/class/net/tap0/mtu", "1450\n")
        .file("/proc/812/net/dev", "Inter-|\n face |\n  tap0: 1 2\n");
    assert_eq!(read(&inside).nics[0].mtu_bytes, Some(1450));
    // A directory with other interfaces is rejected.
    let wrong = inside.file("/proc/812/net/dev", "Inter-|\n face |\n  eth0: 1 2\n");
    assert_eq!(read(&wrong).nics[0].mtu_bytes, None);
}

#[test]
fn threads_have_their_role_and_processors() {
    let mut fake = host(&args("libvirt-8-tuned"))
        .file("/sys/devices/system/cpu/online", "0-7\n")
        .file("/proc/900/comm", "vhost-812\n")
        .file("/proc/900/cmdline", "")
        .file("/proc/900/status", "Name:\tvhost-812\nCpus_allowed_list:\t0-7\n");
    let threads =
        [(812, "qemu-kvm", "0-7"), (813, "qemu-kvm", "0-7"), (814, "IO iothread1", "6"), (815, "IO iothread2", "7")];
    for (tid, comm, cpus) in threads {
        fake = thread(fake, tid, comm, cpus);
    }
    for n in 0..4u32 {
        fake = thread(fake, 820 + n, &format!("CPU {n}/KVM"), &n.to_string());
    }
    let cpu = read(&thread(fake, 830, "worker", "0-1")).processors.unwrap();
    let seen: Vec<_> = cpu.threads.iter().map(|t| format!("{} {} {} {:?}", t.tid, t.role, t.name, t.cpus)).collect();
    let all = "[0, 1, 2, 3, 4, 5, 6, 7]";
    let expected = [
        format!("812 main  {all}"),
        format!("813 other  {all}"),
        "814 iothread iothread1 [6]".to_owned(),
        "815 iothread iothread2 [7]".to_owned(),
        "820 vcpu 0 [0]".to_owned(),
        "821 vcpu 1 [1]".to_owned(),
        "822 vcpu 2 [2]".to_owned(),
        "823 vcpu 3 [3]".to_owned(),
        "830 worker  [0, 1]".to_owned(),
        format!("900 vhost  {all}"),
    ];
    assert_eq!(seen, expected);
    assert_eq!((*cpu.vcpus, cpu.host.len()), (Some(4), 8));
}

#[test]
fn io_threads_with_long_names_are_known_by_their_order() {
    let named = |rcu: &str, extra: bool| {
        let mut fake = host(&args("proxmox-7"));
        for (tid, comm) in [(812, "kvm"), (813, rcu), (814, "kvm"), (815, "kvm"), (816, "CPU 0/KVM")] {
            fake = thread(fake, tid, comm, "0");
        }
        read(&if extra { thread(fake, 817, "kvm", "0") } else { fake })
    };
    let threads = |guest: &Guest| -> Vec<String> {
        let all = guest.processors.as_ref().unwrap().threads.iter();
        all.filter(|t| t.role == "iothread").map(|t| format!("{} {}", t.tid, t.name)).collect()
    };
    // QEMU may or may not name the RCU thread.
    for rcu in ["kvm", "call_rcu"] {
        assert_eq!(threads(&named(rcu, false)), ["814 iothread-virtioscsi0", "815 iothread-virtio1"]);
    }
    let unsure = named("kvm", true);
    assert_eq!(threads(&unsure), [""; 0]);
    assert!(unsure.unread.iter().any(|u| u.why.contains("too long")), "{:?}", unsure.unread);
}

/// The monitor's thread is named like an I/O thread, but no command can pin it as one.
#[test]
fn the_monitors_own_thread_is_no_io_thread() {
    let of = |more: &str| -> Vec<String> {
        let line = format!("qemu-system-x86_64 -name web1,debug-threads=on -qmp unix:/q,server=on,wait=off {more}");
        let mut fake = host(&line.split(' ').map(str::to_owned).collect::<Vec<String>>());
        for (tid, comm) in [(812, "qemu-system-x86"), (813, "IO mon_iothread"), (816, "CPU 0/KVM")] {
            fake = thread(fake, tid, comm, "0");
        }
        let threads = read(&fake).processors.unwrap().threads;
        threads.iter().map(|t| format!("{} {}", t.role, t.name)).collect()
    };
    assert_eq!(of("-smp 1"), ["main ", "other ", "vcpu 0"]);
    let own = "-object iothread,id=mon_iothread -device virtio-blk-pci,drive=d,iothread=mon_iothread";
    assert_eq!(of(own), ["main ", "iothread mon_iothread", "vcpu 0"]);
}

#[test]
fn quotas_of_both_kinds_of_control_groups_count() {
    let v2 = |max: &str, above: &str| {
        let scope = "machine.slice/machine-qemu.scope";
        let fake = host(&args("libvirt-9-q35"))
            .file("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
            .file("/proc/812/cgroup", format!("0::/{scope}/libvirt/emulator\n"))
            .file("/proc/812/task/820/cgroup", format!("0::/{scope}/libvirt/vcpu0\n"))
            .file(format!("/sys/fs/cgroup/{scope}/cpu.max"), format!("{above}\n"))
            .file(format!("/sys/fs/cgroup/{scope}/libvirt/emulator/cpu.max"), "1000 100000\n")
            .file(format!("/sys/fs/cgroup/{scope}/libvirt/vcpu0/cpu.max"), format!("{max}\n"));
        read(&thread(fake, 820, "CPU 0/KVM", "0")).processors.unwrap().quota_cpus
    };
    assert_eq!(v2("max 100000", "150000 100000"), Some(1.5));
    assert_eq!(v2("50000 100000", "150000 100000"), Some(0.5));
    assert_eq!(v2("max 100000", "max 100000"), None);
    let v1 = host(&args("libvirt-9-q35"))
        .file("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
        .file("/proc/812/cgroup", "4:memory:/x\n3:cpu:/vm/a\n0::/\n")
        .file("/sys/fs/cgroup/cpu/vm/a/cpu.cfs_quota_us", "-1\n")
        .file("/sys/fs/cgroup/cpu/vm/a/cpu.cfs_period_us", "100000\n")
        .file("/sys/fs/cgroup/cpu/vm/cpu.cfs_quota_us", "25000\n")
        .file("/sys/fs/cgroup/cpu/vm/cpu.cfs_period_us", "100000\n");
    let cpu = read(&v1).processors.unwrap();
    assert_eq!(
        (*cpu.quota_cpus, cpu.quota_cpus.source().unwrap()),
        (Some(0.25), &Source::File("/sys/fs/cgroup/cpu/vm/cpu.cfs_quota_us".into()))
    );
}

#[test]
fn what_became_of_a_quota_is_read_where_it_is_set() {
    let scope = "machine.slice/machine-qemu.scope";
    let dir = format!("/sys/fs/cgroup/{scope}");
    let stat = |throttled: u32| format!("nr_periods 3400\nnr_throttled {throttled}\nthrottled_usec 800000\n");
    let with = |whole: &str, vcpu: &str| {
        let fake = host(&args("libvirt-9-q35"))
            .file("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
            .file("/proc/812/cgroup", format!("0::/{scope}/libvirt/emulator\n"))
            .file("/proc/812/task/820/cgroup", format!("0::/{scope}/libvirt/vcpu0\n"))
            .file(format!("{dir}/cpu.max"), format!("{whole} 100000\n"))
            .file(format!("{dir}/cpu.stat"), stat(12))
            .file(format!("{dir}/libvirt/vcpu0/cpu.max"), format!("{vcpu} 100000\n"))
            .file(format!("{dir}/libvirt/vcpu0/cpu.stat"), stat(34));
        let own = read(&thread(fake, 820, "CPU 0/KVM", "0")).processors.unwrap();
        (*own.quota_of_vcpus, own.throttled.map(|t| t.throttled))
    };
    assert_eq!(with("150000", "max"), (Some(false), Some(12)));
    assert_eq!(with("max", "50000"), (Some(true), Some(34)));
    assert_eq!(with("max", "max"), (None, None));
}

#[test]
fn a_balloon_reports_free_pages_where_it_is_told_to() {
    let of = |more: &str| {
        let line = format!("qemu-system-x86_64 -name web1 {more}");
        let fake = host(&line.split(' ').map(str::to_owned).collect::<Vec<String>>());
        *read(&fake).processors.unwrap().free_page_reporting
    };
    assert_eq!(of("-S"), None);
    assert_eq!(of("-device virtio-balloon-pci,id=balloon0"), Some(false));
    assert_eq!(of("-device virtio-balloon-pci,id=balloon0,free-page-reporting=on"), Some(true));
}

#[test]
fn memory_is_known_by_node_where_there_are_several() {
    let two = |fixture: &str, procs: &str| {
        host(&args(fixture))
            .file("/sys/devices/system/cpu/online", "0-1\n")
            .file("/sys/devices/system/node/node0/cpulist", "0\n")
            .file("/sys/devices/system/node/node1/cpulist", "1\n")
            .file("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
            .file("/proc/812/cgroup", "0::/vm/a/emulator\n")
            .file("/sys/fs/cgroup/vm/a/cgroup.procs", procs)
            .file("/sys/fs/cgroup/vm/a/memory.numa_stat", "anon N0=8192 N1=4096\nfile N0=9 N1=9\nshmem N0=0 N1=100\n")
    };
    let by_node = |fake: &Fake| {
        let mut own = read(fake);
        let before = own.unread.clone();
        look_closer(&HostView::new(fake), &mut own);
        assert_eq!(own.unread, before);
        own.processors.unwrap().memory_by_node.value().clone().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(by_node(&two("libvirt-9-q35", "812\n")), [(0, 8192), (1, 4196)]);
    // A shared control group is not reported.
    assert_eq!(by_node(&two("libvirt-9-q35", "812\n900\n")), []);
    let v1 = two("libvirt-9-q35", "812\n")
        .file("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
        .file("/proc/812/cgroup", "5:memory:/vm\n")
        .file("/sys/fs/cgroup/memory/vm/cgroup.procs", "812\n")
        .file(
            "/sys/fs/cgroup/memory/vm/memory.numa_stat",
            "total=9 N0=5 N1=4\nfile=1 N0=1 N1=0\nanon=6 N0=2 N1=4\nunevictable=2 N0=2 N1=0\nhierarchical_anon=6 N0=9 N1=9\n",
        );
    assert_eq!(by_node(&v1), [(0, 4 * 4096), (1, 4 * 4096)]);
}
