//! Leads what passed the classifier through an IFB where the eBPF program itself cannot: on kernels without TCX (seen
//! with 6.1) a packet that bpf_redirect() gives to an IFB is dropped there, since it is not marked as redirected. So
//! where the program is a filter of clsact, a filter behind it does it: all packets (cls_u32), act_mirred
//! (include/uapi/linux/pkt_cls.h, tc_act/tc_mirred.h).

use super::super::htb;
use super::super::netlink::wire::{Attributes, Request, flag, u32_at};
use super::super::netlink::{Change, Netlink};
use super::super::{Device, Error, Result};

const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;
/// Where clsact's filters for what arrives hang.
pub(super) const INGRESS: u32 = 0xffff_fff2;
/// The first preference behind those that the kernel gives by itself, which begin here and go down.
const BEHIND: u16 = 0xc001;
/// ETH_P_ALL, as it goes over the wire.
const EVERYTHING: u16 = 3u16.to_be();

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_U32_SEL: u16 = 5;
const TCA_U32_ACT: u16 = 7;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_MIRRED_PARMS: u16 = 2;
/// The filter ends here (TC_ACT_STOLEN): the packet is the IFB's now.
const STOLEN: u32 = 4;
/// Out of the interface, and not into it (TCA_EGRESS_REDIR).
const OUT: u32 = 1;

/// The filter that leads packets to an IFB.
#[derive(Debug)]
pub(super) struct Lead {
    /// Index of the IFB.
    pub(super) to: u32,
    preference: u16,
}

impl Lead {
    /// Behind the program, and behind whatever else is there.
    pub(super) fn add(netlink: &mut Netlink, device: &Device, to: u32) -> Result<Self> {
        let preference =
            taken(netlink, device)?.into_iter().max().map_or(BEHIND, |last| BEHIND.max(last.saturating_add(1)));
        if preference == u16::MAX {
            let why = "somebody's filter has the last preference there is, so none can be behind it".to_owned();
            return Err(Error::Invalid { what: device.to_string(), why });
        }
        let lead = Self { to, preference };
        // struct tc_u32_sel: flags TC_U32_TERMINAL, one key, struct tc_u32_key: whatever is at offset 0.
        let mut selector = vec![0; 16 + 16];
        (selector[0], selector[2]) = (1, 1);
        // struct tc_mirred: index, capab, action, refcnt, bindcnt, eaction, ifindex.
        let mirred: Vec<u8> = [0, 0, STOLEN, 0, 0, OUT, to].iter().flat_map(|v| v.to_ne_bytes()).collect();
        let action = Attributes::new()
            .with_text(TCA_ACT_KIND, "mirred")
            .with_nested(TCA_ACT_OPTIONS, Attributes::new().with(TCA_MIRRED_PARMS, &mirred));
        let options = Attributes::new()
            .with(TCA_U32_SEL, &selector)
            .with_nested(TCA_U32_ACT, Attributes::new().with_nested(1, action));
        let attributes = Attributes::new().with_text(TCA_KIND, "u32").with_nested(TCA_OPTIONS, options);
        let flags = flag::CREATE | flag::EXCLUSIVE;
        let what = format!("lead what arrives at {device} through interface {to}");
        netlink.change(&[Change {
            what,
            request: Request::new(RTM_NEWTFILTER, flags, &lead.fixed(device), attributes),
        }])?;
        Ok(lead)
    }

    pub(super) fn is_there(&self, netlink: &mut Netlink, device: &Device) -> Result<bool> {
        Ok(taken(netlink, device)?.contains(&self.preference))
    }

    /// Gone already is as good.
    pub(super) fn remove(self, netlink: &mut Netlink, device: &Device) -> Result<()> {
        let attributes = Attributes::new().with_text(TCA_KIND, "u32");
        let request = Request::new(RTM_DELTFILTER, 0, &self.fixed(device), attributes);
        let what = format!("end leading what arrives at {device} through interface {}", self.to);
        match netlink.change(&[Change { what, request }]) {
            Err(Error::Refused { source, .. })
                if matches!(source.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::EINVAL)) =>
            {
                Ok(())
            }
            done => done,
        }
    }

    /// `struct tcmsg`, with preference and protocol in its last number.
    fn fixed(&self, device: &Device) -> [u8; htb::TCMSG] {
        let mut fixed = htb::tcmsg(device.index, 0, INGRESS);
        let info = u32::from(self.preference) << 16 | u32::from(EVERYTHING);
        fixed[16..].copy_from_slice(&info.to_ne_bytes());
        fixed
    }
}

/// Preferences of the filters that are there.
fn taken(netlink: &mut Netlink, device: &Device) -> Result<Vec<u16>> {
    let list = Request::new(RTM_GETTFILTER, flag::DUMP, &htb::tcmsg(device.index, 0, INGRESS), Attributes::new());
    netlink.dump(&format!("list filters of {device}"), &list, |m| {
        let (head, _) = m.split(htb::TCMSG)?;
        Ok(u32_at(head, 16).map(|info| (info >> 16) as u16))
    })
}
