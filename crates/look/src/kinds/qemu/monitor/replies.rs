//! Replies of a guest's monitor (QMP), and the facts filled in from them. Schemas: QEMU's qapi/block-core.json
//! (`BlockInfo`, `BlockDeviceInfo`, `ImageInfo`), qapi/machine.json.

use std::collections::BTreeMap;

use serde_json::Value;
use vmio_model::facts::{Disk, Fact, Guest, PlacedThread, Processors, Subject, Unread};
use vmio_model::result::Accel;
use vmio_node::linux::process::Status;
use vmio_node::qmp::ReadOnly;

use super::device::{Device, device_path};
use super::memory::MemoryReplies;
use crate::host_view::HostView;
use crate::qemu::options::Opt;

/// Nodes that pass requests on.
const FILTERS: [&str; 6] = ["throttle", "copy-on-read", "preallocate", "compress", "copy-before-write", "blkdebug"];
/// Nodes that open a local file or device.
const LOCAL: [&str; 2] = ["file", "host_device"];
/// Replies of a QMP monitor; `Null` for a missing one.
#[derive(Debug, Default)]
pub struct QmpReplies {
    version: String,
    blocks: Value,
    nodes: Value,
    cpus: Value,
    iothreads: Value,
    kvm: Value,
    /// By path in QEMU's object tree.
    devices: BTreeMap<String, Device>,
    /// Limits of throttle groups by id.
    groups: BTreeMap<String, Value>,
    memory: MemoryReplies,
    /// Queries without a reply, and the reason of the first.
    missing: Option<(Vec<String>, String)>,
}

/// The disk that a block of `query-block` belongs to.
#[derive(Debug, PartialEq)]
enum BlockMatch {
    /// The disk at this index.
    Disk(usize),
    /// A disk without a name on the command line.
    Nameless,
    /// A removable drive, or a disk plugged in under another name.
    Other,
}

impl QmpReplies {
    /// Queries everything of a guest with this balloon device, the most important first.
    pub fn ask(monitor: &mut ReadOnly, balloon: Option<&Opt>) -> Self {
        let mut replies = QmpReplies { version: monitor.version().to_owned(), ..QmpReplies::default() };
        let mut missing = Vec::new();
        let mut reason = String::new();
        const QUERIES: [&str; 5] =
            ["query-block", "query-named-block-nodes", "query-cpus-fast", "query-kvm", "query-iothreads"];
        let into =
            [&mut replies.blocks, &mut replies.nodes, &mut replies.cpus, &mut replies.kvm, &mut replies.iothreads];
        for ((query, answer), into) in QUERIES.iter().zip(monitor.queries(&QUERIES)).zip(into) {
            match answer {
                Ok(answer) => *into = answer,
                Err(e) => {
                    missing.push((*query).to_owned());
                    reason = if reason.is_empty() { e.to_string() } else { reason };
                }
            }
        }
        let paths: Vec<String> =
            list(&replies.blocks).iter().filter_map(|b| device_path(b["qdev"].as_str()?)).collect();
        replies.devices = Device::ask(monitor, &paths, &replies.version);
        if monitor.is_over() && !paths.is_empty() {
            missing.push("properties of the disks' devices".to_owned());
        }
        let tops: Vec<String> = list(&replies.blocks).iter().filter_map(|b| throttle_group(&b["inserted"])).collect();
        let limits: Vec<(String, &str)> = tops.iter().map(|g| (format!("/objects/{g}"), "limits")).collect();
        for (group, limits) in tops.into_iter().zip(monitor.properties(&limits)) {
            match limits {
                Some(limits) => drop(replies.groups.insert(group, limits)),
                None => missing.push(format!("limits of throttle group {group}")),
            }
        }
        // No setting: without a balloon, or in a busy guest, these are unknown.
        replies.memory = MemoryReplies::ask(monitor, balloon);
        if !missing.is_empty() {
            if reason.is_empty() {
                reason = "the scan's time limit was reached".to_owned();
            }
            replies.missing = Some((missing, reason));
        }
        replies
    }

