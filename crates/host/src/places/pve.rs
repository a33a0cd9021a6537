//! A storage of Proxmox VE by its name there: `/etc/pve/storage.cfg` says what it is (Proxmox VE
//! Administration Guide, "Storage"). This is the one reader of that file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vmio_node::{Node, Reader};

use super::rbd::Cluster;
use super::{Error, Ground, Kind, Listed, PlaceKind, Pool, Result, dir, instead, lvm, lvmthin, zfs};
use crate::backing;
use crate::require::{Requirement, readable};

/// Where Proxmox VE keeps its list of storages.
const CONFIG: &str = "/etc/pve/storage.cfg";

/// Entry `pve`.
pub struct Pve;

impl PlaceKind for Pve {
    fn prefix(&self) -> &'static str {
        "pve"
    }
    fn form(&self) -> &'static str {
        "pve:NAME"
    }
    fn about(&self) -> &'static str {
        "a storage of Proxmox VE that holds disk images (dir, nfs, cifs, btrfs, lvm, lvmthin, zfspool, rbd)"
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[Requirement {
            name: "Proxmox VE",
            why: "its list of storages",
            mend: "use another form of --on on hosts without Proxmox VE; otherwise check that pve-cluster runs",
            check: |reader| readable(reader, CONFIG),
        }]
    }
    fn resolve(&self, node: &dyn Node, name: &str) -> Result<Ground> {
        let place = format!("pve:{name}");
        super::tools::needs(node, &place, self.requirements())?;
        let all = storages(node.reader());
        let Some(storage) = all.iter().find(|s| s.id == name) else {
            let there: Vec<String> = all.iter().map(|s| s.id.clone()).collect();
            let help = instead("pve", name, &there);
            return Err(Error::new(Kind::NotThere, place, format!("no storage {name} is in {CONFIG}")).help(help));
        };
        storage
            .usable(&host_name(node.reader()))
            .map_err(|(reason, help)| Error::new(Kind::Unready, &*place, reason).help(help))?;
        storage.ground(node, &place)
    }
    fn list(&self, node: &dyn Node) -> Vec<Listed> {
        let host = host_name(node.reader());
        let listed = |s: Storage| {
            let name = format!("pve:{}", s.id);
            let state = s.usable(&host).map_err(|(reason, _)| reason);
            let state = state.and_then(|()| s.ground(node, &name).map(|_| s.kind.clone()).map_err(|e| e.reason));
            Listed { name, state }
        };
        storages(node.reader()).into_iter().map(listed).collect()
    }
}

/// A section of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// `dir`, `lvmthin`, …
    pub kind: String,
    /// Its name.
    pub id: String,
    settings: BTreeMap<String, String>,
}

