//! Disk images and their backing chains: vmio's own images by `qemu-img info`, guests' images by their headers
//! (`images/header.rs`), without starting a program.
//!
//! The chain is followed image by image, since `qemu-img info --backing-chain` returns nothing for a broken chain. Each
//! way to break one has an error: a missing file, a loop, an image that is unreadable or encrypted.
//!
//! L2 tables: QEMU's docs/interop/qcow2.txt (8 bytes a cluster, 16 with extended L2 entries) and
//! docs/qcow2-cache.txt (how much of a disk a cache of them covers).

use std::path::{Path, PathBuf};

use serde::Deserialize;
use vmio_model::facts::{Remedy, Unread};

/// The tool.
pub const QEMU_IMG: &str = "qemu-img";
/// Longest chain that is followed.
const DEEPEST: usize = 256;
/// QEMU's default of `l2-cache-size` on Linux, since 3.1.
pub const DEFAULT_L2_CACHE_BYTES: u64 = 32 << 20;

/// One image of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Path of the file or device, as it was named.
    pub path: PathBuf,
    /// QEMU's name of its format: `qcow2`, `raw`.
    pub format: String,
    /// Size of the disk that a guest sees, in bytes.
    pub virtual_bytes: u64,
    /// Allocated bytes.
    pub allocated_bytes: u64,
    /// Cluster size in bytes; `None` for formats without clusters.
    pub cluster_bytes: Option<u64>,
    /// Whether its L2 entries are the extended ones of 16 bytes (QEMU 5.2 and newer).
    pub extended_l2: bool,
    /// Whether its content is encrypted.
    pub encrypted: bool,
    /// Whether QEMU marked it as corrupt, so that it can be opened read-only only.
    pub corrupt: bool,
    /// Backing file as QEMU would open it; `None` for the last of a chain.
    pub backing: Option<String>,
    /// Format of the backing file, where the image states it.
    pub backing_format: Option<String>,
}

impl Image {
    /// Bytes of L2 tables that map all of the disk; `None` for formats that have none.
    pub fn l2_bytes(&self) -> Option<u64> {
        let cluster = self.cluster_bytes.filter(|_| self.format == "qcow2")?;
        l2_bytes(self.virtual_bytes, cluster, self.extended_l2)
    }

    /// Share of the disk, 0 to 1, that a cache of L2 tables of this size maps; `None` for
    /// formats that have none. Below 1 random reads also read tables.
    pub fn l2_coverage_ratio(&self, cache_bytes: u64) -> Option<f64> {
        self.l2_bytes().filter(|&need| need > 0).map(|need| (cache_bytes as f64 / need as f64).min(1.0))
    }
}

/// Bytes of L2 tables of a disk: an entry a cluster.
pub fn l2_bytes(virtual_bytes: u64, cluster_bytes: u64, extended_l2: bool) -> Option<u64> {
    let entry = if extended_l2 { 16 } else { 8 };
    (cluster_bytes > 0).then(|| virtual_bytes.div_ceil(cluster_bytes) * entry)
}

/// Why an image cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A backing file is missing.
    BackingMissing {
        /// The image that needs it.
        overlay: PathBuf,
        /// The backing file.
        missing: PathBuf,
    },
    /// The chain is a loop.
    BackingLoop {
        /// The image whose backing file is already in the chain.
        overlay: PathBuf,
        /// That file.
        again: PathBuf,
    },
    /// An image does not state the format of its backing file.
    BackingFormat {
        /// The image.
        overlay: PathBuf,
        /// The backing file.
        below: PathBuf,
    },
    /// The image itself is missing.
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// It cannot be read.
    NotReadable {
        /// The image.
        path: PathBuf,
        /// Message of qemu-img, or what was found.
        why: String,
        /// What to do, where known.
        mend: Option<Remedy>,
    },
    /// Its storage does not answer.
    Hangs {
        /// The image.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// It is encrypted.
    Encrypted {
        /// The image.
        path: PathBuf,
    },
    /// qemu-img is not installed.
    NoTool,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (why, mend) = self.why_and_remedy();
        f.write_str(&why)?;
        mend.iter().try_for_each(|mend| write!(f, "; {mend}"))
    }
}

