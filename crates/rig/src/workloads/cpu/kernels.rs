//! vmio's own kernels (`vmio-cpu`, crates/node/src/cpu): what no packaged program measures alike.

use std::borrow::Cow;

use serde_json::json;
use vmio_look::require::Requirement;
use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::SubjectKind;
use vmio_node::Output;
use vmio_node::cpu::{PROGRAM, Report};

use super::{FLOATING_POINT, MEMORY, RATE, WORKER, traits, worker};
use crate::ours;
use crate::workloads::error::{report, succeeded};
use crate::workloads::{Result, Role, Stage, Unusable, Workload};

pub(super) const KERNELS: Requirement = Requirement {
    name: PROGRAM,
    why: "runs the processor workloads lu, sharpen, allocate, memory-write, page-faults and stream-…",
    fix: "build it with `make agent`, or name it by VMIO_CPU",
    check: |reader| ours::CPU.there(reader),
};

const ROLES: &[Role] = &[worker(&[PROGRAM], &[KERNELS])];

/// A kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    pub(super) name: Cow<'static, str>,
    pub(super) about: &'static str,
    pub(super) group: &'static str,
    /// As the program calls it.
    pub(super) kernel: &'static str,
    /// Its size, where it is not the program's usual one.
    pub(super) bytes: Option<u64>,
    /// In what its rate is.
    pub(super) unit: Unit,
}

const fn entry(
    name: &'static str,
    about: &'static str,
    group: &'static str,
    kernel: &'static str,
    unit: Unit,
) -> Kernel {
    Kernel { name: Cow::Borrowed(name), about, group, kernel, bytes: None, unit }
}

/// Entry `lu`.
pub const LU: Kernel = entry(
    "lu",
    "vmio-cpu: LU factorisation of a dense matrix of order 256 in double precision, one core",
    FLOATING_POINT,
    "lu",
    Unit::OperationsPerSecond,
);

/// Entry `sharpen`.
pub const SHARPEN: Kernel = entry(
    "sharpen",
    "vmio-cpu: sharpens an image of 512 by 512 pixels in single precision, one core",
    FLOATING_POINT,
    "sharpen",
    Unit::OperationsPerSecond,
);

/// Entry `allocate`.
pub const ALLOCATE: Kernel = entry(
    "allocate",
    "vmio-cpu: blocks of 16 bytes to 64 KiB from the C library's allocator, 1,024 held at a time",
    MEMORY,
    "allocate",
    Unit::OperationsPerSecond,
);

/// Entry `memory-write`.
pub const WRITE: Kernel = entry(
    "memory-write",
    "vmio-cpu: writes 64 MiB of memory again and again, one core",
    MEMORY,
    "write",
    Unit::BytesPerSecond,
);

/// Entry `page-faults`.
pub const PAGE_FAULTS: Kernel = entry(
    "page-faults",
    "vmio-cpu: maps 16 MiB of memory, touches each page of 4 KiB, and gives it back, one core",
    MEMORY,
    "page-faults",
    Unit::OperationsPerSecond,
);

impl Kernel {
    /// The amount that it tells beside its rate: bytes are what processor time is divided by.
    fn amount(&self) -> Figure {
        match self.unit {
            Unit::BytesPerSecond => Figure::amount("moved", Unit::Bytes),
            _ => Figure::amount("done", Unit::Count),
        }
    }

    fn result(&self, node: &str, command: String, output: &Output) -> Result<WorkloadResult> {
        succeeded(node, &command, output)?;
        let unusable = |reason: Unusable| reason.of(node, &command);
        let (said, raw): (Report, _) = report(&output.out()).map_err(unusable)?;
        let asked = self.bytes.is_none_or(|bytes| bytes == said.size as u64);
        if said.kernel != self.kernel || !asked || said.seconds <= 0.0 || said.done <= 0.0 {
            let did = format!("it did {} of {} ({}) in {} s", said.done, said.kernel, said.size, said.seconds);
            return Err(unusable(Unusable::Amount(did)));
        }
        let figures =
            vec![Reading::scalar(RATE, said.done / said.seconds), Reading::scalar(&self.amount().name, said.done)];
        Ok(WorkloadResult { seconds: said.seconds, figures, raw: json!({ PROGRAM: raw }), command })
    }
}

