//! CPU time by component: samples of all processors ([`perf`]), of which those of vmio's own processes and of the
//! kernel's threads are kept ([`processes`]), each by the file that it was in ([`programs`]) or by the subsystem of the
//! kernel ([`kernel`]). The paper that tells events so is lu2016 (Table 1).
//!
//! Whose work a thread of the kernel does cannot be told: its role is `kernel`. So the sum over all components is that
//! of vmio's own processes and of the kernel's threads, which the probe [`super::others`] tells by the scheduler's clock.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use vmio_look::require::{Check, Missing, Requirement};
use vmio_model::figure::Reading;
use vmio_node::linux::process::Status;
use vmio_node::linux::{cpu, kallsyms, system};
use vmio_node::{Node, Reader};

use super::others::{Spent, Table};
use super::{ByItself, Looking, Probe, ProbeMethod, ProbeSubject, Unseen};
use count::Count;
use kernel::Symbols;
use perf::{Rings, Source};
pub use processes::Workers;

mod cost;
mod count;
mod kernel;
mod perf;
mod processes;
mod programs;

/// Time between two looks at the rings: most of what begins and ends is still there then.
const LOOK: Duration = Duration::from_millis(50);

/// What sampling needs, and what it needs to tell the parts of the kernel apart.
const REQUIREMENTS: &[Requirement] = &[RIGHTS, SYMBOLS];
const RIGHTS: Requirement = Requirement {
    name: "sampling rights",
    why: "CPU time by component (--components)",
    fix: "run it with CAP_PERFMON, which root has outside of containers, or set kernel.perf_event_paranoid to 0",
    check: may_sample,
};
const SYMBOLS: Requirement = Requirement {
    name: "kernel symbols",
    why: "the kernel's part of --components by subsystem; without them it is one row",
    fix: "set kernel.kptr_restrict to 1 and run it as root",
    check: |reader| match kallsyms::shows_addresses(reader) {
        Some(true) => Ok(()),
        Some(false) => Err(Missing::Unlike(format!("{} hides the addresses", kallsyms::FILE))),
        None => Err(Missing::Unlike(format!("{} cannot be read", kallsyms::FILE))),
    },
};

/// Whether all processors may be sampled: CAP_PERFMON or CAP_SYS_ADMIN, or as the kernel lets everybody (Linux
/// Documentation/admin-guide/perf-security.rst).
fn may_sample(reader: &dyn Reader) -> Result<(), Missing> {
    const SYS_ADMIN_OR_PERFMON: u64 = 1 << 21 | 1 << 38;
    let Ok(paranoid) = system::sysctl(reader, "kernel.perf_event_paranoid") else {
        return Err(Missing::Feature {
            feature: "perf events (CONFIG_PERF_EVENTS)".to_owned(),
            path: "/proc/sys/kernel/perf_event_paranoid".to_owned(),
        });
    };
    let set = Status::of(reader, "self")?.capabilities().unwrap_or(0);
    if set & SYS_ADMIN_OR_PERFMON != 0 || paranoid.parse::<i32>().is_ok_and(|level| level <= 0) {
        return Ok(());
    }
    Err(Missing::Unlike(format!("no CAP_PERFMON (CapEff {set:#x}), and kernel.perf_event_paranoid is {paranoid}")))
}

/// Seconds for which a sample interrupts a processor of this machine, measured within a tenth of a second; `None` where
/// none is sampled.
pub fn interrupt_seconds(reader: &dyn Reader) -> Option<f64> {
    let cpus = cpu::online(reader);
    let rings = Rings::open(cpus.iter().map(|cpu| cpu.cpu)).ok().filter(|_| !cpus.is_empty())?;
    let seconds = cost::interrupt_seconds();
    drop(rings);
    seconds
}

/// Entry of the list of probes.
pub struct Components;

impl Probe for Components {
    fn name(&self) -> &'static str {
        "components"
    }
    fn about(&self) -> &'static str {
        "CPU seconds of vmio's processes and the kernel's threads by component: guest, file of a program, subsystem of \
         the kernel; by samples, so blind to what is shorter than a millisecond and seldom"
    }
    fn requirements(&self) -> &'static [Requirement] {
        REQUIREMENTS
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::Components(_))
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Own(&Components)
    }
}

impl ByItself for Components {
    fn start(&self, subject: &ProbeSubject, node: &Arc<dyn Node>) -> Result<Box<dyn Looking>, Unseen> {
        let ProbeSubject::Components(workers) = subject else {
            return Err(Unseen::OtherSubject("these are not processes"));
        };
        if let unmet @ Check::Unmet { .. } = RIGHTS.look(node.reader()) {
            return Err(Unseen::Unmet(unmet));
        }
        let cpus = cpu::online(node.reader());
        if cpus.is_empty() {
            return Err(Unseen::NoProcessors);
        }
        let clock = Table::read(node.reader(), workers.root())?;
        let rings = Rings::open(cpus.iter().map(|cpu| cpu.cpu)).map_err(Unseen::NotSampled)?;
        let source = rings.source;
        let (stop, stopped) = mpsc::channel();
        let (reader, count) = (node.clone(), Count::of(workers.clone()));
        let watch = move || look(rings, &*reader, count, &stopped);
        let thread = thread::Builder::new().name("components".to_owned()).spawn(watch).map_err(Unseen::NoThread)?;
        let (node, root, stop) = (node.clone(), workers.root(), Some(stop));
        Ok(Box::new(Sampling { node, root, clock, until: None, source, stop, thread }))
    }
}

/// Takes what the kernel tells until it is stopped.
fn look(mut rings: Rings, node: &dyn Node, mut count: Count, stopped: &mpsc::Receiver<()>) -> Count {
    loop {
        let ended = stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout);
        if ended {
            rings.disable();
        }
        let mut told = Vec::new();
        rings.take(|one| told.push(one));
        count.add(node.reader(), &told);
        if ended {
            return count;
        }
    }
}

/// Sampling at work; the thread ends with `stop`.
struct Sampling {
    node: Arc<dyn Node>,
    root: u32,
    clock: Table,
    /// The same at the end, where it gives the measure.
    until: Option<vmio_node::Result<Table>>,
    source: Source,
    stop: Option<Sender<()>>,
    thread: JoinHandle<Count>,
}

impl Looking for Sampling {
    fn halt(&mut self) {
        // Once only.
        if self.stop.take().is_some() && self.source == Source::Cycles {
            self.until = Some(Table::read(self.node.reader(), self.root));
        }
    }

    fn stop(mut self: Box<Self>, notes: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
        self.halt();
        let Sampling { node, clock, until, source, thread, .. } = *self;
        let count =
            thread.join().map_err(|_| Unseen::NotSampled(io::Error::other("the sampling thread ended early")))?;
        let weight = count.weight();
        if weight == 0 {
            return Err(Unseen::NoSamples);
        }
        let seconds = match until {
            // Of the clock: nanoseconds.
            None => 1e-9,
            // How long a cycle is changes; the time that all of them took is known.
            Some(until) => {
                let Spent { ours, kernel, .. } = clock.spent_until(&until?);
                (ours + kernel) / weight as f64
            }
        };
        let symbols = Symbols::read(node.reader());
        if symbols.is_none() {
            notes.push(format!("components: the kernel is one row: {}", SYMBOLS.look(node.reader())));
        }
        Ok(count.readings(symbols.as_ref(), seconds, source.name()))
    }
}

#[cfg(test)]
#[path = "components/tests.rs"]
mod tests;
