//! `vmio-cpu`: small kernels that keep one processor, or its memory, busy for a while, a static program of its own
//! (`src/bin/vmio-cpu.rs`) that runs alike on both sides. They stand where no packaged program gives the same: LU
//! factorisation, an image filter, allocation, writes, page faults, and the four of STREAM.
//!
//! A kernel is set up and run once untimed, then it is run again and again until the time is over, and at the end it
//! looks whether what it worked out is right: a wrong result is an error and not a rate. A run that has begun is
//! finished, so that what is counted is what was done. The code is for any processor of its architecture (no
//! `target-cpu`), so a guest with fewer instructions than its host runs the same.

mod args;
mod image;
mod lu;
mod memory;
mod stream;

use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::linux::system;
use crate::{Local, Node};

pub use args::{Command, USAGE, WrongUse, parse};
pub use stream::ARRAYS as STREAM_ARRAYS;

/// Name of the program.
pub const PROGRAM: &str = "vmio-cpu";

/// What a kernel does in one run.
trait Kernel {
    /// How much one run is, in what the kernel is counted in.
    fn amount(&self) -> f64;
    /// One run.
    ///
    /// # Errors
    /// When the kernel of the machine refuses what is asked of it.
    fn run(&mut self) -> io::Result<()>;
    /// Whether what it worked out is right, else what is not.
    fn check(&self) -> Result<(), WrongResult>;
}

/// A wrong result of a kernel.
#[derive(Debug, thiserror::Error)]
enum WrongResult {
    #[error("row {row}, column {column} of the product is {found} and not {wanted}")]
    Product { row: usize, column: usize, found: f64, wanted: f64 },
    #[error("pixel {x}, {y} is {found} and not {wanted}")]
    Pixel { x: usize, y: usize, found: f32, wanted: f32 },
    #[error("byte {at} is {found} and not {wanted}")]
    Byte { at: usize, found: u8, wanted: u8 },
    #[error("element {at} is {found} and not {wanted}")]
    Element { at: usize, found: f64, wanted: f64 },
    #[error("{whole} blocks are whole, {freed} were given back, and {made} were made")]
    Blocks { whole: u64, freed: u64, made: u64 },
    #[error("{touched} pages were touched, and the kernel counted {counted} faults")]
    Faults { touched: u64, counted: u64 },
    /// The result cannot be read.
    #[error(transparent)]
    Unseen(#[from] io::Error),
}

/// Makes a kernel of that many bytes (arrays) or that order (matrices, images).
type Make = fn(usize) -> io::Result<Box<dyn Kernel>>;

/// A kernel by its name.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Its name, which the program is called with.
    pub name: &'static str,
    /// In what it is counted.
    pub counts: &'static str,
    /// What `--size` is of it.
    pub size: &'static str,
    /// The size where none is named.
    pub usual: usize,
    /// Smallest and largest size.
    pub range: (usize, usize),
    /// Bytes that it needs at a size.
    bytes: fn(usize) -> usize,
    make: Make,
}

/// All kernels.
pub const ALL: &[Kind] = &[
    lu::LU,
    image::SHARPEN,
    memory::ALLOCATE,
    memory::WRITE,
    memory::FAULTS,
    stream::COPY,
    stream::SCALE,
    stream::ADD,
    stream::TRIAD,
];

/// What the program is told to do.
#[derive(Clone, Copy)]
pub struct Job {
    /// Which kernel.
    pub kind: Kind,
    /// Its size.
    pub size: usize,
    /// How long it works.
    pub time: Duration,
}

/// What the program prints at its end, as a line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The kernel.
    pub kernel: String,
    /// In what it is counted.
    pub counts: String,
    /// Its size.
    pub size: usize,
    /// Timed runs.
    pub runs: u64,
    /// Seconds that they took together.
    pub seconds: f64,
    /// How much they did together.
    pub done: f64,
    /// How much a second the fastest of them did, which is what STREAM itself prints.
    pub best_per_second: f64,
}

/// Share of the free memory that a kernel may use, so that it does not swap.
const FREE_SHARE: f64 = 0.9;

/// Works.
///
/// # Errors
/// When there is too little memory, or when what it worked out is wrong.
pub fn work(job: &Job) -> io::Result<Report> {
    let needed = (job.kind.bytes)(job.size);
    has_memory(needed)?;
    let mut kernel = (job.kind.make)(job.size)?;
    kernel.run()?;
    let (began, mut runs, mut seconds, mut fastest) = (Instant::now(), 0, 0.0, f64::INFINITY);
    while seconds < job.time.as_secs_f64() {
        kernel.run()?;
        let now = began.elapsed().as_secs_f64();
        fastest = fastest.min(now - seconds);
        seconds = now;
        runs += 1;
    }
    kernel.check().map_err(|why| io::Error::other(format!("{} is wrong here: {why}", job.kind.name)))?;
    Ok(Report {
        kernel: job.kind.name.to_owned(),
        counts: job.kind.counts.to_owned(),
        size: job.size,
        runs,
        seconds,
        done: kernel.amount() * runs as f64,
        best_per_second: kernel.amount() / fastest.max(1e-9),
    })
}

/// Checks that this much memory is free in the machine. Limits of control groups are not checked.
fn has_memory(needed: usize) -> io::Result<()> {
    let machine = Local::new();
    let Some(free) = system::memory_bytes(machine.reader(), "MemAvailable") else { return Ok(()) };
    let most = free as f64 * FREE_SHARE;
    if needed as f64 <= most {
        return Ok(());
    }
    let mib = |bytes: f64| (bytes / f64::from(1 << 20)).ceil();
    Err(io::Error::new(
        io::ErrorKind::OutOfMemory,
        format!(
            "it needs {} MiB of memory and may take {} of the {} MiB that are free; name a smaller --size",
            mib(needed as f64),
            mib(most).max(1.0) - 1.0,
            mib(free as f64)
        ),
    ))
}

/// Pseudo-random numbers that are the same everywhere: Knuth's MMIX generator (The Art of Computer Programming,
/// volume 2, third edition, section 3.3.4, table 1, line 26).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// In -1 to 1.
    fn unit(&mut self) -> f64 {
        self.next() as f64 / f64::from(1u32 << 30) - 1.0
    }
}

#[cfg(test)]
mod tests;
