//! Virtual functions of a card (SR-IOV) and the limits that it has for them: `IFLA_VFINFO_LIST` of the physical
//! function's interface (include/uapi/linux/if_link.h, `struct ifla_vf_rate`; net/core/rtnetlink.c, `rtnl_fill_vf`,
//! `do_setvfinfo`). Rates are Mbit/s of what a function sends, 0 is none.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use vmio_look::require::{Missing, Requirement};

use super::links::{IFINFO, IFLA_EXT_MASK, RTM_GETLINK, RTM_SETLINK, ifinfo};
use super::netlink::Change;
use super::netlink::wire::{self, Attributes, Malformed, Message, Request, u32_at, u64_at};
use super::{Device, Error, Netlink, Result};
use crate::planes::Count;

const IFLA_VFINFO_LIST: u16 = 22;
/// RTEXT_FILTER_VF: without it the kernel says nothing of virtual functions.
const OF_FUNCTIONS: u32 = 1;
const IFLA_VF_INFO: u16 = 1;
const IFLA_VF_MAC: u16 = 1;
const IFLA_VF_RATE: u16 = 6;
const IFLA_VF_STATS: u16 = 8;
const IFLA_VF_STATS_TX_BYTES: u16 = 3;
const IFLA_VF_STATS_TX_DROPPED: u16 = 8;

/// What a host must have for it.
pub const CARD: Requirement = Requirement {
    name: "SR-IOV",
    why: "lets a card limit guests that have one of its virtual functions; not tried on real hardware yet",
    fix: "it needs a card that has virtual functions: see its sriov_totalvfs below /sys/class/net/NAME/device",
    check: |reader| {
        let has = |name: &String| {
            let file = format!("/sys/class/net/{name}/device/sriov_totalvfs");
            reader.read_text(Path::new(&file)).is_ok_and(|text| text.trim().parse().is_ok_and(|most: u32| most > 0))
        };
        let cards = reader.list(Path::new("/sys/class/net")).unwrap_or_default();
        let found = cards.iter().any(has);
        let none = || Missing::Unlike("no network card here has virtual functions".to_owned());
        found.then_some(()).ok_or_else(none)
    },
};

/// What a function may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rate {
    /// Guaranteed by the card; many know no such thing.
    pub min_mbit: u32,
    /// Not exceeded; 0 for no limit.
    pub max_mbit: u32,
}

/// A virtual function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Function {
    /// Its address, all zeros where the card gave it none.
    pub address: [u8; 6],
    /// Its limits.
    pub rate: Rate,
    /// What it has sent, as far as the card counts.
    pub count: Count,
}

/// Virtual functions of a card by their numbers; none of a card that has none.
///
/// # Errors
/// When the kernel refuses.
pub fn of(netlink: &mut Netlink, card: &Device) -> Result<BTreeMap<u32, Function>> {
    let attributes = Attributes::new().with_u32(IFLA_EXT_MASK, OF_FUNCTIONS);
    let request = Request::new(RTM_GETLINK, 0, &ifinfo(card.index, 0, 0), attributes);
    let found = netlink.ask(&format!("look at the functions of {card}"), &request, |m| functions(m).map(Some))?;
    Ok(found.unwrap_or_default())
}

/// Has the card limit a function, and reads it back.
///
/// # Errors
/// When the card's driver refuses, or has something else in force.
pub fn limit(netlink: &mut Netlink, card: &Device, function: u32, rate: Rate) -> Result<()> {
    let what = format!("limit function {function} of {card} to {} Mbit/s (max_tx_rate)", rate.max_mbit);
    netlink.change(&[Change { what, request: limiting(card, function, rate) }])?;
    match of(netlink, card)?.get(&function) {
        Some(now) if now.rate == rate => Ok(()),
        now => Err(Error::Mismatch {
            place: format!("{card} function {function}"),
            field: "limit".to_owned(),
            wanted: format!("{rate:?}"),
            found: now.map_or("gone".to_owned(), |now| format!("{:?}", now.rate)),
        }),
    }
}

fn limiting(card: &Device, function: u32, rate: Rate) -> Request {
    let numbers: Vec<u8> = [function, rate.min_mbit, rate.max_mbit].iter().flat_map(|n| n.to_ne_bytes()).collect();
    let info = Attributes::new().with(IFLA_VF_RATE, &numbers);
    let list = Attributes::new().with_nested(IFLA_VF_INFO, info);
    let attributes = Attributes::new().with_nested(IFLA_VFINFO_LIST, list);
    Request::new(RTM_SETLINK, 0, &ifinfo(card.index, 0, 0), attributes)
}

