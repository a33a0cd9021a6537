//! Changes in the fields of what manages a guest and writes its domain or QEMU's options anew at each start, so that a
//! change there is lost: KubeVirt's VirtualMachine, images, flavors and `nova.conf` of OpenStack Nova, and instances of
//! Incus and LXD (`instance.rs`). What such a manager has no field for is said so. Another manager of this sort is an
//! entry of [`Above`] and a function beside [`kubevirt`].
//!
//! Sources: KubeVirt, staging/src/kubevirt.io/api/core/v1/schema.go; Nova, doc/source/admin/resource-limits.rst,
//! doc/source/cli/nova-manage.rst (`image_property set`, from Yoga on: the instance is stopped or shelved),
//! doc/source/configuration/config.rst (`[libvirt]`); Glance, doc/source/admin/useful-image-properties.rst.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DeviceChange, DiskChange, NicChange, instance, shell};
use crate::cell::{Aio, Cache};
use crate::facts::Guest;
use crate::rules::Finding;

/// What manages a guest and writes its set-up itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Above {
    /// KubeVirt: fields of the VirtualMachine.
    Kubevirt,
    /// OpenStack Nova: properties of images and flavors, settings of `nova.conf`.
    Nova,
    /// Incus: devices of the instance.
    Incus,
    /// LXD: devices of the instance.
    Lxd,
}

impl Above {
    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            Above::Kubevirt => "KubeVirt",
            Above::Nova => "Nova",
            Above::Incus => "Incus",
            Above::Lxd => "LXD",
        }
    }

    /// What manages this guest.
    fn of(guest: &Guest) -> Option<Self> {
        match guest.manager.as_deref() {
            Some("kubevirt") => Some(Above::Kubevirt),
            Some("incus") => Some(Above::Incus),
            Some("lxd") => Some(Above::Lxd),
            _ => guest.ids.contains_key("openstack").then_some(Above::Nova),
        }
    }
}

/// A change by what manages the guest and writes its set-up itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InFields {
    /// The manager.
    pub tool: Above,
    /// Its fields and commands.
    pub text: String,
}

/// The change of a finding in the fields of the guest's manager; `None` where libvirt's or Proxmox's own way is the
/// guest's, and where vmio knows no fields for it.
pub fn in_fields(guest: &Guest, finding: &Finding) -> Option<InFields> {
    let tool = Above::of(guest)?;
    let text = match tool {
        Above::Kubevirt => kubevirt(guest, finding)?.text(tool, guest),
        Above::Nova => nova(guest, finding)?.text(tool, guest),
        Above::Incus => instance::commands(guest, finding, tool.name(), "incus")?,
        Above::Lxd => instance::commands(guest, finding, tool.name(), "lxc")?,
    };
    Some(InFields { tool, text })
}

/// What is to be set, and where.
#[derive(Default)]
struct Parts {
    /// Fields of KubeVirt's domain.
    fields: Vec<String>,
    /// Properties of an image.
    properties: Vec<&'static str>,
    /// Settings of `[libvirt]` in nova.conf.
    conf: Vec<&'static str>,
    /// Properties that are taken away from the flavor.
    unset: Vec<&'static str>,
    /// What has no field.
    without: Vec<&'static str>,
}

