//! A policy proposed from measured traffic: usual and peak rate of each interface. Those with the same need share a
//! class, whose minimum is the usual rate and whose maximum is above the peak, both rounded up to round figures. Minima
//! that would not fit an uplink are lowered together.

use std::collections::{BTreeMap, BTreeSet};

use super::assign::Interface;
use super::{Class, DEFAULT, Direction, Entry, HOST, Kind, Matcher, Policy};
use crate::rate::BitRate;

/// Round figures of each power of ten, in tenths.
const STEPS: [u64; 6] = [10, 15, 20, 30, 50, 70];
/// Less counts as idle: ARP and neighbour discovery never stop.
const LEAST: BitRate = BitRate::new(100_000);
/// Percentage of a capacity that is promised at most: received traffic is shared below the link's rate.
const PROMISED: u64 = 90;

/// Measured need of an interface in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Need {
    /// Rate that was rarely exceeded.
    pub usual: BitRate,
    /// Highest rate.
    pub peak: BitRate,
}

/// An interface with its needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// Its matcher.
    pub matcher: Matcher,
    /// Its uplink.
    pub uplink: String,
    /// Sent and received, in the order of [`Direction::ALL`].
    pub needs: [Need; 2],
}

/// A matcher for each interface that stays valid when it is created again: by its guest, its namespace, its address, or
/// else its name.
pub fn means(all: &[Interface]) -> Vec<Option<Matcher>> {
    let mut known: BTreeMap<(Kind, &str), u32> = BTreeMap::new();
    for interface in all {
        let vms = interface.vms.iter().map(|vm| (Kind::Vm, vm.as_str()));
        let netns = interface.netns.iter().map(|netns| (Kind::Netns, netns.as_str()));
        let macs = interface.macs.iter().map(|mac| (Kind::Mac, mac.as_str()));
        for key in vms.chain(netns).chain(macs).collect::<BTreeSet<_>>() {
            *known.entry(key).or_default() += 1;
        }
    }
    let of = |interface: &Interface| {
        let all = [
            (Kind::Vm, interface.vms.first()),
            (Kind::Netns, interface.netns.as_ref()),
            (Kind::Mac, interface.macs.first()),
        ];
        let own = all.iter().filter_map(|(kind, text)| Some((*kind, (*text)?.as_str())));
        let own = own.filter(|key| known.get(key) == Some(&1)).chain([(Kind::Name, interface.name.as_str())]);
        // A name with pattern characters would match others, too.
        own.filter_map(|(kind, text)| Matcher::new(kind, text).ok()).find(Matcher::is_exact)
    };
    all.iter().map(of).collect()
}

/// The policy: uplinks, host's and default class and the guard's settings are kept, classes and interfaces are made
/// from the needs. Idle interfaces are in no class.
pub fn from_needs(policy: &Policy, all: &[Needs]) -> Policy {
    let mut seen = BTreeSet::new();
    let all: Vec<&Needs> =
        all.iter().filter(|n| policy.uplinks.contains_key(&n.uplink) && seen.insert(n.matcher.label())).collect();
    // Minimum and maximum in each direction.
    let mut wanted: Vec<[Option<(BitRate, BitRate)>; 2]> = vec![[None; 2]; all.len()];
    for (uplink, written) in &policy.uplinks {
        for (way, _) in Direction::ALL.into_iter().enumerate() {
            let reserved: BitRate = [HOST, DEFAULT].iter().map(|c| policy.class(c).min_on(written.capacity)).sum();
            let promised = (PROMISED * (written.capacity / 100)).saturating_sub(reserved);
            let here = || all.iter().enumerate().filter(|(_, n)| n.uplink == *uplink && n.needs[way].peak >= LEAST);
            let rates = |need: Need| {
                let max = up(need.peak).min(written.capacity);
                (if need.usual == BitRate::ZERO { BitRate::ZERO } else { up(need.usual).min(max) }, max)
            };
            let sum: u128 = here().map(|(_, n)| u128::from(rates(n.needs[way]).0)).sum();
            for (place, needs) in here() {
                let (min, max) = rates(needs.needs[way]);
                let fits = sum <= u128::from(promised);
                let part = || BitRate::of_sum(u128::from(min) * u128::from(promised) / sum.max(1));
                wanted[place][way] = Some((if fits { min } else { down(part()) }, max));
            }
        }
    }
    let mut needs: Vec<(BitRate, BitRate)> = wanted.iter().flatten().flatten().copied().collect();
    needs.sort_unstable_by_key(|(min, max)| std::cmp::Reverse((*max, *min)));
    needs.dedup();
    let names: BTreeMap<(BitRate, BitRate), String> =
        needs.iter().enumerate().map(|(n, need)| (*need, format!("seen-{}", n + 1))).collect();
    let mut classes: BTreeMap<String, Class> =
        [HOST, DEFAULT].into_iter().map(|name| (name.to_owned(), policy.class(name).clone())).collect();
    classes.extend(
        names
            .iter()
            .map(|((min, max), name)| (name.clone(), Class { min: Some(*min), max: Some(*max), ..Class::default() })),
    );
    let entry = |(needs, [sent, received]): (&&Needs, [Option<(BitRate, BitRate)>; 2])| Entry {
        matcher: needs.matcher.clone(),
        class: sent.map(|need| names[&need].clone()),
        rx_class: received.map(|need| names[&need].clone()),
        uplink: needs.uplink.clone(),
        addresses: Vec::new(),
        router: false,
        place: String::new(),
    };
    let entries = all.iter().zip(wanted).filter(|(_, ways)| ways.iter().any(Option::is_some)).map(entry).collect();
    Policy { uplinks: policy.uplinks.clone(), classes, entries, guard: policy.guard.clone() }
}

