//! Faults of libvirt's domains: elements as virt-manager and people write them.

use super::super::{After, Expect, Fill, Row, Shows, TOGETHER, Threads, Way};
use super::{CARD, DIRECT, NATIVE, SCSI, SMALLER, UNFLUSHED, VIRTIO};

/// A disk of a file, with these attributes of its `<driver>`, by this name on this bus.
macro_rules! disk {
    ($image:expr, $driver:expr, $dev:expr, $bus:expr $(, $more:expr)?) => {
        concat!(
            "<disk type='file' device='disk'><driver name='qemu' ",
            $driver,
            "/><source file='",
            $image,
            "'/><target dev='",
            $dev,
            "' bus='",
            $bus,
            "'/>",
            $($more,)?
            "</disk>"
        )
    };
}
/// A virtio disk with the I/O thread of its domain.
macro_rules! threaded {
    ($image:expr, $driver:expr $(, $more:expr)?) => {
        concat!(
            "<iothreads>1</iothreads>",
            disk!($image, concat!($driver, " iothread='1'"), "vda", "virtio" $(, $more)?)
        )
    };
}

const N: &[Fill] = &[Fill::NewThread];

const fn row(rule: &'static str, how: &'static str, shows: &'static [Shows]) -> Row {
    Row::new(Way::Libvirt, rule, how, shows)
}

