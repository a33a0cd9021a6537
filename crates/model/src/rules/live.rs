//! Findings in running guests: each names its settings with their sources, so that a reader can check them before
//! changing anything.

use serde::Serialize;
use serde_json::Value;

use super::{Change, Evidence, Finding, Rule, Severity};
use crate::facts::{Disk, Fact, GuestId, Nic, Place, Processors, Provenance, Setting, Subject};

/// A device of a running guest.
pub trait Live {
    /// Subject of its findings: `guest web1, disk vda`.
    fn subject(&self) -> &Subject;
    /// Its names in configurations.
    fn place(&self) -> &Place;
    /// Where it was read first.
    fn from(&self) -> &Provenance;

    /// Its guest.
    fn guest(&self) -> &GuestId {
        &self.subject().guest
    }

    /// Its name within its guest: `disk vda`; for a guest's processors `guest web1`.
    fn device(&self) -> String {
        self.subject().within()
    }

    /// A setting in force with its source; `None` where unknown, or the device has no such setting.
    fn in_force(&self, setting: Setting) -> Option<Evidence>;
}

/// A fact as evidence: its value in words, and its source; `None` where unknown. `path` is the fact's name in
/// [`seen!`], which is the one it reads.
pub fn evidence<T: Serialize>(device: &impl Live, path: &str, fact: &Fact<T>) -> Option<Evidence> {
    let name = path.rsplit('.').next().unwrap_or(path).trim();
    let value = serde_json::to_value(fact.value()).ok()?;
    let (setting, value) = match (name.strip_suffix("_bytes"), value.as_u64()) {
        (Some(size), Some(bytes)) => (size, bytes_shown(bytes)),
        _ => (name, shown(&value)?),
    };
    Some(Evidence { setting: setting.replace('_', " "), value, from: fact.source_or(device.from()) })
}

/// Facts of a device as evidence: `seen![disk; driver, details.format]`. They are named by their fields, so that a
/// wrong name does not compile.
macro_rules! seen {
    ($device:expr; $($field:ident $(. $inner:ident)*),* $(,)?) => {
        [$($crate::rules::live::evidence(
            $device,
            stringify!($field $(. $inner)*),
            &$device.$field $(. $inner)*,
        )),*]
    };
}
pub(super) use seen;

/// The one fact of [`seen!`].
macro_rules! one {
    ($device:expr, $field:ident $(. $inner:ident)?) => {{
        let [found] = seen![$device; $field $(. $inner)?];
        found
    }};
}

macro_rules! live {
    ($device:ty; $($setting:ident: $field:ident $(. $inner:ident)?),*; no $($none:ident),*) => {
        impl Live for $device {
            fn subject(&self) -> &Subject {
                &self.subject
            }
            fn place(&self) -> &Place {
                &self.place
            }
            fn from(&self) -> &Provenance {
                &self.from
            }
            fn in_force(&self, setting: Setting) -> Option<Evidence> {
                match setting {
                    $(Setting::$setting => one!(self, $field $(. $inner)?),)*
                    $(Setting::$none)|* => None,
                }
            }
        }
    };
}
live!(
    Disk;
    Driver: driver, Cache: cache, Aio: aio, Iothread: iothread, Discard: details.discard, Queues: details.queues;
    no Model, Vhost, Vcpus, Accel, HugePages
);
live!(
    Nic;
    Model: model, Vhost: vhost, Queues: queues, Vcpus: vcpus;
    no Driver, Cache, Aio, Iothread, Discard, Accel, HugePages
);
live!(
    Processors;
    Vcpus: vcpus, Accel: accel, Model: model, HugePages: huge_pages;
    no Driver, Cache, Aio, Iothread, Discard, Queues, Vhost
);

/// A number of bytes: `1500 bytes`, `64 KiB`, `1.5 GiB`. Exact where it is a whole number of its unit.
pub fn bytes_shown(bytes: u64) -> String {
    let unit = ["TiB", "GiB", "MiB", "KiB"].into_iter().zip([40, 30, 20, 10]).find(|(_, bits)| bytes >> bits > 0);
    match unit {
        Some((name, bits)) if bytes >= 10 << 10 && bytes.is_multiple_of(1 << bits) => {
            format!("{} {name}", bytes >> bits)
        }
        Some((name, bits)) if bytes >= 10 << 10 => format!("{:.1} {name}", bytes as f64 / (1u64 << bits) as f64),
        _ => format!("{bytes} bytes"),
    }
}

/// A value in words; `None` for an unknown one.
fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(on) => Some((if *on { "yes" } else { "no" }).to_owned()),
        Value::Array(list) if list.is_empty() => Some("none".to_owned()),
        Value::Array(list) => Some(list.iter().filter_map(shown).collect::<Vec<String>>().join(", ")),
        Value::Object(map) => {
            let parts = map.iter().filter_map(|(name, one)| Some(format!("{name}: {}", shown(one)?)));
            Some(parts.collect::<Vec<String>>().join(", "))
        }
        other => Some(other.to_string()),
    }
}

impl Rule {
    /// A finding about a guest's device without a measurement, with the settings it rests on.
    pub fn advice(&self, device: &impl Live, looked_at: &[Option<Evidence>], cause: &str, change: Change) -> Finding {
        // Lost data need no measurement.
        let cause = match self.severity {
            Severity::Severe => cause.to_owned(),
            _ => format!("{cause} Not measured here."),
        };
        let change = match device.place().descriptor() {
            Some(path) => change.without(path),
            None => change,
        };
        let mut finding = self.finding(self.severity, device.subject().clone(), cause, change);
        finding.evidence = looked_at.iter().flatten().cloned().collect();
        finding
    }
}

/// The processors of a device's guest.
pub fn processors_of<'a>(device: &impl Live, all: &'a [Processors]) -> Option<&'a Processors> {
    all.iter().find(|p| p.subject.guest == *device.guest())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::Details;
    use crate::testing::live_disk;

    #[test]
    fn evidence_says_value_and_place() {
        let mut disk = live_disk(Details { host_cached_bytes: Some(256 << 20).into(), ..Details::default() });
        disk.cache = Fact::read(Some("none".into()), "/proc/8/cmdline, -blockdev");
        let [cache, iothread, cached, format] =
            seen![&disk; cache, iothread, details.host_cached_bytes, details.format]
                .map(|e| e.map(|e| (e.value, e.from)));
        assert_eq!(cache.unwrap(), ("none".into(), "/proc/8/cmdline, -blockdev".into()));
        assert_eq!(iothread.unwrap(), ("yes".into(), "virsh dumpxml db1".into()));
        assert_eq!(cached.unwrap().0, "256 MiB");
        let names = seen![&disk; details.host_cached_bytes, driver].map(|e| e.unwrap().setting);
        assert_eq!(names, ["host cached", "driver"]);
        assert_eq!([1500, 65_536, 3 << 29, 9000].map(bytes_shown), ["1500 bytes", "64 KiB", "1.5 GiB", "9000 bytes"]);
        assert_eq!((format, disk.in_force(Setting::Vcpus)), (None, None));
        assert_eq!((disk.guest().name(), disk.device()), ("db1", "disk vda".to_owned()));
    }
}
