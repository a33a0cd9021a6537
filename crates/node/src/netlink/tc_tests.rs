#![allow(clippy::unwrap_used)]
use super::*;

/// A message of so many bytes of `struct tcmsg` and attributes.
fn message(handle: u32, parent: u32, info: u32, attributes: Attributes) -> Vec<u8> {
    let mut bytes = tcmsg(7, handle, parent).to_vec();
    bytes[16..20].copy_from_slice(&info.to_ne_bytes());
    bytes.extend(attributes.bytes());
    bytes
}

fn read<T>(payload: &[u8], by: impl Fn(&Message<'_>) -> Result<T, Malformed>) -> T {
    by(&Message { kind: 36, flags: 0, sequence: 1, payload }).unwrap()
}

fn numbers(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|n| n.to_ne_bytes()).collect()
}

/// `struct tc_ratespec` with this rate.
fn rate(bytes_per_second: u32) -> [u32; 3] {
    [0, 0, bytes_per_second]
}

/// Ticks of so many bytes at a rate.
fn ticks(bytes: u64, rate: u64) -> u32 {
    u32::try_from(bytes * 1_000_000_000 / 64 / rate).unwrap()
}

fn of_kind(kind: &str, options: Attributes) -> Attributes {
    Attributes::new().with_text(TCA_KIND, kind).with_nested(TCA_OPTIONS, options)
}

/// `struct tc_police` that drops.
fn police_of(bytes_per_second: u32, burst: u32, action: u32) -> Attributes {
    let head = [1, action, 0, burst, 65_535];
    let all = [&head[..], &rate(bytes_per_second), &rate(0), &[0, 0, 0]].concat();
    Attributes::new().with(1, &numbers(&all))
}

#[test]
fn token_bucket_with_its_burst() {
    let burst = ticks(250_000, 12_500_000);
    let parms = [&rate(12_500_000)[..], &rate(0), &[1_000_000, burst, 0]].concat();
    let options = Attributes::new().with(1, &numbers(&parms));
    let found = read(&message(0x0001_0000, AT_ROOT, 2, of_kind("tbf", options.clone())), qdisc);
    assert_eq!((found.index, found.handle, found.parent, found.kind.as_str()), (7, 0x0001_0000, AT_ROOT, "tbf"));
    let limit = found.limit.unwrap();
    assert_eq!(limit.bytes_per_second, 12_500_000);
    assert!(limit.burst_bytes.unwrap().abs_diff(250_000) < 10, "{limit:?}");
    // More than 32 bits hold, and a burst in bytes.
    let large = options.with_u64(4, 12_500_000_000).with_u32(6, 1 << 20);
    let found = read(&message(0x0001_0000, AT_ROOT, 2, of_kind("tbf", large)), qdisc);
    assert_eq!(found.limit, Some(Limit { bytes_per_second: 12_500_000_000, burst_bytes: Some(1 << 20) }));
}

/// `tc qdisc add dev tap0 root fq maxrate 100mbit`: no limit of all packets.
#[test]
fn what_limits_each_flow() {
    let of = |paced: u32, rate: u32| {
        let options = Attributes::new().with_u32(5, paced).with_u32(7, rate);
        let found = read(&message(1 << 16, AT_ROOT, 2, of_kind("fq", options)), qdisc);
        assert_eq!(found.limit, None);
        found.flow_limit.map(|limit| limit.bytes_per_second)
    };
    assert_eq!([of(1, 12_500_000), of(1, u32::MAX), of(0, 12_500_000)], [Some(12_500_000), None, None]);
}

#[test]
fn kinds_that_limit_all_and_kinds_that_do_not() {
    let cake = Attributes::new().with_u64(2, 5_000_000);
    let limit = |kind, options| read(&message(1 << 16, AT_ROOT, 2, of_kind(kind, options)), qdisc).limit;
    assert_eq!(limit("cake", cake), Some(Limit { bytes_per_second: 5_000_000, burst_bytes: None }));
    assert_eq!(limit("cake", Attributes::new().with_u64(2, 0)), None);
    assert_eq!(limit("fq_codel", Attributes::new()), None);
    // netem has a struct before its attributes.
    let mut options = numbers(&[0; 6]);
    options.extend(Attributes::new().with(6, &numbers(&[1_000_000, 0, 0, 0])).bytes());
    let netem = Attributes::new().with_text(TCA_KIND, "netem").with(TCA_OPTIONS, &options);
    let found = read(&message(1 << 16, AT_ROOT, 2, netem), qdisc);
    assert_eq!(found.limit, Some(Limit { bytes_per_second: 1_000_000, burst_bytes: None }));
}

#[test]
fn htb_with_its_default_class() {
    let stats = [numbers(&[0, 0, 10, 3]), numbers(&[0; 5])].concat();
    let glob = Attributes::new().with(2, &numbers(&[3, 10, 1, 0, 0]));
    let found = read(&message(0x0001_0000, AT_ROOT, 2, of_kind("htb", glob).with(TCA_STATS, &stats)), qdisc);
    assert_eq!((found.default_class, found.dropped, found.limit), (0x0001_0001, 3, None));
    let opt = [&rate(25_600_000)[..], &rate(25_600_000), &[0, ticks(1600, 25_600_000), 0, 0, 0]].concat();
    let options = Attributes::new().with(1, &numbers(&opt));
    let found = read(&message(0x0001_0001, AT_ROOT, 2, of_kind("htb", options)), class).unwrap();
    assert_eq!((found.handle, found.limit.unwrap().bytes_per_second), (0x0001_0001, 25_600_000));
    // One at the root has none to borrow from.
    let opt = [&rate(1_000_000)[..], &rate(25_600_000), &[0; 5]].concat();
    let below = |parent| {
        let options = Attributes::new().with(1, &numbers(&opt));
        read(&message(0x0001_0001, parent, 2, of_kind("htb", options)), class).unwrap().limit.unwrap()
    };
    assert_eq!([AT_ROOT, 0x0001_fffe].map(|parent| below(parent).bytes_per_second), [1_000_000, 25_600_000]);
    assert_eq!(read(&message(0x0001_0001, AT_ROOT, 2, of_kind("drr", Attributes::new())), class), None);
}

