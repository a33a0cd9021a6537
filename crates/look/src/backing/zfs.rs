//! Disks of a ZFS pool, which sysfs does not list below its volumes: `zpool list -vHP` (zpool-list(8)) gives the path
//! of each vdev. Read caches and spares are left out, since writes do not reach them.

use std::path::Path;

use vmio_node::{Question, Questions};

use super::{Backing, NotVisible};
use crate::require::find_program;

/// The disks below a dataset or volume.
pub fn leaves(node: &dyn Questions, dataset: &str) -> Result<Backing, NotVisible> {
    let pool = dataset.split('/').next().unwrap_or(dataset);
    let asked = Question::Zpool { pool: pool.to_owned() };
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
    fn what_cannot_be_asked_is_a_reason() {
        assert!(leaves(&host(&[]), "tank/vm").unwrap_err().to_string().contains("is missing"));
        let empty = leaves(&host(&[("zpool", "tank\t1\n")]), "tank").unwrap_err();
        assert_eq!(empty, NotVisible::EmptyPool("tank".into()));
        assert_eq!(dataset_of(&host(&[]), Path::new("/dev/zvol/tank/vm/x")).as_deref(), Some("tank/vm/x"));
        assert_eq!(dataset_of(&host(&[]), Path::new("/dev/zd0")), None);
    }
}
