#![allow(clippy::unwrap_used)]
use super::*;
use vmio_model::policy::flow::{FlowMatch, MOST_FLOWS, Network};
use vmio_model::policy::policer::{Policer, Policers};
use vmio_model::rate::MBIT;

/// As the object declares them; nothing is loaded.
#[test]
fn layout_of_the_maps() {
    let open = loudly("open the object", attach::open).unwrap();
    let sizes: BTreeMap<String, (u32, u32)> =
        open.maps().map(|m| (m.name().to_string_lossy().into_owned(), (m.value_size(), m.max_entries()))).collect();
    let with_index = |bytes: usize| (bytes + by_index::INDEX) as u32;
    assert_eq!(sizes["tenants"], (with_index(TENANT), MOST as u32 + 1));
    assert_eq!(sizes["counters"], (counters::BYTES as u32, MOST as u32 + 1));
    assert_eq!(sizes["claims"], (counters::BYTES as u32, MOST as u32 + 1));
    assert_eq!(sizes["limits"], (buckets::LIMIT as u32, buckets::ENTRIES as u32));
    assert_eq!(sizes["buckets"], (counters::BYTES as u32, buckets::ENTRIES as u32));
    assert_eq!(sizes["flow_limits"], ((buckets::FLOW * MOST_FLOWS) as u32, buckets::ENTRIES as u32));
    assert_eq!(sizes["flow_buckets"], ((counters::BYTES * MOST_FLOWS) as u32, buckets::ENTRIES as u32));
    assert_eq!(sizes["owned"], (4, claims::MOST_OWNED as u32));
    let key = open.maps().find(|m| m.name() == "owned").unwrap().key_size();
    assert_eq!(key, claims::OWNED as u32);
    assert_eq!(sizes["led"], (LEAD as u32, NUMBERS + 1));
    assert_eq!(sizes["uplinks"].0, with_index(uplink::LEAVER));
    assert_eq!(sizes["receivers"].0, with_index(uplink::RECEIVER));
    for name in ["tenants", "uplinks", "receivers"] {
        assert_eq!(sizes[&format!("near_{name}")].0, sizes[name].0);
    }
    assert_eq!(sizes["destinations"], (4, uplink::MOST_ADDRESSES as u32));
    let key = open.maps().find(|m| m.name() == "destinations").unwrap().key_size();
    assert_eq!(key, uplink::DESTINATION as u32);
}

#[test]
fn layout_of_a_tenant() {
    let tenant = Tenant {
        class: 0x7a00_0002,
        address: Some([2, 0, 0, 0, 0, 9]),
        redirect: Some(7),
        framing: Framing::ETHERNET,
        checks: None,
        policed: None,
    };
    let bytes = tenant.encode(3, AttachMode::Tcx);
    assert_eq!(bytes[..4], 0x7a00_0002u32.to_ne_bytes());
    assert_eq!(bytes[4..8], 3u32.to_ne_bytes(), "both flags");
    assert_eq!((bytes[8], bytes[12]), (7, 3));
    assert_eq!(
        (bytes[16..18].to_vec(), bytes[18..20].to_vec()),
        (24u16.to_ne_bytes().into(), 84u16.to_ne_bytes().into())
    );
    assert_eq!(bytes[20..26], [2, 0, 0, 0, 0, 9]);
    let lead = tenant.encode_lead(3);
    assert_eq!((lead[0], lead[4], &lead[8..12], lead[12]), (7, 4, &bytes[16..20], 0), "slot 0 is 1, and 0 is none");
    let plain = Tenant { class: 1, address: None, redirect: None, framing: Framing::NONE, checks: None, policed: None }
        .encode(0, AttachMode::Tcx);
    assert_eq!(plain[4..28], [0; 24]);
    let checks = Some(Checks { addresses: true, drop: true, router: false });
    assert_eq!(Tenant { checks, ..tenant }.encode(3, AttachMode::Tcx)[4..8], 0x703u32.to_ne_bytes());
    let policed = |at| Tenant { policed: Some(at), ..tenant };
    let [interface, uplink] = [PolicedAt::Interface, PolicedAt::Uplink].map(policed);
    assert_eq!((interface.encode(3, AttachMode::Tcx)[4], interface.encode_lead(3)[12]), (7, 0));
    assert_eq!((uplink.encode(3, AttachMode::Tcx)[4], uplink.encode_lead(3)[12]), (3, 1));
    assert_eq!(tenant.encode(3, AttachMode::Clsact)[4..8], 1u32.to_ne_bytes(), "at clsact a filter leads to the IFB");
}