impl Error {
    /// As an unread setting of a guest's disk.
    pub fn unread(&self, path: &Path) -> Unread {
        let (why, mend) = self.why_and_remedy();
        let mend = mend.unwrap_or_else(|| "check whether the guest still needs it".into());
        Unread { what: format!("disk image {}", path.display()), why, mend }
    }

    fn why_and_remedy(&self) -> (String, Option<Remedy>) {
        let cannot = |path: &Path, why: &str| format!("cannot read the image {}: {why}", path.display());
        match self {
            Self::BackingMissing { overlay, missing } => {
                let overlay = overlay.display();
                let mend = format!(
                    "restore it, or, if it was moved, correct the image with `qemu-img rebase -u -F FORMAT -b \
                     NEW-PLACE {overlay}` while no guest uses it"
                );
                (format!("{overlay}: its backing file {} is missing", missing.display()), Some(mend.into()))
            }
            Self::BackingLoop { overlay, again } => (
                format!("{}: its backing chain loops back to {}", overlay.display(), again.display()),
                Some("no guest can open it: restore the right backing file with `qemu-img rebase -u`".into()),
            ),
            Self::BackingFormat { overlay, below } => {
                let (overlay, below) = (overlay.display(), below.display());
                let why = format!(
                    "{overlay}: it does not state the format of its backing file {below}, which is therefore not \
                     opened, since a raw file may contain anything the guest wrote"
                );
                let command = format!("qemu-img rebase -u -F FORMAT -b {below} {overlay}");
                (why, Some(format!("set it with `{command}` while no guest uses it").into()))
            }
            Self::Missing { path } => (format!("no such image: {}", path.display()), None),
            Self::NotReadable { path, why, mend } => (cannot(path, why), mend.clone()),
            Self::Hangs { path, why } => (cannot(path, why), Some("the storage that it lies on may hang".into())),
            Self::Encrypted { path } => (
                format!("{}: it is encrypted, and vmio has no key for it", path.display()),
                Some("use another image".into()),
            ),
            Self::NoTool => (
                "qemu-img, which reads disk images, is not in PATH".to_owned(),
                Some("apt install qemu-utils (Proxmox includes it)".into()),
            ),
        }
    }
}

/// The fields of `qemu-img info --output=json` that are used (QAPI `ImageInfo`).
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct QemuImgInfo {
    format: String,
    virtual_size: u64,
    #[serde(default)]
    actual_size: u64,
    cluster_size: Option<u64>,
    #[serde(default)]
    encrypted: bool,
    full_backing_filename: Option<String>,
    backing_filename: Option<String>,
    backing_filename_format: Option<String>,
    #[serde(default)]
    format_specific: Specific,
}

