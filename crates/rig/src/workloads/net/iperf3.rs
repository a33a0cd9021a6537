//! iperf3: one TCP stream to the peer, one from it, and datagrams as fast as they go. What counts is what
//! arrived.

use std::time::Duration;

use serde_json::Value;
use vmio_look::require::{Requirement, program};
use vmio_model::cell::Millis;
use vmio_model::figure::{Better, Compared, Figure, Reading, Unit};
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::Sort;
use vmio_node::Output;

use super::{CLIENT, SERVER};
use crate::workloads::{End, Error, Ready, Result, Role, Service, Stage, Wants, Workload};

/// The port that it takes unless it is told another.
const PORT: u16 = 5201;
/// Bytes of a datagram that fills an Ethernet frame of 1,500 (RFC 894) less the headers of IPv4 and UDP.
const DATAGRAM: u32 = 1472;

/// Entry `iperf3-tcp`.
pub const TCP: Iperf3 = Iperf3 { name: "iperf3-tcp", about: "iperf3: one TCP stream to the peer", way: Way::To };
/// Entry `iperf3-tcp-reverse`.
pub const TCP_REVERSE: Iperf3 =
    Iperf3 { name: "iperf3-tcp-reverse", about: "iperf3: one TCP stream from the peer", way: Way::From };
/// Entry `iperf3-udp`.
pub const UDP: Iperf3 = Iperf3 {
    name: "iperf3-udp",
    about: "iperf3: UDP datagrams of 1,472 bytes to the peer, as fast as they go",
    way: Way::Datagrams,
};

const IPERF3: Requirement = Requirement {
    name: "iperf3",
    why: "runs the network workloads iperf3-…",
    mend: "apt install iperf3",
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
    way: Way,
}

/// What goes where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A TCP stream to the peer.
    To,
    /// A TCP stream from the peer.
    From,
    /// Datagrams to the peer.
    Datagrams,
}

impl Iperf3 {
    fn args(&self, stage: &Stage) -> Result<Vec<String>> {
        let server = address(stage.end(SERVER)?)?;
        let mut args: Vec<String> =
            ["--client", &server, "--port", &stage.port(PORT).to_string(), "--json", "--connect-timeout", "5000"]
                .map(String::from)
                .into();
        args.extend(["--time".to_owned(), format!("{:.0}", stage.seconds.ceil().max(1.0))]);
        match self.way {
            Way::To => {}
            Way::From => args.push("--reverse".into()),
            Way::Datagrams => {
                args.extend(["--udp", "--bitrate", "0", "--length", &DATAGRAM.to_string()].map(String::from));
            }
        }
        Ok(args)
    }

    fn result(&self, node: &str, command: String, output: &Output) -> Result<WorkloadResult> {
        let text = output.out();
        let doc: Value = serde_json::from_str(text.trim()).unwrap_or(Value::Null);
        let said = doc["error"].as_str().map_or_else(|| output.err().trim().to_owned(), str::to_owned);
        if !output.ok() || doc["error"].is_string() {
            return Err(Error::Failed { node: node.into(), command, how: format!("{:?}", output.end), said });
        }
        let number = |of: &Value, key: &str| {
            of[key].as_f64().ok_or_else(|| Error::Output {
                node: node.into(),
                command: command.clone(),
                reason: format!("no `{key}` where it is expected"),
            })
        };
        let end = &doc["end"];
        let mut figures = Vec::new();
        let seconds;
        if self.way == Way::Datagrams {
            let sum = &end["sum"];
            let (packets, lost) = (number(sum, "packets")?, number(sum, "lost_packets")?);
            seconds = number(sum, "seconds")?;
            let arrived = (packets - lost).max(0.0) * f64::from(DATAGRAM);
            figures.push(Reading::scalar("bandwidth", arrived * 8.0 / seconds));
            figures.push(Reading::scalar("packet-rate", (packets - lost).max(0.0) / seconds));
            figures.push(Reading::scalar("loss", if packets > 0.0 { lost / packets } else { 0.0 }));
            figures.push(Reading::scalar("jitter", number(sum, "jitter_ms")? * 1e-3));
            figures.push(Reading::scalar("moved", arrived));
        } else {
            let received = &end["sum_received"];
            seconds = number(received, "seconds")?;
            figures.push(Reading::scalar("bandwidth", number(received, "bits_per_second")?));
            figures.push(Reading::scalar("retransmits", number(&end["sum_sent"], "retransmits")?));
            figures.push(Reading::scalar("moved", number(received, "bytes")?));
        }
        Ok(WorkloadResult { seconds, figures, raw: doc, command })
    }
}

/// The address of an end, as it is typed.
fn address(end: &End) -> Result<String> {
    let missing = || Error::Unfit { workload: "iperf3".into(), reason: "it was given no address".into() };
    Ok(end.address().ok_or_else(missing)?.to_string())
}

impl Workload for Iperf3 {
    fn about(&self) -> &str {
        self.about
    }
    fn traits(&self) -> WorkloadTraits {
        let mut figures = vec![Figure::rate("bandwidth", Unit::BitsPerSecond)];
        if self.way == Way::Datagrams {
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
        WorkloadTraits { name: self.name.into(), figures, judged_by: "bandwidth".into(), disk: None }
    }
    fn tick(&self) -> Millis {
        Millis::SECOND
    }
    fn works_on(&self) -> Sort {
        Sort::Path
    }
    fn roles(&self) -> &'static [Role] {
        ROLES
    }
    fn serve(&self, role: &Role, stage: &Stage) -> Result<Option<Service>> {
        if role.name != SERVER {
            return Ok(None);
        }
        let (end, port) = (stage.end(SERVER)?, stage.port(PORT));
        let exec = end.command("iperf3").args([
            "--server",
            "--one-off",
            "--bind",
            &address(end)?,
            "--port",
            &port.to_string(),
        ]);
        Ok(Some(Service { exec, ready: Ready::Listens(port) }))
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let end = stage.end(CLIENT)?;
        let limit = Duration::from_secs_f64(stage.seconds * 2.0 + 60.0);
        let exec = end.command("iperf3").args(self.args(stage)?).limit(limit);
        let output = end.node.exec(&exec)?;
        self.result(end.node.name(), exec.shown(), &output)
    }
}
