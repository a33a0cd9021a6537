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

/// Completion rings of Linux AIO: each `io_setup(2)` maps one (Linux fs/aio.c, `aio_setup_ring`).
pub fn aio_rings(maps: &str) -> usize {
    maps.lines().filter(|l| l.contains("/[aio]")).count()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
