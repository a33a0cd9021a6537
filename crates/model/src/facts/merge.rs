//! Combines several readers' knowledge of one guest.
//!
//! Readers of the running guest ([`Guest::fill`]) complete each other; the first one wins. A configuration
//! ([`Guest::configured`]) fills gaps too, and where it differs from what is in force, that is a fact of its own
//! ([`Overridden`]).

use super::{Below, Disk, Guest, Nic, Overridden, Place, Processors, Provenance, Setting};

/// Fills each named fact from that of `$other`, which was read at `$from`.
macro_rules! fill {
    ($own:expr, $other:expr, $from:expr, $($field:ident),* $(,)?) => {$(
        $own.$field.fill($other.$field, $from);
    )*};
}

/// Notes each named field that both have and that differs.
macro_rules! compare {
    ($own:expr, $asked:expr, $into:expr, $($field:ident: $setting:ident),*) => {$(
        if let (Some(found), Some(asked)) = (&*$own.$field, &*$asked.$field)
            && found != asked
        {
            $into.push(Overridden {
                setting: Setting::$setting,
                asked: shown(asked),
                found: shown(found),
                why: None,
            });
        }
    )*};
}

/// A setting as text.
fn shown<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(serde_json::Value::Bool(on)) => (if on { "on" } else { "off" }).to_owned(),
        Ok(other) => other.to_string(),
        Err(e) => e.to_string(),
    }
}

/// A device that two readers may know.
trait Device: Sized {
    fn place(&self) -> &Place;
    fn fill(&mut self, other: Self);
    /// Notes settings that are configured and not in force.
    fn compare(&mut self, asked: &Self);
}

/// Whether two places name the same device: by QEMU's id, else by storage, slot, target.
fn same(a: &Place, b: &Place) -> bool {
    let pairs = [(&a.device_id, &b.device_id), (&a.source, &b.source), (&a.slot, &b.slot), (&a.target, &b.target)];
    pairs.into_iter().find_map(|(a, b)| Some(a.as_ref()? == b.as_ref()?)).unwrap_or(false)
}

/// Fills each device from the same one in `more`. Devices of `more` alone are appended; those of a configuration only
/// where no device is known, since a configured device that is missing is not in use.
fn devices<D: Device>(own: &mut Vec<D>, more: Vec<D>, configuration: bool) {
    let blind = own.is_empty();
    for device in more {
        match own.iter_mut().find(|o| same(o.place(), device.place())) {
            Some(twin) => {
                if configuration {
                    twin.compare(&device);
                }
                twin.fill(device);
            }
            None if blind || !configuration => own.push(device),
            None => {}
        }
    }
}

impl Guest {
    /// Adds another reader's knowledge of the running guest.
    pub fn fill(&mut self, other: Guest) {
        self.join(other, false);
    }

    /// Adds the configured settings, and notes which are not in force.
    pub fn configured(&mut self, asked: Guest) {
        self.join(asked, true);
    }

    fn join(&mut self, mut other: Guest, configuration: bool) {
        if self.name.is_empty() {
            self.name = other.name;
        }
        if self.kind.is_empty() {
            self.kind = other.kind;
        }
        self.manager = self.manager.take().or(other.manager);
        self.pid = self.pid.or(other.pid);
        self.uuid = self.uuid.take().or(other.uuid);
        self.version = self.version.take().or(other.version);
        self.os = self.os.take().or(other.os);
        self.monitor_held_seconds = self.monitor_held_seconds.or(other.monitor_held_seconds);
        for (key, value) in other.ids {
            self.ids.entry(key).or_insert(value);
        }
        devices(&mut self.disks, other.disks, configuration);
        devices(&mut self.nics, other.nics, configuration);
        match (&mut self.processors, other.processors.take()) {
            (Some(own), Some(more)) => {
                if configuration {
                    own.compare(&more);
                }
                own.fill(more);
            }
            (own @ None, more) => *own = more,
            (Some(_), None) => {}
        }
        for unread in other.unread {
            if !self.unread.contains(&unread) {
                self.unread.push(unread);
            }
        }
    }
}

