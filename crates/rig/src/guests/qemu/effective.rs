//! Reads back from a running QEMU what its disks are really like (QMP `qom-get`, `query-block`,
//! `query-named-block-nodes`), for results, and compares it with what was asked: an option that was asked for and
//! quietly not had would spoil every figure. Not told by any QEMU, and so not compared: the `discard=` of a block node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use vmio_look::qemu::rings::Rings;
use vmio_model::cell::{Aio, Attachment};
use vmio_node::linux::block;
use vmio_node::qmp::Qmp;
use vmio_node::{Reader, held};

use super::super::{Error, Result};
use super::NAME;
use super::args::{PASSED_THROUGH, PERIPHERAL, device_id, iothread_ids, node_name};
use super::drivers::{self, Model};
use crate::disks::Storage;
use crate::disks::drivers::effective::{self as key, Difference, Differences};

/// A disk as it was asked for.
pub struct Asked {
    /// Id that the caller gave it.
    pub id: String,
    /// How the guest sees it.
    pub attachment: Attachment,
    /// What QEMU opens.
    pub storage: Storage,
    /// Path in the guest.
    pub guest: PathBuf,
}

/// Where is looked beside the monitor.
pub struct Sources<'a> {
    /// The host.
    pub host: &'a dyn Reader,
    /// The guest.
    pub guest: &'a dyn Reader,
    /// QEMU's process on the host.
    pub pid: u32,
}

/// Properties that are handed on where the device or its controller has them, with the key that
/// they get.
const PROPERTIES: [(&str, &str); 6] = [
    ("num-queues", key::QUEUES),
    ("num_queues", key::QUEUES),
    ("queue-size", "queue-size"),
    ("logical_block_size", "logical_block_size"),
    ("physical_block_size", "physical_block_size"),
    ("ioeventfd", key::IOEVENTFD),
];

type Settings = BTreeMap<String, String>;

/// Effective settings by disk, which are as they were asked for.
pub fn read(qmp: &mut Qmp, from: &Sources<'_>, disks: &[Asked]) -> Result<BTreeMap<String, Settings>> {
    let blocks = qmp.execute("query-block", json!({}))?;
    let nodes = qmp.execute("query-named-block-nodes", json!({"flat": true}))?;
    let rings = Rings::of(from.host, from.pid);
    let shared = disks.iter().any(|d| matches!(d.storage, Storage::VhostUserBlk { .. }));
    let mut all = BTreeMap::new();
    for (i, disk) in disks.iter().enumerate() {
        let mut found = Settings::new();
        block(&blocks, &nodes, &node_name(i), &mut found);
        device(qmp, &format!("{PERIPHERAL}{}", device_id(i)), &mut found);
        seen_by_guest(from.guest, &disk.guest, &mut found);
        let aio = engine(rings, i, disks).map_or(key::SERVERS.to_owned(), |aio| aio.to_string());
        found.insert(key::AIO.to_owned(), aio);
        if let Some(server) = disk.storage.server() {
            found.insert(key::SERVED_BY.to_owned(), server.to_owned());
            // It has the name of the server's socket, which differs from run to run.
            found.remove(FILE);
        }
        if let Storage::Image { path, format, .. } = &disk.storage {
            // The node at the top only hands requests on (exchange.rs).
            found.insert("format".to_owned(), (*format).to_owned());
            found.insert(FILE.to_owned(), held::shown(path).display().to_string());
        }
        if shared {
            found.insert(key::MEMORY.to_owned(), "shared with a vhost-user server (memfd)".to_owned());
        }
        if let Some(model) = drivers::find(&disk.attachment.driver) {
            let differs = |why| Error::NotAsAsked { hypervisor: NAME, disk: disk.attachment.label(), why };
            compare(model, &disk.attachment, &found).map_err(differs)?;
        }
        all.insert(disk.id.clone(), found);
    }
    Ok(all)
}

