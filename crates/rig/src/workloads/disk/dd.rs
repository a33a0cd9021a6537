//! `dd` as in the paper (shafer2010, section 3.1): 64 KiB blocks, buffered. The side's memory
//! would hide the disk, so twice as much as the side has is moved; writes count the flush
//! (`conv=fsync`: coreutils takes the time after it), reads cannot find more than half of their
//! span in the side's cache, and with least-recently-used reclaim find next to nothing. The
//! caches of the machine are never dropped. What is to be warm is read once, as far as it is.

use std::time::Duration;

use serde_json::json;
use vmio_model::result::{DiskTraits, DiskWork, WorkloadResult, WorkloadTraits};
use vmio_model::study::SubjectKind;
use vmio_node::{Exec, Output};

use super::{DiskWorkload, Error, Result, WorkCtx, Workload};
use crate::workloads::{Role, Stage, Unusable};

/// Block size of the paper's runs.
const BLOCK: u64 = 64 << 10;

/// One direction.
#[derive(Debug, Clone, Copy)]
pub struct Dd {
    /// Entry name.
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    /// Whether it writes.
    pub writes: bool,
}

/// The paper's read.
pub const DD_READ: Dd = Dd { name: "dd-read", about: "dd: 64 KiB buffered reads of twice the memory", writes: false };

/// The paper's write.
pub const DD_WRITE: Dd =
    Dd { name: "dd-write", about: "dd: 64 KiB buffered writes of twice the memory, flush counted", writes: true };

impl Dd {
    fn args(&self, ctx: &WorkCtx, bytes: u64) -> Vec<String> {
        let path = ctx.path.display();
        let mut args = if self.writes {
            vec!["if=/dev/zero".into(), format!("of={path}"), "conv=notrunc,nocreat,fsync".into()]
        } else {
            vec![format!("if={path}"), "of=/dev/null".into()]
        };
        args.extend([format!("bs={BLOCK}"), format!("count={}", bytes / BLOCK)]);
        args
    }

    fn result(&self, node: &str, command: String, asked: u64, output: &Output) -> Result<WorkloadResult> {
        let said = output.err();
        if !output.ok() {
            return Err(Error::Failed {
                node: node.into(),
                command,
                how: format!("{:?}", output.end),
                said: said.trim().into(),
            });
        }
        let line = said.lines().last().unwrap_or_default().to_owned();
        let unusable = |reason: Unusable| reason.of(node, &command);
        let (bytes, seconds) = last_line(&line).ok_or_else(|| unusable(Unusable::LastLine(line.clone())))?;
        if bytes != asked {
            let moved = format!("it moved {bytes} bytes of {asked}: the target is too small");
            return Err(unusable(Unusable::Amount(moved)));
        }
        if seconds <= 0.0 {
            return Err(unusable(Unusable::Amount("it took no time".into())));
        }
        let (read_bytes, write_bytes) = if self.writes { (0, bytes) } else { (bytes, 0) };
        let work = DiskWork { read_bytes, write_bytes, ios: bytes / BLOCK, seconds, latency: None };
        Ok(work.result(json!({ "dd": line }), command))
    }
}

impl Workload for Dd {
    fn about(&self) -> &str {
        self.about
    }
    fn traits(&self) -> WorkloadTraits {
        let disk = DiskTraits {
            reads: !self.writes,
            writes: self.writes,
            sequential: true,
            block_bytes: BLOCK,
            depth: 1,
            direct: false,
            engine: String::new(),
        };
        let (figures, judged_by) = disk.figures(false);
        WorkloadTraits { name: self.name.into(), figures, judged_by: judged_by.into(), disk: Some(disk), group: None }
    }
    fn works_on(&self) -> SubjectKind {
        SubjectKind::Disk
    }
    fn roles(&self) -> &'static [Role] {
        const { &super::worker(&["dd"], &[super::DD]) }
    }
    fn disk(&self) -> Option<&dyn DiskWorkload> {
        Some(self)
    }
    fn can_be_gentle(&self) -> std::result::Result<(), &'static str> {
        Err("dd cannot be limited to a bandwidth: use the fio workloads with --gentle")
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let (node, ctx) = stage.disk()?;
        super::enough(self, &ctx)?;
        super::exists(self, node.reader(), &ctx)?;
        let bytes = if ctx.warm { ctx.bytes } else { self.bytes_needed(ctx.memory_bytes) };
        let mut exec = Exec {
            program: "dd".into(),
            args: self.args(&ctx, bytes),
            // 1 MiB a second is slower than any disk that still works.
            limit: Some(Duration::from_secs(60 + (bytes >> 20))),
            ..ctx.exec_base.clone()
        };
        exec.env.insert("LC_ALL".into(), "C".into());
        let output = node.exec(&exec)?;
        self.result(node.name(), exec.shown(), bytes, &output)
    }
}

