//! What a guest reads of its disk, as its hypervisor counts it (QMP `query-blockstats`): from outside of the guest, and
//! also where the host's page cache serves the hypervisor and no disk of the host is reached.

use std::sync::Arc;

use vmio_model::figure::Reading;
use vmio_model::result::READ;
use vmio_node::Node;

use super::{ByItself, Looking, Probe, Thing, Unseen, Way};
use crate::guests::Drive;

/// Entry of the list of probes.
pub struct Blockstats;

impl Probe for Blockstats {
    fn name(&self) -> &'static str {
        "blockstats"
    }
    fn about(&self) -> &'static str {
        "what a guest read of its disk, as QEMU counts it (query-blockstats), where its own page cache is to serve it; \
         blind to what another process serves in QEMU's place"
    }
    fn sees(&self, thing: &Thing) -> bool {
        matches!(thing, Thing::Drive { .. })
    }
    fn way(&self) -> Way {
        Way::Own(&Blockstats)
    }
}

impl ByItself for Blockstats {
    fn start(&self, thing: &Thing, _: &Arc<dyn Node>) -> Result<Box<dyn Looking>, Unseen> {
        let Thing::Drive { drive, .. } = thing else { return Err(Unseen::OtherThing("it is no disk of a guest")) };
        Ok(Box::new(Counted { before: read(drive)?, drive: drive.clone() }))
    }
}

struct Counted {
    drive: Drive,
    /// Bytes.
    before: u64,
}

impl Looking for Counted {
    fn stop(self: Box<Self>, _: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
        let backwards = || Unseen::Backwards(self.drive.to_string());
        let bytes = read(&self.drive)?.checked_sub(self.before).ok_or_else(backwards)?;
        Ok(vec![Reading::scalar(READ, bytes as f64)])
    }
}

fn read(drive: &Drive) -> Result<u64, Unseen> {
    drive.read_bytes()?.ok_or_else(|| Unseen::NotCounted(drive.to_string()))
}
