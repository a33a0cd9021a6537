//! The faults, and reasons where there is none. A rule needs a row or a reason for each way.

mod libvirt;
mod proxmox;
mod qemu;

use super::{Expect, Row, Shows, Way, Why};

/// The cache mode that is advised.
const DIRECT: Shows = Shows::Cache { direct: true, no_flush: false };
const NATIVE: &[Shows] = &[DIRECT, Shows::Aio("native")];
const UNFLUSHED: &[Shows] = &[DIRECT, Shows::WriteCache, Shows::Aio("native")];
const VIRTIO: &[Shows] = &[Shows::Disk("virtio-blk-pci"), Shows::OwnIothread];
const SCSI: &[Shows] = &[Shows::Disk("scsi-hd"), Shows::OwnIothread];
const CARD: &[Shows] = &[Shows::Card("virtio-net-pci"), Shows::InBridge];
/// The guest is told what the uplink of a test passes.
const SMALLER: &[Shows] = &[Shows::OfCard("host_mtu", Expect::Number(1400))];

pub const ROWS: [&[Row]; 3] = [qemu::ROWS, libvirt::ROWS, proxmox::ROWS];

const ALL: [Way; 3] = Way::ALL;

/// For all three ways alike.
const fn all(rule: &'static str, why: Why) -> [(&'static str, Way, Why); 3] {
    [(rule, ALL[0], why), (rule, ALL[1], why), (rule, ALL[2], why)]
}

/// Forms of a rule's advice, the same for all ways, that no row has though the rule has rows: the rule, the form, why.
pub const FORMS: &[(&str, &str, Why)] = &[
    ("limit-in-force", "a limit of `vmio guard`", Why::TriedAsRoot),
    ("limit-in-force", "a limit at a bridge that guests share", Why::TriedAsRoot),
    ("limit-in-force", "a limit that Firecracker or Cloud Hypervisor holds itself", Why::NeedsProgram),
    ("limit-in-force", "a card's limit of LXD or Incus", Why::NeedsProgram),
];

/// Why a rule's advice is not applied.
pub static WHY: std::sync::LazyLock<Vec<(&'static str, Way, Why)>> = std::sync::LazyLock::new(|| {
    let whole = [
        all("emulation-though-kvm", Why::NeedsKvm),
        all("old-cpu-model", Why::NeedsKvm),
        all("host-clock-source", Why::NeedsKvm),
        all("hpet-left-on", Why::NeedsKvm),
        all("windows-no-enlightenments", Why::NeedsKvm),
        all("no-vhost", Why::NeedsVhostNet),
        all("nic-queues", Why::NeedsVhostNet),
        all("guest-drops", Why::NeedsLosses),
        all("conntrack-full", Why::NeedsLosses),
        all("uplink-trouble", Why::NeedsLosses),
        all("numa-split", Why::NeedsNuma),
        all("zfs-volblocksize", Why::NeedsZfs),
        all("direct-io-on-checksums", Why::NeedsStorage),
        all("copy-on-write-below", Why::NeedsStorage),
        all("exchange-format", Why::NeedsStorage),
        all("discard-goes-nowhere", Why::NeedsStorage),
        all("discard-storm", Why::InGuest),
        all("shared-journal", Why::NeedsStorage),
        all("io-uring-hangs", Why::NeedsStorage),
        all("cache-aio-pair", Why::FaultRefused),
        all("setting-overridden", Why::LooksOnly),
        all("network-disk-on-host", Why::InGuest),
        all("disk-in-memory", Why::ReadersPlace),
        all("io-weight-ignored", Why::HostsOwn),
        all("guest-in-swap", Why::HostsOwn),
        all("memory-in-host-cache", Why::NeedsReads),
        all("slow-governor", Why::HostsOwn),
        all("ksm", Why::HostsOwn),
    ];
    let one = [
        ("deleted-file", Way::Qemu, Why::TriedApart),
        ("deleted-file", Way::Proxmox, Why::TriedApart),
        ("cpu-quota", Way::Libvirt, Why::NeedsGroups),
        ("bsd-queues", Way::Qemu, Why::CannotBe),
        ("bsd-queues", Way::Libvirt, Why::NeedsVhostNet),
        ("virtio-choice", Way::Proxmox, Why::CannotBe),
        ("shared-iothread", Way::Proxmox, Why::CannotBe),
        ("offloads-off", Way::Proxmox, Why::LooksOnly),
    ];
    whole.into_iter().flatten().chain(one).collect()
});
