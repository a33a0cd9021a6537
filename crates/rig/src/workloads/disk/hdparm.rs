//! `hdparm -tT` so many times on end, as rasmusson2013 measured (section 3): cached reads, and reads through the buffer cache of
//! the side without what it held. Where a cache below fills, as the host's does below a guest, each run of the series is
//! faster than the one before, so each has a figure of its own.
//!
//! Before each run hdparm has the kernel drop the device's own buffers (BLKFLSBUF, hdparm(8)); no other cache is touched.

use std::time::Duration;

use serde_json::json;
use vmio_look::require::{Requirement, program};
use vmio_model::figure::{Figure, RUN, Reading, Unit};
use vmio_model::result::{BANDWIDTH, DiskTraits, DiskWork, WorkloadResult, WorkloadTraits};
use vmio_model::study::SubjectKind;
use vmio_node::{Exec, Output};

use super::{DiskWorkload, Error, Result, Workload};
use crate::workloads::error::{cut, succeeded};
use crate::workloads::{Role, Stage, Unusable};

/// Entry `hdparm`.
pub const ENTRY: Hdparm = Hdparm;

/// Runs of a series.
const RUNS: usize = 5;
/// What hdparm reads at a time (TIMING_BUF_MB of its source).
const BLOCK: u64 = 2 << 20;
/// Seconds of a run with its pauses: hdparm lets the machine settle before each of its two measurements. A round of the
/// study hdparm, five cells of five runs, takes about five minutes.
const RUN_SECONDS: f64 = 11.0;
/// A run takes 5 s of measuring; a slow disk's last read may take its time.
const LIMIT: Duration = Duration::from_secs(60);
/// Cached reads of a run, and buffered ones.
const CACHED: &str = "cached";
const BUFFERED: &str = "buffered";

const HDPARM: Requirement = Requirement {
    name: "hdparm",
    why: "runs the disk workload hdparm",
    fix: "apt install hdparm",
    check: |reader| program(reader, "hdparm"),
};

/// The series.
#[derive(Debug, Clone, Copy)]
pub struct Hdparm;

/// What a line of it says: bytes and seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Timed {
    bytes: u64,
    seconds: f64,
}

impl Timed {
    fn rate(self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

/// Bytes and seconds of a line of hdparm's, whose MB are of 1,048,576 bytes:
/// ` Timing buffered disk reads: 200 MB in  0.54 seconds = 368.51 MB/sec`.
fn timed(line: &str, what: &str) -> Option<Timed> {
    let rest = line.trim_start().strip_prefix("Timing ")?.strip_prefix(what)?.strip_prefix(':')?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [mb, "MB", "in", seconds, "seconds", "=", _, "MB/sec"] = words[..] else { return None };
    let (mb, seconds): (u64, f64) = (mb.parse().ok()?, seconds.parse().ok()?);
    let sound = mb > 0 && seconds.is_finite() && seconds > 0.0;
    sound.then_some(Timed { bytes: mb.checked_mul(1 << 20)?, seconds })
}

/// The cached and the buffered reads of a run.
fn run_of(node: &str, command: &str, output: &Output) -> Result<[Timed; 2]> {
    succeeded(node, command, output)?;
    let text = output.out();
    let found = ["cached reads", "buffered disk reads"].map(|what| text.lines().find_map(|line| timed(line, what)));
    let [Some(cached), Some(buffered)] = found else {
        let reason = Unusable::Lacks { lack: "it times no reads".into(), text: cut(text.trim()) };
        return Err(reason.of(node, command));
    };
    Ok([cached, buffered])
}

/// The figures of a series.
fn result(runs: &[[Timed; 2]], said: Vec<String>, command: String) -> WorkloadResult {
    let buffered = runs.iter().map(|[_, buffered]| buffered);
    let read_bytes = buffered.clone().map(|timed| timed.bytes).sum();
    let seconds = buffered.map(|timed| timed.seconds).sum();
    let work = DiskWork { read_bytes, write_bytes: 0, ios: read_bytes / BLOCK, seconds, latency: None };
    let mut result = work.result(json!({ "hdparm": said }), command);
    for (i, [cached, buffered]) in runs.iter().enumerate() {
        let of = |name: &str, timed: &Timed| Reading::scalar(name, timed.rate()).with(RUN, (i + 1).to_string());
        result.figures.extend([of(BUFFERED, buffered), of(CACHED, cached)]);
    }
    result
}

impl Workload for Hdparm {
    fn about(&self) -> &str {
        "hdparm -tT five times on end: cached reads, and reads through the buffer cache; block devices only"
    }
    fn traits(&self) -> WorkloadTraits {
        let disk = DiskTraits {
            reads: true,
            writes: false,
            sequential: true,
            block_bytes: BLOCK,
            depth: 1,
            direct: false,
            engine: String::new(),
        };
        let (mut figures, _) = disk.figures(false);
        figures.extend([BUFFERED, CACHED].map(|name| Figure::rate(name, Unit::BytesPerSecond).by(&[RUN])));
        WorkloadTraits { name: "hdparm".into(), figures, judged_by: BANDWIDTH.into(), disk: Some(disk), group: None }
    }
    fn works_on(&self) -> SubjectKind {
        SubjectKind::Disk
    }
    fn roles(&self) -> &'static [Role] {
        const { &super::worker(&["hdparm"], &[HDPARM]) }
    }
    fn disk(&self) -> Option<&dyn DiskWorkload> {
        Some(self)
    }
    fn own_seconds(&self) -> Option<f64> {
        Some(RUNS as f64 * RUN_SECONDS)
    }
    fn can_be_gentle(&self) -> std::result::Result<(), &'static str> {
        Err("hdparm cannot be limited to a bandwidth: use the fio workloads with --gentle")
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let (node, ctx) = stage.disk()?;
        super::enough(self, &ctx)?;
        super::exists(self, node.reader(), &ctx)?;
        if !node.reader().stat(&ctx.path)?.is_some_and(|found| found.is_block()) {
            let reason = format!(
                "on {} it would read a file, and it times only block devices: natively use the target device",
                node.name()
            );
            return Err(Error::Unfit { workload: "hdparm".into(), reason });
        }
        let path = ctx.path.display().to_string();
        let mut exec = Exec {
            program: "hdparm".into(),
            args: vec!["-tT".into(), path],
            limit: Some(LIMIT),
            ..ctx.exec_base.clone()
        };
        exec.env.insert("LC_ALL".into(), "C".into());
        let (mut runs, mut said) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            let output = node.exec(&exec)?;
            runs.push(run_of(node.name(), &exec.shown(), &output)?);
            said.push(output.out().trim().to_owned());
        }
        Ok(result(&runs, said, exec.shown()))
    }
}

