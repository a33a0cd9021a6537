//! What is done and looked at on a machine, mostly in a guest, to set something up over its disks.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use vmio_node::linux::block;
use vmio_node::{Exec, Node};

/// How often something is looked at until it is there.
pub const POLL: Duration = Duration::from_millis(20);

/// Runs a program; what it said.
pub fn run(node: &dyn Node, program: &str, args: &[&str], limit: Duration) -> anyhow::Result<String> {
    let command = Exec::new(program).args(args.iter().copied()).limit(limit);
    let output = node.exec(&command)?;
    let said = output.err();
    anyhow::ensure!(output.ok(), "{}: {} failed: {}", node.name(), command.shown(), said.trim());
    Ok(output.out().trim().to_owned())
}

/// Looks until something is there.
pub fn poll<T>(lacks: &str, limit: Duration, mut look: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        anyhow::ensure!(Instant::now() < end, "{lacks} within {} s", limit.as_secs());
        thread::sleep(POLL);
    }
}

/// A disk's name in sysfs.
pub fn kernel_name(disk: &Path) -> anyhow::Result<String> {
    let name = disk.file_name().and_then(|name| name.to_str()).context("a disk has no name")?;
    Ok(block::sysfs_name(name))
}

/// A disk's size.
pub fn disk_bytes(node: &dyn Node, disk: &Path) -> anyhow::Result<u64> {
    let bytes = block::Device::whole(node.reader(), &kernel_name(disk)?).size_bytes();
    bytes.with_context(|| format!("{} has no size", disk.display()))
}