/// The next round figure.
fn up(rate: BitRate) -> BitRate {
    let bits = rate.max(LEAST).bits();
    let ten = 10u64.pow(bits.ilog10()) / 10;
    let figure = STEPS.into_iter().map(|step| step.saturating_mul(ten)).find(|figure| *figure >= bits);
    BitRate::new(figure.unwrap_or(ten.saturating_mul(100)))
}

/// The previous round figure; 0 where it is too little to promise.
fn down(rate: BitRate) -> BitRate {
    if rate < LEAST {
        return BitRate::ZERO;
    }
    let ten = BitRate::new(10u64.pow(rate.bits().ilog10()) / 10);
    STEPS.into_iter().rev().map(|step| step * ten).find(|figure| *figure <= rate).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::super::text::text;
    use super::*;
    use crate::policy::Links;

    const M: u64 = 1_000_000;

    fn base() -> Policy {
        let text = "[uplink.eth0]\ncapacity = \"1Gbit\"\n[uplink.eth1]\ncapacity = \"100Mbit\"\n";
        Policy::read(&[("base", text)], &Links::default()).unwrap().policy
    }

    fn needs(name: &str, uplink: &str, sent: (u64, u64), received: (u64, u64)) -> Needs {
        let need = |(usual, peak)| Need { usual: BitRate::new(usual), peak: BitRate::new(peak) };
        let matcher = Matcher::new(Kind::Name, name).unwrap();
        Needs { matcher, uplink: uplink.into(), needs: [need(sent), need(received)] }
    }

    #[test]
    fn figures_are_rounded_to_what_a_person_would_write() {
        assert_eq!(
            [1, 100_000, 11 * M, 15 * M, 71 * M, 701 * M].map(|bits| up(BitRate::new(bits)).bits()),
            [100_000, 100_000, 15 * M, 15 * M, 100 * M, 1000 * M]
        );
        assert_eq!(
            [0, 99_999, 14 * M, 15 * M, 699 * M].map(|bits| down(BitRate::new(bits)).bits()),
            [0, 0, 10 * M, 15 * M, 500 * M]
        );
    }

    #[test]
    fn who_needs_the_same_shares_a_class() {
        let all = [
            needs("a", "eth0", (40 * M, 90 * M), (0, 0)),
            needs("b", "eth0", (45 * M, 95 * M), (M, 2 * M)),
            needs("idle", "eth0", (0, 0), (0, LEAST.bits() - 1)),
            needs("gone", "eth9", (M, M), (M, M)),
        ];
        let policy = from_needs(&base(), &all);
        let bits = |rate: Option<BitRate>| rate.map(BitRate::bits);
        let classes: Vec<(&str, Option<u64>, Option<u64>)> =
            policy.classes.iter().map(|(name, c)| (name.as_str(), bits(c.min), bits(c.max))).collect();
        let (first, second) = (("seen-1", Some(50 * M), Some(100 * M)), ("seen-2", Some(M), Some(2 * M)));
        assert_eq!(classes, [("default", Some(0), None), ("host", None, None), first, second]);
        let entries: Vec<_> =
            policy.entries.iter().map(|e| (e.matcher.label(), e.class.as_deref(), e.rx_class.as_deref())).collect();
        assert_eq!(entries, [("a".into(), Some("seen-1"), None), ("b".into(), Some("seen-1"), Some("seen-2"))]);
    }

    #[test]
    fn an_interface_is_meant_by_what_is_its_own() {
        let interface = |index, name: &str, vm: &str, mac: &str| Interface {
            index,
            name: name.into(),
            vms: vec![vm.into()],
            macs: vec![mac.into()],
            netns: None,
        };
        let all = [
            interface(1, "tap1", "web", "52:54:00:00:00:01"),
            interface(2, "tap2", "db", "52:54:00:00:00:02"),
            interface(3, "tap3", "db", "52:54:00:00:00:03"),
            interface(4, "tap4", "a*", "52:54:00:00:00:03"),
            Interface { index: 5, name: "veth5".into(), netns: Some("blue".into()), ..Interface::default() },
        ];
        let means: Vec<String> = means(&all).into_iter().map(|m| m.unwrap().label()).collect();
        assert_eq!(means, ["vm:web", "mac:52:54:00:00:00:02", "tap3", "tap4", "netns:blue"]);
    }

    proptest! {
        /// Any needs result in a valid policy.
        #[test]
        fn what_is_proposed_is_valid(
            seen in prop::collection::vec(((0..20 * 1000 * M), (0..20 * 1000 * M), (0..200 * M), (0..200 * M), any::<bool>()), 0..40)
        ) {
            let all: Vec<Needs> = seen.iter().enumerate().map(|(n, (a, b, c, d, first))| {
                let uplink = if *first { "eth0" } else { "eth1" };
                needs(&format!("tap{n}"), uplink, (*a.min(b), *a.max(b)), (*c.min(d), *c.max(d)))
            }).collect();
            let proposed = from_needs(&base(), &all);
            let text = text(&proposed);
            let read = Policy::read(&[("proposed", &text)], &Links::default());
            prop_assert!(read.is_ok(), "{}\n{}", read.unwrap_err(), text);
            let read = read.unwrap();
            prop_assert!(read.warnings.is_empty(), "{:?}", read.warnings);
            prop_assert_eq!(read.policy.classes, proposed.classes);
        }
    }
}
