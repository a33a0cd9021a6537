//! Tables of mounts: `/proc/PID/mountinfo` (proc_pid_mountinfo(5)). It says all that `/proc/PID/mounts` says,
//! and what part of a file system is mounted.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use super::{device, process};
use crate::{Reader, Result};

/// Bytes of another process's table that are looked at: it can have 100,000 mounts of its own.
pub const MOST_BYTES: usize = 4 << 20;

/// A mount of some machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mount {
    /// Device of the file system.
    pub dev: device::Number,
    /// Directory of the file system that is mounted; `/` is all of it.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// `ext4`.
    pub filesystem: String,
    /// `/dev/vda1`, `pool/data`, `server:/export`.
    pub source: String,
    /// Mounted `ro`.
    pub read_only: bool,
    /// The file system's own options as the kernel writes them: see [`Mount::option`].
    pub options: String,
}

/// A file system that a server holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkMount {
    /// Where it is mounted.
    pub point: PathBuf,
    /// For people: `NFS server host:/export`.
    pub server: String,
}

impl Mount {
    /// The server that holds it; `None` for a file system of this machine.
    pub fn server(&self) -> Option<NetworkMount> {
        let what = match self.filesystem.as_str() {
            "nfs" | "nfs4" => "NFS server",
            "cifs" | "smb3" | "smbfs" => "SMB server",
            "ceph" | "fuse.ceph" | "fuse.glusterfs" | "fuse.sshfs" | "9p" | "ocfs2" | "gfs2" => "network file system",
            _ => return None,
        };
        Some(NetworkMount { point: self.point.clone(), server: format!("{what} {}", self.source) })
    }

    /// Value of an option of the file system (`upperdir`), empty for one that is only there (`memory`, of control
    /// groups). A comma in a value is escaped (`seq_show_option` of Linux), so escapes are taken away last.
    pub fn option(&self, name: &str) -> Option<String> {
        let mut all = self.options.split(',');
        let value = all.find_map(|o| o.strip_prefix(name).filter(|rest| rest.is_empty() || rest.starts_with('=')))?;
        let value = unescape(value.strip_prefix('=').unwrap_or(value).as_bytes());
        Some(String::from_utf8_lossy(&value).into_owned())
    }
}

/// All mounts of the namespace of the process that looks.
///
/// # Errors
/// When `/proc/self/mountinfo` cannot be read.
pub fn own(reader: &dyn Reader) -> Result<Vec<Mount>> {
    Ok(parse(&reader.read(Path::new(OWN))?))
}

/// The table of the process that looks.
pub const OWN: &str = "/proc/self/mountinfo";

/// The mounts of a process, no more than [`MOST_BYTES`] of its table.
///
/// # Errors
/// When they may not be read, or the process has ended.
pub fn of_process(reader: &dyn Reader, pid: u32) -> Result<Vec<Mount>> {
    Ok(parse(&reader.read_start(&process::file(pid, "mountinfo"), MOST_BYTES)?))
}

/// Whether the kernel has a file system, loaded or built in (proc_filesystems(5)); `None` where it does not tell.
pub fn has_filesystem(reader: &dyn Reader, name: &str) -> Option<bool> {
    let known = reader.read_text(Path::new("/proc/filesystems")).ok()?;
    Some(known.lines().any(|line| line.split_ascii_whitespace().last() == Some(name)))
}

/// The mount that a path without links lies on.
pub fn holding<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    // Of mounts on the same point the last one is seen.
    mounts.iter().filter(|m| path.starts_with(&m.point)).max_by_key(|m| m.point.as_os_str().len())
}

/// The server that holds a path without links; `None` on file systems of this machine.
pub fn server_of(mounts: &[Mount], path: &Path) -> Option<NetworkMount> {
    holding(mounts, path)?.server()
}

/// The mounts in the text of a `mountinfo`, in its order. A line that is none is left out.
pub fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    let line = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
        let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
        let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescape(field)));
        // Optional fields, as many as there are, end with a lone hyphen.
        let end = 6 + fields.get(6..)?.iter().position(|f| *f == b"-")?;
        Some(Mount {
            dev: device::parse(&text(fields[2]))?,
            root: path(fields[3]),
            point: path(fields[4]),
            filesystem: text(fields.get(end + 1)?),
            source: text(fields.get(end + 2)?),
            read_only: fields[5].split(|&b| b == b',').any(|option| option == b"ro"),
            options: fields.get(end + 3).map(|o| String::from_utf8_lossy(o).into_owned()).unwrap_or_default(),
        })
    };
    mountinfo.split(|&b| b == b'\n').filter_map(line).collect()
}