    /// Replaces facts from the command line by those from the replies; `what` names the monitor.
    pub fn put(&self, host: &HostView<'_>, guest: &mut Guest, what: &str) {
        guest.version = Some(format!("QEMU {}", self.version));
        let started = guest.disks.len();
        let met: Vec<BlockMatch> = list(&self.blocks).iter().map(|block| self.disk(host, guest, block, what)).collect();
        // A disk without a block was unplugged since the start, unless it is vhost-user, which never has one. A
        // nameless block may be any disk: then none is removed.
        if self.blocks.is_array() && !met.contains(&BlockMatch::Nameless) {
            let mut at = 0;
            guest.disks.retain(|disk| {
                let here = at >= started || met.contains(&BlockMatch::Disk(at));
                at += 1;
                here || disk.details.storage.as_deref() == Some("vhost-user")
            });
        }
        self.processors(host, guest, what);
        self.memory.put(guest, what);
        if let Some((missing, why)) = &self.missing {
            let what = format!("{what}: {}", missing.join(", "));
            let mend = "scan again when the guest is less busy".into();
            guest.unread.push(Unread { what, why: why.clone(), mend });
        }
    }

    /// Fills in the disk of a block, or adds a new one; returns which.
    fn disk(&self, host: &HostView<'_>, guest: &mut Guest, block: &Value, what: &str) -> BlockMatch {
        let inserted = &block["inserted"];
        let path = block["qdev"].as_str().and_then(device_path);
        let id = path.as_deref().and_then(|p| p.strip_prefix("/machine/peripheral/"));
        let drive = block["device"].as_str().filter(|d| !d.is_empty());
        let live = Live::of(inserted);
        let node = inserted["node-name"].as_str().filter(|n| !n.is_empty());
        let named = |disk: &Disk, name: Option<&str>| name.is_some() && disk.place.device_id.as_deref() == name;
        let at = (guest.disks.iter().position(|d| named(d, id)))
            .or_else(|| guest.disks.iter().position(|d| named(d, drive)))
            .or_else(|| guest.disks.iter().position(|d| named(d, node)))
            .or_else(|| guest.disks.iter().position(|d| live.path.is_some() && d.place.source == live.path));
        let device = path.as_ref().and_then(|p| self.devices.get(p));
        let nameless = path.is_some() && id.is_none_or(|id| id.contains('/'));
        if inserted.is_null() {
            return at.map_or(BlockMatch::Other, BlockMatch::Disk); // nothing in the drive
        }
        let at = match at {
            Some(at) => at,
            // A read-only disk is left out, as on the command line.
            None if inserted["ro"] == true => return BlockMatch::Other,
            // Plugged in since the start; removable media are no disks.
            None if block["removable"] == false && path.is_some() => {
                let Some(device) = device else {
                    return if nameless { BlockMatch::Nameless } else { BlockMatch::Other };
                };
                let name = id.or(drive).or(path.as_deref()).unwrap_or_default();
                let from = host.from(&guest.name, format!("{what}, query-block"));
                let mut disk = Disk::unknown(Subject::disk(&guest.name, name), from);
                disk.place.device_id = id.or(drive).map(str::to_owned);
                disk.driver = device.driver().into();
                guest.disks.push(disk);
                let at = guest.disks.len() - 1;
                self.fill(&mut guest.disks[at], inserted, live, Some(device), what);
                return if nameless { BlockMatch::Nameless } else { BlockMatch::Other };
            }
            None => return if nameless { BlockMatch::Nameless } else { BlockMatch::Other },
        };
        let disk = &mut guest.disks[at];
        disk.place.drive = drive.map(str::to_owned);
        disk.place.qom = block["qdev"].as_str().map(str::to_owned).or(disk.place.qom.take());
        // Generated node names change with the next start; a filter's name is not the image's.
        let of_image = |_: &&str| !inserted["drv"].as_str().is_some_and(|drv| FILTERS.contains(&drv));
        if let Some(node) = node.filter(|n| !n.starts_with('#')).filter(of_image) {
            disk.place.node = Some(node.to_owned());
        }
        if live.path.is_some() && disk.place.source != live.path {
            // A snapshot, another image, or another device of the same name since the start: how it was opened is not
            // known.
            let driver = device.and_then(Device::driver);
            disk.driver = driver.map_or_else(Fact::default, |d| Fact::read(Some(d), format!("{what}, qom-get")));
            disk.aio = Fact::default();
            (disk.details.discard, disk.details.l2_cache_bytes) = (Fact::default(), Fact::default());
        }
        self.fill(disk, inserted, live, device, what);
        BlockMatch::Disk(at)
    }

