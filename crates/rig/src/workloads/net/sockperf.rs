//! sockperf: one small message to the peer and its answer at a time, over TCP. It times each round trip and
//! prints half of it, as if both ways took the same: that half is the figure, and it is called so.
//!
//! sockperf 3.7 leaves with 0 after a refused connection too, so what it prints decides. Of its time it
//! leaves out the first 0.4 s and the end, so that of one second about 0.55 are measured.

use serde_json::json;
use vmio_look::require::{Requirement, program};
use vmio_model::cell::Millis;
use vmio_model::figure::{Distribution, Figure, Reading, Unit};
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::SubjectKind;
use vmio_node::Output;

use super::{CLIENT, SERVER, address, listens_at};
use crate::workloads::error::{cut, said, start_of};
use crate::workloads::stage::whole_seconds;
use crate::workloads::{Error, Ready, Result, Role, Service, Stage, Unusable, Wants, Workload};

/// The port that its manual names.
const PORT: u16 = 11111;
/// Fewest round trips of a result: with less there is none beyond the 99th percentile.
const FEWEST: u64 = 100;
/// What it is judged by.
const HALF: &str = "half-round-trip";
/// How many round trips there were, those before the measured part too: the processors' time is that of all.
const TRIPS: &str = "round-trips";

/// Entry `sockperf-tcp`.
pub const TCP: Sockperf = Sockperf;

const SOCKPERF: Requirement = Requirement {
    name: "sockperf",
    why: "runs the network workload sockperf-tcp",
    fix: "apt install sockperf",
    check: |reader| program(reader, "sockperf"),
};

const ROLES: &[Role] = &[
    Role { name: SERVER, wants: Wants::Address, programs: &["sockperf"], requirements: &[SOCKPERF] },
    Role { name: CLIENT, wants: Wants::Address, programs: &["sockperf"], requirements: &[SOCKPERF] },
];

/// Messages and answers, one at a time.
#[derive(Debug, Clone, Copy)]
pub struct Sockperf;

impl Sockperf {
    fn args(seconds: f64, server: &str, port: u16) -> Vec<String> {
        let (seconds, port) = (whole_seconds(seconds), port.to_string());
        ["ping-pong", "-i", server, "-p", &port, "--tcp", "-t", &seconds].map(String::from).into()
    }

    fn result(node: &str, command: String, output: &Output) -> Result<WorkloadResult> {
        let (text, err) = (output.out(), output.err());
        let complaint = text.lines().chain(err.lines()).find_map(|line| line.split_once("ERROR: "));
        if !output.ok() || complaint.is_some() {
            let said = complaint.map_or_else(|| said(output), |(_, said)| cut(said));
            return Err(Error::Failed { node: node.into(), command, how: format!("{:?}", output.end), said });
        }
        let unusable = |reason: Unusable| reason.of(node, &command);
        let printed =
            Printed::read(&text).map_err(|what| unusable(Unusable::NoPart { what, start: start_of(&text) }))?;
        if printed.timed < FEWEST {
            let timed = printed.timed;
            let few = format!("{timed} round trips were timed and {FEWEST} are needed: let it run longer");
            return Err(unusable(Unusable::Amount(few)));
        }
        let figures = vec![Reading::distribution(HALF, printed.half), Reading::scalar(TRIPS, printed.trips as f64)];
        Ok(WorkloadResult { seconds: printed.seconds, figures, raw: json!({ "sockperf": text }), command })
    }
}

/// What it prints of a run, in seconds.
#[derive(Debug, PartialEq)]
struct Printed {
    seconds: f64,
    /// Round trips in all.
    trips: u64,
    /// Those that were timed.
    timed: u64,
    half: Distribution,
}

impl Printed {
    /// Reads it, else says what is not there. Colours lie around some of the lines, so none is read from its
    /// start.
    fn read(text: &str) -> std::result::Result<Self, &'static str> {
        let seconds = number(text, "[Valid Duration] RunTime=").ok_or("valid duration")?;
        let timed = number(text, "Total ").ok_or("number of observations")?;
        let trips = text.split_once("[Total Run] ").and_then(|(_, run)| number(run, "ReceivedMessages="));
        let trips = trips.ok_or("number of messages")?;
        let mean = number(text, "Summary: Latency is ").ok_or("mean latency")?;
        let mut percentiles = Vec::new();
        for line in text.lines() {
            let Some((_, rest)) = line.split_once("---> percentile ") else { continue };
            let pair = rest.split_once('=').and_then(|(at, value)| {
                Some((at.trim().parse::<f64>().ok()?, value.trim().parse::<f64>().ok()? * 1e-6))
            });
            percentiles.push(pair.ok_or("number in a line of a percentile")?);
        }
        if !percentiles.iter().any(|&(at, _)| at == 50.0) {
            return Err("median");
        }
        // It prints them from the top down.
        percentiles.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(Self {
            seconds,
            trips: trips as u64,
            timed: timed as u64,
            half: Distribution { mean: mean * 1e-6, percentiles },
        })
    }
}

