#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use vmio_guard::manager::document::LimitDocument;
use vmio_model::rate::BitRate;

use super::pools::{self, cut};
use super::*;

fn text_at(status: &Status, verbose: bool, style: Style, width: usize) -> String {
    shown(status, View { verbose, style, width, state: "" })
}

const EXAMPLE: &str = include_str!("example.json");
const PAGE: &str = include_str!("../../../../../../docs/guard-daemon.md");

fn example() -> Status {
    serde_json::from_str(EXAMPLE).unwrap()
}

/// Another program's queue is in place of the guard's, and web1 needs its minimum.
fn troubled() -> Status {
    let mut status = example();
    let pool = &mut status.pools[0];
    pool.shared_bps = BitRate::ZERO;
    pool.not_in_force = Some(
        "qdisc pfifo 8001: of another program is in place of the queues at eth0; remove it: tc qdisc del dev eth0 \
         root; or let the guard do that: guard.on_conflict = \"restore\""
            .to_owned(),
    );
    (pool.members[1].breached_seconds, pool.members[1].rate_bps) = (Some(75.0), None);
    pool.members[2].spoofed_packets_total = 9;
    status.policy.files_differ = true;
    status
}

fn unfolded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_page_shows_what_is_printed() {
    let text = text_at(&example(), false, Style::PLAIN, 80);
    assert!(
        PAGE.contains(&format!("$ vmio guard status\n{text}```\n")),
        "docs/guard-daemon.md has something else:\n{text}"
    );
}

#[test]
fn more_is_told_where_it_is_asked_for() {
    let (brief, whole) = (example(), unfolded(&text_at(&example(), true, Style::PLAIN, 80)));
    let brief = unfolded(&text_at(&brief, false, Style::PLAIN, 80));
    for what in [
        "note: tap9 is in no class",
        "note: local traffic is not limited: what members of gold send",
        "excess waits in the guest (send buffer 750000 bytes): virtio-net on a tap",
        "queue: room for TCP; local: count; spoofing: warn; router: no; addresses by the policy: 192.0.2.7, 2001:db8",
        "queue: 25.0 ms; local: count; spoofing: warn; router: no; addresses: none listed",
        "50 Mbit/s stay free, so that excess waits on this host",
        "new interfaces: 2 so far, 99 % of them limited within 5.10 ms",
        "other programs: 8 changes to queues, filters and control groups corrected so far",
    ] {
        assert!(whole.contains(what), "{what}: {whole}");
        assert!(!brief.contains(what), "{what}: {brief}");
    }
    assert!(brief.contains("2 notes: vmio guard status --verbose") && !whole.contains("2 notes"), "{brief}");
}

#[test]
fn the_worst_and_the_answer_are_last() {
    let text = unfolded(&text_at(&troubled(), false, Style::PLAIN, 80));
    let places: Vec<usize> = [
        "eth0 guest_tx: 1 Gbit/s, nothing in force (see below)",
        "files: the files have changed since; to put them in force: vmio guard apply",
        "spoofed: db1 (vnet7): 9 packets so far claimed addresses that are not its own, 0 of them dropped",
        "breach: eth0 guest_tx web1 (tap3): nothing holds its minimum of 300 Mbit/s, for 1 min 15 s now",
        "not in force: eth0 guest_tx: qdisc pfifo 8001:",
        "not in force on eth0 guest_tx; 1 guarantee is broken now",
    ]
    .iter()
    .map(|what| text.find(what).unwrap_or_else(|| panic!("{what}: {text}")))
    .collect();
    assert!(places.is_sorted(), "{places:?}: {text}");
    assert!(text.ends_with("1 guarantee is broken now"), "{text}");
    let mut status = example();
    status.trouble = Some("no memory".to_owned());
    let text = text_at(&status, false, Style::PLAIN, 80);
    assert!(text.ends_with("trouble: no memory\nin force; no guarantee is broken now; trouble: see above\n"), "{text}");
    status.pools[1].members[1].flooded_seconds = Some(9.0);
    let text = unfolded(&text_at(&status, false, Style::PLAIN, 80));
    assert!(text.contains("flooded: eth0 guest_rx web1 (tap3): receives "), "{text}");
    assert!(text.ends_with("no guarantee is broken now; flooded: see above; trouble: see above"), "{text}");
    status.plane = "observe".to_owned();
    assert!(text_at(&status, false, Style::PLAIN, 80).ends_with("observing: nothing is limited\n"));
}