impl Workload for Kernel {
    fn about(&self) -> &str {
        self.about
    }
    fn traits(&self) -> WorkloadTraits {
        traits(&self.name, self.group, self.unit, [self.amount()])
    }
    fn works_on(&self) -> SubjectKind {
        SubjectKind::Machine
    }
    fn roles(&self) -> &'static [Role] {
        ROLES
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let end = stage.end(WORKER)?;
        let mut exec = end.command(&ours::CPU.call(end.node.reader())).args([self.kernel]);
        if let Some(bytes) = self.bytes {
            exec = exec.args(["--size".to_owned(), bytes.to_string()]);
        }
        let exec = exec.args(["--seconds".to_owned(), stage.seconds.to_string()]).limit(stage.limit());
        let output = end.node.exec(&exec)?;
        self.result(end.node.name(), exec.shown(), &output)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::figure::check;
    use vmio_node::{End, cpu};

    use super::*;
    use crate::workloads::{ResolvedWorkload, cpu::family, find};

    const SAID: &str = r#"{"kernel":"lu","counts":"floating-point operations","size":256,"runs":3,"seconds":0.5,"done":3e9,"best_per_second":7e9}"#;

    fn result(kernel: &Kernel, stdout: &str, code: i32) -> Result<WorkloadResult> {
        let stderr = b"vmio-cpu: no memory\n".to_vec();
        let output = Output { end: End::Exit(code), stdout: stdout.into(), stderr, truncated: false };
        kernel.result("guest0", "vmio-cpu".into(), &output)
    }

    #[test]
    fn a_rate_is_what_was_done_over_its_time() {
        let got = result(&LU, SAID, 0).unwrap();
        assert_eq!(check(&LU.traits().figures, &got.figures), Ok(()));
        assert_eq!((got.seconds, got.figure(RATE), got.figure("done")), (0.5, Some(6e9), Some(3e9)));
        // The fastest run, which STREAM prints, is kept.
        assert_eq!(got.raw[PROGRAM]["best_per_second"], 7e9);
    }

    #[test]
    fn another_output_is_no_result() {
        let said = |kernel: &Kernel, text: &str, code| result(kernel, text, code).unwrap_err().to_string();
        assert!(said(&LU, "", 1).contains("vmio-cpu: no memory"));
        assert!(said(&LU, "vmio-cpu 0.1.0\n", 0).contains("no report ends it"));
        assert!(said(&SHARPEN, SAID, 0).contains("of lu (256)"));
        assert!(said(&LU, &SAID.replace("3e9", "0"), 0).contains("it did 0"));
        let Some(ResolvedWorkload::Kernel(stream)) = find("stream-add-4m") else { panic!("no stream") };
        let other = SAID.replace("\"lu\"", "\"stream-add\"");
        assert!(said(&stream, &other, 0).contains("of stream-add (256)"));
    }

    /// Each kernel of the program is a workload's, and in the unit that it counts.
    #[test]
    fn every_kernel_of_the_program_is_measured() {
        for kind in cpu::ALL {
            let stream = find(&format!("{}-4m", kind.name)).map(|found| found.traits().figures[0].unit);
            let entry = [LU, SHARPEN, ALLOCATE, WRITE, PAGE_FAULTS].into_iter().find(|entry| entry.kernel == kind.name);
            let unit = stream.or(entry.map(|entry| entry.unit)).unwrap_or_else(|| panic!("{} is nobody's", kind.name));
            assert_eq!(unit == Unit::BytesPerSecond, kind.counts == "bytes", "{}", kind.name);
        }
        assert_eq!(family::OPERATIONS.len(), cpu::ALL.iter().filter(|kind| kind.name.starts_with("stream-")).count());
    }
}
