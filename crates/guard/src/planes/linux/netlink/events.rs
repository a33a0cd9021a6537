//! The kernel's events of interfaces, qdiscs, classes and filters (rtnetlink(7), groups RTNLGRP_LINK and RTNLGRP_TC).
//! Only the index of the interface is read. The kernel reports when events were lost.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use super::super::Result;
use super::{Netlink, refused, wire};

/// RTMGRP_LINK of include/uapi/linux/rtnetlink.h: interfaces.
const LINKS: u32 = 0x1;
/// RTMGRP_TC: qdiscs, classes, filters.
const QUEUES: u32 = 0x8;
/// Most datagrams that are read at once.
const AT_ONCE: usize = 4096;
/// Buffer for unread events.
const ROOM: usize = 4 << 20;
/// Where a message says which interface it is about: `ifi_index` of struct ifinfomsg, `tcm_ifindex` of struct tcmsg.
const INDEX: usize = wire::HEADER + 4;

/// A socket that is told of changes, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Events {
    socket: OwnedFd,
}

impl Events {
    /// Of interfaces.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn open() -> Result<Events> {
        Events::of(LINKS)
    }

    /// Of interfaces and of what is in their queues, but for what is changed through that socket.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn of_others(than: &Netlink) -> Result<Events> {
        let failed = |e| refused("listen for changes of queues", e, String::new());
        let events = Events::of(LINKS | QUEUES)?;
        let port = than.port()?;
        events.leave_out(port).map_err(|e| failed(e.raw_os_error().unwrap_or(0)))?;
        // Without the right to, what there is by default is heard, and the rest told as lost.
        let _ = set_socket_recv_buffer_size_force(&events.socket, ROOM);
        Ok(events)
    }

    fn of(groups: u32) -> Result<Events> {
        let failed = |e: Errno| refused("listen for changes of interfaces", e.raw_os_error(), String::new());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None).map_err(failed)?;
        bind(&socket, &SocketAddrNetlink::new(0, groups)).map_err(failed)?;
        Ok(Events { socket })
    }

    /// Has the kernel leave out what was asked for by that port (`nlmsg_pid`), before it takes room here: a loop that
    /// changes classes each period would fill it.
    fn leave_out(&self, port: u32) -> io::Result<()> {
        let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        // A word is loaded as it would be in the network's order.
        let mut program = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 12),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, port.to_be()),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the kernel copies the filter, whose program outlives the call; its size is given.
        let done = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const filter).cast(),
                size_of_val(&filter) as libc::socklen_t,
            )
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits so long for a change, or until `end` can be read; when it came, or `None` where none did.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn wait(&mut self, limit: Duration, end: BorrowedFd<'_>) -> Result<Option<Instant>> {
        let limit = Timespec::try_from(limit).ok();
        let mut ready = [PollFd::new(&self.socket, PollFlags::IN), PollFd::from_borrowed_fd(end, PollFlags::IN)];
        match poll(&mut ready, limit.as_ref()) {
            Ok(_) if ready[0].revents().is_empty() => return Ok(None),
            Err(Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(e) => return Err(refused("wait for changes of interfaces", e.raw_os_error(), String::new())),
        }
        let came = Instant::now();
        // Only that something came matters.
        self.any(|_| true)?;
        Ok(Some(came))
    }

    /// Whether one of the changes so far was at one of these interfaces, by index; also where the kernel had no room to
    /// tell.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn any(&mut self, mut at: impl FnMut(u32) -> bool) -> Result<bool> {
        let mut any = false;
        let mut bytes = [0u8; 64];
        for _ in 0..AT_ONCE {
            match recv(&self.socket, &mut bytes[..], RecvFlags::TRUNC) {
                Ok((_, whole)) if whole < INDEX + 4 => any = true,
                Ok(_) => any |= wire::u32_at(&bytes, INDEX).is_none_or(&mut at),
                Err(Errno::NOBUFS) => any = true,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(any),
                Err(e) => return Err(refused("hear of changes of interfaces", e.raw_os_error(), String::new())),
            }
        }
        // There are more: treated as lost.
        Ok(true)
    }
}