#[test]
fn measured_waits_and_missed_targets() {
    use vmio_guard::manager::document::DelayDocument;
    let mut status = example();
    let member = &mut status.pools[0].members[1];
    member.delay = Some(DelayDocument {
        median_seconds: Some(0.000_3),
        p99_seconds: Some(0.024),
        jitter_seconds: Some(0.024),
        met: None,
        missed_seconds: None,
        misses_total: 0,
        packets_total: 9,
        wait_seconds_total: 0.1,
        buckets: Vec::new(),
    });
    let told = |status: &Status| unfolded(&text_at(status, true, Style::PLAIN, 80));
    let text = told(&status);
    assert!(text.contains("delay 24.0 ms, jitter 24.0 ms; half of the packets waited at most 300 µs"), "{text}");
    assert!(text.ends_with("no guarantee is broken now"), "{text}");
    let member = &mut status.pools[0].members[1];
    member.settings.as_mut().unwrap().delay_seconds = Some(0.02);
    let delay = member.delay.as_mut().unwrap();
    (delay.met, delay.missed_seconds, delay.misses_total) = (Some(false), Some(75.0), 1);
    let text = told(&status);
    assert!(text.contains("delay 24.0 ms of at most 20.0 ms, jitter 24.0 ms; half of"), "{text}");
    assert!(text.contains("300 µs; a target is missed"), "{text}");
    let line =
        "delay: eth0 guest_tx web1 (tap3): delay 24.0 ms of at most 20.0 ms, jitter 24.0 ms; missed for 1 min 15 s now";
    assert!(text.contains(line), "{text}");
    assert!(text.ends_with("no guarantee is broken now; targets of delay missed by 1 member"), "{text}");
}

#[test]
fn flow_classes_are_rows_below_their_member() {
    use vmio_guard::manager::document::FlowDocument;
    let mut status = example();
    let member = &mut status.pools[0].members[2];
    let flow = |name: &str, waiting_bytes| FlowDocument {
        name: name.to_owned(),
        priority: 1,
        min_bps: BitRate::new(10_000_000),
        max_bps: BitRate::new(20_000_000),
        rate_bps: Some(BitRate::new(19_500_000)),
        passed_bytes_total: 1 << 30,
        dropped_packets_total: 7,
        waiting_bytes,
    };
    member.flows = vec![flow("voice", 0), flow("rest", 0)];
    let idle = text_at(&status, false, Style::PLAIN, 80);
    assert!(idle.lines().any(|line| line.split_whitespace().eq(["voice", "1", "19.50", "10", "20", "7"])), "{idle}");
    assert!(idle.contains("\n  rest ") && !idle.contains("passed"), "{idle}");
    assert!(!idle.contains("0 B wait"), "{idle}");
    // What waits at a flow class's maximum is in no other figure.
    let member = &mut status.pools[0].members[2];
    (member.waiting_bytes, member.flows) = (0, vec![flow("voice", 5 << 18), flow("rest", 0)]);
    let busy = unfolded(&text_at(&status, false, Style::PLAIN, 80));
    assert!(busy.contains("db1 (vnet7): 1.25 MiB wait on this host now (voice 1.25 MiB)"), "{busy}");
}

#[test]
fn limits_of_others_and_local_traffic_behind_taps_are_told() {
    use vmio_guard::manager::document::{OtherLimitDocument, StageDocument};
    let mut status = example();
    let pool = &mut status.pools[0];
    pool.stage = Some(StageDocument { shared_bps: pool.shared_bps, waiting_bytes: 0, dropped_packets_total: 0 });
    pool.members.iter_mut().filter_map(|member| member.local.as_mut()).for_each(|local| local.limited = true);
    let other = |mbit: u64| OtherLimitDocument { kind: "tbf".to_owned(), rate_bps: BitRate::new(mbit * 1_000_000) };
    status.pools[1].members[1].other_limit = Some(other(2));
    let text = unfolded(&text_at(&status, false, Style::PLAIN, 80));
    for what in [
        "of these rates local traffic, which never reaches eth0: 20.0 Mbit/s limited, of which web1",
        "limited: eth0 guest_rx web1 (tap3): tbf 2.00 Mbit/s of another program is below the minimum of 300 Mbit/s",
    ] {
        assert!(text.contains(what), "{what}: {text}");
    }
    status.pools[1].members[1].other_limit = Some(other(400));
    let text = unfolded(&text_at(&status, true, Style::PLAIN, 80));
    assert!(!text.contains("limited: eth0") && text.contains("tbf of another program at its interface lets"), "{text}");
    assert!(text.contains("local: limited by the queues behind the taps"), "{text}");
}

#[test]
fn an_uplink_without_queues_says_so() {
    let mut status = example();
    status.pools[0].queueless = true;
    let text = unfolded(&text_at(&status, true, Style::PLAIN, 80));
    assert!(text.contains("eth0 guest_tx: 1 Gbit/s; no queue; maxima by token bucket"), "{text}");
    let sent = text.split("eth0 guest_rx").next().unwrap();
    assert!(!sent.contains("excess waits on this host") && !sent.contains("on this host (1)"), "{sent}");
    status.pools[0].members[1].excess.as_mut().unwrap().waits = "none".to_owned();
    let text = unfolded(&text_at(&status, false, Style::PLAIN, 80));
    assert!(text.contains("not limited (1)"), "{text}");
}

