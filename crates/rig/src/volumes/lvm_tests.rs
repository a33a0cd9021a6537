//! Volumes of LVM, by tools that keep what LVM would: its logical volumes are rows, their devices are files.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use vmio_node::fake::{fails, host, says};
use vmio_node::{Exec, Fake, Node, Output};

use super::lvm::Tools;
use super::tests::name;
use super::*;

const EXTENT: u64 = 4 << 20;

impl Tools for Fake {
    fn change(&self, command: &Exec) -> vmio_node::Result<Output> {
        self.exec(command)
    }
}

#[derive(Clone, Default)]
struct Row {
    lv: String,
    tags: BTreeSet<String>,
    bytes: u64,
    pool: String,
    origin: String,
}

/// The group `lab`, with the thin pool `pool`.
struct Group {
    rows: Vec<Row>,
    devices: PathBuf,
    attributes: &'static str,
    zeroing: &'static str,
    /// The commands that changed something.
    changes: Vec<String>,
    /// Commands that begin so fail: as where vmio is ended there.
    fails_at: Option<&'static str>,
}

impl Group {
    fn answer(&mut self, command: &Exec) -> Output {
        let tool = command.program.rsplit('/').next().unwrap();
        let line = format!("{tool} {}", command.args.join(" "));
        let report = |kind: &str, rows: Vec<Value>| says(json!({"report": [{kind: rows}]}).to_string());
        match tool {
            "vgs" => {
                let row = json!({
                    "vg_name": "lab", "vg_attr": self.attributes, "vg_size": "1073741824", "vg_free": "67108864",
                    "vg_extent_size": EXTENT.to_string(),
                });
                return report("vg", vec![row]);
            }
            "lvs" => return report("lv", self.rows.iter().map(|row| self.row(row)).collect()),
            _ => {}
        }
        if self.fails_at.is_some_and(|at| line.starts_with(at)) {
            return fails(5, "ended here");
        }
        self.changes.push(line);
        let after = |option: &str| {
            let at = command.args.iter().position(|arg| arg == option)?;
            command.args.get(at + 1).cloned()
        };
        let bytes = |option: &str| after(option).map(|size| size.trim_end_matches('b').parse::<u64>().unwrap());
        let last = command.args.last().unwrap().trim_start_matches("lab/").to_owned();
        let added = command.args.windows(2).filter(|pair| pair[0] == "--addtag").map(|pair| pair[1].clone());
        match tool {
            "lvcreate" => {
                let origin = self.rows.iter().find(|row| row.lv == last).cloned();
                let pool = after("--thinpool").or(origin.as_ref().map(|row| row.pool.clone())).unwrap_or_default();
                let of_origin = origin.as_ref().map(|row| row.bytes);
                let bytes = bytes("--virtualsize").or(bytes("--size")).or(of_origin).unwrap();
                let (lv, tags) = (after("--name").unwrap(), added.collect());
                let of = origin.as_ref().map(|row| row.lv.clone()).unwrap_or_default();
                let row = Row { lv, tags, bytes, pool, origin: of };
                // A thick one has what was there before.
                let junk = if row.pool.is_empty() { 7 } else { 0 };
                let content = origin.map(|row| fs::read(self.device(&row.lv)).unwrap());
                let content = content.unwrap_or_else(|| vec![junk; usize::try_from(bytes).unwrap()]);
                fs::write(self.device(&row.lv), content).unwrap();
                self.rows.push(row);
            }
            "lvremove" => {
                fs::remove_file(self.device(&last)).unwrap();
                self.rows.retain(|row| row.lv != last);
            }
            "lvextend" => {
                let (bytes, device) = (bytes("--size").unwrap(), self.device(&last));
                let row = self.rows.iter_mut().find(|row| row.lv == last).unwrap();
                row.bytes = bytes;
                let mut content = fs::read(&device).unwrap();
                content.resize(usize::try_from(bytes).unwrap(), if row.pool.is_empty() { 7 } else { 0 });
                // The device is the same one.
                fs::write(&device, content).unwrap();
            }
            "lvchange" => {
                let row = self.rows.iter_mut().find(|row| row.lv == last).unwrap();
                if let Some(tag) = after("--deltag") {
                    assert!(row.tags.remove(&tag), "{tag}");
                }
                row.tags.extend(added);
            }
            other => panic!("not expected: {other}"),
        }
        says("")
    }