impl Storage {
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(String::as_str)
    }

    fn lists(&self, key: &str, word: &str) -> Option<bool> {
        Some(self.get(key)?.split(',').any(|w| w.trim() == word))
    }

    /// Whether a flag is set; one that stands alone is.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value != "0")
    }

    /// Whether disk images may lie on it. Where the file does not say what it holds, they may.
    fn holds_images(&self) -> bool {
        self.lists("content", "images").unwrap_or(true)
    }

    /// Else why not, and what to do.
    fn usable(&self, host: &str) -> std::result::Result<(), (String, String)> {
        let id = &self.id;
        match () {
            () if self.flag("disable") => {
                Err(("it is disabled in Proxmox VE".into(), format!("pvesm set {id} --disable 0")))
            }
            () if self.lists("nodes", host) == Some(false) => Err((
                format!("Proxmox VE has it only on {}, this is {host}", self.get("nodes").unwrap_or_default()),
                "run vmio on one of these, or use another storage".into(),
            )),
            () if !self.holds_images() => Err((
                format!("it holds {} and no disk images", self.get("content").unwrap_or_default()),
                format!("use another storage, or pvesm set {id} --content images,… "),
            )),
            () => Ok(()),
        }
    }

    /// Directory of the storages that are file systems.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let path = match self.kind.as_str() {
            "dir" | "btrfs" => PathBuf::from(self.get("path")?),
            // Mounted there by Proxmox VE unless it is said otherwise.
            "nfs" | "cifs" => self.get("path").map_or_else(|| Path::new("/mnt/pve").join(&self.id), PathBuf::from),
            _ => return None,
        };
        Some(path)
    }

    /// Directory of its disk images (`content-dirs` may name another one than `images`).
    pub(crate) fn images(&self, path: &Path) -> PathBuf {
        let dirs = self.get("content-dirs").unwrap_or_default().split(',');
        let named = dirs.filter_map(|d| d.trim().split_once('=')).find(|(content, _)| content.trim() == "images");
        path.join(named.map_or("images", |(_, dir)| dir.trim().trim_start_matches('/')))
    }

    /// Where a file system must be mounted for it: without that its directory lies on the disk of
    /// the host itself (`is_mountpoint` is a truth value, or that directory).
    fn mount_point(&self) -> Option<PathBuf> {
        match (self.kind.as_str(), self.get("is_mountpoint")) {
            ("nfs" | "cifs", _) | ("dir" | "btrfs", Some("" | "1" | "yes" | "on" | "true")) => self.path(),
            ("dir" | "btrfs", Some(point)) if point.starts_with('/') => Some(point.into()),
            _ => None,
        }
    }

    /// Where nothing is mounted although it should be.
    fn unmounted(&self, reader: &dyn Reader) -> Option<PathBuf> {
        let point = self.mount_point()?;
        let mounts = backing::mounts(reader).unwrap_or_default();
        mounts.iter().all(|m| Path::new(&m.point) != point).then_some(point)
    }

    /// What it is.
    fn ground(&self, node: &dyn Node, place: &str) -> Result<Ground> {
        let setting = |key: &str| {
            let lacks = || Error::new(Kind::Unready, place, format!("{CONFIG} gives it no `{key}`"));
            self.get(key).map(str::to_owned).ok_or_else(lacks)
        };
        let named = |e: Error| Error { place: place.to_owned(), ..e };
        if let Some(path) = self.path() {
            if let Some(point) = self.unmounted(node.reader()) {
                let reason = format!("nothing is mounted on {}", point.display());
                return Err(Error::new(Kind::Unready, place, reason).help("`pvesm status` shows whether it is active"));
            }
            let images = dir::ground(&self.images(&path)).map_err(named)?;
            let mounted = matches!(node.stat(&path), Ok(Some(s)) if s.mode & 0o170_000 == 0o040_000);
            if !mounted {
                let reason = format!("{} is not there", path.display());
                return Err(Error::new(Kind::Unready, place, reason).help("`pvesm status` shows whether it is active"));
            }
            return Ok(Ground::Files(images));
        }
        Ok(Ground::Volumes(match self.kind.as_str() {
            "lvm" => {
                let vg = setting("vgname")?;
                lvm::own(node.reader(), place, &vg)?;
                lvm::group(node, place, &vg)?;
                Pool::Lvm { vg }
            }
            "lvmthin" => {
                let name = format!("{}/{}", setting("vgname")?, setting("thinpool")?);
                return lvmthin::LvmThin.resolve(node, &name).map_err(named);
            }
            "zfspool" => {
                let dataset = setting("pool")?;
                zfs::dataset(node, place, &dataset)?;
                Pool::Zfs { dataset, block: self.get("blocksize").map(str::to_owned) }
            }
            "rbd" => {
                // Images would be made beside those of the guests, elsewhere or in another way.
                if let Some(key) = ["namespace", "data-pool"].into_iter().find(|key| self.get(key).is_some()) {
                    let reason = format!("its images lie in a {key} ({})", self.get(key).unwrap_or_default());
                    return Err(Error::new(Kind::Unready, place, format!("{reason}, which vmio cannot measure yet"))
                        .help("use a storage without `namespace` and `data-pool`"));
                }
                let pool = self.get("pool").unwrap_or("rbd").to_owned();
                let cluster = self.cluster(node, place)?;
                cluster.pool(node, place, &pool)?;
                Pool::Rbd { pool, cluster, kernel: self.flag("krbd") }
            }
            other => {
                return Err(Error::new(
                    Kind::Unready,
                    place,
                    format!("storages of type {other} cannot be measured yet"),
                )
                .help("use a storage of type dir, nfs, cifs, btrfs, lvm, lvmthin, zfspool or rbd"));
            }
        }))
    }

    /// The cluster of Proxmox VE itself, or a foreign one (`monhost`) whose configuration an
    /// administrator has put where Proxmox VE looks for it.
    fn cluster(&self, node: &dyn Node, place: &str) -> Result<Cluster> {
        let conf = match self.get("monhost") {
            None => PathBuf::from("/etc/pve/ceph.conf"),
            Some(_) => Path::new("/etc/pve/priv/ceph").join(format!("{}.conf", self.id)),
        };
        if !matches!(node.stat(&conf), Ok(Some(_))) {
            return Err(Error::new(
                Kind::Unready,
                place,
                format!("its cluster needs {}, which is not there", conf.display()),
            )
            .help("write one with `mon host` and `keyring`: guests are attached with that file"));
        }
        Ok(Cluster { conf: Some(conf), user: Some(self.get("username").unwrap_or("admin").to_owned()) })
    }
}

