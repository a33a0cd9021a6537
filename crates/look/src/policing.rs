//! Ingress policing of Open vSwitch: limits on what its ports receive (ovs-vswitchd.conf.db(5), table Interface,
//! "Ingress Policing"; Documentation/faq/qos.rst).

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use vmio_model::facts::{RateLimit, Unread};
use vmio_model::policy::Direction;
use vmio_model::rate::BitRate;

use crate::host_view::{HostView, Question};
use crate::require;

/// Sockets of its database; they exist where it runs.
const SOCKETS: [&str; 2] = ["/run/openvswitch/db.sock", "/var/run/openvswitch/db.sock"];

/// Limits by interface; empty without Open vSwitch.
///
/// # Errors
/// When it does not answer, or its answer cannot be parsed.
pub fn policed(host: &HostView<'_>) -> Result<BTreeMap<String, RateLimit>, Unread> {
    let runs = SOCKETS.iter().any(|socket| matches!(host.reader().stat(Path::new(socket)), Ok(Some(_))));
    if !runs || require::find_program(host.reader(), Question::OvsPolicing.program()).is_none() {
        return Ok(BTreeMap::new());
    }
    let said = host.ask(&Question::OvsPolicing)?;
    limits(&said).ok_or_else(|| Unread {
        what: "policing of Open vSwitch".into(),
        why: "ovs-vsctl's answer is no table of name, rate and burst".into(),
        mend: "look at it: ovs-vsctl list Interface".into(),
    })
}

/// Parses its JSON: headings, and a row an interface. Rates are kbit/s of 1000, bursts kbit; 0 is no limit.
fn limits(said: &str) -> Option<BTreeMap<String, RateLimit>> {
    let table: Value = serde_json::from_str(said).ok()?;
    let head = table.get("headings")?.as_array()?;
    let column = |name: &str| head.iter().position(|h| h == name);
    let (name, rate) = (column("name")?, column("ingress_policing_rate")?);
    let burst = column("ingress_policing_burst")?;
    let mut all = BTreeMap::new();
    for row in table.get("data")?.as_array()? {
        let Some(kbit) = row.get(rate)?.as_u64().filter(|kbit| *kbit > 0) else { continue };
        let limit = RateLimit {
            direction: Direction::GuestTx,
            by: "openvswitch".to_owned(),
            rate_bps: BitRate::new(kbit.saturating_mul(1000)),
            peak_bps: None,
            burst_bytes: row.get(burst)?.as_u64().filter(|kbit| *kbit > 0).map(|kbit| kbit.saturating_mul(125)),
            drops: true,
        };
        all.insert(row.get(name)?.as_str()?.to_owned(), limit);
    }
    Some(all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_ovs_vsctl() {
        let said = r#"{"data":[["tap0",100000,8000],["br0",0,0],["tap1",1,0]],"headings":["name","ingress_policing_rate","ingress_policing_burst"]}"#;
        let limits = limits(said).unwrap();
        let all: Vec<_> = limits.iter().map(|(name, l)| (name.as_str(), l.rate_bps.bits(), l.burst_bytes)).collect();
        assert_eq!(all, [("tap0", 100_000_000, Some(1_000_000)), ("tap1", 1000, None)]);
        for wrong in ["", "{}", r#"{"headings":["name"],"data":[]}"#, "ovs-vsctl: no database"] {
            assert_eq!(super::limits(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn nobody_is_asked_where_it_does_not_run() {
        let fake = vmio_node::fake::Fake::new("fake");
        assert_eq!(policed(&HostView::new(&fake)), Ok(BTreeMap::new()));
        assert!(fake.ran().is_empty());
    }
}
