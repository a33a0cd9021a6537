//! Faults of guests of Proxmox VE: lines of their files, as its pages write them. The stand-in starts them for
//! real; what is then in force is asked where the same question is put to the other ways.

use super::super::{After, Expect, Fill, Row, Shows, TOGETHER, Threads, Way};
use super::{CARD, DIRECT, SCSI, SMALLER, VIRTIO};

const fn row(rule: &'static str, how: &'static str, shows: &'static [Shows]) -> Row {
    Row::new(Way::Proxmox, rule, how, shows)
}

pub const ROWS: &[Row] = &[
    row("emulated-driver", "sata, `boot: order=`", VIRTIO)
        .short()
        .guest("boot: order=sata1\nsata1: {volume},backup=0,discard=on,size=1M,ssd=1"),
    row("emulated-driver", "ide, `bootdisk:`", VIRTIO).guest("bootdisk: ide0\nide0: {volume},discard=on,size=1M"),
    row("emulated-driver", "scsi on lsi", SCSI).guest("boot: order=scsi0\nscsi0: {volume},discard=on,size=1M,ssd=1"),
    row("missing-iothread", "virtio-scsi-pci", SCSI)
        .short()
        .guest("boot: order=scsi0\nscsihw: virtio-scsi-pci\nscsi0: {volume},discard=on,size=1M"),
    row("missing-iothread", "virtio", VIRTIO)
        .guest("boot: order=virtio0\nvirtio0: {volume},discard=on,size=1M,iothread=0"),
    row("host-page-cache", "`cache=writeback`", &[DIRECT])
        .guest("virtio0: {volume},cache=writeback,discard=on,iothread=1,size=1M"),
    row("host-page-cache", "`cache=writethrough`", &[DIRECT, Shows::WriteCache])
        .guest("virtio0: {volume},cache=writethrough,discard=on,iothread=1,size=1M"),
    row("host-page-cache", "`cache=directsync`", &[DIRECT, Shows::WriteCache])
        .guest("virtio0: {volume},cache=directsync,discard=on,iothread=1,size=1M"),
    row("unsafe-cache", "`cache=unsafe`", &[DIRECT])
        .guest("scsihw: virtio-scsi-single\nscsi0: {volume},cache=unsafe,discard=on,iothread=1,size=1M"),
    row("sparse-file", "raw in a directory", &[Shows::NoHoles])
        .fills(&[Fill::OtherStorage])
        .guest("virtio0: {holes},iothread=1,size=2G"),
    row("qcow2-l2-cache", "512 GiB", &[Shows::Format("raw")])
        .fills(&[Fill::Storage])
        .opens(&["sparse-file"])
        .guest("virtio0: {small},discard=on,iothread=1,size=512G"),
    row("backing-chain", "linked clones", &[Shows::Chain(0)])
        .fills(&[Fill::OtherStorage])
        .guest("virtio0: {chain-volume},discard=on,iothread=1,size=64M"),
    row("limit-in-force", "`iops=`", &[Shows::NoLimit])
        .short()
        .guest("virtio0: {volume},discard=on,iops=500,iothread=1,size=1M"),
    row("no-discard", "qcow2", &[Shows::Discard]).guest("virtio0: {qcow2-volume},iothread=1,size=64M"),
    row("native-aio-that-waits", "qcow2", &[Shows::Aio("io_uring"), DIRECT])
        .guest("virtio0: {qcow2-volume},aio=native,discard=on,iothread=1,size=64M"),
    row("single-queue", "scsi, an old machine type", &[Shows::Queues(2)]).guest(
        "machine: pc-i440fx-5.1\ncores: 2\nscsihw: virtio-scsi-single\n\
                scsi0: {volume},discard=on,iothread=1,size=1M",
    ),
    row("threads-with-direct", "a device passed on", &[Shows::Aio("native"), DIRECT])
        .guest("virtio0: {loop},aio=threads,discard=on,iothread=1"),
    row("sector-size-not-passed", "a device passed on", &[Shows::Told("device.virtio0.physical_block_size=4096")])
        .guest("virtio0: {loop4k},aio=native,discard=on,iothread=1"),
    row("emulated-nic", "e1000", CARD).short().guest("net0: e1000=BC:24:11:00:00:01,bridge=br0,firewall=1"),
    row("bsd-queues", "`ostype: other`", &[Shows::OfCard("mq", Expect::Off)])
        .guest("ostype: other\nnet0: virtio=BC:24:11:00:00:05,bridge=br0,queues=2"),
    row("user-network", "no bridge", CARD).guest("net0: virtio=BC:24:11:00:00:02"),
    row("mtu-mismatch", "a narrow uplink", SMALLER)
        .after(After::SmallUplink)
        .guest("net0: virtio=BC:24:11:00:00:03,bridge={own-bridge}"),
    row("bridge-netfilter", "by its bridge", &[Shows::NoNetfilter])
        .after(After::Netfilter)
        .guest("net0: virtio=BC:24:11:00:00:04,bridge={own-bridge}"),
    row("vcpus-over-cores", "more than the host has", &[Shows::AsTheHost]).guest("cores: {over}"),
    row("vcpus-over-cores", "`affinity:`", &[Shows::Elsewhere(Threads::Vcpu)]).guest("affinity: 0\ncores: 2"),
    row("iothread-on-vcpu-core", "`affinity:`", &[Shows::Elsewhere(Threads::Io)])
        .guest("affinity: 0\nvirtio0: {volume},discard=on,iothread=1,size=1M"),
    row("cpu-quota", "`cpulimit:`", &[]).short().guest("cores: 1\ncpulimit: 0.5"),
    row("cpu-quota", "`cpulimit:` as high as `cores:`", &[]).guest("cores: 1\ncpulimit: 1"),
    row(TOGETHER, "sata", &[Shows::Disk("virtio-blk-pci"), Shows::OwnIothread, DIRECT])
        .guest("boot: order=sata0\nsata0: {volume},cache=writeback,size=1M,ssd=1"),
];
