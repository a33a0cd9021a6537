//! What is made of the reports of generator and receiver.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use vmio_model::figure::check;
use vmio_node::udp::NeverSent;
use vmio_node::{Fake, Node};

use super::*;
use crate::workloads::At;

const STREAM: Udp =
    Udp { rate: BitRate::new(10_000_000), steps: Vec::new(), bytes: 1250, frames: false, within_ms: 0, waits: false };

/// 2 s of it, all on time.
fn sent() -> SendReport {
    SendReport {
        sender: "00000000000000aa".into(),
        bytes: 1250,
        seconds: 2.0,
        scheduled: 2000,
        sent: 2000,
        never_sent: NeverSent::default(),
        late: 0,
        allowed_late_seconds: 0.008,
        worst_late_seconds: 0.0001,
        real_time: true,
        blocking: false,
        held_back: 0,
        held_seconds: 0.0,
        sent_bits_per_second: 10e6,
    }
}

/// So many of them arrived, over so many seconds, beside what another sender sent.
fn received(packets: u64, over: f64) -> ReceiveReport {
    let mine = SenderReport {
        sender: "00000000000000aa".into(),
        sent: 2000,
        sent_is_told: true,
        received: packets,
        bytes: packets * 1250,
        lost: 2000 - packets,
        duplicates: 0,
        reordered: 0,
        too_old: 0,
        first_second: 0.5,
        last_second: 0.5 + over,
        delay_on_one_clock: None,
        bytes_by_window: vec![packets * 1250],
    };
    let other = SenderReport { sender: "0000000000000001".into(), received: 7, bytes: 7, ..mine.clone() };
    ReceiveReport {
        seconds: 3.0,
        datagrams: packets + 7,
        ends: 6,
        greetings: 1,
        strangers: 0,
        untracked: 0,
        buffer_drops: Some(0),
        real_time: true,
        window_seconds: 0.01,
        senders: vec![other, mine],
    }
}

fn output(stdout: String, end: vmio_node::End) -> Output {
    Output { end, stdout: stdout.into(), stderr: b"vmio-udp: no such thing\n".to_vec(), truncated: false }
}

fn printed(report: &impl serde::Serialize) -> Output {
    output(format!("ready ::1 5401\n{}\n", serde_json::to_string(report).unwrap()), vmio_node::End::Exit(0))
}

fn whole(sent: &SendReport, received: &ReceiveReport) -> Result<WorkloadResult> {
    let result = STREAM.sent("guest0", "vmio-udp send".into(), &printed(sent))?;
    STREAM.arrived("local", result, &printed(received))
}

#[test]
fn what_arrived_counts_over_the_time_that_it_took() {
    let figures = |sent: &SendReport, received: &ReceiveReport| {
        let result = whole(sent, received).unwrap();
        assert_eq!(check(&STREAM.traits().figures, &result.figures), Ok(()));
        let of = |name: &str| result.figure(name).unwrap();
        [result.seconds, of("bandwidth"), of("packet-rate"), of("loss"), of("never-sent"), of("late"), of("moved")]
    };
    assert_eq!(figures(&sent(), &received(2000, 1.999)), [2.0, 10e6, 1000.0, 0.0, 0.0, 0.0, 2.5e6]);
    // A queue let half of them through, and the last of those a while after.
    assert_eq!(figures(&sent(), &received(1000, 2.5)), [2.5, 4e6, 400.0, 0.5, 0.0, 0.0, 1.25e6]);
    // What the sender's own buffer had no room for is not lost on the way.
    let never_sent = NeverSent { buffer_full: 1000, ..NeverSent::default() };
    let half = SendReport { sent: 1000, never_sent, late: 20, ..sent() };
    let [_, _, _, loss, never, late, _] = figures(&half, &received(1000, 2.0));
    assert_eq!((loss, never, late), (0.0, 0.5, 0.01), "one in a hundred may be late");
    // Both reports are kept.
    let raw = whole(&sent(), &received(2000, 1.9)).unwrap().raw;
    assert_eq!((&raw["sender"]["sent"], &raw["receiver"]["ends"]), (&json!(2000), &json!(6)));
}

