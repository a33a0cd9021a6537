//! A ZFS pool or a dataset in it: ZFS volumes (zvols), made sparse as Proxmox can make them
//! (zfs-create(8), `-s`).

use std::path::Path;

use vmio_look::require::{Requirement, kernel};
use vmio_node::linux::mounts;
use vmio_node::{Node, Reader};

use super::tools::{self, ask};
use super::{Error, Kind, Listed, PlaceBackend, PlaceKind, Pool, Result, Unwell, instead};
use crate::disks::space::gib;

const NEEDS: &[Requirement] = &[
    tools::ROOT,
    tools::ZFS,
    Requirement {
        name: "ZFS module",
        why: "keeps the volumes",
        fix: "modprobe zfs (apt install zfs-dkms where the kernel has none)",
        check: |reader| kernel(reader, "ZFS", "/dev/zfs"),
    },
];

/// Entry `zfs`.
pub struct Zfs;

impl PlaceKind for Zfs {
    fn prefix(&self) -> &'static str {
        "zfs"
    }
    fn form(&self) -> &'static str {
        "zfs:POOL[/DATASET]"
    }
    fn about(&self) -> &'static str {
        "a ZFS pool or dataset: sparse ZFS volumes"
    }
    fn requirements(&self) -> &'static [Requirement] {
        NEEDS
    }
    fn resolve(&self, node: &dyn Node, name: &str) -> Result<PlaceBackend> {
        dataset(node, &format!("zfs:{name}"), name)?;
        Ok(PlaceBackend::Volumes(Pool::Zfs { dataset: name.into(), block: None }))
    }
    fn list(&self, node: &dyn Node) -> Vec<Listed> {
        if !tools::has(node, NEEDS) {
            return vec![];
        }
        let listed = |pool: Zpool| {
            let name = format!("zfs:{}", pool.name);
            let state = pool.usable(&name).map(|()| format!("{} free", gib(pool.free_bytes)));
            Listed { name, state }
        };
        zpools(node, "zfs").unwrap_or_default().into_iter().map(listed).collect()
    }
}

struct Zpool {
    name: String,
    health: String,
    free_bytes: u64,
}

impl Zpool {
    fn usable(&self, place: &str) -> Result<()> {
        match self.health.as_str() {
            // A degraded pool works, with less to spare.
            "ONLINE" | "DEGRADED" => Ok(()),
            other => Err(Error::new(Kind::Unready, place, format!("the pool {} is {other}", self.name))
                .help(format!("`zpool status {}` shows why", self.name))),
        }
    }
}

/// Pools that are imported (zpool-list(8); `-p` gives bytes).
fn zpools(node: &dyn Node, place: &str) -> Result<Vec<Zpool>> {
    let text = ask(node, place, "zpool", &["list", "-Hp", "-o", "name,health,free"])?;
    let row = |line: &str| {
        let mut fields = line.split('\t');
        Some(Zpool {
            name: fields.next()?.to_owned(),
            health: fields.next()?.to_owned(),
            free_bytes: fields.next()?.trim().parse().unwrap_or(0),
        })
    };
    Ok(text.lines().filter_map(row).collect())
}

/// Sees to it that a dataset is there and its pool well.
pub fn dataset(node: &dyn Node, place: &str, name: &str) -> Result<()> {
    tools::needs(node, place, NEEDS)?;
    let pools = zpools(node, place)?;
    let pool_name = pool_name(name);
    let Some(pool) = pools.iter().find(|p| p.name == pool_name) else {
        let there: Vec<String> = pools.iter().map(|p| p.name.clone()).collect();
        let help = format!("{}; `zpool import` lists pools that could be imported", instead("zfs", pool_name, &there));
        return Err(Error::new(Kind::NotThere, place, format!("no pool {pool_name} is imported")).help(help));
    };
    pool.usable(place)?;
    let text = ask(node, place, "zfs", &["list", "-H", "-r", "-t", "filesystem", "-o", "name", pool_name])?;
    let there: Vec<String> = text.lines().map(str::to_owned).collect();
    if there.iter().any(|d| d == name) {
        return Ok(());
    }
    Err(Error::new(Kind::NotThere, place, format!("no such dataset: {name}")).help(instead("zfs", name, &there)))
}

