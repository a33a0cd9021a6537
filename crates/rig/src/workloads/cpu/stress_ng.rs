//! `stress-ng --vm`: fills memory with random bytes, reads them back and checks them, in a process of its own. One core.

use serde_json::json;
use vmio_look::require::{Requirement, program};
use vmio_model::cell::Millis;
use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::Sort;
use vmio_node::Output;

use super::{MEMORY, RATE, WORKER, traits, worker};
use crate::workloads::error::{start_of, succeeded};
use crate::workloads::stage::whole_seconds;
use crate::workloads::{Error, Result, Role, Stage, Workload};

/// How many operations of its own measure it did.
const DONE: &str = "done";

/// Entry `stress-ng-vm`.
pub const VM: StressNg = StressNg { name: "stress-ng-vm", stressor: "vm" };

const STRESS_NG: Requirement = Requirement {
    name: "stress-ng",
    why: "runs the workload stress-ng-vm",
    mend: "apt install stress-ng",
    check: |reader| program(reader, "stress-ng"),
};

const ROLES: &[Role] = &[worker(&["stress-ng"], &[STRESS_NG])];

/// A stressor.
#[derive(Debug, Clone, Copy)]
pub struct StressNg {
    name: &'static str,
    stressor: &'static str,
}

impl StressNg {
    fn args(seconds: f64) -> Vec<String> {
        // One method: each has operations of another size. The memory stays mapped: page faults are a workload of their own.
        let seconds = whole_seconds(seconds);
        let vm = ["--vm", "1", "--vm-bytes", "32M", "--vm-keep", "--vm-method", "rand-set"];
        vm.into_iter()
            .chain(["--timeout", &seconds, "--metrics-brief", "--temp-path", "/tmp"])
            .map(String::from)
            .collect()
    }

    fn result(&self, node: &str, command: String, output: &Output) -> Result<WorkloadResult> {
        succeeded(node, &command, output)?;
        // Versions differ in where they print it.
        let said = format!("{}\n{}", output.out(), output.err());
        let (done, seconds) = self.done(&said).ok_or_else(|| Error::Output {
            node: node.into(),
            command: command.clone(),
            reason: format!("no operations of {} in {:?}", self.stressor, start_of(&said)),
        })?;
        let figures = vec![Reading::scalar(RATE, done / seconds), Reading::scalar(DONE, done)];
        Ok(WorkloadResult { seconds, figures, raw: json!({ "said": said }), command })
    }

    /// Operations and seconds of the clock: `stress-ng: metrc: [7] vm  17408  1.00  0.54  0.08  17346.28  28106.43`.
    fn done(&self, said: &str) -> Option<(f64, f64)> {
        let of_line = |line: &str| {
            let mut words = line.split_once("] ")?.1.split_whitespace();
            words.next().filter(|word| *word == self.stressor)?;
            let numbers: Vec<f64> = words.map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
            let [done, seconds, ..] = numbers[..] else { return None };
            let sound = numbers.len() >= 5 && done > 0.0 && seconds > 0.0 && done.is_finite();
            sound.then_some((done, seconds))
        };
        said.lines().find_map(of_line)
    }
}

impl Workload for StressNg {
    fn about(&self) -> &'static str {
        "stress-ng: fills 32 MiB with random bytes and checks them, one core"
    }
    fn traits(&self) -> WorkloadTraits {
        traits(self.name, MEMORY, Unit::OperationsPerSecond, [Figure::amount(DONE, Unit::Count)])
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
        let exec = end.command("stress-ng").args(Self::args(stage.seconds)).limit(stage.limit());
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

    /// As 0.15.06 prints it.
    const SAID: &str = "stress-ng: info:  [2550] dispatching hogs: 1 vm\n\
        stress-ng: metrc: [2550] stressor       bogo ops real time  usr time  sys time   bogo ops/s     bogo ops/s\n\
        stress-ng: metrc: [2550]                           (secs)    (secs)    (secs)   (real time) (usr+sys time)\n\
        stress-ng: metrc: [2550] vm                17408      1.00      0.54      0.08     17346.28       28106.43\n\
        stress-ng: info:  [2550] successful run completed in 1.00s\n";

    fn result(stdout: &str, code: i32) -> Result<WorkloadResult> {
        let output = Output { end: End::Exit(code), stdout: Vec::new(), stderr: stdout.into(), truncated: false };
        VM.result("guest0", "stress-ng".into(), &output)
    }

    #[test]
    fn operations_are_over_the_time_of_the_clock() {
        let got = result(SAID, 0).unwrap();
        assert_eq!(check(&VM.traits().figures, &got.figures), Ok(()));
        assert_eq!((got.seconds, got.figure(RATE), got.figure(DONE)), (1.0, Some(17408.0), Some(17408.0)));
        // Older ones say `info`.
        assert_eq!(result(&SAID.replace("metrc", "info"), 0).unwrap().figures, got.figures);
    }

    #[test]
    fn another_output_is_no_result() {
        assert!(result("stress-ng: fail: no memory", 2).unwrap_err().to_string().contains("no memory"));
        for odd in
            ["", &SAID.replace("17408", "0"), &SAID.replace("] vm ", "] cpu "), &SAID.replace("      0.54", " x")]
        {
            assert!(result(odd, 0).unwrap_err().to_string().contains("no operations of vm"), "{odd}");
        }
    }

    #[test]
    fn its_time_is_whole() {
        assert!(
            StressNg::args(0.5)
                .join(" ")
                .ends_with("--vm-method rand-set --timeout 1 --metrics-brief --temp-path /tmp")
        );
    }
}
