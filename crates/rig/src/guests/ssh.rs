//! Another machine, which was reached before the run ([`vmio_node::reach`]): by the user's own `ssh`, whence the name, or as a
//! libvirt domain. It runs already and is never started or stopped; nothing of this host is held for it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use vmio_model::cell::Kind;
use vmio_node::Node;

use super::{Disks, Error, Guest, GuestKind, GuestSpec, LaunchCtx, Result};

/// Entry `ssh`.
pub struct Ssh;

impl GuestKind for Ssh {
    fn name(&self) -> &'static str {
        Kind::SSH.name
    }
    fn about(&self) -> &'static str {
        "a machine as it is, --on ssh://HOST or libvirt://DOMAIN: absolute figures"
    }
    fn launch(&self, ctx: &LaunchCtx<'_>, spec: &GuestSpec) -> Result<Box<dyn Guest>> {
        let none = || Error::Spec { guest: spec.name.clone(), reason: NO_MACHINE.to_owned() };
        let node = Arc::clone(&ctx.nodes.measured().ok_or_else(none)?.0.node);
        // Whether it is there still.
        node.clock_seconds()?;
        let disks = spec.disks.iter().filter_map(|d| Some((d.id.clone(), d.storage.path()?.to_owned()))).collect();
        Ok(Box::new(Machine { node, disks }))
    }
}

/// Why there is no such side where none was named.
pub const NO_MACHINE: &str =
    "no machine is named for the side ssh: name one with --on ssh://[USER@]HOST[:PORT] or --on libvirt://DOMAIN";

struct Machine {
    node: Arc<dyn Node>,
    disks: BTreeMap<String, PathBuf>,
}

impl Guest for Machine {
    fn node(&self) -> Arc<dyn Node> {
        Arc::clone(&self.node)
    }
    fn disks(&self) -> Option<&dyn Disks> {
        Some(self)
    }
    fn give_up(&self, seen: &str) -> Error {
        let report = "the agent undoes what was begun there when the connection is lost; to continue: --resume";
        let (guest, what) = (self.node.name().to_owned(), seen.to_owned());
        Error::Down { guest, what, report: report.to_owned(), last: None }
    }
    fn stop(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Disks for Machine {
    fn path(&self, id: &str) -> Result<PathBuf> {
        let none = || Error::NoDisk { guest: self.node.name().to_owned(), disk: id.to_owned(), hint: String::new() };
        self.disks.get(id).cloned().ok_or_else(none)
    }
}