/// Every difference between what was asked and what was found.
fn compare(model: &Model, asked: &Attachment, found: &Settings) -> Result<(), Differences> {
    let (mut device, mut controller) = (model.disk, model.controller);
    let served = found.contains_key(key::SERVED_BY);
    // QEMU has no block node of a disk on a vhost-user server: neither cache mode nor zeroes.
    let vhost_user = model.vhost_user.filter(|model| found.get(key::DEVICE).is_some_and(|d| served && d == model));
    if let Some(model) = vhost_user {
        (device, controller) = (model, None);
    }
    // Nor of a device of the host's own.
    let is_passed = found.get(key::DEVICE).is_some_and(|d| served && d == PASSED_THROUGH);
    if is_passed {
        (device, controller) = (PASSED_THROUGH, None);
    }
    let cache = asked.cache;
    let mut want = vec![(key::DEVICE, device.to_owned()), (key::AIO, asked.aio.to_string())];
    if served {
        want[1].1 = key::SERVERS.to_owned();
    }
    if vhost_user.is_none() && !is_passed {
        want.extend([
            (key::CACHE_DIRECT, cache.direct().to_string()),
            (key::CACHE_NO_FLUSH, cache.no_flush().to_string()),
            (key::CACHE_WRITEBACK, cache.write_cache().to_string()),
            (key::DETECT_ZEROES, asked.options.detect_zeroes.to_string()),
        ]);
    }
    want.extend(controller.map(|model| (key::CONTROLLER, model.to_owned())));
    want.extend(asked.options.queues.map(|n| (key::QUEUES, n.to_string())));
    let through = !cache.write_cache() && model.shows_write_through;
    // What that is like is its own affair.
    if !is_passed {
        want.push((key::GUEST_WRITE_CACHE, if through { "write through" } else { "write back" }.to_owned()));
    }
    if model.avoids_ioeventfd && found.contains_key(key::IOEVENTFD) {
        want.push((key::IOEVENTFD, false.to_string()));
    }

    let shown = |key: &str| found.get(key).map_or("nothing", String::as_str);
    let other = |(key, wanted): (&'static str, String)| Difference::Other { key, found: shown(key).to_owned(), wanted };
    let mut wrong: Vec<Difference> =
        want.into_iter().filter(|(key, value)| found.get(*key) != Some(value)).map(other).collect();
    let threads = shown(key::IOTHREAD).split(',').filter(|id| !id.is_empty() && *id != "nothing").count();
    let wanted = asked.options.mapped_iothreads.map_or(usize::from(asked.iothread), |n| n as usize);
    if threads != wanted {
        let words = match wanted {
            0 => "no I/O thread".to_owned(),
            1 => "an I/O thread".to_owned(),
            n => format!("{n} I/O threads"),
        };
        wrong.push(other((key::IOTHREAD, words)));
    }
    if asked.options.discard && shown(key::GUEST_DISCARD_BYTES).parse().unwrap_or(0u64) == 0 {
        wrong.push(Difference::NoDiscard { found: shown(key::GUEST_DISCARD_BYTES).to_owned() });
    }
    if wrong.is_empty() { Ok(()) } else { Err(Differences(wrong)) }
}

/// What the device itself says, and its controller.
fn device(qmp: &mut Qmp, device: &str, found: &mut Settings) {
    let controller = qmp.property(device, "parent_bus").and_then(|bus| controller_of(bus.as_str()?));
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(text) = value.as_ref().and_then(shown) {
            found.entry(name.to_owned()).or_insert(text);
        }
    };
    put(key::DEVICE, qmp.property(device, "type"));
    if let Some(controller) = &controller {
        put(key::CONTROLLER, qmp.property(controller, "type"));
    }
    for path in [Some(device), controller.as_deref()].into_iter().flatten() {
        // A link to /objects/ID, or the list of those that the queues are spread over.
        let thread = qmp.property(path, "iothread").and_then(|t| last_part(t.as_str()?));
        let mapped = qmp.property(path, "iothread-vq-mapping").and_then(|list| mapped_threads(&list));
        put(key::IOTHREAD, thread.or(mapped).filter(|t| !t.is_empty()).map(Value::from));
        for (property, name) in PROPERTIES {
            // 0: the deprecated property of nvme, which counts nothing.
            put(name, qmp.property(path, property).filter(|value| *value != 0));
        }
    }
}

