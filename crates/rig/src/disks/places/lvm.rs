//! A volume group of LVM: thick logical volumes.

use serde_json::{Map, Value};
use vmio_look::managers::proxmox::storages;
use vmio_look::require::Requirement;
use vmio_node::{Node, Reader};

use super::tools::{self, field, lvm_report, number};
use super::{Error, Kind, Listed, PlaceBackend, PlaceKind, Pool, Result, instead};
use crate::disks::space::gib;

const NEEDS: &[Requirement] = &[tools::ROOT, tools::LVM];

/// Entry `lvm`.
pub struct Lvm;

impl PlaceKind for Lvm {
    fn prefix(&self) -> &'static str {
        "lvm"
    }
    fn form(&self) -> &'static str {
        "lvm:VG"
    }
    fn about(&self) -> &'static str {
        "a volume group of LVM: thick logical volumes"
    }
    fn requirements(&self) -> &'static [Requirement] {
        NEEDS
    }
    fn resolve(&self, node: &dyn Node, name: &str) -> Result<PlaceBackend> {
        let place = format!("lvm:{name}");
        own(node.reader(), &place, name)?;
        group(node, &place, name)?;
        Ok(PlaceBackend::Volumes(Pool::Lvm { vg: name.into() }))
    }
    fn list(&self, node: &dyn Node) -> Vec<Listed> {
        if !tools::has(node, NEEDS) {
            return vec![];
        }
        let rows = lvm_report(node, "lvm", "vgs", COLUMNS, &[]).unwrap_or_default();
        let listed = |row: &Map<String, Value>| {
            let free = number(row, "vg_free").unwrap_or(0.0);
            let name = format!("lvm:{}", field(row, "vg_name"));
            let ready = usable(&name, row).and_then(|()| own(node.reader(), &name, field(row, "vg_name")));
            Listed { name, state: ready.map(|()| format!("{} free", gib(free as u64))) }
        };
        rows.iter().map(listed).collect()
    }
}

/// Columns of a volume group (vgs(8)).
pub const COLUMNS: &str = "vg_name,vg_attr,vg_size,vg_free";

/// The row of a volume group that is there and can be used.
pub fn group(node: &dyn Node, place: &str, vg: &str) -> Result<Map<String, Value>> {
    tools::needs(node, place, NEEDS)?;
    let rows = lvm_report(node, place, "vgs", COLUMNS, &[])?;
    let Some(row) = rows.iter().find(|r| field(r, "vg_name") == vg) else {
        let there: Vec<String> = rows.iter().map(|r| field(r, "vg_name").to_owned()).collect();
        return Err(
            Error::new(Kind::NotThere, place, format!("no such volume group: {vg}")).help(instead("lvm", vg, &there))
        );
    };
    usable(place, row)?;
    Ok(row.clone())
}

/// Refuses a group on storage that several nodes of a Proxmox cluster reach: only Proxmox's own lock
/// keeps them apart there, and two LVM tools at once overwrite each other's metadata.
pub fn own(reader: &dyn Reader, place: &str, vg: &str) -> Result<()> {
    if !storages::shares_group(reader, vg) {
        return Ok(());
    }
    Err(Error::new(Kind::Unready, place, format!("other nodes of the cluster change the group {vg} too"))
        .help("use a storage that is not shared"))
}

/// `vg_attr` (vgs(8)): writable, resizeable, exported, partial, …
fn usable(place: &str, row: &Map<String, Value>) -> Result<()> {
    let attributes: Vec<char> = field(row, "vg_attr").chars().collect();
    let wrong = [
        (2, 'x', "the volume group is exported"),
        (3, 'p', "a disk of the volume group is missing"),
        (0, 'r', "the volume group is read-only"),
    ];
    let found = wrong.into_iter().find(|(at, letter, _)| attributes.get(*at) == Some(letter));
    let Some((.., reason)) = found else { return Ok(()) };
    let vg = field(row, "vg_name");
    Err(Error::new(Kind::Unready, place, reason)
        .help(format!("`vgs {vg}` and `pvs` show its state; vgimport, or bring the disk back")))
}