impl Place {
    fn fill(&mut self, other: Place, from: &Provenance) {
        self.domain = self.domain.take().or(other.domain);
        self.vmid = self.vmid.take().or(other.vmid);
        self.source.fill(other.source, from);
        self.block_device = self.block_device.or(other.block_device);
        self.target = self.target.take().or(other.target);
        self.slot = self.slot.take().or(other.slot);
        self.volume = self.volume.take().or(other.volume);
        self.device_id = self.device_id.take().or(other.device_id);
        self.given = self.given.take().or(other.given);
        self.drive = self.drive.take().or(other.drive);
        self.node = self.node.take().or(other.node);
        self.qom = self.qom.take().or(other.qom);
        self.monitor = self.monitor.take().or(other.monitor);
        self.boots_as_first = self.boots_as_first.or(other.boots_as_first);
        if self.addresses.is_empty() {
            (self.addresses, self.addresses_in_doubt) = (other.addresses, other.addresses_in_doubt);
        }
        for name in other.taken {
            if !self.taken.contains(&name) {
                self.taken.push(name);
            }
        }
    }
}

impl Below {
    /// Takes another reader's values where none is known; `from` is the other's provenance of the disk.
    pub fn fill(&mut self, other: Self, from: &Provenance) {
        fill!(
            self,
            other,
            from,
            layout,
            mounted,
            journal,
            raidz,
            discard_ends,
            discards,
            grows,
            host_logical_block_bytes,
            host_physical_block_bytes,
            guest_logical_block_bytes,
            guest_physical_block_bytes,
        );
    }
}

impl Device for Disk {
    fn place(&self) -> &Place {
        &self.place
    }

    fn fill(&mut self, other: Self) {
        fill!(self, other, &other.from, driver, cache, aio, iothread, sparse);
        fill!(
            self.details,
            other.details,
            &other.from,
            storage,
            format,
            virtual_bytes,
            cluster_bytes,
            l2_cache_bytes,
            backing_files,
            thin,
            discard,
            detect_zeroes,
            volblock_bytes,
            alike_in_guest,
            queues,
            mapped_iothreads,
            iothread_name,
            host_cached_bytes,
            read_bytes,
            allocated_bytes,
            in_memory,
            host,
            deleted,
            limits,
            writes_uncharged,
        );
        self.details.below.fill(other.details.below, &other.from);
        self.details.overridden.extend(other.details.overridden);
        self.place.fill(other.place, &other.from);
    }

    fn compare(&mut self, asked: &Self) {
        compare!(self, asked, self.details.overridden, driver: Driver, cache: Cache, aio: Aio, iothread: Iothread);
        compare!(self.details, asked.details, self.details.overridden, discard: Discard, queues: Queues);
    }
}

impl Device for Nic {
    fn place(&self) -> &Place {
        &self.place
    }

    fn fill(&mut self, other: Self) {
        fill!(
            self,
            other,
            &other.from,
            model,
            backend,
            interface,
            bridge,
            vhost,
            vhost_here,
            queues,
            vcpus,
            windows,
            tap_header,
            ring_packets,
            to_guest,
            uplink,
            conntrack,
            os,
            mtu_bytes,
            host_mtu_bytes,
            guest_mtu_bytes,
            bridge_mtu_bytes,
            way,
            uplink_bps,
            tap_errors,
            bridge_netfilter,
            send_buffer_bytes,
            offloads_off,
            rate_limits,
        );
        self.overridden.extend(other.overridden);
        self.place.fill(other.place, &other.from);
    }

    fn compare(&mut self, asked: &Self) {
        compare!(self, asked, self.overridden, model: Model, vhost: Vhost, queues: Queues);
    }
}

impl Device for Processors {
    fn place(&self) -> &Place {
        &self.place
    }

