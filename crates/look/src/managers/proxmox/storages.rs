//! The storages of Proxmox VE, by `/etc/pve/storage.cfg` (Proxmox VE Administration Guide, "Storage"). The only reader
//! of that file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vmio_node::Reader;
use vmio_node::linux::{mounts, system};

/// Where Proxmox VE keeps its list of storages.
pub const CONFIG: &str = "/etc/pve/storage.cfg";

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
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(String::as_str)
    }

    fn lists(&self, key: &str, word: &str) -> Option<bool> {
        Some(self.get(key)?.split(',').any(|w| w.trim() == word))
    }

    /// Whether a flag is set; a key without a value is.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value != "0")
    }

    /// Whether disk images may be stored on it; the default is yes.
    fn holds_images(&self) -> bool {
        self.lists("content", "images").unwrap_or(true)
    }

    /// Whether it can be used on this host.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn usable(&self, host: &str) -> std::result::Result<(), (String, String)> {
        let id = &self.id;
        if self.flag("disable") {
            return Err(("it is disabled in Proxmox VE".into(), format!("pvesm set {id} --disable 0")));
        }
        if self.lists("nodes", host) == Some(false) {
            let why = format!("Proxmox VE has it only on {}, this is {host}", self.get("nodes").unwrap_or_default());
            return Err((why, "run vmio on one of these, or use another storage".into()));
        }
        if !self.holds_images() {
            let why = format!("it holds {} and no disk images", self.get("content").unwrap_or_default());
            return Err((why, format!("use another storage, or pvesm set {id} --content images,… ")));
        }
        Ok(())
    }

    /// Directory of a storage that is a file system.
    pub fn path(&self) -> Option<PathBuf> {
        let path = match self.kind.as_str() {
            "dir" | "btrfs" => PathBuf::from(self.get("path")?),
            // Proxmox VE mounts it there by default.
            "nfs" | "cifs" => self.get("path").map_or_else(|| Path::new("/mnt/pve").join(&self.id), PathBuf::from),
            _ => return None,
        };
        Some(path)
    }

    /// Directory of its disk images (`content-dirs` may name another one than `images`).
    pub fn images(&self, path: &Path) -> PathBuf {
        let dirs = self.get("content-dirs").unwrap_or_default().split(',');
        let named = dirs.filter_map(|d| d.trim().split_once('=')).find(|(content, _)| content.trim() == "images");
        path.join(named.map_or("images", |(_, dir)| dir.trim().trim_start_matches('/')))
    }

    /// Where a file system must be mounted for it: without that its directory lies on the host's own disk
    /// (`is_mountpoint` is a boolean, or that directory).
    fn mount_point(&self) -> Option<PathBuf> {
        match (self.kind.as_str(), self.get("is_mountpoint")) {
            ("nfs" | "cifs", _) | ("dir" | "btrfs", Some("" | "1" | "yes" | "on" | "true")) => self.path(),
            ("dir" | "btrfs", Some(point)) if point.starts_with('/') => Some(point.into()),
            _ => None,
        }
    }

    /// The mount point, where nothing is mounted although it should be.
    pub fn unmounted(&self, reader: &dyn Reader) -> Option<PathBuf> {
        let point = self.mount_point()?;
        let mounts = mounts::own(reader).unwrap_or_default();
        mounts.iter().all(|m| Path::new(&m.point) != point).then_some(point)
    }
}

/// All storages of this host's cluster; empty without Proxmox VE.
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

/// Parses `TYPE: ID`, followed by indented lines of key and value; a flag has no value.
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

/// Name of this host in its cluster.
pub fn host_name(reader: &dyn Reader) -> String {
    let name = system::sysctl(reader, "kernel.hostname").unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_owned()
}
