//! Findings in guests that run now: each names the settings that it rests on and the place where
//! each was read, so that a reader can check it before changing anything.

use serde::Serialize;
use serde_json::Value;

use super::{Change, Evidence, Finding, Rule, Severity};
use crate::facts::{Disk, GuestId, Nic, Place, Processors, Provenance, Sources, Subject};

/// A device of a guest that runs now.
pub trait Live: Serialize {
    /// What a finding is about: `guest web1, disk vda`.
    fn subject(&self) -> &Subject;
    /// What the configuration calls it.
    fn place(&self) -> &Place;
    /// Where its settings were read.
    fn read(&self) -> &Sources;
    /// Where it was read in the first place.
    fn from(&self) -> &Provenance;

    /// The guest that it belongs to.
    fn guest(&self) -> &GuestId {
        &self.subject().guest
    }

    /// What it is called within its guest: `disk vda`; of a guest's processors `guest web1`.
    fn device(&self) -> String {
        self.subject().within()
    }

    /// A setting by its name, with the place where it was read; `None` where it is not known.
    fn evidence(&self, setting: &str) -> Option<Evidence> {
        let all = serde_json::to_value(self).ok()?;
        let value = all.get(setting).or_else(|| all.get("details")?.get(setting))?;
        let from = self.read().get(setting).cloned().unwrap_or_else(|| self.from().place());
        let (setting, value) = match (setting.strip_suffix("_bytes"), value.as_u64()) {
            (Some(size), Some(bytes)) => (size, bytes_shown(bytes)),
            _ => (setting, shown(value)?),
        };
        Some(Evidence { setting: setting.replace('_', " "), value, from })
    }
}

macro_rules! live {
    ($($device:ty),*) => {$(
        impl Live for $device {
            fn subject(&self) -> &Subject {
                &self.subject
            }
            fn place(&self) -> &Place {
                &self.place
            }
            fn read(&self) -> &Sources {
                &self.read
            }
            fn from(&self) -> &Provenance {
                &self.from
            }
        }
    )*};
}
live!(Disk, Nic, Processors);

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

/// A value in words; `None` for one that is unknown.
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
    /// A finding about a device of a guest that nobody measured, with the settings that it rests on.
    pub fn advice(&self, device: &impl Live, looked_at: &[&str], cause: &str, change: Change) -> Finding {
        // Lost data need no measurement.
        let cause = match self.severity {
            Severity::Severe => cause.to_owned(),
            _ => format!("{cause} Not measured here."),
        };
        let mut finding = self.finding(self.severity, device.subject().clone(), cause, change);
        finding.evidence = looked_at.iter().filter_map(|setting| device.evidence(setting)).collect();
        finding
    }
}

/// The processors of the guest that a device belongs to.
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
        let mut disk = live_disk(Details { host_cached_bytes: Some(256 << 20), ..Details::default() });
        disk.read.insert("cache".into(), "/proc/8/cmdline, -blockdev".into());
        let of = |setting: &str| disk.evidence(setting).map(|e| (e.value, e.from));
        assert_eq!(of("cache").unwrap(), ("none".into(), "/proc/8/cmdline, -blockdev".into()));
        assert_eq!(of("iothread").unwrap(), ("yes".into(), "virsh dumpxml db1".into()));
        assert_eq!(of("host_cached_bytes").unwrap().0, "256 MiB");
        assert_eq!([1500, 65_536, 3 << 29, 9000].map(bytes_shown), ["1500 bytes", "64 KiB", "1.5 GiB", "9000 bytes"]);
        assert_eq!((of("format"), of("no-such")), (None, None));
        assert_eq!((disk.guest().name(), disk.device()), ("db1", "disk vda".to_owned()));
    }
}
