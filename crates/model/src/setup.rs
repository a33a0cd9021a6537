//! What is measured: one side (a guest or the host itself), the storage it works on, how the
//! guest sees it, and the workload. These are names of entries of the extension points in
//! `vmio-host`; this crate does not know what the entries do.

use serde::{Deserialize, Serialize};

/// Host page cache between the guest's disk and the backing storage (QEMU `cache=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// `cache=none`: O_DIRECT, the guest's flushes are passed on.
    None,
    /// `cache=writeback`: through the host's page cache, the guest's flushes are passed on.
    Writeback,
}

/// How QEMU submits I/O (`aio=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aio {
    /// A pool of threads that call pread/pwrite.
    Threads,
    /// Linux AIO; needs O_DIRECT.
    Native,
    /// io_uring.
    #[serde(rename = "io_uring")]
    IoUring,
}

/// How a guest sees its disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Attachment {
    /// Entry of `drivers/`, for example `virtio-blk`.
    pub driver: String,
    /// QEMU cache mode.
    pub cache: Cache,
    /// QEMU AIO engine.
    pub aio: Aio,
    /// Whether the disk has an I/O thread of its own.
    pub iothread: bool,
}

/// One cell of a study: a side, a target, an attachment (none on the native side) and a workload.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Setup {
    /// Entry of `guests/`: `native`, `qemu`.
    pub guest: String,
    /// Entry of `targets/`: `device`, `sparse`, `preallocated`.
    pub target: String,
    /// How the guest sees the target; `None` on the native side.
    pub attachment: Option<Attachment>,
    /// Entry of `workloads/`: `durable-append`, `seq-write`, …
    pub workload: String,
}

impl Setup {
    /// Stable identity of the cell: used as its key in the store, and shown.
    /// `device/qemu/virtio-blk,none,native/seq-write` or `device/native/seq-write`;
    /// `+iothread` is appended to the attachment that has one.
    pub fn key(&self) -> String {
        match &self.attachment {
            Some(a) => format!("{}/{}/{}/{}", self.target, self.guest, a.label(), self.workload),
            None => format!("{}/{}/{}", self.target, self.guest, self.workload),
        }
    }

    /// The cell that this one is compared with: the same workload on the same target, natively.
    pub fn baseline(&self) -> Setup {
        Setup { guest: "native".into(), attachment: None, ..self.clone() }
    }

    /// Whether this is a native cell.
    pub fn is_native(&self) -> bool {
        self.attachment.is_none()
    }
}

impl Attachment {
    /// `virtio-blk,none,native+iothread`.
    pub fn label(&self) -> String {
        format!("{},{},{}{}", self.driver, self.cache, self.aio, if self.iothread { "+iothread" } else { "" })
    }
}

impl std::fmt::Display for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Cache::None => "none",
            Cache::Writeback => "writeback",
        })
    }
}

impl std::fmt::Display for Aio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Aio::Threads => "threads",
            Aio::Native => "native",
            Aio::IoUring => "io_uring",
        })
    }
}