impl Parts {
    fn text(&self, tool: Above, guest: &Guest) -> String {
        let mut lines: Vec<String> = Vec::new();
        let id = |name: &str, else_: &str| guest.ids.get(name).map_or_else(|| else_.to_owned(), |id| shell(id));
        if !self.fields.is_empty() {
            lines.push("# below spec.template.spec.domain; takes effect at the next start of the machine:".into());
            lines.push(format!("kubectl edit vm -n {} {}", id("namespace", "NAMESPACE"), id("machine", "MACHINE")));
            lines.extend(self.fields.iter().cloned());
        }
        if !self.properties.is_empty() {
            let properties: String = self.properties.iter().map(|p| format!(" --property {p}")).collect();
            let uuid = guest.uuid.as_deref().map_or_else(|| "INSTANCE".to_owned(), shell);
            lines.push("# an instance that exists, while it is stopped or shelved:".into());
            lines.push(format!("nova-manage image_property set {uuid}{properties}"));
            lines.push("# those that will be made:".into());
            lines.push(format!("openstack image set IMAGE{properties}"));
        }
        if !self.conf.is_empty() {
            lines.push(
                "# nova.conf on this host, then nova-compute is restarted, and each instance stopped and started:"
                    .into(),
            );
            lines.push("[libvirt]".into());
            lines.extend(self.conf.iter().map(|&line| line.to_owned()));
        }
        if !self.unset.is_empty() {
            let properties: String = self.unset.iter().map(|p| format!(" --property {p}")).collect();
            lines.push("# an instance keeps the flavor that it was made with: resize it to this one afterwards".into());
            lines.push(format!("openstack flavor unset {}{properties}", id("flavor", "FLAVOR")));
        }
        if !self.without.is_empty() {
            lines.push(format!("# {} has no field for: {}", tool.name(), self.without.join(", ")));
        }
        lines.join("\n")
    }
}

fn kubevirt(guest: &Guest, finding: &Finding) -> Option<Parts> {
    let mut parts = Parts::default();
    match (&finding.change.sets, finding.rule.as_str()) {
        (Some(DeviceChange::Disk(to)), _) => {
            // Its libvirt gives each disk the alias `ua-NAME`. It is quoted, since the text may be pasted as a whole.
            let own = guest.disks.iter().find(|disk| finding.subject.is(&disk.subject));
            let name = own.and_then(|disk| disk.place.device_id.as_deref()?.strip_prefix("ua-"));
            kubevirt_disk(&mut parts, to, &name.map_or_else(String::new, shell));
        }
        (Some(DeviceChange::Nic(to)), _) => {
            if to.virtio {
                parts.fields.push("devices.interfaces[].model: virtio".into());
            }
            if let Some(n) = to.queues {
                parts.fields.push(format!("devices.networkInterfaceMultiqueue: {}", n > 1));
            }
            parts.without.extend(plain_nic(to));
        }
        (None, "cpu-quota") => {
            let vcpus = guest.processors.as_ref().and_then(|p| *p.vcpus)?;
            parts.fields.push(format!("resources.limits.cpu: \"{}\"", u64::from(vcpus) + 1));
        }
        (None, "old-cpu-model") => parts.fields.push("cpu.model: host-model".into()),
        _ => return None,
    }
    Some(parts)
}

fn kubevirt_disk(parts: &mut Parts, to: &DiskChange, name: &str) {
    let mut field = |text: &str| parts.fields.push(format!("devices.disks[{name}].{text}"));
    match to.driver {
        Some("virtio-scsi") => field("disk.bus: scsi"),
        Some(_) => field("disk.bus: virtio"),
        None => {}
    }
    match to.cache {
        Some(Cache::None) => field("cache: none"),
        Some(Cache::Writethrough) => field("cache: writethrough"),
        Some(Cache::Writeback) => field("cache: writeback"),
        _ => {}
    }
    match to.aio {
        Some(Aio::Native) => field("io: native"),
        Some(Aio::Threads) => field("io: threads"),
        _ => {}
    }
    if let Some(bytes) = to.physical_block {
        field(&format!("blockSize.custom: {{logical: 512, physical: {bytes}}}"));
    }
    if to.iothread {
        field("dedicatedIOThread: true");
        parts.fields.push("ioThreadsPolicy: auto".into());
    }
    if to.queues.is_some() {
        parts.fields.push("devices.blockMultiQueue: true".into());
    }
    let missing = [
        (matches!(to.cache, Some(Cache::Directsync | Cache::Unsafe)), "this cache mode"),
        (to.aio == Some(Aio::IoUring), "the AIO engine io_uring"),
        (to.discard, "discard (a volume in block mode passes it on by itself)"),
        (to.l2_cache.is_some(), "the size of the L2 cache"),
    ];
    parts.without.extend(missing.into_iter().filter(|(asked, _)| *asked).map(|(_, what)| what));
}

