//! Storage that may hold a process back for ever, since somebody else has to answer: file servers, file systems of a
//! program (FUSE), block devices of a cluster or a server, and what lies on them. Told by the table of mounts and
//! sysfs alone: the storage itself is never asked, so that the answer always comes.

use std::path::{Path, PathBuf};

use super::block::{self, Device};
use super::mounts::{self, Mount, NetworkMount, parts};
use crate::Reader;

/// Layers below each other that are followed: a file on a loop device over a file, and so on.
const DEEPEST: u32 = 8;
/// Links that are followed, as the kernel does (path_resolution(7)).
const MOST_LINKS: u32 = 40;

/// Who has to answer for what a path leads to, and where that is mounted; `None` where this machine's kernel does.
/// Links are followed as far as that asks nobody.
pub fn may_hang(reader: &dyn Reader, path: &Path) -> Option<NetworkMount> {
    let mounts = mounts::own(reader).ok()?;
    Look { reader, mounts: &mounts }.path(path, DEEPEST)
}

/// Who has to answer for a mount by itself.
fn server(mount: &Mount) -> Option<NetworkMount> {
    let kind = mount.filesystem.as_str();
    let of_a_program = kind == "fuse" || kind == "fuseblk" || kind.starts_with("fuse.");
    let what = match kind {
        _ if mount.server().is_some() => return mount.server(),
        _ if of_a_program => "FUSE server",
        "virtiofs" => "virtiofs server",
        "lustre" | "glusterfs" | "afs" | "orangefs" | "beegfs" | "gpfs" | "coda" | "smb2" => "network file system",
        "autofs" => "automounter",
        _ => return None,
    };
    Some(NetworkMount { point: mount.point.clone(), server: format!("{what} {}", mount.source) })
}

struct Look<'a> {
    reader: &'a dyn Reader,
    mounts: &'a [Mount],
}

