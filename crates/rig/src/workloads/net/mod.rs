//! What runs over a path of a network.

pub mod family;
pub(super) mod iperf3;
mod s3;
mod sockperf;
mod transfer;
mod udp;

pub use family::Udp;
pub use iperf3::{TCP as IPERF3_TCP, TCP_REVERSE as IPERF3_TCP_REVERSE, UDP as IPERF3_UDP};
pub use s3::{GET as S3_GET, PUT as S3_PUT};
pub use sockperf::TCP as SOCKPERF_TCP;
pub use transfer::TRANSFER;
pub use udp::{RECEIVER, SENDER};

use std::net::IpAddr;

use super::{End, Error, Result};

/// The role that serves, at the peer.
pub const SERVER: &str = "server";
/// The role that is run to its end, at the actor.
pub const CLIENT: &str = "client";
/// The end, if the path has one, where what the last role does at the actor is done as well.
pub const CO_SENDER: &str = "co-sender";

/// The address that leads to an end, as this program is told it.
fn address(program: &str, end: &End) -> Result<String> {
    told(program, end.address())
}

/// The address that it listens at there.
fn listens_at(program: &str, end: &End) -> Result<String> {
    told(program, end.serves())
}

fn told(program: &str, address: Option<IpAddr>) -> Result<String> {
    let missing = || Error::Unfit { workload: program.into(), reason: "it was given no address".into() };
    Ok(address.ok_or_else(missing)?.to_string())
}