fn nova(guest: &Guest, finding: &Finding) -> Option<Parts> {
    let mut parts = Parts::default();
    match (&finding.change.sets, finding.rule.as_str()) {
        (Some(DeviceChange::Disk(to)), _) => nova_disk(&mut parts, to),
        (Some(DeviceChange::Nic(to)), _) => {
            if to.virtio {
                parts.properties.push("hw_vif_model=virtio");
            }
            if let Some(n) = to.queues {
                let several = n > 1;
                parts.properties.push(if several {
                    "hw_vif_multiqueue_enabled=true"
                } else {
                    "hw_vif_multiqueue_enabled=false"
                });
            }
            parts.without.extend(plain_nic(to));
        }
        (None, "cpu-quota") => parts.unset.extend(["quota:cpu_quota", "quota:cpu_period"]),
        (None, "limit-in-force") if guest.nics.iter().any(|nic| finding.subject.is(&nic.subject)) => {
            parts.unset.extend([
                "quota:vif_inbound_average",
                "quota:vif_inbound_peak",
                "quota:vif_inbound_burst",
                "quota:vif_outbound_average",
                "quota:vif_outbound_peak",
                "quota:vif_outbound_burst",
            ]);
            parts.without.push("a limit of a Neutron policy (openstack port unset --qos-policy PORT)");
        }
        (None, "limit-in-force") => {
            parts.unset.extend([
                "quota:disk_total_bytes_sec",
                "quota:disk_read_bytes_sec",
                "quota:disk_write_bytes_sec",
                "quota:disk_total_iops_sec",
                "quota:disk_read_iops_sec",
                "quota:disk_write_iops_sec",
            ]);
            parts.without.push("the limits of a volume, which are those of its volume type (openstack volume qos)");
        }
        (None, "old-cpu-model") => parts.conf.push("cpu_mode = host-model"),
        (None, "windows-no-enlightenments") => parts.properties.push("os_type=windows"),
        _ => return None,
    }
    Some(parts)
}

fn nova_disk(parts: &mut Parts, to: &DiskChange) {
    match to.driver {
        Some("virtio-scsi") => parts.properties.extend(["hw_disk_bus=scsi", "hw_scsi_model=virtio-scsi"]),
        Some(_) => parts.properties.push("hw_disk_bus=virtio"),
        None => {}
    }
    match to.cache {
        Some(Cache::None) => parts.conf.push("disk_cachemodes = file=none,block=none    # and network=… as it is"),
        Some(Cache::Writeback) => {
            parts.conf.push("disk_cachemodes = file=writeback,block=writeback    # and network=… as it is");
        }
        _ => {}
    }
    if to.discard {
        parts.conf.push("hw_disk_discard = unmap");
    }
    let other_cache = to.cache.is_some_and(|cache| !matches!(cache, Cache::None | Cache::Writeback));
    let missing = [
        (other_cache, "this cache mode"),
        (to.aio.is_some(), "the AIO engine (it is native with O_DIRECT)"),
        (to.iothread, "I/O threads"),
        (to.physical_block.is_some(), "the sectors that a disk reports"),
        (to.queues.is_some(), "a disk's queues"),
        (to.l2_cache.is_some(), "the size of the L2 cache"),
    ];
    parts.without.extend(missing.into_iter().filter(|(asked, _)| *asked).map(|(_, what)| what));
}

