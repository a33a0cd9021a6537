//! Energy by the kernel's counters of power capping (Linux Documentation/power/powercap/powercap.rst): of each package
//! of processors, and of memory apart from it. On x86 these are those of RAPL. Intel's measure since Haswell; before,
//! the processor reckoned them from what it did (Hackenberg et al., *An Energy Efficiency Feature Survey of the Intel
//! Haswell Processor*, IPDPSW 2015).
//!
//! The counters run round, some in a quarter of an hour, so all readings count and not the first and the last alone.

use std::path::PathBuf;

use vmio_look::require::Requirement;
use vmio_model::figure::{Figure, Reading};
use vmio_model::result::is_power;
use vmio_node::FileSample;
use vmio_node::linux::powercap::{self, Zone};

use super::{ByFiles, Probe, ProbeMethod, ProbeSubject, Unseen, ends, energy, power, seconds_between};

/// Entry of the list of probes.
pub struct Powercap;

impl Probe for Powercap {
    fn name(&self) -> &'static str {
        "powercap"
    }
    fn about(&self) -> &'static str {
        "energy and mean power of processor packages and memory, for all work there; blind to all other parts of the \
         machine"
    }
    fn figures(&self, _: &ProbeSubject) -> Vec<Figure> {
        energy::figures()
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[power::METER]
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::Energy(_))
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Files(&Powercap)
    }
}

impl ByFiles for Powercap {
    fn paths(&self, subject: &ProbeSubject) -> Vec<PathBuf> {
        let ProbeSubject::Energy(zones) = subject else { return Vec::new() };
        zones.iter().map(|zone| zone.energy_file.clone()).collect()
    }
    fn conclude(
        &self,
        subject: &ProbeSubject,
        ticks: &[FileSample],
        notes: &mut Vec<String>,
    ) -> Result<Vec<Reading>, Unseen> {
        let ProbeSubject::Energy(zones) = subject else {
            return Err(Unseen::OtherSubject("it is not a counter of energy"));
        };
        let (first, last) = ends(ticks)?;
        let seconds = seconds_between(first, last)?;
        let mut all = Vec::new();
        for (i, zone) in zones.iter().enumerate() {
            let joules = spent_uj(zone, i, ticks).map(|uj| uj as f64 * 1e-6);
            match joules.filter(|joules| is_power(joules / seconds)) {
                Some(joules) => all.extend(energy::readings(&zone.domain, joules, seconds)),
                None => notes.push(format!("powercap: {} could not be read to the end", zone.domain)),
            }
        }
        if all.is_empty() { Err(Unseen::NoEnergy) } else { Ok(all) }
    }
}

/// What the zone of this number took; `None` where a reading is missing, or the counter went backwards.
fn spent_uj(zone: &Zone, number: usize, ticks: &[FileSample]) -> Option<u64> {
    let read = |tick: &FileSample| powercap::parse(std::str::from_utf8(tick.contents.get(number)?).ok()?);
    let read: Vec<u64> = ticks.iter().map(read).collect::<Option<_>>()?;
    let mut pairs = read.iter().zip(read.iter().skip(1)).map(|(before, after)| zone.between_uj(*before, *after));
    pairs.try_fold(0_u64, |all, more| all.checked_add(more?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use vmio_node::Node;
    use vmio_node::fake::Fake;

    use super::super::{Observed, ProbePoint, Watch};
    use super::*;

    const PACKAGE: &str = "/sys/class/powercap/intel-rapl:0/energy_uj";
    const SECOND: &str = "/sys/class/powercap/intel-rapl:1/energy_uj";
    const MEMORY: &str = "/sys/class/powercap/intel-rapl:1:0/energy_uj";

    /// As a machine of two sockets shows it, the counter of its first package just before its end.
    fn server() -> Fake {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/powercap");
        Fake::new("fake").tree(&fixture).unwrap()
    }

    /// What is seen of it in ten seconds, in the middle of which this happens.
    fn seen(fake: Fake, meanwhile: impl Fn(&Fake)) -> Option<Observed> {
        let fake = Arc::new(fake);
        let node: Arc<dyn Node> = fake.clone();
        let points: Vec<ProbePoint> = power::subjects(&node, &power::PowerChoice::default(), 1.0)
            .unwrap()
            .into_iter()
            .map(|subject| ProbePoint::here(node.clone(), subject))
            .collect();
        if points.is_empty() {
            return None;
        }
        let watch = Watch::start(points).unwrap();
        fake.pass(Duration::from_secs(10));
        meanwhile(&fake);
        Some(watch.stop().unwrap())
    }

    fn told(seen: &Observed) -> Vec<(String, String, f64)> {
        let [seen] = seen.seen.as_slice() else { panic!("{seen:?}") };
        let of = |r: &Reading| (r.labels["domain"].clone(), r.figure.clone(), r.value.typical());
        let mut all: Vec<_> = seen.figures.iter().map(of).collect();
        all.iter_mut().for_each(|(_, _, value)| *value = (*value * 1e3).round() / 1e3);
        all
    }

    fn row(domain: &str, joules: f64) -> [(String, String, f64); 2] {
        [("energy", joules), ("power", joules / 10.0)].map(|(figure, value)| (domain.into(), figure.into(), value))
    }

    #[test]
    fn packages_and_memory_are_told_apart_and_a_counter_may_go_round() {
        let seen = seen(server(), |fake| {
            // 262143328850 - 262143000000 to the end of its range, and the rest from 0 on.
            fake.set(PACKAGE, "499671150\n");
            fake.set(SECOND, "181895825861\n");
            fake.set(MEMORY, "58996008642\n");
        });
        let seen = seen.unwrap();
        // The memory of the first package stood still. Cores are a part of their package, and not told beside it.
        let wanted =
            [row("package-0", 500.0), row("package-0 dram", 0.0), row("package-1", 100.0), row("package-1 dram", 30.0)];
        assert_eq!(told(&seen), wanted.concat());
        assert_eq!(seen.notes, [""; 0]);
    }

    #[test]
    fn a_domain_that_goes_is_left_out_and_the_others_stay() {
        let seen = seen(server(), |fake| {
            fake.remove("/sys/class/powercap/intel-rapl:1:0");
            // Somebody set it to nothing.
            fake.set(SECOND, "0\n");
        });
        let seen = seen.unwrap();
        assert_eq!(told(&seen), [row("package-0", 0.0), row("package-0 dram", 0.0)].concat());
        let left_out = |zone: &str| format!("powercap: {zone} could not be read to the end");
        assert_eq!(seen.notes, ["package-1", "package-1 dram"].map(left_out));
        let less = server();
        less.remove("/sys/class/powercap/intel-rapl:0:1");
        let rest = told(&self::seen(less, |_| {}).unwrap());
        assert!(rest.len() == 6 && rest.iter().all(|(domain, ..)| domain != "package-0 dram"), "{rest:?}");
    }

    #[test]
    fn what_may_not_be_read_is_no_figure() {
        let files = ["intel-rapl:0", "intel-rapl:0:1", "intel-rapl:1", "intel-rapl:1:0"];
        let refuse = |fake: Fake, zone: &&str| fake.refused(format!("/sys/class/powercap/{zone}/energy_uj"));
        assert!(seen(files.iter().fold(server(), refuse), |_| {}).is_none());
        let one = seen(files[1..].iter().fold(server(), refuse), |_| {}).unwrap();
        assert_eq!(told(&one), row("package-0", 0.0));
        assert!(seen(Fake::new("fake"), |_| {}).is_none(), "a machine without");
    }
}
