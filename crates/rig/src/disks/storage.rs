//! What a target yields: the thing that a hypervisor opens as a guest's disk.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// Seconds for which QEMU holds a request back and connects again, where its connection with a server on another host broke.
/// After them the guest gets an error. A server that was started again is reached within them; one that stays away makes a
/// cell fail soon.
const RECONNECT_SECONDS: u64 = 5;

/// A client of a hypervisor's own, which not every build of it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockClient {
    /// Of NBD with TLS.
    NbdTls,
    /// Of iSCSI.
    Iscsi,
    /// Of Ceph's RADOS block devices.
    Rbd,
}

/// Storage as a hypervisor opens it.
#[derive(Debug, Clone, PartialEq)]
pub enum Storage {
    /// A regular file, raw.
    File(PathBuf),
    /// A block device node.
    BlockDevice(PathBuf),
    /// A file in an image format of QEMU's.
    Image {
        /// The file.
        path: PathBuf,
        /// QEMU's name of the format: `qcow2`.
        format: &'static str,
        /// Further members of its `-blockdev` (QAPI `BlockdevOptions`), such as `l2-cache-size`.
        options: Map<String, Value>,
    },
    /// A vhost-user-blk server (vhost-user protocol of QEMU's docs/interop). Fits virtio-blk alone;
    /// the guest's memory must be shared with the server.
    VhostUserBlk {
        /// Its Unix socket.
        socket: PathBuf,
    },
    /// A server of the NBD protocol on a Unix socket.
    Nbd {
        /// Its Unix socket.
        socket: PathBuf,
        /// Name of the export.
        export: String,
    },
    /// A server of the NBD protocol with a cache, on a Unix socket. One that caches otherwise takes its place while the
    /// guest runs.
    CachedNbd {
        /// Its Unix socket.
        socket: PathBuf,
    },
    /// A server of the NBD protocol on another host, over TCP. It is reached from the network namespace that the
    /// hypervisor is started in.
    NbdTcp {
        /// Its address and port.
        server: SocketAddr,
        /// Name of the export.
        export: String,
    },
    /// The same with TLS, by a pre-shared key.
    NbdTls {
        /// Its address and port.
        server: SocketAddr,
        /// Name of the export.
        export: String,
        /// The directory with QEMU's file of keys, `keys.psk`.
        keys: PathBuf,
    },
    /// A server of ATA over Ethernet, which a guest reaches by itself.
    Aoe {
        /// Its shelf.
        shelf: u16,
        /// Its slot there.
        slot: u8,
    },
    /// A disk of an iSCSI target (RFC 7143) on another host. It is reached from the network namespace that the
    /// hypervisor is started in, or by a guest itself.
    Iscsi {
        /// Address and port of the target's portal.
        portal: SocketAddr,
        /// Its name (`iqn.…`).
        target: String,
        /// Number of the disk there.
        lun: u32,
    },
    /// A disk of an NVMe subsystem on another host, over TCP, which a kernel reaches by itself.
    NvmeTcp {
        /// Its address and port.
        server: SocketAddr,
        /// Name of the subsystem, which has one disk.
        nqn: String,
    },
    /// A PCI device that the guest gets whole, by VFIO. Fits nvme alone: the guest's driver is that of the device.
    PassedThrough {
        /// Its address on the host: `0000:03:00.0`.
        address: String,
    },
    /// A Ceph RADOS block device through librbd.
    Rbd {
        /// Pool.
        pool: String,
        /// Image.
        image: String,
        /// Configuration file; Ceph's default where it is not said.
        conf: Option<PathBuf>,
        /// User, without `client.`.
        user: Option<String>,
    },
}

impl Storage {
    /// The user that keys of [`Storage::NbdTls`] are of.
    pub const TLS_USER: &'static str = "vmio";

    /// Its file or device on this machine; `None` for what is served.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) | Self::BlockDevice(path) | Self::Image { path, .. } => Some(path),
            Self::VhostUserBlk { .. } | Self::Nbd { .. } | Self::CachedNbd { .. } => None,
            Self::NbdTcp { .. } | Self::Aoe { .. } | Self::Iscsi { .. } | Self::NvmeTcp { .. } => None,
            Self::NbdTls { .. } | Self::Rbd { .. } | Self::PassedThrough { .. } => None,
        }
    }

    /// How QEMU's own client opens a server of the NBD protocol on another host (QAPI `BlockdevOptionsNbd`). The first
    /// connection is tried once, without `open-timeout`: with it QEMU would try again after each refusal, too, and the limit
    /// is that of the guest's boot.
    pub fn nbd_over_tcp(server: SocketAddr, export: &str) -> Value {
        json!({
            "driver": "nbd", "export": export, "reconnect-delay": RECONNECT_SECONDS,
            "server": {"type": "inet", "host": server.ip(), "port": server.port().to_string()},
        })
    }

    /// Whether another one takes its place while a guest runs ([`crate::disks::targets::Prepared::exchange`]).
    pub fn is_exchanged(&self) -> bool {
        matches!(self, Self::Image { .. } | Self::CachedNbd { .. })
    }

    /// Who serves it, where that is not the hypervisor itself, for results.
    pub fn server(&self) -> Option<&'static str> {
        match self {
            Self::File(_) | Self::BlockDevice(_) | Self::Image { .. } => None,
            Self::VhostUserBlk { .. } => Some("vhost-user-blk"),
            Self::Nbd { .. } | Self::CachedNbd { .. } => Some("NBD over a Unix socket"),
            Self::NbdTcp { .. } => Some("NBD over TCP"),
            Self::NbdTls { .. } => Some("NBD over TCP with TLS"),
            Self::Aoe { .. } => Some("ATA over Ethernet"),
            Self::Iscsi { .. } => Some("iSCSI"),
            Self::NvmeTcp { .. } => Some("NVMe over TCP"),
            Self::Rbd { .. } => Some("librbd"),
            Self::PassedThrough { .. } => Some("the device itself, passed through by VFIO"),
        }
    }
}
