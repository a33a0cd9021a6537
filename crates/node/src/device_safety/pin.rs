//! A block device as it was when the plan was printed: what is confirmed is what is written.
//!
//! A path says little: a link in `/dev/disk` may be pointed at another disk, a node may be made anew with
//! another number, a disk may be taken out and another one get its name. So the device is resolved once
//! and kept open from then on: while it is open, the kernel gives its number to nobody else (sd(4) and NVMe
//! free numbers with the last opener). All that is opened later is opened through this descriptor, and
//! compared: number, size, the sequence number that each disk gets when it appears (`BLKGETDISKSEQ`, Linux
//! 5.15; kernel document ABI/testing/sysfs-block), serial number and WWN.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::ioctl;
use serde::{Deserialize, Serialize};

use crate::linux::block::Device;
use crate::linux::device::{self, Number};
use crate::{Node, Reader};

use super::{Error, Result, family, gib};

/// `BLKGETDISKSEQ` of `linux/fs.h`.
const BLKGETDISKSEQ: ioctl::Opcode = ioctl::opcode::read::<u64>(0x12, 128);

/// What tells one disk from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// (major, minor).
    pub number: (u32, u32),
    /// Size in bytes.
    pub bytes: u64,
    /// Sequence number of the disk on this boot, from Linux 5.15 on.
    pub diskseq: Option<u64>,
    /// Serial number, as the disk tells it.
    pub serial: Option<String>,
    /// World wide name, or what the kernel has in its place.
    pub wwn: Option<String>,
    /// Model, for people.
    pub model: Option<String>,
}

impl Identity {
    /// `447.1 GiB, serial S3Z8NB0K, WWN naa.5002538e, device 8:16`: what is printed for the question.
    pub fn describe(&self) -> String {
        let named = |what: &str, value: &Option<String>| value.as_ref().map(|v| format!("{what}{v}"));
        let mut words = vec![gib(self.bytes)];
        words.extend(named("", &self.model));
        words.extend(named("serial ", &self.serial));
        words.extend(named("WWN ", &self.wwn));
        words.push(format!("device {}:{}", self.number.0, self.number.1));
        words.join(", ")
    }

    /// In what it is not the same, if in anything.
    fn differs(&self, now: &Self) -> Option<String> {
        let show = |n: (u32, u32)| format!("{}:{}", n.0, n.1);
        let text = |t: &Option<String>| t.clone().unwrap_or_else(|| "none".into());
        let seq = |s: Option<u64>| s.map_or_else(|| "none".into(), |s| s.to_string());
        [
            ("device number", show(self.number), show(now.number)),
            ("size", self.bytes.to_string(), now.bytes.to_string()),
            ("sequence number", seq(self.diskseq), seq(now.diskseq)),
            ("serial number", text(&self.serial), text(&now.serial)),
            ("WWN", text(&self.wwn), text(&now.wwn)),
        ]
        .into_iter()
        .find(|(_, then, now)| then != now)
        .map(|(what, then, now)| format!("its {what} was {then} and is {now}"))
    }
}

/// A block device of another machine that its agent holds open, as it was when it was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteDevice {
    /// The number of the request that holds it there.
    pub(crate) held: u32,
    /// As it was named.
    pub asked: PathBuf,
    /// The node behind that.
    pub node: PathBuf,
    /// Its name in sysfs.
    pub name: String,
    /// What tells it from other disks.
    pub identity: Identity,
    /// What could not be seen of its users.
    pub told: Vec<String>,
}

/// A device that is held from the plan on.
#[derive(Debug)]
pub struct Pinned {
    /// As the user named it.
    pub asked: PathBuf,
    /// The node that this was, links followed.
    pub node: PathBuf,
    /// Name in `/sys/block` or `/sys/class/block`.
    pub name: String,
    /// Which disk it is.
    pub identity: Identity,
    /// Open for reading, not alone.
    file: File,
}

