//! What is in a disk image and in the images below it: of vmio's own images as `qemu-img info` says it, of
//! a guest's images as their headers do (`images/header.rs`), which no program is started for.
//!
//! The backing chain is followed one image at a time, since `qemu-img info --backing-chain` tells
//! nothing at all of a chain that is broken. What breaks one has an error of its own: a file that
//! is gone, a loop, an image that cannot be read, one that is encrypted.
//!
//! L2 tables: QEMU's docs/interop/qcow2.txt (8 bytes a cluster, 16 with extended L2 entries) and
//! docs/qcow2-cache.txt (how much of a disk a cache of them covers).

use std::path::{Path, PathBuf};

use serde::Deserialize;
use vmio_model::facts::Unread;

/// The tool.
pub const QEMU_IMG: &str = "qemu-img";
/// Deeper chains are taken for a mistake.
const DEEPEST: usize = 256;
/// `l2-cache-size` where nobody says it, on Linux, since QEMU 3.1.
pub const DEFAULT_L2_CACHE_BYTES: u64 = 32 << 20;

/// One image of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The file or device, as it was named.
    pub path: PathBuf,
    /// QEMU's name of its format: `qcow2`, `raw`.
    pub format: String,
    /// Size of the disk that a guest sees, in bytes.
    pub virtual_bytes: u64,
    /// Bytes that it takes where it lies.
    pub allocated_bytes: u64,
    /// Cluster size in bytes; `None` for formats without clusters.
    pub cluster_bytes: Option<u64>,
    /// Whether its L2 entries are the extended ones of 16 bytes (QEMU 5.2 and newer).
    pub extended_l2: bool,
    /// Whether its content is encrypted.
    pub encrypted: bool,
    /// Whether QEMU has marked it as corrupt: it opens such an image for reading only.
    pub corrupt: bool,
    /// What lies below it, as QEMU would open it; `None` for the last of a chain.
    pub backing: Option<String>,
    /// Format of what lies below, where the image says it.
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

/// Why an image cannot be used. Says which, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A file of the chain is gone.
    BackingMissing {
        /// The image that needs it.
        overlay: PathBuf,
        /// What it names.
        missing: PathBuf,
    },
    /// The chain comes back to itself.
    BackingLoop {
        /// The image whose backing file was seen before.
        overlay: PathBuf,
        /// That file.
        again: PathBuf,
    },
    /// A format is not stated.
    BackingFormat {
        /// The image that names it.
        overlay: PathBuf,
        /// What it names.
        below: PathBuf,
    },
    /// The image itself is not there.
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// It cannot be read.
    NotReadable {
        /// Which.
        path: PathBuf,
        /// What qemu-img said, or what was seen.
        why: String,
        /// What to do, where that is known.
        mend: Option<String>,
    },
    /// The storage that it lies on gives no answer.
    Hangs {
        /// Which.
        path: PathBuf,
        /// What was seen.
        why: String,
    },
    /// What is in it cannot be told without a key.
    Encrypted {
        /// Which.
        path: PathBuf,
    },
    /// No qemu-img here.
    NoTool,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (why, mend) = self.told();
        f.write_str(&why)?;
        mend.iter().try_for_each(|mend| write!(f, "; {mend}"))
    }
}

impl Error {
    /// As something that could not be read of a guest's disk.
    pub fn unread(&self, path: &Path) -> Unread {
        let (why, mend) = self.told();
        let mend = mend.unwrap_or_else(|| "check whether the guest still needs it".to_owned());
        Unread { what: format!("disk image {}", path.display()), why, mend }
    }

