//! Identities of guests and devices. A name may hold any text, also one like another name or one of vmio's words (`a,
//! b`, `z, disk vda`): so guest and device are stored apart, and joined only for display. Displayed text is never
//! parsed.

use std::fmt;

use serde::{Serialize, Serializer};

/// A guest by its unique name among all guests of a scan ([`super::tell_apart`]).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GuestId(String);

impl GuestId {
    /// The guest of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// Kind of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// A disk.
    Disk,
    /// A network device.
    Net,
}

/// A device of a guest. Two may have the same name (interfaces in two network namespaces) and are still two.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// Its kind.
    pub kind: DeviceKind,
    /// Its name: `vda`, `tap0`.
    pub name: String,
    /// Number of the guest's devices before it with this kind and name.
    pub twin: u32,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            DeviceKind::Disk => "disk",
            DeviceKind::Net => "net",
        };
        write!(f, "{kind} {}", self.name)
    }
}

/// A guest, or a device of one. Displayed (and in JSON) as `guest web1, disk vda`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Subject {
    /// The guest.
    pub guest: GuestId,
    /// Its device; `None` for the guest as a whole, its processors and memory.
    pub device: Option<DeviceId>,
}

impl Subject {
    /// The guest of this name as a whole.
    pub fn guest(name: impl Into<String>) -> Self {
        Self { guest: GuestId::new(name), device: None }
    }

    /// A disk of the guest of this name.
    pub fn disk(guest: impl Into<String>, name: impl Into<String>) -> Self {
        Self::guest(guest).with(DeviceKind::Disk, name)
    }

    /// A network device of the guest of this name.
    pub fn net(guest: impl Into<String>, name: impl Into<String>) -> Self {
        Self::guest(guest).with(DeviceKind::Net, name)
    }

    fn with(self, kind: DeviceKind, name: impl Into<String>) -> Self {
        Self { device: Some(DeviceId { kind, name: name.into(), twin: 0 }), ..self }
    }

    /// The device's name without its kind; empty for a guest as a whole.
    pub fn device_name(&self) -> &str {
        self.device.as_ref().map_or("", |device| &device.name)
    }

    /// Text where the guest is already named: `disk vda`; for a guest as a whole `guest web1`.
    pub fn within(&self) -> String {
        self.device.as_ref().map_or_else(|| self.to_string(), DeviceId::to_string)
    }

    /// Reads a displayed subject of the guest of this name, for example from an earlier scan's JSON. The name is needed
    /// to find where it ends. `None` for a subject of another guest.
    pub fn parse(guest: &str, text: &str) -> Option<Self> {
        let rest = text.strip_prefix("guest ")?.strip_prefix(guest)?;
        let whole = Self::guest(guest);
        if rest.is_empty() {
            return Some(whole);
        }
        let device = rest.strip_prefix(", ")?;
        let kinds = [("disk ", DeviceKind::Disk), ("net ", DeviceKind::Net)];
        kinds.into_iter().find_map(|(word, kind)| Some(whole.clone().with(kind, device.strip_prefix(word)?)))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guest {}", self.guest.name())?;
        match &self.device {
            Some(device) => write!(f, ", {device}"),
            None => Ok(()),
        }
    }
}

crate::schema::as_text!(Subject);

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_back_by_the_name_of_its_guest_alone() {
        for name in ["web1", "a, b", "a, disk b", "", "guest c"] {
            for subject in [
                Subject::guest(name),
                Subject::disk(name, "vda"),
                Subject::disk(name, "x, y"),
                Subject::disk(name, ""),
                Subject::net(name, "n, disk vda"),
            ] {
                assert_eq!(Subject::parse(name, &subject.to_string()), Some(subject));
            }
        }
        assert_eq!(Subject::parse("a", "guest ab, disk vda"), None);
        assert_eq!(Subject::parse("a", "device/native/seq-read"), None);
    }

    #[test]
    fn devices_of_one_name_are_two() {
        let first = Subject::net("a", "tap0");
        let device = first.device.clone().map(|device| DeviceId { twin: 1, ..device });
        let second = Subject { device, ..first.clone() };
        assert!(first != second && first.to_string() == second.to_string());
        assert_eq!((first.within(), Subject::guest("a").within()), ("net tap0".to_owned(), "guest a".to_owned()));
    }
}
