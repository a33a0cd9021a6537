//! iperf3: one TCP stream to the peer, one from it, and datagrams as fast as they go. What counts is what
//! arrived.
//!
//! With `--json` iperf3 leaves with 0 after a failure too, up to 3.12 at least, so its `error` decides.

use serde_json::Value;
use vmio_look::require::{Requirement, program};
use vmio_model::cell::Millis;
use vmio_model::figure::{Better, Compared, Figure, Reading, Unit};
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::SubjectKind;
use vmio_node::Output;

use super::{CLIENT, SERVER, address, listens_at};
use crate::workloads::error::{cut, said, start_of};
use crate::workloads::stage::whole_seconds;
use crate::workloads::{Error, Ready, Result, Role, Service, Stage, Unusable, Wants, Workload};

/// The port that it takes unless it is told another.
const PORT: u16 = 5201;
/// Bytes of a datagram that fills an Ethernet frame of 1,500 (RFC 894) less the headers of IPv4 and UDP.
const DATAGRAM: u32 = 1472;

/// Of the time that was asked for, so much must have been worked at least. A guest whose processors stood still meanwhile
/// has its clock go on, and ends after some packets.
const LEAST_TIME: f64 = 0.5;

/// Entry `iperf3-tcp`.
pub const TCP: Iperf3 = Iperf3 { name: "iperf3-tcp", about: "iperf3: one TCP stream to the peer", mode: Mode::Tcp };
/// Entry `iperf3-tcp-reverse`.
pub const TCP_REVERSE: Iperf3 =
    Iperf3 { name: "iperf3-tcp-reverse", about: "iperf3: one TCP stream from the peer", mode: Mode::TcpReverse };
/// Entry `iperf3-udp`.
pub const UDP: Iperf3 = Iperf3 {
    name: "iperf3-udp",
    about: "iperf3: UDP datagrams of 1,472 bytes to the peer, as fast as they go",
    mode: Mode::Udp,
};

const IPERF3: Requirement = Requirement {
    name: "iperf3",
    why: "runs the network workloads iperf3-…",
    fix: "apt install iperf3",
    check: |reader| program(reader, "iperf3"),
};

const ROLES: &[Role] = &[
    Role { name: SERVER, wants: Wants::Address, programs: &["iperf3"], requirements: &[IPERF3] },
    Role { name: CLIENT, wants: Wants::Address, programs: &["iperf3"], requirements: &[IPERF3] },
];

/// One of its modes.
#[derive(Debug, Clone, Copy)]
pub struct Iperf3 {
    name: &'static str,
    about: &'static str,
    mode: Mode,
}

/// What is sent, and which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A TCP stream to the peer.
    Tcp,
    /// A TCP stream from the peer.
    TcpReverse,
    /// Datagrams to the peer.
    Udp,
}

impl Iperf3 {
    fn args(&self, stage: &Stage) -> Result<Vec<String>> {
        let server = address("iperf3", stage.end(SERVER)?)?;
        let mut args: Vec<String> =
            ["--client", &server, "--port", &stage.port(PORT).to_string(), "--json", "--connect-timeout", "5000"]
                .map(String::from)
                .into();
        args.extend(["--time".to_owned(), whole_seconds(stage.seconds)]);
        match self.mode {
            Mode::Tcp => {}
            Mode::TcpReverse => args.push("--reverse".into()),
            Mode::Udp => {
                args.extend(["--udp", "--bitrate", "0", "--length", &DATAGRAM.to_string()].map(String::from));
            }
        }
        Ok(args)
    }

