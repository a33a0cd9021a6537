//! A raw file full of zeros: what a disk makes of them that compresses by itself. On this host, or on a machine that is
//! measured as it is, made there by its agent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vmio_look::require::Requirement;
use vmio_model::cell;
use vmio_node::{Exec, Journal, Node};

use super::elsewhere::{self, Elsewhere};
use super::raw_file::RawFile;
use super::scratch::Scratch;
use super::{Demands, Error, Prepared, Result, State, Target, TargetCtx, facts};
use crate::disks::Storage;

/// Entry `zeros`.
pub struct Zeros;

impl Target for Zeros {
    fn name(&self) -> &'static str {
        "zeros"
    }
    fn about(&self) -> &'static str {
        "raw file with zeros written to every block"
    }
    fn written(&self) -> bool {
        true
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    fn elsewhere(&self) -> Option<elsewhere::Make> {
        Some(there)
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        let write = |scratch: &Scratch| zero(ctx.node, &scratch.open, scratch.bytes);
        Ok(Box::new(RawFile::new(Scratch::make_with(ctx, self.name(), write)?, false)))
    }
}

/// Makes it on another machine. It goes with the connection: it is in the journal of the agent there.
fn there(ctx: &Elsewhere<'_>) -> Result<Box<dyn Prepared>> {
    let at = ctx.node.make_file(&ctx.own.dir.join(ctx.file), ctx.bytes)?.path();
    zero(&**ctx.node, &at, ctx.bytes)?;
    Ok(Box::new(There { at, bytes: ctx.bytes }))
}

fn zero(node: &dyn Node, at: &Path, bytes: u64) -> Result<()> {
    let (to, count) = (format!("of={}", at.display()), format!("count={}", bytes >> 20));
    let command = Exec::new("dd")
        .args(["if=/dev/zero", &to, "bs=1M", &count, "oflag=direct", "conv=notrunc,fsync"])
        .limit(Duration::from_secs(60 + (bytes >> 20)));
    let output = node.exec(&command)?;
    let failed = || Error::Tool { command: command.shown(), reason: output.err().trim().to_owned() };
    output.ok().then_some(()).ok_or_else(failed)
}

struct There {
    /// What programs open there: what the agent has open.
    at: PathBuf,
    bytes: u64,
}

impl Prepared for There {
    fn native(&self) -> &Path {
        &self.at
    }
    fn attach(&mut self, _asked: &cell::Attachment) -> Result<Storage> {
        Ok(Storage::File(self.at.clone()))
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn demands(&self) -> Demands {
        Demands { logical_block_bytes: 4096, direct: true }
    }
    fn effective(&self) -> BTreeMap<String, String> {
        facts([("bytes", self.bytes.to_string())])
    }
    /// Every block holds data, whatever was written.
    fn reset(&mut self, _state: State) -> Result<u64> {
        Ok(0)
    }
    fn remove(self: Box<Self>, _journal: &Journal) -> Result<()> {
        Ok(())
    }
}
