//! `sysbench cpu`: looks for prime numbers. One core.

use serde_json::json;
use vmio_look::require::{Requirement, program};
use vmio_model::cell::Millis;
use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::SubjectKind;

use super::error::{start_of, succeeded};
use super::stage::whole_seconds;
use super::{Result, Role, Stage, Unusable, Wants, Workload};

const PROGRAM: &str = "sysbench";
/// What it is judged by.
const RATE: &str = "throughput";

const WORKER: Role = Role { name: "worker", wants: Wants::Nothing, programs: &[PROGRAM], requirements: &[SYSBENCH] };

const SYSBENCH: Requirement = Requirement {
    name: PROGRAM,
    why: "runs the workload sysbench-cpu",
    fix: "apt install sysbench",
    check: |reader| program(reader, PROGRAM),
};

/// Entry `sysbench-cpu`.
pub struct SysbenchCpu;

impl Workload for SysbenchCpu {
    fn about(&self) -> &str {
        "sysbench cpu: looks for prime numbers up to 10,000, one core"
    }
    fn traits(&self) -> WorkloadTraits {
        WorkloadTraits {
            name: "sysbench-cpu".into(),
            figures: vec![Figure::rate(RATE, Unit::OperationsPerSecond)],
            judged_by: RATE.into(),
            disk: None,
            group: Some("integer".into()),
        }
    }
    fn works_on(&self) -> SubjectKind {
        SubjectKind::Machine
    }
    fn roles(&self) -> &'static [Role] {
        &[WORKER]
    }
    fn tick(&self) -> Millis {
        Millis::SECOND
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let end = stage.end(WORKER.name)?;
        let time = format!("--time={}", whole_seconds(stage.seconds));
        let exec = end.command(PROGRAM).args(["cpu", "--threads=1", &time, "run"]).limit(stage.limit());
        let output = end.node.exec(&exec)?;
        let (node, command, out) = (end.node.name(), exec.shown(), output.out());
        succeeded(node, &command, &output)?;
        let told = |label: &str| {
            let lacks = || Unusable::Lacks { lack: format!("no {label:?}"), text: start_of(&out) };
            number(&out, label).ok_or_else(|| lacks().of(node, &command))
        };
        let (seconds, rate) = (told("total time:")?, told("events per second:")?);
        let raw = json!({ "stdout": out });
        Ok(WorkloadResult { seconds, figures: vec![Reading::scalar(RATE, rate)], raw, command })
    }
}

/// `    total time:                          10.0007s`
fn number(out: &str, label: &str) -> Option<f64> {
    let text = out.lines().find_map(|line| line.trim().strip_prefix(label))?;
    text.trim().trim_end_matches('s').parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0)
}
