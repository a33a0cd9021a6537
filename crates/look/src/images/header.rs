//! The header of a qcow2 image (QEMU, docs/interop/qcow2.txt). It is parsed here and not by a program that opens
//! images, since the guest's owner can write any file name into it.

use std::path::Path;

use crate::images::info::{Error, Image};

/// Bytes that are read of an image. The header, its extensions and the backing file's name lie in the first cluster;
/// `qemu-img` writes them into its first few hundred bytes.
pub const HEADER_BYTES: usize = 64 << 10;

const MAGIC: &[u8] = b"QFI\xfb";
/// Length of the header of version 2.
const V2_BYTES: u32 = 72;
/// Longest name of a backing file.
const NAME_BYTES: u32 = 1023;
/// Clusters of 512 bytes to 2 MiB.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;

/// Incompatible features of version 3.
const CORRUPT: u64 = 1 << 1;
const DATA_FILE: u64 = 1 << 2;
const EXTENDED_L2: u64 = 1 << 4;

/// Extensions of the header.
const END: u32 = 0;
const BACKING_FORMAT: u32 = 0xe279_2aca;
const DATA_FILE_NAME: u32 = 0x4441_5441;

/// An image, and its external data file.
#[derive(Debug, PartialEq)]
pub struct Header {
    /// The fields of the header; `allocated_bytes` is 0.
    pub image: Image,
    /// Name of the external data file.
    pub data_file: Option<String>,
}

