//! The settings of a guest by device, each with the place that it was read from, and the short
//! labels of the overview.

use vmio_model::facts::{Disk, Fact, Guest, Nic, PlacedThread, Processors, Provenance, way_shown};
use vmio_model::result::Accel;

use crate::report::format;

/// A device with its known settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name: `disk vda`.
    pub name: String,
    /// Its settings in the order in which they matter.
    pub settings: Vec<Setting>,
}

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub value: String,
    /// Its source.
    pub from: String,
}

/// Collects the known settings of a device.
struct Gather<'a> {
    from: &'a Provenance,
    settings: Vec<Setting>,
}

impl<'a> Gather<'a> {
    fn new(from: &'a Provenance) -> Self {
        Self { from, settings: Vec::new() }
    }

    /// Adds a fact in these words.
    fn put<T>(&mut self, name: &'static str, fact: &Fact<T>, words: impl FnOnce(&T) -> String) {
        self.push(name, words(fact.value()), fact.source_or(self.from));
    }

    fn push(&mut self, name: &'static str, value: String, from: String) {
        if !value.is_empty() {
            self.settings.push(Setting { name, value, from });
        }
    }

    fn maybe<T>(&mut self, name: &'static str, fact: &Fact<Option<T>>, words: impl FnOnce(&T) -> String) {
        self.put(name, fact, |value| value.as_ref().map(words).unwrap_or_default());
    }

    fn text(&mut self, name: &'static str, fact: &Fact<Option<String>>) {
        self.maybe(name, fact, String::clone);
    }

    fn flag(&mut self, name: &'static str, fact: &Fact<Option<bool>>) {
        self.maybe(name, fact, |on| if *on { "yes" } else { "no" }.to_owned());
    }

    fn bytes(&mut self, name: &'static str, fact: &Fact<Option<u64>>) {
        self.maybe(name, fact, |bytes| format::bytes(*bytes));
    }

    fn number<T: ToString>(&mut self, name: &'static str, fact: &Fact<Option<T>>) {
        self.maybe(name, fact, T::to_string);
    }

    fn list(&mut self, name: &'static str, fact: &Fact<Vec<String>>, between: &str) {
        self.put(name, fact, |all| all.join(between));
    }

    fn overridden(&mut self, all: &[vmio_model::facts::Overridden]) {
        for o in all {
            let value = format!("{} ({} is in force)", o.asked, o.found);
            self.push("configured", format!("{} {value}", o.setting), self.from.place());
        }
    }
}

/// All devices of a guest: processors, disks, network.
pub fn devices(guest: &Guest) -> Vec<Device> {
    let processors = guest.processors.iter().map(|p| Device { name: "processors".into(), settings: processors(p) });
    let disks = guest.disks.iter().map(|d| Device { name: d.subject.within(), settings: disk(d) });
    let nics = guest.nics.iter().map(|n| Device { name: n.subject.within(), settings: nic(n) });
    processors.chain(disks).chain(nics).collect()
}

fn disk(d: &Disk) -> Vec<Setting> {
    let mut all = Gather::new(&d.from);
    let details = &d.details;
    all.text("driver", &d.driver);
    all.text("cache", &d.cache);
    all.text("aio", &d.aio);
    all.maybe("I/O thread", &d.iothread, |on| match (&*details.iothread_name, on) {
        (Some(name), true) => name.clone(),
        (None, true) => "yes".into(),
        (_, false) => "none".into(),
    });
    all.number("queues", &details.queues);
    all.number("spread over I/O threads", &details.mapped_iothreads);
    all.text("format", &details.format);
    all.text("storage", &details.storage);
    all.text("source", &d.place.source);
    all.bytes("size", &details.virtual_bytes);
    all.bytes("allocated", &details.allocated_bytes);
    all.flag("sparse", &d.sparse);
    all.flag("thin", &details.thin);
    all.flag("discard", &details.discard);
    all.bytes("cluster", &details.cluster_bytes);
    all.bytes("L2 cache", &details.l2_cache_bytes);
    all.maybe("backing images", &details.backing_files, |n| if *n > 0 { n.to_string() } else { String::new() });
    all.bytes("volume block size", &details.volblock_bytes);
    let below = &details.below;
    all.maybe("RAIDZ below", &below.raidz, |raidz| format!("RAIDZ{} of {} disks", raidz.parity, raidz.disks));
    all.maybe("file system", &below.mounted, |mounted| format!("{} at {}", mounted.filesystem, mounted.point));
    all.maybe("copy on write", &below.layout, |layout| match layout.copy_on_write {
        Some(copies) => if copies { "yes" } else { "no" }.to_owned(),
        None => String::new(),
    });
    all.bytes("sectors of the device", &below.host_logical_block_bytes);
    all.bytes("sectors for the guest", &below.guest_logical_block_bytes);
    all.bytes("in the host's page cache", &details.host_cached_bytes);
    all.bytes("read by the guest", &details.read_bytes);
    all.list("limits", &details.limits, ", ");
    all.overridden(&details.overridden);
    all.settings
}