/// Whether a pool is there and takes writes. One whose disks are gone is suspended, and holds those who
/// write for as long as it is (zpoolprops(7), `failmode=wait`).
///
/// # Errors
/// Its state, and what to do.
pub fn well(node: &dyn Node, pool: &str) -> Result<(), Unwell> {
    let place = format!("zfs:{pool}");
    let text = ask(node, &place, "zpool", &["list", "-Ho", "health", pool]).map_err(Unwell::Unasked)?;
    Zpool { name: pool.into(), health: text.trim().to_owned(), free_bytes: 0 }.usable(&place).map_err(|unready| {
        let help = format!("{}, `zpool clear {pool}` resumes it once it is repaired", unready.help);
        Unwell::Unready(unready.help(help))
    })
}

/// The pool of the ZFS file system that holds a directory, which may have to be made.
pub fn pool_of(reader: &dyn Reader, dir: &Path) -> Option<String> {
    let mounts = mounts::own(reader).ok()?;
    let above = mounts.into_iter().filter(|m| dir.starts_with(&m.point));
    // Of mounts on the same point the last one is seen.
    let holding = above.max_by_key(|m| Path::new(&m.point).as_os_str().len()).filter(|m| m.filesystem == "zfs")?;
    Some(pool_name(&holding.source).to_owned())
}

/// The pool of a dataset.
pub fn pool_name(dataset: &str) -> &str {
    dataset.split('/').next().unwrap_or(dataset)
}

/// Bytes that a dataset may still take, quotas and reservations counted (zfsprops(7), `available`).
pub fn available(node: &dyn Node, place: &str, name: &str) -> Result<u64> {
    let text = ask(node, place, "zfs", &["get", "-Hp", "-o", "value", "available", name])?;
    text.trim()
        .parse()
        .map_err(|_| Error::new(Kind::Tool, place, format!("zfs says that {:?} is available", text.trim())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::fails;

    use super::super::resolve;
    use super::*;
    use vmio_node::fake::{Tree, host};

    const ZPOOL: &str = "tank\tONLINE\t8912896000\nold\tSUSPENDED\t0\n";
    const ZFS: &str = "tank\ntank/vm\ntank/vm/fast\n";

    #[test]
    fn a_pool_that_takes_no_writes_is_told() {
        let said = |health: &'static str| well(&host(&[("zpool", health)]), "tank");
        assert!(said("ONLINE\n").is_ok() && said("DEGRADED\n").is_ok());
        for health in ["SUSPENDED\n", "FAULTED\n", "UNAVAIL\n"] {
            let said = said(health).unwrap_err().to_string();
            assert!(said.contains(health.trim()) && said.contains("zpool status tank"), "{said}");
        }
        let gone = host(&[("zpool", "")]).command(|_| Some(fails(1, "cannot open 'tank': no such pool")));
        assert!(well(&gone, "tank").unwrap_err().to_string().contains("no such pool"));
    }

    #[test]
    fn files_on_zfs_are_known_by_their_mount() {
        let table = "22 1 253:0 / / rw - ext4 /dev/sda1 rw\n23 22 0:21 / /tank rw - zfs tank/data rw\n\
                     24 23 8:1 / /tank/other rw - xfs /dev/sdb rw\n";
        let tree = Tree::of(&[("/proc/self/mountinfo", table)]);
        assert_eq!(pool_of(&tree, Path::new("/tank/vm/new")).as_deref(), Some("tank"));
        for other in ["/tank/other/x", "/srv", "/tankard"] {
            assert_eq!(pool_of(&tree, Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn pools_and_datasets_are_found() {
        let node = host(&[("zpool", ZPOOL), ("zfs", ZFS)]).file("/dev/zfs", "");
        for name in ["tank", "tank/vm"] {
            let backend = resolve(&node, &format!("zfs:{name}")).unwrap().backend;
            assert_eq!(backend, PlaceBackend::Volumes(Pool::Zfs { dataset: name.into(), block: None }));
        }
        for (text, kind, word) in [
            ("zfs:tnak", Kind::NotThere, "`zfs:tank`?"),
            ("zfs:tank/vms", Kind::NotThere, "`zfs:tank/vm`?"),
            ("zfs:old", Kind::Unready, "zpool status old"),
        ] {
            let said = resolve(&node, text).unwrap_err();
            assert!(said.kind == kind && said.help.contains(word), "{said:?}");
        }
        assert_eq!(Zfs.list(&node)[0].state, Ok("8.3 GiB free".into()));
        let bare = host(&[("zpool", ZPOOL), ("zfs", ZFS)]);
        assert!(resolve(&bare, "zfs:tank").unwrap_err().help.contains("modprobe zfs"));
    }
}
