//! What our bed costs: iperf3 over its loopback interface against iperf3 typed by hand on the host's own, in one
//! run, in turn. `cargo bench -p vmio-rig --bench loopback -- ROUNDS`; needs root and iperf3.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use vmio_model::figure::scalar;
use vmio_model::stats::{Pair, paired_ratio};
use vmio_node::{Exec, Journal, Local, Node};
use vmio_rig::nets::{self, Namespace, NetCtx};
use vmio_rig::workloads::{self, At, End, Stage};

/// Bits a second of `iperf3 -c 127.0.0.1`, as a person would run it.
fn by_hand() -> f64 {
    let mut server = Command::new("iperf3").args(["-s", "-1"]).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let output = Command::new("iperf3").args(["-c", "127.0.0.1", "-t", "2", "-J"]).output().unwrap();
    server.wait().unwrap();
    let doc: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    doc["end"]["sum_received"]["bits_per_second"].as_f64().unwrap()
}

fn main() {
    let rounds: u32 = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(10);
    let dir = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::open(&dir.path().join("journal"), "bench").unwrap());
    let node: Arc<dyn Node> = Arc::new(Local::owned(journal));
    let host = Namespace::make(&*node).unwrap();
    let ctx = NetCtx { node: &*node, host: &host, number: 0, guest: None, first: None, actor: None, wire: None };
    let path = nets::find("loopback").unwrap().build(&ctx).unwrap();
    let end = |end: &nets::NetEnd| {
        let (at, enter) = (At::Address(end.address), end.enter.clone());
        End { node: node.clone(), at, enter, exec_base: Exec::default() }
    };
    let ends = BTreeMap::from([("server", end(&path.peers["host"])), ("client", end(path.native.as_ref().unwrap()))]);
    let stage = Stage { ends, seconds: 2.0, span: None, place: 0 };
    let ours = || {
        let result = workloads::find("iperf3-tcp").unwrap().perform(&stage).unwrap();
        scalar(&result.figures, "bandwidth").unwrap()
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
        println!("round {round}: by hand {:.2} Gbit/s, over the bed {:.2} Gbit/s", base / 1e9, test / 1e9);
        pairs.push(Pair { boot: round, base, test });
    }
    let ratio = paired_ratio(&pairs).unwrap();
    let interval = ratio.interval.map_or_else(String::new, |i| format!(" ({:.3} to {:.3})", i.low, i.high));
    println!("bed over by hand: {:.3}{interval}, {} pairs", ratio.value, ratio.pairs);
}
