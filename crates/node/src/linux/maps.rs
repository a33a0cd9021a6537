//! What a process has mapped: `/proc/PID/maps` (proc_pid_maps(5)).

use super::device::{self, Number};

/// A mapping of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub from: u64,
    /// The address behind it.
    pub to: u64,
    /// Device of the file system.
    pub dev: Number,
    /// Inode in it.
    pub inode: u64,
}

impl Mapping {
    /// Of a line; `None` for memory of no file, which has inode 0.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|&b| b == b' ').filter_map(|f| std::str::from_utf8(f).ok());
        let (from, to) = fields.next()?.split_once('-')?;
        let dev = device::parse_hex(fields.nth(2)?)?;
        let inode: u64 = fields.next()?.parse().ok().filter(|inode| *inode != 0)?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        Some(Self { from: hex(from)?, to: hex(to)?, dev, inode })
    }

    /// Its name in `map_files` (proc_pid_map_files(5)).
    pub fn link(&self) -> String {
        format!("{:x}-{:x}", self.from, self.to)
    }
}

/// A mapping from which a process may execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Executable<'a> {
    /// First address.
    pub from: u64,
    /// The address behind it.
    pub to: u64,
    /// The file's path, or the kernel's name for memory that it maps itself (`[vdso]`); empty for memory of no file.
    pub name: &'a str,
}

impl<'a> Executable<'a> {
    /// Of a line; `None` for what may not be executed.
    pub fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (from, to) = fields.next()?.split_once('-')?;
        fields.next().filter(|rights| rights.as_bytes().get(2) == Some(&b'x'))?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        Some(Self { from: hex(from)?, to: hex(to)?, name: fields.nth(3).unwrap_or_default().trim_start() })
    }
}

/// Completion rings of Linux AIO: each `io_setup(2)` maps one (Linux fs/aio.c, `aio_setup_ring`).
pub fn aio_rings(maps: &str) -> usize {
    maps.lines().filter(|l| l.contains("/[aio]")).count()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_may_be_executed_is_read_with_its_name() {
        let of = |line| Executable::parse(line).map(|found| (found.from, found.to, found.name));
        let library = "7f1c2a000000-7f1c2a001000 r-xp 00002000 fd:1f 173521             /usr/lib/lib a.so.1 (deleted)";
        assert_eq!(of(library), Some((0x7f1c_2a00_0000, 0x7f1c_2a00_1000, "/usr/lib/lib a.so.1 (deleted)")));
        assert_eq!(of("7f1000-7f2000 rwxp 00000000 00:00 0 "), Some((0x7f_1000, 0x7f_2000, "")));
        assert_eq!(of("7f1000-7f2000 rwxp 00000000 00:00 0"), Some((0x7f_1000, 0x7f_2000, "")));
        assert_eq!(of("7ffd000-7ffe000 r-xp 00000000 00:00 0                      [vdso]").unwrap().2, "[vdso]");
        for none in ["7f1000-7f2000 rw-p 00000000 00:00 0 [heap]", "", "x-y r-xp 0 0 0 z"] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn lines_of_maps_are_read() {
        let line = b"7f1c2a000000-7f1c2a001000 rw-s 00000000 00:06 1042                       /dev/sda (deleted)";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.dev, mapping.inode, mapping.link()), ((0, 6), 1042, "7f1c2a000000-7f1c2a001000".into()));
        let program = Mapping::parse(b"00400000-00452000 r-xp 00000000 fd:1f 173521 /usr/bin/x").unwrap();
        assert_eq!((program.dev, program.link()), ((253, 31), "400000-452000".into()));
        for none in [&b"7ffc1000-7ffc2000 rw-p 00000000 00:00 0 [stack]"[..], b"", b"1-2 r 0 0:z 3"] {
            assert_eq!(Mapping::parse(none), None);
        }
        assert_eq!(aio_rings("1-2 rw-s 0 00:0e 7 /[aio] (deleted)\n2-3 rw-p 0 00:00 0 [heap]\n"), 1);
    }
}
