//! Symbols of the running kernel and its modules: `/proc/kallsyms` (Linux kernel/kallsyms.c, `s_show`).
//!
//! Who may not see addresses (`kernel.kptr_restrict`) reads 0 for each.

use std::path::Path;

/// The file.
pub const FILE: &str = "/proc/kallsyms";
/// How much of it is looked at to see whether addresses are shown; the first symbols of a kernel have some.
pub const START_BYTES: usize = 4096;

/// A function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its first address.
    pub address: u64,
    /// Its name.
    pub name: &'a str,
    /// The module that it is of (`bpf` for programs); `None` for the kernel itself.
    pub module: Option<&'a str>,
}

impl<'a> Function<'a> {
    /// Of a line: `ffffffff81000000 T _text`, `ffffffffc0a01000 t vhost_work\t[vhost]`. `None` for data, and where the
    /// address is hidden.
    pub fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
        words.next().filter(|kind| matches!(*kind, "t" | "T" | "w" | "W"))?;
        let name = words.next()?;
        let module = words.next().and_then(|word| word.strip_prefix('[')?.strip_suffix(']'));
        Some(Self { address, name, module })
    }
}

/// Whether this reader is shown addresses; `None` where the file cannot be read.
pub fn shows_addresses(reader: &dyn crate::Reader) -> Option<bool> {
    let start = reader.read_start(Path::new(FILE), START_BYTES).ok()?;
    Some(String::from_utf8_lossy(&start).lines().any(|line| Function::parse(line).is_some()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Fake;

    #[test]
    fn functions_are_read_and_data_is_not() {
        let core = Function::parse("ffffffff810b2f40 T blk_mq_submit_bio").unwrap();
        assert_eq!((core.address, core.name, core.module), (0xffff_ffff_810b_2f40, "blk_mq_submit_bio", None));
        let module = Function::parse("ffffffffc0a01000 t vhost_worker\t[vhost]").unwrap();
        assert_eq!((module.name, module.module), ("vhost_worker", Some("vhost")));
        for none in ["0000000000000000 T _text", "ffffffff82000000 D jiffies", "", "x T y", "ffffffff82000000 T"] {
            assert_eq!(Function::parse(none), None, "{none}");
        }
    }

    #[test]
    fn hidden_addresses_are_told() {
        let with = |text: &str| shows_addresses(&Fake::new("fake").file(FILE, text));
        assert_eq!(with("0000000000000000 T _stext\n0000000000000000 T _text\n"), Some(false));
        assert_eq!(with("ffffffff81000000 T _stext\n"), Some(true));
        assert_eq!(shows_addresses(&Fake::new("fake")), None);
    }
}