/// All storages of this host's cluster; none where it is no Proxmox VE.
pub fn storages(reader: &dyn Reader) -> Vec<Storage> {
    parse(&reader.read_text(Path::new(CONFIG)).unwrap_or_default())
}

/// Whether Proxmox VE has a volume group on storage that other nodes reach too.
pub fn shares_group(reader: &dyn Reader, vg: &str) -> bool {
    storages(reader).iter().any(|s| s.kind == "lvm" && s.get("vgname") == Some(vg) && s.flag("shared"))
}

/// Directories of the `dir` storages of this host that hold images.
pub fn image_dirs(reader: &dyn Reader) -> Vec<PathBuf> {
    let host = host_name(reader);
    let local = storages(reader).into_iter().filter(|s| s.kind == "dir" && s.usable(&host).is_ok());
    let local = local.filter(|s| s.unmounted(reader).is_none());
    local.filter_map(|s| s.path().map(|path| s.images(&path))).collect()
}

/// `TYPE: ID`, then lines of a blank, a key and a value; a flag may stand alone.
fn parse(text: &str) -> Vec<Storage> {
    let mut all: Vec<Storage> = Vec::new();
    for line in text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
        if line.starts_with([' ', '\t']) {
            let (key, value) = line.trim().split_once([' ', '\t']).unwrap_or((line.trim(), ""));
            if let Some(storage) = all.last_mut() {
                storage.settings.insert(key.into(), value.trim().into());
            }
        } else if let Some((kind, id)) = line.split_once(':') {
            all.push(Storage { kind: kind.trim().into(), id: id.trim().into(), settings: BTreeMap::new() });
        }
    }
    all
}

