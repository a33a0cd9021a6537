//! Reads back from a running QEMU what its disks are really like, for results: an option that was
//! asked for and quietly not had would spoil every figure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use vmio_model::setup::Aio;
use vmio_node::Reader;

use super::super::Result;
use super::args::{device_id, iothread_id, node_name};
use super::qmp::Qmp;
use crate::drivers::effective as key;

/// A disk as it was asked for.
pub struct Asked {
    /// Id that the caller gave it.
    pub id: String,
    /// AIO engine.
    pub aio: Aio,
    /// Whether it has an I/O thread.
    pub iothread: bool,
}

/// Where devices with an id are in QEMU's object tree.
const PERIPHERAL: &str = "/machine/peripheral/";
/// Properties that are handed on where the device has them.
const PROPERTIES: [&str; 4] = ["num-queues", "queue-size", "logical_block_size", "physical_block_size"];

/// Effective settings by disk.
pub fn read(
    qmp: &mut Qmp,
    host: &dyn Reader,
    pid: u32,
    disks: &[Asked],
) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
    let blocks = qmp.execute("query-block", json!({}))?;
    let engines = Engines::of(host, pid);
    let mut all = BTreeMap::new();
    for (i, disk) in disks.iter().enumerate() {
        let mut found = BTreeMap::new();
        block(&blocks, &node_name(i), &mut found);
        let device = format!("{PERIPHERAL}{}", device_id(i));
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(text) = value.as_ref().and_then(shown) {
                found.insert(name.to_owned(), text);
            }
        };
        put(key::DEVICE, qmp.property(&device, "type"));
        let controller = qmp.property(&device, "parent_bus").and_then(|bus| controller_of(bus.as_str()?));
        if let Some(controller) = &controller {
            put(key::CONTROLLER, qmp.property(controller, "type"));
        }
        // A link to /objects/ID, on the disk or on its controller.
        let thread = qmp.property(&device, "iothread");
        let thread = thread.or_else(|| qmp.property(controller.as_deref()?, "iothread"));
        let thread = thread.and_then(|t| Some(t.as_str()?.rsplit('/').next()?.to_owned()));
        put(key::IOTHREAD, thread.map(Value::from));
        for property in PROPERTIES {
            put(property, qmp.property(&device, property));
        }
        found.insert(key::AIO.to_owned(), engines.of_disk(i, disks).to_string());
        all.insert(disk.id.clone(), found);
    }
    Ok(all)
}

/// What `query-block` says of the device with this node.
fn block(blocks: &Value, node: &str, found: &mut BTreeMap<String, String>) {
    let Some(inserted) =
        blocks.as_array().into_iter().flatten().map(|b| &b["inserted"]).find(|i| i["node-name"] == node)
    else {
        return;
    };
    let cache = &inserted["cache"];
    for (name, value) in [
        (key::CACHE_DIRECT, &cache["direct"]),
        (key::CACHE_NO_FLUSH, &cache["no-flush"]),
        ("cache.writeback", &cache["writeback"]),
        ("file", &inserted["file"]),
        ("format", &inserted["drv"]),
        ("throttle.bps", &inserted["bps"]),
        ("throttle.iops", &inserted["iops"]),
    ] {
        if let Some(text) = shown(value) {
            found.insert(name.to_owned(), text);
        }
    }
}

fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Path of the controller to which a bus belongs, if it is one of the command line's.
fn controller_of(bus: &str) -> Option<String> {
    let id = bus.strip_prefix(PERIPHERAL)?.split('/').next()?;
    Some(format!("{PERIPHERAL}{id}"))
}

/// QEMU does not tell the AIO engine of a disk, and it falls back to threads (with no more than a
/// warning) where the kernel refuses the one asked for. What it really set up shows from outside:
/// each of its event loops that uses Linux AIO maps a completion ring, `[aio]` (Linux fs/aio.c),
/// and each that uses io_uring holds a ring's descriptor.
struct Engines {
    aio_rings: usize,
    uring_rings: usize,
}

