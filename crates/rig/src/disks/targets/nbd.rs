//! A disk whose server and client are on two hosts, as storage over a network has it: another host, which a network
//! namespace plays, serves a written-out raw file by the NBD protocol over TCP, and a guest's hypervisor is its client,
//! in the namespace that plays this host. Both are joined by a link of the run's own ([`nets::beside`]), whose rate and
//! MTU are settings of a cell.
//!
//! The daemons are those of `served`, one for each attachment; what they spend is the other host's, and no part of the
//! guest's price. One that has died is started again with the next guest.
//!
//! Natively the client would be the kernel's (`nbd-client`, the module `nbd`), and vmio loads no module.

use vmio_look::require::{Requirement, program};

use super::served::{DAEMON, ServedFile};
use super::{Error, Prepared, Result, State, Target, TargetCtx, WRITTEN_OUT};
use crate::disks::places::Pool;
use crate::nets;

/// Entry `nbd`.
pub struct Nbd;

impl Target for Nbd {
    fn name(&self) -> &'static str {
        "nbd"
    }
    fn about(&self) -> &'static str {
        "fully written raw file that another host (a namespace) serves by NBD over TCP; guests only"
    }
    fn requirements(&self) -> &'static [Requirement] {
        const {
            &[
                Requirement {
                    name: DAEMON,
                    why: "serves the disk on the other host",
                    fix: "apt install qemu-system-common, or leave out the target `nbd`",
                    check: |reader| program(reader, DAEMON),
                },
                nets::IP,
                nets::NSENTER,
                nets::UNSHARE,
                nets::ROOT,
            ]
        }
    }
    fn guests_alone(&self) -> Option<&'static str> {
        Some(
            "nbd has its client in a guest's hypervisor: natively it is the kernel's (nbd-client), and vmio loads \
             no module for it; compare it with preallocated",
        )
    }
    fn can_be(&self, state: State, _native: bool, _pool: Option<&Pool>) -> Result<(), &'static str> {
        match state {
            State::Fresh => Err(WRITTEN_OUT),
            State::WarmHost => Err("what its hypervisor opens is on another host; use preallocated or device"),
            _ => Ok(()),
        }
    }
    fn over_link(&self) -> bool {
        true
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        let alone = || Error::Server { path: ctx.dir.clone(), reason: "no namespace plays this host".to_owned() };
        let link = nets::beside(ctx.node, ctx.host.as_ref().ok_or_else(alone)?)?;
        Ok(Box::new(ServedFile::make(ctx, self.name(), Some(link))?))
    }
}