    fn fill(&mut self, other: Self) {
        fill!(
            self,
            other,
            &other.from,
            vcpus,
            accel,
            kvm_here,
            model,
            windows,
            os_release,
            hpet,
            memory_bytes,
            huge_pages,
            quota_cpus,
            quota_of_vcpus,
            throttled,
            swapped_bytes,
            free_page_reporting,
            balloon,
            storage_read_bytes,
            io_weight,
            host_state,
            flags,
            shares_cpus_with,
            threads,
            host,
            memory_by_node,
        );
        self.overridden.extend(other.overridden);
        self.place.fill(other.place, &other.from);
    }

    fn compare(&mut self, asked: &Self) {
        compare!(self, asked, self.overridden, vcpus: Vcpus, accel: Accel, model: Model, huge_pages: HugePages);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::Subject;

    fn from(read_from: &str) -> Provenance {
        Provenance::Live { guest: "web1".into(), read_from: read_from.into(), at_unix_seconds: 1.0 }
    }

    fn guest(read_from: &str, disks: &[(&str, Option<&str>, Option<&str>)]) -> Guest {
        let disk = |(source, cache, aio): &(&str, Option<&str>, Option<&str>)| Disk {
            cache: cache.map(str::to_owned).into(),
            aio: aio.map(str::to_owned).into(),
            place: Place { source: Some((*source).to_owned()).into(), ..Place::default() },
            ..Disk::unknown(Subject::disk("web1", ""), from(read_from))
        };
        Guest { disks: disks.iter().map(disk).collect(), ..Guest::default() }
    }

    #[test]
    fn readers_complete_each_other_and_the_first_one_counts() {
        let mut own = guest("/proc/8/cmdline", &[("/a", Some("none"), None)]);
        own.fill(guest("QMP", &[("/a", Some("writeback"), Some("native")), ("/b", None, None)]));
        assert_eq!(own.disks.len(), 2);
        let disk = &own.disks[0];
        assert_eq!((disk.cache.as_deref(), disk.aio.as_deref()), (Some("none"), Some("native")));
        assert_eq!((disk.aio.source(), disk.cache.source()), (Some(&"QMP".into()), None));
        assert_eq!(disk.details.overridden, []);
    }

    #[test]
    fn what_is_filled_keeps_the_place_where_it_was_read() {
        let mut own = guest("/proc/8/cmdline", &[("/a", None, None)]);
        let mut more = guest("virsh dumpxml", &[("/a", None, None)]);
        more.disks[0].cache = crate::facts::Fact::read(Some("none".to_owned()), "a default");
        more.disks[0].details.limits = vec!["1000 IOPS".to_owned()].into();
        own.fill(more);
        let read = own.disks[0].read();
        let of = |name: &str| read.get(name).map(String::as_str);
        assert_eq!((of("cache"), of("limits"), of("aio")), (Some("a default"), Some("virsh dumpxml"), None));
    }

    #[test]
    fn what_was_asked_for_and_is_not_in_force_is_noted() {
        let mut own = guest("/proc/8/cmdline", &[("/a", Some("none"), Some("threads"))]);
        own.configured(guest("virsh dumpxml", &[("/a", Some("none"), Some("native")), ("/gone", None, None)]));
        assert_eq!(own.disks.len(), 1);
        let wrong = &own.disks[0].details.overridden;
        assert_eq!(wrong.len(), 1);
        assert_eq!((wrong[0].setting.name(), &*wrong[0].asked, &*wrong[0].found), ("aio", "native", "threads"));
    }

    #[test]
    fn a_guest_whose_process_cannot_be_read_is_what_its_configuration_says() {
        let mut own = Guest { name: "web1".into(), pid: Some(8), ..Guest::default() };
        own.configured(guest("virsh dumpxml", &[("/a", Some("none"), None)]));
        assert_eq!((own.disks.len(), own.disks[0].cache.as_deref()), (1, Some("none")));
    }
}
