//! What holds volumes: which disks lie below it, what is left in it, whether it still takes
//! writes.

use std::fmt;
use std::path::Path;

use vmio_look::backing::{self, Backing, NotVisible};
use vmio_node::Node;
use vmio_node::linux::block;

use super::lvmthin::ThinPool;
use super::rbd::Cluster;
use super::tools::{field, lvm_report, number};
use super::{Error, Kind, Result, Unwell, lvm, zfs};
use crate::disks::BlockClient;
use crate::disks::space::{Space, gib, with_margin};

/// Something that volumes are made in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pool {
    /// A volume group: thick logical volumes.
    Lvm {
        /// Its name.
        vg: String,
    },
    /// A thin pool of LVM.
    LvmThin {
        /// Its volume group.
        vg: String,
        /// Its name.
        pool: String,
    },
    /// A ZFS pool or dataset.
    Zfs {
        /// `tank/vm`.
        dataset: String,
        /// Block size of the volumes (`volblocksize`); ZFS's default where it is not said.
        block: Option<String>,
    },
    /// A pool of a Ceph cluster.
    Rbd {
        /// Its name.
        pool: String,
        /// Which cluster.
        cluster: Cluster,
        /// Guests use the kernel's mapping too, not librbd (Proxmox VE, `krbd`).
        kernel: bool,
    },
}

impl Pool {
    /// By which client of its own a hypervisor opens a volume of it; `None` where it opens a device of this host.
    pub fn block_client(&self) -> Option<BlockClient> {
        matches!(self, Self::Rbd { .. }).then_some(BlockClient::Rbd)
    }

