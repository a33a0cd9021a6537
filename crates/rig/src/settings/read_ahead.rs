//! `read-ahead`: how much the kernel that the actor works under reads ahead of who reads its disk through the page
//! cache (`queue/read_ahead_kb`; Linux Documentation/ABI/stable/sysfs-block). What goes past the page cache
//! (O_DIRECT) does not know it.
//!
//! In a guest it is that of the guest's own disk. Natively, and in a container, it is set on devices that are the run's own alone: a loop
//! device over a scratch file, a volume that was made for the run, or the disk that was given with `--device`. The
//! read-ahead of a file is its file system's, on which others work too.

use std::path::{Path, PathBuf};

use vmio_model::cell::{Actor, Subject};
use vmio_model::result::{Mark, WorkloadTraits};
use vmio_model::study::WordError;
use vmio_node::linux::block::{self, Device};
use vmio_node::{Change, Reader};

use super::{ByDefault, Error, Fit, Result, Setting, Undos, Where};
use crate::disks::targets;
use crate::workloads::End;

/// Entry `read-ahead`.
pub struct ReadAhead;

/// The kernel's own (Linux include/linux/backing-dev-defs.h, `VM_READAHEAD_PAGES`), which guests have: a host's disk may
/// have 8 MiB, and would be read with requests of another size than the guest's.
const SAME: &str = "128k";
/// The kernel counts pages: what is no multiple of their 4 KiB it rounds.
const PAGE_KIB: u32 = 4;
/// More makes no sense: it is read in one go.
const MOST_KIB: u32 = 1 << 20;

impl Setting for ReadAhead {
    fn name(&self) -> &'static str {
        "read-ahead"
    }
    fn about(&self) -> &'static str {
        "how far the kernel reads ahead on the actor's disk through its page cache, in KiB"
    }
    fn examples(&self) -> &'static [&'static str] {
        &["128k", "4096k", "0k"]
    }
    fn reader(&self) -> fn(&str) -> Result<String, WordError> {
        |text| kib(text).map(spelled)
    }
    fn by_default(&self, actor: &Actor, workload: &WorkloadTraits) -> Option<ByDefault> {
        let through_cache = workload.disk.as_ref().is_some_and(|disk| disk.reads && !disk.direct);
        (actor.subject.is_disk() && through_cache)
            .then_some(ByDefault { value: SAME, otherwise: Some(Mark::ReadAhead) })
    }
    fn found(&self, end: &End) -> Option<String> {
        let kib = block::read_ahead_kib(end.node.reader(), end.path()?)?;
        Some(spelled(u32::try_from(kib).ok()?))
    }
    fn fits(&self, _value: &str, actor: &Actor) -> Fit {
        let Subject::Disk { target, .. } = &actor.subject else {
            return Fit::Nothing("it is for a disk, and no actor uses one: leave it out".into());
        };
        let own = || targets::find(target).is_some_and(|t| t.native_is_a_device());
        if actor.side.shares_kernel() && !own() { Fit::Refused(on_a_file(target)) } else { Fit::Sets }
    }
    fn apply(&self, value: &str, on: &Where<'_>, undos: &mut Undos) -> Result<String> {
        let kib = kib(value)?;
        let node = on.end.node.clone();
        let path = on.end.path().ok_or_else(|| Error::Refused("the actor was given no disk".into()))?;
        let file = file_of(node.reader(), path, on.actor)?;
        let before = node.reader().read_text(&file)?;
        let write = || node.write(&file, kib.to_string().as_bytes(), None);
        if on.actor.side.shares_kernel() {
            let change = Change::Sysfs { path: file.clone(), before };
            let ((), id) = on.journal.make(change, write)??;
            undos.on_host(move |journal| Ok(journal.undo(id)?));
        } else {
            let (node, file) = (node.clone(), file.clone());
            undos.in_guest(move |_| Ok(node.write(&file, before.trim().as_bytes(), None)?));
            write()?;
        }
        match read_back(node.reader(), &file)? {
            found if found == kib => Ok(spelled(found)),
            found => Err(Error::NotAsAsked { asked: spelled(kib), found: spelled(found) }),
        }
    }
}

/// `4096k`, and no other spelling of it.
fn spelled(kib: u32) -> String {
    format!("{kib}k")
}

fn kib(text: &str) -> Result<u32, WordError> {
    let wrong = || {
        WordError(format!(
            "invalid read-ahead {text:?}: KiB with a k, such as 128k, 4096k or 0k, a multiple of {PAGE_KIB}k and at \
             most {}",
            spelled(MOST_KIB)
        ))
    };
    let kib = text.strip_suffix('k').and_then(|digits| digits.parse::<u32>().ok());
    let fits = |kib: &u32| kib.is_multiple_of(PAGE_KIB) && *kib <= MOST_KIB && spelled(*kib) == text;
    kib.filter(fits).ok_or_else(wrong)
}

fn on_a_file(target: &str) -> String {
    format!(
        "the native side of the target {target} works on a file, whose read-ahead is that of the disk below, which \
         others use too: vmio does not set it; use a target that is the run's own device (`device`)"
    )
}

/// Where the read-ahead of an actor's disk is set.
fn file_of(reader: &dyn Reader, path: &Path, actor: &Actor) -> Result<PathBuf> {
    let shown = path.display();
    let stat = reader.stat(path)?.ok_or_else(|| Error::Refused(format!("{shown} is not there")))?;
    if !stat.is_block() {
        return Err(Error::Refused(on_a_file(actor.target().unwrap_or_default())));
    }
    let device = Device::numbered(reader, stat.rdev);
    if device.is_partition() {
        let why = "is a partition, whose read-ahead is that of the whole disk, which was not given to vmio";
        return Err(Error::Refused(format!("{shown} {why}; give it the whole disk")));
    }
    match reader.stat(&device.read_ahead_file())? {
        Some(_) => Ok(device.read_ahead_file()),
        None => Err(Error::Refused(format!("the kernel has no read-ahead for {shown}"))),
    }
}

fn read_back(reader: &dyn Reader, file: &Path) -> Result<u32> {
    let text = reader.read_text(file)?;
    let found = text.trim();
    found.parse().map_err(|_| Error::NotAsAsked { asked: "a read-ahead".into(), found: format!("{found:?}") })
}

#[cfg(test)]
#[path = "read_ahead_tests.rs"]
mod tests;
