//! Power and energy by the kernel's hardware monitoring: of the machine (ACPI's power meter), of packages of processors
//! that power capping does not count, and of other parts. Reading one may ask a management controller and take a while,
//! so it has a thread of its own beside the schedule of files.

use std::sync::Arc;
use std::time::Duration;

use vmio_look::require::{Missing, Requirement};
use vmio_model::figure::Figure;
use vmio_node::linux::hwmon::{Counts, Covers, DIR, Sensor, sensors};
use vmio_node::{Node, Reader};

use super::poll::{Amount, Answer, Poll};
use super::{ByItself, Looking, Probe, ProbeMethod, ProbeSubject, Unseen, energy};

/// How often each is read. Drivers read the hardware at most about once a second, or each time.
const EVERY: Duration = Duration::from_millis(250);

/// A sensor of power or energy.
pub const SENSOR: Requirement = Requirement {
    name: "power sensor",
    why: "power of the machine, or of parts, in /sys/class/hwmon",
    fix: "load the driver of the machine's meter: modprobe acpi_power_meter (it finds one only where the firmware \
          describes it)",
    check: |reader| match sensors(reader).is_empty() {
        false => Ok(()),
        true => Err(Missing::Unlike(format!("no sensor of power or energy in {DIR}"))),
    },
};

/// Entry of the list of probes.
pub struct Hwmon;

impl Probe for Hwmon {
    fn name(&self) -> &'static str {
        "hwmon"
    }
    fn about(&self) -> &'static str {
        "energy and mean power by sensors of the machine and of its parts; blind to changes within the time that a \
         sensor averages over"
    }
    fn figures(&self, _: &ProbeSubject) -> Vec<Figure> {
        energy::figures()
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[SENSOR]
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::Sensors(_))
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Own(&Hwmon)
    }
}

impl ByItself for Hwmon {
    fn start(&self, subject: &ProbeSubject, node: &Arc<dyn Node>) -> Result<Box<dyn Looking>, Unseen> {
        let ProbeSubject::Sensors(sensors) = subject else {
            return Err(Unseen::OtherSubject("it is not a sensor of power"));
        };
        let (sensors, node) = (sensors.clone(), Arc::clone(node));
        Poll::start("hwmon", EVERY, move || read(&sensors, node.reader()))
    }
}

/// What the sensors tell now; those without a reading are left out.
fn read(sensors: &[Sensor], reader: &dyn Reader) -> Answer {
    let of = |sensor: &Sensor| {
        let micros = sensor.parse(&reader.read_text(&sensor.file).ok()?)? as f64 * 1e-6;
        let amount = if sensor.counts == Counts::Energy { Amount::Joules(micros) } else { Amount::Watts(micros) };
        Some((sensor.domain.clone(), amount))
    };
    let all: Vec<_> = sensors.iter().filter_map(of).collect();
    if all.is_empty() { Err(Unseen::NoEnergy) } else { Ok(all) }
}

/// The sensors that tell something of cells of so many seconds. Packages are left out where power capping `counts` them.
pub fn usable(reader: &dyn Reader, counts: bool, cell_seconds: f64) -> Vec<Sensor> {
    let readable = |sensor: &Sensor| reader.read_text(&sensor.file).is_ok_and(|text| sensor.parse(&text).is_some());
    let quick = |sensor: &Sensor| match sensor.counts {
        // An average over more than half of a cell is as much of what was before it.
        Counts::Average { interval_ms: Some(ms) } => ms as f64 * 1e-3 <= cell_seconds / 2.0,
        _ => true,
    };
    let mut all = sensors(reader);
    all.retain(|sensor| !(counts && sensor.covers == Covers::Package) && quick(sensor) && readable(sensor));
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use vmio_node::fake::Fake;

    use super::super::{ProbePoint, Watch};
    use super::*;

    const METER: &str = "/sys/class/hwmon/hwmon1/power1_average";

    /// A server of two sockets with ACPI's power meter and a graphics card.
    fn server() -> Fake {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hwmon");
        Fake::new("fake").tree(&fixture).unwrap()
    }

    fn domains(sensors: &[Sensor]) -> Vec<&str> {
        sensors.iter().map(|sensor| sensor.domain.as_str()).collect()
    }

    #[test]
    fn packages_are_counted_by_one_interface_alone() {
        let all = ["amdgpu PPT", "machine", "package-0", "package-1"];
        assert_eq!(domains(&usable(&server(), false, 10.0)), all);
        assert_eq!(domains(&usable(&server(), true, 10.0)), all[..2]);
        // The meter averages over 1 s.
        assert_eq!(domains(&usable(&server(), true, 1.5)), ["amdgpu PPT"]);
        let unknown = server();
        unknown.set(METER, "4294967295000\n");
        assert_eq!(domains(&usable(&unknown, true, 10.0)), ["amdgpu PPT"]);
    }

    #[test]
    fn sensors_are_read_again_and_again() {
        let fake = Arc::new(server());
        let node: Arc<dyn Node> = fake.clone();
        let sensors = usable(node.reader(), true, 10.0);
        let watch = Watch::start(vec![ProbePoint::here(node, ProbeSubject::Sensors(sensors))]).unwrap();
        std::thread::sleep(3 * EVERY);
        // One that goes blind leaves the other.
        fake.set("/sys/class/hwmon/hwmon3/power1_average", "nonsense\n");
        std::thread::sleep(6 * EVERY);
        let seen = watch.stop().unwrap();
        let [found] = seen.seen.as_slice() else { panic!("{seen:?}") };
        let power = found.figures.iter().find(|r| r.figure == "power" && r.labels["domain"] == "machine").unwrap();
        assert!((power.value.typical() - 214.0).abs() < 1e-6, "{power:?}");
    }

    #[test]
    fn a_host_without_sensors_is_told_so() {
        let none = (SENSOR.check)(&Fake::new("fake")).unwrap_err().to_string();
        assert_eq!(none, "no sensor of power or energy in /sys/class/hwmon");
        assert_eq!((SENSOR.check)(&server()), Ok(()));
    }
}
