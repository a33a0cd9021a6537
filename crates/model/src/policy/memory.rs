//! What a class says of its guests' memory: how much the guard's daemon leaves them by their balloons. A class is a
//! contract for each interface, a balloon is a guest's. So the classes of all interfaces of a guest, in both
//! directions, have to say the same, or nothing.

use super::assign::{Interface, assign};
use super::units::show_bytes;
use super::{Direction, Policy};

/// No guest is brought below it: at about 100 MiB programs of a small Linux were killed.
pub const LEAST_BYTES: u64 = 128 << 20;

/// Memory of each guest of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// What a guest always has, whatever others want.
    pub min_bytes: u64,
    /// The most that it is given; `None` for what it was started with.
    pub max_bytes: Option<u64>,
    /// Whether its balloon is moved; otherwise it is only told what would be moved.
    pub moves: bool,
}

/// The memory of a guest by its interfaces, in any order; `None` where no class names any.
///
/// # Errors
/// Where two classes of it differ: both, in a sentence.
pub fn owed(policy: &Policy, interfaces: &[Interface]) -> Result<Option<Memory>, String> {
    let mut entries: Vec<_> = interfaces.iter().filter_map(|i| Some(assign(policy, i)?.entry)).collect();
    // In the order of the files, so that messages do not depend on the order in which taps come up.
    entries.sort_by_key(|entry| policy.entries.iter().position(|e| e == *entry));
    let classes =
        entries.iter().flat_map(|entry| Direction::ALL.into_iter().filter_map(move |way| entry.class_in(way)));
    let mut said = classes.filter_map(|class| Some((class, policy.class(class).memory?)));
    let Some((class, memory)) = said.next() else { return Ok(None) };
    match said.find(|(_, other)| *other != memory) {
        Some((other, _)) => Err(format!(
            "its memory is that of class {class} and, differently, that of class {other}: it is left as it is"
        )),
        None => Ok(Some(memory)),
    }
}

/// These keys of a class, as [`Policy::read`] reads them.
pub(super) fn text(memory: &Memory) -> String {
    let max = memory.max_bytes.map_or_else(String::new, |max| format!("memory_max = \"{}\"\n", show_bytes(max)));
    let moves = if memory.moves { "memory_move = true\n" } else { "" };
    format!("memory_min = \"{}\"\n{max}{moves}", show_bytes(memory.min_bytes))
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
memory_min = \"512MiB\"
memory_max = \"2GiB\"
memory_move = true
[class.same]
memory_min = \"0.5GiB\"
memory_max = \"2048MiB\"
memory_move = true
[class.watched]
memory_min = \"1GiB\"
[class.plain]
memory_max = \"4GiB\"
[[interface]]
match = { name = \"a*\" }
class = \"gold\"
rx_class = \"same\"
[[interface]]
match = { name = \"b*\" }
class = \"watched\"
[[interface]]
match = { name = \"c*\" }
class = \"plain\"
";

    #[test]
    fn classes_of_all_interfaces_say_the_same_or_nothing() {
        let policy = Policy::read(&[("guard.toml", TEXT)], &Links::default()).unwrap().policy;
        let of = |names: &[&str]| {
            let named = |name: &&str| Interface { index: 1, name: (*name).into(), ..Interface::default() };
            owed(&policy, &names.iter().map(named).collect::<Vec<_>>())
        };
        let gold = Memory { min_bytes: 512 << 20, max_bytes: Some(2 << 30), moves: true };
        assert_eq!(of(&["a0", "c0", "a1", "z9"]), Ok(Some(gold)));
        assert_eq!(of(&["b0"]), Ok(Some(Memory { min_bytes: 1 << 30, max_bytes: None, moves: false })));
        assert_eq!((of(&["c0"]), of(&[])), (Ok(None), Ok(None)));
        let torn = of(&["b0", "a0"]).unwrap_err();
        assert_eq!(torn, of(&["a0", "b0"]).unwrap_err());
        assert!(torn.contains("class gold") && torn.contains("class watched"), "{torn}");
        // A balloon's maximum is no limit of the control group, which has the hypervisor's own memory, too.
        let limits = ["gold", "plain"].map(|class| policy.class(class).group.memory_max);
        assert_eq!(limits, [None, Some(4 << 30)]);
    }
}
