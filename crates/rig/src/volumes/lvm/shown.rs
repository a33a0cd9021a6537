//! What LVM keeps with a logical volume (lvs(8)). Its tags say which it is: each command changes them in one step.

use serde_json::{Map, Value};

use crate::disks::places::tools::{field, number};

/// Columns of a logical volume.
pub(super) const COLUMNS: &str = "lv_name,lv_tags,lv_size,pool_lv,origin";
/// Tag of a whole volume.
pub(super) const VOLUME: &str = "vmio.volume";
/// Tag of one that is being made, and may have bytes of others'.
pub(super) const UNFINISHED: &str = "vmio.unfinished";
/// Tag of one that grows, before its earlier size: behind that it may have bytes of others'.
pub(super) const GROWS_FROM: &str = "vmio.grows-from=";
/// Tag of whose it is, before the machine and the directory of records.
pub(super) const OWNER: &str = "vmio.owner=";

/// A logical volume as lvs(8) shows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) lv: String,
    pub(super) tags: Vec<String>,
    pub(super) bytes: u64,
    /// Its thin pool; empty where it has none.
    pub(super) pool: String,
    /// What it is a snapshot of; empty where it is none.
    pub(super) origin: String,
}

impl Shown {
    pub(super) fn of(row: &Map<String, Value>) -> Self {
        Shown {
            lv: field(row, "lv_name").to_owned(),
            tags: field(row, "lv_tags").split(',').map(str::to_owned).collect(),
            bytes: number(row, "lv_size").unwrap_or(0.0) as u64,
            pool: field(row, "pool_lv").to_owned(),
            origin: field(row, "origin").to_owned(),
        }
    }

    pub(super) fn has(&self, tag: &str) -> bool {
        self.tags.iter().any(|found| found == tag)
    }

    /// Whether LVM removes it with this logical volume: it has the old bytes of what was written there since. A thin
    /// snapshot needs its origin no longer.
    pub(super) fn depends_on(&self, lv: &str) -> bool {
        self.pool.is_empty() && self.origin == lv
    }

    pub(super) fn owner(&self) -> Option<&String> {
        self.tags.iter().find(|tag| tag.starts_with(OWNER))
    }

    pub(super) fn grows_from(&self) -> Option<u64> {
        self.tags.iter().find_map(|tag| tag.strip_prefix(GROWS_FROM)?.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::host;

    use super::*;
    use crate::disks::places::tools::lvm_report;

    const LVS: &str = include_str!("../../../tests/fixtures/volumes/lvs.json");

    #[test]
    fn tags_tell_which_logical_volumes_are_volumes() {
        let rows = lvm_report(&host(&[("lvs", LVS)]), "lvmthin:lab/pool", "lvs", COLUMNS, &["lab"]).unwrap();
        let all: Vec<Shown> = rows.iter().map(Shown::of).collect();
        let told = |shown: &Shown| (shown.has(VOLUME), shown.owner().cloned(), shown.grows_from());
        let own = Some("vmio.owner=4c0b.00ff00ff00ff00ff".to_owned());
        let named = |lv: &str| all.iter().find(|shown| shown.lv == lv).unwrap();
        assert_eq!(told(named("root")), (false, None, None));
        assert_eq!(told(named("vmio-data")), (true, own.clone(), None));
        assert_eq!((named("vmio-data").bytes, &*named("vmio-data").pool), (4 << 20, "pool"));
        assert_eq!(told(named("vmio-thick")), (true, own.clone(), Some(4 << 20)));
        assert_eq!((told(named("vmio-half")), named("vmio-half").has(UNFINISHED)), ((false, own, None), true));
        let of_thick: Vec<&str> = all.iter().filter(|s| s.depends_on("vmio-thick")).map(|s| &*s.lv).collect();
        assert_eq!(of_thick, ["backup"]);
        assert!(!named("vmio-monday").depends_on("vmio-data"));
    }
}
