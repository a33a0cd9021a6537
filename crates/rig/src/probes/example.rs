//! The power of a graphics card by nvidia-smi(1), which samples it about ten times a second.

use std::time::Duration;

use vmio_look::require::{Requirement, program};
use vmio_model::figure::{Figure, Reading};
use vmio_node::Exec;

use super::{ByCommand, Heard, Probe, ProbeMethod, ProbeSubject, Runs, Unseen, energy};

const NVIDIA_SMI: &str = "nvidia-smi";
/// How long after its end it is run again.
const AGAIN: Duration = Duration::from_secs(1);

/// Entry of the list of probes.
pub struct Gpu;

impl Probe for Gpu {
    fn name(&self) -> &'static str {
        "gpu"
    }
    fn about(&self) -> &'static str {
        "energy and mean power of the first graphics card; blind to what changes within a second"
    }
    fn figures(&self, _: &ProbeSubject) -> Vec<Figure> {
        energy::figures()
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[Requirement {
            name: NVIDIA_SMI,
            why: "asks the driver for the power of a graphics card",
            fix: "apt install nvidia-smi",
            check: |reader| program(reader, NVIDIA_SMI),
        }]
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::Processors)
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Command(&Gpu)
    }
}

impl ByCommand for Gpu {
    fn command(&self, _: &ProbeSubject) -> Result<Exec, Unseen> {
        Ok(Exec::new(NVIDIA_SMI).args([
            "--id=0",
            "--query-gpu=power.draw",
            "--format=csv,noheader,nounits",
            "--loop=1",
        ]))
    }
    fn runs(&self) -> Runs {
        Runs::Meanwhile { again: AGAIN }
    }
    /// The readings are equally far apart, so their mean is that of the time.
    fn conclude(&self, _: &ProbeSubject, heard: &Heard, _: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
        let watts: Vec<f64> = heard.said.iter().filter_map(|(_, line)| watts(line)).collect();
        if watts.len() < 2 {
            return Err(Unseen::FewReadings);
        }
        let mean = watts.iter().sum::<f64>() / watts.len() as f64;
        Ok(energy::readings("gpu", mean * heard.seconds, heard.seconds).into())
    }
}

/// `61.45`; `[N/A]` is none.
fn watts(line: &str) -> Option<f64> {
    line.trim().parse().ok().filter(|watts: &f64| watts.is_finite() && *watts >= 0.0)
}