#[derive(Deserialize, Default)]
struct Specific {
    #[serde(default)]
    data: SpecificData,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
struct SpecificData {
    extended_l2: bool,
    corrupt: bool,
}

/// Parses `qemu-img info --output=json` of one image (no chain).
///
/// # Errors
/// When it is not JSON of that shape.
pub fn parse(path: &Path, json: &str) -> Result<Image, Error> {
    let info: QemuImgInfo = serde_json::from_str(json).map_err(|e| Error::NotReadable {
        path: path.into(),
        why: format!("qemu-img's output cannot be parsed ({e})"),
        mend: None,
    })?;
    Ok(Image {
        path: path.into(),
        format: info.format,
        virtual_bytes: info.virtual_size,
        allocated_bytes: info.actual_size,
        cluster_bytes: info.cluster_size,
        extended_l2: info.format_specific.data.extended_l2,
        encrypted: info.encrypted,
        corrupt: info.format_specific.data.corrupt,
        backing: info.full_backing_filename.or(info.backing_filename),
        backing_format: info.backing_filename_format,
    })
}

/// Follows a chain. `read` reads one image, `here` translates a path that an image names to this machine (the images
/// may be seen through another process's root directory).
///
/// # Errors
/// When one of them is missing, cannot be read, is encrypted or has no stated format, or the chain is a loop.
pub fn follow(
    path: &Path,
    format: Option<&str>,
    read: impl Fn(&Path, Option<&str>) -> Result<Image, Error>,
    here: &dyn Fn(PathBuf) -> Result<PathBuf, Error>,
) -> Result<Vec<Image>, Error> {
    let mut images: Vec<Image> = Vec::new();
    let mut next = Some((path.to_owned(), format.map(str::to_owned)));
    while let Some((path, format)) = next {
        let overlay = images.last().map(|i: &Image| i.path.clone());
        if let Some(overlay) = &overlay
            && images.iter().any(|i| i.path == path)
        {
            return Err(Error::BackingLoop { overlay: overlay.clone(), again: path });
        }
        if images.len() >= DEEPEST {
            let why = format!("its chain has more than {DEEPEST} images");
            let mend = Some("see `qemu-img info --backing-chain`".into());
            return Err(Error::NotReadable { path: images.swap_remove(0).path, why, mend });
        }
        let image = match (read(&path, format.as_deref()), overlay) {
            (Err(Error::Missing { path }), Some(overlay)) => {
                return Err(Error::BackingMissing { overlay, missing: path });
            }
            (other, _) => other?,
        };
        if image.encrypted {
            return Err(Error::Encrypted { path });
        }
        next = match (below(&image), image.backing_format.clone()) {
            (Some(below), Some(format)) => Some((here(below)?, Some(format))),
            // Probing the format would trust what a guest may have written there.
            (Some(below), None) => return Err(Error::BackingFormat { overlay: image.path, below }),
            (None, _) => None,
        };
        images.push(image);
    }
    Ok(images)
}

/// Path of the backing file; `None` where there is none, or it is not a plain file.
fn below(image: &Image) -> Option<PathBuf> {
    let named = image.backing.as_deref()?;
    // For QEMU the text before a colon is a protocol, unless a slash comes first.
    let protocol = named.split('/').next().is_some_and(|first| first.contains(':'));
    let named = match named.strip_prefix("file:") {
        Some(file) => file,
        None if protocol => return None,
        None => named,
    };
    // A relative name counts from the image's directory.
    Some(image.path.parent().unwrap_or(Path::new("/")).join(named))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TOP: &str = include_str!("../../tests/fixtures/qemu-img/top.json");
    const MID: &str = include_str!("../../tests/fixtures/qemu-img/mid.json");
    const BASE: &str = include_str!("../../tests/fixtures/qemu-img/base.json");
    const ENCRYPTED: &str = include_str!("../../tests/fixtures/qemu-img/encrypted.json");
    const EXTENDED: &str = include_str!("../../tests/fixtures/qemu-img/extended-l2.json");

    /// Reads these images; others are missing.
    fn on(files: &'static [(&'static str, &'static str)]) -> impl Fn(&Path, Option<&str>) -> Result<Image, Error> {
        move |path, _| match files.iter().find(|(name, _)| Path::new(name) == path) {
            Some((_, json)) => parse(path, json),
            None => Err(Error::Missing { path: path.into() }),
        }
    }

    fn follow_all(
        path: &Path,
        read: impl Fn(&Path, Option<&str>) -> Result<Image, Error>,
    ) -> Result<Vec<Image>, Error> {
        follow(path, None, read, &Ok)
    }

    #[test]
    fn a_chain_is_read_from_top_to_base() {
        let images = follow_all(
            Path::new("/i/top.qcow2"),
            on(&[("/i/top.qcow2", TOP), ("/i/mid.qcow2", MID), ("/i/base.qcow2", BASE)]),
        )
        .unwrap();
        let names: Vec<_> = images.iter().map(|i| i.path.to_str().unwrap()).collect();
        assert_eq!(names, ["/i/top.qcow2", "/i/mid.qcow2", "/i/base.qcow2"]);
        let top = &images[0];
        assert_eq!((top.format.as_str(), top.virtual_bytes, top.cluster_bytes), ("qcow2", 1 << 30, Some(65536)));
        assert_eq!((top.backing_format.as_deref(), images[2].backing.as_deref()), (Some("qcow2"), None));
        assert_eq!(top.allocated_bytes, 200_704);
    }

    #[test]
    fn a_missing_backing_file_is_named_with_its_overlay_and_the_mend() {
        let said = follow_all(Path::new("/i/top.qcow2"), on(&[("/i/top.qcow2", TOP), ("/i/mid.qcow2", MID)]))
            .unwrap_err()
            .to_string();
        assert!(said.starts_with("/i/mid.qcow2: its backing file /i/base.qcow2 is missing"), "{said}");
        assert!(said.contains("qemu-img rebase -u") && said.contains("-b NEW-PLACE /i/mid.qcow2"), "{said}");
        let said = follow_all(Path::new("/i/none"), on(&[])).unwrap_err().to_string();
        assert_eq!(said, "no such image: /i/none");
    }

    #[test]
    fn a_loop_ends() {
        // Here base names mid as its backing file.
        let said = follow_all(Path::new("/i/mid.qcow2"), on(&[("/i/mid.qcow2", MID), ("/i/base.qcow2", TOP)]))
            .unwrap_err()
            .to_string();
        assert!(said.contains("/i/base.qcow2") && said.contains("loops back to /i/mid.qcow2"), "{said}");
    }

    #[test]
    fn encrypted_images_and_strange_answers_are_refused() {
        let said = follow_all(Path::new("/i/e.qcow2"), on(&[("/i/e.qcow2", ENCRYPTED)])).unwrap_err().to_string();
        assert!(said.contains("/i/e.qcow2: it is encrypted"), "{said}");
        let said = parse(Path::new("/i/x"), "[]").unwrap_err().to_string();
        assert!(said.contains("cannot read the image /i/x") && said.contains("cannot be parsed"), "{said}");
    }

    #[test]
    fn l2_tables_of_a_disk_and_how_much_of_it_a_cache_covers() {
        // docs/qcow2-cache.txt: 1 MiB of cache covers 8 GiB with clusters of 64 KiB, and 256 GiB
        // need 32 MiB.
        assert_eq!(l2_bytes(8 << 30, 65536, false), Some(1 << 20));
        assert_eq!(l2_bytes(256 << 30, 65536, false), Some(DEFAULT_L2_CACHE_BYTES));
        let top = parse(Path::new("/i/top.qcow2"), TOP).unwrap();
        assert_eq!(top.l2_bytes(), Some(131_072));
        assert_eq!(top.l2_coverage_ratio(131_072 / 8), Some(0.125));
        assert_eq!(top.l2_coverage_ratio(DEFAULT_L2_CACHE_BYTES), Some(1.0));
        let extended = parse(Path::new("/i/x.qcow2"), EXTENDED).unwrap();
        assert!(extended.extended_l2);
        assert_eq!(extended.l2_bytes(), Some(512 * 16));
        assert_eq!(Image { format: "raw".into(), ..top }.l2_bytes(), None);
    }

    #[test]
    fn what_is_below_and_no_file_is_not_followed() {
        let named = |backing: &str| {
            let image = Image { backing: Some(backing.into()), ..parse(Path::new("/i/top.qcow2"), TOP).unwrap() };
            below(&image)
        };
        assert_eq!(named("json:{\"driver\": \"nbd\"}"), None);
        assert_eq!(named("nbd+unix:///disk?socket=/s"), None);
        assert_eq!(named("rbd:pool/image"), None);
        assert_eq!(named("file:base"), Some("/i/base".into()));
        assert_eq!(named("../b:c"), Some("/i/../b:c".into()));
        assert_eq!(named("/abs/base"), Some("/abs/base".into()));
    }
}
