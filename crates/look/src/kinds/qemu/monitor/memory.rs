//! What the monitor knows of a guest's memory: what its balloon leaves it (QEMU qapi/machine.json, `BalloonInfo`), what
//! its driver reports (docs/interop/virtio-balloon-stats.rst), and what the guest read (qapi/block-core.json,
//! `BlockDeviceStats`).
//!
//! The driver reports where somebody has it polled. Who looks never turns polling on: that would wake the guest every
//! so often.

use serde_json::Value;
use vmio_model::facts::{Balloon, Disk, Fact, Guest, GuestMemory};
use vmio_node::qmp::ReadOnly;

use super::device::device_path;
use crate::qemu::options::Opt;

/// Replies about memory; `Null` for a missing one.
#[derive(Debug, Default)]
pub struct MemoryReplies {
    balloon: Value,
    polling_seconds: Value,
    statistics: Value,
    blocks: Value,
}

impl MemoryReplies {
    /// Queries what is known of the memory of a guest with this balloon device.
    pub fn ask(monitor: &mut ReadOnly, balloon: Option<&Opt>) -> Self {
        let queries: &[&str] =
            if balloon.is_some() { &["query-blockstats", "query-balloon"] } else { &["query-blockstats"] };
        let mut answers = monitor.queries(queries).into_iter().map(Result::unwrap_or_default);
        let (blocks, actual) = (answers.next().unwrap_or_default(), answers.next().unwrap_or_default());
        let mut replies = Self { blocks, balloon: actual, ..Self::default() };
        // One without an id has no path that is known.
        if let Some(path) = balloon.and_then(Opt::id).map(|id| format!("/machine/peripheral/{id}")) {
            let asked = [(path.clone(), "guest-stats-polling-interval"), (path, "guest-stats")];
            let mut answers = monitor.properties(&asked).into_iter().map(Option::unwrap_or_default);
            replies.polling_seconds = answers.next().unwrap_or_default();
            replies.statistics = answers.next().unwrap_or_default();
        }
        replies
    }

    /// Fills in the facts; `what` names the monitor.
    pub fn put(&self, guest: &mut Guest, what: &str) {
        self.reads(&mut guest.disks, &format!("{what}, query-blockstats"));
        let Some(own) = guest.processors.as_mut() else { return };
        if let Some(actual_bytes) = self.balloon["actual"].as_u64() {
            let balloon = Balloon::reporting(actual_bytes, self.statistics());
            let reports = balloon.statistics.is_some();
            let how = if reports { "query-balloon and qom-get guest-stats" } else { "query-balloon" };
            own.balloon = Fact::read(Some(balloon), format!("{what}, {how}"));
        }
    }

    /// What the driver reported; a number that it does not report is -1 (hw/virtio/virtio-balloon.c).
    fn statistics(&self) -> Option<GuestMemory> {
        self.polling_seconds.as_u64().filter(|seconds| *seconds > 0)?;
        let of = |name: &str| self.statistics["stats"][name].as_u64().filter(|n| *n != u64::MAX);
        Some(GuestMemory {
            free_bytes: of("stat-free-memory")?,
            available_bytes: of("stat-available-memory"),
            cache_bytes: of("stat-disk-caches"),
            at_unix_seconds: self.statistics["last-update"].as_u64().filter(|at| *at > 0)?,
            major_faults: of("stat-major-faults"),
            swapped_in_bytes: of("stat-swap-in"),
        })
    }

    /// What the guest read from its disks.
    fn reads(&self, disks: &mut [Disk], from: &str) {
        for block in self.blocks.as_array().into_iter().flatten() {
            let path = block["qdev"].as_str().and_then(device_path);
            let id = path.as_deref().and_then(|path| path.strip_prefix("/machine/peripheral/"));
            let names = [id, block["device"].as_str(), block["node-name"].as_str()];
            let mut names = names.into_iter().flatten().filter(|name| !name.is_empty());
            let of = |name: &str| disks.iter().position(|disk| disk.place.device_id.as_deref() == Some(name));
            if let (Some(at), Some(bytes)) = (names.find_map(of), block["stats"]["rd_bytes"].as_u64()) {
                disks[at].details.read_bytes = Fact::read(Some(bytes), from);
            }
        }
    }
}