/// Parses the start of an image.
///
/// # Errors
/// When it is no qcow2 image, or its header is invalid.
pub fn qcow2(path: &Path, start: &[u8]) -> Result<Header, Error> {
    let wrong = |what: &str| Error::NotReadable {
        path: path.into(),
        why: what.to_owned(),
        mend: Some("check that the format in the guest's configuration is that of the file".into()),
    };
    let word = |at: usize| Some(u32::from_be_bytes(start.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_be_bytes(start.get(at..at.checked_add(8)?)?.try_into().ok()?));
    if !start.starts_with(MAGIC) {
        return Err(wrong("it does not begin as a qcow2 image does"));
    }
    let short = || wrong("its header is cut off");
    let version = word(4).ok_or_else(short)?;
    let (incompatible, length) = match version {
        2 => (0, V2_BYTES),
        3 => (long(72).ok_or_else(short)?, word(100).ok_or_else(short)?),
        _ => return Err(wrong(&format!("its qcow2 version {version} is unknown to vmio"))),
    };
    let bits = word(20).ok_or_else(short)?;
    if !CLUSTER_BITS.contains(&bits) {
        return Err(wrong("its header names a size of clusters that is none"));
    }
    let text = |at: usize, length: usize| {
        let bytes = start.get(at..at.checked_add(length)?)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let (name_at, name_bytes) = (long(8).ok_or_else(short)?, word(16).ok_or_else(short)?);
    let backing = match name_at {
        0 => None,
        _ if name_bytes > NAME_BYTES => return Err(wrong("the name of the file below it is too long")),
        _ => {
            let name = usize::try_from(name_at).ok().and_then(|at| text(at, name_bytes as usize));
            Some(name.ok_or_else(|| wrong("the name of the file below it is not where others have it"))?)
        }
    };
    let (mut backing_format, mut data_file) = (None, None);
    let mut at = length as usize;
    while let (Some(kind), Some(bytes)) = (word(at), at.checked_add(4).and_then(word)) {
        if kind == END {
            break;
        }
        let Some(value) = text(at + 8, bytes as usize) else { break };
        match kind {
            BACKING_FORMAT => backing_format = Some(value),
            DATA_FILE_NAME => data_file = Some(value),
            _ => {}
        }
        // Each extension is padded to a multiple of 8 bytes.
        at += 8 + (bytes as usize).next_multiple_of(8);
    }
    let external = incompatible & DATA_FILE != 0;
    Ok(Header {
        image: Image {
            path: path.into(),
            format: "qcow2".into(),
            virtual_bytes: long(24).ok_or_else(short)?,
            allocated_bytes: 0,
            cluster_bytes: Some(1 << bits),
            extended_l2: incompatible & EXTENDED_L2 != 0,
            encrypted: word(32).ok_or_else(short)? != 0,
            corrupt: incompatible & CORRUPT != 0,
            backing: backing.filter(|name| !name.is_empty()),
            backing_format: backing_format.filter(|name| !name.is_empty()),
        },
        data_file: external.then(|| data_file.unwrap_or_else(|| "a file that the guest's configuration names".into())),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stderr)]
pub mod tests {
    use super::*;

    /// The start of a version 3 image of 1 GiB over `backing`.
    pub fn made(backing: Option<(&str, Option<&str>)>) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, MAGIC);
        put(4, &3u32.to_be_bytes());
        put(20, &16u32.to_be_bytes());
        put(24, &(1u64 << 30).to_be_bytes());
        put(100, &104u32.to_be_bytes());
        if let Some((name, format)) = backing {
            put(8, &256u64.to_be_bytes());
            put(16, &(name.len() as u32).to_be_bytes());
            put(256, name.as_bytes());
            if let Some(format) = format {
                put(104, &BACKING_FORMAT.to_be_bytes());
                put(108, &(format.len() as u32).to_be_bytes());
                put(112, format.as_bytes());
            }
        }
        bytes
    }

    #[test]
    fn a_header_is_read_and_what_is_none_is_refused() {
        let path = Path::new("/i/a");
        let image = qcow2(path, &made(Some(("/i/b", Some("qcow2"))))).unwrap().image;
        assert_eq!((image.virtual_bytes, image.cluster_bytes), (1 << 30, Some(65536)));
        assert_eq!((image.backing.as_deref(), image.backing_format.as_deref()), (Some("/i/b"), Some("qcow2")));
        assert_eq!(qcow2(path, &made(None)).unwrap().image.backing, None);
        let said = |bytes: &[u8]| qcow2(path, bytes).unwrap_err().to_string();
        assert!(said(b"root:$6$secret:::").contains("does not begin as"));
        assert!(!said(b"root:$6$secret:::").contains("secret"), "its contents are not shown");
        assert!(said(&made(None)[..60]).contains("cut off"));
    }

    /// Any bytes: no panic, no long loop.
    #[test]
    fn no_header_does_harm() {
        let good = made(Some(("/i/b", Some("raw"))));
        for at in 0..140 {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = qcow2(Path::new("/i/a"), &bad);
                bad[at..at + 8].fill(value);
                let _ = qcow2(Path::new("/i/a"), &bad);
            }
        }
        for length in 0..good.len() {
            let _ = qcow2(Path::new("/i/a"), &good[..length]);
        }
    }

    /// Compared with `qemu-img info` of images that it made.
    #[test]
    fn it_says_what_qemu_img_says() {
        use std::process::Command;
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base.raw");
        std::fs::File::create(&base).unwrap().set_len(3 << 20).unwrap();
        let below = ["-F", "raw", "-b", base.to_str().unwrap()];
        let kinds: [&[&str]; 7] = [
            &[],
            &["-o", "compat=0.10"],
            &["-o", "cluster_size=2M,extended_l2=on"],
            &["-o", "cluster_size=512"],
            &below,
            &["-o", "compat=0.10", "-F", "raw", "-b", "base.raw"],
            &["-o", "compression_type=zstd,lazy_refcounts=on"],
        ];
        for kind in kinds {
            let path = dir.path().join("a.qcow2");
            let create = || {
                Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).args(kind).arg(&path).arg("5M").status()
            };
            let made = create();
            if !made.is_ok_and(|s| s.success()) {
                eprintln!("  SKIPPED: {kind:?}: this qemu-img does not make it, or there is none");
                continue;
            }
            let theirs = Command::new("qemu-img").args(["info", "--output=json"]).arg(&path).output().unwrap().stdout;
            let mut theirs = crate::images::info::parse(&path, &String::from_utf8(theirs).unwrap()).unwrap();
            theirs.allocated_bytes = 0;
            let mut ours = qcow2(&path, &std::fs::read(&path).unwrap()).unwrap().image;
            // `qemu-img` makes the backing file's name absolute.
            ours.backing = ours.backing.map(|name| dir.path().join(name).display().to_string());
            assert_eq!(ours, theirs, "{kind:?}");
        }
        let path = dir.path().join("b.qcow2");
        let data = format!("data_file={}", dir.path().join("b.data").display());
        let made =
            Command::new("qemu-img").args(["create", "-q", "-f", "qcow2", "-o", &data]).arg(&path).arg("5M").status();
        if made.is_ok_and(|s| s.success()) {
            let header = qcow2(&path, &std::fs::read(&path).unwrap()).unwrap();
            assert!(header.data_file.unwrap().ends_with("b.data"));
        }
    }
}