impl DiskWorkload for Dd {
    fn moves_twice_the_memory(&self) -> bool {
        true
    }
    fn bytes_needed(&self, memory_bytes: u64) -> u64 {
        (2 * memory_bytes).next_multiple_of(1 << 20)
    }
}

/// Bytes and seconds of dd's last line in the C locale:
/// `6553600 bytes (6.6 MB, 6.2 MiB) copied, 0.00667574 s, 982 MB/s`.
pub(in super::super) fn last_line(line: &str) -> Option<(u64, f64)> {
    let (bytes, rest) = line.split_once(" bytes ")?;
    let (_, timed) = rest.split_once("copied, ")?;
    let seconds: f64 = timed.split_once(" s")?.0.parse().ok()?;
    Some((bytes.parse().ok()?, seconds)).filter(|(_, s)| s.is_finite())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::End;

    use super::*;
    use crate::workloads::disk::tests::ctx;

    fn output(stderr: &str, code: i32) -> Output {
        Output { end: End::Exit(code), stdout: vec![], stderr: stderr.into(), truncated: false }
    }

    fn fixture(name: &str) -> String {
        std::fs::read_to_string(format!("{}/tests/fixtures/dd/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn the_last_line_is_read_exactly() {
        let got = DD_WRITE.result("local", "dd".into(), 536_870_912, &output(&fixture("write.err"), 0)).unwrap();
        let work = got.disk_work();
        assert_eq!((work.write_bytes, work.read_bytes, work.ios), (536_870_912, 0, 8192));
        assert!(fixture("write.err").contains(&format!("copied, {} s", got.seconds)));
        assert_eq!(got.raw["dd"].as_str().unwrap(), fixture("write.err").lines().last().unwrap());
        assert_eq!(last_line("65536 bytes (66 kB, 64 KiB) copied, 1.9e-05 s, 3.4 GB/s"), Some((65536, 1.9e-05)));
        assert_eq!(last_line("65536 bytes (66 kB, 64 KiB) copied, 19 s, 3.4 kB/s"), Some((65536, 19.0)));
        assert_eq!(last_line("512 bytes copied, 0.1 s, 5.1 kB/s"), Some((512, 0.1)));
        for bad in ["", "8192+0 records out", "x bytes (1) copied, 1 s, 2 MB/s", "1 bytes (1) copied, Infinity B s"] {
            assert_eq!(last_line(bad), None, "{bad}");
        }
    }

    #[test]
    fn failures_quote_dd() {
        let said =
            DD_READ.result("guest0", "dd".into(), 1, &output(&fixture("missing.err"), 1)).unwrap_err().to_string();
        assert!(said.contains("guest0") && said.contains("No such file"), "{said}");
        let said =
            DD_READ.result("local", "dd".into(), 1 << 30, &output(&fixture("write.err"), 0)).unwrap_err().to_string();
        assert!(said.contains("536870912 bytes of 1073741824"), "{said}");
        let said = DD_READ.result("local", "dd".into(), 1, &output("", 0)).unwrap_err().to_string();
        assert!(said.contains("last line"), "{said}");
    }

    #[test]
    fn nothing_is_made_or_cut_short() {
        let args = DD_WRITE.args(&ctx(), 1 << 20).join(" ");
        assert!(args.contains("conv=notrunc,nocreat,fsync") && args.contains("count=16"), "{args}");
    }

    #[test]
    fn twice_the_memory_is_moved() {
        assert_eq!(DD_READ.bytes_needed(256 << 20), 512 << 20);
    }
}