impl Pinned {
    /// Resolves what the user named, and opens it for reading. Looks no further.
    ///
    /// # Errors
    /// When it is not there, cannot be opened, or is no block device.
    pub fn of(node: &dyn Node, asked: &Path) -> Result<Self> {
        let fail = |what: &'static str| {
            let path = asked.to_owned();
            move |source: io::Error| Error::Io { what, path, source }
        };
        let refused = |reason: &str| Error::Refused { device: asked.into(), reason: reason.into() };
        let path = asked.canonicalize().map_err(fail("find"))?;
        // A descriptor that opens nothing: a tape would wind, a pipe would wait.
        let by_name = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let by_name = by_name.map_err(|e| fail("look at")(e.into()))?;
        let stat = File::from(by_name.try_clone().map_err(fail("look at"))?).metadata().map_err(fail("look at"))?;
        if !stat.file_type().is_block_device() {
            return Err(refused("it is not a block device"));
        }
        let file = open_through(&by_name, OFlags::RDONLY | OFlags::NONBLOCK).map_err(fail("open"))?;
        let name = family::name(node.reader(), number(&file).map_err(fail("look at"))?)?.ok_or_else(|| {
            refused("the kernel does not report its name, so its users cannot be found; name another device")
        })?;
        let identity = identity(node.reader(), &file).map_err(fail("look at"))?;
        Ok(Self { asked: asked.into(), node: path, name, identity, file })
    }

    /// Where programs of this machine open it: through this process's descriptor, whatever becomes of
    /// nodes and links meanwhile.
    pub fn path(&self) -> PathBuf {
        path_of(&self.file)
    }

    /// The descriptor that holds it.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The device, open for reading.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// `/dev/disk/by-id/x (/dev/sdb)`.
    pub fn named(&self) -> String {
        named(&self.asked, &self.node)
    }

    /// Opens it for writing, past the page cache and alone, as what was confirmed.
    ///
    /// # Errors
    /// [`Error::Refused`] where it is another one by now, or somebody uses it.
    pub fn open_alone(&self, reader: &dyn Reader) -> Result<File> {
        let file = self.open(OFlags::RDWR | OFlags::DIRECT | OFlags::EXCL).map_err(|source| match source.kind() {
            io::ErrorKind::ResourceBusy => Error::Refused {
                device: self.asked.clone(),
                reason: "it is in use by the kernel or another program (exclusive open failed): stop that use".into(),
            },
            _ => Error::Io { what: "open", path: self.asked.clone(), source },
        })?;
        self.same_disk(reader, &file)?;
        Ok(file)
    }

    /// Opens it once more, through the descriptor that is held.
    ///
    /// # Errors
    /// As open(2); `EBUSY` with `O_EXCL` where the kernel or another program has it to itself.
    pub fn open(&self, flags: OFlags) -> io::Result<File> {
        open_through(&self.file, flags)
    }

    /// Sees to it that the path still names what was confirmed, and that this is still the same disk.
    ///
    /// # Errors
    /// [`Error::Refused`] with the difference.
    pub fn same(&self, reader: &dyn Reader) -> Result<()> {
        let gone = |what: String| Error::Refused {
            device: self.asked.clone(),
            reason: format!(
                "{what}. Planned and confirmed was {} ({}); nothing was written: check what happened to it, and start \
                 again",
                self.node.display(),
                self.identity.describe()
            ),
        };
        let now = self.asked.canonicalize().and_then(|path| Ok((path.metadata()?, path)));
        let (stat, path) = now.map_err(|e| gone(format!("it no longer exists ({e})")))?;
        let there = device::of_dev(stat.rdev());
        if !stat.file_type().is_block_device() || there != self.identity.number {
            return Err(gone(format!("it names another device now: {} ({}:{})", path.display(), there.0, there.1)));
        }
        self.same_disk(reader, &self.file)
    }

    /// Sees to it that what was opened is the disk that was confirmed.
    ///
    /// # Errors
    /// [`Error::Refused`] with the difference.
    fn same_disk(&self, reader: &dyn Reader, opened: &File) -> Result<()> {
        let io_error = |source| Error::Io { what: "look at", path: self.asked.clone(), source };
        match self.identity.differs(&identity(reader, opened).map_err(io_error)?) {
            None => Ok(()),
            Some(difference) => Err(Error::Refused {
                device: self.asked.clone(),
                reason: format!(
                    "it is not the disk that was planned and confirmed: {difference}; nothing was written: start again"
                ),
            }),
        }
    }
}

fn named(asked: &Path, node: &Path) -> String {
    if asked == node { asked.display().to_string() } else { format!("{} ({})", asked.display(), node.display()) }
}

impl RemoteDevice {
    /// `/dev/disk/by-id/x (/dev/sdb)`.
    pub fn named(&self) -> String {
        named(&self.asked, &self.node)
    }
}

/// How other programs open what this process has open: `/proc/PID/fd/N`.
pub fn path_of(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

fn open_through(held: &impl AsRawFd, flags: OFlags) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    let opened: OwnedFd = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?;
    Ok(File::from(opened))
}

fn number(file: &File) -> io::Result<Number> {
    Ok(device::of_dev(file.metadata()?.rdev()))
}

fn identity(reader: &dyn Reader, mut file: &File) -> io::Result<Identity> {
    let number = number(file)?;
    let bytes = file.seek(SeekFrom::End(0))?;
    // SAFETY: BLKGETDISKSEQ writes one 64-bit number, which `Getter` makes room for.
    let diskseq = unsafe { ioctl::ioctl(file, ioctl::Getter::<BLKGETDISKSEQ, u64>::new()) }.ok();
    let here = Device::numbered(reader, number);
    // Of a partition, its disk's.
    let disk = here.inner("..");
    Ok(Identity {
        number,
        bytes,
        diskseq,
        serial: here.serial().or_else(|| disk.serial()),
        wwn: here.wwn().or_else(|| disk.wwn()),
        model: here.model().or_else(|| disk.model()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn identity() -> Identity {
        Identity {
            number: (8, 16),
            bytes: 480 << 30,
            diskseq: Some(9),
            serial: Some("S3Z8".into()),
            wwn: Some("naa.5002".into()),
            model: None,
        }
    }

    #[test]
    fn identities_differ_in_each_part() {
        assert_eq!(identity().differs(&identity()), None);
        assert_eq!(identity().describe(), "480.0 GiB, serial S3Z8, WWN naa.5002, device 8:16");
        for (other, word) in [
            (Identity { number: (8, 32), ..identity() }, "its device number was 8:16 and is 8:32"),
            (Identity { bytes: 1, ..identity() }, "its size was"),
            (Identity { diskseq: Some(10), ..identity() }, "its sequence number was 9 and is 10"),
            (Identity { serial: None, ..identity() }, "its serial number was S3Z8 and is none"),
            (Identity { wwn: Some("x".into()), ..identity() }, "its WWN was naa.5002 and is x"),
        ] {
            let difference = identity().differs(&other).unwrap();
            assert!(difference.contains(word), "{difference}");
        }
    }
}
