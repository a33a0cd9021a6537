//! Disks of a ZFS pool, which sysfs does not list below its volumes: `zpool list -vHP` (zpool-list(8)) gives the path
//! of each vdev. Read caches and spares are left out, since writes do not reach them.

use std::path::Path;
use std::time::Duration;

use vmio_model::facts::Raidz;
use vmio_node::{Question, Questions};

use super::{Backing, NotVisible};
use crate::require::find_program;

/// Longest time for the list of a pool's disks.
const LIMIT: Duration = Duration::from_secs(20);

/// The disks below a dataset or volume.
pub fn leaves(node: &dyn Questions, dataset: &str) -> Result<Backing, NotVisible> {
    let pool = dataset.split('/').next().unwrap_or(dataset);
    let asked = Question::Zpool { pool: pool.to_owned(), limit: LIMIT };
    find_program(node, asked.program()).ok_or(NotVisible::NoZpool)?;
    let output = node.answer(&asked).map_err(|e| NotVisible::Unreadable(e.to_string()))?;
    if !output.ok() {
        let command = asked.shown(node).unwrap_or_default();
        return Err(NotVisible::Zpool { command, said: output.err().trim().to_owned() });
    }
    let mut all = Backing::default();
    for path in vdevs(&output.out()) {
        all.add(Backing::of(node, Path::new(&path))?);
    }
    match all.not_visible {
        Some(reason) => Err(reason),
        None if all.leaves.is_empty() => Err(NotVisible::EmptyPool(pool.to_owned())),
        None => Ok(all),
    }
}

/// The dataset of a ZFS volume's device node, from its path or by udev's helper.
pub fn dataset_of(node: &dyn Questions, device: &Path) -> Option<String> {
    if let Ok(name) = device.strip_prefix("/dev/zvol") {
        return Some(name.display().to_string());
    }
    let asked = Question::ZvolId { device: device.to_owned() };
    let output = node.answer(&asked).ok().filter(vmio_node::Output::ok)?;
    Some(output.out().trim().to_owned()).filter(|name| !name.is_empty())
}

/// Paths of the vdevs that hold data.
fn vdevs(text: &str) -> Vec<String> {
    let mut holds_data = true;
    let mut paths = Vec::new();
    for line in text.lines() {
        match line.trim_start().split('\t').next().unwrap_or_default() {
            "cache" | "spare" | "spares" => holds_data = false,
            "logs" | "log" | "special" | "dedup" => holds_data = true,
            path if path.starts_with('/') && holds_data => paths.push(path.to_owned()),
            _ => {}
        }
    }
    paths
}

/// The RAIDZ of a pool's data, by the output of `zpool list -vHP`: the one with the most parity. `None` for mirrors,
/// single disks and dRAID, and while a disk is replaced. A disk that is missing counts.
pub fn raidz(text: &str) -> Option<Raidz> {
    let mut all: Vec<Raidz> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let name = line.trim_start().split('\t').next().unwrap_or_default();
        if name.starts_with("replacing-") || name.starts_with("spare-") {
            return None;
        }
        if let Some((parity, _)) = name.strip_prefix("raidz").and_then(|rest| rest.split_once('-')) {
            all.push(Raidz { parity: parity.parse().ok()?, disks: 0 });
            inside = true;
        } else if !name.starts_with('/') && !is_missing(name) {
            inside = false;
        } else if let Some(last) = all.last_mut().filter(|_| inside) {
            last.disks += 1;
        }
    }
    all.into_iter().filter(|raidz| raidz.disks > raidz.parity).max_by_key(|raidz| (raidz.parity, raidz.disks))
}

/// Whether a vdev is named by its GUID, as one that was not there when the pool was opened
/// (lib/libzfs/libzfs_pool.c, `zpool_vdev_name`).
fn is_missing(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_node::fake::host;

    const LIST: &str = include_str!("../../tests/fixtures/places/zpool-list-vHP.txt");

    #[test]
    fn disks_that_hold_data_are_named() {
        assert_eq!(vdevs(LIST), ["/dev/sda3", "/dev/sdb3", "/dev/nvme0n1p1"]);
        assert_eq!(vdevs(""), Vec::<String>::new());
    }

    #[test]
    fn width_and_parity_of_a_raidz() {
        let list = include_str!("../../tests/fixtures/places/zpool-list-raidz2.txt");
        assert_eq!(raidz(list), Some(Raidz { parity: 2, disks: 6 }));
        let degraded =
            "tank\t1\n\traidz2-0\t1\n\t/dev/sda\n\t1234567890123456789\t-\n\t/dev/sdc\n\t/dev/sdd\nlogs\t-\n";
        assert_eq!(raidz(degraded), Some(Raidz { parity: 2, disks: 4 }));
        assert_eq!((raidz(LIST), raidz("")), (None, None));
        assert_eq!(raidz("tank\t1\n\traidz1-0\t1\n\t/dev/sda\n\treplacing-1\n\t/dev/sdb\n\t/dev/sdc\n"), None);
    }

    #[test]
    fn what_cannot_be_asked_is_a_reason() {
        assert!(leaves(&host(&[]), "tank/vm").unwrap_err().to_string().contains("is missing"));
        let empty = leaves(&host(&[("zpool", "tank\t1\n")]), "tank").unwrap_err();
        assert_eq!(empty, NotVisible::EmptyPool("tank".into()));
        assert_eq!(dataset_of(&host(&[]), Path::new("/dev/zvol/tank/vm/x")).as_deref(), Some("tank/vm/x"));
        assert_eq!(dataset_of(&host(&[]), Path::new("/dev/zd0")), None);
    }
}