#[test]
fn layout_of_an_owned_address() {
    let key = claims::owned(0x0102_0304, &as_compared("192.0.2.7".parse().unwrap()));
    assert_eq!(key[..4], 0x0102_0304u32.to_ne_bytes());
    assert_eq!(key[4..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7]);
}

#[test]
fn layout_of_a_leaver() {
    let words = |leave: Leave, slots| -> Vec<u32> {
        leave.encode(slots).chunks(4).map(|c| u32::from_ne_bytes(c.try_into().unwrap())).collect()
    };
    let plain = Leave { host: 7, stage: None, queueless: None };
    let staged = Leave { host: 0x7a00_0002, stage: Some((0x7a00_0004, 9)), ..plain };
    assert_eq!(words(staged, None), [0x7a00_0002, 0x7a00_0004, 9, 0, 0, 0, 0]);
    assert_eq!(words(plain, None), [7, 0, 0, 0, 0, 0, 0]);
    let queueless = Leave { queueless: Some(Framing::ETHERNET), ..plain };
    assert_eq!(words(queueless, Some([0, 4]))[..6], [7, 0, 0, 0, 1, 5], "slot 0 is 1, and 0 is none");
    let framing = queueless.encode(Some([0, 4]));
    assert_eq!((&framing[24..26], &framing[26..]), (&24u16.to_ne_bytes()[..], &84u16.to_ne_bytes()[..]));
}

#[test]
fn layout_of_a_destination() {
    let key = uplink::destination(0x0102_0304, [2, 0, 0, 0, 0, 9]);
    assert_eq!(key[..4], 0x0102_0304u32.to_ne_bytes());
    assert_eq!(key[4..], [2, 0, 0, 0, 0, 9, 0, 0], "what is left is 0, or nothing is found");
    assert_ne!(key, uplink::destination(0x0102_0305, [2, 0, 0, 0, 0, 9]), "another uplink");
    let receive = Receive { host: 0x7a00_0002, other: 0x7a00_0003, through: 12, classes: BTreeMap::new() };
    let words =
        |mode| receive.encode(mode).chunks(4).map(|c| u32::from_ne_bytes(c.try_into().unwrap())).collect::<Vec<_>>();
    assert_eq!(words(AttachMode::Tcx), [0x7a00_0002, 0x7a00_0003, 12, 0]);
    assert_eq!(words(AttachMode::Clsact)[2], 0, "at clsact a filter leads to the IFB");
}

#[test]
fn layout_of_a_bucket() {
    // 100 ms.
    let policer = Some(Policer { rate_bps: 8 * MBIT, burst_bytes: 100_000 });
    let matcher = FlowMatch {
        dscp: Some(46),
        protocol: None,
        ports: vec![(80, 81)],
        address: Network::parse("10.128.0.0/9").ok(),
    };
    let flows = vec![(matcher.clone(), policer), (FlowMatch::default(), None)];
    let bytes = buckets::limit(&Policers { own: policer, flows }, Framing::ETHERNET);
    assert_eq!(bytes[..8], 1_000_000u64.to_ne_bytes());
    assert_eq!(bytes[8..16], 1_600_000_000u64.to_ne_bytes());
    assert_eq!((&bytes[16..18], &bytes[18..20]), (&24u16.to_ne_bytes()[..], &84u16.to_ne_bytes()[..]));
    assert_eq!(bytes[20..], 2u32.to_ne_bytes());
    let flow = buckets::flow(&matcher, policer);
    assert_eq!(flow[..16], bytes[..16]);
    assert_eq!((&flow[16..21], &flow[32..36]), (&[10, 128, 0, 0, 0][..], &[255, 128, 0, 0][..]));
    assert_eq!((&flow[48..50], &flow[50..52]), (&80u16.to_ne_bytes()[..], &81u16.to_ne_bytes()[..]));
    assert_eq!((&flow[52..54], &flow[54..56]), (&1u16.to_ne_bytes()[..], &0u16.to_ne_bytes()[..]), "no port is in it");
    assert_eq!(flow[64..68], [4, 46, 0, 5]);
    let other = buckets::flow(&FlowMatch::default(), None);
    assert_eq!((&other[..8], other[67]), (&[0; 8][..], 0));
    assert_eq!(other[8..16], 1u64.to_ne_bytes(), "it is there, and has no bucket");
}
