//! A thin pool of LVM (lvmthin(7)): its volumes take blocks of the pool when they are first
//! written. A pool that becomes full holds writers back (`no_space_timeout`, 60 s by default), then
//! fails them; whoever else has volumes in it suffers too, so a run looks at it all the time.

use serde_json::{Map, Value};
use vmio_look::require::Requirement;
use vmio_node::Node;

use super::tools::{self, field, lvm_report, number};
use super::{Error, Kind, Listed, PlaceBackend, PlaceKind, Pool, Result, Unwell, instead, lvm};
use crate::disks::space::gib;

/// Above this much of its metadata a pool is not used: LVM itself refuses new volumes soon after.
const METADATA_MOST: f64 = 80.0;
/// So full is full: percentages are shown with two digits.
const FULL: f64 = 99.9;
/// Share of a pool, in percent, that a run leaves to the others: their guests stop when it is full.
const RESERVE: f64 = 2.0;

const NEEDS: &[Requirement] = &[tools::ROOT, tools::LVM];

/// Entry `lvmthin`.
pub struct LvmThin;

impl PlaceKind for LvmThin {
    fn prefix(&self) -> &'static str {
        "lvmthin"
    }
    fn form(&self) -> &'static str {
        "lvmthin:VG/POOL"
    }
    fn about(&self) -> &'static str {
        "a thin pool of LVM: thin logical volumes"
    }
    fn requirements(&self) -> &'static [Requirement] {
        NEEDS
    }
    fn resolve(&self, node: &dyn Node, name: &str) -> Result<PlaceBackend> {
        let place = format!("lvmthin:{name}");
        let Some((vg, pool)) = name.split_once('/') else {
            tools::needs(node, &place, NEEDS)?;
            return Err(Error::new(Kind::Unknown, &*place, "it names a volume group but no pool".to_owned())
                .help(instead("lvmthin", name, &pools(node))));
        };
        ThinPool::find(node, vg, pool)?.usable()?;
        Ok(PlaceBackend::Volumes(Pool::LvmThin { vg: vg.into(), pool: pool.into() }))
    }
    fn list(&self, node: &dyn Node) -> Vec<Listed> {
        if !tools::has(node, NEEDS) {
            return vec![];
        }
        let rows = lvm_report(node, "lvmthin", "lvs", COLUMNS, &[]).unwrap_or_default();
        let listed = |pool: ThinPool| Listed {
            name: format!("lvmthin:{}/{}", pool.vg, pool.name),
            state: pool.usable().map(|()| format!("{} free", gib(pool.free_bytes()))),
        };
        rows.iter().filter_map(ThinPool::of).map(listed).collect()
    }
}

const COLUMNS: &str =
    "vg_name,lv_name,lv_attr,lv_size,lv_active,lv_health_status,data_percent,metadata_percent,lv_when_full";

fn pools(node: &dyn Node) -> Vec<String> {
    let rows = lvm_report(node, "lvmthin", "lvs", COLUMNS, &[]).unwrap_or_default();
    rows.iter().filter_map(ThinPool::of).map(|p| format!("{}/{}", p.vg, p.name)).collect()
}

/// A thin pool as lvs(8) shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct ThinPool {
    vg: String,
    name: String,
    bytes: f64,
    active: bool,
    /// `out_of_data`, `metadata_read_only`, `failed`; empty when well.
    health: String,
    /// Percent used; `None` while it is not active.
    data: Option<f64>,
    metadata: Option<f64>,
    /// `queue` or `error`.
    when_full: String,
}

impl ThinPool {
    /// `None` for a row that is no thin pool (first letter of `lv_attr`).
    fn of(row: &Map<String, Value>) -> Option<Self> {
        field(row, "lv_attr").starts_with('t').then(|| Self {
            vg: field(row, "vg_name").into(),
            name: field(row, "lv_name").into(),
            bytes: number(row, "lv_size").unwrap_or(0.0),
            active: field(row, "lv_active").starts_with("active"),
            health: field(row, "lv_health_status").into(),
            data: number(row, "data_percent"),
            metadata: number(row, "metadata_percent"),
            when_full: field(row, "lv_when_full").into(),
        })
    }

    /// The pool as it is now.
    pub fn find(node: &dyn Node, vg: &str, pool: &str) -> Result<Self> {
        let place = format!("lvmthin:{vg}/{pool}");
        lvm::group(node, &place, vg)?;
        let rows = lvm_report(node, &place, "lvs", COLUMNS, &[vg])?;
        if let Some(found) = rows.iter().filter_map(Self::of).find(|p| p.name == pool) {
            return Ok(found);
        }
        let there: Vec<String> = rows.iter().filter_map(Self::of).map(|p| format!("{vg}/{}", p.name)).collect();
        let is = if rows.iter().any(|r| field(r, "lv_name") == pool) { "is not a thin pool" } else { "is not there" };
        Err(Error::new(Kind::NotThere, place, format!("the thin pool {vg}/{pool} {is}")).help(instead(
            "lvmthin",
            &format!("{vg}/{pool}"),
            &there,
        )))
    }