/// The parts of a path, the last one first, as its links and mounts are followed one by one.
pub fn parts(path: &Path) -> Vec<PathBuf> {
    let named =
        |c: Component<'_>| matches!(c, Component::Normal(_) | Component::ParentDir).then(|| c.as_os_str().into());
    path.components().rev().filter_map(named).collect()
}

/// Octal escapes (`\040`) as bytes, as the kernel writes blanks in paths (`mangle_path`: mountinfo, mounts, swaps,
/// mountstats).
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut i = 0;
    while i < field.len() {
        let octal =
            field.get(i + 1..i + 4).filter(|d| field[i] == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)));
        if let Some(d) = octal {
            out.push(d.iter().fold(0u8, |n, b| n.wrapping_mul(8).wrapping_add(b - b'0')));
            i += 4;
        } else {
            out.push(field[i]);
            i += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Local;
    use crate::fake::Fake;

    #[test]
    fn a_kernel_tells_its_file_systems() {
        let has = |text: &str| has_filesystem(&Fake::new("fake").file("/proc/filesystems", text), "tracefs");
        assert_eq!(has("nodev\tsysfs\nnodev\ttracefs\n\text4\n"), Some(true));
        assert_eq!(has("nodev\tsysfs\nnodev\ttracefs2\n"), Some(false));
        assert_eq!(has_filesystem(&Fake::new("fake"), "tracefs"), None);
    }

    #[test]
    fn octal_escapes_of_mountinfo() {
        assert_eq!(unescape(br"/a\040b\011c"), b"/a b\tc");
        assert_eq!(unescape(br"/a\9\04"), br"/a\9\04");
        let [mount] = &parse(b"25 1 8:1 /sub /a\\040b ro,noexec shared:1 master:2 - ext4 /dev/sda1 rw\nno mount\n")[..]
        else {
            panic!("one line is a mount")
        };
        assert_eq!((mount.dev, &*mount.root, mount.read_only), ((8, 1), Path::new("/sub"), true));
        assert_eq!((&*mount.point, &*mount.filesystem, &*mount.source), (Path::new("/a b"), "ext4", "/dev/sda1"));
        assert!(own(&Local::new()).unwrap().iter().any(|m| m.point == Path::new("/proc")));
    }

    #[test]
    fn options_are_split_before_unescaping() {
        let table = "50 40 0:50 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/up\\0541\\040x,workdir=/w\n\
                     32 31 0:29 / /c rw - cgroup cgroup rw,cpu,cpuacct\n33 31 0:30 / /n rw - proc none\n";
        let [overlay, group, none] = &parse(table.as_bytes())[..] else { panic!("three mounts") };
        assert_eq!(overlay.option("upperdir").as_deref(), Some("/up,1 x"));
        assert_eq!((overlay.option("upper"), group.option("cpu").as_deref()), (None, Some("")));
        assert_eq!((group.option("acct"), none.option("rw")), (None, None));
    }

    #[test]
    fn servers_of_network_mounts() {
        let table = "22 1 253:0 / / rw - ext4 /dev/sda1 rw\n23 22 0:21 / /srv/nfs\\040a rw - nfs4 host:/export rw\n\
                     24 23 8:1 / /srv/nfs\\040a/local rw - xfs /dev/sdb rw\n25 22 0:22 / /mnt/pve rw - cifs //nas/vm rw\n";
        let mounts = parse(table.as_bytes());
        let server = |path: &str| server_of(&mounts, Path::new(path)).map(|m| m.server);
        let point = server_of(&mounts, Path::new("/srv/nfs a/vm/disk.raw")).unwrap().point;
        assert_eq!(point, Path::new("/srv/nfs a"));
        assert_eq!(server("/srv/nfs a/vm/disk.raw").as_deref(), Some("NFS server host:/export"));
        assert_eq!(server("/mnt/pve/x").as_deref(), Some("SMB server //nas/vm"));
        for here in ["/", "/srv/nfs", "/srv/nfs ab/x", "/srv/nfs a/local/x"] {
            assert_eq!(server(here), None, "{here}");
        }
    }
}