    /// What it says of a run that was to take so many seconds.
    fn result(&self, node: &str, command: String, output: &Output, asked: f64) -> Result<WorkloadResult> {
        let text = output.out();
        let doc: Value = serde_json::from_str(text.trim()).unwrap_or(Value::Null);
        let said = doc["error"].as_str().map_or_else(|| said(output), cut);
        if !output.ok() || doc["error"].is_string() {
            return Err(Error::Failed { node: node.into(), command, how: format!("{:?}", output.end), said });
        }
        let unusable = |reason: Unusable| reason.of(node, &command);
        if doc.is_null() {
            return Err(unusable(Unusable::NotJson(start_of(&text))));
        }
        let number = |of: &Value, key: &'static str| {
            let none = || unusable(Unusable::NoValue { key, place: "where it is expected" });
            of[key].as_f64().ok_or_else(none)
        };
        let end = &doc["end"];
        let mut figures = Vec::new();
        let seconds;
        if self.mode == Mode::Udp {
            let sum = &end["sum"];
            let size = f64::from(DATAGRAM);
            // `sum` has the sender's bytes. Its `lost_packets` are the gaps that the receiver saw: those that are
            // lost at the end make none. What the receiver read is in `sum_received`, from 3.11 on.
            let (sent, arrived) = if end["sum_received"].is_object() {
                (number(&end["sum_sent"], "bytes")? / size, number(&end["sum_received"], "bytes")? / size)
            } else {
                let packets = number(sum, "packets")?;
                (packets, (packets - number(sum, "lost_packets")?).max(0.0))
            };
            if arrived <= 0.0 {
                return Err(unusable(Unusable::Amount(format!("none of {sent:.0} datagrams arrived"))));
            }
            // The receiver's time and jitter.
            seconds = number(sum, "seconds")?;
            figures.push(Reading::scalar("bandwidth", arrived * size * 8.0 / seconds));
            figures.push(Reading::scalar("packet-rate", arrived / seconds));
            figures.push(Reading::scalar("loss", if sent > 0.0 { (1.0 - arrived / sent).max(0.0) } else { 0.0 }));
            figures.push(Reading::scalar("jitter", number(sum, "jitter_ms")? * 1e-3));
            figures.push(Reading::scalar("moved", arrived * size));
        } else {
            let received = &end["sum_received"];
            seconds = number(received, "seconds")?;
            if number(received, "bytes")? <= 0.0 {
                return Err(unusable(Unusable::Amount("nothing arrived".to_owned())));
            }
            figures.push(Reading::scalar("bandwidth", number(received, "bits_per_second")?));
            // Whoever sends counts them, also in reverse.
            figures.push(Reading::scalar("retransmits", number(&end["sum_sent"], "retransmits")?));
            figures.push(Reading::scalar("moved", number(received, "bytes")?));
        }
        if seconds < asked * LEAST_TIME {
            return Err(unusable(Unusable::Short { seconds, asked }));
        }
        Ok(WorkloadResult { seconds, figures, raw: doc, command })
    }
}