    /// The target that makes volumes in it.
    pub fn target(&self) -> &'static str {
        match self {
            Self::Lvm { .. } => "lvm",
            Self::LvmThin { .. } => "lvm-thin",
            Self::Zfs { .. } => "zvol",
            Self::Rbd { .. } => "rbd",
        }
    }

    /// Whether a new volume takes its blocks when they are first written.
    pub fn allocates(&self) -> bool {
        !matches!(self, Self::Lvm { .. })
    }

    /// The disks below it.
    ///
    /// # Errors
    /// When they cannot be looked up. That some cannot be seen is said in the result.
    pub fn backing(&self, node: &dyn Node) -> Result<Backing> {
        let place = self.place();
        let lost = |e: vmio_node::Error| Error::new(Kind::Tool, self.place(), e.to_string());
        let mut all = Backing { filesystem: self.what().into(), mount: self.name(), ..Backing::default() };
        match self {
            Self::Lvm { vg } => {
                for row in lvm_report(node, &place, "pvs", "pv_name,vg_name", &[])? {
                    if field(&row, "vg_name") == vg {
                        all.add(Backing::of(node.reader(), Path::new(field(&row, "pv_name"))).map_err(lost)?);
                    }
                }
            }
            Self::LvmThin { vg, pool } => {
                let device = dm_device(node, vg, &format!("{pool}_tdata")).ok_or_else(|| {
                    Error::new(Kind::Unready, &*place, format!("the kernel has no device for the data of {vg}/{pool}"))
                        .help(format!("lvchange --activate y {vg}/{pool}"))
                })?;
                all.add(Backing::of(node.reader(), Path::new(&device)).map_err(lost)?);
            }
            Self::Zfs { dataset, .. } => match backing::zfs::leaves(node, dataset) {
                Ok(below) => all.add(below),
                Err(reason) => all.not_visible = Some(reason),
            },
            Self::Rbd { .. } => all.not_visible = Some(NotVisible::Ceph),
        }
        if all.leaves.is_empty() && all.not_visible.is_none() {
            all.not_visible = Some(NotVisible::NoDisk);
        }
        Ok(all)
    }

    /// What is left for data.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn space(&self, node: &dyn Node) -> Result<Space> {
        let place = self.place();
        let (free_bytes, of) = match self {
            Self::Lvm { vg } => {
                let row = lvm::group(node, &place, vg)?;
                (number(&row, "vg_free").unwrap_or(0.0) as u64, format!("volume group {vg}"))
            }
            Self::LvmThin { vg, pool } => {
                let pool = ThinPool::find(node, vg, pool)?;
                (pool.free_bytes(), pool.describe())
            }
            Self::Zfs { dataset, .. } => (zfs::available(node, &place, dataset)?, format!("dataset {dataset}")),
            Self::Rbd { pool, cluster, .. } => (cluster.available(node, &place, pool)?, format!("Ceph pool {pool}")),
        };
        Ok(Space { free_bytes, of })
    }

    /// Refuses volumes of so many bytes in all unless they fit with 20 % to spare.
    ///
    /// # Errors
    /// With the figures, or as [`Pool::space`].
    pub fn demand(&self, node: &dyn Node, bytes: u64) -> Result<Space> {
        let space = self.space(node)?;
        let needed = with_margin(bytes);
        if needed <= space.free_bytes {
            return self.takes(node, bytes).map(|()| space);
        }
        let reason = format!(
            "not enough space: {} are needed (20 % to spare included), {} are left ({})",
            gib(needed),
            gib(space.free_bytes),
            space.of
        );
        Err(Error::new(Kind::Unready, self.place(), reason)
            .help("free some, use --on another place, or a study with a smaller size.target_mib"))
    }

    /// Refuses to write so many bytes where nothing would be left for the others then.
    ///
    /// # Errors
    /// As [`Pool::check`].
    pub fn takes(&self, node: &dyn Node, bytes: u64) -> Result<()> {
        self.room(node, bytes).map_err(|unwell| {
            Error::new(Kind::Unready, self.place(), unwell.to_string()).help("or use --on another place")
        })
    }

    /// Whether it still answers and takes writes, and has its reserve.
    ///
    /// # Errors
    /// What is full or failed, how much is used, and what to do.
    pub fn check(&self, node: &dyn Node) -> Result<(), Unwell> {
        self.room(node, 0)
    }

    fn room(&self, node: &dyn Node, bytes: u64) -> Result<(), Unwell> {
        match self {
            Self::LvmThin { vg, pool } => ThinPool::find(node, vg, pool).map_err(Unwell::Unasked)?.room(bytes),
            Self::Zfs { dataset, .. } => zfs::well(node, zfs::pool_name(dataset)),
            // Whatever the cluster says: it answers.
            Self::Rbd { pool, cluster, .. } => {
                let asked = cluster.ask(node, &self.place(), "rbd", &["ls", "--format", "json", pool]);
                asked.map(drop).map_err(Unwell::Cluster)
            }
            Self::Lvm { .. } => Ok(()),
        }
    }

    fn what(&self) -> &'static str {
        match self {
            Self::Lvm { .. } => "LVM volume group",
            Self::LvmThin { .. } => "LVM thin pool",
            Self::Zfs { .. } => "ZFS dataset",
            Self::Rbd { .. } => "Ceph pool",
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Lvm { vg } => vg.clone(),
            Self::LvmThin { vg, pool } => format!("{vg}/{pool}"),
            Self::Zfs { dataset, .. } => dataset.clone(),
            Self::Rbd { pool, .. } => pool.clone(),
        }
    }

    /// As `--on` names it.
    pub fn place(&self) -> String {
        let prefix = match self {
            Self::Lvm { .. } => "lvm",
            Self::LvmThin { .. } => "lvmthin",
            Self::Zfs { .. } => "zfs",
            Self::Rbd { .. } => "rbd",
        };
        format!("{prefix}:{}", self.name())
    }

    /// The tools that it needs.
    pub fn requirements(&self) -> &'static [vmio_look::require::Requirement] {
        let prefix = self.place();
        let prefix = prefix.split(':').next().unwrap_or_default();
        super::ALL.iter().find(|k| k.prefix() == prefix).map_or(&[], |k| k.requirements())
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what(), self.name())
    }
}

/// Name of a logical volume's device-mapper device, in which LVM doubles hyphens (libdm, `dm_build_dm_name`).
pub fn dm_name(vg: &str, lv: &str) -> String {
    format!("{}-{}", vg.replace('-', "--"), lv.replace('-', "--"))
}

