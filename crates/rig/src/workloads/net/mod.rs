//! What runs over a path of a network.

pub(super) mod iperf3;
mod sockperf;

pub use iperf3::{TCP as IPERF3_TCP, TCP_REVERSE as IPERF3_TCP_REVERSE, UDP as IPERF3_UDP};
pub use sockperf::TCP as SOCKPERF_TCP;

/// The role that serves, at the peer.
pub const SERVER: &str = "server";
/// The role that is run to its end, at the actor.
pub const CLIENT: &str = "client";
