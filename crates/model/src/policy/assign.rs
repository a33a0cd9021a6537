//! The entry of the policy for a present interface. It has several names (interface name, addresses, its guest, its
//! namespace), so entries of different kinds may match it: then the first in the order of the files applies, and the
//! others are reported.

use super::matcher::Kind;
use super::{Entry, Policy};

/// A present interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Interface {
    /// Its index in the kernel, which changes when it is created again.
    pub index: u32,
    /// Its name on the host.
    pub name: String,
    /// Addresses of the guest, as `aa:bb:cc:dd:ee:ff`.
    pub macs: Vec<String>,
    /// Names, UUIDs and numbers of its guest.
    pub vms: Vec<String>,
    /// The network namespace that it leads to.
    pub netns: Option<String>,
}

impl Interface {
    /// All its names.
    fn known_by(&self) -> impl Iterator<Item = (Kind, &str)> {
        std::iter::once((Kind::Name, self.name.as_str()))
            .chain(self.macs.iter().map(|mac| (Kind::Mac, mac.as_str())))
            .chain(self.vms.iter().map(|vm| (Kind::Vm, vm.as_str())))
            .chain(self.netns.iter().map(|netns| (Kind::Netns, netns.as_str())))
    }
}

/// The entry of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assigned<'a> {
    /// The entry that applies.
    pub entry: &'a Entry,
    /// Another match that does not apply.
    pub passed_over: Option<&'a Entry>,
}

/// The entry of an interface; `None` without a match: its traffic is `default`'s.
pub fn assign<'a>(policy: &'a Policy, interface: &Interface) -> Option<Assigned<'a>> {
    let mut found: Vec<usize> = interface
        .known_by()
        .filter_map(|(kind, text)| policy.entries.iter().position(|e| e.matcher.matches(kind, text)))
        .collect();
    found.sort_unstable();
    found.dedup();
    let entry = |place: usize| found.get(place).and_then(|i| policy.entries.get(*i));
    Some(Assigned { entry: entry(0)?, passed_over: entry(1) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::policy::Links;

    const TEXT: &str = "\
[uplink.eth0]
capacity = \"1Gbit\"
[class.gold]
[class.silver]
[[interface]]
match = { vm = \"web*\" }
class = \"gold\"
[[interface]]
match = { name = \"vnet0\" }
class = \"silver\"
[[interface]]
match = { mac = \"52:54:00:12:34:56\" }
class = \"silver\"
[[interface]]
match = { netns = \"blue\" }
class = \"gold\"
";

    fn interface(name: &str) -> Interface {
        Interface { index: 7, name: name.into(), ..Interface::default() }
    }

    #[test]
    fn the_first_entry_holds_and_others_are_told() {
        let policy = Policy::read(&[("guard.toml", TEXT)], &Links::default()).unwrap().policy;
        let of = |i: &Interface| {
            assign(&policy, i).map(|a| (a.entry.matcher.label(), a.passed_over.map(|e| e.matcher.label())))
        };
        assert_eq!(of(&interface("tap9")), None);
        assert_eq!(of(&interface("vnet0")), Some(("vnet0".into(), None)));
        let web = Interface { vms: vec!["5".into(), "web1".into()], ..interface("vnet0") };
        assert_eq!(of(&web), Some(("vm:web*".into(), Some("vnet0".into()))));
        let mac = Interface { macs: vec!["52:54:00:12:34:56".to_uppercase()], ..interface("tap3") };
        assert_eq!(of(&mac), Some(("mac:52:54:00:12:34:56".into(), None)));
        let blue = Interface { netns: Some("blue".into()), ..interface("veth1") };
        assert_eq!(of(&blue), Some(("netns:blue".into(), None)));
    }
}
