//! A running guest, as far as it could be read. Every reader (command line, monitor, libvirt, Proxmox, a recording)
//! returns such a guest with what it knows; [`Guest::fill`] and [`Guest::configured`] combine them. An unreadable
//! setting is `None`, and `unread` says why.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fact::{device, facts};
use super::{
    Balloon, Below, Fact, GuestId, HostSeen, HostState, IoWeight, Nic, Place, Provenance, Setting, Subject, Throttled,
    Unread,
};
use crate::cell::{Kind, Vmm};
use crate::result::Accel;

/// A guest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Guest {
    /// Its name on this host: `web1`, `101`, `pid 812` where it has none.
    pub name: String,
    /// What runs it, by the entry of `guests/`: `qemu`, `container`, `firecracker`.
    pub kind: String,
    /// What manages it, by the entry of `managers/`: `libvirt`, `proxmox`, `kubevirt`, `incus`, `lxd`.
    pub manager: Option<String>,
    /// Process that runs it.
    pub pid: Option<u32>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// Other names and numbers of it: `vmid`, `domain`, `pod`, `title`.
    pub ids: BTreeMap<String, String>,
    /// What runs it, with version: `QEMU 7.2.22`.
    pub version: Option<String>,
    /// Operating system in it, where the configuration says so: `windows`, `linux`, `bsd`, `other` for none of these.
    pub os: Option<String>,
    /// Its disks.
    pub disks: Vec<Disk>,
    /// Its network devices.
    pub nics: Vec<Nic>,
    /// Its processors and memory.
    pub processors: Option<Processors>,
    /// How long its monitor's connection was held to ask, in which its manager cannot; `None` where it was not asked.
    pub monitor_held_seconds: Option<f64>,
    /// What could not be read.
    pub unread: Vec<Unread>,
}

device! {
    /// A guest's disk. What could not be read is `None`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Disk {
        /// Subject of its findings: `guest db1, disk vda`.
        pub subject: Subject,
        /// Its driver by the name of vmio's entry: `virtio-blk`, `lsi53c895a`, `ahci`, `ide`.
        pub driver: Fact<Option<String>>,
        /// QEMU cache mode as on its command line: `none`, `writeback`, `directsync`, `unsafe`, …
        pub cache: Fact<Option<String>>,
        /// QEMU AIO engine: `threads`, `native`, `io_uring`.
        pub aio: Fact<Option<String>>,
        /// Whether it has an I/O thread of its own.
        pub iothread: Fact<Option<bool>>,
        /// Whether its file has holes.
        pub sparse: Fact<Option<bool>>,
        /// What else could be read.
        pub details: Details,
        /// Its names in configurations.
        pub place: Place,
        /// Where it was read.
        pub from: Provenance,
    }
}

facts! {
    /// Further settings of a disk. What could not be read is `None`.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    pub struct Details {
        /// Its storage: `file`, `block`, `lvm-thin`, `zvol`, `rbd`, `nbd`, `iscsi`.
        pub storage: Fact<Option<String>>,
        /// Image format: `raw`, `qcow2`.
        pub format: Fact<Option<String>>,
        /// Size that the guest sees.
        pub virtual_bytes: Fact<Option<u64>>,
        /// Cluster size of a qcow2 image.
        pub cluster_bytes: Fact<Option<u64>>,
        /// QEMU's cache of the image's L2 tables.
        pub l2_cache_bytes: Fact<Option<u64>>,
        /// Number of backing files in its image chain.
        pub backing_files: Fact<Option<u32>>,
        /// Whether its storage allocates blocks when they are written (a thin pool, a sparse file).
        pub thin: Fact<Option<bool>>,
        /// Whether the guest's discards are passed on.
        pub discard: Fact<Option<bool>>,
        /// What is done with zeroes that the guest writes: `off`, `on`, `unmap`.
        pub detect_zeroes: Fact<Option<String>>,
        /// Block size of a ZFS volume.
        pub volblock_bytes: Fact<Option<u64>>,
        /// Number of disks with the same driver in the guest, this one included.
        pub alike_in_guest: Fact<Option<u32>>,
        /// How the device is attached, where that is not PCI: `mmio`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub transport: Option<String>,
        /// Request queues of the device.
        pub queues: Fact<Option<u32>>,
        /// Number of I/O threads that the queues are spread over.
        pub mapped_iothreads: Fact<Option<u32>>,
        /// Name of its I/O thread; two disks with one name share it.
        pub iothread_name: Fact<Option<String>>,
        /// Bytes of its files that the host's page cache holds now.
        pub host_cached_bytes: Fact<Option<u64>>,
        /// Bytes that the guest read from it since its start.
        pub read_bytes: Fact<Option<u64>>,
        /// Allocated bytes of its files.
        pub allocated_bytes: Fact<Option<u64>>,
        /// The host, for advice that depends on it.
        #[serde(skip)]
        pub host: Fact<Option<HostSeen>>,
        /// What runs its guest, with version, for advice that depends on it: `QEMU 7.2.22`.
        #[serde(skip)]
        pub hypervisor: Fact<Option<String>>,
        /// `tmpfs` or `ramfs`, where its file lies in the host's memory.
        #[serde(skip_serializing_if = "Fact::is_blank")]
        pub in_memory: Fact<Option<String>>,
        /// The storage below it.
        #[serde(skip_serializing_if = "Below::is_blank")]
        pub below: Below,
        /// Files that were deleted while the guest has them open: they are lost when its process ends.
        #[serde(skip_serializing_if = "Fact::is_blank")]
        pub deleted: Fact<Vec<DeletedFile>>,
        /// Limits in force, in words: `1000 IOPS by QEMU's throttle`.
        pub limits: Fact<Vec<String>>,
        /// Keys on QEMU's command line that set them: `throttling.iops-total=100`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub limit_keys: Vec<String>,
        /// Id of its throttle group, where the limits are a group's.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub throttle_group: Option<String>,
        /// Whether a limit of writes is that of a control group of version 1, which writes through the page cache pass.
        #[serde(skip_serializing_if = "Fact::is_blank")]
        pub writes_uncharged: Fact<Option<bool>>,
        /// Settings that are configured and not in force.
        pub overridden: Vec<Overridden>,
    }
}

