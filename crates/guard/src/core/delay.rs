//! Waits of a member's packets, and what its class says of them.

use std::sync::Arc;

use vmio_model::policy::delay::DelayTarget;

use crate::planes::DelayCount;

/// Waits of a member's packets, and their targets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemberDelay {
    /// Waits so far; `None` where they are not measured.
    pub count: Option<Arc<DelayCount>>,
    /// Targets of its class.
    pub target: DelayTarget,
}
