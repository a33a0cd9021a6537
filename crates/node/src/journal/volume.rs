//! Volumes that vmio made in an LVM volume group, a ZFS pool or a Ceph pool, and how they are taken away. Each bears a
//! mark that its own system keeps with it: an LVM tag (lvm(8)), a ZFS user property (zfsprops(7), "User Properties"),
//! metadata of an RBD image (rbd(8), `image-meta`), or the owner's random number in its name until it has that. A
//! volume without the owner's mark is never removed, whatever its name; one that is not there is no failure. A volume
//! whose group or pool cannot be asked may be there still, so that is one.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::journal::error::{NotUndone, VolumeFailure};
use crate::{Exec, Local};

/// ZFS user property that names the owner of a volume.
pub const ZFS_OWNER: &str = "org.vmio:owner";
/// Key of the RBD image's metadata that names its owner.
pub const RBD_OWNER: &str = "org.vmio.owner";
/// Prefix of vmio's volumes.
const PREFIX: &str = "vmio-";
/// A tool that takes longer waits for storage that does not answer.
const TOOL_LIMIT: Duration = Duration::from_secs(60);
/// How long a volume that is still in use is tried again.
const BUSY_LIMIT: Duration = Duration::from_secs(10);
/// Directories that a user's `PATH` often lacks.
const SBIN: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// What keeps a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeKind {
    /// A logical volume, thick or thin.
    Lvm,
    /// A ZFS volume.
    Zvol,
    /// A Ceph RBD image, with the kernel's mapping of it if there is one.
    Rbd,
}

/// A volume that vmio makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// What keeps it.
    pub kind: VolumeKind,
    /// `vg/vmio-…`, `pool/data/vmio-…`, `pool/vmio-…`.
    pub name: String,
    /// The mark that it bears.
    pub tag: String,
    /// Options of the tool that say which cluster is meant (`--conf FILE`, `--id USER`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// Output of a tool.
type ToolResult = Result<String, VolumeFailure>;

impl Volume {
    /// Removes it with the system's own tools.
    pub(crate) fn undo(&self) -> Result<(), NotUndone> {
        self.remove(&|program, args| {
            let exec = tool(program, args);
            // Without the owner's mark: its processes have been ended by now.
            let output = Local::new().exec_gently(&exec).map_err(VolumeFailure::NotRun)?;
            if output.ok() {
                return Ok(output.out());
            }
            let stderr = output.err().trim().to_owned();
            Err(VolumeFailure::Tool { command: exec.shown(), end: output.end, stderr })
        })
    }

