//! Writes the initial file system that the kernel unpacks at its start: a cpio archive in the
//! "newc" format, uncompressed (Linux: Documentation/driver-api/early-userspace/buffer-format.rst).
//! A compressed one would cost an emulated CPU more than it saves in loading.

use vmio_node::linux::kind;

/// An archive that is being written. Parents must be added before what is in them.
#[derive(Debug, Default)]
pub struct Cpio {
    bytes: Vec<u8>,
    inode: u32,
}

/// Length of a header: the magic and 13 fields of 8 hexadecimal digits.
const HEADER: usize = 6 + 13 * 8;
const TRAILER: &str = "TRAILER!!!";

impl Cpio {
    /// Adds a directory with mode 755.
    pub fn dir(&mut self, path: &str) {
        self.entry(path, kind::DIRECTORY | 0o755, (0, 0), b"");
    }

    /// Adds a regular file with the given permission bits.
    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) {
        self.entry(path, kind::FILE | permissions, (0, 0), content);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, to: &str) {
        self.entry(path, kind::LINK | 0o777, (0, 0), to.as_bytes());
    }

    /// Adds a character device node with mode 600.
    pub fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, kind::CHARACTER | 0o600, (major, minor), b"");
    }

    /// Ends the archive and returns its bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.inode = 0;
        self.entry(TRAILER, 0, (0, 0), b"");
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        let path = path.trim_start_matches('/');
        let links = if kind::of(mode) == kind::DIRECTORY { 2 } else { 1 };
        let fields = [
            self.inode,
            mode,
            0, // uid
            0, // gid
            links,
            0, // mtime: the same content gives the same archive
            u32::try_from(content.len()).expect("a file in an initramfs is below 4 GiB"),
            0, // device that holds the file
            0,
            device.0,
            device.1,
            path.len() as u32 + 1,
            0, // checksum, not used by newc
        ];
        self.bytes.reserve(HEADER + path.len() + content.len() + 8);
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
        self.inode += 1;
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    fn sample() -> Vec<u8> {
        let mut archive = Cpio::default();
        archive.dir("dev");
        archive.device("/dev/console", 5, 1);
        archive.file("init", 0o755, b"hello");
        archive.link("lib64", "usr/lib64");
        archive.finish()
    }

    #[test]
    fn header_is_as_the_format_says() {
        let bytes = sample();
        let header = String::from_utf8(bytes[..HEADER].to_vec()).unwrap();
        assert_eq!(
            header,
            "07070100000000000041ed00000000000000000000000200000000000000000000000000000000000000000000000000000004\
             00000000"
        );
        assert_eq!(&bytes[HEADER..HEADER + 6], b"dev\0\0\0"); // 110 + 4 is padded to 116
        assert_eq!(bytes.len() % 512, 0);
    }

    /// Recorded from `cpio -tv` of GNU cpio 2.13, without user and date.
    const LISTING: &str =
        "drwxr-xr-x 2 0 dev\ncrw------- 1 5, 1 dev/console\n-rwxr-xr-x 1 5 init\nlrwxrwxrwx 1 9 lib64 -> usr/lib64\n";

    #[test]
    fn cpio_lists_what_was_written() {
        let Ok(mut child) = Command::new("cpio")
            .args(["-tv", "--numeric-uid-gid", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
        else {
            return; // no cpio here; the header test holds
        };
        child.stdin.take().unwrap().write_all(&sample()).unwrap();
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success());
        let listed: String = String::from_utf8(out.stdout)
            .unwrap()
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let name = words.iter().position(|w| *w == "1970").expect("a date") + 1;
                let size = words[4..words.len() - (words.len() - name) - 3].join(" ");
                format!("{} {} {size} {}\n", words[0], words[1], words[name..].join(" "))
            })
            .collect();
        assert_eq!(listed, LISTING);
    }
}
