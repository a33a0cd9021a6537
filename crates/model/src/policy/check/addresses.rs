//! Checks of IP addresses: what can never be meant is refused, what may be meant is warned of.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::net::IpAddr;

use super::Check;
use crate::policy::parse::{Addresses, At, EntryDraft};

const KEY: &str = "interface.addresses";

/// The addresses of a list without their positions.
pub(super) fn listed(addresses: Option<&At<Addresses>>) -> Vec<IpAddr> {
    addresses.iter().flat_map(|all| all.value.iter().map(|(address, _)| *address)).collect()
}

/// Each address with its position.
fn placed(addresses: &At<Addresses>) -> impl Iterator<Item = (IpAddr, At<()>)> {
    let file = addresses.file;
    addresses.value.iter().map(move |(address, span)| (*address, At { value: (), file, span: span.clone() }))
}

impl Check<'_> {
    /// Addresses of guests: each alone, with others of the same uplink, and with its gateways.
    pub fn addresses(&mut self) {
        let draft = self.draft;
        if draft.broken {
            return;
        }
        let only = draft.uplinks.keys().next().filter(|_| draft.uplinks.len() == 1);
        let mut given: BTreeMap<(Option<&String>, IpAddr), At<()>> = BTreeMap::new();
        for entry in &draft.entries {
            self.unheard(entry);
            let Some(addresses) = &entry.addresses else { continue };
            let uplink = entry.uplink.as_ref().map(|uplink| &uplink.value).or(only);
            let gateways = uplink.and_then(|name| draft.uplinks.get(name)?.gateways.as_ref());
            for (address, here) in placed(addresses) {
                let gateway = gateways.and_then(|all| placed(all).find(|(gateway, _)| *gateway == address));
                if let Some((_, there)) = gateway {
                    let what = format!("{address} is a gateway ({}), which no guest may claim", self.place(&there));
                    self.problem(&here, KEY, what);
                }
                match given.entry((uplink, address)) {
                    Slot::Vacant(free) => {
                        free.insert(here);
                    }
                    Slot::Occupied(taken) => {
                        let what = format!(
                            "{address} is also in {}: each of the two may claim it, and take the other's traffic; \
                             right only where it moves between them (VRRP) or their networks are separate",
                            self.place(taken.get())
                        );
                        self.warn(&here, KEY, what);
                    }
                }
            }
        }
    }

    /// Keys of an interface that have less effect than they seem to have.
    fn unheard(&mut self, entry: &EntryDraft) {
        let router = entry.router.as_ref().filter(|router| router.value);
        if entry.class.is_none() && !entry.damaged {
            let keys = [(entry.addresses.as_ref().map(At::place), KEY), (router.map(At::place), "interface.router")];
            let what = "has no effect without class: only what guests with a class send is looked at";
            keys.into_iter().for_each(|(at, key)| at.iter().for_each(|at| self.warn(at, key, what)));
            return;
        }
        let Some(addresses) = &entry.addresses else { return };
        if router.is_some() {
            let what = "with router = true the guest may claim any address besides: the list only keeps these from \
                        other guests";
            self.warn(addresses, KEY, what);
        }
        if let Some(matcher) = entry.matcher.as_ref().filter(|matcher| !matcher.value.is_exact()) {
            let what = format!(
                "`{}` may match several interfaces: each of them may claim all of these, and take the traffic of the \
                 others; write an [[interface]] for each guest",
                matcher.value
            );
            self.warn(addresses, KEY, what);
        }
    }
}