impl DiskWorkload for Hdparm {
    fn drops_pages(&self) -> bool {
        true
    }
    fn bytes_needed(&self, _: u64) -> u64 {
        64 << 20
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::figure::check;
    use vmio_node::End;

    use super::*;

    const SAID: &str = "\n/dev/loop0:\n Timing cached reads:   15366 MB in  2.00 seconds = 7699.09 MB/sec\n \
                        Timing buffered disk reads: 200 MB in  0.50 seconds = 400.00 MB/sec\n";

    fn read(stdout: &str, code: i32) -> Result<[Timed; 2]> {
        let output = Output { end: End::Exit(code), stdout: stdout.into(), stderr: vec![], truncated: false };
        run_of("guest0", "hdparm -tT /dev/vda", &output)
    }

    #[test]
    fn both_reads_of_a_run_are_read_strictly() {
        let [cached, buffered] = read(SAID, 0).unwrap();
        assert_eq!(cached, Timed { bytes: 15_366 << 20, seconds: 2.0 });
        assert_eq!((buffered, buffered.rate()), (Timed { bytes: 200 << 20, seconds: 0.5 }, 400.0 * 1_048_576.0));
        let cut_short = SAID.split(" Timing buffered").next().unwrap();
        for (text, says) in [
            (cut_short.to_owned(), "times no reads"),
            (SAID.replace("0.50 seconds", "0.00 seconds"), "times no reads"),
            (SAID.replace("200 MB", "200 kB"), "times no reads"),
            (SAID.replace("200 MB", "x MB"), "times no reads"),
        ] {
            assert!(read(&text, 0).unwrap_err().to_string().contains(says), "{text}");
        }
        assert!(read(SAID, 5).unwrap_err().to_string().contains("guest0"));
    }

    #[test]
    fn each_run_has_its_own_figures_and_the_series_one() {
        let of = |mb: u64| [Timed { bytes: 8 << 30, seconds: 2.0 }, Timed { bytes: mb << 20, seconds: 1.0 }];
        let got = result(&[of(10), of(30)], Vec::new(), "hdparm".into());
        assert_eq!(check(&ENTRY.traits().figures, &got.figures), Ok(()));
        assert_eq!((got.figure(BANDWIDTH), got.seconds), (Some(20.0 * 1_048_576.0), 2.0));
        let climb: Vec<_> = got.figures.iter().filter(|r| r.figure == BUFFERED).map(|r| &r.labels[RUN]).collect();
        assert_eq!(climb, ["1", "2"]);
    }
}
