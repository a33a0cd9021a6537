#![allow(clippy::unwrap_used)]

use std::time::Duration;

use vmio_model::policy::Links;
use vmio_model::policy::assign::Interface;

use super::*;
use crate::core::MemberStatus;
use crate::planes::Count;
use crate::testing::policy;
use vmio_model::holding::Queue;
use vmio_model::rate::MBIT as M;

const POLICY: &str = "\
[uplink.eth0]
capacity = \"100Mbit\"
[class.gold]
priority = 2
min = \"40Mbit\"
[class.rest]
max = \"50Mbit\"
[[interface]]
match = { name = \"tap1\" }
class = \"gold\"
[[interface]]
match = { name = \"tap2\" }
class = \"rest\"
";

fn found(index: u32, vm: &str) -> DiscoveredInterface {
    Interface { index, name: format!("tap{index}"), vms: vec![vm.to_owned()], ..Interface::default() }.into()
}

/// Seconds of what tap1 and tap2 send and tap3 receives, in Mbit/s.
fn observe(seconds: &[(u64, u64, u64)]) -> Survey {
    let (policy, mut survey) = (policy(POLICY), Survey::default());
    let (start, mut sum) = (Instant::now(), [0u64; 3]);
    let all = [found(1, "web"), found(2, "db"), found(3, "log")];
    for (n, (a, b, c)) in [(0, 0, 0)].iter().chain(seconds).enumerate() {
        for (sum, rate) in sum.iter_mut().zip([a, b, c]) {
            *sum += (*rate * M).bytes().bytes();
        }
        let links = [("tap1", (sum[0], 0)), ("tap2", (sum[1], 0)), ("tap3", (0, sum[2]))];
        let links = links.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
        let member = |name: &str, class: &str, min, bytes| MemberStatus {
            name: name.into(),
            class: class.into(),
            min_effective_bps: min,
            limit_bps: None,
            count: Count { passed_bytes: bytes, ..Count::default() },
            held: None,
            local: None,
            flows: Vec::new(),
            other_limit: None,
            delay: crate::core::MemberDelay::default(),
        };
        let pool = PoolStatus {
            key: PoolKey { uplink: "eth0".into(), direction: Direction::GuestTx },
            root_bps: 100 * M,
            queue: Some(Queue::Uplink),
            stage: None,
            arrived_bytes: None,
            capacity_bps: 100 * M,
            interruptions: crate::planes::Interruptions::default(),
            members: vec![member("tap1", "gold", 40 * M, sum[0]), member("tap2", "rest", BitRate::ZERO, sum[1])],
        };
        survey.second(start + Duration::from_secs(n as u64), links, &all, &[pool], &policy);
    }
    survey
}

#[test]
fn what_the_policy_would_have_held_is_counted() {
    // Idle; tap2 above its maximum; both too much; tap1 short of its minimum on a full uplink.
    let survey = observe(&[(0, 0, 0), (10, 60, 0), (80, 45, 0), (20, 78, 0)]).document(&policy(POLICY));
    assert_eq!(survey.seconds, 4);
    let pool = &survey.pools[0];
    assert_eq!((pool.peak_bps / M, pool.full_seconds, pool.over_seconds), (125, 2, 1));
    let of = |name: &str| pool.members.iter().find(|m| m.name == name).unwrap();
    let gold = of("tap1");
    assert_eq!((gold.min_used_seconds, gold.short_seconds, gold.above_max_seconds, gold.held_seconds), (1, 1, 0, 0));
    let rest = of("tap2");
    // 60 and 78 are above 50; 45 is not, but 80 go first by their priority.
    assert_eq!((rest.above_max_seconds, rest.held_seconds, rest.peak_bps / M), (2, 1, 78));
}

#[test]
fn the_proposal_is_a_policy_with_what_was_usual_and_the_peak() {
    let mut seconds = vec![(18, 0, 2); 99];
    seconds.push((90, 0, 4));
    let survey = observe(&seconds).document(&policy(POLICY));
    let names: Vec<&str> = survey.interfaces.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["vm:db", "vm:log", "vm:web"]);
    let (web, log) = (&survey.interfaces[2], &survey.interfaces[1]);
    assert_eq!(web.tx_peak_bps, 90 * M);
    assert!((18 * M..19 * M).contains(&web.tx_usual_bps), "{}", web.tx_usual_bps);
    assert_eq!((log.tx_peak_bps, log.rx_peak_bps), (BitRate::ZERO, 4 * M));
    let read = Policy::read(&[("proposal", &survey.proposal)], &Links::default()).unwrap();
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    let policy = read.policy;
    let entries: Vec<_> =
        policy.entries.iter().map(|e| (e.matcher.label(), e.class.clone(), e.rx_class.clone())).collect();
    let first = ("vm:log".to_owned(), None, Some("seen-2".to_owned()));
    assert_eq!(entries, [first, ("vm:web".to_owned(), Some("seen-1".to_owned()), None)], "the idle one is in no class");
    let class = |name: &str| (policy.class(name).min.unwrap() / M, policy.class(name).max.unwrap() / M);
    assert_eq!((class("seen-1"), class("seen-2")), ((20, 100), (3, 5)));
}

#[test]
fn nothing_is_proposed_from_too_little() {
    let proposed = |seconds: &[(u64, u64, u64)]| {
        let survey = observe(seconds).document(&policy(POLICY));
        assert_eq!(survey.proposal.is_empty(), survey.not_proposed.is_some());
        survey.not_proposed.unwrap_or_default()
    };
    assert!(proposed(&[(18, 0, 2); 9]).contains("after 10 seconds"));
    assert_eq!(proposed(&[(18, 0, 2); 10]), "");
    assert_eq!(proposed(&[(0, 0, 0); 99]), "no guest sent or received anything");
}

#[test]
fn moments_are_no_seconds() {
    let (policy, mut survey, start) = (policy(POLICY), Survey::default(), Instant::now());
    for (ms, bytes) in [(0, 0), (1000, 125_000), (1001, 126_000), (2000, 250_000)] {
        let links = BTreeMap::from([("tap1".to_owned(), (bytes, 0))]);
        survey.second(start + Duration::from_millis(ms), links, &[found(1, "web")], &[], &policy);
    }
    let survey = survey.document(&policy);
    assert_eq!((survey.seconds, survey.interfaces[0].tx_peak_bps), (2, M));
}

#[test]
fn a_guest_that_comes_back_under_another_name_is_the_same() {
    let (policy, mut survey, start) = (policy(POLICY), Survey::default(), Instant::now());
    for (second, (tap, bytes)) in [(1, 0), (1, 125_000), (9, 5), (9, 5 + 3 * 125_000)].into_iter().enumerate() {
        let links = BTreeMap::from([(format!("tap{tap}"), (bytes, 0))]);
        survey.second(start + Duration::from_secs(second as u64), links, &[found(tap, "web")], &[], &policy);
    }
    let survey = survey.document(&policy);
    assert_eq!((survey.interfaces.len(), survey.interfaces[0].tx_peak_bps), (1, 3 * M));
}
