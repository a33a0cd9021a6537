//! The settings of a guest by device, each with the place that it was read from, and the short
//! labels of the overview.

use vmio_model::facts::{Disk, Guest, Nic, Processors, Provenance, Sources};
use vmio_model::result::Accel;

use crate::report::format;

/// A device and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// What it is: `disk vda`.
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
    /// Where it was read.
    pub from: String,
}

/// Gathers what is known of a device.
struct Gather<'a> {
    read: &'a Sources,
    from: &'a Provenance,
    settings: Vec<Setting>,
}

impl<'a> Gather<'a> {
    fn new(read: &'a Sources, from: &'a Provenance) -> Self {
        Self { read, from, settings: Vec::new() }
    }

    /// Adds a setting; `key` is its name in [`Sources`].
    fn put(&mut self, key: &str, name: &'static str, value: Option<String>) {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            let from = self.read.get(key).cloned().unwrap_or_else(|| self.from.place());
            self.settings.push(Setting { name, value, from });
        }
    }

    fn flag(&mut self, key: &str, name: &'static str, value: Option<bool>) {
        self.put(key, name, value.map(|on| if on { "yes" } else { "no" }.to_owned()));
    }

    fn bytes(&mut self, key: &str, name: &'static str, value: Option<u64>) {
        self.put(key, name, value.map(format::bytes));
    }

    fn number(&mut self, key: &str, name: &'static str, value: Option<u32>) {
        self.put(key, name, value.map(|n| n.to_string()));
    }

    fn overridden(&mut self, all: &[vmio_model::facts::Overridden]) {
        for o in all {
            let value = format!("{} ({} is in force)", o.asked, o.found);
            self.put("overridden", "configured", Some(format!("{} {value}", o.setting)));
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
    let mut all = Gather::new(&d.read, &d.from);
    let details = &d.details;
    all.put("driver", "driver", d.driver.clone());
    all.put("cache", "cache", d.cache.clone());
    all.put("aio", "aio", d.aio.clone());
    let own = d.iothread.map(|on| match (&details.iothread_name, on) {
        (Some(name), true) => name.clone(),
        (None, true) => "yes".into(),
        (_, false) => "none".into(),
    });
    all.put("iothread", "I/O thread", own);
    all.number("queues", "queues", details.queues);
    all.number("mapped_iothreads", "spread over I/O threads", details.mapped_iothreads);
    all.put("format", "format", details.format.clone());
    all.put("storage", "storage", details.storage.clone());
    all.put("source", "source", d.place.source.clone());
    all.bytes("virtual_bytes", "size", details.virtual_bytes);
    all.bytes("allocated_bytes", "allocated", details.allocated_bytes);
    all.flag("sparse", "sparse", d.sparse);
    all.flag("thin", "thin", details.thin);
    all.flag("discard", "discard", details.discard);
    all.bytes("cluster_bytes", "cluster", details.cluster_bytes);
    all.bytes("l2_cache_bytes", "L2 cache", details.l2_cache_bytes);
    all.number("backing_files", "backing images", details.backing_files.filter(|n| *n > 0));
    all.bytes("volblock_bytes", "volume block size", details.volblock_bytes);
    all.bytes("host_cached_bytes", "in the host's page cache", details.host_cached_bytes);
    all.put("limits", "limits", Some(details.limits.join(", ")));
    all.overridden(&details.overridden);
    all.settings
}

fn nic(n: &Nic) -> Vec<Setting> {
    let mut all = Gather::new(&n.read, &n.from);
    all.put("model", "model", n.model.clone());
    all.put("backend", "backend", n.backend.clone());
    all.put("interface", "interface", n.interface.clone());
    all.put("bridge", "bridge", n.bridge.clone());
    all.flag("vhost", "vhost-net", n.vhost);
    all.number("queues", "queues", n.queues);
    all.put("offloads_off", "offloads off", Some(n.offloads_off.join(", ")));
    all.put("mtu_bytes", "MTU", n.mtu_bytes.map(|b| b.to_string()));
    all.put("bridge_mtu_bytes", "bridge MTU", n.bridge_mtu_bytes.map(|b| b.to_string()));
    all.put("send_buffer_bytes", "send buffer", n.send_buffer_bytes.map(send_buffer));
    all.overridden(&n.overridden);
    all.settings
}

/// Linux has a tap's send buffer at INT_MAX where nobody set one (drivers/net/tun.c).
fn send_buffer(bytes: u64) -> String {
    if bytes >= i32::MAX as u64 { "unlimited".into() } else { format::bytes(bytes) }
}

fn processors(p: &Processors) -> Vec<Setting> {
    let mut all = Gather::new(&p.read, &p.from);
    all.number("vcpus", "vCPUs", p.vcpus);
    let accel = p.accel.map(|a| match a {
        Accel::Kvm => "KVM".to_owned(),
        Accel::Tcg => "TCG, software emulation".to_owned(),
    });
    all.put("accel", "accelerator", accel);
    all.put("model", "model", p.model.clone());
    all.put("flags", "flags", Some(p.flags.join(" ")));
    all.bytes("memory_bytes", "memory", p.memory_bytes);
    all.flag("huge_pages", "huge pages", p.huge_pages);
    all.put("threads", "pinned", bound(p));
    let nodes: Vec<String> = p
        .memory_by_node
        .iter()
        .filter(|(_, b)| **b > 0)
        .map(|(n, b)| format!("{} on node {n}", format::bytes(*b)))
        .collect();
    all.put("memory_by_node", "memory", Some(nodes.join(", ")));
    all.put("quota_cpus", "CPU quota", p.quota_cpus.map(|q| format!("{} CPUs", format::three(q))));
    all.put("shares_cpus_with", "shares processors with", Some(p.shares_cpus_with.join(", ")));
    all.overridden(&p.overridden);
    all.settings
}

/// Which threads may run on part of the host's processors alone: `vcpu 0-1 to 2-3; vcpu 2 to 4`.
fn bound(p: &Processors) -> Option<String> {
    let part = |cpus: &[u32]| !cpus.is_empty() && cpus.len() < p.host.len();
    let mut groups: Vec<(&str, &[u32], Vec<&str>)> = Vec::new();
    for t in p.threads.iter().filter(|t| ["vcpu", "iothread"].contains(&&*t.role) && part(&t.cpus)) {
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
    Some(groups.into_iter().map(one).collect::<Vec<_>>().join("; "))
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
        let driver = d.driver.clone().unwrap_or_else(|| "?".into());
        match (&d.cache, &d.aio) {
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
        let model = n.model.clone().unwrap_or_else(|| "?".into());
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
