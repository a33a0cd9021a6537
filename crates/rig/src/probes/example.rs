//! The power that a machine's management controller tells (IPMI, DCMI 1.5, "Get Power Reading"), by ipmitool(1).

use std::time::Duration;

use vmio_look::require::{Requirement, program};
use vmio_model::figure::{Figure, Reading};
use vmio_node::Exec;

use super::{ByCommand, Heard, Probe, ProbeMethod, ProbeSubject, Runs, Unseen, energy};

const IPMITOOL: &str = "ipmitool";
/// A controller measures about once a second.
const AGAIN: Duration = Duration::from_secs(1);

/// Entry of the list of probes.
pub struct Ipmi;

impl Probe for Ipmi {
    fn name(&self) -> &'static str {
        "ipmi"
    }
    fn about(&self) -> &'static str {
        "energy and mean power of the whole machine by its management controller; blind to what changes within a second"
    }
    fn figures(&self, _: &ProbeSubject) -> Vec<Figure> {
        energy::figures()
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[Requirement {
            name: IPMITOOL,
            why: "asks the management controller for the power of the machine",
            fix: "apt install ipmitool",
            check: |reader| program(reader, IPMITOOL),
        }]
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::Processors)
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Command(&Ipmi)
    }
}

impl ByCommand for Ipmi {
    fn command(&self, _: &ProbeSubject) -> Result<Exec, Unseen> {
        Ok(Exec::new(IPMITOOL).args(["dcmi", "power", "reading"]))
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
        Ok(energy::readings("machine", mean * heard.seconds, heard.seconds).into())
    }
}

/// `    Instantaneous power reading:                   214 Watts`
fn watts(line: &str) -> Option<f64> {
    let told = line.trim().strip_prefix("Instantaneous power reading:")?.strip_suffix("Watts")?;
    told.trim().parse::<u32>().ok().map(f64::from)
}
