//! Faults of guests of Proxmox VE: lines of their files, as its pages write them. The stand-in starts them for
//! real; what is then in force is asked where the same question is put to the other ways.

use super::super::Fill;
use super::super::{After, Row, Shows, TOGETHER, Threads, Way};

const ROW: Row = Row {
    rule: "",
    way: Way::Proxmox,
    how: "",
    guest: "",
    after: After::Nothing,
    fills: &[],
    opens: &[],
    shows: &[],
    short: false,
};

const DIRECT: Shows = Shows::Cache { direct: true, no_flush: false };
const VIRTIO: &[Shows] = &[Shows::Disk("virtio-blk-pci"), Shows::OwnIothread];

pub const ROWS: &[Row] = &[
    Row {
        rule: "emulated-driver",
        how: "sata, `boot: order=`",
        guest: "boot: order=sata1\nsata1: {volume},backup=0,discard=on,size=1M,ssd=1",
        shows: VIRTIO,
        short: true,
        ..ROW
    },
    Row {
        rule: "emulated-driver",
        how: "ide, `bootdisk:`",
        guest: "bootdisk: ide0\nide0: {volume},discard=on,size=1M",
        shows: VIRTIO,
        ..ROW
    },
    Row {
        rule: "emulated-driver",
        how: "scsi on lsi",
        guest: "boot: order=scsi0\nscsi0: {volume},discard=on,size=1M,ssd=1",
        shows: &[Shows::Disk("scsi-hd"), Shows::OwnIothread],
        ..ROW
    },
    Row {
        rule: "missing-iothread",
        how: "virtio-scsi-pci",
        guest: "boot: order=scsi0\nscsihw: virtio-scsi-pci\nscsi0: {volume},discard=on,size=1M",
        shows: &[Shows::Disk("scsi-hd"), Shows::OwnIothread],
        short: true,
        ..ROW
    },
    Row {
        rule: "missing-iothread",
        how: "virtio",
        guest: "boot: order=virtio0\nvirtio0: {volume},discard=on,size=1M,iothread=0",
        shows: VIRTIO,
        ..ROW
    },
    Row {
        rule: "host-page-cache",
        how: "`cache=writeback`",
        guest: "virtio0: {volume},cache=writeback,discard=on,iothread=1,size=1M",
        shows: &[DIRECT],
        ..ROW
    },
    Row {
        rule: "unsafe-cache",
        how: "`cache=unsafe`",
        guest: "scsihw: virtio-scsi-single\nscsi0: {volume},cache=unsafe,discard=on,iothread=1,size=1M",
        shows: &[DIRECT],
        ..ROW
    },
    Row {
        rule: "sparse-file",
        how: "raw in a directory",
        guest: "virtio0: {holes},iothread=1,size=2G",
        fills: &[Fill::OtherStorage],
        shows: &[Shows::NoHoles],
        ..ROW
    },
    Row {
        rule: "qcow2-l2-cache",
        how: "512 GiB",
        guest: "virtio0: {small},discard=on,iothread=1,size=512G",
        fills: &[Fill::Storage],
        opens: &["sparse-file"],
        shows: &[Shows::Format("raw")],
        ..ROW
    },
    Row {
        rule: "backing-chain",
        how: "linked clones",
        guest: "virtio0: {chain-volume},discard=on,iothread=1,size=64M",
        fills: &[Fill::OtherStorage],
        shows: &[Shows::Chain(0)],
        ..ROW
    },
    Row {
        rule: "limit-in-force",
        how: "`iops=`",
        guest: "virtio0: {volume},discard=on,iops=500,iothread=1,size=1M",
        shows: &[Shows::NoLimit],
        short: true,
        ..ROW
    },
    Row {
        rule: "no-discard",
        how: "qcow2",
        guest: "virtio0: {qcow2-volume},iothread=1,size=64M",
        shows: &[Shows::Discard],
        ..ROW
    },
    Row {
        rule: "native-aio-that-waits",
        how: "qcow2",
        guest: "virtio0: {qcow2-volume},aio=native,discard=on,iothread=1,size=64M",
        shows: &[Shows::Aio("io_uring"), DIRECT],
        ..ROW
    },
    Row {
        rule: "single-queue",
        how: "scsi, an old machine type",
        guest: "machine: pc-i440fx-5.1\ncores: 2\nscsihw: virtio-scsi-single\n\
                scsi0: {volume},discard=on,iothread=1,size=1M",
        shows: &[Shows::Queues(2)],
        ..ROW
    },
    Row {
        rule: "threads-with-direct",
        how: "a device passed on",
        guest: "virtio0: {loop},aio=threads,discard=on,iothread=1",
        shows: &[Shows::Aio("native"), DIRECT],
        ..ROW
    },
    Row {
        rule: "emulated-nic",
        how: "e1000",
        guest: "net0: e1000=BC:24:11:00:00:01,bridge=br0,firewall=1",
        shows: &[Shows::Card("virtio-net-pci"), Shows::InBridge],
        short: true,
        ..ROW
    },
    Row {
        rule: "user-network",
        how: "no bridge",
        guest: "net0: virtio=BC:24:11:00:00:02",
        shows: &[Shows::Card("virtio-net-pci"), Shows::InBridge],
        ..ROW
    },
    Row {
        rule: "mtu-mismatch",
        how: "the bridge changed",
        guest: "net0: virtio=BC:24:11:00:00:03,bridge={own-bridge}",
        after: After::SmallBridge,
        shows: &[Shows::SameMtu],
        ..ROW
    },
    Row {
        rule: "bridge-netfilter",
        how: "by its bridge",
        guest: "net0: virtio=BC:24:11:00:00:04,bridge={own-bridge}",
        after: After::Netfilter,
        shows: &[Shows::NoNetfilter],
        ..ROW
    },
    Row {
        rule: "vcpus-over-cores",
        how: "more than the host has",
        guest: "cores: {over}",
        shows: &[Shows::AsTheHost],
        ..ROW
    },
    Row {
        rule: "vcpus-over-cores",
        how: "`affinity:`",
        guest: "affinity: 0\ncores: 2",
        shows: &[Shows::Elsewhere(Threads::Vcpu)],
        ..ROW
    },
    Row {
        rule: "iothread-on-vcpu-core",
        how: "`affinity:`",
        guest: "affinity: 0\nvirtio0: {volume},discard=on,iothread=1,size=1M",
        shows: &[Shows::Elsewhere(Threads::Io)],
        ..ROW
    },
    Row { rule: "cpu-quota", how: "`cpulimit:`", guest: "cores: 1\ncpulimit: 0.5", short: true, ..ROW },
    Row {
        rule: TOGETHER,
        how: "sata",
        guest: "boot: order=sata0\nsata0: {volume},cache=writeback,size=1M,ssd=1",
        shows: &[Shows::Disk("virtio-blk-pci"), Shows::OwnIothread, DIRECT],
        ..ROW
    },
];
