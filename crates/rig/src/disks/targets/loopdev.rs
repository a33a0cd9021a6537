//! Loop devices (linux/loop.h; loop(4)), mostly with direct I/O. That matters: without it the
//! host's page cache lies between the loop device and its file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode};
use vmio_look::backing::Backing;
use vmio_node::held::Identity;
use vmio_node::linux::block;
use vmio_node::{Change, ChangeId, Journal, Reader};

use super::{Error, Result, TargetCtx, scratch};

const LOOP_CONFIGURE: Opcode = 0x4C0A;
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// Logical blocks of what lies in memory, as those of most disks are.
const OWN_BLOCK: u32 = 512;
/// How long a free device is looked for while other programs take them.
const LIMIT: Duration = Duration::from_secs(5);
/// Time between tries: others need it to attach what they have opened.
const PAUSE: Duration = Duration::from_millis(3);

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// How a loop device reads and writes its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopIoMode {
    /// Past the page cache.
    Direct,
    /// Through the page cache.
    Cached,
}

/// LOOP_CTL_GET_FREE: the number of a free device is the call's return value.
struct GetFree;

// SAFETY: the call takes no argument (a null pointer is passed and ignored) and returns an int.
unsafe impl Ioctl for GetFree {
    type Output = u32;
    const IS_MUTATING: bool = false;
    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }
    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::null_mut()
    }
    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut std::ffi::c_void) -> rustix::io::Result<u32> {
        u32::try_from(out).map_err(|_| Errno::INVAL)
    }
}

/// A loop device of ours.
pub struct Attached {
    /// `/dev/loop0`.
    pub device: PathBuf,
    /// Open with O_EXCL and O_DIRECT.
    pub file: File,
    /// As read back from the kernel.
    pub logical_block_bytes: u32,
    /// As read back from the kernel; always what was asked, else attaching fails.
    pub direct_io: bool,
    /// Its line in the journal.
    pub change: ChangeId,
}

/// Attaches a file to a free loop device, with direct I/O or by the page cache of its file system.
pub fn attach(ctx: &TargetCtx<'_>, path: &Path, file: &File, mode: LoopIoMode) -> Result<Attached> {
    let block_size = if mode == LoopIoMode::Direct { block_size(ctx, path)? } else { OWN_BLOCK };
    // It may be renamed meanwhile: which file it is counts.
    let which = Some(Identity::of(file).map_err(fail("look at", path))?);
    let (device, held, change) = attach_free(ctx.journal, path, which, file, (block_size, mode))?;
    look(ctx.node.reader(), device, held, change, mode).map_err(|e| scratch::undone(ctx.journal, change, e))
}

/// Attaches a file of a server of vmio's own, below whose blocks there is no disk. It is noted by its path alone: once
/// the server is dead the kernel cannot say which file it is.
pub fn attach_own(reader: &dyn Reader, journal: &Journal, path: &Path, file: &File) -> Result<Attached> {
    let (device, held, change) = attach_free(journal, path, None, file, (OWN_BLOCK, LoopIoMode::Direct))?;
    look(reader, device, held, change, LoopIoMode::Direct).map_err(|e| scratch::undone(journal, change, e))
}

fn fail(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { what, path, source }
}

/// Finds a free device, opens it alone and attaches the file at `path`.
fn attach_free(
    journal: &Journal,
    path: &Path,
    which: Option<Identity>,
    file: &File,
    how: (u32, LoopIoMode),
) -> Result<(PathBuf, File, ChangeId)> {
    let control = Path::new("/dev/loop-control");
    let control_file = OpenOptions::new().read(true).write(true).open(control).map_err(fail("open", control))?;
    let until = Instant::now() + LIMIT;
    while Instant::now() < until {
        // SAFETY: see the implementation of `Ioctl` for `GetFree`.
        let number = unsafe { ioctl::ioctl(&control_file, GetFree) }
            .map_err(|e| fail("get a free loop device from", control)(e.into()))?;
        let device = PathBuf::from(format!("/dev/loop{number}"));
        // Whoever opens it alone first has it; others look for the next one.
        let held = match scratch::open_direct(&device, OFlags::EXCL) {
            Err(e) if busy(&e) => {
                std::thread::sleep(PAUSE);
                continue;
            }
            other => other.map_err(fail("open", &device))?,
        };
        let change = Change::Loop { backing: path.into(), file: which };
        let ((), change) = match journal.make(change, || configure(&held, file, how))? {
            Err(e) if busy(&e) => {
                std::thread::sleep(PAUSE);
                continue;
            }
            Err(e) if e.raw_os_error() == Some(Errno::NOTTY.raw_os_error()) => {
                return Err(Error::NotAsAsked {
                    path: device,
                    reason: "this kernel is older than 5.8, which direct loop devices need".into(),
                });
            }
            other => other.map_err(fail("attach a file to", &device))?,
        };
        return Ok((device, held, change));
    }
    Err(Error::NotAsAsked {
        path: control.into(),
        reason: format!("for {} s other programs kept taking the free loop devices; try again", LIMIT.as_secs()),
    })
}

/// Compares what was attached with what was asked.
fn look(reader: &dyn Reader, device: PathBuf, file: File, change: ChangeId, mode: LoopIoMode) -> Result<Attached> {
    let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let attached = block::Device::whole(reader, &name);
    let direct_io = attached.loop_is_direct()?;
    if mode == LoopIoMode::Cached && direct_io {
        let reason = "the kernel enabled direct I/O, so the page cache of its file is bypassed".into();
        return Err(Error::NotAsAsked { path: device, reason });
    }
    if mode == LoopIoMode::Direct && !direct_io {
        return Err(Error::NotAsAsked {
            path: device,
            reason:
                "the kernel did not enable direct I/O, so the page cache would be measured; use --on a directory on \
                     another file system, or --device"
                    .into(),
        });
    }
    let logical_block_bytes = attached.logical_block_bytes().ok_or_else(|| Error::NotAsAsked {
        path: device.clone(),
        reason: "the kernel does not report its logical block size".into(),
    })?;
    Ok(Attached { device, file, logical_block_bytes, direct_io, change })
}

/// Direct I/O needs blocks no smaller than those of the disks below.
fn block_size(ctx: &TargetCtx<'_>, path: &Path) -> Result<u32> {
    let backing = Backing::of(ctx.node.reader(), path)?;
    let logical = |leaf: &String| block::Device::whole(ctx.node.reader(), leaf).logical_block_bytes();
    Ok(backing.leaves.keys().filter_map(logical).max().unwrap_or(512))
}

fn configure(device: &File, file: &File, (block_size, mode): (u32, LoopIoMode)) -> io::Result<()> {
    let info = LoopInfo64 {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        sizelimit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: if mode == LoopIoMode::Direct { LO_FLAGS_DIRECT_IO } else { 0 },
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    let config = LoopConfig { fd: file.as_raw_fd().cast_unsigned(), block_size, info, reserved: [0; 8] };
    // SAFETY: LOOP_CONFIGURE reads one `struct loop_config`, of which `LoopConfig` is the exact
    // layout (asserted below); the descriptor in it stays open during the call.
    unsafe { ioctl::ioctl(device, ioctl::Setter::<LOOP_CONFIGURE, LoopConfig>::new(config)) }.map_err(Into::into)
}

const _: () = assert!(size_of::<LoopInfo64>() == 232 && size_of::<LoopConfig>() == 304);

fn busy(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::ResourceBusy
}