    fn unready(&self, reason: String, help: String) -> Error {
        Error::new(Kind::Unready, format!("lvmthin:{}/{}", self.vg, self.name), reason).help(help)
    }

    /// Whether new volumes may be made in it, else why not and what to do.
    fn usable(&self) -> Result<()> {
        let name = format!("{}/{}", self.vg, self.name);
        if !self.active {
            let reason = format!("the thin pool {name} is not active");
            return Err(self.unready(reason, format!("lvchange --activate y {name}")));
        }
        self.well().and_then(|()| self.metadata_left())
    }

    /// Whether it takes so many more bytes, still has its reserve then, and enough of its metadata:
    /// else its use and what to do.
    pub fn room(&self, bytes: u64) -> Result<(), Unwell> {
        let checked = self.well().and_then(|()| self.data_left(bytes)).and_then(|()| self.metadata_left());
        checked.map_err(Unwell::Unready)
    }

    fn data_left(&self, bytes: u64) -> Result<()> {
        let left = self.free_bytes();
        if left as f64 >= bytes as f64 + self.bytes * RESERVE / 100.0 {
            return Ok(());
        }
        let needs = if bytes == 0 { String::new() } else { format!("{} are needed, and ", gib(bytes)) };
        let reason = format!(
            "the thin pool {}/{} is nearly full ({}): {} are left, {needs}{RESERVE} % of it are kept for the others",
            self.vg,
            self.name,
            self.used(),
            gib(left)
        );
        Err(self.unready(reason, self.extend()))
    }

    fn metadata_left(&self) -> Result<()> {
        match self.metadata {
            Some(used) if used > METADATA_MOST => {
                let reason = format!("{used} % of the metadata of {}/{} are used", self.vg, self.name);
                Err(self.unready(reason, self.extend_metadata()))
            }
            _ => Ok(()),
        }
    }

    fn well(&self) -> Result<()> {
        let full = |used: Option<f64>| used.is_some_and(|used| used >= FULL);
        let name = format!("{}/{}", self.vg, self.name);
        let repair = || format!("stop what uses it, then lvchange --activate n {name} and lvconvert --repair {name}");
        let (state, mend) = match self.health.as_str() {
            _ if full(self.data) || self.health == "out_of_data" => ("is full", self.extend()),
            _ if full(self.metadata) => ("has no metadata left", self.extend_metadata()),
            "" => return Ok(()),
            "metadata_read_only" => ("takes no writes: its metadata is read-only", repair()),
            _ => ("has failed", repair()),
        };
        Err(self.unready(format!("the thin pool {name} {state} ({})", self.used()), mend))
    }

    fn extend(&self) -> String {
        let name = format!("{}/{}", self.vg, self.name);
        format!("extend it: lvextend --size +10G {name}, or remove unneeded volumes from it")
    }

    fn extend_metadata(&self) -> String {
        format!("extend its metadata: lvextend --poolmetadatasize +256M {}/{}", self.vg, self.name)
    }

    fn used(&self) -> String {
        let full = if self.when_full.is_empty() { String::new() } else { format!(", when full: {}", self.when_full) };
        format!("{} of its data and {} of its metadata used{full}", percent(self.data), percent(self.metadata))
    }

    /// Bytes left for data.
    pub fn free_bytes(&self) -> u64 {
        (self.bytes * (1.0 - self.data.unwrap_or(100.0) / 100.0)).max(0.0) as u64
    }

    /// `thin pool vg0/data, 37.5 % of its data and …`.
    pub fn describe(&self) -> String {
        format!("thin pool {}/{}, {}", self.vg, self.name, self.used())
    }
}

