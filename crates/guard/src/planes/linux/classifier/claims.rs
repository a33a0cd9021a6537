//! What guests claim to be in ARP and neighbour discovery (`bpf/claims.h`): what they may, and what was seen.

use std::collections::BTreeSet;
use std::net::IpAddr;

use libbpf_rs::{ErrorKind, MapCore};
use serde::Serialize;

use super::super::{Device, Result};
use super::attach::loudly;
use super::{Classifier, MOST, map};
use crate::planes::Claimed;

/// Bytes of `struct owned`.
pub(super) const OWNED: usize = 20;
/// Addresses of all guests, twice (`max_entries` of the map).
#[cfg(test)]
pub(super) const MOST_OWNED: usize = 131_072;

const CHECK_CLAIMS: u32 = 0x100;
const ADDRESSES_KNOWN: u32 = 0x200;
const DROP_CLAIMS: u32 = 0x400;
const ROUTER: u32 = 0x800;

/// The slot for all interfaces together, which is none's.
const ALL_CLAIMS: u32 = MOST as u32;

/// In place of an interface: some guest has the address.
const ANYBODY: u32 = 0;

/// How ARP and neighbour discovery of a guest are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Checks {
    /// Whether all its IP addresses are known ([`Classifier::own`]).
    pub addresses: bool,
    /// Whether false claims are dropped, not only counted.
    pub drop: bool,
    /// Whether it routes for others: then it may announce itself, use any IP address and send any number.
    pub router: bool,
}

impl Checks {
    /// Flags of `struct tenant`.
    pub(super) fn flags(self) -> u32 {
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        CHECK_CLAIMS | flag(self.addresses, ADDRESSES_KNOWN) | flag(self.drop, DROP_CLAIMS) | flag(self.router, ROUTER)
    }
}

/// An address as the program compares it: IPv4 as `::ffff:a.b.c.d`.
pub fn as_compared(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// `struct owned`.
pub(super) fn owned(interface: u32, address: &[u8; 16]) -> [u8; OWNED] {
    let mut bytes = [0; OWNED];
    bytes[..4].copy_from_slice(&interface.to_ne_bytes());
    bytes[4..].copy_from_slice(address);
    bytes
}

impl Classifier {
    /// Sets the IP addresses ([`as_compared`]) that the guest behind an interface may claim; guests without any may not
    /// claim them. Set them before [`Checks::addresses`] says that these are all, and take them away after it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn own(&mut self, device: &Device, addresses: &BTreeSet<[u8; 16]>) -> Result<()> {
        let before = self.owned.get(&device.index).cloned().unwrap_or_default();
        if before == *addresses {
            return Ok(());
        }
        // After a failure these are all that may be there.
        self.owned.insert(device.index, before.union(addresses).copied().collect());
        for address in addresses.difference(&before) {
            for interface in [device.index, ANYBODY] {
                self.update(device, "owned", &owned(interface, address), &1u32.to_ne_bytes())?;
            }
        }
        for address in before.difference(addresses) {
            self.disown(device, device.index, address)?;
            if !self.owned.iter().any(|(index, all)| *index != device.index && all.contains(address)) {
                self.disown(device, ANYBODY, address)?;
            }
        }
        if addresses.is_empty() {
            self.owned.remove(&device.index);
        } else {
            self.owned.insert(device.index, addresses.clone());
        }
        Ok(())
    }

    fn disown(&self, device: &Device, interface: u32, address: &[u8; 16]) -> Result<()> {
        let key = owned(interface, address);
        loudly(&format!("tell the classifier about {device}"), || match map(&self.object, "owned").delete(&key) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound) => Ok(()),
            done => done,
        })
    }

    /// Changes where [`Classifier::claimed`] of any interface does. No system call.
    pub(in super::super) fn all_claims(&self) -> u64 {
        self.claims.number(ALL_CLAIMS, 0)
    }

    /// Packets that claimed what is not the guest's since the program was attached; `None` where it is not. No system
    /// call.
    pub fn claimed(&self, device: &Device) -> Option<Claimed> {
        let slot = self.attached.get(&device.index)?.slot;
        let spoofed = self.counters.read(slot).spoofed_packets;
        Some(Claimed {
            packets: spoofed + self.claims.number(slot, 0),
            dropped: spoofed + self.claims.number(slot, 1),
            floods: self.claims.number(slot, 2),
        })
    }
}
