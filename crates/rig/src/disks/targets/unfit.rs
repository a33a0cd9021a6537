//! Why a target cannot be had in a place, or not as a cell wants it.

use vmio_model::cell::State;

use crate::disks::places::Pool;

/// The kinds of reasons; what they say names what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Unfit {
    #[error("this place holds volumes, not files ({0}); for files use --on DIR")]
    NoFiles(Pool),
    #[error("a device that is passed through is the target passthrough alone; for others name a place: --on DIR")]
    NoFilesPassedThrough,
    #[error("only a device that is passed through is this target: --on vfio:ADDRESS")]
    NotPassedThrough,
    #[error("this place holds volumes of another kind ({pool}); give a place for it: --on {form}")]
    OtherVolumes { pool: Pool, form: &'static str },
    #[error("this place holds files; give a place for volumes: --on {form}")]
    NoVolumes { form: &'static str },
    #[error(
        "its slow disk and its cache are modelled, and this place is not; give a modelled disk: --on modelled:RATE"
    )]
    NotModelled,
    #[error(
        "the place is not a directory on NFS: name one, --on DIR, or run it in a lab host, which has its own NFS \
         server: vmio lab run -- vmio study run hdparm-nfs --on /mnt/nfs --yes"
    )]
    NoNfs,
    /// It is not written to ([`super::Target::only_read`]), or no guest has it ([`super::Target::native_alone`]).
    #[error("{0}")]
    NotFor(&'static str),
    /// A study names a state that it cannot be in ([`super::Target::can_be`]).
    #[error("{target} is never {state} there: {why}")]
    State { target: &'static str, state: State, why: &'static str },
}