fn nic(n: &Nic) -> Vec<Setting> {
    let mut all = Gather::new(&n.from);
    all.text("model", &n.model);
    all.text("backend", &n.backend);
    all.text("interface", &n.interface);
    all.text("bridge", &n.bridge);
    all.flag("vhost-net", &n.vhost);
    all.number("queues", &n.queues);
    all.list("offloads off", &n.offloads_off, ", ");
    all.flag("offload header", &n.tap_header);
    all.number("ring", &n.ring_packets);
    all.maybe("dropped at the tap", &n.to_guest, |to| match to.dropped_packets {
        0 => String::new(),
        dropped => format!("{dropped} of {} packets", to.packets.saturating_add(dropped)),
    });
    all.maybe("uplink", &n.uplink, |uplink| uplink.name.clone());
    all.number("MTU", &n.mtu_bytes);
    all.number("guest's MTU", &n.guest_mtu_bytes);
    all.number("bridge MTU", &n.bridge_mtu_bytes);
    all.put("way", &n.way, |way| way_shown(way));
    all.flag("bridge netfilter", &n.bridge_netfilter);
    all.maybe("send buffer", &n.send_buffer_bytes, |bytes| send_buffer(*bytes));
    all.put("limits", &n.rate_limits, |_| n.limits_shown().join("; "));
    all.overridden(&n.overridden);
    all.settings
}

/// As it was at the guest's start, unless vmio's guard has set it: Linux has a tap's send buffer at INT_MAX where nobody
/// set one (drivers/net/tun.c). What is in force only the tap's own descriptor tells, which is the guest's.
fn send_buffer(bytes: u64) -> String {
    if bytes >= i32::MAX as u64 { "unlimited at its start".into() } else { format::bytes(bytes) }
}

fn processors(p: &Processors) -> Vec<Setting> {
    let mut all = Gather::new(&p.from);
    all.number("vCPUs", &p.vcpus);
    all.maybe("accelerator", &p.accel, |accel| match accel {
        Accel::Kvm => "KVM".to_owned(),
        Accel::Tcg => "TCG, software emulation".to_owned(),
    });
    all.text("model", &p.model);
    all.list("flags", &p.flags, " ");
    all.bytes("memory", &p.memory_bytes);
    all.flag("huge pages", &p.huge_pages);
    all.put("pinned", &p.threads, |threads| bound(threads, p.host.len()));
    all.put("memory", &p.memory_by_node, |nodes| {
        let held = nodes.iter().filter(|(_, b)| **b > 0);
        held.map(|(n, b)| format!("{} on node {n}", format::bytes(*b))).collect::<Vec<_>>().join(", ")
    });
    all.maybe("CPU quota", &p.quota_cpus, |cpus| format!("{} CPUs", format::three(*cpus)));
    all.maybe("throttled", &p.throttled, |t| format!("in {} of {} periods", t.throttled, t.periods));
    all.bytes("in the host's swap", &p.swapped_bytes);
    all.flag("free page reporting", &p.free_page_reporting);
    all.maybe("balloon", &p.balloon, |balloon| {
        let free = balloon.statistics.map(|guest| format!(", of which {} are free", format::bytes(guest.free_bytes)));
        format!("leaves it {}{}", format::bytes(balloon.actual_bytes), free.unwrap_or_default())
    });
    all.bytes("read by storage for it", &p.storage_read_bytes);
    all.maybe("I/O weight", &p.io_weight, |io| io.weight.to_string());
    all.list("shares processors with", &p.shares_cpus_with, ", ");
    all.overridden(&p.overridden);
    all.settings
}