    fn row(&self, row: &Row) -> Value {
        let tags: Vec<&str> = row.tags.iter().map(String::as_str).collect();
        let attributes = if row.lv == "pool" { self.zeroing } else { "-wi-a-----" };
        json!({
            "vg_name": "lab", "lv_name": row.lv, "lv_tags": tags.join(","), "lv_size": row.bytes.to_string(),
            "pool_lv": row.pool, "origin": row.origin, "lv_attr": attributes, "lv_active": "active",
            "lv_health_status": "", "data_percent": "1.00", "metadata_percent": "1.00", "lv_when_full": "error",
        })
    }

    fn device(&self, lv: &str) -> PathBuf {
        self.devices.join(format!("lab-{}", lv.replace('-', "--")))
    }
}

/// A group, and directories of records.
struct Bed {
    dir: tempfile::TempDir,
    group: Arc<Mutex<Group>>,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pool = Row { lv: "pool".into(), bytes: 1 << 30, ..Row::default() };
        let group = Group {
            rows: vec![pool],
            devices: dir.path().join("devices"),
            attributes: "wz--n-",
            zeroing: "twi-aotz--",
            changes: Vec::new(),
            fails_at: None,
        };
        fs::create_dir(&group.devices).unwrap();
        Bed { dir, group: Arc::new(Mutex::new(group)) }
    }

    /// The pool of a host with these records.
    fn pool(&self, text: &str, records: &str) -> Pool {
        let records = self.dir.path().join(records);
        fs::create_dir_all(&records).unwrap();
        fs::set_permissions(&records, fs::Permissions::from_mode(0o700)).unwrap();
        let group = Arc::clone(&self.group);
        let tools = host(&[("vgs", ""), ("lvs", ""), ("lvcreate", ""), ("lvchange", ""), ("lvextend", "")])
            .command(move |command| Some(group.lock().unwrap().answer(command)));
        let devices = self.group.lock().unwrap().devices.clone();
        Pool::of_lvm(&records, &lvm_pool(text).unwrap(), Box::new(tools), &devices).unwrap()
    }

    fn bytes(&self, lv: &str) -> Vec<u8> {
        let device = self.group.lock().unwrap().device(lv);
        fs::read(device).unwrap()
    }

    fn fails_at(&self, at: Option<&'static str>) {
        self.group.lock().unwrap().fails_at = at;
    }

    fn changes(&self) -> Vec<String> {
        std::mem::take(&mut self.group.lock().unwrap().changes)
    }

    fn lvs(&self) -> Vec<String> {
        self.group.lock().unwrap().rows.iter().map(|row| row.lv.clone()).collect()
    }
}

#[test]
fn a_pool_is_named_as_a_place_is() {
    for bad in ["lvm:", "lvm:a/b", "lvm:-a", "lvm:..", "lvm:a b", "lvmthin:lab", "lvmthin:lab/", "zfs:tank", "/srv"] {
        assert!(matches!(lvm_pool(bad), Err(Error::Lvm(LvmError::NoPool(_)))), "{bad}");
    }
    assert_eq!(lvm_pool("lvmthin:lab/pool").unwrap().place(), "lvmthin:lab/pool");
    assert_eq!(lvm_pool("lvm:my-vg.1").unwrap().place(), "lvm:my-vg.1");
}

