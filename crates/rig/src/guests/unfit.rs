//! Why a kind of guest cannot be had as it is asked for.

use vmio_look::require::Missing;
use vmio_model::cell::Arch;

use crate::limits;

/// What cannot be had, or is not as it was asked for; what the messages say names what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Unfit {
    #[error("a side of kind {0} has no shape of its own")]
    Shape(&'static str),
    #[error("the host itself has the machine and the kernel that it has")]
    OfHost,
    #[error("a container has the host's own kernel, and no machine")]
    OfContainer,
    #[error("vmio's own guests run the kernel of their image, not {0}: see `vmio image`")]
    Kernel(String),
    #[error("a guest of {arch} (machine {machine}) has no {device}: use {}", .others.join(", "))]
    Device { arch: Arch, machine: &'static str, device: &'static str, others: Vec<&'static str> },
    #[error(
        "the guests' kernel has no module {0}: name one that has, with --guest-kernel and --guest-modules, or leave \
         out the target that needs it"
    )]
    NoModule(&'static str),
    /// Why its image does not carry a program.
    #[error("the guest lacks {0}, which the target needs there: {1}")]
    NoProgram(&'static str, String),
    #[error("another guest of the study has {0}: only one can have a device that is passed through")]
    OfAnotherGuest(String),
    /// What its hypervisor does not have, in that one's own words.
    #[error("{0}")]
    OfHypervisor(String),
    #[error(transparent)]
    Unheld(limits::Unheld),
    #[error("{0}, which holds guests to processors; apt install util-linux")]
    NoTaskset(Missing),
    #[error("a guest cannot be held to processor {pin}: vmio may use {} here", listed(usable))]
    Processor { pin: u32, usable: Vec<u32> },
    /// A guest that runs is held to others than it was to be.
    #[error("is held to processors {found:?}, not {asked:?}")]
    HeldElsewhere { found: Option<Vec<u32>>, asked: Vec<u32> },
    /// What it is held to, or which hypervisor there is, cannot be read: what was said instead.
    #[error("{0}")]
    Unreadable(String),
}

fn listed(processors: &[u32]) -> String {
    processors.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