#[test]
fn hfsc_with_its_default_class_and_its_upper_limit() {
    let options = Attributes::new().with_text(TCA_KIND, "hfsc").with(TCA_OPTIONS, &1u16.to_ne_bytes());
    let found = read(&message(0x0001_0000, AT_ROOT, 2, options), qdisc);
    assert_eq!((found.default_class, found.limit), (0x0001_0001, None));
    let curve = |rate| numbers(&[0, 0, rate]);
    let of_class = |options| read(&message(0x0001_0001, 0x0001_fffe, 2, of_kind("hfsc", options)), class).unwrap();
    let shared = Attributes::new().with(1, &curve(1000)).with(2, &curve(1000));
    assert_eq!(of_class(shared.clone()).limit, None);
    let limited = of_class(shared.with(3, &curve(625_000)));
    assert_eq!(limited.limit, Some(Limit { bytes_per_second: 625_000, burst_bytes: None }));
    assert_eq!((limited.handle, limited.parent), (0x0001_0001, 0x0001_fffe));
}

/// ETH_P_ALL and a preference.
fn everything(preference: u32) -> u32 {
    preference << 16 | u32::from(3u16.to_be())
}

#[test]
fn policer_of_libvirt_has_no_action_of_its_own() {
    // match u32 0 0 police rate 25600kbps burst 25600kb drop
    let sel = [vec![1, 0, 1, 0], numbers(&[0, 0, 0]), numbers(&[0; 4])].concat();
    let police = police_of(25_600_000, ticks(26_214_400, 25_600_000), DROP);
    let options = Attributes::new().with(5, &sel).with_nested(6, police.clone());
    let stats = [numbers(&[0, 0, 10, 41]), numbers(&[0; 5])].concat();
    let whole = of_kind("u32", options).with(TCA_STATS, &stats);
    let found = read(&message(0x8000_0800, AT_INGRESS, everything(49_152), whole.clone()), filter).unwrap();
    assert!(found.whole && found.redirect.is_none());
    assert_eq!((found.preference, found.dropped), (49_152, 41));
    let limit = found.police.unwrap();
    assert_eq!(limit.bytes_per_second, 25_600_000);
    assert!(limit.burst_bytes.unwrap().abs_diff(26_214_400) < 10, "{limit:?}");
    // Of one protocol, or with a mask, it is of a part; its table is no filter.
    assert!(!read(&message(0x8000_0800, AT_INGRESS, 49_152 << 16 | 8, whole.clone()), filter).unwrap().whole);
    let masked = [vec![1, 0, 1, 0], numbers(&[0, 0, 0]), numbers(&[0xff, 0, 0, 0])].concat();
    let masked = of_kind("u32", Attributes::new().with(5, &masked).with_nested(6, police));
    assert!(!read(&message(0x8000_0800, AT_INGRESS, everything(1), masked), filter).unwrap().whole);
    assert_eq!(read(&message(0x8000_0000, AT_INGRESS, everything(1), whole), filter), None);
}

#[test]
fn policer_as_an_action_and_one_that_does_not_drop() {
    let action = |action: u32| {
        let stats = Attributes::new().with(3, &numbers(&[0, 0, 12, 0, 0]));
        let one = Attributes::new().with_text(1, "police").with_nested(2, police_of(1_000_000, 0, action));
        Attributes::new().with_nested(1, one.with_nested(4, stats))
    };
    // The head of no extended match is told all the same.
    let none = Attributes::new().with(1, &[0; 4]);
    let basic = |drops| of_kind("basic", Attributes::new().with_nested(2, none.clone()).with_nested(3, action(drops)));
    let found = read(&message(1, AT_INGRESS, everything(50), basic(DROP)), filter).unwrap();
    assert_eq!((found.whole, found.preference, found.dropped), (true, 50, 12));
    assert_eq!(found.police.unwrap().bytes_per_second, 1_000_000);
    assert_eq!(read(&message(1, AT_INGRESS, everything(50), basic(3)), filter), None);
}

#[test]
fn redirect_to_another_interface() {
    let mirred = Attributes::new().with(2, &numbers(&[1, 0, 4, 1, 1, REDIRECT, 12]));
    let one = Attributes::new().with_text(1, "mirred").with_nested(2, mirred);
    let options = Attributes::new().with_nested(2, Attributes::new().with_nested(1, one));
    let found = read(&message(1, AT_INGRESS, everything(1), of_kind("matchall", options)), filter).unwrap();
    assert_eq!((found.redirect, found.whole, found.police), (Some(12), true, None));
}

#[test]
fn what_is_cut_off_is_an_error_or_unknown() {
    assert!(qdisc(&Message { kind: 36, flags: 0, sequence: 1, payload: &[0; 8] }).is_err());
    let short = of_kind("tbf", Attributes::new().with(1, &[0; 8]));
    assert_eq!(read(&message(1 << 16, AT_ROOT, 2, short), qdisc).limit, None);
}