fn functions(message: &Message<'_>) -> std::result::Result<BTreeMap<u32, Function>, Malformed> {
    let (_, rest) = message.split(IFINFO)?;
    let list = wire::find(&wire::attributes(rest)?, IFLA_VFINFO_LIST).unwrap_or_default();
    let mut all = BTreeMap::new();
    for (_, info) in wire::attributes(list)?.into_iter().filter(|(kind, _)| *kind == IFLA_VF_INFO) {
        let info = wire::attributes(info)?;
        let Some(rate) = wire::find(&info, IFLA_VF_RATE) else { continue };
        let Some(number) = u32_at(rate, 0) else { continue };
        let address = wire::find(&info, IFLA_VF_MAC).and_then(|mac| mac.get(4..10)?.try_into().ok());
        let stats = wire::find(&info, IFLA_VF_STATS).map(wire::attributes).transpose()?.unwrap_or_default();
        let counted = |kind| wire::find(&stats, kind).and_then(|n| u64_at(n, 0)).unwrap_or_default();
        let function = Function {
            address: address.unwrap_or_default(),
            rate: Rate { min_mbit: u32_at(rate, 4).unwrap_or(0), max_mbit: u32_at(rate, 8).unwrap_or(0) },
            count: Count {
                passed_bytes: counted(IFLA_VF_STATS_TX_BYTES),
                dropped_packets: counted(IFLA_VF_STATS_TX_DROPPED),
                ..Count::default()
            },
        };
        all.insert(number, function);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// What `ip -details link show` of a card with two functions is made from (iproute2 prints these fields), put
    /// together by the kernel's structures: no card with functions was there to record.
    fn answer() -> Vec<u8> {
        let info = |number: u32, mac: [u8; 6], min: u32, max: u32, stats: Option<(u64, u64)>| {
            let mut address = number.to_ne_bytes().to_vec();
            address.extend(mac);
            address.resize(36, 0);
            let rate: Vec<u8> = [number, min, max].iter().flat_map(|n| n.to_ne_bytes()).collect();
            let info = Attributes::new().with(IFLA_VF_MAC, &address).with(IFLA_VF_RATE, &rate);
            let Some((bytes, dropped)) = stats else { return info };
            let stats =
                Attributes::new().with_u64(IFLA_VF_STATS_TX_BYTES, bytes).with_u64(IFLA_VF_STATS_TX_DROPPED, dropped);
            info.with_nested(IFLA_VF_STATS, stats)
        };
        let list = Attributes::new()
            .with_nested(IFLA_VF_INFO, info(0, [2, 0, 0, 0, 0, 1], 0, 0, None))
            .with_nested(IFLA_VF_INFO, info(1, [2, 0, 0, 0, 0, 2], 100, 500, Some((1 << 40, 7))));
        let mut bytes = ifinfo(2, 0, 0).to_vec();
        bytes.extend(Attributes::new().with_text(3, "eth0").with_nested(IFLA_VFINFO_LIST, list).bytes());
        bytes
    }

    #[test]
    fn functions_of_a_card_are_read() {
        let payload = answer();
        let message = Message { kind: 16, flags: 0, sequence: 1, payload: &payload };
        let all = functions(&message).unwrap();
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), [0, 1]);
        assert_eq!((all[&0].rate, all[&0].count), (Rate::default(), Count::default()));
        assert_eq!((all[&1].address, all[&1].rate), ([2, 0, 0, 0, 0, 2], Rate { min_mbit: 100, max_mbit: 500 }));
        assert_eq!((all[&1].count.passed_bytes, all[&1].count.dropped_packets), (1 << 40, 7));
        // One that has none, and one that is cut off.
        let none = ifinfo(2, 0, 0);
        assert!(functions(&Message { payload: &none, ..message }).unwrap().is_empty());
        assert!(functions(&Message { payload: &payload[..payload.len() - 6], ..message }).is_err());
    }

    #[test]
    fn sriov_cards_are_recognised() {
        let file = "/sys/class/net/eth0/device/sriov_totalvfs";
        let host = |totals: &str| vmio_node::Fake::new("fake").file(file, totals);
        assert!((CARD.check)(&host("8\n")).is_ok());
        for none in ["0\n", "x"] {
            assert!((CARD.check)(&host(none)).is_err_and(|e| e.to_string().contains("no network card")));
        }
    }

    /// What `ip link set dev eth0 vf 1 max_tx_rate 500` of iproute2 6.1 sends, recorded with strace, but for the kind
    /// of message: RTM_NEWLINK there, which could make an interface.
    #[test]
    fn limit_request_equals_iproute2s() {
        let card = Device { index: 2, name: "eth0".into() };
        let bytes = limiting(&card, 1, Rate { min_mbit: 0, max_mbit: 500 }).encode(9).unwrap();
        let mut wanted: Vec<u8> = Vec::new();
        for word in [16 + 16 + 24u32, 19 | (5 << 16), 9, 0] {
            wanted.extend(word.to_ne_bytes());
        }
        wanted.extend(ifinfo(2, 0, 0));
        for (length, kind) in [(24u16, 22u16), (20, 1), (16, 6)] {
            wanted.extend(length.to_ne_bytes());
            wanted.extend(kind.to_ne_bytes());
        }
        for number in [1u32, 0, 500] {
            wanted.extend(number.to_ne_bytes());
        }
        assert_eq!(bytes, wanted);
    }
}
