//! Work at the backing device that is not the cell's own, and what it says of a sample.

use vmio_model::result::{DeviceUse, Foreign, Mark, WorkloadResult, WorkloadTraits};

/// A cell's circumstances, as far as its own traffic at the device depends on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circumstances {
    /// Every write of the cell makes the file system allocate (fresh sparse file).
    pub first_write: bool,
    /// The guest's disk goes through the host's page cache.
    pub host_cache: bool,
}

/// Foreign load of a cell. `before` is what the device did in the gap before it.
pub fn foreign(
    traits: &WorkloadTraits,
    circumstances: Circumstances,
    result: &WorkloadResult,
    before: Option<&DeviceUse>,
    during: Option<&DeviceUse>,
) -> Foreign {
    todo!("{traits:?} {circumstances:?} {result:?} {before:?} {during:?}")
}

/// Words of caution for a sample.
pub fn marks(result: &WorkloadResult, during: Option<&DeviceUse>, foreign: &Foreign) -> Vec<Mark> {
    todo!("{result:?} {during:?} {foreign:?}")
}