impl Engines {
    fn of(host: &dyn Reader, pid: u32) -> Self {
        let maps = host.read_text(Path::new(&format!("/proc/{pid}/maps"))).unwrap_or_default();
        let fds = PathBuf::from(format!("/proc/{pid}/fdinfo"));
        let names = host.list(&fds).unwrap_or_default();
        // Only the fdinfo of an io_uring has these two lines (Linux io_uring/fdinfo.c).
        let is_ring = |text: String| text.contains("\nSqMask:") && text.contains("\nCqMask:");
        let rings = names.iter().filter(|n| host.read_text(&fds.join(n)).is_ok_and(is_ring)).count();
        Self { aio_rings: maps.lines().filter(|l| l.contains("/[aio]")).count(), uring_rings: rings }
    }

    /// The engine of disk `i`: as asked when there is a ring for each event loop that needs one.
    fn of_disk(&self, i: usize, disks: &[Asked]) -> Aio {
        let asked = disks[i].aio;
        let loops: BTreeSet<Option<String>> = disks
            .iter()
            .enumerate()
            .filter(|(_, d)| d.aio == asked)
            .map(|(i, d)| d.iothread.then(|| iothread_id(i)))
            .collect();
        let rings = match asked {
            Aio::Threads => return Aio::Threads,
            Aio::Native => self.aio_rings,
            Aio::IoUring => self.uring_rings,
        };
        if rings >= loops.len() { asked } else { Aio::Threads }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_node::fake::Fake;

    #[test]
    fn an_engine_without_its_ring_is_threads() {
        let asked = |aio, iothread| Asked { id: String::new(), aio, iothread };
        let disks = [
            asked(Aio::Native, false),
            asked(Aio::Native, true),
            asked(Aio::IoUring, false),
            asked(Aio::Threads, false),
            asked(Aio::Native, false),
        ];
        let ring = "7f00-7f01 rw-s 00000000 00:0f 1 /[aio] (deleted)\n";
        let host = |rings: usize, uring: &str| {
            Fake::new("fake")
                .file("/proc/9/maps", ring.repeat(rings))
                .file("/proc/9/fdinfo/5", format!("pos:\t0\nflags:\t02\n{uring}"))
        };
        let engines = |fake: &Fake| {
            let engines = Engines::of(fake, 9);
            (0..disks.len()).map(|i| engines.of_disk(i, &disks)).collect::<Vec<_>>()
        };
        let (native, threads) = (Aio::Native, Aio::Threads);
        // Two event loops use Linux AIO: the main one (disks 0 and 4) and that of disk 1.
        assert_eq!(
            engines(&host(2, "SqMask:\t0xff\nCqMask:\t0x1ff\n")),
            [native, native, Aio::IoUring, threads, native]
        );
        assert_eq!(engines(&host(1, "")), [threads, threads, threads, threads, threads]);
    }

    #[test]
    fn block_settings_are_those_of_the_node() {
        // From query-block of QEMU 7.2, shortened.
        let blocks = json!([{"device": "", "inserted": {"node-name": "tools", "cache": {"direct": false}}},
            {"device": "", "qdev": "disk0", "inserted": {"node-name": "node0", "drv": "raw", "file": "/d.raw", "bps": 0,
              "iops": 0, "cache": {"no-flush": false, "direct": true, "writeback": true}}}]);
        let mut found = BTreeMap::new();
        block(&blocks, "node0", &mut found);
        assert_eq!(found[key::CACHE_DIRECT], "true");
        assert_eq!(found[key::CACHE_NO_FLUSH], "false");
        assert_eq!(found["file"], "/d.raw");
        let mut nothing = BTreeMap::new();
        block(&blocks, "node7", &mut nothing);
        assert!(nothing.is_empty());
    }

    #[test]
    fn controllers_of_the_command_line_are_found() {
        let bus = "/machine/peripheral/disk0-hba/disk0-hba.0";
        assert_eq!(controller_of(bus).unwrap(), "/machine/peripheral/disk0-hba");
        assert_eq!(controller_of("/machine/q35/pcie.0"), None);
    }
}
