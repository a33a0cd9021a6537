//! A ring of descriptors for what a guest sends (virtio 1.0, 2.4), served by the kernel's vhost-net (linux/vhost.h). All
//! descriptors have the same frame.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering, fence};

/// Of include/uapi/linux/vhost.h.
const SET_OWNER: libc::c_ulong = 0xaf01;
const GET_FEATURES: libc::c_ulong = 0x8008_af00;
const SET_FEATURES: libc::c_ulong = 0x4008_af00;
const SET_MEM_TABLE: libc::c_ulong = 0x4008_af03;
const SET_VRING_NUM: libc::c_ulong = 0x4008_af10;
const SET_VRING_ADDR: libc::c_ulong = 0x4028_af11;
const SET_VRING_BASE: libc::c_ulong = 0x4008_af12;
const SET_VRING_KICK: libc::c_ulong = 0x4008_af20;
const SET_VRING_CALL: libc::c_ulong = 0x4008_af21;
const NET_SET_BACKEND: libc::c_ulong = 0x4008_af30;

/// VIRTIO_F_VERSION_1 and VIRTIO_NET_F_MRG_RXBUF, which make a header 12 bytes.
const FEATURES: u64 = 1 << 32 | 1 << 15;
/// The queue of what a guest sends.
const SENDS: u32 = 1;
const SIZE: u16 = 256;
/// Where its parts lie in the memory that is shared with the kernel.
const AVAILABLE: usize = 0x4000;
const USED: usize = 0x8000;
const FRAMES: usize = 0xc000;
const FRAME_ROOM: usize = 2048;
const MEMORY: usize = FRAMES + SIZE as usize * FRAME_ROOM;
/// VRING_USED_F_NO_NOTIFY.
const NO_NOTIFY: u16 = 1;

/// A queue, its memory and what it is told by.
pub struct Ring {
    memory: *mut u8,
    next: u16,
    kick: File,
    _kept: [OwnedFd; 2],
}

impl Ring {
    /// Over an open tap. The memory stays until the process ends.
    pub fn new(tap: &File, frame: &[u8]) -> Ring {
        assert!(frame.len() <= FRAME_ROOM);
        // SAFETY: an anonymous mapping at a place that the kernel chooses.
        let memory = unsafe {
            let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), MEMORY, rights, kind, -1, 0)
        };
        assert_ne!(memory, libc::MAP_FAILED);
        let memory: *mut u8 = memory.cast();
        let at = |offset: usize| memory as u64 + offset as u64;
        for n in 0..SIZE as usize {
            let place = FRAMES + n * FRAME_ROOM;
            // `struct vring_desc`: address, length, flags, next.
            let descriptor = [&at(place).to_ne_bytes()[..], &(frame.len() as u32).to_ne_bytes(), &[0; 4]].concat();
            // SAFETY: both lie within the mapping, which nobody else has yet.
            unsafe {
                memory.add(place).copy_from(frame.as_ptr(), frame.len());
                memory.add(n * 16).copy_from(descriptor.as_ptr(), descriptor.len());
            }
        }
        let vhost: OwnedFd = OpenOptions::new().read(true).write(true).open("/dev/vhost-net").unwrap().into();
        let (kick, call) = (event(), event());
        let ask = |request, words: &[u64]| {
            let mut words = words.to_vec();
            // SAFETY: each request reads or fills a structure that is as long as these words.
            let done = unsafe { libc::ioctl(vhost.as_raw_fd(), request, words.as_mut_ptr()) };
            assert_eq!(done, 0, "{request:x}: {}", std::io::Error::last_os_error());
            words[0]
        };
        // Two numbers of 32 bits: `struct vhost_vring_state`, `struct vhost_vring_file`.
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let file = |file: &dyn AsRawFd| pair(SENDS, u32::try_from(file.as_raw_fd()).unwrap());
        ask(SET_OWNER, &[0]);
        let known = ask(GET_FEATURES, &[0]);
        ask(SET_FEATURES, &[known & FEATURES]);
        // One region whose addresses are this process's own.
        ask(SET_MEM_TABLE, &[1, at(0), MEMORY as u64, at(0), 0]);
        ask(SET_VRING_NUM, &[pair(SENDS, SIZE.into())]);
        ask(SET_VRING_BASE, &[pair(SENDS, 0)]);
        ask(SET_VRING_ADDR, &[pair(SENDS, 0), at(0), at(USED), at(AVAILABLE), 0]);
        ask(SET_VRING_KICK, &[file(&kick)]);
        ask(SET_VRING_CALL, &[file(&call)]);
        ask(NET_SET_BACKEND, &[file(tap)]);
        Ring { memory, next: 0, kick: kick.into(), _kept: [vhost, call] }
    }

    /// Offers one frame; false where the ring is full.
    pub fn send(&mut self) -> bool {
        if self.next.wrapping_sub(self.word(USED + 2).load(Ordering::Acquire)) >= SIZE {
            return false;
        }
        let slot = self.next % SIZE;
        self.word(AVAILABLE + 4 + 2 * slot as usize).store(slot, Ordering::Relaxed);
        self.next = self.next.wrapping_add(1);
        self.word(AVAILABLE + 2).store(self.next, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.word(USED).load(Ordering::Relaxed) & NO_NOTIFY == 0 {
            use std::io::Write;
            self.kick.write_all(&1u64.to_ne_bytes()).unwrap();
        }
        true
    }

    /// A number of 16 bits that the kernel reads or writes meanwhile.
    fn word(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: within the mapping and even; the kernel's side is atomic as well.
        unsafe { AtomicU16::from_ptr(self.memory.add(offset).cast()) }
    }
}

fn event() -> OwnedFd {
    // SAFETY: the call takes no memory; a descriptor that it gave is nobody else's.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    }
}
