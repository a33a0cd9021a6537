//! Ingress policing of Open vSwitch: limits on what its ports receive (ovs-vswitchd.conf.db(5), table Interface,
//! "Ingress Policing"; Documentation/faq/qos.rst).

use std::collections::BTreeMap;

use vmio_model::facts::{RateLimit, Unread};
use vmio_model::policy::Direction;
use vmio_model::rate::BitRate;

use crate::host_view::HostView;
use crate::ovs::{Ovs, OvsInterface};

/// Burst in kbit where none is written (lib/netdev-linux.c, `netdev_linux_set_policing`).
const DEFAULT_BURST: u64 = 8000;

/// Limits by interface; empty without Open vSwitch.
///
/// # Errors
/// When it does not answer, or its answer cannot be parsed.
pub fn policed(host: &HostView<'_>) -> Result<BTreeMap<String, RateLimit>, Unread> {
    host.ovs().map(limits).map_err(Clone::clone)
}

/// Rates are kbit/s of 1000, bursts kbit; 0 is no limit.
fn limits(ovs: &Ovs) -> BTreeMap<String, RateLimit> {
    let limit = |port: &OvsInterface| {
        let burst = Some(port.policing_burst_kbit).filter(|kbit| *kbit > 0).unwrap_or(DEFAULT_BURST);
        let rate = BitRate::new(port.policing_kbit.saturating_mul(1000));
        RateLimit {
            burst_bytes: Some(burst.saturating_mul(125)),
            ..RateLimit::new("openvswitch", Direction::GuestTx, rate, true)
        }
    };
    let limited = ovs.interfaces.iter().filter(|(_, port)| port.policing_kbit > 0);
    limited.map(|(name, port)| (name.clone(), limit(port))).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_the_policer_holds_back() {
        let limits = limits(&Ovs::parse(crate::ovs::tests::SAID).unwrap());
        let all: Vec<_> = limits.iter().map(|(name, l)| (name.as_str(), l.rate_bps.bits(), l.burst_bytes)).collect();
        assert_eq!(all, [("tap0", 100_000_000, Some(1_000_000)), ("tap1", 1000, Some(1_000_000))]);
    }

    #[test]
    fn nobody_is_asked_where_it_does_not_run() {
        let fake = vmio_node::fake::Fake::new("fake");
        assert_eq!(policed(&HostView::new(&fake)), Ok(BTreeMap::new()));
        assert!(fake.ran().is_empty());
    }
}
