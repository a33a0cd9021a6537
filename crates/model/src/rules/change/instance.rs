//! Changes by the clients of Incus and LXD, which set devices of an instance.
//!
//! Sources: Incus, doc/config_options.txt, groups `devices-disk` (`io.bus`, `io.cache`, `limits.*`) and
//! `instance-resource-limits`; LXD, doc/metadata.txt, group `device-disk-device-conf` (`io.threads` there is of
//! virtiofsd, and no I/O thread of QEMU). What they set by themselves: driver_qemu.go of both, `addDriveConfig`,
//! `addNetDevConfig`.

use super::{DeviceChange, DiskChange, NicChange, shell};
use crate::cell::Cache;
use crate::facts::{Guest, Nic, Subject};
use crate::rules::Finding;

/// Ids of QEMU that the daemons give devices, before the device's own name (driver_qemu.go, `qemuDeviceIDPrefix`).
const IDS: [&str; 2] = ["dev-incus_", "dev-lxd_"];

/// The change of a finding by the commands of `client`; `None` where it is the same for all hypervisors.
pub fn commands(guest: &Guest, finding: &Finding, name: &str, client: &str) -> Option<String> {
    let mut parts = Parts::default();
    // tc(8) takes it off for all, until the daemon sets it anew.
    let of_card = |nic: &&Nic| finding.subject.is(&nic.subject);
    let own = |nic: &Nic| nic.rate_limits.iter().any(|limit| matches!(limit.by.as_str(), "lxd" | "incus"));
    if finding.rule == "limit-in-force" && guest.nics.iter().find(of_card).is_some_and(own) {
        parts.unset.extend(["limits.max", "limits.ingress", "limits.egress"]);
        return Some(parts.text(guest, finding, name, client));
    }
    if finding.change.ways().len() == 1 {
        return None;
    }
    match (&finding.change.sets, finding.rule.as_str()) {
        (Some(DeviceChange::Disk(to)), _) => disk(&mut parts, to),
        (Some(DeviceChange::Nic(to)), _) => nic(&mut parts, to),
        (None, "limit-in-force") => parts.unset.extend(["limits.max", "limits.read", "limits.write"]),
        (None, "cpu-quota") => {
            parts.without.push("a CPU quota of a virtual machine: it was set beside it, on the control group");
        }
        _ => return Some(format!("# vmio knows no command of {name} for this")),
    }
    Some(parts.text(guest, finding, name, client))
}

/// What is to be set.
#[derive(Default)]
struct Parts {
    /// Settings of the device.
    set: Vec<&'static str>,
    /// Settings that are taken away from it.
    unset: Vec<&'static str>,
    /// What has no setting.
    without: Vec<&'static str>,
}

impl Parts {
    fn text(&self, guest: &Guest, finding: &Finding, name: &str, client: &str) -> String {
        let mut lines: Vec<String> = Vec::new();
        let project = match guest.ids.get("project").map_or("default", String::as_str) {
            "default" => String::new(),
            project => format!(" --project {}", shell(project)),
        };
        let instance = shell(guest.ids.get("instance").unwrap_or(&guest.name));
        let device = device(guest, finding).map_or_else(|| "DEVICE".to_owned(), |device| shell(&device));
        let of = |what: &str| format!("{client} config device {what}{project} {instance} {device}");
        if !self.set.is_empty() {
            lines.push(
                "# while the instance is stopped; for a device that comes from a profile, override in place of set:"
                    .into(),
            );
            lines.push(format!("{} {}", of("set"), self.set.join(" ")));
        }
        if !self.unset.is_empty() {
            lines.push("# a limit that comes from a profile is taken away there:".into());
            lines.extend(self.unset.iter().map(|key| format!("{} {key}", of("unset"))));
        }
        if !self.without.is_empty() {
            lines.push(format!("# {name} has no setting for: {}", self.without.join(", ")));
        }
        lines.join("\n")
    }
}

/// The instance's own name of the device: in QEMU's id a `-` is doubled, and a `/` is a `-` (`PathNameEncode`).
fn device(guest: &Guest, finding: &Finding) -> Option<String> {
    let is = |subject: &Subject| finding.subject.is(subject);
    let of_disk = guest.disks.iter().find(|disk| is(&disk.subject)).map(|disk| &disk.place);
    let place = of_disk.or_else(|| guest.nics.iter().find(|nic| is(&nic.subject)).map(|nic| &nic.place))?;
    let id = place.device_id.as_deref()?;
    let encoded = IDS.iter().find_map(|start| id.strip_prefix(start))?;
    Some(encoded.split("--").map(|part| part.replace('-', "/")).collect::<Vec<String>>().join("-"))
}

fn disk(parts: &mut Parts, to: &DiskChange) {
    parts.set.extend(
        to.driver.map(|driver| if driver == "virtio-scsi" { "io.bus=virtio-scsi" } else { "io.bus=virtio-blk" }),
    );
    parts.set.extend(match to.cache {
        Some(Cache::None) => Some("io.cache=none"),
        Some(Cache::Writeback) => Some("io.cache=writeback"),
        Some(Cache::Unsafe) => Some("io.cache=unsafe"),
        _ => None,
    });
    let missing = [
        (matches!(to.cache, Some(Cache::Writethrough | Cache::Directsync)), "this cache mode"),
        (to.aio.is_some(), "the AIO engine, which it chooses itself"),
        (to.iothread, "I/O threads of a disk"),
        (to.queues.is_some(), "a disk's queues"),
        (to.discard, "discard, which it always passes on"),
        (to.l2_cache.is_some(), "the size of the L2 cache"),
        (to.physical_block.is_some(), "the sectors that the guest is told"),
    ];
    parts.without.extend(missing.into_iter().filter(|(asked, _)| *asked).map(|(_, what)| what));
}

