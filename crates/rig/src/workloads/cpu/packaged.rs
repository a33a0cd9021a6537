//! What the packaged programs have in common: one command that works for whole seconds and prints its rate.

use serde_json::json;
use vmio_model::cell::Millis;
use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::SubjectKind;
use vmio_node::Output;

use super::{RATE, WORKER, traits};
use crate::workloads::error::succeeded;
use crate::workloads::{Result, Role, Stage, Unusable, Workload};

/// What a program said that it did.
pub(super) struct Did {
    /// In how many seconds.
    pub seconds: f64,
    /// What it is judged by, a second.
    pub rate: f64,
    /// The figure beside it.
    pub beside: f64,
}

/// A packaged program.
pub struct Packaged {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) group: &'static str,
    pub(super) program: &'static str,
    pub(super) roles: &'static [Role],
    /// In what its rate is.
    pub(super) unit: Unit,
    /// The figure that it tells beside its rate.
    pub(super) beside: fn() -> Figure,
    /// What it is called with for so many seconds.
    pub(super) args: fn(f64) -> Vec<String>,
    /// What it did, from what it printed; it was told these seconds.
    pub(super) read: fn(&Output, f64) -> Result<Did, Unusable>,
}

impl Packaged {
    pub(super) fn result(&self, node: &str, command: String, output: &Output, seconds: f64) -> Result<WorkloadResult> {
        succeeded(node, &command, output)?;
        let unusable = |reason: Unusable| reason.of(node, &command);
        let Did { seconds, rate, beside } = (self.read)(output, seconds).map_err(unusable)?;
        let figures = vec![Reading::scalar(RATE, rate), Reading::scalar(&(self.beside)().name, beside)];
        let raw = json!({ "stdout": output.out(), "stderr": output.err() });
        Ok(WorkloadResult { seconds, figures, raw, command })
    }
}

impl Workload for Packaged {
    fn about(&self) -> &str {
        self.about
    }
    fn traits(&self) -> WorkloadTraits {
        traits(self.name, self.group, self.unit, [(self.beside)()])
    }
    fn tick(&self) -> Millis {
        Millis::SECOND
    }
    fn works_on(&self) -> SubjectKind {
        SubjectKind::Machine
    }
    fn roles(&self) -> &'static [Role] {
        self.roles
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let end = stage.end(WORKER)?;
        let exec = end.command(self.program).args((self.args)(stage.seconds)).limit(stage.limit());
        let output = end.node.exec(&exec)?;
        self.result(end.node.name(), exec.shown(), &output, stage.seconds)
    }
}