    fn fill(&self, disk: &mut Disk, inserted: &Value, live: Live<'_>, device: Option<&Device>, what: &str) {
        self.settings(disk, inserted, live, what);
        if let Some(device) = device {
            device.put(disk, what);
        }
    }

    /// Cache, image and limits.
    fn settings(&self, disk: &mut Disk, inserted: &Value, live: Live<'_>, what: &str) {
        let from = format!("{what}, query-block");
        let file = inserted["file"].as_str().unwrap_or_default();
        let open = |node: &&Value| node["file"] == file || live.path.as_deref().is_some_and(|p| node["file"] == p);
        let local = |node: &&Value| node["drv"].as_str().is_some_and(|drv| LOCAL.contains(&drv));
        let bottom = list(&self.nodes).iter().filter(open).find(local);
        if let Some(cache) = bottom.and_then(|bottom| cache(inserted, bottom, disk.cache.as_deref())) {
            disk.cache = Fact::read(Some(cache.to_owned()), &from);
        }
        if let Some(format) = live.format {
            disk.details.format = Fact::read(Some(format), &from);
        }
        if live.path.is_some() && disk.place.source != live.path {
            // Another image since the start: facts of the old one no longer hold.
            disk.place.source = Fact::read(live.path, &from);
            disk.place.block_device = bottom.map(|b| b["drv"] == "host_device");
            let storage = bottom.map(|b| (if b["drv"] == "file" { "file" } else { "block" }).to_owned());
            disk.details.storage = Fact::read(storage, &from);
            (disk.sparse, disk.details.allocated_bytes) = (Fact::default(), Fact::default());
        }
        let image = live.image;
        if let Some(bytes) = image["virtual-size"].as_u64() {
            disk.details.virtual_bytes = Fact::read(Some(bytes), &from);
        }
        if let Some(bytes) = image["cluster-size"].as_u64() {
            disk.details.cluster_bytes = Fact::read(Some(bytes), &from);
        }
        if image.is_object() {
            disk.details.backing_files = Fact::read(u32::try_from(images(image).count() - 1).ok(), &from);
        }
        let group = throttle_group(inserted).and_then(|g| self.groups.get(&g));
        let own: Vec<String> = [Some(inserted), group].into_iter().flatten().flat_map(limits).collect();
        // Throttle nodes further down are not visible here: the command line may name one.
        let hidden = group.is_none() && list(&self.nodes).iter().any(|n| n["drv"] == "throttle");
        if !own.is_empty() || !hidden {
            disk.details.throttle_group = throttle_group(inserted).filter(|_| group.is_some());
            disk.details.limits = Fact::read(own, &from);
        }
    }

    fn processors(&self, host: &HostView<'_>, guest: &mut Guest, what: &str) {
        if self.cpus.is_null() && self.kvm.is_null() {
            return;
        }
        let subject = Subject::guest(&guest.name);
        let from = host.from(&guest.name, what);
        let own = guest.processors.get_or_insert_with(|| Processors::unknown(subject, from));
        if let Some(enabled) = self.kvm["enabled"].as_bool() {
            let accel = if enabled { Accel::Kvm } else { Accel::Tcg };
            own.accel = Fact::read(Some(accel), format!("{what}, query-kvm"));
        }
        let cpus = list(&self.cpus);
        if !cpus.is_empty() {
            own.vcpus = Fact::read(u32::try_from(cpus.len()).ok(), format!("{what}, query-cpus-fast"));
        }
        let vcpus = cpus.iter().map(|c| ("vcpu", c["cpu-index"].to_string(), &c["thread-id"]));
        let threads = list(&self.iothreads)
            .iter()
            .map(|t| ("iothread", t["id"].as_str().unwrap_or_default().to_owned(), &t["thread-id"]));
        let mut all = own.threads.value().clone();
        for (role, name, tid) in vcpus.chain(threads) {
            let Some(tid) = tid.as_u64().and_then(|t| u32::try_from(t).ok()) else { continue };
            match all.iter_mut().find(|t| t.tid == tid) {
                Some(thread) => (thread.role, thread.name) = (role.to_owned(), name),
                None => {
                    let status = Status::of_thread(host.reader(), guest.pid.unwrap_or(tid), tid);
                    let cpus = status.ok().and_then(|s| s.cpus()).unwrap_or_default();
                    all.push(PlacedThread { role: role.to_owned(), name, tid, cpus });
                }
            }
        }
        own.threads = Fact::read(all, format!("{what}, query-cpus-fast and query-iothreads"));
    }
}

