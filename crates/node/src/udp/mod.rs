//! `vmio-udp`: an open-loop generator of UDP datagrams and its receiver, a static program of its own
//! (`src/bin/vmio-udp.rs`) that runs at both ends of a path.
//!
//! **Open loop**: when each packet is due follows from the rate alone ([`schedule`]), not from how the last one fared.
//! What cannot be sent when it is due is counted and not made up for ([`send`]), so a slow path is not asked for less,
//! which is how a closed loop hides it (Schroeder, Wierman, Harchol-Balter, "Open Versus Closed: A Cautionary Tale",
//! NSDI 2006). Whether the generator itself kept its time is counted too: a run in which it did not says nothing of
//! the path.
//!
//! A **rate** is of payload: the bits of datagrams without the headers of UDP, IP and Ethernet.
//!
//! What arrived is counted by [`receive`] with bounded memory, whatever it is sent ([`tally`]).

pub mod args;
mod clock;
mod delays;
pub mod packet;
pub mod receive;
pub mod report;
pub mod schedule;
pub mod send;
pub mod tally;

pub use report::{Delay, NeverSent, ReceiveReport, SendReport, SenderReport};

/// Name of the program.
pub const PROGRAM: &str = "vmio-udp";

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// Nanoseconds as seconds.
fn seconds(ns: u64) -> f64 {
    ns as f64 / SECOND_NS as f64
}
