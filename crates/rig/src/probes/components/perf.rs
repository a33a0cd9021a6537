//! Samples of all processors by perf_event_open(2): where each was, a thousand times a second of its work.
//!
//! An event for each processor, of all processes: so threads and processes that begin later are sampled, too, and
//! threads of the kernel. Each has a ring of its own of [`RING_BYTES`], which holds four seconds; what comes when it is
//! full is counted as lost.

use std::io;

use perf_event::data::Record;
use perf_event::events::{Hardware, Software};
use perf_event::{Builder, SampleFlag, Sampler};

/// Samples a second of a processor's work. No divisor of what programs and the kernel do by a clock of their own.
pub const HERTZ: u64 = 997;
/// Nanoseconds between two samples of the processor clock.
pub const PERIOD_NS: u64 = 1_000_000_000 / HERTZ;
/// Bytes of a processor's ring: a sample takes 32.
const RING_BYTES: usize = 128 << 10;
/// Records that are taken of a processor at once: more than a ring holds.
const MOST_AT_ONCE: usize = 8192;

/// What makes a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The hardware's counter of cycles. It also sees what the kernel does with interrupts off.
    Cycles,
    /// The kernel's timer of each processor (`PERF_COUNT_SW_CPU_CLOCK`). What the kernel does with interrupts off is
    /// seen where it allows them again.
    Clock,
}

impl Source {
    /// Its name with perf(1).
    pub fn name(self) -> &'static str {
        match self {
            Source::Cycles => "cycles",
            Source::Clock => "cpu-clock",
        }
    }
}

/// Where a processor was (perf_event_open(2), `PERF_RECORD_MISC_CPUMODE_MASK`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the kernel.
    Kernel,
    /// In a program.
    User,
    /// In the kernel of a guest of KVM.
    GuestKernel,
    /// In a program of a guest of KVM.
    GuestUser,
    /// Elsewhere.
    Unknown,
}

impl Mode {
    fn of(misc: u16) -> Self {
        match misc & 7 {
            1 => Mode::Kernel,
            2 => Mode::User,
            4 => Mode::GuestKernel,
            5 => Mode::GuestUser,
            _ => Mode::Unknown,
        }
    }
}

/// A sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Process; 0 for one that vmio cannot see.
    pub process: u32,
    /// Its thread.
    pub thread: u32,
    /// Where the processor was.
    pub mode: Mode,
    /// The address of the instruction; of a guest's own addresses in a guest.
    pub address: u64,
    /// Nanoseconds of the processor clock, or cycles, that it stands for.
    pub weight: u64,
}

/// What the kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// A sample.
    Hit(Hit),
    /// A process was begun.
    Born {
        /// Its number.
        process: u32,
        /// The process that began it.
        parent: u32,
    },
    /// So many records were lost.
    Lost(u64),
}

/// The events of all processors.
pub struct Rings {
    rings: Vec<Sampler>,
    /// What makes the samples.
    pub source: Source,
}

impl Rings {
    /// Starts to sample these processors: by cycles where the hardware counts them, else by the clock.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(cpus: impl Iterator<Item = u32> + Clone) -> io::Result<Self> {
        let of = |source| Self::by(source, cpus.clone());
        of(Source::Cycles).or_else(|_| of(Source::Clock))
    }

    fn by(source: Source, cpus: impl Iterator<Item = u32>) -> io::Result<Self> {
        let mut rings = cpus.map(|cpu| ring(source, cpu)).collect::<io::Result<Vec<Sampler>>>()?;
        rings.iter_mut().try_for_each(|ring| ring.as_counter_mut().enable())?;
        Ok(Self { rings, source })
    }

    /// Ends to sample; what was told until then can still be taken.
    pub fn disable(&mut self) {
        for ring in &mut self.rings {
            // One that cannot be disabled ends when it goes.
            let _ = ring.as_counter_mut().disable();
        }
    }

    /// Takes what was told since the last time.
    pub fn take(&mut self, mut each: impl FnMut(Told)) {
        for ring in &mut self.rings {
            for _ in 0..MOST_AT_ONCE {
                let Some(record) = ring.next_record() else { break };
                let mode = Mode::of(record.misc());
                match record.parse_record() {
                    Ok(Record::Sample(sample)) => each(Told::Hit(Hit {
                        process: sample.pid().unwrap_or_default(),
                        thread: sample.tid().unwrap_or_default(),
                        mode,
                        address: sample.ip().unwrap_or_default(),
                        weight: match self.source {
                            Source::Clock => PERIOD_NS,
                            Source::Cycles => sample.period().unwrap_or_default(),
                        },
                    })),
                    // A thread has the process of who began it.
                    Ok(Record::Fork(fork)) if fork.pid != fork.ppid => {
                        each(Told::Born { process: fork.pid, parent: fork.ppid });
                    }
                    Ok(Record::Lost(lost)) => each(Told::Lost(lost.lost)),
                    _ => {}
                }
            }
        }
    }
}

/// The event of a processor, with its ring; it is not on yet.
fn ring(source: Source, cpu: u32) -> io::Result<Sampler> {
    let mut event = match source {
        Source::Cycles => Builder::new(Hardware::CPU_CYCLES),
        Source::Clock => Builder::new(Software::CPU_CLOCK),
    };
    match source {
        Source::Cycles => event.sample_frequency(HERTZ),
        // By its period: for frequencies there is a limit that the kernel lowers by itself.
        Source::Clock => event.sample_period(PERIOD_NS),
    };
    event.any_pid().one_cpu(cpu as usize).exclude_kernel(false).exclude_hv(false).task(true);
    // The timer runs on; ARM's counters refuse this, and none counts while it halts.
    event.exclude_idle(source == Source::Clock);
    event.sample(SampleFlag::IP | SampleFlag::TID | SampleFlag::PERIOD);
    event.build()?.sampled(RING_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// linux/perf_event.h: the other bits say other things.
    #[test]
    fn the_mode_is_in_the_lowest_bits() {
        let modes = [1, 2, 4, 5, 0, 3].map(|misc| Mode::of(misc | 1 << 14));
        let wanted = [Mode::Kernel, Mode::User, Mode::GuestKernel, Mode::GuestUser, Mode::Unknown, Mode::Unknown];
        assert_eq!(modes, wanted);
    }
}
