#![allow(clippy::unwrap_used)]
use vmio_node::Fake;

use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A process with these namespaces.
fn process(fake: Fake, pid: u32, program: &str, cgroup: &str, spaces: (&str, &str, &str), inner: u32) -> Fake {
    let dir = format!("/proc/{pid}");
    fake.file(format!("{dir}/comm"), format!("{program}\n"))
        .file(format!("{dir}/cmdline"), format!("{program}\0-x\0"))
        .file(format!("{dir}/cgroup"), format!("0::{cgroup}\n"))
        .file(format!("{dir}/status"), format!("Name:\t{program}\nNSpid:\t{pid}\t{inner}\n"))
        .file(format!("{dir}/task/{pid}/status"), format!("Name:\t{program}\nCpus_allowed_list:\t0-1\n"))
        .symlink(format!("{dir}/ns/pid"), format!("pid:[{}]", spaces.0))
        .symlink(format!("{dir}/ns/mnt"), format!("mnt:[{}]", spaces.1))
        .symlink(format!("{dir}/ns/net"), format!("net:[{}]", spaces.2))
}

fn host() -> Fake {
    let fake = Fake::new("fake")
        .symlink("/proc/self/ns/pid", "pid:[1]")
        .symlink("/proc/self/ns/mnt", "mnt:[1]")
        .symlink("/proc/self/ns/net", "net:[1]")
        .file("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    process(fake, 1, "init", "/init.scope", ("1", "1", "1"), 1)
}

#[test]
fn a_container_is_one_guest_with_its_root_its_veth_and_its_limits() {
    let group = format!("/system.slice/docker-{ID}.scope");
    let fake = process(host(), 30, "nginx", &group, ("3", "3", "3"), 1);
    let fake = process(fake, 31, "worker", &group, ("3", "3", "3"), 7)
        .file(
            "/proc/30/mountinfo",
            "50 40 0:51 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/var/lib/docker/overlay2/x/diff,workdir=/w\n\
             51 50 0:52 / /proc rw - proc proc rw\n",
        )
        .file(format!("/sys/fs/cgroup{group}/io.max"), "254:0 rbps=1048576 wbps=max riops=max wiops=120\n")
        .file(format!("/sys/fs/cgroup{group}/cpu.max"), "50000 100000\n")
        .file(format!("/sys/fs/cgroup{group}/memory.max"), "268435456\n")
        .file("/proc/30/root/sys/class/net/eth0/ifindex", "2\n")
        .file("/proc/30/root/sys/class/net/eth0/iflink", "9\n")
        .file("/proc/30/root/sys/class/net/eth0/mtu", "1450\n")
        .file("/proc/30/root/sys/class/net/lo/iflink", "1\n")
        .file("/sys/class/net/veth1/ifindex", "9\n")
        .file("/sys/class/net/veth1/mtu", "1500\n")
        .symlink("/sys/class/net/veth1/master", "../docker0");
    let guests = Container.running(&HostView::new(&fake)).guests;
    let [guest] = &guests[..] else { panic!("{guests:?}") };
    assert_eq!((guest.name.as_str(), guest.pid, guest.ids["engine"].as_str()), ("0123456789ab", Some(30), "docker"));
    assert_eq!((guest.ids["container"].as_str(), guest.ids["processes"].as_str()), (ID, "2"));
    let disk = &guest.disks[0];
    assert_eq!(disk.details.storage.as_deref(), Some("overlay"));
    assert_eq!(disk.place.source.as_deref(), Some("/var/lib/docker/overlay2/x/diff"));
    let limits = [
        "1048576 bytes/s of reads on 254:0 by its control group (io.max)",
        "120 IOPS of writes on 254:0 by its control group (io.max)",
    ];
    assert_eq!(*disk.details.limits, limits);
    let own = guest.processors.as_ref().unwrap();
    assert_eq!((*own.quota_cpus, *own.memory_bytes), (Some(0.5), Some(256 << 20)));
    let nic = &guest.nics[0];
    assert_eq!((nic.interface.as_deref(), nic.bridge.as_deref()), (Some("veth1"), Some("docker0")));
    assert_eq!((guest.nics.len(), *nic.mtu_bytes, *nic.guest_mtu_bytes), (1, Some(1500), Some(1450)));
}

#[test]
fn helpers_hypervisors_and_pauses_are_no_containers() {
    let group = format!("/kubepods.slice/cri-containerd-{ID}.scope");
    let other = group.replace("cri-containerd-0", "cri-containerd-1");
    // QEMU in a pod (KubeVirt), a pause container, an engine's helper in our namespaces, a service with a private /tmp.
    let fake = process(host(), 30, "virt-launcher", &group, ("3", "3", "3"), 1);
    let fake = process(fake, 31, "qemu-kvm", &group, ("3", "3", "3"), 2);
    let fake = process(fake, 32, "pause", &other, ("4", "4", "4"), 1);
    let fake = process(fake, 33, "conmon", "/lxc/5", ("1", "1", "1"), 33);
    let fake = process(fake, 34, "apache2", "/system.slice/apache2.service", ("1", "6", "1"), 34);
    assert_eq!(Container.running(&HostView::new(&fake)).guests, []);
}

#[test]
fn what_no_engine_made_is_known_by_its_namespaces() {
    let fake = process(host(), 40, "sh", "/user.slice", ("7", "7", "1"), 1);
    let fake = process(fake, 41, "sleep", "/user.slice", ("7", "8", "1"), 2)
        .file("/proc/40/mountinfo", "50 40 253:4 / / rw - ext4 /dev/mapper/vg-ct rw\n")
        .file("/sys/dev/block/253:4/dm/uuid", "LVM-x\n");
    let guests = Container.running(&HostView::new(&fake)).guests;
    let [guest] = &guests[..] else { panic!("{guests:?}") };
    assert_eq!((guest.name.as_str(), guest.pid, guest.nics.len()), ("namespace 7", Some(40), 0));
    assert_eq!(guest.disks[0].details.storage.as_deref(), Some("lvm"));
    assert_eq!(guest.disks[0].place.source.as_deref(), Some("/dev/mapper/vg-ct"));
}

#[test]
fn limits_of_version_1_groups_are_read() {
    let fake = Fake::new("fake")
        .file(
            "/proc/self/mountinfo",
            "31 23 0:28 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n31 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        )
        .file("/proc/9/cgroup", "7:blkio:/lxc/5\n4:memory:/lxc/5\n0::/\n")
        .file("/sys/fs/cgroup/blkio/lxc/5/blkio.throttle.write_bps_device", "254:0 1048576\n")
        .file("/sys/fs/cgroup/memory/lxc/5/memory.limit_in_bytes", "9223372036854771712\n");
    let look = HostView::new(&fake);
    let process = Process::new(&look, 9, &[]);
    let expected = "1048576 bytes/s of writes on 254:0 by its control group (blkio.throttle.write_bps_device)";
    assert_eq!(limits::io(&process), [expected]);
    assert_eq!(limits::memory_bytes(&process), None);
}

/// Proxmox sets the limits of an LXC container at its group; its first process is in a group below.
#[test]
fn a_limit_above_the_group_of_the_first_process_is_the_containers() {
    let fake = process(host(), 30, "systemd", "/lxc/101/ns/init.scope", ("3", "3", "3"), 1)
        .file("/sys/fs/cgroup/lxc/101/memory.max", "536870912\n")
        .file("/sys/fs/cgroup/lxc/101/cpu.max", "200000 100000\n")
        .file("/sys/fs/cgroup/lxc/101/ns/init.scope/memory.max", "max\n")
        .file("/sys/fs/cgroup/lxc/101/ns/init.scope/cpu.max", "max 100000\n");
    let guests = Container.running(&HostView::new(&fake)).guests;
    let own = guests[0].processors.as_ref().unwrap();
    assert_eq!((*own.quota_cpus, *own.memory_bytes), (Some(2.0), Some(512 << 20)));
}

#[test]
fn the_upper_directory_of_an_overlay_is_named_as_it_is() {
    let table = "50 40 0:51 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/my\\040data\\0541/diff,workdir=/w\n";
    let fake = process(host(), 30, "sh", "/lxc/7", ("3", "3", "3"), 1).file("/proc/30/mountinfo", table);
    let guests = Container.running(&HostView::new(&fake)).guests;
    assert_eq!(guests[0].disks[0].place.source.as_deref(), Some("/my data,1/diff"));
}

/// A process that shows its namespaces to nobody: PID 1 of a sandbox.
#[test]
fn what_may_not_be_read_is_named_with_what_follows_and_root_is_not_told_to_be_root() {
    let guarded = |fake: Fake, pid: u32, cgroup: &str| {
        fake.file(format!("/proc/{pid}/comm"), "process_api\n")
            .file(format!("/proc/{pid}/cmdline"), "/process_api\0")
            .file(format!("/proc/{pid}/cgroup"), format!("0::{cgroup}\n"))
            .refused(format!("/proc/{pid}/ns/pid"))
            .refused(format!("/proc/{pid}/ns/mnt"))
    };
    let unread = |fake: Fake| Container.running(&HostView::new(&fake)).unread;
    let status = |uid: u32| format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t000001fffeffffff\n");
    let host = || {
        process(Fake::new("fake").file("/proc/self/status", status(0)), 2, "sh", "/", ("1", "1", "1"), 2)
            .symlink("/proc/self/ns/mnt", "mnt:[1]")
    };
    let [one] = &unread(guarded(host(), 1, "/"))[..] else { panic!("one thing is not read") };
    assert_eq!(one.what, "namespaces of process 1 (process_api): whether it is a container");
    assert!(one.why.starts_with("/proc/1/ns/mnt may not be read; containers whose"), "{one:?}");
    assert!(one.mend.contains("outside of this container or sandbox"), "{one:?}");
    assert!(!one.mend.contains("root") && !one.mend.contains("capabilities"), "{one:?}");
    let several = unread((3..8).fold(guarded(host(), 1, "/"), |fake, pid| guarded(fake, pid, "/")));
    let named = "6 processes (pid 1 process_api, 3 process_api, 4 process_api, …): whether they are in a container";
    assert_eq!(several[0].what, format!("namespaces of {named}"));
    assert_eq!(
        &*unread(guarded(host(), 1, "/").file("/proc/self/status", status(7)))[0].mend,
        "run as root, with all of its capabilities"
    );
    // An engine's name in the control group is enough.
    let fake = guarded(host(), 30, &format!("/system.slice/docker-{ID}.scope"));
    let found = Container.running(&HostView::new(&fake));
    assert_eq!((found.guests.len(), found.unread), (1, vec![]));
}
