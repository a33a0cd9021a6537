//! Every fault that the rules know, planted in a real guest: `vmio scan` names it and nothing else, and
//! finds nothing in the same guest without it. What cannot be planted here is named with the reason.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use crate::help::live;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use vmio_model::rules::{Need, RULES};
use vmio_testbed::net::listens;
use vmio_testbed::process::Companion;
use vmio_testbed::{poll_until, skip};

/// A fault: what a guest has in place of [`SOUND`].
struct Fault {
    /// The rule that it is a fault to.
    rule: &'static str,
    name: &'static str,
    /// What cannot be had without it.
    also: &'static [&'static str],
    machine: &'static str,
    prepare: &'static str,
    disk: &'static str,
    net: &'static str,
    after: After,
}

/// What is done to a guest that is up.
enum After {
    Nothing,
    /// Its vCPU and its I/O thread are bound to one processor.
    Pin,
    /// Half of a processor's time.
    Quota,
    /// A processor's time, which is its vCPU's.
    WholeQuota,
    /// The name of its image is taken away.
    Delete,
}

/// A guest without a fault, but for being emulated.
const SOUND: Fault =
    Fault { rule: "", name: "sound", also: &[], machine: TCG, prepare: "", disk: DISK, net: "", after: After::Nothing };
const TCG: &str = "-machine q35 -accel tcg -cpu max -smp 1";
/// With a flag off that a host which is a guest itself cannot give.
const KVM: &str = "-machine q35 -accel kvm -cpu host,-arch-capabilities -smp 1";
const DISK: &str = "-object iothread,id=io0 \
    -drive file={raw},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap \
    -device virtio-blk-pci,drive=d0,id=disk0,iothread=io0";
const BRIDGE: &str = "ip link add br0 type bridge && ip tuntap add tap0 mode tap && ip link set tap0 master br0 &&";
/// A bridge that passes less by its other port, the end of a pair; its own MTU follows that.
const OTHER_MTU: &str = "ip link add br0 type bridge && ip tuntap add tap0 mode tap && ip link set tap0 master br0 && \
    ip link add up0 mtu 1400 type veth peer name up1 && ip link set up0 master br0 &&";
/// As an overlay network sets a pod's tap up, whose guest is not told.
const NARROW_TAP: &str = "ip link add br0 mtu 1450 type bridge && ip tuntap add tap0 mode tap vnet_hdr && \
    ip link set tap0 mtu 1450 master br0 &&";
const TAP: &str =
    "-netdev tap,id=n0,ifname=tap0,script=no,downscript=no{vhost} -device virtio-net-pci,netdev=n0,id=net0";

/// A virtio disk with an I/O thread: its image, and what its drive is told.
macro_rules! threaded {
    ($drive:expr) => {
        concat!(
            "-object iothread,id=io0 -drive if=none,id=d0,file=",
            $drive,
            " -device virtio-blk-pci,drive=d0,iothread=io0"
        )
    };
}
/// A sound drive, with its device.
macro_rules! raw {
    ($device:expr) => {
        concat!("-drive file={raw},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap ", $device)
    };
}

/// The disk through a controller or with settings of its own.
const fn disk(rule: &'static str, name: &'static str, disk: &'static str) -> Fault {
    Fault { rule, name, disk, ..SOUND }
}

/// The network on a tap in a bridge.
const fn net(rule: &'static str, name: &'static str, net: &'static str) -> Fault {
    Fault { rule, name, net, prepare: BRIDGE, ..SOUND }
}

