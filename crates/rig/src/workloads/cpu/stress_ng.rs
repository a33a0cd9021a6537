//! `stress-ng --vm`: fills memory with random bytes, reads them back and checks them, in a process of its own. One core.

use vmio_look::require::{Requirement, program};
use vmio_model::figure::{Figure, Unit};
use vmio_node::Output;

use super::packaged::{Did, Packaged};
use super::{MEMORY, worker};
use crate::workloads::Unusable;
use crate::workloads::error::start_of;
use crate::workloads::stage::whole_seconds;

/// Entry `stress-ng-vm`.
pub const VM: Packaged = Packaged {
    name: "stress-ng-vm",
    about: "stress-ng: fills 32 MiB with random bytes and checks them, one core",
    group: MEMORY,
    program: "stress-ng",
    roles: &[worker(&["stress-ng"], &[STRESS_NG])],
    unit: Unit::OperationsPerSecond,
    // In its own measure.
    beside: || Figure::amount("done", Unit::Count),
    args,
    read,
};

const STRESS_NG: Requirement = Requirement {
    name: "stress-ng",
    why: "runs the workload stress-ng-vm",
    fix: "apt install stress-ng",
    check: |reader| program(reader, "stress-ng"),
};

fn args(seconds: f64) -> Vec<String> {
    // One method: each has operations of another size. The memory stays mapped: page faults are a workload of their own.
    let seconds = whole_seconds(seconds);
    let vm = ["--vm", "1", "--vm-bytes", "32M", "--vm-keep", "--vm-method", "rand-set"];
    vm.into_iter().chain(["--timeout", &seconds, "--metrics-brief", "--temp-path", "/tmp"]).map(String::from).collect()
}

fn read(output: &Output, _: f64) -> Result<Did, Unusable> {
    // Versions differ in where they print it.
    let said = format!("{}\n{}", output.out(), output.err());
    let lacks = || Unusable::Lacks { lack: "no operations of vm".into(), text: start_of(&said) };
    let (done, seconds) = done(&said).ok_or_else(lacks)?;
    Ok(Did { seconds, rate: done / seconds, beside: done })
}

/// Operations and seconds of the clock: `stress-ng: metrc: [7] vm  17408  1.00  0.54  0.08  17346.28  28106.43`.
fn done(said: &str) -> Option<(f64, f64)> {
    let of_line = |line: &str| {
        let mut words = line.split_once("] ")?.1.split_whitespace();
        words.next().filter(|word| *word == "vm")?;
        let numbers: Vec<f64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
        let [done, seconds, ..] = numbers[..] else { return None };
        let sound = numbers.len() >= 5 && done > 0.0 && seconds > 0.0 && done.is_finite();
        sound.then_some((done, seconds))
    };
    said.lines().find_map(of_line)
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

    const DONE: &str = "done";

    /// As 0.15.06 prints it.
    const SAID: &str = "stress-ng: info:  [2550] dispatching hogs: 1 vm\n\
        stress-ng: metrc: [2550] stressor       bogo ops real time  usr time  sys time   bogo ops/s     bogo ops/s\n\
        stress-ng: metrc: [2550]                           (secs)    (secs)    (secs)   (real time) (usr+sys time)\n\
        stress-ng: metrc: [2550] vm                17408      1.00      0.54      0.08     17346.28       28106.43\n\
        stress-ng: info:  [2550] successful run completed in 1.00s\n";

    fn result(stdout: &str, code: i32) -> Result<WorkloadResult> {
        let output = Output { end: End::Exit(code), stdout: Vec::new(), stderr: stdout.into(), truncated: false };
        VM.result("guest0", "stress-ng".into(), &output, 1.0)
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
        assert!(args(0.5).join(" ").ends_with("--vm-method rand-set --timeout 1 --metrics-brief --temp-path /tmp"));
    }
}
