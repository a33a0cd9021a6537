//! Limiters of what guests send, one after the other in the same bed (`bed.rs`), interleaved and repeated, all measured
//! at the receiver behind the uplink. Each is set as its users set it (`limiters.rs`); what this kernel lacks is named
//! with the reason, and has no figures.
//!
//! Used by the bench `peers` and, in its smallest form, by a test (`tests/root_peers.rs`).
#![allow(dead_code, clippy::unwrap_used, clippy::print_stderr)]

pub mod bed;
pub mod figures;
pub mod limiters;
pub mod load;
pub mod rounds;
pub mod scale;
pub mod table;

use figures::{Results, Row};
use limiters::{ALL, Limiter};
use rounds::Times;
use scale::Scale;
use vmio_rig::lab::NODE_VARIABLE;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often each limiter.
    pub rounds: usize,
    /// By name; none: all.
    pub limiters: Vec<String>,
    /// How long, at 200 Mbit/s.
    pub times: Times,
    /// How fast the bed is.
    pub scale: Scale,
}

/// Measures them in turn, every other round in the opposite order.
pub fn run(options: &Options) -> Results {
    vmio_testbed::must_be_root();
    let is_wanted =
        |limiter: &&Limiter| options.limiters.is_empty() || options.limiters.iter().any(|name| name == limiter.name);
    let wanted: Vec<&Limiter> = ALL.iter().filter(is_wanted).collect();
    let mut rows: Vec<Row> = wanted.iter().map(|limiter| Row::of(limiter.name, limiter.how)).collect();
    for round in 0..options.rounds {
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let (limiter, row) = (wanted[at], &mut rows[at]);
            if row.not_run.is_some() {
                continue;
            }
            eprintln!("round {} of {}: {}", round + 1, options.rounds, limiter.name);
            match rounds::measured(limiter, &options.times, options.scale) {
                Ok((round, note)) => {
                    row.rounds.push(round);
                    row.note = note;
                }
                Err(reason) => row.not_run = Some(reason),
            }
        }
    }
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let scale = options.scale;
    Results {
        lab_host: std::env::var(NODE_VARIABLE).ok().filter(|label| !label.is_empty()),
        kernel: kernel.trim().to_owned(),
        processors: std::thread::available_parallelism().map_or(0, usize::from),
        congestion_control: bed::CONGESTION_CONTROL.to_owned(),
        uplink_bps: scale.uplink_bps(),
        wire_bps: scale.wire_bps(),
        times_longer: scale.times_longer(),
        guests: bed::contracts(scale).to_vec(),
        limiters: rows,
    }
}
