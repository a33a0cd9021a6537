//! Stand-in for the journal of `vmio-node` until that is merged.

/// Journal of changes.
#[derive(Debug)]
pub struct Journal;
