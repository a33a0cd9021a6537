//! What our bed costs: iperf3 and sockperf over its loopback interface against the same typed by hand on the host's own,
//! in one run, in turn. `cargo bench -p vmio-rig --bench loopback -- ROUNDS`; needs root, iperf3 and sockperf.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use vmio_model::figure::scalar;
use vmio_model::stats::{Pair, paired_ratio};
use vmio_node::{Journal, Local, Node};
use vmio_rig::nets::{self, Namespace, NetCtx};
use vmio_rig::nodes::Nodes;
use vmio_rig::workloads::{self, At, End, Stage};

/// A workload, its figure, how much of the figure's unit is shown as one, and what a person gets by hand.
type Compared = (&'static str, &'static str, (f64, &'static str), fn() -> f64);
const ALL: [Compared; 2] =
    [("iperf3-tcp", "bandwidth", (1e9, "Gbit/s"), iperf3), ("sockperf-tcp", "half-round-trip", (1e-6, "us"), sockperf)];

/// Bits a second of `iperf3 -c 127.0.0.1`.
fn iperf3() -> f64 {
    let mut server = Command::new("iperf3").args(["-s", "-1"]).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let output = Command::new("iperf3").args(["-c", "127.0.0.1", "-t", "2", "-J"]).output().unwrap();
    server.wait().unwrap();
    let doc: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    doc["end"]["sum_received"]["bits_per_second"].as_f64().unwrap()
}

/// Seconds of half a round trip, the median that `sockperf ping-pong` prints.
fn sockperf() -> f64 {
    let to = ["-i", "127.0.0.1", "--tcp"];
    let mut server = Command::new("sockperf").arg("server").args(to).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let output = Command::new("sockperf").arg("ping-pong").args(to).args(["-t", "2"]).output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let median = text.lines().find_map(|line| line.split_once("percentile 50.000 = "));
    median.and_then(|(_, value)| value.trim().parse::<f64>().ok()).unwrap_or_else(|| panic!("{text}")) * 1e-6
}

fn main() {
    let rounds: u32 = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(10);
    let dir = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::open(&dir.path().join("journal"), "bench").unwrap());
    let node: Arc<dyn Node> = Arc::new(Local::owned(journal));
    let host = Namespace::make(&*node).unwrap();
    let nodes = &Nodes::default();
    let ctx = NetCtx { node: &*node, host: &host, number: 0, guest: None, first: None, actor: None, nodes };
    let path = nets::find("loopback").unwrap().build(&ctx).unwrap();
    let end =
        |end: &nets::NetEnd| End { enter: end.enter.clone(), ..End::here(node.clone(), At::address(end.address)) };
    let ends = BTreeMap::from([("server", end(&path.peers["host"])), ("client", end(path.native.as_ref().unwrap()))]);
    let stage = Stage { ends, seconds: 2.0, span: None, place: 0 };
    for (workload, figure, (one, unit), by_hand) in ALL {
        let ours = || {
            let result = workloads::find(workload).unwrap().perform(&stage).unwrap();
            scalar(&result.figures, figure).unwrap()
        };
        let mut pairs = Vec::new();
        for round in 0..rounds {
            let (base, test) = if round % 2 == 0 {
                let base = by_hand();
                (base, ours())
            } else {
                let test = ours();
                (by_hand(), test)
            };
            println!(
                "{workload}, round {round}: by hand {:.2} {unit}, over the bed {:.2} {unit}",
                base / one,
                test / one
            );
            pairs.push(Pair { boot: round, base, test });
        }
        let ratio = paired_ratio(&pairs).unwrap();
        let interval = ratio.interval.map_or_else(String::new, |i| format!(" ({:.3} to {:.3})", i.low, i.high));
        println!("{workload}, bed over by hand: {:.3}{interval}, {} pairs", ratio.value, ratio.pairs);
    }
}
