//! The little of ELF that images and programs of our own need: sections of a kernel module (its `.modinfo`) and
//! notes of a kernel (whether it can be booted by PVH). 64-bit little-endian only, which is what
//! x86-64 and arm64 use. Follows elf(5).

use vmio_model::cell::Arch;

/// Note type `XEN_ELFNOTE_PHYS32_ENTRY` (Xen: public/elfnote.h): the 32-bit entry point by which
/// a hypervisor starts the kernel without firmware or decompressor (PVH).
const PHYS32_ENTRY: u32 = 18;
const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;
const DT_NEEDED: usize = 1;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;

fn bytes<const N: usize>(file: &[u8], at: usize) -> Option<[u8; N]> {
    file.get(at..at.checked_add(N)?)?.try_into().ok()
}
fn u16_at(file: &[u8], at: usize) -> Option<u16> {
    bytes(file, at).map(u16::from_le_bytes)
}
fn u32_at(file: &[u8], at: usize) -> Option<u32> {
    bytes(file, at).map(u32::from_le_bytes)
}
/// An 8-byte offset or size as an index.
fn index_at(file: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(bytes(file, at)?)).ok()
}
fn slice(file: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    file.get(at..at.checked_add(len)?)
}

/// Is this a 64-bit little-endian ELF file?
pub fn is_elf64(file: &[u8]) -> bool {
    file.starts_with(b"\x7fELF\x02\x01")
}

/// Content of the section with this name.
pub fn section<'a>(file: &'a [u8], name: &str) -> Option<&'a [u8]> {
    if !is_elf64(file) {
        return None;
    }
    let table = index_at(file, 0x28)?;
    let entry = usize::from(u16_at(file, 0x3a)?);
    let count = usize::from(u16_at(file, 0x3c)?);
    let header = |i: usize| table.checked_add(i.checked_mul(entry)?);
    let content = |at: usize| slice(file, index_at(file, at + 0x18)?, index_at(file, at + 0x20)?);
    let names = content(header(usize::from(u16_at(file, 0x3e)?))?)?;
    (0..count).find_map(|i| {
        let at = header(i)?;
        let start = names.get(u32_at(file, at)? as usize..)?;
        let end = start.iter().position(|&b| b == 0)?;
        (start[..end] == *name.as_bytes()).then(|| content(at))?
    })
}

/// Contents of the program segments of a kind.
fn segments(file: &[u8], kind: u32) -> Vec<&[u8]> {
    let all = || {
        if !is_elf64(file) {
            return None;
        }
        let table = index_at(file, 0x20)?;
        let entry = usize::from(u16_at(file, 0x36)?);
        let headers = (0..usize::from(u16_at(file, 0x38)?)).map(move |i| table.checked_add(i.checked_mul(entry)?));
        Some(headers.filter_map(|at| {
            let at = at?;
            (u32_at(file, at)? == kind).then(|| slice(file, index_at(file, at + 0x08)?, index_at(file, at + 0x20)?))?
        }))
    };
    all().map(Iterator::collect).unwrap_or_default()
}

/// What a program or an object file is for; `None` where it is no ELF file, or for neither.
pub fn arch(file: &[u8]) -> Option<Arch> {
    match u16_at(file, 0x12).filter(|_| is_elf64(file))? {
        EM_X86_64 => Some(Arch::X86_64),
        EM_AARCH64 => Some(Arch::Aarch64),
        _ => None,
    }
}

/// The libraries that a program or a library asks for by name (`DT_NEEDED`), and the loader that starts a program.
pub fn needed(file: &[u8]) -> Vec<String> {
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    let names = section(file, ".dynstr").unwrap_or_default();
    let entries = section(file, ".dynamic").unwrap_or_default().chunks_exact(16);
    let libraries = entries.filter_map(|entry| {
        let (tag, value) = (index_at(entry, 0)?, index_at(entry, 8)?);
        (tag == DT_NEEDED).then(|| names.get(value..).map(text))?
    });
    libraries.chain(segments(file, PT_INTERP).into_iter().map(text)).collect()
}

/// Release of a kernel that is not compressed, from its banner (Linux init/version-timestamp.c, `linux_banner`).
pub fn kernel_release(file: &[u8]) -> Option<String> {
    const BANNER: &[u8] = b"Linux version ";
    memchr::memmem::find_iter(file, BANNER).find_map(|at| {
        let word = file.get(at + BANNER.len()..)?.split(|b| b.is_ascii_whitespace() || *b == 0).next()?;
        // Formats of messages begin like that, too: `Linux version %s`.
        let printable = word.first()?.is_ascii_digit() && word.len() < 65 && word.iter().all(u8::is_ascii_graphic);
        printable.then(|| String::from_utf8_lossy(word).into_owned())
    })
}