const FAULTS: &[Fault] = &[
    disk("emulated-driver", "lsi", raw!("-device lsi53c895a,id=hba -device scsi-hd,drive=d0,bus=hba.0")),
    disk("emulated-driver", "ahci", raw!("-device ahci,id=hba -device ide-hd,drive=d0,bus=hba.0")),
    Fault {
        machine: "-machine pc -accel tcg -cpu max -smp 1",
        ..disk("emulated-driver", "ide", raw!("-device ide-hd,drive=d0"))
    },
    disk("host-page-cache", "writeback", threaded!("{raw},format=raw,cache=writeback,aio=threads,discard=unmap")),
    disk("host-page-cache", "writethrough", threaded!("{raw},format=raw,cache=writethrough,aio=threads,discard=unmap")),
    disk("host-page-cache", "directsync", threaded!("{raw},format=raw,cache=directsync,aio=native,discard=unmap")),
    disk("unsafe-cache", "unsafe", threaded!("{raw},format=raw,cache=unsafe,aio=threads,discard=unmap")),
    disk("missing-iothread", "main-loop", raw!("-device virtio-blk-pci,drive=d0")),
    disk("sparse-file", "sparse", threaded!("{sparse},format=raw,cache=none,aio=io_uring")),
    disk(
        "qcow2-l2-cache",
        "small-l2",
        threaded!("{large},format=qcow2,cache=none,aio=io_uring,discard=unmap,l2-cache-size=65536"),
    ),
    disk("backing-chain", "chain", threaded!("{chain},format=qcow2,cache=none,aio=io_uring,discard=unmap")),
    disk("exchange-format", "vhd", threaded!("{vpc},format=vpc,cache=none,aio=io_uring,discard=unmap")),
    disk("sector-size-not-passed", "4k-sectors", threaded!("{loop4k},format=raw,cache=none,aio=native,discard=unmap")),
    disk("no-discard", "no-discard", threaded!("{qcow2},format=qcow2,cache=none,aio=io_uring")),
    disk("network-disk-on-host", "nbd", threaded!("{nbd},format=raw,cache=none,discard=unmap")),
    Fault { also: &["shared-iothread"], ..disk("virtio-choice", "many", "{many}") },
    Fault {
        also: &["sparse-file"],
        ..disk("native-aio-that-waits", "waits", threaded!("{sparse},format=raw,cache=none,aio=native"))
    },
    disk(
        "limit-in-force",
        "limit",
        threaded!("{raw},format=raw,cache=none,aio=native,discard=unmap,throttling.iops-total=500"),
    ),
    disk(
        "shared-iothread",
        "shared",
        concat!(
            threaded!("{raw},format=raw,cache=none,aio=native,discard=unmap"),
            " -drive file={more},format=raw,if=none,id=d1,cache=none,aio=native,discard=unmap \
             -device virtio-blk-pci,drive=d1,iothread=io0"
        ),
    ),
    disk("threads-with-direct", "threads", threaded!("{loop},format=raw,cache=none,aio=threads,discard=unmap")),
    Fault {
        machine: "-machine q35 -accel tcg -cpu max -smp 2",
        ..disk(
            "single-queue",
            "one-queue",
            concat!(threaded!("{raw},format=raw,cache=none,aio=native,discard=unmap"), ",num-queues=1"),
        )
    },
    net("emulated-nic", "e1000", "-netdev tap,id=n0,ifname=tap0,script=no,downscript=no -device e1000,netdev=n0"),
    net("emulated-nic", "rtl8139", "-netdev tap,id=n0,ifname=tap0,script=no,downscript=no -device rtl8139,netdev=n0"),
    Fault { prepare: "", ..net("user-network", "slirp", "-netdev user,id=n0 -device virtio-net-pci,netdev=n0") },
    net(
        "no-vhost",
        "no-vhost",
        "-netdev tap,id=n0,ifname=tap0,script=no,downscript=no -device virtio-net-pci,netdev=n0",
    ),
    Fault { machine: "-machine q35 -accel tcg -cpu max -smp 2", ..net("nic-queues", "one-pair", TAP) },
    net(
        "offloads-off",
        "offloads",
        "-netdev tap,id=n0,ifname=tap0,script=no,downscript=no{vhost} \
         -device virtio-net-pci,netdev=n0,host_tso4=off,guest_tso4=off",
    ),
    net(
        "offloads-off",
        "no-header",
        "-netdev tap,id=n0,ifname=tap0,script=no,downscript=no,vnet_hdr=off{vhost} \
         -device virtio-net-pci,netdev=n0,id=net0",
    ),
    Fault { prepare: OTHER_MTU, ..net("mtu-mismatch", "mtu", TAP) },
    Fault { prepare: NARROW_TAP, ..net("mtu-mismatch", "narrow-tap", TAP) },
    Fault {
        prepare: "ip tuntap add tap0 mode tap vnet_hdr &&",
        ..net(
            "mtu-mismatch",
            "host-mtu",
            "-netdev tap,id=n0,ifname=tap0,script=no,downscript=no{vhost} \
             -device virtio-net-pci,netdev=n0,id=net0,host_mtu=8942",
        )
    },
    Fault { rule: "emulation-though-kvm", name: "tcg", ..SOUND },
    Fault { rule: "iothread-on-vcpu-core", name: "pinned", after: After::Pin, ..SOUND },
    Fault {
        rule: "vcpus-over-cores",
        name: "too-many",
        machine: "-machine q35 -accel tcg -cpu max -smp {over}",
        ..SOUND
    },
    Fault { rule: "deleted-file", name: "deleted", after: After::Delete, ..SOUND },
    Fault {
        prepare: "mount -t tmpfs tmpfs /mnt && truncate -s 1M /mnt/a.raw && dd if=/dev/zero of=/mnt/a.raw bs=1M count=1 \
                  conv=notrunc status=none &&",
        also: &["sparse-file", "host-page-cache", "missing-iothread"],
        ..disk("disk-in-memory", "in-memory", threaded!("/mnt/a.raw,format=raw,cache=writeback,discard=unmap"))
    },
    Fault { rule: "cpu-quota", name: "quota", after: After::Quota, ..SOUND },
    Fault { rule: "cpu-quota", name: "no-room", after: After::WholeQuota, ..SOUND },
    Fault { rule: "old-cpu-model", name: "qemu64", machine: "-machine q35 -accel kvm -cpu qemu64 -smp 1", ..SOUND },
    Fault {
        rule: "windows-no-enlightenments",
        name: "vendor-id",
        machine: "-machine q35 -accel kvm -cpu host,-arch-capabilities,kvm=off,hv_vendor_id=whatever -smp 1",
        ..SOUND
    },
];

