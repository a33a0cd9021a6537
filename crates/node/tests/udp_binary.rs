//! The generator and its receiver as programs of their own, over the loopback interface. What is asserted is that
//! every packet is accounted for, not how fast: this machine may be busy.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use vmio_node::udp::{ReceiveReport, SendReport};

const PROGRAM: &str = env!("CARGO_BIN_EXE_vmio-udp");

/// A receiver that runs.
struct Receiver {
    child: Child,
    out: BufReader<ChildStdout>,
    address: String,
    port: String,
}

impl Receiver {
    fn start(address: &str, args: &[&str]) -> Self {
        let mut child = Command::new(PROGRAM)
            .args(["receive", address, "0", "--seconds", "60"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        out.read_line(&mut ready).unwrap();
        let words: Vec<&str> = ready.split_whitespace().collect();
        let ["ready", address, port] = words[..] else { panic!("{ready}") };
        Self { address: address.into(), port: port.into(), child, out }
    }

    fn send(&self, args: &[&str]) -> SendReport {
        let output = Command::new(PROGRAM).args(["send", &self.address, &self.port]).args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn end(mut self) -> ReceiveReport {
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    }

    fn terminate(self) -> ReceiveReport {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.end()
    }
}

fn accounted(sent: &SendReport, received: &ReceiveReport) {
    assert_eq!(sent.scheduled, sent.sent + sent.never_sent.all(), "{sent:?}");
    let mine = received.senders.iter().find(|s| s.sender == sent.sender).unwrap();
    assert_eq!((mine.sent, mine.sent_is_told), (sent.sent, true), "{mine:?}");
    assert_eq!(mine.received + mine.lost, sent.sent, "{mine:?}");
    // Nothing loses a packet here but the receiver's own buffer.
    assert!(mine.lost <= received.buffer_drops.unwrap(), "{received:?}");
    assert_eq!((mine.bytes, mine.duplicates, mine.too_old), (mine.received * sent.bytes, 0, 0));
    assert_eq!(mine.bytes_by_window.iter().sum::<u64>(), mine.bytes);
}

#[test]
fn every_packet_is_accounted_for() {
    for address in ["127.0.0.1", "::1"] {
        // A machine may have no IPv6.
        if UdpSocket::bind((address, 0)).is_err() {
            continue;
        }
        let receiver = Receiver::start(address, &["--senders", "1"]);
        let sent = receiver.send(&["--rate", "100000000", "--bytes", "1472", "--seconds", "0.3"]);
        // 30 Mbit in packets of 11,776 bits.
        assert_eq!((sent.scheduled, sent.bytes, sent.held_back), (2548, 1472, 0));
        assert!(sent.seconds >= 0.3 && sent.late <= sent.sent, "{sent:?}");
        assert_eq!(sent.late > 0, sent.worst_late_seconds > sent.allowed_late_seconds);
        // It ends by itself.
        let received = receiver.end();
        accounted(&sent, &received);
        let delay = received.senders[0].delay_on_one_clock.as_ref().unwrap();
        assert_eq!(delay.packets, received.senders[0].received, "both have this machine's clock");
        assert!(delay.mean_seconds > 0.0 && delay.percentiles.is_sorted_by_key(|(_, seconds)| *seconds));
    }
}

#[test]
fn several_senders_and_strangers() {
    let receiver = Receiver::start("127.0.0.1", &["--senders", "9"]);
    let to = format!("{}:{}", receiver.address, receiver.port);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(b"who is there?", &to).unwrap();
    stranger.send_to(b"", &to).unwrap();
    let rates: [&[&str]; 2] = [&["--rate", "1000000"], &["--rate", "0", "--rate-at", "0.1=2000000", "--blocking"]];
    let sent: Vec<SendReport> = std::thread::scope(|scope| {
        let receiver = &receiver;
        let send = |args: &'static [&'static str]| {
            scope.spawn(move || receiver.send(&[args, &["--bytes", "500", "--seconds", "0.2"][..]].concat()))
        };
        rates.map(send).into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(sent.iter().all(|s| s.scheduled + s.held_back == 50), "{sent:?}");
    // Told to end while it still waits for others.
    let received = receiver.terminate();
    assert_eq!((received.strangers, received.senders.len()), (2, 2));
    sent.iter().for_each(|sent| accounted(sent, &received));
}

#[test]
fn receiver_ends_after_silence() {
    let receiver = Receiver::start("127.0.0.1", &["--quiet", "0.2"]);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(b"the only one", format!("127.0.0.1:{}", receiver.port)).unwrap();
    let received = receiver.end();
    assert_eq!((received.datagrams, received.strangers), (1, 1));
}

#[test]
fn sending_without_a_receiver() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let args = ["send", "127.0.0.1", &port, "--rate", "1000000", "--bytes", "500", "--seconds", "0.2"];
    let output = Command::new(PROGRAM).args(args).output().unwrap();
    let sent: SendReport = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(sent.scheduled, 50);
    // The answer to one is the error of the next.
    assert!(sent.never_sent.refused > 0 && sent.sent + sent.never_sent.all() == 50, "{sent:?}");
}

#[test]
fn greeting_sender_waits_for_the_receiver() {
    let receiver = Receiver::start("127.0.0.1", &["--senders", "1"]);
    let sent = receiver.send(&["--rate", "1000000", "--bytes", "500", "--seconds", "0.2", "--greet", "10"]);
    let received = receiver.end();
    accounted(&sent, &received);
    assert!(received.greetings >= 1 && received.strangers == 0, "{received:?}");

    // One that comes up meanwhile is waited for, one that does not is told.
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let sends = |greet: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["send", "127.0.0.1", &port, "--rate", "1000000", "--bytes", "500", "--seconds", "0.2"]);
        command.args(["--greet", greet]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let output = sends("0.1").wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let expected = format!("the receiver at 127.0.0.1 port {port} does not answer");
    assert!(output.status.code() == Some(1) && stderr.contains(&expected), "{stderr}");
    let early = sends("60");
    let receiver = Command::new(PROGRAM)
        .args(["receive", "127.0.0.1", &port, "--seconds", "60", "--senders", "1"])
        .output()
        .unwrap();
    let sent: SendReport = serde_json::from_slice(&early.wait_with_output().unwrap().stdout).unwrap();
    let text = String::from_utf8(receiver.stdout).unwrap();
    accounted(&sent, &serde_json::from_str(text.lines().last().unwrap()).unwrap());
    assert_eq!(sent.never_sent.refused, 0);
}

#[test]
fn impossible_rate_ends() {
    let receiver = Receiver::start("127.0.0.1", &["--senders", "1", "--quiet", "2"]);
    let sent = receiver.send(&["--rate", "100000000000", "--bytes", "64", "--seconds", "0.2"]);
    assert_eq!(sent.scheduled, 39_062_500);
    assert!(sent.never_sent.no_time > 0 && sent.late_ratio() > 0.5, "{sent:?}");
    let received = receiver.end();
    let mine = received.senders.iter().find(|s| s.sender == sent.sender).unwrap();
    assert_eq!(mine.received + mine.lost, mine.sent, "{mine:?}");
    assert!(mine.sent <= sent.sent);
}

#[test]
fn errors_and_usage() {
    let run = |args: &[&str]| -> (Output, String) {
        let output = Command::new(PROGRAM).args(args).output().unwrap();
        let stderr = String::from_utf8(output.stderr.clone()).unwrap();
        (output, stderr)
    };
    let (output, stderr) = run(&["send", "127.0.0.1"]);
    assert!(output.status.code() == Some(2) && stderr.contains("usage: vmio-udp send"), "{stderr}");
    assert!(stderr.lines().all(|line| line.len() <= 80), "{stderr}");
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (output, stderr) = run(&["receive", "127.0.0.1", &port, "--seconds", "1"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(stderr.contains(&format!("cannot receive at 127.0.0.1 port {port}")), "{stderr}");
    let (output, _) = run(&["--version"]);
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("vmio-udp "));
}
