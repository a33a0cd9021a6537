//! That interfaces came, went or changed (rtnetlink(7), group RTNLGRP_LINK). What changed is looked at by whoever waits:
//! an event may be lost when many come at once, and the kernel says so.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use super::super::Result;
use super::refused;

/// RTMGRP_LINK of include/uapi/linux/rtnetlink.h.
const LINKS: u32 = 1;
/// Datagrams that are thrown away in one go.
const AT_ONCE: usize = 4096;

/// A socket that is told of changes, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Events {
    socket: OwnedFd,
}

impl Events {
    /// Opens one.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn open() -> Result<Events> {
        let failed = |e: Errno| refused("listen for changes of interfaces", e.raw_os_error(), String::new());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None).map_err(failed)?;
        bind(&socket, &SocketAddrNetlink::new(0, LINKS)).map_err(failed)?;
        Ok(Events { socket })
    }

    /// Waits so long for a change; when it came, or `None` where none did.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<Instant>> {
        let limit = Timespec::try_from(limit).ok();
        let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut ready, limit.as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(e) => return Err(refused("wait for changes of interfaces", e.raw_os_error(), String::new())),
        }
        let came = Instant::now();
        // Only that something came matters. Truncated, or too many (ENOBUFS), are no less.
        let mut bytes = [0u8; 64];
        for _ in 0..AT_ONCE {
            match recv(&self.socket, &mut bytes[..], RecvFlags::TRUNC) {
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(e) => return Err(refused("hear of changes of interfaces", e.raw_os_error(), String::new())),
            }
        }
        Ok(Some(came))
    }
}