/// Rules about settings whose fault no machine like this can have, with the reason.
const CANNOT: &[(&str, &str)] = &[
    ("cache-aio-pair", "QEMU refuses aio=native without O_DIRECT since 6.0"),
    ("io-uring-hangs", "LVM, CIFS, RBD, an old kernel or QEMU 7.1.0 is needed"),
    ("setting-overridden", "a manager has to have asked for something else (tested with a real libvirt daemon)"),
    ("zfs-volblocksize", "ZFS is needed"),
    ("direct-io-on-checksums", "btrfs and a kernel before 6.15 are needed"),
    ("copy-on-write-below", "btrfs is needed (tested with one on a loop device, `root_btrfs`)"),
    ("discard-goes-nowhere", "LUKS or RAID is needed"),
    ("discard-storm", "a guest that runs has to send them, to a device and from a group of its own"),
    ("shared-journal", "an ext4 with a journal is needed, which the tests' directory may lack"),
    ("numa-split", "two NUMA nodes are needed"),
    ("guest-drops", "a guest has to run that takes packets, and not fast enough (tested with made-up counters)"),
    ("conntrack-full", "it is the namespace's of whoever looks (tested with made-up files)"),
    ("uplink-trouble", "a real network card has to hang, or lose its link or packets (tested with made-up files)"),
    ("io-weight-ignored", "the schedulers of the host's disks and iocost are every guest's"),
    ("guest-in-swap", "the host has to swap"),
    ("memory-in-host-cache", "a guest has to run and read its disk several times (tested with made-up replies)"),
    ("slow-governor", "the governor is the host's, and a host that is a guest has none"),
    ("ksm", "it is the host's, and has to have run for long"),
    ("bridge-netfilter", "it is the namespace's, and would be every guest's (tested with a real bridge, `advice`)"),
    ("bsd-queues", "a manager or a name has to say that it is a BSD (tested with made-up guests)"),
    ("host-clock-source", "it is the host's, and would be every guest's"),
    ("hpet-left-on", "a KVM that gives Hyper-V's timers is needed, which one in a guest may not"),
];

/// Why this machine cannot have a fault that others can.
fn not_here(fault: &Fault) -> Option<&'static str> {
    let kvm = || fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
    match fault.rule {
        "nic-queues" if !has_vhost() => Some("this host has no vhost-net"),
        "old-cpu-model" | "windows-no-enlightenments" if !kvm() => Some("this host has no KVM"),
        "iothread-on-vcpu-core" if cpus() < 2 => Some("two processors are needed"),
        _ => None,
    }
}

fn has_vhost() -> bool {
    Path::new("/dev/vhost-net").exists()
}

fn cpus() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

/// Files, servers and loop devices of the guests.
struct Planted {
    dir: tempfile::TempDir,
    servers: Vec<Companion>,
    loops: Vec<String>,
    groups: Vec<PathBuf>,
}

