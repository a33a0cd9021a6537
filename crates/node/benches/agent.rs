//! Prints what the agent costs: a round trip, a command, a file copy (over a socket pair, the
//! agent in this process), and the CPU share of the sampler. `cargo bench -p vmio-node`.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use vmio_node::{Exec, Journal, Local, Node, Reader, SamplePlan};

fn each(times: u32, mut work: impl FnMut()) -> f64 {
    let begin = Instant::now();
    for _ in 0..times {
        work();
    }
    begin.elapsed().as_secs_f64() / f64::from(times)
}

/// CPU seconds of this process so far.
fn cpu_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 * 1e-9
}

fn main() {
    let agent = common::start_agent();
    let node = agent.connect();
    let dir = tempfile::tempdir().unwrap();

    let trip = each(5000, || assert!(node.clock_seconds().unwrap() > 0.0));
    println!("round trip             {:8.1} us", trip * 1e6);
    let run = |node: &dyn Node| each(200, || assert!(node.exec(&Exec::new("true")).unwrap().ok()));
    println!("command, local         {:8.1} us", run(&Local::new()) * 1e6);
    println!("command, by the agent  {:8.1} us", run(&node) * 1e6);

    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, vec![7; 200 << 20]).unwrap();
    let copy = each(3, || node.put(&from, &to, None).unwrap());
    println!("file copy to           {:8.1} MB/s", 209.7152 / copy);
    let read = each(3, || assert_eq!(node.read(&to).unwrap().len(), 200 << 20));
    println!("file copy from         {:8.1} MB/s", 209.7152 / read);

    let journal = Journal::open(&dir.path().join("state"), "bench").unwrap();
    let mut number = 0;
    let record = each(200, || {
        number += 1;
        journal.scratch_file(&dir.path().join(format!("s{number}"))).unwrap();
    });
    println!("journalled file        {:8.1} us", record * 1e6);
    let undo = each(1, || assert_eq!(journal.undo_all(), Vec::<String>::new()));
    println!("undoing 200 of them    {:8.1} us", undo * 1e6);

    let names = "stat diskstats meminfo vmstat loadavg uptime interrupts softirqs self/stat self/io";
    let paths: Vec<PathBuf> = names.split(' ').map(|n| PathBuf::from("/proc").join(n)).collect();
    let sampling = Local::new().sample(&SamplePlan { paths, interval: Duration::from_millis(100) }).unwrap();
    let (cpu, begin) = (cpu_seconds(), Instant::now());
    std::thread::sleep(Duration::from_secs(10));
    let share = (cpu_seconds() - cpu) / begin.elapsed().as_secs_f64();
    let samples = sampling.stop().unwrap();
    println!("sampler, 10 files 10 Hz {:7.3} % of a core ({} samples)", share * 100.0, samples.len());

    drop(node);
    agent.end();
}
