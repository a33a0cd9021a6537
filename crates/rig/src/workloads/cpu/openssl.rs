//! `openssl speed`: AES-256-CBC of one core over 16 KiB in the processor's cache.

use serde_json::json;
use vmio_look::require::{Requirement, program};
use vmio_model::cell::Millis;
use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::Sort;
use vmio_node::Output;

use super::{INTEGER, RATE, WORKER, traits, worker};
use crate::workloads::error::{start_of, succeeded};
use crate::workloads::stage::whole_seconds;
use crate::workloads::{Error, Result, Role, Stage, Workload};

/// Bytes that are encrypted at a time.
const BLOCK: u32 = 16384;
/// How much it encrypted.
const DONE: &str = "encrypted";

/// Entry `openssl-aes-256-cbc`.
pub const AES_256_CBC: Openssl = Openssl { name: "openssl-aes-256-cbc", cipher: "aes-256-cbc" };

const OPENSSL: Requirement = Requirement {
    name: "openssl",
    why: "runs the workload openssl-aes-256-cbc",
    mend: "apt install openssl",
    check: |reader| program(reader, "openssl"),
};

const ROLES: &[Role] = &[worker(&["openssl"], &[OPENSSL])];

/// A cipher.
#[derive(Debug, Clone, Copy)]
pub struct Openssl {
    name: &'static str,
    cipher: &'static str,
}

impl Openssl {
    fn args(&self, seconds: f64) -> Vec<String> {
        // `-elapsed` makes them seconds of the clock, not of the processor.
        let (seconds, block) = (whole_seconds(seconds), BLOCK.to_string());
        ["speed", "-elapsed", "-seconds", &seconds, "-bytes", &block, "-evp", self.cipher, "-mr"]
            .map(String::from)
            .into()
    }

    fn result(&self, node: &str, command: String, output: &Output) -> Result<WorkloadResult> {
        let (out, err) = (output.out(), output.err());
        succeeded(node, &command, output)?;
        let unusable = |reason: String| Error::Output { node: node.into(), command: command.clone(), reason };
        let rate =
            self.rate(&out).ok_or_else(|| unusable(format!("no rate of {} in {:?}", self.cipher, start_of(&out))))?;
        let (blocks, seconds) = self
            .blocks(&err)
            .ok_or_else(|| unusable(format!("no number of blocks of {} in {:?}", self.cipher, start_of(&err))))?;
        if blocks == 0 || seconds <= 0.0 {
            return Err(unusable(format!("it encrypted {blocks} blocks in {seconds} s")));
        }
        let figures = vec![Reading::scalar(RATE, rate), Reading::scalar(DONE, blocks as f64 * f64::from(BLOCK))];
        Ok(WorkloadResult { seconds, figures, raw: json!({ "stdout": out, "stderr": err }), command })
    }

    /// Bytes a second: `+F:25:AES-256-CBC:685834240.00` after the size of the block, `+H:16384`.
    fn rate(&self, out: &str) -> Option<f64> {
        out.lines().find(|line| **line == *format!("+H:{BLOCK}"))?;
        let fields = out.lines().find_map(|line| line.strip_prefix("+F:"))?;
        let [_, cipher, rate] = fields.split(':').collect::<Vec<_>>().try_into().ok()?;
        rate.parse().ok().filter(|rate: &f64| self.is(cipher) && rate.is_finite() && *rate > 0.0)
    }

    /// Blocks and seconds: `+R:41860:AES-256-CBC:1.000000`, which it says on standard error.
    fn blocks(&self, err: &str) -> Option<(u64, f64)> {
        let fields = err.lines().find_map(|line| line.strip_prefix("+R:"))?;
        let [blocks, cipher, seconds] = fields.split(':').collect::<Vec<_>>().try_into().ok()?;
        Some((blocks.parse().ok()?, seconds.parse().ok()?))
            .filter(|(_, s): &(u64, f64)| self.is(cipher) && s.is_finite())
    }

    /// Whether it means this cipher: versions differ in the case.
    fn is(&self, cipher: &str) -> bool {
        cipher.eq_ignore_ascii_case(self.cipher)
    }
}

impl Workload for Openssl {
    fn about(&self) -> &'static str {
        "openssl speed: AES-256-CBC over 16 KiB at a time, one core"
    }
    fn traits(&self) -> WorkloadTraits {
        traits(self.name, INTEGER, Unit::BytesPerSecond, [Figure::amount(DONE, Unit::Bytes)])
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
        let exec = end.command("openssl").args(self.args(stage.seconds)).limit(stage.limit());
        let output = end.node.exec(&exec)?;
        self.result(end.node.name(), exec.shown(), &output)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::figure::check;
    use vmio_node::End;

    use super::*;

    fn result(stdout: &str, stderr: &str, code: i32) -> Result<WorkloadResult> {
        let output = Output { end: End::Exit(code), stdout: stdout.into(), stderr: stderr.into(), truncated: false };
        AES_256_CBC.result("guest0", "openssl".into(), &output)
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
        let args = AES_256_CBC.args(0.5).join(" ");
        assert_eq!(args, "speed -elapsed -seconds 1 -bytes 16384 -evp aes-256-cbc -mr");
    }
}
