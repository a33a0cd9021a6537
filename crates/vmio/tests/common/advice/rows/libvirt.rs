//! Faults of libvirt's domains: elements as virt-manager and people write them.

use super::super::Fill;
use super::super::{After, Expect, Row, Shows, TOGETHER, Threads, Way};

/// A file with these attributes of its `<driver>` and this `<target>`.
macro_rules! disk {
    ($image:expr, $driver:expr, $rest:expr) => {
        concat!(
            "<disk type='file' device='disk'><driver name='qemu' ",
            $driver,
            "/><source file='",
            $image,
            "'/>",
            $rest,
            "</disk>"
        )
    };
}
/// A sound disk of a domain with one I/O thread.
macro_rules! sound {
    ($driver:expr, $rest:expr) => {
        concat!(
            "<vcpu>1</vcpu><iothreads>1</iothreads>",
            disk!("{raw}", concat!("type='raw' discard='unmap' ", $driver), $rest)
        )
    };
}
const ROW: Row = Row {
    rule: "",
    way: Way::Libvirt,
    how: "",
    guest: "",
    after: After::Nothing,
    fills: &[],
    opens: &[],
    shows: &[],
    short: false,
};

const DIRECT: Shows = Shows::Cache { direct: true, no_flush: false };
const N: &[Fill] = &[Fill::NewThread];
const VIRTIO: &[Shows] = &[Shows::Disk("virtio-blk-pci"), Shows::OwnIothread];

