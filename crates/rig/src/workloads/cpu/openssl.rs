//! `openssl speed`: AES-256-CBC of one core over 16 KiB in the processor's cache.

use vmio_look::require::{Requirement, program};
use vmio_model::figure::{Figure, Unit};
use vmio_node::Output;

use super::packaged::{Did, Packaged};
use super::{INTEGER, worker};
use crate::workloads::Unusable;
use crate::workloads::error::start_of;
use crate::workloads::stage::whole_seconds;

/// Bytes that are encrypted at a time.
const BLOCK: u32 = 16384;
const CIPHER: &str = "aes-256-cbc";

/// Entry `openssl-aes-256-cbc`.
pub const AES_256_CBC: Packaged = Packaged {
    name: "openssl-aes-256-cbc",
    about: "openssl speed: AES-256-CBC over 16 KiB at a time, one core",
    group: INTEGER,
    program: "openssl",
    roles: &[worker(&["openssl"], &[OPENSSL])],
    unit: Unit::BytesPerSecond,
    beside: || Figure::amount("encrypted", Unit::Bytes),
    args,
    read,
};

const OPENSSL: Requirement = Requirement {
    name: "openssl",
    why: "runs the workload openssl-aes-256-cbc",
    fix: "apt install openssl",
    check: |reader| program(reader, "openssl"),
};

fn args(seconds: f64) -> Vec<String> {
    // `-elapsed` makes them seconds of the clock, not of the processor.
    let (seconds, block) = (whole_seconds(seconds), BLOCK.to_string());
    ["speed", "-elapsed", "-seconds", &seconds, "-bytes", &block, "-evp", CIPHER, "-mr"].map(String::from).into()
}

fn read(output: &Output, _: f64) -> Result<Did, Unusable> {
    let (out, err) = (output.out(), output.err());
    let no = |what: &str, text: &str| Unusable::Lacks { lack: format!("no {what} of {CIPHER}"), text: start_of(text) };
    let rate = rate(&out).ok_or_else(|| no("rate", &out))?;
    let (blocks, seconds) = blocks(&err).ok_or_else(|| no("number of blocks", &err))?;
    if blocks == 0 || seconds <= 0.0 {
        return Err(Unusable::Amount(format!("it encrypted {blocks} blocks in {seconds} s")));
    }
    Ok(Did { seconds, rate, beside: blocks as f64 * f64::from(BLOCK) })
}

/// Bytes a second: `+F:25:AES-256-CBC:685834240.00` after the size of the block, `+H:16384`.
fn rate(out: &str) -> Option<f64> {
    out.lines().find(|line| **line == *format!("+H:{BLOCK}"))?;
    let fields = out.lines().find_map(|line| line.strip_prefix("+F:"))?;
    let [_, cipher, rate] = fields.split(':').collect::<Vec<_>>().try_into().ok()?;
    rate.parse().ok().filter(|rate: &f64| is(cipher) && rate.is_finite() && *rate > 0.0)
}

/// Blocks and seconds: `+R:41860:AES-256-CBC:1.000000`, which it says on standard error.
fn blocks(err: &str) -> Option<(u64, f64)> {
    let fields = err.lines().find_map(|line| line.strip_prefix("+R:"))?;
    let [blocks, cipher, seconds] = fields.split(':').collect::<Vec<_>>().try_into().ok()?;
    Some((blocks.parse().ok()?, seconds.parse().ok()?)).filter(|(_, s): &(u64, f64)| is(cipher) && s.is_finite())
}

/// Whether it means this cipher: versions differ in the case.
fn is(cipher: &str) -> bool {
    cipher.eq_ignore_ascii_case(CIPHER)
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

    const DONE: &str = "encrypted";

    fn result(stdout: &str, stderr: &str, code: i32) -> Result<WorkloadResult> {
        let output = Output { end: End::Exit(code), stdout: stdout.into(), stderr: stderr.into(), truncated: false };
        AES_256_CBC.result("guest0", "openssl".into(), &output, 1.0)
    }

    fn fixture(name: &str) -> String {
        std::fs::read_to_string(format!("{}/tests/fixtures/openssl/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn bytes_a_second_are_blocks_over_time() {
        let got = result(&fixture("speed.out"), &fixture("speed.err"), 0).unwrap();
        assert_eq!(check(&AES_256_CBC.traits().figures, &got.figures), Ok(()));
        assert_eq!((got.seconds, got.figure(RATE)), (1.0, Some(685_834_240.0)));
        assert_eq!(got.figure(DONE), got.figure(RATE).map(|rate| rate * got.seconds));
        let old = |text: &str| fixture(text).replace("AES", "aes").replace("CBC", "cbc");
        assert_eq!(result(&old("speed.out"), &old("speed.err"), 0).unwrap().figures, got.figures);
    }

    #[test]
    fn failures_quote_openssl() {
        let said = result("", &fixture("unknown-cipher.err"), 1).unwrap_err().to_string();
        assert!(said.contains("guest0") && said.contains("unknown cipher"), "{said}");
    }

    #[test]
    fn another_output_is_no_result() {
        let (out, err) = (fixture("speed.out"), fixture("speed.err"));
        let said = |out: &str, err: &str| result(out, err, 0).unwrap_err().to_string();
        assert!(said("", &err).contains("no rate of aes-256-cbc"));
        assert!(said(&out.replace("16384", "8192"), &err).contains("no rate"));
        assert!(said(&out.replace("AES-256", "AES-128"), &err).contains("no rate"));
        assert!(said(&out.replace("685834240.00", "inf"), &err).contains("no rate"));
        assert!(said(&out, "").contains("no number of blocks"));
        assert!(said(&out, &err.replace("41860", "0")).contains("0 blocks in 1 s"));
    }

    #[test]
    fn seconds_are_whole() {
        let args = args(0.5).join(" ");
        assert_eq!(args, "speed -elapsed -seconds 1 -bytes 16384 -evp aes-256-cbc -mr");
    }
}