fn nic(parts: &mut Parts, to: &NicChange) {
    let missing = [
        (to.virtio, "the card's model, which it chooses itself"),
        (to.tap, "the back end, which its network decides"),
        (to.vhost, "vhost-net, which it uses where the host has it"),
        (to.queues.is_some(), "queues, which are as many as the vCPUs, and two at least"),
        (to.offloads, "offloads"),
    ];
    parts.without.extend(missing.into_iter().filter(|(asked, _)| *asked).map(|(_, what)| what));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cell::Aio;
    use crate::facts::{Details, Disk, Place, Processors, RateLimit};
    use crate::policy::Direction;
    use crate::rate::BitRate;
    use crate::rules::findings;
    use crate::testing::{live_disk, live_nic, live_processors};

    fn guest(id: &str) -> Guest {
        let limits = vec!["1000 IOPS by QEMU's throttle".to_owned()].into();
        let mut disk = Disk {
            driver: "virtio-scsi".into(),
            cache: "writeback".into(),
            ..live_disk(Details { storage: "block".into(), format: "raw".into(), limits, ..Details::default() })
        };
        disk.place.device_id = Some(id.into());
        Guest {
            name: "web1".into(),
            kind: "qemu".into(),
            manager: Some("incus".into()),
            ids: [("instance", "web1"), ("project", "my shop")].map(|(key, id)| (key.to_owned(), id.to_owned())).into(),
            disks: vec![disk],
            processors: Some(Processors { quota_cpus: Some(2.0).into(), ..live_processors() }),
            ..Guest::default()
        }
    }

    fn text(guest: &Guest, rule: &str) -> Option<String> {
        let found = findings(&guest.facts());
        commands(guest, found.iter().find(|f| f.rule == rule).unwrap(), "Incus", "incus")
    }

    #[test]
    fn devices_are_set_by_their_own_names() {
        let own = guest("dev-incus_my--data-x");
        let cache = text(&own, "host-page-cache").unwrap();
        let set = "\nincus config device set --project 'my shop' web1 my-data/x io.cache=none";
        assert!(cache.contains(set), "{cache}");
        let limit = text(&own, "limit-in-force").unwrap();
        assert!(limit.contains("config device unset --project 'my shop' web1 my-data/x limits.read\n"), "{limit}");
        let quota = text(&own, "cpu-quota").unwrap();
        assert!(quota.starts_with("# Incus has no setting for: a CPU quota"), "{quota}");
        let unknown = text(&guest("vda"), "host-page-cache").unwrap();
        assert!(unknown.contains(" web1 DEVICE io.cache=none"), "{unknown}");
    }

    #[test]
    fn a_cards_limits_are_unset_where_the_daemon_set_them() {
        let of = |by: &str| {
            let limit = RateLimit::new(by, Direction::GuestRx, BitRate::new(100_000_000), false);
            let place = Place { device_id: Some("dev-incus_eth0".into()), ..Place::default() };
            let nic = Nic { rate_limits: vec![limit].into(), place, ..live_nic() };
            let guest = Guest { nics: vec![nic], disks: Vec::new(), ..guest("x") };
            text(&guest, "limit-in-force")
        };
        let own = of("incus").unwrap();
        assert!(own.contains("config device unset --project 'my shop' web1 eth0 limits.ingress\n"), "{own}");
        assert_eq!(of("tc"), None);
    }

    /// Each setting of a device has one of theirs, or is said to have none.
    #[test]
    fn no_setting_is_passed_over() {
        let none = DiskChange::default;
        let disks = [
            DiskChange { driver: Some("virtio-blk"), ..none() },
            DiskChange { driver: Some("virtio-scsi"), ..none() },
            DiskChange { aio: Some(Aio::Native), ..none() },
            DiskChange { iothread: true, ..none() },
            DiskChange { queues: Some(4), ..none() },
            DiskChange { discard: true, ..none() },
            DiskChange { l2_cache: Some(1 << 20), ..none() },
            DiskChange { physical_block: Some(4096), ..none() },
        ];
        let caches = [Cache::None, Cache::Writeback, Cache::Writethrough, Cache::Directsync, Cache::Unsafe];
        let caches = caches.map(|cache| DiskChange { cache: Some(cache), ..none() });
        for to in disks.iter().chain(&caches) {
            let mut parts = Parts::default();
            disk(&mut parts, to);
            assert_eq!(parts.set.len() + parts.without.len(), 1, "{to:?}");
        }
        let cards = [
            NicChange { virtio: true, ..NicChange::default() },
            NicChange { tap: true, ..NicChange::default() },
            NicChange { vhost: true, ..NicChange::default() },
            NicChange { queues: Some(4), ..NicChange::default() },
            NicChange { offloads: true, ..NicChange::default() },
        ];
        for to in &cards {
            let mut parts = Parts::default();
            nic(&mut parts, to);
            assert_eq!(parts.without.len(), 1, "{to:?}");
        }
    }
}