impl Planted {
    /// Fills in what a template names, and makes it.
    fn fill(&mut self, fault: &Fault) -> String {
        let mut text = format!("{} {} {}", fault.machine, fault.disk, fault.net);
        let dir = self.dir.path().to_owned();
        let name = fault.name;
        let put = |text: &mut String, key: &str, make: &mut dyn FnMut() -> String| {
            if text.contains(key) {
                *text = text.replace(key, &make());
            }
        };
        let shown = |path: PathBuf| path.display().to_string();
        put(&mut text, "{many}", &mut || {
            let one = |i| {
                format!(
                    " -blockdev null-co,node-name=n{i},cache.direct=on -device virtio-blk-pci,drive=n{i},iothread=io0"
                )
            };
            "-object iothread,id=io0".to_owned() + &(0..20).map(one).collect::<String>()
        });
        put(&mut text, "{raw}", &mut || shown(live::raw(&dir, name)));
        put(&mut text, "{more}", &mut || shown(live::raw(&dir, "more")));
        put(&mut text, "{sparse}", &mut || shown(live::sparse(&dir, name)));
        put(&mut text, "{qcow2}", &mut || shown(live::qcow2(&dir, name, "64M", None)));
        put(&mut text, "{large}", &mut || shown(live::qcow2(&dir, name, "64G", None)));
        put(&mut text, "{chain}", &mut || {
            let base = live::qcow2(&dir, "base", "64M", None);
            let middle = live::qcow2(&dir, "middle", "64M", Some(&base));
            shown(live::qcow2(&dir, name, "64M", Some(&middle)))
        });
        put(&mut text, "{vhost}", &mut || (if has_vhost() { ",vhost=on" } else { "" }).to_owned());
        put(&mut text, "{over}", &mut || (cpus() + 1).to_string());
        put(&mut text, "{nbd}", &mut || {
            let (socket, image) = (dir.join("nbd"), live::raw(&dir, name));
            let server =
                Command::new("qemu-nbd").args(["-t", "-f", "raw", "-k"]).arg(&socket).arg(image).spawn().unwrap();
            self.servers.push(Companion(server));
            poll_until("the NBD server listens", || listens(&socket));
            format!("nbd+unix:///?socket={}", socket.display())
        });
        put(&mut text, "{vpc}", &mut || {
            let image = dir.join(format!("{name}.vhd"));
            let made = Command::new("qemu-img").args(["create", "-q", "-f", "vpc"]).arg(&image).arg("64M").status();
            assert!(made.unwrap().success());
            shown(image)
        });
        for (key, sector) in [("{loop}", "512"), ("{loop4k}", "4096")] {
            put(&mut text, key, &mut || {
                let image = live::raw(&dir, name);
                let args = ["--find", "--show", "--sector-size", sector];
                let made = Command::new("losetup").args(args).arg(image).output().unwrap();
                assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
                self.loops.push(String::from_utf8(made.stdout).unwrap().trim().to_owned());
                self.loops.last().unwrap().clone()
            });
        }
        text
    }

    /// So many milliseconds of 100 of a processor's time for a guest, by control groups v2 or v1.
    fn quota(&mut self, guest: &Companion, milliseconds: u32) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let cpu = |line: &&str| line.split(' ').nth(3).is_some_and(|o| o.split(',').any(|o| o == "cpu"));
        let v1 = mounts.lines().filter(|l| l.contains(" cgroup ")).find(cpu).and_then(|l| l.split(' ').nth(1));
        let root = v1.map_or_else(|| "/sys/fs/cgroup".to_owned(), str::to_owned);
        let group = Path::new(&root).join(format!("vmio-test-{}-{}", std::process::id(), self.groups.len()));
        fs::create_dir(&group).unwrap();
        self.groups.push(group.clone());
        let quota = (milliseconds * 1000).to_string();
        match v1 {
            Some(_) => fs::write(group.join("cpu.cfs_quota_us"), quota).unwrap(),
            None => fs::write(group.join("cpu.max"), format!("{quota} 100000")).unwrap(),
        }
        fs::write(group.join("cgroup.procs"), guest.pid().to_string()).unwrap();
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        for device in &self.loops {
            let _ = Command::new("losetup").args(["--detach", device]).status();
        }
        for group in &self.groups {
            let _ = fs::remove_dir(group);
        }
    }
}

/// Takes away the name of a guest's image, once QEMU has it open for writing: until the device is there it would
/// open it once more by its name.
fn delete(guest: &Companion, image: &Path) {
    let written = |fd: fs::DirEntry| {
        let flags = fs::read_to_string(format!("/proc/{}/fdinfo/{}", guest.pid(), fd.file_name().to_str()?)).ok()?;
        let flags = flags.lines().find_map(|l| l.strip_prefix("flags:"))?.trim().to_owned();
        Some(fs::read_link(fd.path()).ok()? == *image && flags.ends_with('2'))
    };
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", guest.pid())).unwrap().flatten();
    poll_until("QEMU has its image open for writing", || descriptors().any(|fd| written(fd) == Some(true)));
    fs::remove_file(image).unwrap();
}

