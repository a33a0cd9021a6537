//! `zstd -b`: compresses and decompresses a text that it makes itself, in memory. One core.

use serde_json::json;
use vmio_look::require::{Requirement, program};
use vmio_model::cell::Millis;
use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::Sort;
use vmio_node::Output;

use super::{INTEGER, RATE, WORKER, traits, worker};
use crate::workloads::error::{start_of, succeeded};
use crate::workloads::{Error, Result, Role, Stage, Workload};

/// How fast what was compressed is decompressed.
const BACK: &str = "decompression";
/// MB as zstd prints them.
const MEGABYTE: f64 = 1e6;

/// Entry `zstd-3`: zstd's usual level.
pub const LEVEL_3: Zstd = Zstd { name: "zstd-3", level: 3 };

const ZSTD: Requirement = Requirement {
    name: "zstd",
    why: "runs the workload zstd-3",
    mend: "apt install zstd",
    check: |reader| program(reader, "zstd"),
};

const ROLES: &[Role] = &[worker(&["zstd"], &[ZSTD])];

/// A level.
#[derive(Debug, Clone, Copy)]
pub struct Zstd {
    name: &'static str,
    level: u32,
}

impl Zstd {
    /// It takes its time twice, to compress and to decompress, each a whole number of seconds.
    fn half(seconds: f64) -> f64 {
        (seconds / 2.0).ceil().max(1.0)
    }

    fn args(&self, seconds: f64) -> [String; 4] {
        ["-q".into(), format!("-b{}", self.level), format!("-i{:.0}", Self::half(seconds)), "--single-thread".into()]
    }

    fn result(&self, node: &str, command: String, output: &Output, seconds: f64) -> Result<WorkloadResult> {
        succeeded(node, &command, output)?;
        let out = output.out();
        let rates = self.rates(&out).ok_or_else(|| Error::Output {
            node: node.into(),
            command: command.clone(),
            reason: format!("no two rates of level {} in {:?}", self.level, start_of(&out)),
        })?;
        let figures = vec![Reading::scalar(RATE, rates[0]), Reading::scalar(BACK, rates[1])];
        Ok(WorkloadResult { seconds: 2.0 * Self::half(seconds), figures, raw: json!({ "stdout": out }), command })
    }

    /// Bytes a second there and back: `-3      3230847 (3.095) 151.00 MB/s 1079.6 MB/s  Synthetic 50%`.
    fn rates(&self, out: &str) -> Option<[f64; 2]> {
        let level = format!("-{}", self.level);
        let line = out.lines().find(|line| line.split_whitespace().next() == Some(&level))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let rates = words.windows(2).filter(|pair| pair[1] == "MB/s").map(|pair| pair[0].parse::<f64>().ok());
        let rates: [f64; 2] = rates.collect::<Option<Vec<f64>>>()?.try_into().ok()?;
        rates.iter().all(|rate| rate.is_finite() && *rate > 0.0).then(|| rates.map(|rate| rate * MEGABYTE))
    }
}

impl Workload for Zstd {
    fn about(&self) -> &'static str {
        "zstd -b: compresses a made-up text by level 3 in memory, and decompresses it, one core"
    }
    fn traits(&self) -> WorkloadTraits {
        traits(self.name, INTEGER, Unit::BytesPerSecond, [Figure::rate(BACK, Unit::BytesPerSecond)])
    }
    fn tick(&self) -> Millis {
        Millis::SECOND
    }
    fn works_on(&self) -> Sort {
        Sort::Machine
    }
    fn roles(&self) -> &'static [Role] {
        ROLES
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let end = stage.end(WORKER)?;
        let exec = end.command("zstd").args(self.args(stage.seconds)).limit(stage.limit());
        let output = end.node.exec(&exec)?;
        self.result(end.node.name(), exec.shown(), &output, stage.seconds)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::figure::check;
    use vmio_node::End;

    use super::*;

    const SAID: &str = "bench 1.5.4 : input 10000000 bytes, 1 seconds, 0 KB blocks\n\
                        -3      3230847 (3.095) 151.00 MB/s 1079.6 MB/s  Synthetic 50%\n";

    fn result(stdout: &str, code: i32) -> Result<WorkloadResult> {
        let output = Output { end: End::Exit(code), stdout: stdout.into(), stderr: b"oops".to_vec(), truncated: false };
        LEVEL_3.result("guest0", "zstd".into(), &output, 2.0)
    }

    #[test]
    fn there_and_back_are_figures() {
        let got = result(SAID, 0).unwrap();
        assert_eq!(check(&LEVEL_3.traits().figures, &got.figures), Ok(()));
        assert_eq!((got.seconds, got.figure(RATE), got.figure(BACK)), (2.0, Some(151e6), Some(1079.6e6)));
    }

    #[test]
    fn another_output_is_no_result() {
        assert!(result("", 1).unwrap_err().to_string().contains("oops"));
        for odd in ["", &SAID.replace("-3 ", "-4 "), &SAID.replace(" 1079.6 MB/s", ""), &SAID.replace("151.00", "inf")]
        {
            assert!(result(odd, 0).unwrap_err().to_string().contains("no two rates of level 3"), "{odd}");
        }
    }

    #[test]
    fn its_time_is_halved_and_whole() {
        assert_eq!(LEVEL_3.args(1.0).join(" "), "-q -b3 -i1 --single-thread");
        assert_eq!(LEVEL_3.args(5.0)[2], "-i3");
    }
}
