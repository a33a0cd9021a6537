//! The host itself as the side that guests are compared with. It is never started, and held to a guest's cores and
//! memory by a control group that the workloads join ([`crate::limits`]).

use vmio_model::cell::{Kind, Shape};
use vmio_node::Reader;

use super::{GuestKind, Result, Unfit};
use crate::limits;

/// Entry `native`.
pub struct Native;

impl GuestKind for Native {
    fn name(&self) -> &'static str {
        Kind::NATIVE.name
    }
    fn about(&self) -> &'static str {
        "the host itself, limited to the guest's cores and memory"
    }
    fn fits(&self, shape: &Shape, host: &dyn Reader) -> Result<(), Unfit> {
        if *shape != shape.natively() {
            return Err(Unfit::OfHost);
        }
        // Without a control group of its own it is measured all the same, and told; but not on other processors.
        limits::can_pin(host, &shape.pins).map_err(Unfit::Unheld)
    }
}