/// Does this program run without a dynamic loader?
pub fn is_static(file: &[u8]) -> bool {
    is_elf64(file) && segments(file, PT_INTERP).is_empty()
}

/// Can a hypervisor start this kernel by PVH?
pub fn boots_by_pvh(kernel: &[u8]) -> bool {
    segments(kernel, PT_NOTE).into_iter().any(|notes| {
        let mut at = 0;
        while let (Some(name_len), Some(desc_len), Some(kind)) =
            (u32_at(notes, at), u32_at(notes, at + 4), u32_at(notes, at + 8))
        {
            if kind == PHYS32_ENTRY && slice(notes, at + 12, name_len as usize) == Some(b"Xen\0") {
                return true;
            }
            at += 12 + (name_len as usize).next_multiple_of(4) + (desc_len as usize).next_multiple_of(4);
        }
        false
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use super::*;

    /// A module-like ELF file: a null section, the section asked for, and the names.
    pub fn elf_with_section(name: &str, content: &[u8]) -> Vec<u8> {
        let names = format!("\0{name}\0.shstrtab\0");
        let (content_at, names_at) = (64, 64 + content.len());
        let table = names_at + names.len();
        let mut file = vec![0u8; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[0x28..0x30].copy_from_slice(&(table as u64).to_le_bytes());
        file[0x3a..0x3c].copy_from_slice(&64u16.to_le_bytes());
        file[0x3c..0x3e].copy_from_slice(&3u16.to_le_bytes());
        file[0x3e..0x40].copy_from_slice(&2u16.to_le_bytes());
        file.extend_from_slice(content);
        file.extend_from_slice(names.as_bytes());
        for (name, at, len) in [(0, 0, 0), (1, content_at, content.len()), (name.len() + 2, names_at, names.len())] {
            let mut header = [0u8; 64];
            header[..4].copy_from_slice(&(name as u32).to_le_bytes());
            header[0x18..0x20].copy_from_slice(&(at as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(len as u64).to_le_bytes());
            file.extend_from_slice(&header);
        }
        file
    }

    fn elf_with_note(kind: u32, name: &[u8; 4]) -> Vec<u8> {
        let mut file = vec![0u8; 64 + 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[0x20..0x28].copy_from_slice(&64u64.to_le_bytes());
        file[0x36..0x38].copy_from_slice(&56u16.to_le_bytes());
        file[0x38..0x3a].copy_from_slice(&1u16.to_le_bytes());
        file[64..68].copy_from_slice(&PT_NOTE.to_le_bytes());
        file[64 + 0x08..64 + 0x10].copy_from_slice(&120u64.to_le_bytes());
        file[64 + 0x20..64 + 0x28].copy_from_slice(&40u64.to_le_bytes());
        // A note of another kind comes first.
        for (kind, desc) in [(1u32, 0u32), (kind, 0x0100_0000)] {
            for word in [4, 4, kind] {
                file.extend_from_slice(&word.to_le_bytes());
            }
            file.extend_from_slice(name);
            file.extend_from_slice(&desc.to_le_bytes());
        }
        file
    }

    #[test]
    fn the_release_is_in_the_banner_and_not_in_a_format() {
        let text = b"\x7fELF\x02\x01..Linux version %s\0..Linux version 6.1.0-9-amd64 (x@y) #1 SMP\n\0";
        assert_eq!(kernel_release(text).as_deref(), Some("6.1.0-9-amd64"));
        assert_eq!(kernel_release(b"Linux version %s"), None);
        assert_eq!(kernel_release(b"Linux version "), None);
    }

    #[test]
    fn finds_a_section_by_name() {
        let file = elf_with_section(".modinfo", b"depends=\0");
        assert_eq!(section(&file, ".modinfo"), Some(&b"depends=\0"[..]));
        assert_eq!(section(&file, ".text"), None);
    }

    #[test]
    fn pvh_needs_xens_entry_note() {
        assert!(boots_by_pvh(&elf_with_note(PHYS32_ENTRY, b"Xen\0")));
        assert!(!boots_by_pvh(&elf_with_note(PHYS32_ENTRY, b"GNU\0")));
        assert!(!boots_by_pvh(&elf_with_note(6, b"Xen\0")));
    }

    #[test]
    fn a_cut_file_is_no_elf_file_but_no_panic() {
        let file = elf_with_section(".modinfo", b"depends=\0");
        let note = elf_with_note(PHYS32_ENTRY, b"Xen\0");
        for len in 0..file.len() - 24 {
            // (of the last header the last 24 bytes mean nothing here)
            assert_eq!(section(&file[..len], ".modinfo"), None, "cut at {len}");
        }
        assert!((0..note.len()).all(|len| !boots_by_pvh(&note[..len])));
    }
}