#[test]
fn thin_volumes_are_made_copied_resized_and_deleted_by_one_command_each() {
    let bed = Bed::new();
    let pool = bed.pool("lvmthin:lab/pool", "a");
    let (data, copy) = (name("data"), name("monday"));
    assert_eq!(pool.create(&data, 4096).unwrap().bytes, EXTENT, "whole extents");
    assert!(matches!(pool.create(&data, 4096), Err(Error::Exists(_))));
    assert!(matches!(pool.create(&copy, 4097), Err(Error::Size(4097))));
    fs::write(bed.group.lock().unwrap().device("vmio-data"), vec![9; 4 << 20]).unwrap();
    assert_eq!(pool.snapshot(&data, &copy).unwrap().bytes, EXTENT);
    assert!(matches!(pool.snapshot(&data, &copy), Err(Error::Exists(_))));
    assert_eq!(pool.resize(&data, EXTENT + 4096).unwrap().bytes, 2 * EXTENT);
    assert_eq!(pool.resize(&data, EXTENT + 4096).unwrap().bytes, 2 * EXTENT, "the same command again");
    assert!(matches!(pool.resize(&data, 4096), Err(Error::Smaller { .. })));
    let listed = [(&data, 2 * EXTENT), (&copy, EXTENT)].map(|(name, bytes)| Volume { name: name.clone(), bytes });
    assert_eq!(pool.list().unwrap(), listed);
    assert!(bed.bytes("vmio-monday").iter().all(|byte| *byte == 9));
    pool.delete(&data).unwrap();
    let changes = bed.changes();
    let tools: Vec<&str> = changes.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(tools, ["lvcreate", "lvcreate", "lvextend", "lvremove"]);
    assert!(changes[1].contains("--snapshot --setactivationskip n") && changes[1].ends_with("lab/vmio-data"));
    assert_eq!(bed.lvs(), ["pool", "vmio-monday"]);
    bed.group.lock().unwrap().zeroing = "twi-aot---";
    assert!(matches!(pool.create(&data, 4096), Err(Error::Lvm(LvmError::NotZeroed { .. }))));
}

/// What another user of the group left on its disks is no guest's to read.
#[test]
fn a_thick_volume_is_zeros_before_it_is_one() {
    let bed = Bed::new();
    let pool = bed.pool("lvm:lab", "a");
    let data = name("data");
    for end in ["lvchange", "lvcreate"] {
        bed.fails_at(Some(end));
        assert!(matches!(pool.create(&data, EXTENT), Err(Error::Lvm(LvmError::Tool { .. }))), "{end}");
        assert!(pool.list().unwrap().is_empty());
        assert_eq!(bed.lvs(), ["pool"], "{end}");
    }
    // Ended, and not even taken back.
    let left = Row {
        lv: "vmio-left".into(),
        tags: BTreeSet::from(["vmio.unfinished".into(), owner(&bed)]),
        bytes: EXTENT,
        ..Row::default()
    };
    fs::write(bed.group.lock().unwrap().device(&left.lv), vec![7; 4 << 20]).unwrap();
    bed.group.lock().unwrap().rows.push(left);
    bed.fails_at(None);
    assert!(matches!(pool.delete(&name("left")), Err(Error::Missing(_))));
    pool.create(&data, EXTENT).unwrap();
    assert_eq!(bed.lvs(), ["pool", "vmio-data"]);
    assert!(bed.bytes("vmio-data").iter().all(|byte| *byte == 0));
    assert!(matches!(pool.snapshot(&data, &name("b")), Err(Error::Lvm(LvmError::Thick { .. }))));
    assert!(matches!(pool.create(&name("big"), 1 << 40), Err(Error::NoSpace { .. })));
    assert!(matches!(pool.resize(&data, 1 << 40), Err(Error::NoSpace { .. })));
    bed.group.lock().unwrap().attributes = "wz--ns";
    assert!(matches!(pool.create(&name("b"), EXTENT), Err(Error::Lvm(LvmError::Shared { .. }))));
}

/// LVM removes those with their origin.
#[test]
fn a_volume_of_which_lvm_has_a_snapshot_is_not_deleted() {
    let bed = Bed::new();
    let pool = bed.pool("lvm:lab", "a");
    let data = name("data");
    pool.create(&data, EXTENT).unwrap();
    let row = Row { lv: "backup".into(), bytes: EXTENT, origin: "vmio-data".into(), ..Row::default() };
    bed.group.lock().unwrap().rows.push(row);
    assert!(matches!(pool.delete(&data), Err(Error::Lvm(LvmError::Snapshot { .. }))));
    bed.group.lock().unwrap().rows.retain(|row| row.lv != "backup");
    pool.delete(&data).unwrap();
    assert_eq!(bed.lvs(), ["pool"]);
}

