//! What keeps one processor, or its memory, busy, on the machine itself: no disk, no network, so what a guest loses here it
//! loses to its processor and to how its memory is mapped.
//!
//! They stand in the four groups of rasmusson2013, section 3 ("CPU and Memory"), each named by its workload
//! ([`vmio_model::result::WorkloadTraits::group`]). The paper ran Geekbench 2, which is not to be had; its members are
//! others of the same kind.

pub mod family;
mod kernels;
mod openssl;
mod packaged;
mod stress_ng;
mod zstd;

pub use kernels::{ALLOCATE, Kernel, LU, PAGE_FAULTS, SHARPEN, WRITE};
pub use openssl::AES_256_CBC;
pub use stress_ng::VM;
pub use zstd::LEVEL_3;

use vmio_model::figure::{Figure, Unit};
use vmio_model::result::WorkloadTraits;

use super::Role;
use super::stage::Wants;

/// The groups, in the paper's order.
#[cfg(test)]
pub(super) const GROUPS: [&str; 4] = [INTEGER, FLOATING_POINT, MEMORY, STREAM];
const INTEGER: &str = "integer";
const FLOATING_POINT: &str = "floating-point";
const MEMORY: &str = "memory";
const STREAM: &str = "stream";

/// The one role.
const WORKER: &str = "worker";
/// What all of them are judged by.
const RATE: &str = "throughput";

/// The role of one that runs these programs.
const fn worker(programs: &'static [&'static str], requirements: &'static [vmio_look::require::Requirement]) -> Role {
    Role { name: WORKER, wants: Wants::Nothing, programs, requirements }
}

/// One that is judged by its rate in this unit, and measures these beside it.
fn traits(name: &str, group: &str, unit: Unit, beside: impl IntoIterator<Item = Figure>) -> WorkloadTraits {
    let figures = std::iter::once(Figure::rate(RATE, unit)).chain(beside).collect();
    WorkloadTraits { name: name.into(), figures, judged_by: RATE.into(), disk: None, group: Some(group.into()) }
}