/// The threads that are pinned to some of the host's processors: `vcpu 0-1 to 2-3; vcpu 2 to 4`.
fn bound(threads: &[PlacedThread], host: usize) -> String {
    let part = |cpus: &[u32]| !cpus.is_empty() && cpus.len() < host;
    let mut groups: Vec<(&str, &[u32], Vec<&str>)> = Vec::new();
    for t in threads.iter().filter(|t| ["vcpu", "iothread"].contains(&&*t.role) && part(&t.cpus)) {
        match groups.iter_mut().find(|(role, cpus, _)| *role == t.role && *cpus == t.cpus) {
            Some((.., names)) => names.push(&t.name),
            None => groups.push((&t.role, &t.cpus, vec![&t.name])),
        }
    }
    let one = |(role, cpus, names): (&str, &[u32], Vec<&str>)| {
        let numbers: Option<Vec<u32>> = names.iter().map(|n| n.parse().ok()).collect();
        let names = numbers.map_or_else(|| names.join(","), |numbers| ranges(&numbers));
        format!("{} to {}", format!("{role} {names}").trim_end(), ranges(cpus))
    };
    groups.into_iter().map(one).collect::<Vec<_>>().join("; ")
}

/// `0-3,8` of a list of processors.
fn ranges(cpus: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let one = |(a, b): &(u32, u32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    runs.iter().map(one).collect::<Vec<_>>().join(",")
}

/// A guest's disks: the settings of the first as `virtio-scsi,none,native`, and how many more
/// there are. `short`: the driver alone.
pub fn disk_label(guest: &Guest, short: bool) -> String {
    let label = |d: &Disk| {
        let driver = d.driver.value().clone().unwrap_or_else(|| "?".into());
        match (&*d.cache, &*d.aio) {
            _ if short => driver,
            (None, None) => driver,
            (cache, aio) => {
                let or = |v: &Option<String>| v.clone().unwrap_or_else(|| "?".into());
                format!("{driver},{},{}", or(cache), or(aio))
            }
        }
    };
    several(guest.disks.iter().map(label).collect())
}

/// A guest's network devices: `virtio-net,vhost`, `e1000,tap`. `short`: the model alone.
pub fn nic_label(guest: &Guest, short: bool) -> String {
    let label = |n: &Nic| {
        let model = n.model.value().clone().unwrap_or_else(|| "?".into());
        let path = if n.vhost == Some(true) { Some("vhost") } else { n.backend.as_deref() };
        match path.filter(|path| !short && *path != model) {
            Some(path) => format!("{model},{path}"),
            None => model,
        }
    };
    several(guest.nics.iter().map(label).collect())
}

/// The first of several labels and the number of the others.
fn several(labels: Vec<String>) -> String {
    match labels.as_slice() {
        [] => "–".into(),
        [one] => one.clone(),
        [first, rest @ ..] if rest.iter().all(|l| l == first) => format!("{}x {first}", labels.len()),
        [first, rest @ ..] => format!("{first} +{}", rest.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_listed_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 8, 9]), "0-2,5,8-9");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn labels_count_what_they_leave_out() {
        let labels = |all: &[&str]| several(all.iter().map(|l| (*l).to_owned()).collect());
        assert_eq!(
            [labels(&[]), labels(&["a"]), labels(&["a", "a"]), labels(&["a", "b", "a"])],
            ["–", "a", "2x a", "a +2"]
        );
    }
}