#[test]
fn two_senders_are_one_figure_and_each_has_its_share() {
    let (name, node) = ("0000000000000001", "guest1");
    let other = SendReport { sender: name.into(), ..sent() };
    let both = |packets: [u64; 2]| {
        let mut report = received(packets[0], 2.0);
        let beside = received(packets[1], 2.0).senders[1].clone();
        report.senders[0] = SenderReport { sender: name.into(), first_second: 0.75, last_second: 2.75, ..beside };
        let mut result = STREAM.sent("guest0", "vmio-udp send".into(), &printed(&sent())).unwrap();
        let also = STREAM.sent(node, "vmio-udp send".into(), &printed(&other)).unwrap();
        result.raw[CO_SENDER] = also.raw[SENDER].clone();
        STREAM.arrived("local", result, &printed(&report))
    };
    // From the first datagram of either to the last: from 0.5 s to 2.75 s.
    let result = both([1500, 500]).unwrap();
    assert_eq!(check(&STREAM.traits().figures, &result.figures), Ok(()));
    assert_eq!((result.seconds, result.figure("bandwidth")), (2.25, Some(20e6 / 2.25)));
    assert_eq!((result.figure("loss"), result.figure("moved")), (Some(0.5), Some(2.5e6)));
    assert_eq!(result.raw["shares"], json!({ "sender": 0.75, "co-sender": 0.25 }));
    assert_eq!(result.raw["co-sender"]["sender"], name);
    // One alone may get nothing.
    assert_eq!(both([2000, 0]).unwrap().raw["shares"], json!({ "sender": 1.0, "co-sender": 0.0 }));
    assert!(both([0, 0]).unwrap_err().to_string().contains("none of 4000 datagrams arrived"));
}

#[test]
fn a_run_whose_generator_was_late_is_void() {
    let said = |report: &SendReport| whole(report, &received(2000, 2.0)).unwrap_err().to_string();
    let late = said(&SendReport { late: 21, ..sent() });
    for words in
        ["udp-10mbit-1250 cannot run here", "invalid", "late with 1.1 %", "guest0", "lower rate or larger packets"]
    {
        assert!(late.contains(words), "{late}");
    }
    // What it never came to is late, too.
    let never_sent = NeverSent { no_time: 1500, ..NeverSent::default() };
    let behind = said(&SendReport { sent: 500, never_sent, ..sent() });
    assert!(behind.contains("the run is invalid") && behind.contains("late with 75.0 % of 2000 packets"), "{behind}");
}

#[test]
fn what_is_no_result_is_told() {
    let said = |sent: &SendReport, received: &ReceiveReport| whole(sent, received).unwrap_err().to_string();
    let refused = NeverSent { refused: 2000, ..NeverSent::default() };
    let none = said(&SendReport { sent: 0, never_sent: refused, ..sent() }, &received(0, 0.0));
    assert!(none.contains("nothing was sent of 2000 packets") && none.contains("refused: 2000"), "{none}");
    assert!(said(&sent(), &received(0, 0.0)).contains("none of 2000 datagrams arrived"));
    let others = ReceiveReport { senders: Vec::new(), ..received(0, 0.0) };
    assert!(said(&sent(), &others).contains("none of 2000 datagrams arrived"));
    let more = said(&SendReport { sent: 1999, scheduled: 1999, ..sent() }, &received(2000, 2.0));
    assert!(more.contains("2000 datagrams arrived of 1999"), "{more}");
}

#[test]
fn failures_are_told_with_their_end() {
    let of = |text: &str, end| STREAM.sent("guest0", "vmio-udp send".into(), &output(text.into(), end));
    let failed = of("", vmio_node::End::Exit(1)).unwrap_err().to_string();
    assert!(failed.contains("guest0") && failed.contains("Exit(1)") && failed.contains("no such thing"), "{failed}");
    let odd = of("vmio-udp 0.1.0\n", vmio_node::End::Exit(0)).unwrap_err().to_string();
    assert!(odd.contains("no report ends it") && odd.contains("\"vmio-udp 0.1.0\""), "{odd}");
    let result = || STREAM.sent("guest0", "vmio-udp send".into(), &printed(&sent())).unwrap();
    let silent = STREAM.arrived("local", result(), &output(String::new(), vmio_node::End::TimedOut));
    let silent = silent.unwrap_err().to_string();
    assert!(silent.contains("local: `vmio-udp receive` failed") && silent.contains("nothing came"), "{silent}");
    let odd = STREAM.arrived("local", result(), &output("ready ::1 5401\n".into(), vmio_node::End::Exit(0)));
    assert!(odd.unwrap_err().to_string().contains("of the receiver, no report ends it"));
}

#[test]
fn the_receiver_is_told_where_and_how_it_ends() {
    let node: Arc<dyn Node> = Arc::new(Fake::new("guest0").installed("vmio-udp"));
    let at = At::address("198.18.0.2".parse().unwrap());
    let end = End { enter: vec!["nsenter".into(), "--net=/n".into()], ..End::here(node, at) };
    let mut stage = Stage { ends: [(RECEIVER, end.clone())].into(), seconds: 2.0, span: None, place: 3 };
    let service = STREAM.serve(&ROLES[0], &stage).unwrap().unwrap();
    let expected = "nsenter --net=/n /usr/bin/vmio-udp receive 198.18.0.2 5404 --seconds 128 --senders 1 --quiet 2";
    assert_eq!(service.exec.shown(), expected);
    assert_eq!(service.ready, Ready::Receives(5404), "the fourth actor's");
    stage.ends.insert(CO_SENDER, end);
    let service = STREAM.serve(&ROLES[0], &stage).unwrap().unwrap();
    assert!(service.exec.shown().contains("--senders 2"), "{}", service.exec.shown());
}
