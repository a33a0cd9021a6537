//! Samples by role and component. What they cost is bounded: the addresses of a kernel's functions that are kept apart,
//! names of files, and processes.

use std::collections::{BTreeMap, HashMap};

use vmio_model::figure::Reading;
use vmio_model::result::{COMPONENT, LOST, ROLE, SAMPLED, SAMPLES, SOURCE};
use vmio_node::Reader;

use super::super::others::Whose;
use super::kernel::{self, Symbols};
use super::perf::{Hit, Mode, Told};
use super::processes::{Owners, Workers};
use super::programs::Programs;

/// Different addresses in the kernel, by role. Beyond that they are what no function is known of.
const MOST_ADDRESSES: usize = 1 << 16;
/// No address of a function.
const NONE: u64 = 0;

/// Samples, and what they stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Part {
    samples: u64,
    /// Nanoseconds, or cycles.
    weight: u64,
}

impl Part {
    fn add(&mut self, more: Part) {
        self.samples += more.samples;
        self.weight += more.weight;
    }
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Count {
    workers: Workers,
    owners: Owners,
    programs: Programs,
    /// By role and component,
    parts: BTreeMap<(String, String), Part>,
    /// and in the kernel by role and address, of which the functions are looked for at the end.
    kernel: HashMap<(String, u64), Part>,
    lost: u64,
}

impl Count {
    /// Nothing yet.
    pub fn of(workers: Workers) -> Self {
        Self { workers, ..Self::default() }
    }

    /// Adds what was told since the last time, while the processes are still there.
    pub fn add(&mut self, reader: &dyn Reader, told: &[Told]) {
        self.programs.again();
        for one in told {
            match *one {
                Told::Born { process, parent } => {
                    self.owners.born(reader, &self.workers, process, parent);
                    self.programs.forget(process);
                }
                Told::Lost(records) => self.lost += records,
                Told::Hit(_) => {}
            }
        }
        for one in told {
            if let Told::Hit(hit) = one {
                self.hit(reader, hit);
            }
        }
    }

    fn hit(&mut self, reader: &dyn Reader, hit: &Hit) {
        // Of a process that vmio cannot see, or that is just ending.
        if matches!(hit.process, 0 | u32::MAX) {
            return;
        }
        let whose = self.owners.whose(reader, &self.workers, hit.process);
        if whose == Whose::Others {
            return;
        }
        let role = self.workers.role(whose, hit.process, hit.thread).to_owned();
        let part = Part { samples: 1, weight: hit.weight };
        let component = match hit.mode {
            Mode::Kernel => {
                let full =
                    self.kernel.len() >= MOST_ADDRESSES && !self.kernel.contains_key(&(role.clone(), hit.address));
                let address = if full { NONE } else { hit.address };
                self.kernel.entry((role, address)).or_default().add(part);
                return;
            }
            Mode::User => {
                let is_hypervisor = self.workers.is_hypervisor(hit.process);
                self.programs.component(reader, hit.process, is_hypervisor, hit.address)
            }
            Mode::GuestKernel => "guest kernel".to_owned(),
            Mode::GuestUser => "guest user".to_owned(),
            Mode::Unknown => kernel::OTHER.to_owned(),
        };
        self.parts.entry((role, component)).or_default().add(part);
    }

    /// The sum of what all samples stand for: nanoseconds, or cycles.
    pub fn weight(&self) -> u64 {
        self.parts.values().chain(self.kernel.values()).map(|part| part.weight).sum()
    }

    /// The figures, where so many seconds are one of what samples stand for.
    pub fn readings(mut self, symbols: Option<&Symbols>, seconds: f64, source: &str) -> Vec<Reading> {
        for ((role, address), part) in std::mem::take(&mut self.kernel) {
            let component = symbols.map_or_else(|| kernel::OTHER.to_owned(), |symbols| symbols.component(address));
            self.parts.entry((role, component)).or_default().add(part);
        }
        let of = |((role, component), part): ((String, String), Part)| {
            let reading = |figure, value| Reading::scalar(figure, value).with(ROLE, &role).with(COMPONENT, &component);
            [reading(SAMPLED, part.weight as f64 * seconds), reading(SAMPLES, part.samples as f64)]
        };
        let lost = Reading::scalar(LOST, self.lost as f64).with(SOURCE, source);
        self.parts.into_iter().flat_map(of).chain([lost]).collect()
    }
}
