//! What ethtool(8) shows of an interface of this machine, by SIOCETHTOOL (include/uapi/linux/sockios.h, ethtool.h).
//! Each of these commands only reads, and asks for no privilege. But the kernel cuts a name off at `:`, and for root
//! loads a module for a name that it does not know (net/core/dev_ioctl.c, `dev_load`): so only names of interfaces that are
//! there are handed to it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const SIOCETHTOOL: Opcode = 0x8946;
const GRINGPARAM: u32 = 0x10;
const GTXCSUM: u32 = 0x16;
const GSG: u32 = 0x18;
const GTSO: u32 = 0x1e;
const GGSO: u32 = 0x23;
const GGRO: u32 = 0x2b;

/// Offloads of an interface; `None` where its driver does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offloads {
    /// Checksums of what is sent ("tx").
    pub tx: Option<bool>,
    /// Packets in pieces ("scatter-gather").
    pub sg: Option<bool>,
    /// TCP's packets cut by the card ("tso").
    pub tso: Option<bool>,
    /// And late, by the kernel ("gso").
    pub gso: Option<bool>,
    /// Packets joined when received ("gro").
    pub gro: Option<bool>,
}

/// Rings of an interface, in descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rings {
    /// For what is received.
    pub rx: u32,
    /// The most that it may have.
    pub rx_most: u32,
    /// For what is sent.
    pub tx: u32,
    /// The most that it may have.
    pub tx_most: u32,
}

/// `struct ifreq` of include/uapi/linux/if.h, with a pointer in its union.
#[repr(C)]
struct Ifreq {
    name: [u8; 16],
    data: *mut u32,
    rest: [u64; 2],
}
const _: () = assert!(size_of::<Ifreq>() == 40);

/// The offloads of an interface.
///
/// # Errors
/// When there is no such interface.
pub fn offloads(name: &str) -> io::Result<Offloads> {
    let socket = open()?;
    let is_on = |command: u32| {
        // `struct ethtool_value`.
        let mut value = [command, 0];
        Ok::<_, io::Error>(ask(&socket, name, &mut value)?.then_some(value[1] != 0))
    };
    Ok(Offloads { tx: is_on(GTXCSUM)?, sg: is_on(GSG)?, tso: is_on(GTSO)?, gso: is_on(GGSO)?, gro: is_on(GGRO)? })
}

/// The rings of an interface; `None` where its driver has none that it tells.
///
/// # Errors
/// When there is no such interface.
pub fn rings(name: &str) -> io::Result<Option<Rings>> {
    // `struct ethtool_ringparam`: the command, four maxima (rx, mini, jumbo, tx), four values.
    let mut all = [GRINGPARAM, 0, 0, 0, 0, 0, 0, 0, 0];
    let told = ask(&open()?, name, &mut all)?;
    Ok(told.then_some(rings_of(&all)))
}

fn rings_of(all: &[u32; 9]) -> Rings {
    Rings { rx: all[5], rx_most: all[1], tx: all[8], tx_most: all[4] }
}

fn open() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// Has the kernel fill in a struct whose first number is the command; whether the driver knows it.
fn ask<const N: usize>(socket: &OwnedFd, name: &str, value: &mut [u32; N]) -> io::Result<bool> {
    let mut request = Ifreq { name: [0; 16], data: value.as_mut_ptr(), rest: [0; 2] };
    if name.len() >= request.name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if !is_there(name) {
        return Err(Errno::NODEV.into());
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: SIOCETHTOOL reads one struct ifreq, and writes to what it points at no more than the struct of its
    // command, which the callers give whole; that outlives the call. No pointer is kept.
    match unsafe { ioctl(socket, Setter::<SIOCETHTOOL, Ifreq>::new(request)) } {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Whether there is such an interface. A file in sysfs is none (Linux, drivers/net/bonding/bond_sysfs.c); a thread that went
/// to another network namespace has the interfaces of that one in its own list alone (proc_pid_net(5)).
fn is_there(name: &str) -> bool {
    let listed = || {
        let all = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        all.lines().any(|line| line.trim_start().strip_prefix(name).is_some_and(|rest| rest.starts_with(':')))
    };
    !matches!(name, "" | "." | "..")
        && !name.contains([':', '/', '\0'])
        && (Path::new("/sys/class/net").join(name).is_dir() || listed())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn loopback_tells_its_offloads_and_has_no_rings() {
        assert_eq!(offloads("lo").unwrap().gso, Some(true));
        assert_eq!(rings("lo").unwrap(), None);
        assert_eq!(offloads("no-such-thing").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(offloads("a-name-longer-than-any").is_err());
        for none in ["lo:1", "", ".", "..", "lo/statistics", "lo\0"] {
            assert_eq!(rings(none).unwrap_err().raw_os_error(), Some(libc::ENODEV), "{none:?}");
        }
    }

    #[test]
    fn layout_of_rings() {
        let found = rings_of(&[GRINGPARAM, 4096, 0, 0, 2048, 256, 0, 0, 128]);
        assert_eq!(found, Rings { rx: 256, rx_most: 4096, tx: 128, tx_most: 2048 });
    }
}