fn percent(used: Option<f64>) -> String {
    used.map_or_else(|| "an unknown share".into(), |used| format!("{used} %"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Kind, PlaceBackend, Pool, resolve};
    use super::*;
    use crate::disks::places::ALL;
    use vmio_node::fake::host;

    const VGS: &str = include_str!("../../../tests/fixtures/places/vgs.json");
    const LVS: &str = include_str!("../../../tests/fixtures/places/lvs.json");

    #[test]
    fn groups_and_pools_are_found() {
        let node = host(&[("vgs", VGS), ("lvs", LVS)]);
        let found = |text: &str| resolve(&node, text).unwrap().backend;
        assert_eq!(found("lvm:vg0"), PlaceBackend::Volumes(Pool::Lvm { vg: "vg0".into() }));
        assert_eq!(
            found("lvmthin:vg0/data"),
            PlaceBackend::Volumes(Pool::LvmThin { vg: "vg0".into(), pool: "data".into() })
        );
        let pool = ThinPool::find(&node, "vg0", "data").unwrap();
        // 20 GiB, 37.5 % used.
        assert_eq!(pool.free_bytes(), 12_800 << 20);
        pool.room(0).unwrap();
    }

    #[test]
    fn what_is_not_there_is_answered_with_what_is() {
        let node = host(&[("vgs", VGS), ("lvs", LVS)]);
        let refused = |text: &str| resolve(&node, text).unwrap_err();
        for (text, kind, reason, help) in [
            ("lvm:vg1", Kind::NotThere, "no such volume group: vg1", "`lvm:vg0`? there are lvm:vg0, lvm:old"),
            ("lvm:old", Kind::Unready, "exported", "vgimport"),
            ("lvmthin:vg0/dat", Kind::NotThere, "vg0/dat is not there", "`lvmthin:vg0/data`?"),
            ("lvmthin:vg0/root", Kind::NotThere, "is not a thin pool", "lvmthin:vg0/data"),
            ("lvmthin:vg0", Kind::Unknown, "no pool", "lvmthin:vg0/data"),
            ("lvmthin:vg0/cold", Kind::Unready, "not active", "lvchange --activate y vg0/cold"),
            ("lvmthin:vg0/full", Kind::Unready, "vg0/full is full (100", "lvextend --size"),
            ("lvmthin:vg0/meta", Kind::Unready, "91.2 % of the metadata of vg0/meta", "--poolmetadatasize"),
        ] {
            let said = refused(text);
            assert_eq!(said.kind, kind, "{said}");
            assert!(said.reason.contains(reason) && said.help.contains(help), "{said:?}");
        }
    }

    #[test]
    fn a_full_pool_says_what_is_used_and_the_mend() {
        let node = host(&[("vgs", VGS), ("lvs", LVS)]);
        let said = ThinPool::find(&node, "vg0", "full").unwrap().room(0).unwrap_err().to_string();
        for word in ["vg0/full is full", "100 % of its data", "23.4 % of its metadata", "when full: queue", "lvextend"]
        {
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn the_last_of_a_pool_is_left_to_the_others() {
        let node = host(&[("vgs", VGS), ("lvs", LVS)]);
        let pool = ThinPool::find(&node, "vg0", "data").unwrap();
        // 12.5 GiB of 20 GiB are free, 0.4 GiB are kept.
        pool.room(12 << 30).unwrap();
        let said = pool.room((12 << 30) + (200 << 20)).unwrap_err().to_string();
        assert!(said.contains("12.2 GiB are needed, and 2 % of it are kept") && said.contains("lvextend"), "{said}");
        let used = |data, metadata| ThinPool { data: Some(data), metadata: Some(metadata), ..pool.clone() }.room(0);
        used(97.9, 79.9).unwrap();
        assert!(used(98.1, 10.0).unwrap_err().to_string().contains("vg0/data is nearly full"));
        let said = used(10.0, 80.1).unwrap_err().to_string();
        assert!(said.contains("80.1 % of the metadata") && said.contains("--poolmetadatasize"), "{said}");
    }

    #[test]
    fn missing_tools_and_rights_are_told_with_the_mend() {
        let user = host(&[("vgs", VGS), ("lvs", LVS)]).file("/proc/self/status", "Uid:\t1000\t1000\t1000\t1000\n");
        let said = resolve(&user, "lvm:vg0").unwrap_err();
        assert!(said.kind == Kind::Tool && said.reason.contains("user 1000") && said.help.contains("root"), "{said:?}");
        let said = resolve(&host(&[]), "lvmthin:vg0/data").unwrap_err();
        assert!(said.reason.contains("no program lvs") && said.help.contains("apt install lvm2"), "{said:?}");
    }

    #[test]
    fn doctor_lists_them_with_what_is_wrong() {
        let node = host(&[("vgs", VGS), ("lvs", LVS)]);
        let all: Vec<Listed> = ALL.iter().flat_map(|kind| kind.list(&node)).collect();
        let names: Vec<&str> = all.iter().map(|l| l.name.as_str()).collect();
        assert_eq!(
            names,
            ["lvm:vg0", "lvm:old", "lvmthin:vg0/data", "lvmthin:vg0/cold", "lvmthin:vg0/full", "lvmthin:vg0/meta"]
        );
        assert_eq!(all[2].state, Ok("12.5 GiB free".into()));
        assert!(all[1].state.is_err() && all[3].state.is_err() && all[4].state.is_err());
    }
}