    fn remove(&self, run: &dyn Fn(&str, &[String]) -> ToolResult) -> Result<(), NotUndone> {
        let own = || Box::new(self.clone());
        let failed = |why| NotUndone::Volume { volume: own(), why };
        let (parent, last) = self.name.rsplit_once('/').ok_or_else(|| failed(VolumeFailure::NoParent))?;
        if !last.starts_with(PREFIX) || self.tag.is_empty() {
            return Err(NotUndone::NoVolumeOfOurs(own()));
        }
        let until = Instant::now() + BUSY_LIMIT;
        loop {
            match self.mark(parent, last, run).map_err(failed)? {
                None => return Ok(()),
                Some(marks) if self.is_ours(&marks, last) => {}
                Some(_) => return Err(NotUndone::OthersVolume(own())),
            }
            match self.destroy(run) {
                // Looked at once more: what a tool says is not what is there.
                Ok(_) if self.mark(parent, last, run).map_err(failed)?.is_none() => return Ok(()),
                Ok(_) if Instant::now() >= until => return Err(failed(VolumeFailure::StillThere)),
                Err(e) if Instant::now() >= until || !busy(&e) => return Err(failed(e)),
                _ => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// Whether a volume with these marks is the one that was made. An RBD image gets its mark a moment
    /// after it is made: one that has none yet is known by the random number in its name (64 bits).
    fn is_ours(&self, marks: &[String], last: &str) -> bool {
        let named =
            last.strip_prefix(PREFIX).and_then(|l| l.strip_prefix(&self.tag)).is_some_and(|l| l.starts_with('-'));
        marks.contains(&self.tag) || (self.kind == VolumeKind::Rbd && marks.is_empty() && named)
    }

    /// The command that removes it.
    pub(crate) fn removal(&self) -> String {
        let (program, args) = self.removing();
        Exec::new(program).args(args).shown()
    }

    fn removing(&self) -> (&'static str, Vec<String>) {
        match self.kind {
            VolumeKind::Lvm => ("lvremove", words(&["--yes", &self.name])),
            // Without -r: whatever was put below it belongs to somebody else.
            VolumeKind::Zvol => ("zfs", words(&["destroy", &self.name])),
            VolumeKind::Rbd => ("rbd", self.with_options(&["rm", "--no-progress", &self.name])),
        }
    }

    /// The marks of a volume; `None` when its group or pool has no such volume.
    fn mark(
        &self,
        parent: &str,
        last: &str,
        run: &dyn Fn(&str, &[String]) -> ToolResult,
    ) -> Result<Option<Vec<String>>, VolumeFailure> {
        let output = |of: &'static str| move |source| VolumeFailure::Output { of, source };
        match self.kind {
            VolumeKind::Lvm => {
                let text = run("lvs", &words(&["--reportformat", "json", "-o", "lv_name,lv_tags", parent]))?;
                let doc: Value = serde_json::from_str(&text).map_err(output("lvs"))?;
                let rows = doc["report"][0]["lv"].as_array().ok_or(VolumeFailure::NoList)?;
                let row = rows.iter().find(|r| r["lv_name"] == last);
                Ok(row.map(|r| r["lv_tags"].as_str().unwrap_or("").split(',').map(str::to_owned).collect()))
            }
            VolumeKind::Zvol => {
                let columns = format!("name,{ZFS_OWNER}");
                let text = run("zfs", &words(&["list", "-H", "-t", "volume", "-d", "1", "-o", &columns, parent]))?;
                let row = text.lines().filter_map(|l| l.split_once('\t')).find(|(name, _)| *name == self.name);
                Ok(row.map(|(_, owner)| vec![owner.trim().to_owned()]))
            }
            VolumeKind::Rbd => {
                let text = run("rbd", &self.with_options(&["ls", "--format", "json", parent]))?;
                let images: Vec<String> = serde_json::from_str(&text).map_err(output("rbd ls"))?;
                if !images.iter().any(|image| image == last) {
                    return Ok(None);
                }
                let text = run("rbd", &self.with_options(&["image-meta", "list", "--format", "json", &self.name]))?;
                let meta: Value = serde_json::from_str(&text).unwrap_or_default();
                Ok(Some(meta[RBD_OWNER].as_str().map(str::to_owned).into_iter().collect()))
            }
        }
    }

    fn destroy(&self, run: &dyn Fn(&str, &[String]) -> ToolResult) -> ToolResult {
        if self.kind == VolumeKind::Rbd {
            let mapped = run("rbd", &self.with_options(&["showmapped", "--format", "json"])).unwrap_or_default();
            for device in rbd_devices(&mapped, &self.name) {
                run("rbd", &self.with_options(&["unmap", &device]))?;
            }
        }
        let (program, args) = self.removing();
        run(program, &args)
    }

    fn with_options(&self, args: &[&str]) -> Vec<String> {
        self.options.iter().cloned().chain(words(args)).collect()
    }
}

impl std::fmt::Display for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            VolumeKind::Lvm => "logical volume",
            VolumeKind::Zvol => "ZFS volume",
            VolumeKind::Rbd => "RBD image",
        };
        write!(f, "{kind} {}", self.name)
    }
}

/// A tool of the system's, also where a user's `PATH` lacks its directory, and in words that do not depend on the user.
pub(crate) fn tool(program: &str, args: &[String]) -> Exec {
    let mut exec = Exec::new(program).args(args.iter().cloned()).limit(TOOL_LIMIT);
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".into());
    exec.env.insert("PATH".into(), format!("{path}:{SBIN}"));
    exec.env.insert("LC_ALL".into(), "C".into());
    exec
}

fn words(args: &[&str]) -> Vec<String> {
    args.iter().map(|&a| a.to_owned()).collect()
}

