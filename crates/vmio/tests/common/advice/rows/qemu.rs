//! Faults of plain QEMU: options as people write them.

use super::super::Fill;
use super::super::{After, Expect, Row, Shows, TOGETHER, Threads, Way};

/// A guest that is emulated, with no default devices.
macro_rules! q35 {
    ($options:expr) => {
        concat!("-nodefaults -machine q35 -accel tcg -cpu max -smp 1 ", $options)
    };
}
/// The beginning of a sound disk's options.
macro_rules! io {
    ($rest:expr) => {
        q35!(concat!("-object iothread,id=io0 ", $rest))
    };
}

const ROW: Row = Row {
    rule: "",
    way: Way::Qemu,
    how: "",
    guest: "",
    after: After::Nothing,
    fills: &[],
    opens: &[],
    shows: &[],
    short: false,
};

/// The cache mode that is advised.
const DIRECT: Shows = Shows::Cache { direct: true, no_flush: false };
const VIRTIO: &[Shows] = &[Shows::Disk("virtio-blk-pci"), Shows::OwnIothread];

pub const ROWS: &[Row] = &[
    Row {
        rule: "emulated-driver",
        how: "lsi, `-drive`",
        guest: q35!(
            "-drive file={raw},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap -device lsi53c895a,id=hba \
             -device scsi-hd,drive=d0,bus=hba.0,scsi-id=2,lun=0,id=disk0,serial=S1"
        ),
        shows: VIRTIO,
        short: true,
        ..ROW
    },
    Row {
        rule: "emulated-driver",
        how: "ahci, `-blockdev`",
        guest: q35!(
            "-blockdev driver=file,node-name=f0,filename={raw},cache.direct=on,aio=native,discard=unmap \
             -blockdev driver=raw,node-name=d0,file=f0,cache.direct=on,discard=unmap -device ahci,id=hba \
             -device ide-hd,drive=d0,bus=hba.0,unit=0,rotation_rate=1"
        ),
        shows: VIRTIO,
        ..ROW
    },
    Row {
        rule: "emulated-driver",
        how: "`-drive if=ide`",
        guest: "-nodefaults -machine pc -accel tcg -cpu max -smp 1 \
                -drive file={raw},format=raw,if=ide,index=0,cache=none,aio=native,discard=unmap",
        shows: VIRTIO,
        ..ROW
    },
    Row {
        rule: "emulated-driver",
        how: "`-hda`",
        guest: "-nodefaults -machine pc -accel tcg -cpu max -smp 1 -hda {raw}",
        shows: VIRTIO,
        ..ROW
    },
    Row {
        rule: "missing-iothread",
        how: "`-drive`",
        guest: q35!(
            "-drive file={raw},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap \
             -device virtio-blk-pci,drive=d0,id=disk0"
        ),
        shows: VIRTIO,
        short: true,
        ..ROW
    },
    Row {
        rule: "missing-iothread",
        how: "virtio-scsi, `-blockdev`",
        guest: q35!(
            "-blockdev driver=file,node-name=f0,filename={raw},cache.direct=on,aio=native,discard=unmap \
             -blockdev driver=raw,node-name=d0,file=f0,cache.direct=on,discard=unmap -device virtio-scsi-pci,id=hba \
             -device scsi-hd,drive=d0,bus=hba.0,id=disk0"
        ),
        shows: &[Shows::Disk("scsi-hd"), Shows::OwnIothread],
        short: true,
        ..ROW
    },
    Row {
        rule: "missing-iothread",
        how: "`-drive if=virtio`",
        guest: q35!("-drive file={raw},format=raw,if=virtio,cache=none,aio=native,discard=unmap"),
        shows: VIRTIO,
        ..ROW
    },
    Row {
        rule: "host-page-cache",
        how: "`-drive`",
        guest: io!("-drive file={raw},format=raw,if=none,id=d0,cache=writeback,aio=threads,discard=unmap \
             -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"),
        shows: &[DIRECT, Shows::Aio("native")],
        short: true,
        ..ROW
    },
    Row {
        rule: "host-page-cache",
        how: "`-drive`, cache and engine not said",
        guest: io!(
            "-drive file={raw},format=raw,if=none,id=d0,discard=unmap -device virtio-blk-pci,drive=d0,iothread=io0"
        ),
        shows: &[DIRECT, Shows::Aio("native")],
        ..ROW
    },
    Row {
        rule: "host-page-cache",
        how: "`-blockdev`, qcow2",
        guest: io!("-blockdev driver=file,node-name=f0,filename={qcow2},discard=unmap \
             -blockdev driver=qcow2,node-name=d0,file=f0,discard=unmap \
             -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"),
        shows: &[DIRECT, Shows::Aio("io_uring"), Shows::Format("qcow2")],
        short: true,
        ..ROW
    },
    Row {
        rule: "unsafe-cache",
        how: "`-drive`",
        guest: io!("-drive file={raw},format=raw,if=none,id=d0,cache=unsafe,aio=threads,discard=unmap \
             -device virtio-blk-pci,drive=d0,iothread=io0"),
        shows: &[DIRECT, Shows::Aio("native")],
        ..ROW
    },
    Row {
        rule: "unsafe-cache",
        how: "`-blockdev`",
        guest: io!("-blockdev driver=file,node-name=f0,filename={raw},cache.no-flush=on,discard=unmap \
             -blockdev driver=raw,node-name=d0,file=f0,cache.no-flush=on,discard=unmap \
             -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"),
        shows: &[DIRECT, Shows::Aio("native")],
        ..ROW
    },
    Row {
        rule: "sparse-file",
        how: "raw",
        guest: io!("-drive file={sparse},format=raw,if=none,id=d0,cache=none,aio=io_uring \
             -device virtio-blk-pci,drive=d0,iothread=io0"),
        shows: &[Shows::NoHoles, Shows::Format("raw")],
        ..ROW
    },
    Row {
        rule: "qcow2-l2-cache",
        how: "`-drive`",
        guest: io!(
            "-drive file={large},format=qcow2,if=none,id=d0,cache=none,aio=io_uring,discard=unmap,l2-cache-size=65536 \
             -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"
        ),
        shows: &[Shows::Told(",l2-cache-size=8388608")],
        ..ROW
    },
    Row {
        rule: "qcow2-l2-cache",
        how: "`-blockdev`",
        guest: io!("-blockdev driver=file,node-name=f0,filename={large},cache.direct=on,aio=io_uring,discard=unmap \
             -blockdev driver=qcow2,node-name=d0,file=f0,cache.direct=on,discard=unmap,l2-cache-size=65536 \
             -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"),
        shows: &[Shows::Told(",l2-cache-size=8388608")],
        ..ROW
    },
    Row {
        rule: "backing-chain",
        how: "`-drive`",
        guest: io!("-drive file={chain},format=qcow2,if=none,id=d0,cache=none,aio=io_uring,discard=unmap \
             -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"),
        shows: &[Shows::Chain(0)],
        short: true,
        ..ROW
    },
    Row {
        rule: "backing-chain",
        how: "`-blockdev`",
        guest: io!("-blockdev driver=file,node-name=f0,filename={chain},cache.direct=on,aio=io_uring,discard=unmap \
             -blockdev driver=qcow2,node-name=n0,file=f0,cache.direct=on,discard=unmap \
             -device virtio-blk-pci,drive=n0,iothread=io0,id=disk0"),
        shows: &[Shows::Chain(0)],
        ..ROW
    },
    Row {
        rule: "limit-in-force",
        how: "`-drive throttling.*`",
        guest: io!(
            "-drive file={raw},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap,throttling.iops-total=500 \
             -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"
        ),
        shows: &[Shows::NoLimit],
        short: true,
        ..ROW
    },
    Row {
        rule: "limit-in-force",
        how: "`-drive` without ids",
        guest: io!(
            "-drive file={raw},format=raw,if=none,id=drive-0,cache=none,aio=native,discard=unmap,throttling.bps-total=1000000 \
             -device virtio-blk-pci,drive=drive-0,iothread=io0"
        ),
        shows: &[Shows::NoLimit],
        ..ROW
    },
    Row {
        rule: "limit-in-force",
        how: "`-object throttle-group`",
        guest: io!("-object throttle-group,id=slow,x-iops-total=500 \
             -blockdev driver=file,node-name=f0,filename={raw},cache.direct=on,aio=native,discard=unmap \
             -blockdev driver=throttle,node-name=t0,throttle-group=slow,file=f0,cache.direct=on,discard=unmap \
             -blockdev driver=raw,node-name=d0,file=t0,cache.direct=on,discard=unmap \
             -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"),
        shows: &[Shows::NoLimit],
        ..ROW
    },
    Row {
        rule: "no-discard",
        how: "`-drive`, qcow2",
        guest: io!("-drive file={qcow2},format=qcow2,if=none,id=d0,cache=none,aio=io_uring \
             -device virtio-blk-pci,drive=d0,iothread=io0"),
        shows: &[Shows::Discard],
        ..ROW
    },
    Row {
        rule: "no-discard",
        how: "`-blockdev`, qcow2",
        guest: io!("-blockdev driver=file,node-name=f0,filename={qcow2},cache.direct=on,aio=io_uring \
             -blockdev driver=qcow2,node-name=d0,file=f0,cache.direct=on \
             -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"),
        shows: &[Shows::Discard],
        ..ROW
    },
    Row {
        rule: "virtio-choice",
        how: "20 disks, `-blockdev`",
        guest: io!("-device virtio-blk-pci,drive=n0,iothread=io0,id=disk0 {many}"),
        shows: &[Shows::Disk("scsi-hd")],
        ..ROW
    },
    Row {
        rule: "native-aio-that-waits",
        how: "`-drive`, qcow2",
        guest: io!("-drive file={qcow2},format=qcow2,if=none,id=d0,cache=none,aio=native,discard=unmap \
             -device virtio-blk-pci,drive=d0,iothread=io0"),
        shows: &[Shows::Aio("io_uring"), DIRECT],
        ..ROW
    },
    Row {
        rule: "native-aio-that-waits",
        how: "`-blockdev`, qcow2",
        guest: io!("-blockdev driver=file,node-name=f0,filename={qcow2},cache.direct=on,aio=native,discard=unmap \
             -blockdev driver=qcow2,node-name=d0,file=f0,cache.direct=on,discard=unmap \
             -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"),
        shows: &[Shows::Aio("io_uring"), DIRECT],
        ..ROW
    },
    Row {
        rule: "shared-iothread",
        how: "virtio-blk",
        guest: io!("-drive file={raw},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap \
             -drive file={more},format=raw,if=none,id=d1,cache=none,aio=native,discard=unmap \
             -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0 -device virtio-blk-pci,drive=d1,iothread=io0,id=disk1"),
        shows: &[Shows::OwnIothread],
        ..ROW
    },
    Row {
        rule: "shared-iothread",
        how: "virtio-scsi",
        guest: io!("-drive file={raw},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap \
             -drive file={more},format=raw,if=none,id=d1,cache=none,aio=native,discard=unmap \
             -device virtio-scsi-pci,id=hba,iothread=io0 \
             -device scsi-hd,drive=d0,bus=hba.0,id=disk0 -device scsi-hd,drive=d1,bus=hba.0,id=disk1"),
        shows: &[Shows::OwnIothread],
        ..ROW
    },
    Row {
        rule: "single-queue",
        how: "virtio-blk",
        guest: "-nodefaults -machine q35 -accel tcg -cpu max -smp 2 -object iothread,id=io0 \
                -drive file={raw},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap \
                -device virtio-blk-pci,drive=d0,iothread=io0,num-queues=1,id=disk0",
        shows: &[Shows::Queues(2)],
        ..ROW
    },
    Row {
        rule: "single-queue",
        how: "virtio-scsi",
        guest: "-nodefaults -machine q35 -accel tcg -cpu max -smp 2 -object iothread,id=io0 \
                -drive file={raw},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap \
                -device virtio-scsi-pci,id=hba,iothread=io0,num_queues=1 -device scsi-hd,drive=d0,bus=hba.0,id=disk0",
        shows: &[Shows::Queues(2)],
        ..ROW
    },
    Row {
        rule: "threads-with-direct",
        how: "block device",
        guest: io!("-drive file={loop},format=raw,if=none,id=d0,cache=none,aio=threads,discard=unmap \
             -device virtio-blk-pci,drive=d0,iothread=io0"),
        shows: &[Shows::Aio("native"), DIRECT],
        ..ROW
    },
    Row {
        rule: "emulated-nic",
        how: "e1000, `-netdev`",
        guest: q35!(
            "-netdev tap,id=n0,ifname={tap},script=no,downscript=no -device e1000,netdev=n0,id=net0,mac=52:54:00:00:01:01"
        ),
        shows: &[Shows::Card("virtio-net-pci"), Shows::InBridge],
        ..ROW
    },
    Row {
        rule: "emulated-nic",
        how: "`-nic model=`",
        guest: q35!("-nic tap,model=e1000,ifname={tap},script=no,downscript=no,mac=52:54:00:00:01:05"),
        shows: &[Shows::Card("virtio-net-pci"), Shows::InBridge],
        short: true,
        ..ROW
    },
    Row {
        rule: "emulated-nic",
        how: "QEMU's default card",
        guest: "-machine q35 -accel tcg -cpu max -smp 1 -serial none -monitor none -parallel none",
        shows: &[Shows::Card("virtio-net-pci")],
        ..ROW
    },
    Row {
        rule: "user-network",
        how: "`-nic user`",
        guest: q35!("-nic user,model=virtio-net-pci,mac=52:54:00:00:01:06"),
        fills: &[Fill::Bridge],
        shows: &[Shows::Card("virtio-net-pci"), Shows::InBridge],
        ..ROW
    },
    Row {
        rule: "user-network",
        how: "`-netdev user`",
        guest: q35!("-netdev user,id=n0 -device virtio-net-pci,netdev=n0,id=net0,mac=52:54:00:00:01:02"),
        fills: &[Fill::Bridge],
        shows: &[Shows::Card("virtio-net-pci"), Shows::InBridge],
        short: true,
        ..ROW
    },
    Row {
        rule: "offloads-off",
        how: "`-device`",
        guest: q35!(
            "-netdev tap,id=n0,ifname={tap},script=no,downscript=no \
             -device virtio-net-pci,netdev=n0,id=net0,mac=52:54:00:00:01:03,host_tso4=off,guest_tso4=off"
        ),
        shows: &[Shows::OfCard("host_tso4", Expect::On), Shows::OfCard("guest_tso4", Expect::On)],
        ..ROW
    },
    Row {
        rule: "mtu-mismatch",
        how: "tap above its bridge",
        guest: q35!(
            "-netdev tap,id=n0,ifname={large-tap},script=no,downscript=no \
             -device virtio-net-pci,netdev=n0,id=net0,mac=52:54:00:00:01:04"
        ),
        shows: &[Shows::SameMtu],
        short: true,
        ..ROW
    },
    Row {
        rule: "bridge-netfilter",
        how: "by its bridge",
        guest: q35!(
            "-netdev tap,id=n0,ifname={own-tap},script=no,downscript=no \
             -device virtio-net-pci,netdev=n0,id=net0,mac=52:54:00:00:01:07"
        ),
        after: After::Netfilter,
        shows: &[Shows::NoNetfilter],
        short: true,
        ..ROW
    },
    Row {
        rule: "iothread-on-vcpu-core",
        how: "`taskset`",
        guest: io!("-drive file={raw},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap \
             -device virtio-blk-pci,drive=d0,id=disk0,iothread=io0"),
        after: After::Pin,
        shows: &[Shows::Elsewhere(Threads::Io)],
        short: true,
        ..ROW
    },
    Row {
        rule: "vcpus-over-cores",
        how: "more than the host has",
        guest: "-nodefaults -machine q35 -accel tcg -cpu max -smp {over}",
        shows: &[Shows::AsTheHost],
        ..ROW
    },
    Row {
        rule: "vcpus-over-cores",
        how: "two on one processor",
        guest: "-nodefaults -machine q35 -accel tcg -cpu max -smp 2",
        after: After::Pin,
        shows: &[Shows::Elsewhere(Threads::Vcpu)],
        ..ROW
    },
    Row {
        rule: "cpu-quota",
        how: "control group",
        guest: q35!(""),
        after: After::Quota,
        shows: &[Shows::NoQuota],
        short: true,
        ..ROW
    },
    Row {
        rule: TOGETHER,
        how: "lsi, `-drive`",
        guest: q35!(
            "-drive file={raw},format=raw,if=none,id=d0,cache=writeback,aio=threads -device lsi53c895a,id=hba \
             -device scsi-hd,drive=d0,bus=hba.0,scsi-id=2,lun=0,id=disk0,serial=S1"
        ),
        shows: &[Shows::Disk("virtio-blk-pci"), Shows::OwnIothread, DIRECT, Shows::Aio("native")],
        short: true,
        ..ROW
    },
];
