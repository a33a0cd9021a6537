//! Why something was not done to a logical volume, and what to do.

use super::super::Name;
use crate::disks::places;

/// Why something was not done to a logical volume.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum LvmError {
    #[error("{0} is no pool of volumes: write lvm:VG, lvmthin:VG/POOL or a directory (with a colon: ./{0})")]
    NoPool(String),
    #[error("{}; help: {}", .0, .0.help)]
    Place(places::Error),
    #[error("the logical volume {lv} is not a volume of vmio's (it has no tag vmio.volume): it is not touched")]
    Stranger { lv: String },
    #[error(
        "the logical volume {lv} is a volume of another host, state directory or pool: it is not touched; help: \
             if that one is gone for good, lvchange --deltag {theirs} --addtag {own} {lv}"
    )]
    OfOther { lv: String, theirs: String, own: String },
    #[error("several hosts change the volume group {vg} (vgs shows s or c in vg_attr): a pool is one host's")]
    Shared { vg: String },
    #[error(
        "the thin pool {pool} gives new volumes what others have written; help: lvchange --zero y {pool}, once all \
             that uses it has stopped"
    )]
    NotZeroed { pool: String },
    #[error("volumes of the group {vg} are thick, without snapshots; help: use a thin pool, --pool lvmthin:{vg}/POOL")]
    Thick { vg: String },
    #[error("{snapshot} is a snapshot of {lv}, and LVM would remove it, too; help: lvremove {snapshot}")]
    Snapshot { lv: String, snapshot: String },
    #[error("making volume {0} larger was cut off; help: `vmio volume resize {0} SIZE` finishes it")]
    Growing(Name),
    #[error("the logical volume {lv} is not active; help: lvchange --activate y {lv}")]
    Inactive { lv: String },
    #[error("`{command}` failed: {said}")]
    Tool { command: String, said: String },
}

impl LvmError {
    pub(crate) fn is_usage(&self) -> bool {
        match self {
            LvmError::NoPool(_) | LvmError::Thick { .. } => true,
            LvmError::Place(why) => why.kind == places::Kind::Unknown,
            _ => false,
        }
    }

    pub(crate) fn is_precondition(&self) -> bool {
        !self.is_usage() && !matches!(self, LvmError::Tool { .. })
    }
}

impl From<places::Error> for super::super::Error {
    fn from(why: places::Error) -> Self {
        LvmError::Place(why).into()
    }
}
