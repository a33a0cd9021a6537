//! Loop devices (linux/loop.h; loop(4)): list, backing file, detach.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::journal::error::NotUndone;
use crate::journal::held::Identity;
use crate::linux::{block, device};
use crate::{Local, machine};

/// `LOOP_CLR_FD`: detach the file from a loop device.
const LOOP_CLR_FD: rustix::ioctl::Opcode = 0x4C01;
/// `LOOP_GET_STATUS64`.
const LOOP_GET_STATUS64: rustix::ioctl::Opcode = 0x4C05;

/// Time between two attempts at a device in use.
const PAUSE: Duration = Duration::from_millis(5);

/// A loop device in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopDevice {
    /// Device node, `/dev/loop0`.
    pub device: PathBuf,
    /// File behind it as the kernel shows it, without the mark of a deleted file.
    pub backing: PathBuf,
    /// Whether it has that mark.
    pub deleted: bool,
}

/// Loop devices that have a file behind them, from `/sys/block/loop*/loop/backing_file`.
pub fn loop_devices() -> Vec<LoopDevice> {
    let local = Local::new();
    let names = block::whole(&local).unwrap_or_default().into_iter().filter(|n| n.starts_with("loop"));
    names
        .filter_map(|name| {
            let file = block::Device::whole(&local, &name).loop_file()?;
            let deleted = file.shown != file.path;
            Some(LoopDevice { device: block::node_path(&name), backing: file.path, deleted })
        })
        .collect()
}

/// What is below a loop device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Over {
    /// (major, minor) of the block device that it lies over; 0:0 for a file.
    pub device: (u32, u32),
    /// Where in it the loop device begins, in bytes.
    pub offset: u64,
}

/// The start of `struct loop_info64` of linux/loop.h, which is all that is looked at, and the rest.
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    rest: [u64; 25],
}
const _: () = assert!(size_of::<Info>() == 232);

/// The driver's status of a loop device; `None` where nothing is attached.
fn status(device: &Path) -> io::Result<Option<Info>> {
    let flags = (OFlags::CLOEXEC | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(device)?;
    // SAFETY: the call fills one `struct loop_info64`, which is 232 bytes of plain integers and bytes.
    match unsafe { rustix::ioctl::ioctl(&file, rustix::ioctl::Getter::<LOOP_GET_STATUS64, Info>::new()) } {
        Ok(info) => Ok(Some(info)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// What is below a loop device, as the driver reports it; `None` where nothing is attached.
pub(crate) fn lies_over(device: &Path) -> io::Result<Option<Over>> {
    Ok(status(device)?.map(|info| Over { device: device::of_dev(info.rdevice), offset: info.offset }))
}

/// Which file is behind a loop device (LOOP_GET_STATUS64 of loop(4)); `None` where it has none or may
/// not be asked.
fn loop_file(device: &Path) -> Option<Identity> {
    let info = status(device).ok()??;
    // huge_encode_dev of linux/kdev_t.h: the same form as stat(2) has on 64-bit machines.
    Some(Identity { dev: info.device, ino: info.inode })
}

/// Whether a device lies over this file. The kernel shows the name that the file has now; where it was noted which file
/// it is, that counts. The driver asks the storage of the file, and that of somebody else's may never answer: it is
/// asked only of a device whose file may be the one by what this process sees.
fn is_over(device: &LoopDevice, backing: &Path, made: Option<Identity>) -> bool {
    let Some(made) = made else { return device.backing == backing };
    let renamed = || {
        let seen = machine::may_hang(&device.backing).is_none().then(|| rustix::fs::lstat(&device.backing));
        seen.is_some_and(|seen| seen.map_or(device.deleted, |found| Identity::from_stat(&found) == made))
    };
    (device.backing == backing || renamed()) && loop_file(&device.device).is_some_and(|file| file == made)
}

/// Detaches a file from the loop devices over it; `busy` is how long a device in use is tried again.
pub(crate) fn detach(backing: &Path, made: Option<Identity>, busy: Duration) -> Result<(), NotUndone> {
    let until = Instant::now() + busy;
    let mut asked = false;
    loop {
        let Some(found) = loop_devices().into_iter().find(|device| is_over(device, backing, made)) else {
            return Ok(());
        };
        // Not before what was asked for was looked at.
        if asked && Instant::now() >= until {
            return Err(NotUndone::InUse { device: found.device, backing: backing.to_owned() });
        }
        let file = match OpenOptions::new().read(true).open(&found.device) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(source) => {
                return Err(NotUndone::OpenLoop { device: found.device, backing: backing.to_owned(), source });
            }
        };
        // SAFETY: LOOP_CLR_FD takes no argument and touches no memory of ours.
        let done = unsafe { rustix::ioctl::ioctl(&file, rustix::ioctl::NoArg::<LOOP_CLR_FD>::new()) };
        drop(file);
        match done {
            Ok(()) | Err(rustix::io::Errno::NXIO | rustix::io::Errno::BUSY) => asked = true,
            Err(e) => {
                let (device, backing) = (found.device, backing.to_owned());
                return Err(NotUndone::Detach { device, backing, source: e.into() });
            }
        }
        std::thread::sleep(PAUSE);
    }
}
