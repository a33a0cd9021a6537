//! A guest under Bochs, as far as the engine and the probes ask: a process with threads, and a node in it. The node is
//! a made-up one; a real kind boots an image with vmio's agent and speaks to that.

use std::sync::Arc;

use vmio_node::{Exec, Fake, Node};

use super::{Error, Guest, GuestKind, GuestSpec, Hypervisor, LaunchCtx, Result};

/// Entry `bochs`.
pub struct Bochs;

impl GuestKind for Bochs {
    fn name(&self) -> &'static str {
        "bochs"
    }
    fn about(&self) -> &'static str {
        "a guest made by vmio under Bochs"
    }
    fn launch(&self, ctx: &LaunchCtx<'_>, spec: &GuestSpec) -> Result<Box<dyn Guest>> {
        let process = ctx.node.spawn(&Exec::new("bochs").args(["-m".to_owned(), spec.memory_mib.to_string()]))?;
        Ok(Box::new(Emulated { name: spec.name.clone(), pid: process.pid() }))
    }
}

struct Emulated {
    name: String,
    pid: u32,
}

impl Guest for Emulated {
    fn node(&self) -> Arc<dyn Node> {
        Arc::new(Fake::new(&self.name))
    }
    fn hypervisor(&self) -> Result<Option<Hypervisor>> {
        let roles = [(self.pid + 1, "vcpu".to_owned())].into();
        Ok(Some(Hypervisor { name: "Bochs", pid: self.pid, roles, servers: Vec::new() }))
    }
    fn give_up(&self, seen: &str) -> Error {
        let what = format!("{seen}; Bochs had ended with exit code 1");
        Error::Down { guest: self.name.clone(), what, report: "it said nothing".into(), last: None }
    }
    fn stop(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
