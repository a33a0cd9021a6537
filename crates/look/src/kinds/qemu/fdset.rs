//! Files of `/dev/fdset/N`: descriptors that were passed to QEMU, on its command line (`-add-fd fd=F,set=N`) or by its
//! monitor (`add-fd`), where their numbers are not known here.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::super::process::Process;
use crate::qemu::options::Opt;

/// Where QEMU names these descriptors.
const SETS: &str = "/dev/fdset/";
/// Most different files of a process that are looked at to find a disk's.
const MOST_NAMED: usize = 64;

/// The file of such a path, which a block node of that driver opens.
pub fn file(process: &Process<'_>, path: &str, driver: Option<&str>) -> Option<String> {
    let set = path.strip_prefix(SETS)?;
    let Some(add) = process.line.all("add-fd").find(|o| o.get("set") == Some(set)) else {
        return only_open(process, driver?);
    };
    let open = process.fd(u32::try_from(add.number("fd")?).ok()?)?;
    PathBuf::from(&open).is_absolute().then_some(open)
}

/// The one block device (`host_device`) or file (`file`) that a process has open, where one node alone opens such a
/// descriptor.
fn only_open(process: &Process<'_>, driver: &str) -> Option<String> {
    let block = match driver {
        "host_device" => true,
        "file" => false,
        _ => return None,
    };
    let handed = |o: &&Opt| o.get("filename").is_some_and(|path| path.starts_with(SETS));
    if process.line.all("blockdev").filter(handed).filter(|o| o.get("driver") == Some(driver)).count() != 1 {
        return None;
    }
    let open = process.fds().ok()?;
    let not_a_disk = others(process, open);
    let of_kernel = |to: &str| ["/memfd:", "/proc/", "/sys/"].iter().any(|start| to.starts_with(start));
    let fits = |to: &str| to.starts_with('/') && to.starts_with("/dev/") == block && !of_kernel(to);
    let by_name = |(fd, to): &'_ (u32, String)| (to.clone(), *fd);
    let named: BTreeMap<String, u32> =
        open.iter().filter(|(_, to)| fits(to) && !not_a_disk.contains(&to.as_str())).map(by_name).collect();
    if named.len() > MOST_NAMED {
        return None;
    }
    let is_disk = |fd: u32| {
        let opened = process.reader().opened(process.pid, fd).ok().flatten();
        opened.is_some_and(|opened| if block { opened.is.stat.is_block() } else { opened.is.stat.is_file() })
    };
    let mut found = named.into_iter().filter(|(_, fd)| is_disk(*fd)).map(|(to, _)| to);
    found.next().filter(|_| found.next().is_none())
}

/// Files that are known to be no disk: firmware, by name or by descriptor (`/dev/fd/N`), and QEMU's log.
fn others<'a>(process: &'a Process<'_>, open: &'a [(u32, String)]) -> Vec<&'a str> {
    let firmware = process.line.all("drive").filter_map(|drive| {
        let path = drive.get("file")?;
        let Some(fd) = path.strip_prefix("/dev/fd/") else { return Some(path) };
        let fd: u32 = fd.parse().ok()?;
        open.iter().find(|(own, _)| *own == fd).map(|(_, to)| to.as_str())
    });
    firmware.chain(process.line.all("D").map(|log| log.text.as_str())).collect()
}