pub const ROWS: &[Row] = &[
    Row {
        rule: "emulated-driver",
        how: "sata",
        guest: disk!("{raw}", "type='raw' cache='none' io='native' discard='unmap'", "<target dev='sda' bus='sata'/>"),
        fills: N,
        shows: VIRTIO,
        short: true,
        ..ROW
    },
    Row {
        rule: "emulated-driver",
        how: "sata beside a disk whose name would be taken",
        guest: concat!(
            "<iothreads>1</iothreads>",
            disk!("{raw}", "type='raw' cache='none' io='native' discard='unmap'", "<target dev='sda' bus='sata'/>"),
            disk!(
                "{more}",
                "type='raw' cache='none' io='native' discard='unmap' iothread='1'",
                "<target dev='vda' bus='virtio'/>"
            )
        ),
        fills: N,
        shows: VIRTIO,
        ..ROW
    },
    Row {
        rule: "missing-iothread",
        how: "virtio",
        guest: disk!(
            "{raw}",
            "type='raw' cache='none' io='native' discard='unmap'",
            "<target dev='vda' bus='virtio'/>"
        ),
        fills: N,
        shows: VIRTIO,
        ..ROW
    },
    Row {
        rule: "missing-iothread",
        how: "virtio-scsi",
        guest: concat!(
            "<controller type='scsi' index='0' model='virtio-scsi'/>",
            disk!("{raw}", "type='raw' cache='none' io='native' discard='unmap'", "<target dev='sda' bus='scsi'/>")
        ),
        fills: N,
        shows: &[Shows::Disk("scsi-hd"), Shows::OwnIothread],
        short: true,
        ..ROW
    },
    Row {
        rule: "host-page-cache",
        how: "`cache='writeback'`",
        guest: sound!("cache='writeback' iothread='1'", "<target dev='vda' bus='virtio'/>"),
        shows: &[DIRECT, Shows::Aio("native")],
        ..ROW
    },
    Row {
        rule: "unsafe-cache",
        how: "`cache='unsafe'`",
        guest: sound!("cache='unsafe' iothread='1'", "<target dev='vda' bus='virtio'/>"),
        shows: &[DIRECT, Shows::Aio("native")],
        ..ROW
    },
    Row {
        rule: "sparse-file",
        how: "raw",
        guest: concat!(
            "<iothreads>1</iothreads>",
            disk!("{sparse}", "type='raw' cache='none' io='io_uring' iothread='1'", "<target dev='vda' bus='virtio'/>")
        ),
        shows: &[Shows::NoHoles, Shows::Format("raw")],
        ..ROW
    },
    Row {
        rule: "qcow2-l2-cache",
        how: "512 GiB",
        guest: concat!(
            "<iothreads>1</iothreads>",
            disk!(
                "{huge}",
                "type='qcow2' cache='none' io='io_uring' discard='unmap' iothread='1'",
                "<target dev='vda' bus='virtio'/>"
            )
        ),
        shows: &[Shows::Told("67108864")],
        short: true,
        ..ROW
    },
    Row {
        rule: "backing-chain",
        how: "two files below",
        guest: concat!(
            "<iothreads>1</iothreads>",
            disk!(
                "{chain}",
                "type='qcow2' cache='none' io='io_uring' discard='unmap' iothread='1'",
                "<target dev='vda' bus='virtio'/>"
            )
        ),
        shows: &[Shows::Chain(0)],
        ..ROW
    },
    Row {
        rule: "deleted-file",
        how: "raw",
        guest: sound!("cache='none' io='native' iothread='1'", "<target dev='vda' bus='virtio'/>"),
        after: After::Delete,
        shows: &[Shows::Format("raw")],
        ..ROW
    },
    Row {
        rule: "limit-in-force",
        how: "`<iotune>`",
        guest: sound!(
            "cache='none' io='native' iothread='1'",
            "<target dev='vda' bus='virtio'/><iotune><total_iops_sec>500</total_iops_sec></iotune>"
        ),
        shows: &[Shows::NoLimit],
        ..ROW
    },
    Row {
        rule: "no-discard",
        how: "qcow2",
        guest: concat!(
            "<iothreads>1</iothreads>",
            disk!(
                "{qcow2}",
                "type='qcow2' cache='none' io='io_uring' iothread='1'",
                "<target dev='vda' bus='virtio'/>"
            )
        ),
        shows: &[Shows::Discard],
        ..ROW
    },
    Row {
        rule: "virtio-choice",
        how: "20 disks",
        guest: "<iothreads>1</iothreads>{many-disks}",
        fills: &[Fill::NewController],
        shows: &[Shows::Disk("scsi-hd")],
        ..ROW
    },
    Row {
        rule: "native-aio-that-waits",
        how: "qcow2",
        guest: concat!(
            "<iothreads>1</iothreads>",
            disk!(
                "{qcow2}",
                "type='qcow2' cache='none' io='native' discard='unmap' iothread='1'",
                "<target dev='vda' bus='virtio'/>"
            )
        ),
        shows: &[Shows::Aio("io_uring"), DIRECT],
        ..ROW
    },
    Row {
        rule: "shared-iothread",
        how: "virtio",
        guest: concat!(
            "<iothreads>1</iothreads>",
            disk!(
                "{raw}",
                "type='raw' cache='none' io='native' discard='unmap' iothread='1'",
                "<target dev='vda' bus='virtio'/>"
            ),
            disk!(
                "{more}",
                "type='raw' cache='none' io='native' discard='unmap' iothread='1'",
                "<target dev='vdb' bus='virtio'/>"
            )
        ),
        fills: N,
        shows: &[Shows::OwnIothread],
        ..ROW
    },
    Row {
        rule: "shared-iothread",
        how: "virtio-scsi",
        guest: concat!(
            "<iothreads>1</iothreads><controller type='scsi' index='0' model='virtio-scsi'><driver iothread='1'/></controller>",
            disk!("{raw}", "type='raw' cache='none' io='native' discard='unmap'", "<target dev='sda' bus='scsi'/>"),
            disk!("{more}", "type='raw' cache='none' io='native' discard='unmap'", "<target dev='sdb' bus='scsi'/>")
        ),
        fills: &[Fill::NewThread, Fill::NewController],
        shows: &[Shows::OwnIothread],
        ..ROW
    },
    Row {
        rule: "single-queue",
        how: "virtio",
        guest: concat!(
            "<vcpu>2</vcpu><iothreads>1</iothreads>",
            disk!(
                "{raw}",
                "type='raw' cache='none' io='native' discard='unmap' iothread='1' queues='1'",
                "<target dev='vda' bus='virtio'/>"
            )
        ),
        shows: &[Shows::Queues(2)],
        ..ROW
    },
    Row {
        rule: "threads-with-direct",
        how: "`type='block'`",
        guest: "<iothreads>1</iothreads><disk type='block' device='disk'>\
                <driver name='qemu' type='raw' cache='none' io='threads' discard='unmap' iothread='1'/>\
                <source dev='{loop}'/><target dev='vda' bus='virtio'/></disk>",
        shows: &[Shows::Aio("native"), DIRECT],
        ..ROW
    },
    Row {
        rule: "emulated-nic",
        how: "e1000",
        guest: "<interface type='bridge'><mac address='52:54:00:00:02:01'/><source bridge='br0'/><model type='e1000'/></interface>",
        shows: &[Shows::Card("virtio-net-pci"), Shows::InBridge],
        ..ROW
    },
    Row {
        rule: "user-network",
        how: "`type='user'`",
        guest: "<interface type='user'><mac address='52:54:00:00:02:02'/><model type='virtio'/></interface>",
        fills: &[Fill::Bridge],
        shows: &[Shows::Card("virtio-net-pci"), Shows::InBridge],
        short: true,
        ..ROW
    },
    Row {
        rule: "offloads-off",
        how: "`<driver><host/>`",
        guest: "<interface type='bridge'><mac address='52:54:00:00:02:03'/><source bridge='br0'/><model type='virtio'/>\
                <driver name='qemu'><host tso4='off'/><guest tso4='off'/></driver></interface>",
        shows: &[Shows::OfCard("host_tso4", Expect::On), Shows::OfCard("guest_tso4", Expect::On)],
        ..ROW
    },
    Row {
        rule: "mtu-mismatch",
        how: "the bridge changed",
        guest: "<interface type='bridge'><mac address='52:54:00:00:02:04'/><source bridge='{own-bridge}'/>\
                <model type='virtio'/></interface>",
        after: After::SmallBridge,
        shows: &[Shows::SameMtu],
        ..ROW
    },
    Row {
        rule: "bridge-netfilter",
        how: "by its bridge",
        guest: "<interface type='bridge'><mac address='52:54:00:00:02:05'/><source bridge='{own-bridge}'/>\
                <model type='virtio'/></interface>",
        after: After::Netfilter,
        shows: &[Shows::NoNetfilter],
        ..ROW
    },
    Row {
        rule: "iothread-on-vcpu-core",
        how: "`<iothreadpin>`",
        guest: concat!(
            "<vcpu>1</vcpu><iothreads>1</iothreads>\
             <cputune><vcpupin vcpu='0' cpuset='0'/><iothreadpin iothread='1' cpuset='0'/></cputune>",
            disk!(
                "{raw}",
                "type='raw' cache='none' io='native' discard='unmap' iothread='1'",
                "<target dev='vda' bus='virtio'/>"
            )
        ),
        shows: &[Shows::Elsewhere(Threads::Io)],
        short: true,
        ..ROW
    },
    Row {
        rule: "vcpus-over-cores",
        how: "more than the host has",
        guest: "<vcpu>{over}</vcpu>",
        shows: &[Shows::AsTheHost],
        ..ROW
    },
    Row {
        rule: "vcpus-over-cores",
        how: "`<vcpupin>`",
        guest: "<vcpu>2</vcpu><cputune><vcpupin vcpu='0' cpuset='0'/><vcpupin vcpu='1' cpuset='0'/></cputune>",
        shows: &[Shows::Elsewhere(Threads::Vcpu)],
        ..ROW
    },
    Row {
        rule: TOGETHER,
        how: "sata",
        guest: disk!("{raw}", "type='raw' cache='writeback'", "<target dev='sda' bus='sata'/>"),
        fills: N,
        shows: &[Shows::Disk("virtio-blk-pci"), Shows::OwnIothread, DIRECT, Shows::Aio("native")],
        ..ROW
    },
];
