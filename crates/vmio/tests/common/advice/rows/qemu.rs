//! Faults of plain QEMU: options as people write them.

use super::super::{After, Expect, Fill, Row, Shows, TOGETHER, Threads, Way};
use super::{CARD, DIRECT, NATIVE, SCSI, SMALLER, UNFLUSHED, VIRTIO};

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

/// A sound disk of one file, with its device.
macro_rules! raw {
    ($device:expr) => {
        concat!("-drive file={raw},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap ", $device)
    };
}

const fn row(rule: &'static str, how: &'static str, shows: &'static [Shows]) -> Row {
    Row::new(Way::Qemu, rule, how, shows)
}

pub const ROWS: &[Row] = &[
    row("emulated-driver", "lsi, `-drive`", VIRTIO).short().guest(q35!(raw!(
        "-device lsi53c895a,id=hba -device scsi-hd,drive=d0,bus=hba.0,scsi-id=2,lun=0,id=disk0,serial=S1"
    ))),
    row("emulated-driver", "ahci, `-blockdev`", VIRTIO).guest(q35!(
        "-blockdev driver=file,node-name=f0,filename={raw},cache.direct=on,aio=native,discard=unmap \
         -blockdev driver=raw,node-name=d0,file=f0,cache.direct=on,discard=unmap -device ahci,id=hba \
         -device ide-hd,drive=d0,bus=hba.0,unit=0,rotation_rate=1"
    )),
    row("emulated-driver", "`-drive if=ide`", VIRTIO).guest(
        "-nodefaults -machine pc -accel tcg -cpu max -smp 1 \
         -drive file={raw},format=raw,if=ide,index=0,cache=none,aio=native,discard=unmap",
    ),
    row("emulated-driver", "`-hda`", VIRTIO).guest("-nodefaults -machine pc -accel tcg -cpu max -smp 1 -hda {raw}"),
    row("missing-iothread", "`-drive`", VIRTIO).short().guest(q35!(raw!("-device virtio-blk-pci,drive=d0,id=disk0"))),
    row("missing-iothread", "virtio-scsi, `-blockdev`", SCSI).short().guest(q35!(
        "-blockdev driver=file,node-name=f0,filename={raw},cache.direct=on,aio=native,discard=unmap \
         -blockdev driver=raw,node-name=d0,file=f0,cache.direct=on,discard=unmap -device virtio-scsi-pci,id=hba \
         -device scsi-hd,drive=d0,bus=hba.0,id=disk0"
    )),
    row("missing-iothread", "`-drive if=virtio`", VIRTIO)
        .guest(q35!("-drive file={raw},format=raw,if=virtio,cache=none,aio=native,discard=unmap")),
    row("host-page-cache", "`-drive`", NATIVE)
        .short()
        .guest(io!("-drive file={raw},format=raw,if=none,id=d0,cache=writeback,aio=threads,discard=unmap \
         -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0")),
    row("host-page-cache", "`-drive`, cache and engine not said", NATIVE).guest(io!(
        "-drive file={raw},format=raw,if=none,id=d0,discard=unmap -device virtio-blk-pci,drive=d0,iothread=io0"
    )),
    row("host-page-cache", "`-blockdev`, qcow2", &[DIRECT, Shows::Aio("io_uring"), Shows::Format("qcow2")])
        .short()
        .guest(io!("-blockdev driver=file,node-name=f0,filename={qcow2},discard=unmap \
         -blockdev driver=qcow2,node-name=d0,file=f0,discard=unmap \
         -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0")),
    row("host-page-cache", "`-drive`, writethrough", UNFLUSHED)
        .guest(io!("-drive file={raw},format=raw,if=none,id=d0,cache=writethrough,aio=threads,discard=unmap \
         -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0")),
    row("host-page-cache", "`-drive`, directsync", UNFLUSHED)
        .short()
        .guest(io!("-drive file={raw},format=raw,if=none,id=d0,cache=directsync,aio=native,discard=unmap \
         -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0")),
    row("host-page-cache", "`-blockdev`, `write-cache=off`", UNFLUSHED).guest(io!(
        "-blockdev driver=file,node-name=f0,filename={raw},cache.direct=on,aio=native,discard=unmap \
         -blockdev driver=raw,node-name=d0,file=f0,cache.direct=on,discard=unmap \
         -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0,write-cache=off"
    )),
    row("unsafe-cache", "`-drive`", NATIVE)
        .guest(io!("-drive file={raw},format=raw,if=none,id=d0,cache=unsafe,aio=threads,discard=unmap \
         -device virtio-blk-pci,drive=d0,iothread=io0")),
    row("unsafe-cache", "`-blockdev`", NATIVE).guest(io!(
        "-blockdev driver=file,node-name=f0,filename={raw},cache.no-flush=on,discard=unmap \
         -blockdev driver=raw,node-name=d0,file=f0,cache.no-flush=on,discard=unmap \
         -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"
    )),
    row("sparse-file", "raw", &[Shows::NoHoles, Shows::Format("raw")])
        .guest(io!("-drive file={sparse},format=raw,if=none,id=d0,cache=none,aio=io_uring \
         -device virtio-blk-pci,drive=d0,iothread=io0")),
    row("sector-size-not-passed", "`-drive`", &[Shows::Told(",physical_block_size=4096")])
        .guest(io!("-drive file={loop4k},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap \
         -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0")),
    row("sector-size-not-passed", "virtio-scsi, `-blockdev`", &[Shows::Told(",physical_block_size=4096")]).guest(io!(
        "-blockdev driver=host_device,node-name=f0,filename={loop4k},cache.direct=on,aio=native,discard=unmap \
         -blockdev driver=raw,node-name=d0,file=f0,cache.direct=on,discard=unmap \
         -device virtio-scsi-pci,id=hba,iothread=io0 -device scsi-hd,drive=d0,bus=hba.0,id=disk0"
    )),
    row("qcow2-l2-cache", "`-drive`", &[Shows::Told(",l2-cache-size=8388608")]).guest(io!(
        "-drive file={large},format=qcow2,if=none,id=d0,cache=none,aio=io_uring,discard=unmap,\
         l2-cache-size=65536 \
         -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"
    )),
    row("qcow2-l2-cache", "`-blockdev`", &[Shows::Told(",l2-cache-size=8388608")]).guest(io!(
        "-blockdev driver=file,node-name=f0,filename={large},cache.direct=on,aio=io_uring,discard=unmap \
         -blockdev driver=qcow2,node-name=d0,file=f0,cache.direct=on,discard=unmap,l2-cache-size=65536 \
         -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"
    )),
    row("backing-chain", "`-drive`", &[Shows::Chain(0)])
        .short()
        .guest(io!("-drive file={chain},format=qcow2,if=none,id=d0,cache=none,aio=io_uring,discard=unmap \
         -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0")),
    row("backing-chain", "`-blockdev`", &[Shows::Chain(0)]).guest(io!(
        "-blockdev driver=file,node-name=f0,filename={chain},cache.direct=on,aio=io_uring,discard=unmap \
         -blockdev driver=qcow2,node-name=n0,file=f0,cache.direct=on,discard=unmap \
         -device virtio-blk-pci,drive=n0,iothread=io0,id=disk0"
    )),
    row("limit-in-force", "`-drive throttling.*`", &[Shows::NoLimit]).short().guest(io!(
        "-drive file={raw},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap,\
         throttling.iops-total=500 \
         -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"
    )),
    row("limit-in-force", "`-drive` without ids", &[Shows::NoLimit]).guest(io!(
        "-drive file={raw},format=raw,if=none,id=drive-0,cache=none,aio=native,discard=unmap,\
         throttling.bps-total=1000000 \
         -device virtio-blk-pci,drive=drive-0,iothread=io0"
    )),
    row("limit-in-force", "`tc` at the tap", &[Shows::NoQueue]).after(After::Shaped).short().guest(q35!(
        "-netdev tap,id=n0,ifname={tap},script=no,downscript=no \
         -device virtio-net-pci,netdev=n0,id=net0,mac=52:54:00:00:01:08"
    )),
    row("limit-in-force", "`-object throttle-group`", &[Shows::NoLimit]).guest(io!(
        "-object throttle-group,id=slow,x-iops-total=500 \
         -blockdev driver=file,node-name=f0,filename={raw},cache.direct=on,aio=native,discard=unmap \
         -blockdev driver=throttle,node-name=t0,throttle-group=slow,file=f0,cache.direct=on,discard=unmap \
         -blockdev driver=raw,node-name=d0,file=t0,cache.direct=on,discard=unmap \
         -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"
    )),
    row("no-discard", "`-drive`, qcow2", &[Shows::Discard])
        .guest(io!("-drive file={qcow2},format=qcow2,if=none,id=d0,cache=none,aio=io_uring \
         -device virtio-blk-pci,drive=d0,iothread=io0")),
    row("no-discard", "`-blockdev`, qcow2", &[Shows::Discard]).guest(io!(
        "-blockdev driver=file,node-name=f0,filename={qcow2},cache.direct=on,aio=io_uring \
         -blockdev driver=qcow2,node-name=d0,file=f0,cache.direct=on \
         -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"
    )),
    row("virtio-choice", "20 disks, `-blockdev`", &[Shows::Disk("scsi-hd")])
        .guest(io!("-device virtio-blk-pci,drive=n0,iothread=io0,id=disk0 {many}")),
    row("native-aio-that-waits", "`-drive`, qcow2", &[Shows::Aio("io_uring"), DIRECT])
        .guest(io!("-drive file={qcow2},format=qcow2,if=none,id=d0,cache=none,aio=native,discard=unmap \
         -device virtio-blk-pci,drive=d0,iothread=io0")),
    row("native-aio-that-waits", "`-blockdev`, qcow2", &[Shows::Aio("io_uring"), DIRECT]).guest(io!(
        "-blockdev driver=file,node-name=f0,filename={qcow2},cache.direct=on,aio=native,discard=unmap \
         -blockdev driver=qcow2,node-name=d0,file=f0,cache.direct=on,discard=unmap \
         -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0"
    )),
    row("shared-iothread", "virtio-blk", &[Shows::OwnIothread]).guest(io!(raw!(
        "-drive file={more},format=raw,if=none,id=d1,cache=none,aio=native,discard=unmap \
         -device virtio-blk-pci,drive=d0,iothread=io0,id=disk0 \
         -device virtio-blk-pci,drive=d1,iothread=io0,id=disk1"
    ))),
    row("shared-iothread", "virtio-scsi", &[Shows::OwnIothread]).guest(io!(raw!(
        "-drive file={more},format=raw,if=none,id=d1,cache=none,aio=native,discard=unmap \
         -device virtio-scsi-pci,id=hba,iothread=io0 -device scsi-hd,drive=d0,bus=hba.0,id=disk0 \
         -device scsi-hd,drive=d1,bus=hba.0,id=disk1"
    ))),
    row("single-queue", "virtio-blk", &[Shows::Queues(2)]).guest(
        "-nodefaults -machine q35 -accel tcg -cpu max -smp 2 -object iothread,id=io0 \
         -drive file={raw},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap \
         -device virtio-blk-pci,drive=d0,iothread=io0,num-queues=1,id=disk0",
    ),
    row("single-queue", "virtio-scsi", &[Shows::Queues(2)]).guest(
        "-nodefaults -machine q35 -accel tcg -cpu max -smp 2 -object iothread,id=io0 \
         -drive file={raw},format=raw,if=none,id=d0,cache=none,aio=native,discard=unmap \
         -device virtio-scsi-pci,id=hba,iothread=io0,num_queues=1 -device scsi-hd,drive=d0,bus=hba.0,id=disk0",
    ),
    row("threads-with-direct", "block device", &[Shows::Aio("native"), DIRECT])
        .guest(io!("-drive file={loop},format=raw,if=none,id=d0,cache=none,aio=threads,discard=unmap \
         -device virtio-blk-pci,drive=d0,iothread=io0")),
    row("emulated-nic", "e1000, `-netdev`", CARD).guest(q35!(
        "-netdev tap,id=n0,ifname={tap},script=no,downscript=no \
         -device e1000,netdev=n0,id=net0,mac=52:54:00:00:01:01"
    )),
    row("emulated-nic", "`-nic model=`", CARD)
        .short()
        .guest(q35!("-nic tap,model=e1000,ifname={tap},script=no,downscript=no,mac=52:54:00:00:01:05")),
    row("emulated-nic", "QEMU's default card", &[Shows::Card("virtio-net-pci")])
        .guest("-machine q35 -accel tcg -cpu max -smp 1 -serial none -monitor none -parallel none"),
    row("user-network", "`-nic user`", CARD)
        .fills(&[Fill::Bridge])
        .guest(q35!("-nic user,model=virtio-net-pci,mac=52:54:00:00:01:06")),
    row("user-network", "`-netdev user`", CARD)
        .fills(&[Fill::Bridge])
        .short()
        .guest(q35!("-netdev user,id=n0 -device virtio-net-pci,netdev=n0,id=net0,mac=52:54:00:00:01:02")),
    row(
        "offloads-off",
        "`-device`",
        &[Shows::OfCard("host_tso4", Expect::On), Shows::OfCard("guest_tso4", Expect::On)],
    )
    .guest(q35!(
        "-netdev tap,id=n0,ifname={tap},script=no,downscript=no \
         -device virtio-net-pci,netdev=n0,id=net0,mac=52:54:00:00:01:03,host_tso4=off,guest_tso4=off"
    )),
    row("offloads-off", "`vnet_hdr=off`", &[Shows::TapHeader]).short().guest(q35!(
        "-netdev tap,id=n0,ifname={tap},script=no,downscript=no,vnet_hdr=off \
         -device virtio-net-pci,netdev=n0,id=net0,mac=52:54:00:00:01:08"
    )),
    row("mtu-mismatch", "a narrow uplink", SMALLER).short().guest(q35!(
        "-netdev tap,id=n0,ifname={large-tap},script=no,downscript=no \
         -device virtio-net-pci,netdev=n0,id=net0,mac=52:54:00:00:01:04"
    )),
    row("mtu-mismatch", "host_mtu above its tap", &[Shows::TapMtu(9000)]).short().guest(q35!(
        "-netdev tap,id=n0,ifname={tap},script=no,downscript=no \
         -device virtio-net-pci,netdev=n0,id=net0,mac=52:54:00:00:01:08,host_mtu=9000"
    )),
    row("bridge-netfilter", "by its bridge", &[Shows::NoNetfilter]).after(After::Netfilter).short().guest(q35!(
        "-netdev tap,id=n0,ifname={own-tap},script=no,downscript=no \
         -device virtio-net-pci,netdev=n0,id=net0,mac=52:54:00:00:01:07"
    )),
    row("iothread-on-vcpu-core", "`taskset`", &[Shows::Elsewhere(Threads::Io)])
        .after(After::Pin)
        .short()
        .guest(io!(raw!("-device virtio-blk-pci,drive=d0,id=disk0,iothread=io0"))),
    row("vcpus-over-cores", "more than the host has", &[Shows::AsTheHost])
        .guest("-nodefaults -machine q35 -accel tcg -cpu max -smp {over}"),
    row("vcpus-over-cores", "two on one processor", &[Shows::Elsewhere(Threads::Vcpu)])
        .after(After::Pin)
        .guest("-nodefaults -machine q35 -accel tcg -cpu max -smp 2"),
    row("cpu-quota", "control group", &[Shows::NoQuota]).after(After::Quota).short().guest(q35!("")),
    row("cpu-quota", "as much as its vCPU takes", &[Shows::Quota(2)]).after(After::WholeQuota).guest(q35!("")),
    row(TOGETHER, "lsi, `-drive`", &[Shows::Disk("virtio-blk-pci"), Shows::OwnIothread, DIRECT, Shows::Aio("native")])
        .short()
        .guest(q35!(
            "-drive file={raw},format=raw,if=none,id=d0,cache=writeback,aio=threads -device lsi53c895a,id=hba \
         -device scsi-hd,drive=d0,bus=hba.0,scsi-id=2,lun=0,id=disk0,serial=S1"
        )),
];