fn last_part(path: &str) -> Option<String> {
    Some(path.rsplit('/').next()?.to_owned())
}

/// `[{"iothread": "io0-0"}, …]` (QAPI `IOThreadVirtQueueMapping`) as `io0-0,…`.
fn mapped_threads(list: &Value) -> Option<String> {
    let ids: Vec<&str> = list.as_array()?.iter().filter_map(|m| m["iothread"].as_str()).collect();
    Some(ids.join(","))
}

/// What the guest's block layer made of it.
fn seen_by_guest(guest: &dyn Reader, disk: &Path, found: &mut Settings) {
    let Some(name) = disk.file_name() else { return };
    let disk = block::Device::whole(guest, &name.to_string_lossy());
    let values = [
        (key::GUEST_WRITE_CACHE, disk.write_cache()),
        (key::GUEST_DISCARD_BYTES, disk.discard_max_bytes().map(|bytes| bytes.to_string())),
        (key::GUEST_QUEUES, disk.queues().map(|queues| queues.to_string())),
    ];
    found.extend(values.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
}

const FILE: &str = "file";

/// What `query-block` says of the device with this node, and `query-named-block-nodes` of the
/// node below it.
fn block(blocks: &Value, nodes: &Value, node: &str, found: &mut Settings) {
    let mut inserted = blocks.as_array().into_iter().flatten().map(|b| &b["inserted"]);
    let Some(top) = inserted.find(|top| top["node-name"] == node) else {
        return;
    };
    // Each exchange of an image gives the file's node another number (exchange.rs).
    let file = format!("{node}-file");
    let is_file = |n: &&Value| {
        let rest = n["node-name"].as_str().and_then(|name| name.strip_prefix(&file));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let below = nodes.as_array().into_iter().flatten().find(is_file).cloned().unwrap_or_default();
    for (name, value) in [
        (key::CACHE_WRITEBACK, &top["cache"]["writeback"]),
        (key::DETECT_ZEROES, &top["detect_zeroes"]),
        (FILE, &top["file"]),
        ("format", &top["drv"]),
        ("throttle.bps", &top["bps"]),
        ("throttle.iops", &top["iops"]),
    ] {
        if let Some(text) = shown(value) {
            found.insert(name.to_owned(), text);
        }
    }
    for (name, member) in [(key::CACHE_DIRECT, "direct"), (key::CACHE_NO_FLUSH, "no-flush")] {
        let (upper, lower) = (shown(&top["cache"][member]), shown(&below["cache"][member]));
        if let (Some(upper), Some(lower)) = (upper, lower) {
            let text = if upper == lower { upper } else { format!("{upper} above {lower}") };
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

/// The AIO engine of disk `i`. (Where queues are spread over several event loops, one has its ring
/// from its first request on, so one is demanded of them.) `None`: a server does the I/O.
fn engine(rings: Rings, i: usize, disks: &[Asked]) -> Option<Aio> {
    if disks[i].storage.server().is_some() {
        return None;
    }
    let asked = disks[i].attachment.aio;
    let loops: BTreeSet<Option<String>> = disks
        .iter()
        .enumerate()
        .filter(|(_, d)| d.attachment.aio == asked && d.storage.server().is_none())
        .map(|(i, d)| iothread_ids(i, &d.attachment).into_iter().next())
        .collect();
    Some(rings.engine(asked, loops.len()))
}

#[cfg(test)]
#[path = "effective_tests.rs"]
mod tests;