impl Workload for Iperf3 {
    fn about(&self) -> &str {
        self.about
    }
    fn traits(&self) -> WorkloadTraits {
        let mut figures = vec![Figure::rate("bandwidth", Unit::BitsPerSecond)];
        if self.mode == Mode::Udp {
            figures.extend([
                Figure::rate("packet-rate", Unit::PacketsPerSecond),
                Figure::loss("loss"),
                Figure {
                    better: Better::Less,
                    compared: Compared::Difference,
                    ..Figure::rate("jitter", Unit::Seconds)
                },
            ]);
        } else {
            figures.push(Figure { better: Better::Less, ..Figure::amount("retransmits", Unit::Count) });
        }
        figures.push(Figure::amount("moved", Unit::Bytes));
        WorkloadTraits { name: self.name.into(), figures, judged_by: "bandwidth".into(), disk: None, group: None }
    }
    fn tick(&self) -> Millis {
        Millis::SECOND
    }
    fn works_on(&self) -> SubjectKind {
        SubjectKind::Path
    }
    fn roles(&self) -> &'static [Role] {
        ROLES
    }
    fn serve(&self, _: &Role, stage: &Stage) -> Result<Option<Service>> {
        let (end, port) = (stage.end(SERVER)?, stage.port(PORT));
        let exec = end.command("iperf3").args([
            "--server",
            "--one-off",
            "--bind",
            &listens_at("iperf3", end)?,
            "--port",
            &port.to_string(),
        ]);
        let datagrams = self.mode == Mode::Udp;
        let ready = if datagrams { Ready::Both(port) } else { Ready::Listens(port) };
        Ok(Some(Service { exec, ready }))
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let end = stage.end(CLIENT)?;
        let exec = end.command("iperf3").args(self.args(stage)?).limit(stage.limit());
        let output = end.node.exec(&exec)?;
        self.result(end.node.name(), exec.shown(), &output, stage.seconds.ceil().max(1.0))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::figure::check;
    use vmio_node::End;

    use super::*;

    /// What is made of a fixture, all of which iperf3 printed: 3.12, where no other version is in the name.
    fn result(mode: Iperf3, name: &str, code: i32) -> Result<WorkloadResult> {
        let path = format!("{}/tests/fixtures/iperf3/{name}.json", env!("CARGO_MANIFEST_DIR"));
        read(mode, std::fs::read(path).unwrap(), code)
    }

    fn read(mode: Iperf3, stdout: Vec<u8>, code: i32) -> Result<WorkloadResult> {
        let output = Output { end: End::Exit(code), stdout, stderr: vec![], truncated: false };
        mode.result("guest0", "iperf3".into(), &output, 1.0)
    }

    fn good(mode: Iperf3, name: &str) -> WorkloadResult {
        let result = result(mode, name, 0).unwrap();
        assert_eq!(check(&mode.traits().figures, &result.figures), Ok(()));
        result
    }

    #[track_caller]
    fn near(result: &WorkloadResult, figure: &str, expected: f64) {
        let found = result.figure(figure).unwrap();
        assert!((found - expected).abs() <= expected.abs() * 1e-9, "{figure}: {found}, not {expected}");
    }

    #[test]
    fn a_stream_counts_as_its_receiver_saw_it_and_retransmits_as_its_sender_did() {
        // The client of `tcp` sends, that of the others receives.
        for (mode, name, [seconds, bits, retransmits, moved]) in [
            (TCP, "tcp", [1.003809, 11459230510.983664, 0.0, 1437859840.0]),
            (TCP_REVERSE, "tcp-reverse", [1.000017, 14801447191.397747, 11.0, 1850212352.0]),
            (TCP_REVERSE, "tcp-reverse-3.21", [1.000864, 5110538222.97535, 1.0, 639369216.0]),
        ] {
            let result = good(mode, name);
            assert_eq!(result.seconds, seconds, "{name}");
            near(&result, "bandwidth", bits);
            near(&result, "retransmits", retransmits);
            near(&result, "moved", moved);
            // It is what it says that it is.
            near(&result, "bandwidth", moved * 8.0 / seconds);
        }
    }

    #[test]
    fn a_stream_of_a_moment_is_void() {
        let path = format!("{}/tests/fixtures/iperf3/tcp.json", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap().replace("1.003809", "0.02474");
        let error = read(TCP, text.into_bytes(), 0).unwrap_err();
        assert!(matches!(error, Error::Output { reason: Unusable::Short { asked: 1.0, .. }, .. }), "{error}");
        assert!(error.to_string().contains("the run is invalid: data moved for 0.02 s of 1 s"), "{error}");
    }

    /// They are compared with nothing: a stream that gets more through sends more again. How many there were is said.
    #[test]
    fn retransmits_are_shown_and_not_compared() {
        for mode in [TCP, TCP_REVERSE] {
            let shown = |name: &str| {
                let figures = mode.traits().figures;
                let figure = figures.iter().find(|figure| figure.name == name).unwrap();
                (figure.compared, figure.compared.is_shown(figure.better))
            };
            assert_eq!(shown("retransmits"), (Compared::No, true));
            assert_eq!(shown("moved"), (Compared::No, false));
        }
    }

    #[test]
    fn datagrams_count_when_they_arrived() {
        // Sent, arrived, in seconds of the receiver's, its jitter in ms.
        for (name, [sent, arrived, seconds, jitter]) in [
            ("udp", [111350.0, 44032.0, 1.00043, 0.046539628456968456]),
            ("udp-3.21", [127340.0, 73843.0, 1.02848, 0.0835272326500023]),
            // Over 100 Mbit/s, where the queue is full at the end: 62 of those that were lost made no gap.
            ("udp-slow-link", [131490.0, 7633.0, 1.006752, 0.13523767981892185]),
            // Before 3.11 there are the gaps alone.
            ("udp-3.9", [291670.0, 291670.0 - 283407.0, 1.035954, 0.11285865711645078]),
        ] {
            let result = good(UDP, name);
            assert_eq!(result.seconds, seconds, "{name}");
            near(&result, "moved", arrived * 1472.0);
            near(&result, "bandwidth", arrived * 1472.0 * 8.0 / seconds);
            near(&result, "packet-rate", arrived / seconds);
            near(&result, "loss", 1.0 - arrived / sent);
            near(&result, "jitter", jitter * 1e-3);
        }
        let raw = good(UDP, "udp-slow-link").raw;
        near(&good(UDP, "udp-slow-link"), "bandwidth", raw["end"]["sum_received"]["bits_per_second"].as_f64().unwrap());
        let gaps = &raw["end"]["sum"];
        assert_eq!(gaps["packets"].as_u64().unwrap() - gaps["lost_packets"].as_u64().unwrap(), 7633 + 62);
    }

    #[test]
    fn what_never_arrived_is_no_result() {
        let of = |mode, name: &str, change: &dyn Fn(&mut Value)| {
            let mut doc = good(mode, name).raw;
            change(&mut doc["end"]);
            read(mode, doc.to_string().into(), 0).unwrap_err().to_string()
        };
        let none = |end: &mut Value| end["sum_received"]["bytes"] = 0.into();
        assert!(of(TCP, "tcp", &none).contains("nothing arrived"));
        assert!(of(UDP, "udp", &none).contains("none of 111350 datagrams arrived"));
        let old = |end: &mut Value| end["sum"]["lost_packets"] = end["sum"]["packets"].clone();
        assert!(of(UDP, "udp-3.9", &old).contains("none of 291670 datagrams arrived"));
        let long = Output {
            end: End::Exit(1),
            stdout: vec![],
            stderr: format!("{}\u{1b}[31m the end\u{1b}[0m", "x".repeat(9999)).into(),
            truncated: false,
        };
        let said = TCP.result("guest0", "iperf3".into(), &long, 1.0).unwrap_err().to_string();
        assert!(said.len() < 600 && said.contains("x…x") && said.ends_with(" the end"), "{said}");
    }

    #[test]
    fn a_failure_is_told_in_its_words_though_it_leaves_with_0() {
        for (name, code, words) in [
            ("refused", 0, "unable to connect to server: Connection refused"),
            ("refused-3.21", 1, "firewall issue, etc.: Connection refused"),
            ("busy", 0, "the server is busy running a test. try again later"),
        ] {
            let said = result(TCP, name, code).unwrap_err().to_string();
            assert!(said.contains("guest0") && said.contains("failed") && said.contains(words), "{name}: {said}");
        }
        assert!(result(TCP, "tcp", 1).unwrap_err().to_string().contains("failed"));
    }

    #[test]
    fn what_it_does_not_print_is_named() {
        let said = |mode, text: &str| read(mode, text.into(), 0).unwrap_err().to_string();
        assert!(said(TCP, "iperf3: none").contains("it is not JSON; it begins \"iperf3: none"));
        assert!(said(TCP, "{}").contains("no `seconds` where it is expected"));
        // One mode's output is not taken for another's.
        assert!(result(TCP, "udp", 0).unwrap_err().to_string().contains("no `retransmits`"));
        assert!(result(UDP, "tcp", 0).unwrap_err().to_string().contains("where it is expected"));
    }

    #[test]
    fn each_mode_asks_for_its_way_and_whole_seconds() {
        let stage = |seconds: f64| {
            let node: std::sync::Arc<dyn vmio_node::Node> = std::sync::Arc::new(vmio_node::Local::new());
            let at = crate::workloads::At::address("198.18.0.1".parse().unwrap());
            let end = crate::workloads::End::here(node, at);
            Stage { ends: [(SERVER, end)].into(), seconds, span: None, place: 0 }
        };
        let args = |mode: Iperf3, seconds: f64| mode.args(&stage(seconds)).unwrap().join(" ");
        let common = "--client 198.18.0.1 --port 5201 --json --connect-timeout 5000 --time";
        assert_eq!(args(TCP, 1.2), format!("{common} 2"));
        assert_eq!(args(TCP_REVERSE, 0.1), format!("{common} 1 --reverse"));
        assert_eq!(args(UDP, 1.0), format!("{common} 1 --udp --bitrate 0 --length 1472"));
    }
}
