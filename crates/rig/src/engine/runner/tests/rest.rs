//! The machine at rest, by a meter of a made-up machine.

use std::path::Path;

use vmio_model::result::{Mark, metered};
use vmio_node::linux::hwmon::{Counts, Covers, Sensor};

use super::*;

const FILE: &str = "/sys/class/hwmon/hwmon0/power1_input";

fn meter() -> ProbeSubject {
    let (counts, covers) = (Counts::Now, Covers::Machine);
    ProbeSubject::Sensors(vec![Sensor { domain: "machine".into(), file: FILE.into(), counts, covers }])
}

#[test]
fn rest_is_measured_before_guests_boot_where_there_is_a_meter() {
    let house = House::new();
    house.node.write(Path::new(FILE), b"60000000\n", None).unwrap();
    let mut runner = house.runner();
    runner.boot_guests(0).unwrap();
    assert_eq!(runner.bed.record.environment.at_rest, [], "without a meter it takes no time");
    runner.bed.meters.push(meter());
    runner.boot_guests(1).unwrap();
    let [rest] = runner.bed.record.environment.at_rest.as_slice() else { panic!("one phase") };
    let told: Vec<_> = metered(&rest.seen).map(|told| (told.meter, told.domain, told.watts.round())).collect();
    assert_eq!((told, rest.marks.as_slice()), (vec![("hwmon", "machine", 60.0)], [].as_slice()));
}

#[test]
fn a_meter_that_fails_marks_the_phase_and_the_run_goes_on() {
    let house = House::new();
    let mut runner = house.runner();
    runner.bed.meters.push(meter());
    runner.measure_rest().unwrap();
    let [rest] = runner.bed.record.environment.at_rest.as_slice() else { panic!("one phase") };
    assert_eq!((metered(&rest.seen).count(), rest.marks.as_slice()), (0, [Mark::Unmetered].as_slice()));
    // A cell without its meter is a sample, and marked.
    let prepared = house.prepared(&mut runner, "a", 0, 1, How::Well);
    let sample = run(&mut runner, vec![prepared], &[]).unwrap();
    assert_eq!((sample.marks.as_slice(), sample.result.figure("speed")), ([Mark::Unmetered].as_slice(), Some(3.0)));
}
