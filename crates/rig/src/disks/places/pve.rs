//! A storage of Proxmox VE by its name there ([`vmio_look::managers::proxmox::storages`]).

use std::path::{Path, PathBuf};

use vmio_look::managers::proxmox::storages::{CONFIG, Storage, host_name, storages};
use vmio_look::require::{Requirement, readable};
use vmio_node::Node;

use super::rbd::Cluster;
use super::{Error, Kind, Listed, PlaceBackend, PlaceKind, Pool, Result, dir, instead, lvm, lvmthin, zfs};

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
            fix: "use another form of --on on hosts without Proxmox VE; otherwise check that pve-cluster runs",
            check: |reader| readable(reader, CONFIG),
        }]
    }
    fn resolve(&self, node: &dyn Node, name: &str) -> Result<PlaceBackend> {
        let place = format!("pve:{name}");
        super::tools::needs(node, &place, self.requirements())?;
        let all = storages(node.reader());
        let Some(storage) = all.iter().find(|s| s.id == name) else {
            let there: Vec<String> = all.iter().map(|s| s.id.clone()).collect();
            let help = instead("pve", name, &there);
            return Err(Error::new(Kind::NotThere, place, format!("no storage {name} is in {CONFIG}")).help(help));
        };
        usable(storage, &host_name(node.reader()), &place)?;
        backend_of(storage, node, &place)
    }
    fn answered_by(&self, name: &str) -> Option<String> {
        Some(format!("whatever holds the Proxmox storage {name}"))
    }
    fn list(&self, node: &dyn Node) -> Vec<Listed> {
        let host = host_name(node.reader());
        let listed = |s: Storage| {
            let name = format!("pve:{}", s.id);
            let state = usable(&s, &host, &name).and_then(|()| backend_of(&s, node, &name));
            Listed { name, state: state.map(|_| s.kind) }
        };
        storages(node.reader()).into_iter().map(listed).collect()
    }
}

/// Whether a storage may be used on a host.
fn usable(storage: &Storage, host: &str, place: &str) -> Result<()> {
    storage.usable(host).map_err(|(reason, help)| Error::new(Kind::Unready, place, reason).help(help))
}

/// What a storage is.
fn backend_of(storage: &Storage, node: &dyn Node, place: &str) -> Result<PlaceBackend> {
    let setting = |key: &str| {
        let lacks = || Error::new(Kind::Unready, place, format!("{CONFIG} gives it no `{key}`"));
        storage.get(key).map(str::to_owned).ok_or_else(lacks)
    };
    let named = |e: Error| Error { place: place.to_owned(), ..e };
    if let Some(path) = storage.path() {
        if let Some(point) = storage.unmounted(node.reader()) {
            let reason = format!("nothing is mounted on {}", point.display());
            return Err(Error::new(Kind::Unready, place, reason).help("`pvesm status` shows whether it is active"));
        }
        let images = dir::resolve_path(&storage.images(&path)).map_err(named)?;
        let mounted = matches!(node.stat(&path), Ok(Some(s)) if s.is_directory());
        if !mounted {
            let reason = format!("{} is not there", path.display());
            return Err(Error::new(Kind::Unready, place, reason).help("`pvesm status` shows whether it is active"));
        }
        return Ok(PlaceBackend::Files(images));
    }
    Ok(PlaceBackend::Volumes(match storage.kind.as_str() {
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
            Pool::Zfs { dataset, block: storage.get("blocksize").map(str::to_owned) }
        }
        "rbd" => {
            // Images would be made beside those of the guests, elsewhere or in another way.
            if let Some(key) = ["namespace", "data-pool"].into_iter().find(|key| storage.get(key).is_some()) {
                let reason = format!("its images lie in a {key} ({})", storage.get(key).unwrap_or_default());
                return Err(Error::new(Kind::Unready, place, format!("{reason}, which vmio cannot measure yet"))
                    .help("use a storage without `namespace` and `data-pool`"));
            }
            let pool = storage.get("pool").unwrap_or("rbd").to_owned();
            let cluster = cluster(storage, node, place)?;
            cluster.pool(node, place, &pool)?;
            Pool::Rbd { pool, cluster, kernel: storage.flag("krbd") }
        }
        other => {
            return Err(Error::new(Kind::Unready, place, format!("storages of type {other} cannot be measured yet"))
                .help("use a storage of type dir, nfs, cifs, btrfs, lvm, lvmthin, zfspool or rbd"));
        }
    }))
}

/// The cluster of Proxmox VE itstorage, or a foreign one (`monhost`) whose configuration an
/// administrator has put where Proxmox VE looks for it.
fn cluster(storage: &Storage, node: &dyn Node, place: &str) -> Result<Cluster> {
    let conf = match storage.get("monhost") {
        None => PathBuf::from("/etc/pve/ceph.conf"),
        Some(_) => Path::new("/etc/pve/priv/ceph").join(format!("{}.conf", storage.id)),
    };
    if !matches!(node.stat(&conf), Ok(Some(_))) {
        return Err(Error::new(
            Kind::Unready,
            place,
            format!("its cluster needs {}, which is not there", conf.display()),
        )
        .help("write one with `mon host` and `keyring`: guests are attached with that file"));
    }
    Ok(Cluster { conf: Some(conf), user: Some(storage.get("username").unwrap_or("admin").to_owned()) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_look::managers::proxmox::storages::image_dirs;
    use vmio_node::Fake;

    use super::super::resolve;
    use super::*;
    use vmio_node::fake::{Tree, host};

    const CFG: &str = include_str!("../../../tests/fixtures/places/storage.cfg");
    const VGS: &str = include_str!("../../../tests/fixtures/places/vgs.json");
    const LVS: &str = include_str!("../../../tests/fixtures/places/lvs.json");

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
        let backend = |id: &str| resolve(&pve(), &format!("pve:{id}")).unwrap().backend;
        assert_eq!(backend("local"), PlaceBackend::Files("/var/lib/vz/images".into()));
        assert_eq!(backend("nas"), PlaceBackend::Files("/mnt/pve/nas/images".into()));
        assert_eq!(backend("usb"), PlaceBackend::Files("/mnt/usb/vm/images".into()));
        assert_eq!(backend("own-dirs"), PlaceBackend::Files("/srv/vm/disks/of guests".into()));
        assert_eq!(backend("thick"), PlaceBackend::Volumes(Pool::Lvm { vg: "vg0".into() }));
        assert_eq!(
            backend("local-lvm"),
            PlaceBackend::Volumes(Pool::LvmThin { vg: "vg0".into(), pool: "data".into() })
        );
        assert_eq!(
            backend("local-zfs"),
            PlaceBackend::Volumes(Pool::Zfs { dataset: "rpool/data".into(), block: Some("16k".into()) })
        );
        let cluster = Cluster { conf: Some("/etc/pve/ceph.conf".into()), user: Some("admin".into()) };
        assert_eq!(
            backend("ceph"),
            PlaceBackend::Volumes(Pool::Rbd { pool: "vms".into(), cluster: cluster.clone(), kernel: false })
        );
        assert_eq!(
            backend("ceph-krbd"),
            PlaceBackend::Volumes(Pool::Rbd { pool: "vms".into(), cluster, kernel: true })
        );
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
            ("lost", "no such volume group: vg7", "lvm:vg0"),
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
