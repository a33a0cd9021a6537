//! Values whose every free text is somebody else's choice.

use serde_json::Value;
use vmio_model::facts::{DeviceId, Disk, Fact, Guest, GuestId, Nic, Place, Processors, Subject, Unread};
use vmio_model::rules::{About, Finding};

/// Gives every free text in a value this hostile end.
pub struct Poison(pub &'static str);

impl Poison {
    /// Every free text in a value made hostile, as far as it still means the same kind of thing.
    pub fn value<T: serde::Serialize + serde::de::DeserializeOwned>(&self, value: &T) -> T {
        let (whole, poisoned) = self.spoil(value);
        assert!(poisoned > 2, "{poisoned}");
        whole
    }

    /// The same, and how many texts it holds.
    pub fn spoil<T: serde::Serialize + serde::de::DeserializeOwned>(&self, value: &T) -> (T, usize) {
        fn leaves(value: &Value, at: String, all: &mut Vec<String>) {
            match value {
                Value::String(_) => all.push(at),
                Value::Array(items) => items.iter().enumerate().for_each(|(i, v)| leaves(v, format!("{at}/{i}"), all)),
                Value::Object(map) => {
                    let name = |k: &str| k.replace('~', "~0").replace('/', "~1");
                    map.iter().for_each(|(k, v)| leaves(v, format!("{at}/{}", name(k)), all));
                }
                _ => {}
            }
        }
        let mut whole = serde_json::to_value(value).unwrap();
        let mut all = Vec::new();
        leaves(&whole, String::new(), &mut all);
        let mut poisoned = 0;
        for at in all {
            let leaf = whole.pointer_mut(&at).unwrap();
            let before = leaf.clone();
            *leaf = Value::String(format!("{}{}", before.as_str().unwrap(), self.0));
            match T::deserialize(whole.clone()) {
                Ok(_) => poisoned += 1,
                Err(_) => *whole.pointer_mut(&at).unwrap() = before,
            }
        }
        (T::deserialize(whole).unwrap(), poisoned)
    }

    /// A part of a value made hostile.
    pub fn part<T: serde::Serialize + serde::de::DeserializeOwned>(&self, value: &T) -> T {
        self.spoil(value).0
    }

    pub fn subject(&self, subject: &Subject) -> Subject {
        let guest = GuestId::new(format!("{}{}", subject.guest.name(), self.0));
        let device = subject.device.clone().map(|d| DeviceId { name: self.part(&d.name), ..d });
        Subject { guest, device }
    }

    /// Every text of a finding. Each of its members is told here, so that none is forgotten.
    pub fn finding(&self, f: &Finding) -> Finding {
        let subject = match &f.subject {
            About::Cell(key) => About::Cell(self.part(key)),
            About::Guest(subject) => About::Guest(self.subject(subject)),
        };
        Finding {
            rule: self.part(&f.rule),
            title: self.part(&f.title),
            severity: f.severity,
            subject,
            cause: self.part(&f.cause),
            figures: self.part(&f.figures),
            evidence: self.part(&f.evidence),
            unpaid: self.part(&f.unpaid),
            expected: self.part(&f.expected),
            change: self.value(&f.change),
            by_manager: self.part(&f.by_manager),
            references: self.part(&f.references),
            cost_ratio: f.cost_ratio,
            proof: self.part(&f.proof),
            of_host: f.of_host,
        }
    }

    /// A fact with its texts and its source made hostile.
    pub fn fact<T: serde::Serialize + serde::de::DeserializeOwned>(&self, fact: &Fact<T>) -> Fact<T> {
        match fact.source() {
            Some(source) => Fact::read(self.part(fact.value()), format!("{source}{}", self.0)),
            None => self.part(fact.value()).into(),
        }
    }

    pub fn place(&self, place: &Place) -> Place {
        Place { source: self.fact(&place.source), ..self.part(place) }
    }

    /// Every text of a guest. Each member of it is told here, so that none is forgotten.
    pub fn guest(&self, g: &Guest) -> Guest {
        let disk = |d: &Disk| Disk {
            subject: self.subject(&d.subject),
            driver: self.fact(&d.driver),
            cache: self.fact(&d.cache),
            aio: self.fact(&d.aio),
            iothread: self.fact(&d.iothread),
            sparse: self.fact(&d.sparse),
            details: self.part(&d.details),
            place: self.place(&d.place),
            from: self.part(&d.from),
        };
        let nic = |n: &Nic| Nic {
            subject: self.subject(&n.subject),
            model: self.fact(&n.model),
            backend: self.fact(&n.backend),
            interface: self.fact(&n.interface),
            bridge: self.fact(&n.bridge),
            vhost: self.fact(&n.vhost),
            vhost_here: self.fact(&n.vhost_here),
            queues: self.fact(&n.queues),
            vcpus: self.fact(&n.vcpus),
            windows: self.fact(&n.windows),
            os: self.fact(&n.os),
            offloads_off: self.fact(&n.offloads_off),
            tap_header: self.fact(&n.tap_header),
            ring_packets: self.fact(&n.ring_packets),
            to_guest: self.fact(&n.to_guest),
            uplink: self.fact(&n.uplink),
            conntrack: self.fact(&n.conntrack),
            mtu_bytes: self.fact(&n.mtu_bytes),
            host_mtu_bytes: self.fact(&n.host_mtu_bytes),
            guest_mtu_bytes: self.fact(&n.guest_mtu_bytes),
            bridge_mtu_bytes: self.fact(&n.bridge_mtu_bytes),
            way: self.fact(&n.way),
            uplink_bps: self.fact(&n.uplink_bps),
            tap_errors: self.fact(&n.tap_errors),
            bridge_netfilter: self.fact(&n.bridge_netfilter),
            send_buffer_bytes: self.fact(&n.send_buffer_bytes),
            rate_limits: self.fact(&n.rate_limits),
            overridden: self.part(&n.overridden),
            place: self.place(&n.place),
            from: self.part(&n.from),
        };
        let processors = |p: &Processors| Processors {
            subject: self.subject(&p.subject),
            vcpus: self.fact(&p.vcpus),
            accel: self.fact(&p.accel),
            kvm_here: self.fact(&p.kvm_here),
            model: self.fact(&p.model),
            flags: self.fact(&p.flags),
            windows: self.fact(&p.windows),
            os_release: self.fact(&p.os_release),
            hpet: self.fact(&p.hpet),
            clock_source: self.fact(&p.clock_source),
            threads: self.fact(&p.threads),
            host: self.fact(&p.host),
            memory_bytes: self.fact(&p.memory_bytes),
            memory_by_node: p.memory_by_node.clone(), // its keys are no texts in JSON
            huge_pages: self.fact(&p.huge_pages),
            quota_cpus: self.fact(&p.quota_cpus),
            quota_of_vcpus: self.fact(&p.quota_of_vcpus),
            throttled: self.fact(&p.throttled),
            swapped_bytes: self.fact(&p.swapped_bytes),
            free_page_reporting: self.fact(&p.free_page_reporting),
            balloon: self.fact(&p.balloon),
            storage_read_bytes: self.fact(&p.storage_read_bytes),
            io_weight: self.fact(&p.io_weight),
            host_state: self.fact(&p.host_state),
            shares_cpus_with: self.fact(&p.shares_cpus_with),
            overridden: self.part(&p.overridden),
            place: self.place(&p.place),
            from: self.part(&p.from),
        };
        Guest {
            name: self.part(&g.name),
            kind: self.part(&g.kind),
            manager: self.part(&g.manager),
            pid: g.pid,
            uuid: self.part(&g.uuid),
            ids: self.part(&g.ids),
            version: self.part(&g.version),
            os: self.part(&g.os),
            disks: g.disks.iter().map(disk).collect(),
            nics: g.nics.iter().map(nic).collect(),
            processors: g.processors.as_ref().map(processors),
            monitor_held_seconds: g.monitor_held_seconds,
            unread: g.unread.iter().map(|x| self.unread(x)).collect(),
        }
    }

    pub fn unread(&self, unread: &Unread) -> Unread {
        let with = |text: &str| format!("{text}{}", self.0);
        Unread { what: with(&unread.what), why: with(&unread.why), mend: with(&unread.mend).into() }
    }
}
