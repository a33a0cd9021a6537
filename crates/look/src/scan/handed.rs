//! Names of disks passed to a guest as a descriptor (`/proc/812/fd/7`), which commands can use. A name is used only
//! where the guest's own process has that file open: a command line can name any process's descriptors.

use std::path::{Path, PathBuf};

use vmio_model::facts::{Fact, Guest};
use vmio_node::linux::process;

use crate::host_view::HostView;

/// Replaces descriptors by the names of their files, where known.
pub fn settle(host: &HostView<'_>, guests: &mut [Guest]) {
    for guest in guests {
        let Some(pid) = guest.pid else { continue };
        for disk in &mut guest.disks {
            let Some((owner, fd)) = disk.place.descriptor().and_then(|path| parts(path, pid)) else { continue };
            if let Some(Some(file)) = host.charged(Some(pid), || behind(host, pid, owner, fd)) {
                let from = format!("readlink /proc/{owner}/fd/{fd}");
                disk.place.source = Fact::read(Some(file.display().to_string()), from);
            }
        }
    }
}

/// Process and number of a descriptor's path, as seen by process `pid`.
fn parts(path: &str, pid: u32) -> Option<(u32, u32)> {
    if let Some(fd) = path.strip_prefix("/dev/fd/") {
        return Some((pid, fd.parse().ok()?));
    }
    let (owner, fd) = path.strip_prefix("/proc/")?.split_once("/fd/")?;
    let owner = if owner == "self" { pid } else { owner.parse().ok()? };
    Some((owner, fd.parse().ok()?))
}

/// The descriptor's file, under a name that leads to it on this machine.
fn behind(host: &HostView<'_>, pid: u32, owner: u32, fd: u32) -> Option<PathBuf> {
    let reader = host.reader();
    let name = process::descriptor(reader, owner, fd).ok()??;
    let is = reader.identity(Path::new(&name)).ok()??;
    let own = process::descriptors(reader, pid).ok()?;
    let mut same = own.iter().filter(|(_, to)| *to == name).filter_map(|(fd, _)| reader.opened(pid, *fd).ok()?);
    (name.is_absolute() && same.any(|opened| opened.is.is(&is))).then_some(name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::scan;
    use super::*;
    use vmio_node::fake::Fake;

    /// A guest whose disk is descriptor 7 of process 900, with this name.
    fn host(name: &str) -> Fake {
        let drive = "/usr/bin/qemu-system-x86_64\0-name\0own\0-nodefaults\0-drive\0\
                     file=/proc/900/fd/7,format=raw,if=virtio,id=d0\0";
        Fake::new("fake")
            .file("/proc/812/comm", "qemu-system-x86\n")
            .file("/proc/812/cmdline", drive)
            .symlink("/proc/900/fd/7", name)
            .file("/srv/own.raw", "its data")
            .file("/srv/other.raw", "another's data")
    }

    fn source(host: &Fake) -> Option<String> {
        scan(&HostView::new(host)).guests[0].disks[0].place.source.value().clone()
    }

    #[test]
    fn the_file_behind_a_descriptor_is_named_where_the_guest_has_it_open() {
        let known = host("/srv/own.raw").symlink("/proc/812/fd/11", "/srv/own.raw");
        assert_eq!(source(&known).as_deref(), Some("/srv/own.raw"));
        let handed = Some("/proc/900/fd/7".to_owned());
        let foreign = host("/srv/other.raw").symlink("/proc/812/fd/11", "/srv/own.raw");
        assert_eq!(source(&foreign), handed, "any process's file could be named so");
        let deleted = host("/srv/gone.raw (deleted)").symlink("/proc/812/fd/11", "/srv/gone.raw (deleted)");
        assert_eq!(source(&deleted), handed);
        let refused = host("/srv/own.raw").refused("/proc/900/fd/7");
        assert_eq!(source(&refused), handed);
    }

    #[test]
    fn descriptors_are_meant_as_the_guest_has_them() {
        assert_eq!(parts("/proc/self/fd/3", 8), Some((8, 3)));
        assert_eq!((parts("/dev/fd/3", 8), parts("/proc/9/fd/3", 8)), (Some((8, 3)), Some((9, 3))));
        assert_eq!((parts("/dev/fdset/3", 8), parts("/proc/9/fd/3/x", 8)), (None, None));
    }
}
