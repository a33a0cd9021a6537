//! What an image in a store is: its size, its SHA-256, and that of each part.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::https::shown;

/// Smallest part. One of 5 MiB is the least that S3 takes; the larger, the fewer requests, the smaller, the less is sent
/// twice.
const PART_BYTES: u64 = 16 << 20;
/// Most parts of an upload (Amazon S3 User Guide, "Amazon S3 multipart upload limits").
pub(super) const MOST_PARTS: u64 = 10_000;
/// Largest part of an upload (the same).
const MOST_PART_BYTES: u64 = 5 << 30;
/// Longest manifest: [`MOST_PARTS`] digests have 670 KB.
pub(super) const MOST_BYTES: u64 = 1 << 20;
/// What the name of a manifest adds to that of its image.
pub(super) const END: &str = ".vmio.json";
const VERSION: &str = "1.0";
/// Most letters that are shown of what is wrong with one, which may repeat its content.
const MOST_LETTERS: usize = 200;

/// The manifest of an image in an object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// Version of the manifest.
    pub manifest_version: String,
    /// Size of the image.
    pub size_bytes: u64,
    /// SHA-256 of the whole image, as `sha256sum` prints it.
    pub sha256: String,
    /// Size of each part; the last one may be smaller.
    pub part_bytes: u64,
    /// SHA-256 of each part, in order.
    pub part_sha256: Vec<String>,
}

impl Manifest {
    /// That of an image whose digests are known.
    pub(super) fn new(size_bytes: u64, sha256: String, part_bytes: u64, part_sha256: Vec<String>) -> Self {
        Manifest { manifest_version: VERSION.to_owned(), size_bytes, sha256, part_bytes, part_sha256 }
    }

    /// What a store has as one.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let read: Manifest = serde_json::from_slice(bytes).map_err(|e| shown(&e.to_string(), MOST_LETTERS))?;
        let is_digest = |text: &String| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        if read.manifest_version.split('.').next() != VERSION.split('.').next() {
            return Err("its version is another one's".to_owned());
        }
        if read.size_bytes == 0 || read.part_bytes == 0 {
            return Err("it has a size of zero".to_owned());
        }
        // It has that much more time to come.
        if read.part_bytes > MOST_PART_BYTES {
            return Err("its parts are larger than an upload can have".to_owned());
        }
        if read.part_sha256.len() as u64 != count(read.size_bytes, read.part_bytes) {
            return Err("its parts do not add up to its size".to_owned());
        }
        if !is_digest(&read.sha256) || !read.part_sha256.iter().all(is_digest) {
            return Err("it has a digest that is no SHA-256".to_owned());
        }
        Ok(read)
    }
}

/// The name of the manifest of an image.
pub(super) fn key(image: &str) -> String {
    format!("{image}{END}")
}

/// How large the parts of an image are.
pub(super) fn part_bytes(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(MOST_PARTS).next_multiple_of(1 << 20).max(PART_BYTES)
}

/// How many parts there are.
pub(super) fn count(size_bytes: u64, part_bytes: u64) -> u64 {
    size_bytes.div_ceil(part_bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parts_are_large_enough_for_any_image() {
        assert_eq!(part_bytes(1), PART_BYTES);
        assert_eq!(part_bytes(10 << 30), PART_BYTES);
        for size in [160_u64 << 30, (1 << 40) + 1, 5 << 40] {
            let part = part_bytes(size);
            assert!(count(size, part) <= MOST_PARTS && part.is_multiple_of(1 << 20), "{size}: {part}");
        }
    }

    #[test]
    fn what_is_no_manifest_is_refused() {
        let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let good = Manifest::new(PART_BYTES + 1, digest.into(), PART_BYTES, vec![digest.into(); 2]);
        let read = |manifest: &Manifest| Manifest::read(&serde_json::to_vec(manifest).unwrap());
        assert_eq!(read(&good), Ok(good.clone()));
        assert_eq!(read(&Manifest { manifest_version: "1.7".into(), ..good.clone() }).unwrap().manifest_version, "1.7");
        for bad in [
            Manifest { manifest_version: "2.0".into(), ..good.clone() },
            Manifest { size_bytes: 0, part_sha256: vec![], ..good.clone() },
            Manifest { part_bytes: 0, ..good.clone() },
            Manifest { size_bytes: u64::MAX, ..good.clone() },
            Manifest { part_bytes: 1, ..good.clone() },
            Manifest { part_bytes: MOST_PART_BYTES + 1, part_sha256: vec![digest.into()], ..good.clone() },
            Manifest { sha256: "x".repeat(64), ..good.clone() },
            Manifest { part_sha256: vec![digest.into(), "../".into()], ..good.clone() },
        ] {
            assert!(read(&bad).is_err(), "{bad:?}");
        }
        assert!(Manifest::read(b"<html>").is_err() && Manifest::read(b"{}").is_err());
    }
}
