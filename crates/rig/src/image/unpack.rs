//! Unpacking of compressed kernels and kernel modules, by the programs that every distribution
//! has for its own kernels. The kind is told by the first bytes, never by the name.

use std::path::Path;
use std::time::Duration;

use vmio_look::require::find_program;
use vmio_node::{Exec, Node};

use super::{Error, Result, file_error};

/// How something is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Not at all: an ELF file.
    Plain,
    /// gzip, RFC 1952.
    Gzip,
    /// xz.
    Xz,
    /// zstd, RFC 8878.
    Zstd,
    /// lz4 in the legacy frame that kernels use.
    Lz4,
}

const MAGIC: [(&[u8], Packing); 5] = [
    (b"\x7fELF", Packing::Plain),
    (b"\x1f\x8b", Packing::Gzip),
    (b"\xfd7zXZ\0", Packing::Xz),
    (b"\x28\xb5\x2f\xfd", Packing::Zstd),
    (b"\x02\x21\x4c\x18", Packing::Lz4),
];

/// Largest result: kernels are below 100 MB.
const LARGEST: usize = 512 << 20;
const LIMIT: Duration = Duration::from_secs(60);
/// apt unpacks by itself, so that a Debian without xz-utils, zstd or lz4 needs no package more.
const APT_HELPER: &str = "/usr/lib/apt/apt-helper";

impl Packing {
    /// Told by the first bytes.
    pub fn of(data: &[u8]) -> Option<Packing> {
        MAGIC.iter().find(|(magic, _)| data.starts_with(magic)).map(|m| m.1)
    }

    /// Program that unpacks it, also the usual ending of such a file.
    fn program(self) -> (&'static str, &'static str) {
        match self {
            Packing::Plain => ("cat", "elf"),
            Packing::Gzip => ("gzip", "gz"),
            Packing::Xz => ("xz", "xz"),
            Packing::Zstd => ("zstd", "zst"),
            Packing::Lz4 => ("lz4", "lz4"),
        }
    }
}

/// Unpacks `data`; `scratch` is a directory for a file in passing, `what` names the data in errors.
pub fn unpack(node: &dyn Node, data: &[u8], scratch: &Path, what: &Path) -> Result<Vec<u8>> {
    let unpackable = |reason: String| Error::Unpack { what: what.into(), reason };
    let packing = Packing::of(data).ok_or_else(|| {
        unpackable(format!(
            "unknown compression (it begins with {:02x?}); known are gzip, xz, zstd, lz4",
            &data[..data.len().min(6)]
        ))
    })?;
    if packing == Packing::Plain {
        return Ok(data.to_vec());
    }
    let (program, ending) = packing.program();
    let packed = scratch.join(format!("packed.{ending}"));
    std::fs::write(&packed, data).map_err(file_error("write", &packed))?;
    let cmd = match find_program(node.reader(), program) {
        Some(path) => Exec::new(path.to_string_lossy()).args(["-dc"]),
        None => Exec::new(APT_HELPER).args(["cat-file"]),
    };
    let cmd = Exec { keep_bytes: LARGEST, ..cmd.args([packed.to_string_lossy()]).limit(LIMIT) };
    let output = node.exec(&cmd);
    std::fs::remove_file(&packed).map_err(file_error("remove", &packed))?;
    let output = output.map_err(|e| unpackable(format!("needs {program}: {e}; install {program}")))?;
    if !output.ok() || output.truncated {
        return Err(unpackable(format!("{}: {:?} {}", cmd.shown(), output.end, output.err().trim())));
    }
    Ok(output.stdout)
}

/// The compressed kernel in a bzImage (Linux: Documentation/arch/x86/boot.rst, `payload_offset`
/// and `payload_length`, protocol 2.08 and newer).
pub fn payload(bzimage: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(bzimage.get(at..at + 4)?.try_into().ok()?) as usize);
    if bzimage.get(0x202..0x206)? != b"HdrS" || u16::from_le_bytes(bzimage.get(0x206..0x208)?.try_into().ok()?) < 0x208
    {
        return None;
    }
    let setup_sectors = match bzimage[0x1f1] {
        0 => 4,
        n => usize::from(n),
    };
    let at = (setup_sectors + 1) * 512 + word(0x248)?;
    let whole = bzimage.get(at..at.checked_add(word(0x24c)?)?)?;
    // All but gzip, which ends with its length anyway, have the length of the unpacked kernel
    // appended for the boot code (arch/x86/boot/compressed/Makefile, `*_with_size`).
    match Packing::of(whole)? {
        Packing::Gzip | Packing::Plain => Some(whole),
        _ => whole.get(..whole.len().checked_sub(4)?),
    }
}

/// Release of the kernel in a bzImage (the same page, `kernel_version`): the first word of a string behind the header.
pub fn release(bzimage: &[u8]) -> Option<String> {
    let at = usize::from(u16::from_le_bytes(bzimage.get(0x20e..0x210)?.try_into().ok()?));
    if bzimage.get(0x202..0x206)? != b"HdrS" || at == 0 {
        return None;
    }
    let word = bzimage.get(at + 0x200..)?.split(|b| b.is_ascii_whitespace() || *b == 0).next()?;
    let printable = !word.is_empty() && word.len() < 65 && word.iter().all(u8::is_ascii_graphic);
    printable.then(|| String::from_utf8_lossy(word).into_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn bzimage(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0u8; 3 * 512];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&0x20fu16.to_le_bytes());
        image[0x248..0x24c].copy_from_slice(&512u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend_from_slice(payload);
        image.extend_from_slice(b"trailer");
        image
    }

    #[test]
    fn payload_is_without_the_appended_length() {
        assert_eq!(payload(&bzimage(b"\xfd7zXZ\0body\x10\0\0\0")), Some(&b"\xfd7zXZ\0body"[..]));
        assert_eq!(payload(&bzimage(b"\x1f\x8bbody\x10\0\0\0")), Some(&b"\x1f\x8bbody\x10\0\0\0"[..]));
    }

    #[test]
    fn gzip_is_unpacked_and_a_broken_file_is_told() {
        let dir = tempfile::tempdir().unwrap();
        // printf hello | gzip -n
        let packed = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xcbH\xcd\xc9\xc9\x07\0\x86\xa6\x106\x05\0\0\0";
        let node = vmio_node::Local::new();
        let what = Path::new("module.ko.gz");
        assert_eq!(unpack(&node, packed, dir.path(), what).unwrap(), b"hello");
        let said = unpack(&node, &packed[..20], dir.path(), what).unwrap_err().to_string();
        assert!(said.contains("module.ko.gz") && said.contains("gzip"), "{said}");
        let said = unpack(&node, b"BZh9", dir.path(), what).unwrap_err().to_string();
        assert!(said.contains("unknown compression"), "{said}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn apt_unpacks_where_xz_is_not_installed() {
        let dir = tempfile::tempdir().unwrap();
        let node = vmio_node::Fake::new("fake").program(APT_HELPER, vmio_node::fake::says("kernel"));
        assert_eq!(unpack(&node, b"\xfd7zXZ\0", dir.path(), Path::new("vmlinuz")).unwrap(), b"kernel");
        assert_eq!(
            node.ran()[0].args,
            ["cat-file".into(), dir.path().join("packed.xz").to_string_lossy().into_owned()]
        );
    }

    #[test]
    fn what_is_no_bzimage_has_no_payload() {
        let image = bzimage(b"\x1f\x8bbody");
        assert_eq!(payload(b"\x7fELF"), None);
        assert_eq!(payload(&image[..3 * 512]), None, "cut off");
        assert_eq!(payload(&bzimage(b"what is this")), None);
    }
}
