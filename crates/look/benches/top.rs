//! What `vmio top` costs beside many guests, at one look a second: stand-ins with a hypervisor's
//! command line and threads, which do nothing. `cargo bench -p vmio-look --bench top
//! [-- GUESTS [SECONDS] [calls]]`, with `calls` as with its option. Prints figures, judges nothing. As root the eBPF
//! programs are loaded.

// The bench starts programs, which the crate itself must not.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use vmio_look::top::{Blocks, FlowSource, Sampler};
use vmio_model::top::verdict::verdicts;
use vmio_model::top::{History, rows, waits};
use vmio_node::Local;

/// The stand-in's program, as in its command line.
const PROGRAM: &str = "qemu-system-x86_64";
/// Threads of a stand-in: main loop, I/O thread, vCPUs, RCU.
const THREADS: usize = 8;

/// CPU seconds of this process, to the nanosecond where the kernel counts them.
fn spent() -> f64 {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    usage.tv_sec as f64 + usage.tv_nsec as f64 * 1e-9
}

/// Ends the stand-ins: they end with their standard input.
struct Guests(Vec<Child>);

impl Drop for Guests {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|child| drop(child.stdin.take()));
        self.0.iter_mut().for_each(|child| drop(child.wait()));
    }
}

fn stand_in() {
    for i in 1..THREADS {
        let name = if i < 5 { format!("CPU {i}/TCG") } else { format!("IO io{i}") };
        let sleep = || std::thread::sleep(Duration::from_secs(24 * 3600));
        let _ = std::thread::Builder::new().name(name).stack_size(16 << 10).spawn(sleep);
    }
    let _ = std::io::stdin().read(&mut [0]);
}

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().next().is_some_and(|program| program == PROGRAM) {
        stand_in();
        return Ok(());
    }
    let mut numbers = std::env::args().filter_map(|a| a.parse::<usize>().ok());
    let (count, seconds) = (numbers.next().unwrap_or(200), numbers.next().unwrap_or(30));
    let mut guests = Guests(Vec::new());
    for i in 0..count {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg0(PROGRAM).args(["-name", &format!("guest=stand-in-{i}"), "-smp", "4"]).stdin(Stdio::piped());
        guests.0.push(command.spawn()?);
    }
    std::thread::sleep(Duration::from_secs(1));
    let node = Local::new();
    let tracing = Blocks::start(&vmio_node::Local::new()).map(|b| Box::new(b) as Box<dyn FlowSource>);
    let mut sampler = Sampler::new(&node, true, tracing);
    let began = spent();
    let _ = sampler.tick();
    if std::env::args().any(|word| word == "calls") {
        let hypervisors = sampler.hypervisors();
        sampler.watch_calls(&hypervisors);
    }
    println!(
        "{count} guests with {THREADS} threads each, {}; first look: {:.0} ms",
        sampler.about(),
        (spent() - began) * 1e3
    );
    let mut history = History::default();
    let (mut seen, mut drawn, mut waiting, mut ticks) = (0, 0.0, 0.0, Vec::new());
    let (start, before) = (Instant::now(), spent());
    for _ in 0..seconds {
        std::thread::sleep(Duration::from_secs(1));
        let tick = spent();
        let interval = sampler.tick().ok_or("no interval")?;
        ticks.push(spent() - tick);
        let conclude = spent();
        seen = interval.guests.iter().filter(|g| g.cpu.as_ref().is_some_and(|c| c.vcpus == 4)).count();
        let (found, mut rows) = (verdicts(&interval, &history), rows::rows(&interval));
        let wait = spent();
        waits::fill(&mut rows.guests, &interval, &found);
        waiting += spent() - wait;
        history.remember(&interval);
        drop((found, rows));
        drawn += spent() - conclude;
    }
    let share = (spent() - before) / start.elapsed().as_secs_f64();
    ticks.sort_by(f64::total_cmp);
    println!(
        "{seen} of them seen with their virtual CPUs; {seconds} looks, one a second: {:.2} % of a core (a look {:.1} ms \
         median, {:.1} ms worst; verdicts, rows and waits {:.2} ms, of which waits {:.2} ms)",
        share * 100.0,
        ticks[ticks.len() / 2] * 1e3,
        ticks[ticks.len() - 1] * 1e3,
        drawn / seconds.max(1) as f64 * 1e3,
        waiting / seconds.max(1) as f64 * 1e3
    );
    Ok(())
}
