//! `zstd -b`: compresses and decompresses a text that it makes itself, in memory. One core.

use vmio_look::require::{Requirement, program};
use vmio_model::figure::{Figure, Unit};
use vmio_node::Output;

use super::packaged::{Did, Packaged};
use super::{INTEGER, worker};
use crate::workloads::Unusable;
use crate::workloads::error::start_of;

/// How fast what was compressed is decompressed.
const BACK: &str = "decompression";
/// MB as zstd prints them.
const MEGABYTE: f64 = 1e6;

/// Entry `zstd-3`: zstd's usual level.
pub const LEVEL_3: Packaged = Packaged {
    name: "zstd-3",
    about: "zstd -b: compresses a made-up text by level 3 in memory, and decompresses it, one core",
    group: INTEGER,
    program: "zstd",
    roles: &[worker(&["zstd"], &[ZSTD])],
    unit: Unit::BytesPerSecond,
    beside: || Figure::rate(BACK, Unit::BytesPerSecond),
    args,
    read,
};

const ZSTD: Requirement = Requirement {
    name: "zstd",
    why: "runs the workload zstd-3",
    fix: "apt install zstd",
    check: |reader| program(reader, "zstd"),
};

/// It takes its time twice, to compress and to decompress, each a whole number of seconds.
fn half(seconds: f64) -> f64 {
    (seconds / 2.0).ceil().max(1.0)
}

fn args(seconds: f64) -> Vec<String> {
    vec!["-q".into(), "-b3".into(), format!("-i{:.0}", half(seconds)), "--single-thread".into()]
}

fn read(output: &Output, seconds: f64) -> Result<Did, Unusable> {
    let out = output.out();
    let lacks = || Unusable::Lacks { lack: "no two rates of level 3".into(), text: start_of(&out) };
    let [rate, beside] = rates(&out).ok_or_else(lacks)?;
    Ok(Did { seconds: 2.0 * half(seconds), rate, beside })
}

/// Bytes a second there and back: `-3      3230847 (3.095) 151.00 MB/s 1079.6 MB/s  Synthetic 50%`.
fn rates(out: &str) -> Option<[f64; 2]> {
    let line = out.lines().find(|line| line.split_whitespace().next() == Some("-3"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let rates = words.windows(2).filter(|pair| pair[1] == "MB/s").map(|pair| pair[0].parse::<f64>().ok());
    let rates: [f64; 2] = rates.collect::<Option<Vec<f64>>>()?.try_into().ok()?;
    rates.iter().all(|rate| rate.is_finite() && *rate > 0.0).then(|| rates.map(|rate| rate * MEGABYTE))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::figure::check;
    use vmio_model::result::WorkloadResult;
    use vmio_node::End;

    use super::super::RATE;
    use super::*;
    use crate::workloads::{Result, Workload};

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
        assert_eq!(args(1.0).join(" "), "-q -b3 -i1 --single-thread");
        assert_eq!(args(5.0)[2], "-i3");
    }
}
