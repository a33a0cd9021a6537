//! The calls on a descriptor of `/dev/net/tun` (include/uapi/linux/if_tun.h, drivers/net/tun.c).

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use rustix::io::Errno;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Of `/dev/net/tun`: misc, TUN_MINOR (include/linux/miscdevice.h).
const TUN: (u32, u32) = (10, 200);
/// `unsigned int` by its number, `struct ifreq` by what it gives.
const TUNGETIFF: Opcode = opcode::read::<c_int>(b'T', 210);
const TUNGETSNDBUF: Opcode = opcode::read::<c_int>(b'T', 211);
const TUNSETSNDBUF: Opcode = opcode::write::<c_int>(b'T', 212);
/// Linux 5.7.
const TUNGETDEVNETNS: Opcode = opcode::none(b'T', 227);
const IFF_TAP: u16 = 0x0002;
const IFF_DETACH_QUEUE: u16 = 0x0400;

/// `struct ifreq` of include/uapi/linux/if.h.
#[repr(C)]
struct Ifreq {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}
const _: () = assert!(size_of::<Ifreq>() == 40);

/// Whether it is `/dev/net/tun`, under whatever name.
pub(super) fn is_tun(file: &File) -> io::Result<bool> {
    let meta = file.metadata()?;
    let device = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    Ok(meta.file_type().is_char_device() && device == TUN)
}

/// The name of the tap that it is attached to, and whether its queue is switched on; `None` where it is attached to
/// none, or to a device of layer 3.
pub(super) fn tap(tun: &File) -> io::Result<Option<(String, bool)>> {
    // SAFETY: the call fills one `struct ifreq`, which is 40 bytes of plain integers and bytes.
    let told = match unsafe { ioctl(tun, Getter::<TUNGETIFF, Ifreq>::new()) } {
        Ok(told) => told,
        Err(Errno::BADFD) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let name = told.name.split(|b| *b == 0).next().unwrap_or_default();
    let name = || String::from_utf8_lossy(name).into_owned();
    Ok((told.flags & IFF_TAP != 0).then(|| (name(), told.flags & IFF_DETACH_QUEUE == 0)))
}

/// Bytes that may be charged to it.
pub(super) fn send_buffer(tun: &File) -> io::Result<u32> {
    // SAFETY: the call fills one `int`.
    let bytes: c_int = unsafe { ioctl(tun, Getter::<TUNGETSNDBUF, c_int>::new()) }?;
    u32::try_from(bytes).map_err(io::Error::other)
}

/// Of it and all other queues of its interface that are in use.
pub(super) fn set_send_buffer(tun: &File, bytes: u32) -> io::Result<()> {
    let bytes = c_int::try_from(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    // SAFETY: the call reads one `int`.
    Ok(unsafe { ioctl(tun, Setter::<TUNSETSNDBUF, c_int>::new(bytes)) }?)
}

/// The network namespace that its interface is in by now.
pub(super) fn namespace(tun: &File) -> io::Result<File> {
    // SAFETY: the call takes nothing and gives a descriptor.
    Ok(File::from(unsafe { ioctl(tun, DeviceNamespace) }?))
}

/// Puts this thread into that namespace.
pub(super) fn enter(namespace: &File) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// The index of an interface in this thread's namespace; `None` where there is none of that name.
pub(super) fn index(name: &str) -> io::Result<Option<u32>> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    match name_to_index(&socket, name) {
        Ok(index) => Ok(Some(index)),
        Err(Errno::NODEV) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

struct DeviceNamespace;

// SAFETY: nothing is passed; what comes back is a descriptor of the caller's own.
unsafe impl Ioctl for DeviceNamespace {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        TUNGETDEVNETNS
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<OwnedFd> {
        // SAFETY: the kernel has just opened it for this process.
        Ok(unsafe { OwnedFd::from_raw_fd(out) })
    }
}

#[cfg(test)]
#[test]
fn numbers_are_those_of_the_header() {
    assert_eq!(
        (TUNGETIFF, TUNGETSNDBUF, TUNSETSNDBUF, TUNGETDEVNETNS),
        (0x8004_54d2, 0x8004_54d3, 0x4004_54d4, 0x54e3)
    );
}