/// Device node of a logical volume.
pub fn dm_device(node: &dyn Node, vg: &str, lv: &str) -> Option<String> {
    let name = dm_name(vg, lv);
    let names = block::whole(node.reader()).ok()?;
    let is = |kernel: &&String| {
        let device = block::Device::whole(node.reader(), kernel);
        kernel.starts_with("dm-") && device.mapper_name().as_ref() == Some(&name)
    };
    names.iter().find(is).map(|kernel| format!("/dev/{kernel}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::Output;
    use vmio_node::fake::{fails, says};

    use super::*;
    use vmio_node::fake::host;

    const VGS: &str = include_str!("../../../tests/fixtures/places/vgs.json");
    const LVS: &str = include_str!("../../../tests/fixtures/places/lvs.json");

    fn thin(pool: &str) -> Pool {
        Pool::LvmThin { vg: "vg0".into(), pool: pool.into() }
    }

    #[test]
    fn space_is_asked_of_the_pool_itself() {
        let node = host(&[("vgs", VGS), ("lvs", LVS)]);
        let thick = Pool::Lvm { vg: "vg0".into() };
        assert_eq!(thick.space(&node).unwrap().free_bytes, 40 << 30);
        assert_eq!(thin("data").space(&node).unwrap().free_bytes, 12_800 << 20);
        thin("data").demand(&node, 10 << 30).unwrap();
        let said = thin("data").demand(&node, 11 << 30).unwrap_err();
        assert!(said.to_string().contains("13.2 GiB are needed") && said.help.contains("--on"), "{said:?}");
        assert!(said.reason.contains("37.5 % of its data"), "{said:?}");
    }

    #[test]
    fn a_full_pool_is_seen_and_others_are_well() {
        let node = host(&[("vgs", VGS), ("lvs", LVS)]);
        thin("data").check(&node).unwrap();
        assert!(thin("full").check(&node).unwrap_err().to_string().contains("is full"));
        let said = thin("data").takes(&node, 13 << 30).unwrap_err();
        assert!(said.reason.contains("nearly full") && said.place == "lvmthin:vg0/data", "{said:?}");
        Pool::Lvm { vg: "vg0".into() }.check(&node).unwrap();
        let zfs = Pool::Zfs { dataset: "tank/vm".into(), block: None };
        let suspended = host(&[("zpool", "SUSPENDED\n")]);
        assert!(zfs.check(&suspended).unwrap_err().to_string().contains("the pool tank is SUSPENDED"));
        assert_eq!(suspended.ran()[0].args, ["list", "-Ho", "health", "tank"]);
        let rbd = Pool::Rbd { pool: "vms".into(), cluster: Cluster::default(), kernel: false };
        let cluster = |output: Output| host(&[("rbd", "")]).command(move |_| Some(output.clone()));
        rbd.check(&cluster(says("vm-100-disk-0\n"))).unwrap();
        let said = rbd.check(&cluster(fails(110, "rbd: couldn't connect to the cluster!"))).unwrap_err().to_string();
        assert!(said.contains("couldn't connect") && said.contains("ceph -s"), "{said}");
    }

    #[test]
    fn names_of_devices_are_escaped() {
        let node = host(&[]).file("/sys/block/dm-3/dm/name", "my--vg-data_tdata\n").file("/sys/block/sda/dev", "8:0");
        assert_eq!(dm_device(&node, "my-vg", "data_tdata").as_deref(), Some("/dev/dm-3"));
        assert_eq!(dm_device(&node, "my-vg", "data"), None);
    }

    #[test]
    fn each_pool_has_its_target_and_its_tools() {
        for (pool, place) in [
            (Pool::Lvm { vg: "v".into() }, "lvm:v"),
            (thin("data"), "lvmthin:vg0/data"),
            (Pool::Zfs { dataset: "tank/vm".into(), block: None }, "zfs:tank/vm"),
            (Pool::Rbd { pool: "p".into(), cluster: Cluster::default(), kernel: false }, "rbd:p"),
        ] {
            assert_eq!(pool.place(), place);
            assert!(crate::disks::targets::find(pool.target()).is_some() && !pool.requirements().is_empty(), "{place}");
        }
    }
}