#[test]
fn a_guest_without_a_limit_of_its_own_is_in_the_answer() {
    let mut status = example();
    let limit = |value: Option<&str>| {
        let (key, wanted, value) = ("cpu_max".to_owned(), Some("150%".to_owned()), value.map(str::to_owned));
        let why_not = value.is_none().then(|| "it has no process".to_owned());
        LimitDocument { key, wanted, file: None, value, before: None, why_not }
    };
    let guest = |name: &str, limits| GuestDocument { guest: name.to_owned(), limits };
    status.guests = vec![guest("web1", vec![limit(None), limit(None)]), guest("db1", vec![limit(Some("150000"))])];
    let text = unfolded(&text_at(&status, false, Style::PLAIN, 80));
    let answer = "in force, except processors and memory of 1 guest; no guarantee is broken now";
    assert!(text.ends_with(answer), "{text}");
    status.guests.remove(0);
    status.uplinks_down.push("eth0".to_owned());
    let text = unfolded(&text_at(&status, false, Style::PLAIN, 80));
    assert!(text.ends_with("in force; eth0 is down; no guarantee is broken now"), "{text}");
    status.uplinks_down.clear();
    assert!(text_at(&status, false, Style::PLAIN, 80).ends_with("in force; no guarantee is broken now\n"));
}

#[test]
fn memory_that_is_moved_or_would_be_is_told() {
    let mut status = example();
    let moved = MemoryDocument {
        guest: "web1".to_owned(),
        min_bytes: Some(512 << 20),
        max_bytes: None,
        is_moved: true,
        actual_bytes: Some(1152 << 20),
        before_bytes: Some(1024 << 20),
        hits_percent: Some(82),
        to_bytes: Some(1280 << 20),
        why: Some("the host's page cache answers its reads".to_owned()),
        why_not: None,
        free_bytes: Some(18 << 20),
        available_bytes: None,
        host_cached_bytes: None,
    };
    let told = MemoryDocument {
        guest: "db1".to_owned(),
        is_moved: false,
        actual_bytes: Some(2048 << 20),
        before_bytes: None,
        hits_percent: None,
        to_bytes: Some(1920 << 20),
        why: Some("it leaves memory unused, which others want".to_owned()),
        free_bytes: None,
        ..moved.clone()
    };
    let why_not = Some("no monitor".to_owned());
    let silent = MemoryDocument { actual_bytes: None, to_bytes: None, why_not, ..told.clone() };
    status.memory = vec![moved, told, silent];
    let text = unfolded(&text_at(&status, false, Style::PLAIN, 80));
    for line in [
        "memory of guests: web1: 1152 MiB (18 MiB free), 1024 MiB before, 82 % of its reads hit the host's cache; \
         moved to 1280 MiB: the host's page cache answers its reads",
        "db1: 2048 MiB; would be moved to 1920 MiB: it leaves memory unused, which others want",
        "db1: memory not known; no monitor",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn no_word_is_broken_in_a_narrow_terminal() {
    let words = |text: &str| -> BTreeSet<String> {
        text.split_whitespace().map(|word| word.trim_end_matches(';').to_owned()).collect()
    };
    for verbose in [false, true] {
        let mut whole = words(&text_at(&troubled(), verbose, Style::PLAIN, 80));
        whole.insert("rates".to_owned());
        let narrow = text_at(&troubled(), verbose, Style::PLAIN, 40);
        assert!(narrow.lines().all(|line| fit::columns(line) <= 40), "{narrow}");
        let broken: Vec<String> = words(&narrow).difference(&whole).cloned().collect();
        assert!(broken.is_empty(), "{broken:?}: {narrow}");
    }
}

#[test]
fn names_and_lines_are_bounded() {
    let mut member = example().pools.remove(0).members.remove(1);
    assert_eq!(pools::shown(&member), "web1 (tap3)");
    member.guest = Some(format!("{}\u{1b}]0;x\n", "long".repeat(40)));
    let name = pools::shown(&member);
    assert!(fit::columns(&name) == 39 && name.ends_with("x\u{fffd} (tap3)"), "{name}");
    member.guest = None;
    assert_eq!(pools::shown(&member), "tap3");
    let lines = cut((0..23).map(|n| n.to_string()).collect(), "");
    assert_eq!((lines.len(), lines[20].as_str()), (21, "and 3 more: vmio guard status --json"));
}

#[test]
fn printed_commands_reach_the_guard_that_was_asked() {
    let mut status = troubled();
    status.policy.over = "[class.gold]\nmax = \"1Mbit\"\n".to_owned();
    status.policy.taken_back_in_seconds = Some(9.0);
    let named = View { verbose: false, style: Style::PLAIN, width: 80, state: " --state /x" };
    let text = unfolded(&shown(&status, named));
    for command in ["set --state /x --clear", "status --state /x --verbose", "confirm --state /x", "apply --state /x"] {
        assert!(text.contains(&format!("vmio guard {command}")), "{command}: {text}");
    }
    let bare = text.split("vmio guard ").skip(1).filter(|rest| !rest.contains("--state /x")).count();
    assert_eq!(bare, 0, "{text}");
}