fn host_name(reader: &dyn Reader) -> String {
    let name = reader.read_text(Path::new("/proc/sys/kernel/hostname")).unwrap_or_default();
    name.trim().split('.').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::Fake;

    use super::super::resolve;
    use super::*;
    use crate::testing::{Tree, host};

    const CFG: &str = include_str!("../../tests/fixtures/places/storage.cfg");
    const VGS: &str = include_str!("../../tests/fixtures/places/vgs.json");
    const LVS: &str = include_str!("../../tests/fixtures/places/lvs.json");

    const MOUNTS: &str = "22 1 253:0 / / rw - ext4 /dev/sda1 rw\n23 22 0:21 / /mnt/pve/nas rw - nfs4 192.0.2.7:/export/vms rw\n\
                          24 22 8:1 / /mnt/usb rw - ext4 /dev/sdb1 rw\n";

    fn pve() -> Fake {
        host(&[
            ("vgs", VGS),
            ("lvs", LVS),
            ("zpool", "rpool\tONLINE\t8912896000\n"),
            ("zfs", "rpool\nrpool/data\n"),
            ("rbd", ""),
            ("ceph", r#"["vms"]"#),
        ])
        .file(CONFIG, CFG)
        .file("/proc/sys/kernel/hostname", "pve1.lan\n")
        .file("/var/lib/vz/images/100/x", "")
        .file("/mnt/pve/nas/images/x", "")
        .file("/mnt/pve/nas2/images/x", "")
        .file("/mnt/usb/vm/images/x", "")
        .file("/mnt/lost/images/x", "")
        .file("/srv/vm/x", "")
        .file("/proc/self/mountinfo", MOUNTS)
        .file("/dev/zfs", "")
        .file("/etc/pve/ceph.conf", "")
    }

    #[test]
    fn each_type_becomes_what_it_is() {
        let ground = |id: &str| resolve(&pve(), &format!("pve:{id}")).unwrap().ground;
        assert_eq!(ground("local"), Ground::Files("/var/lib/vz/images".into()));
        assert_eq!(ground("nas"), Ground::Files("/mnt/pve/nas/images".into()));
        assert_eq!(ground("usb"), Ground::Files("/mnt/usb/vm/images".into()));
        assert_eq!(ground("own-dirs"), Ground::Files("/srv/vm/disks/of guests".into()));
        assert_eq!(ground("thick"), Ground::Volumes(Pool::Lvm { vg: "vg0".into() }));
        assert_eq!(ground("local-lvm"), Ground::Volumes(Pool::LvmThin { vg: "vg0".into(), pool: "data".into() }));
        assert_eq!(
            ground("local-zfs"),
            Ground::Volumes(Pool::Zfs { dataset: "rpool/data".into(), block: Some("16k".into()) })
        );
        let cluster = Cluster { conf: Some("/etc/pve/ceph.conf".into()), user: Some("admin".into()) };
        assert_eq!(
            ground("ceph"),
            Ground::Volumes(Pool::Rbd { pool: "vms".into(), cluster: cluster.clone(), kernel: false })
        );
        assert_eq!(ground("ceph-krbd"), Ground::Volumes(Pool::Rbd { pool: "vms".into(), cluster, kernel: true }));
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        for (id, reason, help) in [
            ("local-lvn", "no storage local-lvn", "`pve:local-lvm`?"),
            ("off", "disabled", "pvesm set off --disable 0"),
            ("other-node", "only on pve2,pve3, this is pve1", "run vmio on one of these"),
            ("iso", "holds iso,vztmpl", "pvesm set iso --content"),
            ("gone", "/srv/gone is not there", "pvesm status"),
            ("box", "type pbs", "lvmthin"),
            ("far", "/etc/pve/priv/ceph/far.conf", "mon host"),
            ("lost", "no volume group vg7", "lvm:vg0"),
            ("ceph-ns", "lie in a namespace (lab)", "without `namespace`"),
            ("ceph-ec", "lie in a data-pool (ec)", "without `namespace`"),
            ("nas2", "nothing is mounted on /mnt/pve/nas2", "pvesm status"),
            ("usb2", "nothing is mounted on /mnt/lost", "pvesm status"),
            ("san", "other nodes of the cluster change the group old too", "not shared"),
        ] {
            let said = resolve(&pve(), &format!("pve:{id}")).unwrap_err();
            assert!(said.place == format!("pve:{id}"), "{said:?}");
            assert!(said.reason.contains(reason) && said.help.contains(help), "{said:?}");
        }
        // Nor by the group's own name.
        let said = resolve(&pve(), "lvm:old").unwrap_err();
        assert!(said.kind == Kind::Unready && said.reason.contains("other nodes"), "{said:?}");
        let said = resolve(&host(&[]), "pve:local").unwrap_err();
        assert!(said.kind == Kind::Tool && said.help.contains("without Proxmox VE"), "{said:?}");
    }

    #[test]
    fn doctor_sees_each_with_its_state() {
        let all = Pve.list(&pve());
        let ready: Vec<&str> = all.iter().filter(|l| l.state.is_ok()).map(|l| l.name.as_str()).collect();
        let usable = ["local", "local-lvm", "thick", "local-zfs", "ceph", "nas", "usb", "own-dirs", "ceph-krbd"];
        assert_eq!(ready, usable.map(|id| format!("pve:{id}")));
        assert_eq!(all.len(), 21);
    }

    #[test]
    fn image_directories_of_this_host() {
        let tree = Tree::of(&[(CONFIG, CFG)]);
        assert_eq!(
            image_dirs(&tree),
            [Path::new("/var/lib/vz/images"), Path::new("/srv/gone/images"), Path::new("/srv/vm/disks/of guests")]
        );
    }
}