/// A deleted file that a process holds open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletedFile {
    /// The name that it had for the process.
    pub path: String,
    /// The process.
    pub pid: u32,
    /// Number of its descriptor.
    pub fd: u32,
    /// Whether another file has that name now.
    pub replaced: bool,
}

/// A setting that is configured and not in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Overridden {
    /// Which.
    pub setting: Setting,
    /// The configured value.
    pub asked: String,
    /// The value in force.
    pub found: String,
    /// The reason, where it is certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

device! {
    /// A guest's processors and memory, and its threads on the host.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Processors {
        /// Subject of its findings: `guest web1`.
        pub subject: Subject,
        /// Virtual CPUs.
        pub vcpus: Fact<Option<u32>>,
        /// Accelerator.
        pub accel: Fact<Option<Accel>>,
        /// Whether this host has `/dev/kvm` with a driver, also where this user may not open it; a node without a
        /// driver counts as none. Whether KVM works is not tried.
        pub kvm_here: Fact<Option<bool>>,
        /// CPU model by QEMU's name: `host`, `qemu64`, `kvm64`, `max`.
        pub model: Fact<Option<String>>,
        /// Flags that were added to the model or taken from it: `+aes`, `hv_relaxed`.
        pub flags: Fact<Vec<String>>,
        /// Whether the guest runs Windows; `None` where unknown.
        pub windows: Fact<Option<bool>>,
        /// The guest's system as its configuration names it: `win11`, `microsoft.com/win/2k19`.
        pub os_release: Fact<Option<String>>,
        /// Whether the machine has an emulated HPET, a timer of the PC.
        pub hpet: Fact<Option<bool>>,
        /// The host's clock source: `tsc`, `hpet`.
        pub clock_source: Fact<Option<String>>,
        /// Threads of the hypervisor with their affinity.
        pub threads: Fact<Vec<PlacedThread>>,
        /// The host's processors.
        pub host: Fact<Vec<HostCpu>>,
        /// Memory of the guest.
        pub memory_bytes: Fact<Option<u64>>,
        /// Bytes of the hypervisor's memory by NUMA node of the host.
        pub memory_by_node: Fact<BTreeMap<u32, u64>>,
        /// Whether the memory consists of reserved huge pages.
        pub huge_pages: Fact<Option<bool>>,
        /// Quota of its control group, in CPUs.
        pub quota_cpus: Fact<Option<f64>>,
        /// Whether that quota is the vCPUs' alone, so that the hypervisor's own threads have time besides.
        pub quota_of_vcpus: Fact<Option<bool>>,
        /// How often that quota was used up.
        pub throttled: Fact<Option<Throttled>>,
        /// Bytes of the guest's memory that lie in the host's swap.
        pub swapped_bytes: Fact<Option<u64>>,
        /// Whether the balloon device tells the host what memory the guest freed (free-page-reporting).
        pub free_page_reporting: Fact<Option<bool>>,
        /// What its balloon leaves it, where it has one.
        pub balloon: Fact<Option<Balloon>>,
        /// Bytes that storage read for its process since that started.
        pub storage_read_bytes: Fact<Option<u64>>,
        /// Weight of its I/O, where one was set.
        pub io_weight: Fact<Option<IoWeight>>,
        /// What was seen of the host as a whole.
        pub host_state: Fact<Option<HostState>>,
        /// Other guests with a vCPU bound to the same processor as one of this guest's.
        pub shares_cpus_with: Fact<Vec<String>>,
        /// Settings that are configured and not in force.
        pub overridden: Vec<Overridden>,
        /// The guest's names in configurations.
        pub place: Place,
        /// Where it was read first.
        pub from: Provenance,
    }
}

