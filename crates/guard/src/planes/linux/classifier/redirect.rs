//! Redirects packets to an IFB by a filter where the eBPF program itself cannot: on kernels without TCX (seen with 6.1)
//! an IFB drops packets of bpf_redirect(), since they are not marked as redirected. So with clsact a second filter
//! after the program matches all packets (cls_u32) and redirects them by act_mirred (include/uapi/linux/pkt_cls.h,
//! tc_act/tc_mirred.h).

use super::super::netlink::wire::{Attributes, Request, flag};
use super::super::netlink::{Change, Netlink};
use super::super::{Device, Error, Result};
use super::filters::{
    self, FilterOwner, RTM_NEWTFILTER, TCA_ACT_COOKIE, TCA_ACT_OPTIONS, TCA_KIND, TCA_MIRRED_PARMS, TCA_OPTIONS,
    TCA_U32_ACT,
};
use super::point::{INGRESS, Point};

/// A preference after all that the kernel assigns: these count down from 0xc000.
const BEHIND: u16 = 0xc001;

const TCA_U32_SEL: u16 = 5;
const TCA_ACT_KIND: u16 = 1;
/// The filter ends here (TC_ACT_STOLEN): the packet is the IFB's now.
const STOLEN: u32 = 4;
/// Out of the interface, and not into it (TCA_EGRESS_REDIR).
const OUT: u32 = 1;

/// The filter that redirects packets to an IFB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RedirectFilter {
    point: Point,
    /// Index of the IFB.
    pub(super) to: u32,
    pub(super) preference: u16,
}

impl RedirectFilter {
    /// An earlier guard's redirect filter for that program.
    pub(super) fn find(netlink: &mut Netlink, device: &Device, point: Point) -> Result<Option<Self>> {
        let all = filters::list(netlink, device, INGRESS)?;
        Ok(all.into_iter().find_map(|filter| match filter.owner {
            FilterOwner::Redirect(at, to) if at == point => Some(Self { point, to, preference: filter.preference }),
            _ => None,
        }))
    }

    /// Adds one after all existing filters.
    pub(super) fn add(netlink: &mut Netlink, device: &Device, point: Point, to: u32) -> Result<Self> {
        let taken = filters::list(netlink, device, INGRESS)?.into_iter().map(|f| f.preference).max();
        let preference = taken.map_or(BEHIND, |last| BEHIND.max(last.saturating_add(1)));
        if preference == u16::MAX {
            let why = "another program's filter has the last preference, so none can be added after it".to_owned();
            return Err(Error::Invalid { what: device.to_string(), why });
        }
        // struct tc_u32_sel: flags TC_U32_TERMINAL, one key, struct tc_u32_key: whatever is at offset 0.
        let mut selector = vec![0; 16 + 16];
        (selector[0], selector[2]) = (1, 1);
        // struct tc_mirred: index, capab, action, refcnt, bindcnt, eaction, ifindex.
        let mirred: Vec<u8> = [0, 0, STOLEN, 0, 0, OUT, to].iter().flat_map(|v| v.to_ne_bytes()).collect();
        let action = Attributes::new()
            .with_text(TCA_ACT_KIND, "mirred")
            .with_nested(TCA_ACT_OPTIONS, Attributes::new().with(TCA_MIRRED_PARMS, &mirred))
            .with(TCA_ACT_COOKIE, &filters::cookie(point));
        let options = Attributes::new()
            .with(TCA_U32_SEL, &selector)
            .with_nested(TCA_U32_ACT, Attributes::new().with_nested(1, action));
        let attributes = Attributes::new().with_text(TCA_KIND, "u32").with_nested(TCA_OPTIONS, options);
        let (flags, fixed) = (flag::CREATE | flag::EXCLUSIVE, filters::place(device, INGRESS, preference));
        let what = format!("redirect what arrives at {device} to interface {to}");
        netlink.change(&[Change { what, request: Request::new(RTM_NEWTFILTER, flags, &fixed, attributes) }])?;
        Ok(Self { point, to, preference })
    }

    pub(super) fn is_there(&self, netlink: &mut Netlink, device: &Device) -> Result<bool> {
        Ok(filters::list(netlink, device, INGRESS)?.iter().any(|filter| self.is(filter)))
    }

    /// Removes it, if it exists.
    pub(super) fn remove(self, netlink: &mut Netlink, device: &Device) -> Result<()> {
        let all = filters::list(netlink, device, INGRESS)?;
        all.iter().filter(|filter| self.is(filter)).try_for_each(|filter| filters::remove(netlink, device, filter))
    }

    pub(super) fn is(&self, filter: &filters::ListedFilter) -> bool {
        filter.owner == FilterOwner::Redirect(self.point, self.to) && filter.preference == self.preference
    }
}
