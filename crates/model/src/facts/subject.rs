//! What guests and their devices are known by. A name may hold anything, also what looks like another name
//! or like a word of vmio's own (`a, b`, `z, disk vda`): so guest and device are kept apart, and put together
//! only to be shown. What was shown is never taken apart again.

use std::fmt;

use serde::{Serialize, Serializer};

/// A guest among all that were looked at together: the name that tells it from every other one
/// ([`super::tell_apart`]).
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

/// What kind of device it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// A disk.
    Disk,
    /// A network device.
    Net,
}

/// A device of a guest. Two of them may bear one name (interfaces in two network namespaces); they are two all the
/// same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// What kind of device it is.
    pub kind: DeviceKind,
    /// What it is called: `vda`, `tap0`.
    pub name: String,
    /// How many of the guest's devices before it are of this kind and name.
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

/// A guest, or a device of one. Shown (and in JSON) as `guest web1, disk vda`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Subject {
    /// The guest.
    pub guest: GuestId,
    /// Its device; `None`: the guest as a whole, its processors and memory.
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

    /// What the device is called, without its kind; empty for a guest as a whole.
    pub fn device_name(&self) -> &str {
        self.device.as_ref().map_or("", |device| &device.name)
    }

    /// As it is shown where the guest is told already: `disk vda`; of a guest as a whole `guest web1`.
    pub fn within(&self) -> String {
        self.device.as_ref().map_or_else(|| self.to_string(), DeviceId::to_string)
    }

    /// Reads what was shown of the guest of this name, for example in an earlier scan's JSON: nothing but the name
    /// says where it ends. `None` where it is not of that guest.
    pub fn told(guest: &str, text: &str) -> Option<Self> {
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
                assert_eq!(Subject::told(name, &subject.to_string()), Some(subject));
            }
        }
        assert_eq!(Subject::told("a", "guest ab, disk vda"), None);
        assert_eq!(Subject::told("a", "device/native/seq-read"), None);
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