/// A thread of a hypervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlacedThread {
    /// Its role: `vcpu`, `iothread`, `main`, `vhost`, `worker`, `other`.
    pub role: String,
    /// Number of a vCPU, id of an I/O thread; may be empty.
    pub name: String,
    /// Thread id on the host; 0 in a recording without one.
    pub tid: u32,
    /// Its affinity: processors of the host by number.
    pub cpus: Vec<u32>,
}

/// A processor of the host (`/sys/devices/system/cpu/cpuN/topology`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostCpu {
    /// Its number.
    pub cpu: u32,
    /// Core: processors with the same core and package are its threads.
    pub core: u32,
    /// Package (socket).
    pub package: u32,
    /// NUMA node.
    pub node: u32,
}

impl Details {
    /// Name of the file system that holds the disk's file: `ext4`, `btrfs`.
    pub fn filesystem(&self) -> Option<&str> {
        self.below.mounted.as_ref().map(|mounted| mounted.filesystem.as_str())
    }
}

impl Disk {
    /// A disk of which only the name is known.
    pub fn unknown(subject: Subject, from: Provenance) -> Self {
        Disk {
            subject,
            driver: Fact::default(),
            cache: Fact::default(),
            aio: Fact::default(),
            iothread: Fact::default(),
            sparse: Fact::default(),
            details: Details::default(),
            place: Place::default(),
            from,
        }
    }

    /// Whether its cache mode is known, and bypasses the host's page cache (QEMU `cache.direct`).
    pub fn is_direct(&self) -> bool {
        matches!(self.cache.as_deref(), Some("none" | "directsync"))
    }
}

impl Processors {
    /// Processors of which only the guest is known.
    pub fn unknown(subject: Subject, from: Provenance) -> Self {
        Processors {
            subject,
            vcpus: Fact::default(),
            accel: Fact::default(),
            kvm_here: Fact::default(),
            model: Fact::default(),
            flags: Fact::default(),
            windows: Fact::default(),
            os_release: Fact::default(),
            hpet: Fact::default(),
            clock_source: Fact::default(),
            threads: Fact::default(),
            host: Fact::default(),
            memory_bytes: Fact::default(),
            memory_by_node: Fact::default(),
            huge_pages: Fact::default(),
            quota_cpus: Fact::default(),
            quota_of_vcpus: Fact::default(),
            throttled: Fact::default(),
            swapped_bytes: Fact::default(),
            free_page_reporting: Fact::default(),
            balloon: Fact::default(),
            storage_read_bytes: Fact::default(),
            io_weight: Fact::default(),
            host_state: Fact::default(),
            shares_cpus_with: Fact::default(),
            overridden: Vec::new(),
            place: Place::default(),
            from,
        }
    }
}

impl Guest {
    /// Its id among all guests of the scan.
    pub fn id(&self) -> GuestId {
        GuestId::new(&self.name)
    }

    /// Whether QEMU runs it, so that it has QEMU's settings, threads and monitor.
    pub fn is_qemu(&self) -> bool {
        Kind::of(&self.kind).vmm == Vmm::Qemu
    }

    /// Whether it runs under the host's kernel, without machine and images ([`Kind::shares_kernel`]).
    pub fn shares_kernel(&self) -> bool {
        Kind::of(&self.kind).shares_kernel
    }

    /// Whether the host's kernel serves its devices ([`Kind::has_back_ends`]).
    pub fn has_back_ends(&self) -> bool {
        Kind::of(&self.kind).has_back_ends
    }

    /// Whether vmio runs it, for a measurement.
    pub fn is_vmios_own(&self) -> bool {
        self.ids.get("owner").is_some_and(|owner| owner == "vmio")
    }

    /// The facts for the rules.
    pub fn facts(&self) -> super::Facts {
        super::Facts {
            vmm: if self.kind.is_empty() { Vmm::default() } else { Kind::of(&self.kind).vmm },
            disks: self.disks.clone(),
            nics: self.nics.clone(),
            processors: self.processors.clone().into_iter().collect(),
            measured: None,
        }
    }
}