/// Binds every thread of a guest whose name begins so to the first processor.
fn pin(guest: &Companion, threads: &str) {
    let tids = guest.threads(threads);
    assert!(!tids.is_empty(), "no thread {threads}");
    for tid in tids {
        let tid = tid.to_string();
        assert!(Command::new("taskset").args(["-cp", "0", &tid]).output().unwrap().status.success());
    }
}

#[test]
fn every_rule_about_settings_has_its_fault_or_a_reason() {
    let planted: BTreeSet<&str> = FAULTS.iter().map(|f| f.rule).chain(CANNOT.iter().map(|(rule, _)| *rule)).collect();
    let known: BTreeSet<&str> = RULES.iter().map(|r| r.id).collect();
    let settings = |n: Need| matches!(n, Need::Settings | Need::AnySettings | Need::MeasuredOrSettings);
    let wanted: BTreeSet<&str> = RULES.iter().filter(|r| settings(r.needs)).map(|r| r.id).collect();
    assert_eq!(wanted.difference(&planted).collect::<Vec<_>>(), [] as [&&str; 0], "no fault and no reason");
    assert_eq!(planted.difference(&known).collect::<Vec<_>>(), [] as [&&str; 0], "no such rule");
}

#[test]
#[ignore = "guest: needs QEMU"]
fn scan_names_each_planted_fault_and_nothing_else() {
    let mut planted = Planted { dir: live::scratch(), servers: Vec::new(), loops: Vec::new(), groups: Vec::new() };
    CANNOT.iter().for_each(|(rule, why)| eprintln!("  not planted: {rule}: {why}"));
    let mut guests: Vec<(&Fault, Companion)> = Vec::new();
    let kvm = Fault { name: "kvm", machine: KVM, ..SOUND };
    let bridged = Fault { name: "bridged", prepare: BRIDGE, net: TAP, ..SOUND };
    let with_kvm = not_here(&Fault { rule: "old-cpu-model", ..SOUND }).is_none();
    for fault in [&SOUND, &bridged].into_iter().chain(with_kvm.then_some(&kvm)).chain(FAULTS) {
        if let Some(why) = not_here(fault) {
            skip(&format!("the fault {}: {why}", fault.rule));
            continue;
        }
        let args = planted.fill(fault);
        guests.push((fault, live::start(fault.name, fault.prepare, &args)));
    }
    for (fault, guest) in &mut guests {
        live::wait(fault.name, guest);
        match fault.after {
            After::Nothing => {}
            After::Pin => ["CPU ", "IO "].iter().for_each(|threads| pin(guest, threads)),
            After::Quota => planted.quota(guest, 50),
            After::WholeQuota => planted.quota(guest, 100),
            After::Delete => delete(guest, &planted.dir.path().join(format!("{}.raw", fault.name))),
        }
    }
    let seen = live::scan(planted.dir.path(), &[]);
    let mut wrong = Vec::new();
    for (fault, _) in &guests {
        let guest = live::guest(&seen, fault.name);
        let found = live::found::rules(guest);
        // Every guest that is emulated is told so.
        let emulated = fault.machine.contains("tcg").then_some("emulation-though-kvm");
        let must: BTreeSet<&str> = [fault.rule].into_iter().filter(|r| !r.is_empty()).chain(emulated).collect();
        // And a host without vhost-net, with each tap. All images lie on one file system, which may be an ext4 with a
        // journal.
        let host = (!has_vhost() && fault.net.contains("tap,")).then_some("no-vhost");
        let may: BTreeSet<&str> =
            must.iter().chain(fault.also).copied().chain(host).chain(["shared-journal"]).collect();
        if !found.is_superset(&must) || !found.is_subset(&may) {
            wrong.push(format!("{}: found {found:?}, planted {must:?}; unread {}", fault.name, guest["unread"]));
        }
        for finding in guest["findings"].as_array().unwrap() {
            let from = finding["evidence"].as_array().is_some_and(|e| e.iter().all(|e| e["from"] != ""));
            assert!(from, "{}: {finding:#}", fault.name);
        }
    }
    drop(guests);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