/// The number that follows these words.
fn number(text: &str, words: &str) -> Option<f64> {
    text.split(words).skip(1).find_map(|rest| rest.split([' ', '\n']).next()?.parse().ok())
}

impl Workload for Sockperf {
    fn about(&self) -> &'static str {
        "sockperf: one message of 14 bytes to the peer and its answer at a time, over TCP"
    }
    fn traits(&self) -> WorkloadTraits {
        let figures = vec![Figure::times(HALF), Figure::amount(TRIPS, Unit::Requests)];
        WorkloadTraits { name: "sockperf-tcp".into(), figures, judged_by: HALF.into(), disk: None, group: None }
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
        let exec = end.command("sockperf").args([
            "server",
            "-i",
            &listens_at("sockperf", end)?,
            "-p",
            &port.to_string(),
            "--tcp",
        ]);
        Ok(Some(Service { exec, ready: Ready::Listens(port) }))
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let (end, server) = (stage.end(CLIENT)?, address("sockperf", stage.end(SERVER)?)?);
        let exec =
            end.command("sockperf").args(Self::args(stage.seconds, &server, stage.port(PORT))).limit(stage.limit());
        let output = end.node.exec(&exec)?;
        Self::result(end.node.name(), exec.shown(), &output)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::figure::check;
    use vmio_node::End;

    use super::*;

    fn result(stdout: &str, code: i32) -> Result<WorkloadResult> {
        let output = Output { end: End::Exit(code), stdout: stdout.into(), stderr: vec![], truncated: false };
        Sockperf::result("guest0", "sockperf".into(), &output)
    }

    fn fixture(name: &str) -> String {
        std::fs::read_to_string(format!("{}/tests/fixtures/sockperf/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn half_the_round_trip_is_read_with_all_percentiles() {
        let got = result(&fixture("ping-pong.out"), 0).unwrap();
        assert_eq!(check(&TCP.traits().figures, &got.figures), Ok(()));
        assert_eq!((got.seconds, got.figure(TRIPS)), (1.55, Some(106_330.0)));
        let half = got.distribution(HALF).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(half.mean, 9.190e-6) && near(half.at(50.0).unwrap(), 8.162e-6), "{half:?}");
        assert!(near(half.at(99.9).unwrap(), 41.376e-6) && near(half.at(99.999).unwrap(), 2745.986e-6), "{half:?}");
        assert_eq!(half.percentiles.len(), 8);
        assert!(half.percentiles.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1), "{half:?}");
        // One message after the other: the round trips fill the time that was measured.
        assert!((2.0 * half.mean * 84185.0 / got.seconds - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_failed_connection_is_a_failure_though_it_leaves_with_0() {
        let said = result(&fixture("refused.out"), 0).unwrap_err().to_string();
        assert!(said.contains("guest0") && said.contains("Connection refused"), "{said}");
        assert!(result(&fixture("ping-pong.out"), 7).unwrap_err().to_string().contains("failed"));
    }

    #[test]
    fn too_few_round_trips_are_no_result() {
        let said = result(&fixture("few.out"), 0).unwrap_err().to_string();
        assert!(said.contains(" 5 round trips were timed and 100 are needed"), "{said}");
    }

    #[test]
    fn what_it_does_not_print_is_named() {
        let said = |text: &str| result(text, 0).unwrap_err().to_string();
        assert!(said("ping-pong (pp): Run sockperf client").contains("no valid duration in it; it begins \"ping-pong"));
        assert!(said(&fixture("ping-pong.out").replace("percentile 50.0", "percentile 51.0")).contains("no median"));
        assert!(said(&fixture("ping-pong.out").replace("8.162", "nan?")).contains("a line of a percentile"));
    }

    #[test]
    fn seconds_are_whole() {
        assert_eq!(Sockperf::args(2.0, "::1", PORT + 1).join(" "), "ping-pong -i ::1 -p 11112 --tcp -t 2");
        assert_eq!(Sockperf::args(0.1, "::1", PORT).last().unwrap(), "1");
    }
}