impl Look<'_> {
    fn path(&self, path: &Path, deep: u32) -> Option<NetworkMount> {
        let deep = deep.checked_sub(1)?;
        let mut links = 0;
        let mut left: Vec<PathBuf> = parts(path);
        let mut at = PathBuf::from("/");
        if let Some(found) = self.mounted(&at, deep) {
            return Some(found);
        }
        while let Some(part) = left.pop() {
            if part == Path::new("..") {
                at.pop();
                continue;
            }
            let next = at.join(&part);
            if self.is_point(&next)
                && let Some(found) = self.mounted(&next, deep)
            {
                return Some(found);
            }
            match self.reader.link(&next).ok().flatten() {
                Some(to) if links < MOST_LINKS => {
                    links += 1;
                    if to.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    left.extend(parts(&to));
                }
                _ => at = next,
            }
        }
        // All of its way is here: a device of /dev may be looked at.
        let stat = self.reader.stat(&at).ok().flatten().filter(crate::FileStat::is_block)?;
        let who = self.device(&Device::numbered(self.reader, stat.rdev), deep)?;
        Some(NetworkMount { point: at, server: who })
    }

    fn is_point(&self, path: &Path) -> bool {
        self.mounts.iter().any(|mount| mount.point == path)
    }

    /// What is mounted there, and what that lies on.
    fn mounted(&self, point: &Path, deep: u32) -> Option<NetworkMount> {
        let mount = self.mounts.iter().rfind(|mount| mount.point == point)?;
        if let Some(found) = server(mount) {
            return Some(found);
        }
        let here = |who: String| NetworkMount { point: point.to_owned(), server: who };
        if mount.filesystem == "overlay" {
            let layers = ["lowerdir", "upperdir"].into_iter().filter_map(|option| mount.option(option));
            let mut layers = layers.flat_map(|dirs| dirs.split(':').map(PathBuf::from).collect::<Vec<_>>());
            return layers.find_map(|dir| self.path(&dir, deep)).map(|found| here(found.server));
        }
        let device = Device::numbered(self.reader, mount.dev);
        let named = || Some(Device::named(self.reader, &block::sysfs_name(mount.source.strip_prefix("/dev/")?)));
        let device = if device.is_there() { device } else { named()? };
        self.device(&device, deep).map(here)
    }

    /// Who has to answer for a block device.
    fn device(&self, device: &Device<'_>, deep: u32) -> Option<String> {
        let deep = deep.checked_sub(1)?;
        let name = block::sysfs_name(&device.node_name().ok()??);
        let whole = if device.is_partition() { block::disk_of(self.reader, &name)? } else { name };
        if ["rbd", "nbd", "drbd"].into_iter().any(|driver| block::is_numbered(&whole, driver)) {
            return Some(format!("the server of the block device {whole}"));
        }
        let device = Device::whole(self.reader, &whole);
        if let Some(file) = device.loop_file() {
            return self.path(&file.path, deep).map(|found| found.server);
        }
        device.slaves().iter().find_map(|slave| self.device(&Device::named(self.reader, slave), deep))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Fake;

    const TABLE: &str = "22 1 253:0 / / rw - ext4 /dev/vda1 rw\n23 22 0:21 / /srv/nfs rw - nfs4 host:/export rw\n\
                         24 22 0:22 / /mnt/fuse rw - fuse.sshfs u@h:/x rw\n25 22 7:1 / /mnt/loop rw - ext4 /dev/loop1 rw\n\
                         26 22 0:23 / /mnt/over rw - overlay overlay rw,lowerdir=/usr:/srv/nfs/low,upperdir=/up,workdir=/w\n\
                         27 22 7:2 / /mnt/here rw - ext4 /dev/loop2 rw\n28 22 0:24 / /mnt/own rw - fuse vmio rw\n\
                         29 22 254:0 / /mnt/lv rw - xfs /dev/mapper/vg-lv rw\n30 23 8:1 / /srv/nfs/local rw - ext4 /dev/sda1 rw\n";

    fn machine() -> Fake {
        let device = |fake: Fake, dirs: [&str; 2], name: &str| {
            dirs.iter().fold(fake, |fake, dir| fake.file(format!("{dir}/uevent"), format!("DEVNAME={name}\n")))
        };
        let mut fake = Fake::new("fake").file(mounts::OWN, TABLE).symlink("/home/vms", "../srv/nfs/vms");
        for (number, name) in
            [("253:0", "vda"), ("7:1", "loop1"), ("7:2", "loop2"), ("254:0", "dm-0"), ("252:0", "rbd0")]
        {
            fake = device(fake, [&format!("/sys/dev/block/{number}"), &format!("/sys/block/{name}")], name);
        }
        fake.file("/sys/block/loop1/loop/backing_file", "/mnt/fuse/disk.raw\n")
            .file("/sys/block/loop2/loop/backing_file", "/srv/disk.raw\n")
            .file("/sys/block/dm-0/slaves/rbd0/uevent", "")
            .file("/home/plain", "")
    }

    #[test]
    fn servers_are_found_without_a_call() {
        let machine = machine();
        let who = |path: &str| may_hang(&machine, Path::new(path)).map(|found| found.server);
        for here in ["/", "/home/plain", "/mnt/here/x", "/srv/nfs2", "/nowhere/at/all"] {
            assert_eq!(who(here), None, "{here}");
        }
        for (path, server) in [
            ("/srv/nfs/vms/a.raw", "NFS server host:/export"),
            ("/home/vms/a.raw", "NFS server host:/export"),
            ("/home/vms/../../mnt/fuse", "NFS server host:/export"),
            // Below a server's directory the way leads over it.
            ("/srv/nfs/local/x", "NFS server host:/export"),
            ("/mnt/fuse", "network file system u@h:/x"),
            // Whoever may mount may choose these words.
            ("/mnt/own/disk", "FUSE server vmio"),
            ("/mnt/loop/a", "network file system u@h:/x"),
            ("/mnt/over/usr", "NFS server host:/export"),
            ("/mnt/lv/x", "the server of the block device rbd0"),
        ] {
            assert_eq!(who(path).as_deref(), Some(server), "{path}");
        }
    }

    #[test]
    fn endless_layers_are_cut_off() {
        let round = "22 1 7:1 / / rw - ext4 /dev/loop1 rw\n";
        let machine = Fake::new("fake")
            .file(mounts::OWN, round)
            .file("/sys/dev/block/7:1/uevent", "DEVNAME=loop1\n")
            .file("/sys/block/loop1/loop/backing_file", "/disk\n")
            .symlink("/a", "/b")
            .symlink("/b", "/a");
        assert_eq!(may_hang(&machine, Path::new("/a/x")), None);
    }
}