/// What neither has a field for at a network device.
fn plain_nic(to: &NicChange) -> impl Iterator<Item = &'static str> {
    let missing = [
        (to.tap, "the back end, which its network decides"),
        (to.vhost, "vhost-net, which it uses where the host has it"),
        (to.offloads, "offloads"),
    ];
    missing.into_iter().filter(|(asked, _)| *asked).map(|(_, what)| what)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::{Details, Disk, Processors};
    use crate::rules::findings;
    use crate::testing::{live_disk, live_processors};

    fn guest(manager: &str, ids: &[(&str, &str)]) -> Guest {
        let mut disk = Disk {
            driver: "ahci".into(),
            cache: "writeback".into(),
            ..live_disk(Details { storage: "block".into(), format: "raw".into(), ..Details::default() })
        };
        disk.place.device_id = Some("ua-root $(x)".into());
        Guest {
            name: "db1".into(),
            kind: "qemu".into(),
            manager: Some(manager.into()),
            uuid: Some("3b5f0a5e-0000-4000-8000-000000000001".into()),
            ids: ids.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            disks: vec![disk],
            processors: Some(Processors { quota_cpus: Some(2.0).into(), ..live_processors() }),
            ..Guest::default()
        }
    }

    fn text(guest: &Guest, rule: &str) -> Option<String> {
        let found = findings(&guest.facts());
        in_fields(guest, found.iter().find(|f| f.rule == rule).unwrap()).map(|fields| fields.text)
    }

    #[test]
    fn kubevirts_fields_are_those_of_the_machine() {
        let own = guest("kubevirt", &[("namespace", "shop"), ("machine", "db 1")]);
        let driver = text(&own, "emulated-driver").unwrap();
        assert!(driver.contains("kubectl edit vm -n shop 'db 1'\n"), "{driver}");
        assert!(driver.contains("\ndevices.disks['root $(x)'].disk.bus: virtio"), "{driver}");
        let cache = text(&own, "host-page-cache").unwrap();
        assert!(cache.contains("\ndevices.disks['root $(x)'].cache: none"), "{cache}");
        assert!(text(&own, "cpu-quota").unwrap().ends_with("\nresources.limits.cpu: \"5\""));
    }

    #[test]
    fn nova_has_properties_settings_and_flavors() {
        let own = guest("libvirt", &[("openstack", "db1"), ("flavor", "m1 large")]);
        let driver = text(&own, "emulated-driver").unwrap();
        let set = "nova-manage image_property set 3b5f0a5e-0000-4000-8000-000000000001 --property hw_disk_bus=virtio\n";
        assert!(driver.contains(set) && driver.contains("openstack image set IMAGE --property"), "{driver}");
        let cache = text(&own, "host-page-cache").unwrap();
        assert!(cache.contains("[libvirt]\ndisk_cachemodes = file=none,block=none"), "{cache}");
        let quota = text(&own, "cpu-quota").unwrap();
        assert!(quota.contains("openstack flavor unset 'm1 large' --property quota:cpu_quota"), "{quota}");
    }

    #[test]
    fn whoever_writes_the_domain_by_hand_has_libvirts_way_alone() {
        assert_eq!(text(&guest("libvirt", &[]), "emulated-driver"), None);
        let own = guest("kubevirt", &[]);
        let nothing = Parts { without: vec!["offloads"], ..Parts::default() };
        assert_eq!(nothing.text(Above::Nova, &own), "# Nova has no field for: offloads");
    }

    /// Each setting of a device has a field, or is said to have none.
    #[test]
    fn no_setting_is_passed_over() {
        let none = DiskChange::default;
        let disks = [
            DiskChange { driver: Some("virtio-blk"), ..none() },
            DiskChange { aio: Some(Aio::IoUring), ..none() },
            DiskChange { aio: Some(Aio::Native), ..none() },
            DiskChange { iothread: true, ..none() },
            DiskChange { queues: Some(4), ..none() },
            DiskChange { discard: true, ..none() },
            DiskChange { physical_block: Some(4096), ..none() },
            DiskChange { l2_cache: Some(1 << 20), ..none() },
        ];
        let caches = [Cache::None, Cache::Writeback, Cache::Writethrough, Cache::Directsync, Cache::Unsafe];
        let caches = caches.map(|cache| DiskChange { cache: Some(cache), ..none() });
        for to in disks.iter().chain(&caches) {
            let (mut one, mut two) = (Parts::default(), Parts::default());
            kubevirt_disk(&mut one, to, "root");
            nova_disk(&mut two, to);
            assert!(!one.text(Above::Kubevirt, &Guest::default()).is_empty(), "{to:?}");
            assert!(!two.text(Above::Nova, &Guest::default()).is_empty(), "{to:?}");
        }
    }
}