/// The tag of whom the records in `a` belong to.
fn owner(bed: &Bed) -> String {
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let random = fs::read_to_string(bed.dir.path().join("a/.owner")).unwrap();
    format!("vmio.owner={}.{random}", machine.trim())
}

#[test]
fn a_thick_volume_that_grew_half_is_nobodys_until_the_rest_is_zeros() {
    let bed = Bed::new();
    let pool = bed.pool("lvm:lab", "a");
    let data = name("data");
    pool.create(&data, EXTENT).unwrap();
    bed.fails_at(Some("lvchange --deltag"));
    assert!(matches!(pool.resize(&data, 2 * EXTENT), Err(Error::Lvm(LvmError::Tool { .. }))));
    bed.fails_at(None);
    let holder = Holder::of("web1", std::process::id()).unwrap();
    assert!(matches!(pool.claim(&data, &holder), Err(Error::Lvm(LvmError::Growing(_)))));
    assert_eq!(pool.list().unwrap()[0].bytes, EXTENT);
    assert!(!pool.has_changed(&data, EXTENT), "a server goes on with the earlier size");
    assert_eq!(pool.resize(&data, 2 * EXTENT).unwrap().bytes, 2 * EXTENT);
    assert!(pool.has_changed(&data, EXTENT));
    assert!(bed.bytes("vmio-data").iter().all(|byte| *byte == 0));
    let claimed = pool.claim(&data, &holder).unwrap();
    // The same while a guest has it.
    bed.fails_at(Some("lvchange --deltag"));
    assert!(pool.grow_attached(&data, &claimed, 3 * EXTENT).is_err());
    bed.fails_at(None);
    assert_eq!(pool.grow_attached(&data, &claimed, 3 * EXTENT).unwrap().bytes, 3 * EXTENT);
    assert!(matches!(pool.delete(&data), Err(Error::Attached { .. })));
}

#[test]
fn what_is_not_this_pools_is_never_touched() {
    let bed = Bed::new();
    let (own, other) = (bed.pool("lvmthin:lab/pool", "a"), bed.pool("lvmthin:lab/pool", "b"));
    let (data, plain) = (name("data"), name("plain"));
    own.create(&data, EXTENT).unwrap();
    let row = Row { lv: "vmio-plain".into(), bytes: EXTENT, pool: "pool".into(), ..Row::default() };
    fs::write(bed.group.lock().unwrap().device(&row.lv), vec![7; 4 << 20]).unwrap();
    bed.group.lock().unwrap().rows.push(row);
    bed.changes();
    let holder = Holder::of("web1", std::process::id()).unwrap();
    let all = |pool: &Pool, name: &Name| {
        [
            pool.create(name, EXTENT).map(drop),
            pool.claim(name, &holder).map(drop),
            pool.snapshot(name, &super::tests::name("c")).map(drop),
            pool.resize(name, 2 * EXTENT).map(drop),
            pool.delete(name),
        ]
    };
    let of_other = all(&other, &data);
    let is_of_other = |refused: &Result<()>| matches!(refused, Err(Error::Lvm(LvmError::OfOther { .. })));
    assert!(of_other.iter().all(is_of_other), "{of_other:?}");
    let strange = all(&own, &plain);
    let is_strange = |refused: &Result<()>| matches!(refused, Err(Error::Lvm(LvmError::Stranger { .. })));
    assert!(strange.iter().all(is_strange), "{strange:?}");
    assert!(other.list().unwrap().is_empty() && other.attached().unwrap().is_empty());
    assert_eq!(bed.changes(), [""; 0]);
    // The same records, and the thick volumes of the group: nothing of the thin pool's.
    let thick = bed.pool("lvm:lab", "a");
    assert!(thick.list().unwrap().is_empty());
    assert_eq!(own.list().unwrap().len(), 1);
}