    /// Why, and what to do.
    fn told(&self) -> (String, Option<String>) {
        let cannot = |path: &Path, why: &str| format!("cannot read the image {}: {why}", path.display());
        match self {
            Self::BackingMissing { overlay, missing } => {
                let overlay = overlay.display();
                let mend = format!(
                    "restore it, or, if it was moved, correct the image with `qemu-img rebase -u -F FORMAT -b \
                     NEW-PLACE {overlay}` while no guest uses it"
                );
                (format!("{overlay}: its backing file {} is missing", missing.display()), Some(mend))
            }
            Self::BackingLoop { overlay, again } => (
                format!("{}: its backing chain loops back to {}", overlay.display(), again.display()),
                Some("no guest can open it: restore the right backing file with `qemu-img rebase -u`".to_owned()),
            ),
            Self::BackingFormat { overlay, below } => {
                let (overlay, below) = (overlay.display(), below.display());
                let why = format!(
                    "{overlay}: it does not state the format of its backing file {below}, which is therefore not \
                     opened, since a raw file may contain anything the guest wrote"
                );
                let command = format!("qemu-img rebase -u -F FORMAT -b {below} {overlay}");
                (why, Some(format!("set it with `{command}` while no guest uses it")))
            }
            Self::Missing { path } => (format!("there is no image {}", path.display()), None),
            Self::NotReadable { path, why, mend } => (cannot(path, why), mend.clone()),
            Self::Hangs { path, why } => (cannot(path, why), Some("the storage that it lies on may hang".to_owned())),
            Self::Encrypted { path } => (
                format!("{}: it is encrypted, and vmio has no key for it", path.display()),
                Some("use another image".to_owned()),
            ),
            Self::NoTool => (
                "qemu-img, which reads disk images, is not in PATH".to_owned(),
                Some("apt install qemu-utils (Proxmox includes it)".to_owned()),
            ),
        }
    }
}

/// The members of `qemu-img info --output=json` that matter here (QAPI `ImageInfo`).
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

/// An image from what `qemu-img info --output=json` (one image, no chain) said of it.
///
/// # Errors
/// When that is not its form.
pub fn parse(path: &Path, json: &str) -> Result<Image, Error> {
    let told: QemuImgInfo = serde_json::from_str(json).map_err(|e| Error::NotReadable {
        path: path.into(),
        why: format!("qemu-img's output cannot be parsed ({e})"),
        mend: None,
    })?;
    Ok(Image {
        path: path.into(),
        format: told.format,
        virtual_bytes: told.virtual_size,
        allocated_bytes: told.actual_size,
        cluster_bytes: told.cluster_size,
        extended_l2: told.format_specific.data.extended_l2,
        encrypted: told.encrypted,
        corrupt: told.format_specific.data.corrupt,
        backing: told.full_backing_filename.or(told.backing_filename),
        backing_format: told.backing_filename_format,
    })
}

/// Follows a chain; `look` gives one image of it, and `here` says where this machine has a file
/// that an image names (the images may be seen through the root directory of another process).
///
/// # Errors
/// When one of them is missing, cannot be read, is encrypted or has no stated format, or the chain is a loop.
pub fn follow(
    path: &Path,
    format: Option<&str>,
    look: impl Fn(&Path, Option<&str>) -> Result<Image, Error>,
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
            let mend = Some("see `qemu-img info --backing-chain`".to_owned());
            return Err(Error::NotReadable { path: images.swap_remove(0).path, why, mend });
        }
        let image = match (look(&path, format.as_deref()), overlay) {
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
            // To find it out is to trust what a guest may have written there.
            (Some(below), None) => return Err(Error::BackingFormat { overlay: image.path, below }),
            (None, _) => None,
        };
        images.push(image);
    }
    Ok(images)
}

/// The file below an image; `None` where there is none, or no plain file.
fn below(image: &Image) -> Option<PathBuf> {
    let named = image.backing.as_deref()?;
    // QEMU takes what stands before a colon for a protocol, unless a slash comes first.
    let protocol = named.split('/').next().is_some_and(|first| first.contains(':'));
    let named = match named.strip_prefix("file:") {
        Some(file) => file,
        None if protocol => return None,
        None => named,
    };
    // A relative name counts from the directory of the image that names it.
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

    /// A machine with these images; a file that is not listed is missing.
    fn on(files: &'static [(&'static str, &'static str)]) -> impl Fn(&Path, Option<&str>) -> Result<Image, Error> {
        move |path, _| match files.iter().find(|(name, _)| Path::new(name) == path) {
            Some((_, json)) => parse(path, json),
            None => Err(Error::Missing { path: path.into() }),
        }
    }

    fn follow_all(
        path: &Path,
        look: impl Fn(&Path, Option<&str>) -> Result<Image, Error>,
    ) -> Result<Vec<Image>, Error> {
        follow(path, None, look, &Ok)
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
        assert_eq!(said, "there is no image /i/none");
    }

    #[test]
    fn a_loop_ends() {
        // Recorded names: mid names base; here base's file says what top says, so it names mid.
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