pub const ROWS: &[Row] = &[
    row("emulated-driver", "sata", VIRTIO).fills(N).short().guest(disk!(
        "{raw}",
        "type='raw' cache='none' io='native' discard='unmap'",
        "sda",
        "sata"
    )),
    row("emulated-driver", "sata, next to a disk that has the new name", VIRTIO).fills(N).guest(concat!(
        "<iothreads>1</iothreads>",
        disk!("{raw}", "type='raw' cache='none' io='native' discard='unmap'", "sda", "sata"),
        disk!("{more}", "type='raw' cache='none' io='native' discard='unmap' iothread='1'", "vda", "virtio")
    )),
    row("missing-iothread", "virtio", VIRTIO).fills(N).guest(disk!(
        "{raw}",
        "type='raw' cache='none' io='native' discard='unmap'",
        "vda",
        "virtio"
    )),
    row("missing-iothread", "virtio-scsi", SCSI).fills(N).short().guest(concat!(
        "<controller type='scsi' index='0' model='virtio-scsi'/>",
        disk!("{raw}", "type='raw' cache='none' io='native' discard='unmap'", "sda", "scsi")
    )),
    row("host-page-cache", "`cache='writeback'`", NATIVE)
        .guest(threaded!("{raw}", "type='raw' cache='writeback' discard='unmap'")),
    row("host-page-cache", "`cache='writethrough'`", UNFLUSHED)
        .guest(threaded!("{raw}", "type='raw' cache='writethrough' discard='unmap'")),
    row("host-page-cache", "`cache='directsync'`", UNFLUSHED)
        .guest(threaded!("{raw}", "type='raw' cache='directsync' io='native' discard='unmap'")),
    row("unsafe-cache", "`cache='unsafe'`", NATIVE)
        .guest(threaded!("{raw}", "type='raw' cache='unsafe' discard='unmap'")),
    row("sparse-file", "raw", &[Shows::NoHoles, Shows::Format("raw")])
        .guest(threaded!("{sparse}", "type='raw' cache='none' io='io_uring'")),
    row("sector-size-not-passed", "`type='block'`", &[Shows::Told("physical_block_size")]).guest(
        "<iothreads>1</iothreads><disk type='block' device='disk'>\
         <driver name='qemu' type='raw' cache='none' io='native' discard='unmap' iothread='1'/>\
         <source dev='{loop4k}'/><target dev='vda' bus='virtio'/></disk>",
    ),
    row("qcow2-l2-cache", "512 GiB", &[Shows::Told("67108864")])
        .short()
        .guest(threaded!("{huge}", "type='qcow2' cache='none' io='io_uring' discard='unmap'")),
    row("backing-chain", "two files below", &[Shows::Chain(0)])
        .guest(threaded!("{chain}", "type='qcow2' cache='none' io='io_uring' discard='unmap'")),
    row("deleted-file", "raw", &[Shows::Format("raw")])
        .after(After::Delete)
        .guest(threaded!("{raw}", "type='raw' cache='none' io='native' discard='unmap'")),
    row("limit-in-force", "`<iotune>`", &[Shows::NoLimit]).guest(threaded!(
        "{raw}",
        "type='raw' cache='none' io='native' discard='unmap'",
        "<iotune><total_iops_sec>500</total_iops_sec></iotune>"
    )),
    row("no-discard", "qcow2", &[Shows::Discard])
        .guest(threaded!("{qcow2}", "type='qcow2' cache='none' io='io_uring'")),
    row("virtio-choice", "20 disks", &[Shows::Disk("scsi-hd")])
        .fills(&[Fill::NewController])
        .guest("<iothreads>1</iothreads>{many-disks}"),
    row("native-aio-that-waits", "qcow2", &[Shows::Aio("io_uring"), DIRECT])
        .guest(threaded!("{qcow2}", "type='qcow2' cache='none' io='native' discard='unmap'")),
    row("shared-iothread", "virtio", &[Shows::OwnIothread]).fills(N).guest(concat!(
        "<iothreads>1</iothreads>",
        disk!("{raw}", "type='raw' cache='none' io='native' discard='unmap' iothread='1'", "vda", "virtio"),
        disk!("{more}", "type='raw' cache='none' io='native' discard='unmap' iothread='1'", "vdb", "virtio")
    )),
    row("shared-iothread", "virtio-scsi", &[Shows::OwnIothread]).fills(&[Fill::NewThread, Fill::NewController]).guest(
        concat!(
            "<iothreads>1</iothreads><controller type='scsi' index='0' model='virtio-scsi'>\
         <driver iothread='1'/></controller>",
            disk!("{raw}", "type='raw' cache='none' io='native' discard='unmap'", "sda", "scsi"),
            disk!("{more}", "type='raw' cache='none' io='native' discard='unmap'", "sdb", "scsi")
        ),
    ),
    row("single-queue", "virtio", &[Shows::Queues(2)]).guest(concat!(
        "<vcpu>2</vcpu><iothreads>1</iothreads>",
        disk!("{raw}", "type='raw' cache='none' io='native' discard='unmap' iothread='1' queues='1'", "vda", "virtio")
    )),
    row("threads-with-direct", "`type='block'`", &[Shows::Aio("native"), DIRECT]).guest(
        "<iothreads>1</iothreads><disk type='block' device='disk'>\
         <driver name='qemu' type='raw' cache='none' io='threads' discard='unmap' iothread='1'/>\
         <source dev='{loop}'/><target dev='vda' bus='virtio'/></disk>",
    ),
    row("emulated-nic", "e1000", CARD).guest(
        "<interface type='bridge'><mac address='52:54:00:00:02:01'/><source bridge='br0'/>\
         <model type='e1000'/></interface>",
    ),
    row("user-network", "`type='user'`", CARD)
        .fills(&[Fill::Bridge])
        .short()
        .guest("<interface type='user'><mac address='52:54:00:00:02:02'/><model type='virtio'/></interface>"),
    row(
        "offloads-off",
        "`<driver><host/>`",
        &[Shows::OfCard("host_tso4", Expect::On), Shows::OfCard("guest_tso4", Expect::On)],
    )
    .guest(
        "<interface type='bridge'><mac address='52:54:00:00:02:03'/><source bridge='br0'/><model type='virtio'/>\
         <driver name='qemu'><host tso4='off'/><guest tso4='off'/></driver></interface>",
    ),
    row("mtu-mismatch", "a narrow uplink", SMALLER).after(After::SmallUplink).guest(
        "<interface type='bridge'><mac address='52:54:00:00:02:04'/><source bridge='{own-bridge}'/>\
         <model type='virtio'/></interface>",
    ),
    row("bridge-netfilter", "by its bridge", &[Shows::NoNetfilter]).after(After::Netfilter).guest(
        "<interface type='bridge'><mac address='52:54:00:00:02:05'/><source bridge='{own-bridge}'/>\
         <model type='virtio'/></interface>",
    ),
    row("iothread-on-vcpu-core", "`<iothreadpin>`", &[Shows::Elsewhere(Threads::Io)]).short().guest(concat!(
        "<vcpu>1</vcpu><iothreads>1</iothreads>\
         <cputune><vcpupin vcpu='0' cpuset='0'/><iothreadpin iothread='1' cpuset='0'/></cputune>",
        disk!("{raw}", "type='raw' cache='none' io='native' discard='unmap' iothread='1'", "vda", "virtio")
    )),
    row("vcpus-over-cores", "more than the host has", &[Shows::AsTheHost]).guest("<vcpu>{over}</vcpu>"),
    row("vcpus-over-cores", "`<vcpupin>`", &[Shows::Elsewhere(Threads::Vcpu)])
        .guest("<vcpu>2</vcpu><cputune><vcpupin vcpu='0' cpuset='0'/><vcpupin vcpu='1' cpuset='0'/></cputune>"),
    row(TOGETHER, "sata", &[Shows::Disk("virtio-blk-pci"), Shows::OwnIothread, DIRECT, Shows::Aio("native")])
        .fills(N)
        .guest(disk!("{raw}", "type='raw' cache='writeback'", "sda", "sata")),
];