/// Whether a tool complains that somebody still has the volume open (lvremove, zfs, rbd).
fn busy(failure: &VolumeFailure) -> bool {
    let VolumeFailure::Tool { stderr, .. } = failure else { return false };
    ["in use", "busy", "watchers"].iter().any(|word| stderr.contains(word))
}

/// Devices that an image is mapped to, from `rbd showmapped --format json`: a list (Ceph 14 and
/// newer), or an object by number before that.
fn rbd_devices(text: &str, name: &str) -> Vec<String> {
    let doc: Value = serde_json::from_str(text).unwrap_or_default();
    let rows: Vec<&Value> = match &doc {
        Value::Array(list) => list.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => vec![],
    };
    let is = |row: &&&Value| {
        name.split_once('/')
            .is_some_and(|(pool, image)| row["pool"] == pool && (row["name"] == image || row["image"] == image))
    };
    rows.iter().filter(is).filter_map(|r| r["device"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::{Cell, RefCell};

    use super::*;

    const NAMES: [(VolumeKind, &str); 3] =
        [(VolumeKind::Lvm, "vg0/vmio-x"), (VolumeKind::Zvol, "tank/vm/vmio-x"), (VolumeKind::Rbd, "rbd/vmio-x")];

    /// A system that keeps one volume, as its tools show it.
    struct System {
        there: Cell<bool>,
        mark: Cell<&'static str>,
        /// How often removing still fails because the volume is in use.
        busy: Cell<u32>,
        mapped: Cell<bool>,
        parent: bool,
        ran: RefCell<Vec<String>>,
    }

    fn complains(stderr: &str) -> ToolResult {
        Err(VolumeFailure::Tool { command: "a tool".into(), end: crate::End::Exit(5), stderr: stderr.into() })
    }

    impl System {
        fn of(there: bool, mark: &'static str) -> Self {
            Self {
                there: Cell::new(there),
                mark: Cell::new(mark),
                busy: Cell::new(0),
                mapped: Cell::new(there),
                parent: true,
                ran: RefCell::default(),
            }
        }

        fn run(&self, program: &str, args: &[String]) -> ToolResult {
            let line = format!("{program} {}", args.join(" "));
            self.ran.borrow_mut().push(line.clone());
            if !self.parent {
                return complains("Volume group \"vg0\" not found; cannot open 'tank/vm'; error opening pool 'rbd'");
            }
            let there = self.there.get();
            Ok(match line.as_str() {
                l if l.starts_with("lvs ") => {
                    let row = format!(r#"{{"lv_name":"vmio-x", "lv_tags":"other,{}"}}"#, self.mark.get());
                    let row = if there { row } else { String::new() };
                    format!(r#"{{"report": [{{"lv": [{row}]}}]}}"#)
                }
                l if l.starts_with("zfs list") => {
                    let row = if there { format!("tank/vm/vmio-x\t{}\n", self.mark.get()) } else { String::new() };
                    format!("tank/vm/vmio-xx\tsomebody\n{row}")
                }
                l if l.contains("rbd --id u ls") => if there { r#"["vmio-x","a"]"# } else { r#"["a"]"# }.into(),
                l if l.contains("image-meta list") => format!(r#"{{"{RBD_OWNER}":"{}"}}"#, self.mark.get()),
                l if l.contains("showmapped") && self.mapped.get() => {
                    r#"[{"id":"0","pool":"rbd","namespace":"","name":"vmio-x","snap":"-","device":"/dev/rbd7"}]"#.into()
                }
                l if l.contains("showmapped") => "[]".into(),
                l if l.contains("unmap /dev/rbd7") => {
                    self.mapped.set(false);
                    String::new()
                }
                l if l.contains("lvremove") || l.contains("zfs destroy") || l.contains(" rm ") => {
                    if self.busy.get() > 0 {
                        self.busy.set(self.busy.get() - 1);
                        return complains("Logical volume vg0/vmio-x in use.");
                    }
                    assert!(!l.contains("rbd") || !self.mapped.get(), "a mapped image cannot be removed");
                    self.there.set(false);
                    String::new()
                }
                other => panic!("not expected: {other}"),
            })
        }

        fn removing(&self, kind: VolumeKind, name: &str) -> Result<(), NotUndone> {
            let options = if kind == VolumeKind::Rbd { words(&["--id", "u"]) } else { vec![] };
            let volume = Volume { kind, name: name.into(), tag: "me".into(), options };
            volume.remove(&|program, args| self.run(program, args))
        }
    }

    #[test]
    fn marked_volumes_are_removed() {
        for (kind, name) in NAMES {
            let system = System::of(true, "me");
            system.busy.set(1);
            system.removing(kind, name).unwrap();
            assert!(!system.there.get(), "{name}");
            let ran = system.ran.borrow().len();
            system.removing(kind, name).unwrap();
            assert_eq!(system.ran.borrow().len(), ran + 1, "{name}: only looked");
        }
    }

    #[test]
    fn unmarked_volumes_stay() {
        for (kind, name) in NAMES {
            for mark in ["", "-", "me-too", "somebody"] {
                let system = System::of(true, mark);
                let error = system.removing(kind, name).unwrap_err().to_string();
                assert!(error.contains("not touched"), "{name} {mark}: {error}");
                assert!(system.there.get());
            }
            let system = System::of(true, "me");
            let error = system.removing(kind, &name.replace("vmio-", "vm-")).unwrap_err().to_string();
            assert!(error.contains("not touched"), "{error}");
            assert!(system.there.get() && system.ran.borrow().is_empty());
        }
    }

    #[test]
    fn unmarked_rbd_image_is_known_by_its_name() {
        for (tag, name, kind, ours) in [
            ("me", "rbd/vmio-me-rbd", VolumeKind::Rbd, true),
            ("me", "rbd/vmio-me2-rbd", VolumeKind::Rbd, false),
            ("you", "rbd/vmio-me-rbd", VolumeKind::Rbd, false),
            ("me", "vg0/vmio-me-lvm", VolumeKind::Lvm, false),
        ] {
            let volume = Volume { kind, name: name.into(), tag: tag.into(), options: vec![] };
            let last = name.split_once('/').unwrap().1;
            assert_eq!(volume.is_ours(&[], last), ours, "{name} {tag}");
            assert!(!volume.is_ours(&["somebody".into()], last), "{name}: another mark counts more than a name");
        }
        // As the tools tell it: an image without any metadata.
        let there = Cell::new(true);
        let volume =
            Volume { kind: VolumeKind::Rbd, name: "rbd/vmio-me-rbd".into(), tag: "me".into(), options: vec![] };
        volume
            .remove(&|_, args| {
                Ok(match args[0].as_str() {
                    "ls" if there.get() => r#"["vmio-me-rbd"]"#.into(),
                    "ls" | "showmapped" => "[]".into(),
                    "image-meta" => "{}".into(),
                    "rm" => {
                        there.set(false);
                        String::new()
                    }
                    other => panic!("not expected: {other}"),
                })
            })
            .unwrap();
        assert!(!there.get());
    }

    #[test]
    fn unreachable_group_is_a_failure() {
        for (kind, name) in NAMES {
            let system = System { parent: false, ..System::of(true, "me") };
            let error = system.removing(kind, name).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("not found"), "{error}");
            let by_hand = [
                "`lvremove --yes vg0/vmio-x`",
                "`zfs destroy tank/vm/vmio-x`",
                "`rbd --id u rm --no-progress rbd/vmio-x`",
            ];
            assert!(by_hand.iter().any(|command| error.contains(command)), "{error}");
        }
    }

    #[test]
    fn mapped_images_of_both_formats() {
        let list = r#"[{"pool":"rbd","name":"a","device":"/dev/rbd0"},{"pool":"p","name":"a","device":"/dev/rbd1"}]"#;
        assert_eq!(rbd_devices(list, "p/a"), ["/dev/rbd1"]);
        let map = r#"{"0":{"pool":"rbd","name":"a","snap":"-","device":"/dev/rbd0"}}"#;
        assert_eq!(rbd_devices(map, "rbd/a"), ["/dev/rbd0"]);
        assert_eq!(rbd_devices("", "rbd/a"), Vec::<String>::new());
    }
}