/// The image that a device is on now, below the filter nodes.
struct Live<'a> {
    /// `ImageInfo`; `Null` where QEMU does not report it.
    image: &'a Value,
    /// Path of its file; `None` where it is no file.
    path: Option<String>,
    /// Its format.
    format: Option<String>,
}

/// The images of a chain without filters, the top first.
fn images(top: &Value) -> impl Iterator<Item = &Value> {
    let chain = std::iter::successors(Some(top).filter(|i| i.is_object()), |i| i.get("backing-image"));
    chain.filter(|i| i["format"].as_str().is_some_and(|f| !FILTERS.contains(&f)))
}

impl<'a> Live<'a> {
    fn of(inserted: &'a Value) -> Self {
        let image = images(&inserted["image"]).next().unwrap_or(&Value::Null);
        let filtered = inserted["drv"].as_str().is_some_and(|drv| FILTERS.contains(&drv));
        let top = if filtered { &Value::Null } else { &inserted["file"] };
        let path = [top, &image["filename"]].into_iter().find_map(|v| v.as_str().filter(|f| f.starts_with('/')));
        let format = image["format"].as_str().or(inserted["drv"].as_str().filter(|_| !filtered));
        // A node that opens the storage itself is raw.
        let format = format.map(|f| (if LOCAL.contains(&f) { "raw" } else { f }).to_owned());
        Self { image, path: path.map(str::to_owned), format }
    }
}

/// Group of the device's throttle node.
fn throttle_group(inserted: &Value) -> Option<String> {
    let described: Value = serde_json::from_str(inserted["file"].as_str()?.strip_prefix("json:")?).ok()?;
    (described["driver"] == "throttle").then(|| described["throttle-group"].as_str().map(str::to_owned)).flatten()
}

/// Limits, from `BlockDeviceInfo` (`bps_rd`) or a throttle group (`bps-read`).
fn limits(of: &Value) -> Vec<String> {
    const NAMES: [(&str, &str, &str); 6] = [
        ("iops", "iops-total", "IOPS"),
        ("iops_rd", "iops-read", "IOPS of reads"),
        ("iops_wr", "iops-write", "IOPS of writes"),
        ("bps", "bps-total", "bytes/s"),
        ("bps_rd", "bps-read", "bytes/s of reads"),
        ("bps_wr", "bps-write", "bytes/s of writes"),
    ];
    let value = |(device, group, unit): &(&str, &str, &str)| {
        let n = of[device].as_u64().or(of[group].as_u64()).filter(|n| *n > 0)?;
        Some(format!("{n} {unit} by QEMU's throttle"))
    };
    NAMES.iter().filter_map(value).collect()
}

/// Cache mode, from how the storage was opened (`bottom` is the node that opened it; nodes above it may have other
/// flags) and from the write cache that the device was given (`before`, the mode by the command line). A write cache
/// that is off now says little: guests and firmware turn it off, and virtio-blk without `VIRTIO_BLK_F_WCE` has none.
/// `None` where unknown.
fn cache(top: &Value, bottom: &Value, before: Option<&str>) -> Option<&'static str> {
    let (direct, no_flush) = (bottom["cache"]["direct"].as_bool()?, top["cache"]["no-flush"].as_bool()?);
    let given = before.map(|mode| !matches!(mode, "writethrough" | "directsync"));
    let on = top["cache"]["writeback"].as_bool().filter(|on| *on);
    Some(match (direct, no_flush, on.or(given)) {
        (_, true, _) => "unsafe",
        (_, _, None) => return None,
        (true, false, Some(true)) => "none",
        (true, false, Some(false)) => "directsync",
        (false, false, Some(true)) => "writeback",
        (false, false, Some(false)) => "writethrough",
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
