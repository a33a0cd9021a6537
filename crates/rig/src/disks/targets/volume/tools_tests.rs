//! Tests of volumes' tools: their commands, and what they say.

#![allow(clippy::unwrap_used)]
use vmio_node::Output;
use vmio_node::fake::host;
use vmio_node::fake::{fails, says};

use super::*;
use crate::disks::places::rbd::Cluster;

fn line(pool: &Pool) -> Vec<String> {
    let volume = mark(pool, pool.target(), "c00kie");
    let shown = |(tool, args): (&str, Vec<String>)| Exec::new(tool).args(args).shown();
    commands(pool, &volume, 64 << 20).into_iter().map(shown).collect()
}

#[test]
fn every_volume_bears_its_mark_from_the_start() {
    assert_eq!(
        line(&Pool::Lvm { vg: "vg0".into() }),
        ["lvcreate --yes --wipesignatures y --size 67108864b --name vmio-c00kie-lvm --addtag c00kie vg0"]
    );
    assert_eq!(
        line(&Pool::LvmThin { vg: "vg0".into(), pool: "data".into() }),
        [
            "lvcreate --yes --type thin --virtualsize 67108864b --thinpool data --name vmio-c00kie-lvm-thin --addtag c00kie vg0"
        ]
    );
    assert_eq!(
        line(&Pool::Zfs { dataset: "tank/vm".into(), block: Some("16k".into()) }),
        [
            "zfs create -s -o org.vmio:owner=c00kie -o primarycache=metadata -o com.sun:auto-snapshot=false -b 16k -V 67108864 tank/vm/vmio-c00kie-zvol"
        ]
    );
    let cluster = Cluster { conf: None, user: Some("u".into()) };
    assert_eq!(
        line(&Pool::Rbd { pool: "vms".into(), cluster, kernel: false }),
        [
            "rbd --id u create --size 64M --image-feature layering vms/vmio-c00kie-rbd",
            "rbd --id u image-meta set vms/vmio-c00kie-rbd org.vmio.owner c00kie",
            "rbd --id u map vms/vmio-c00kie-rbd"
        ]
    );
}

#[test]
fn what_a_tool_does_not_say_is_not_taken_for_empty() {
    let thin = Pool::LvmThin { vg: "vg0".into(), pool: "data".into() };
    let zvol = Pool::Zfs { dataset: "tank".into(), block: None };
    let bytes = 64 << 20;
    let asked = |pool: &Pool, output: Output| {
        let volume = mark(pool, pool.target(), "c00kie");
        let node = host(&[("lvs", ""), ("zfs", "")]).command(move |_| Some(output.clone()));
        allocated(&node, pool, &volume, bytes).map_err(|e| e.to_string())
    };
    assert_eq!(asked(&thin, says("  37.50\n")), Ok(Some(37.5)));
    assert_eq!(asked(&zvol, says("33554432\n")), Ok(Some(50.0)));
    for unknown in [fails(5, "  Failed to find logical volume"), says(""), says("-\n"), fails(5, "")] {
        assert!(asked(&thin, unknown.clone()).unwrap_err().contains("lvs"), "{unknown:?}");
        assert!(asked(&zvol, unknown).unwrap_err().contains("zfs"));
    }
    let volume = mark(&thin, "lvm-thin", "c00kie");
    let told = |text: &'static str| host(&[("lvs", text)]);
    emptied(&told("0.80"), &thin, &volume, bytes).unwrap();
    let said = emptied(&told("3.10"), &thin, &volume, bytes).unwrap_err().to_string();
    assert!(said.contains("3.1 % is still allocated"), "{said}");
    assert!(matches!(emptied(&told("?"), &thin, &volume, bytes), Err(NotEmpty::Untold(_))));
    emptied(&host(&[]), &Pool::Lvm { vg: "vg0".into() }, &volume, bytes).unwrap();
}

#[test]
fn settings_of_a_zvol_are_read_back() {
    let zvol = Pool::Zfs { dataset: "tank".into(), block: None };
    let found = |text: &'static str| settings(&host(&[("zfs", text)]), &zvol, &mark(&zvol, "zvol", "c00kie"));
    let good = found("volblocksize\t16384\nprimarycache\tmetadata\n").unwrap();
    assert_eq!((good["volblocksize"].as_str(), good["primarycache"].as_str()), ("16384", "metadata"));
    let said = found("volblocksize\t16384\nprimarycache\tall\n").unwrap_err().to_string();
    assert!(said.contains("asked for primarycache=metadata"), "{said}");
    let thin = Pool::LvmThin { vg: "vg0".into(), pool: "data".into() };
    assert_eq!(settings(&host(&[]), &thin, &mark(&thin, "lvm-thin", "c00kie")).unwrap(), BTreeMap::new());
}

#[test]
fn zfs_is_given_time_to_tell() {
    let zvol = Pool::Zfs { dataset: "tank".into(), block: None };
    let asked = std::sync::atomic::AtomicU32::new(0);
    let node = host(&[("zfs", "")]).command(move |_| {
        let first = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        Some(says(if first { "67108864" } else { "12288" }))
    });
    emptied(&node, &zvol, &mark(&zvol, "zvol", "c00kie"), 64 << 20).unwrap();
    assert_eq!(node.ran().len(), 2);
}
