//! Maps whose key is the index of an interface (`BY_INDEX` of `bpf/classify.bpf.c`). Each is two maps: a hash with all
//! entries, and an array by the lower bits of the index, with the first one of each place. So the programs seldom look
//! into the hash, which takes a good part of a packet's time.
//!
//! An entry of the hash is replaced at once, one of the array byte by byte. So while one of the array changes, its
//! `index` is 0, and the programs take that of the hash. Nothing holds back a program that has just seen the index: if
//! it reads the rest only after two more system calls, one packet is treated by parts of both.

use libbpf_rs::{MapCore, MapFlags, Object};
use vmio_model::policy::Direction;

use super::map;

/// Bytes of `index`, the last field of each value.
pub(super) const INDEX: usize = 4;

/// The index of no interface.
const NONE: u32 = 0;

/// Such a map.
pub(super) struct ByIndex {
    /// The hash.
    all: &'static str,
    /// The array.
    near: &'static str,
}

/// Treatment of what guests send, by their interfaces.
pub(super) const TENANTS: ByIndex = ByIndex { all: "tenants", near: "near_tenants" };
/// Classes of what leaves by an uplink.
pub(super) const UPLINKS: ByIndex = ByIndex { all: "uplinks", near: "near_uplinks" };
/// Classes of what arrives at an uplink.
pub(super) const RECEIVERS: ByIndex = ByIndex { all: "receivers", near: "near_receivers" };

/// The settings of the program at an uplink.
pub(super) fn at_uplink(direction: Direction) -> ByIndex {
    match direction {
        Direction::GuestTx => UPLINKS,
        Direction::GuestRx => RECEIVERS,
    }
}

/// An entry as it is in one of the two maps.
pub(super) struct Entry {
    pub(super) map: &'static str,
    pub(super) key: [u8; 4],
    pub(super) value: Vec<u8>,
}

impl ByIndex {
    /// Sets the entry of an interface; `value` is without its `index`. One whose place another has stays in the hash
    /// alone, also when the other goes, until it is set again.
    pub(super) fn put(&self, object: &Object, index: u32, value: &[u8]) -> libbpf_rs::Result<()> {
        let (near, value) = (map(object, self.near), with_index(value, index));
        let there = self.place(object, index)?;
        if there.index() == index {
            near.update(&there.key, &hidden(&there.value), MapFlags::ANY)?;
        }
        map(object, self.all).update(&index.to_ne_bytes(), &value, MapFlags::ANY)?;
        if [index, NONE].contains(&there.index()) {
            near.update(&there.key, &hidden(&value), MapFlags::ANY)?;
            near.update(&there.key, &value, MapFlags::ANY)?;
        }
        Ok(())
    }

    /// Removes the entry of an interface.
    pub(super) fn remove(&self, object: &Object, index: u32) -> libbpf_rs::Result<()> {
        let there = self.place(object, index)?;
        if there.index() == index {
            map(object, self.near).update(&there.key, &hidden(&there.value), MapFlags::ANY)?;
        }
        map(object, self.all).delete(&index.to_ne_bytes())
    }

    /// The entry of an interface in each map that has it.
    pub(super) fn find(&self, object: &Object, index: u32) -> libbpf_rs::Result<Vec<Entry>> {
        let key = index.to_ne_bytes();
        let value = map(object, self.all).lookup(&key, MapFlags::ANY)?;
        let all = value.map(|value| Entry { map: self.all, key, value });
        let near = Some(self.place(object, index)?).filter(|there| there.index() == index);
        Ok(all.into_iter().chain(near).collect())
    }

    /// What is in the array where an interface's entry may be.
    fn place(&self, object: &Object, index: u32) -> libbpf_rs::Result<Entry> {
        let near = map(object, self.near);
        let key = (index % near.max_entries()).to_ne_bytes();
        let value = near.lookup(&key, MapFlags::ANY)?.unwrap_or_default();
        Ok(Entry { map: self.near, key, value })
    }
}

impl Entry {
    /// Whose it is.
    fn index(&self) -> u32 {
        self.value.last_chunk::<INDEX>().copied().map_or(NONE, u32::from_ne_bytes)
    }
}

fn with_index(value: &[u8], index: u32) -> Vec<u8> {
    [value, &index.to_ne_bytes()].concat()
}

/// A value that is nobody's, the same in all else.
fn hidden(value: &[u8]) -> Vec<u8> {
    with_index(&value[..value.len().saturating_sub(INDEX)], NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_value_is_the_same_but_for_its_index() {
        let entry = |value| Entry { map: TENANTS.near, key: [0; 4], value };
        let value = with_index(&[1, 2, 3, 4, 5, 6, 7, 8], 0x0102_0304);
        assert_eq!((value.len(), &value[..8]), (8 + INDEX, &[1, 2, 3, 4, 5, 6, 7, 8][..]));
        assert_eq!(entry(hidden(&value)).value[..8], value[..8]);
        assert_eq!((entry(hidden(&value)).index(), entry(value).index()), (NONE, 0x0102_0304));
        assert_eq!(entry(Vec::new()).index(), NONE);
    }
}
