//! Where energy and power of a machine come from here. Nothing is reckoned: where there is no meter there is no figure.
//!
//! **Which meter.** Without a name: the kernel's own counters and sensors ([`super::powercap`], [`super::hwmon`]), which
//! cost little to read; where none is of the processors or the machine, the management controller by IPMI, if it
//! answers. A controller on the network is asked only by name ([`MeterName`]). Each domain has one meter: packages of
//! processors that power capping counts are not told by sensors again.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use vmio_look::require::{Missing, Requirement};
use vmio_model::result::{Mark, ProbeResult, Watched};
use vmio_node::linux::hwmon::{Covers, Sensor};
use vmio_node::linux::powercap::{DIR, Zone, zones};
use vmio_node::{Node, Reader, machine};

use super::command::LIMIT;
use super::ipmi::{self, Dcmi};
use super::{ProbePoint, ProbeSubject, Unseen, hwmon, redfish};
use crate::redfish::Controller;
pub use choice::{MeterName, PowerChoice, Refused};
use trial::tells;

mod choice;
mod login;
mod trial;

/// What is needed to tell the energy of a cell, where nobody names a meter.
pub const METER: Requirement = Requirement {
    name: "power meter",
    why: "energy and power of cells",
    fix: "use another meter: a sensor or a controller, --power, or your own, --power-command (docs/probes.md)",
    check: |reader| counted(reader).map(drop),
};
/// Readings that a cell has at least of a meter that is asked again and again.
const LEAST_READINGS: u32 = 3;

/// What is counted here and may be read.
fn counted(reader: &dyn Reader) -> Result<Vec<Zone>, Missing> {
    let (mut all, mut refused) = (zones(reader), false);
    all.retain(|zone| match reader.read(&zone.energy_file) {
        Ok(_) => true,
        Err(e) => {
            refused |= e.kind() == Some(ErrorKind::PermissionDenied);
            false
        }
    });
    match (all.is_empty(), refused) {
        (false, _) => Ok(all),
        (true, true) => Err(Missing::RootOnly("/sys/class/powercap/*/energy_uj")),
        (true, false) => Err(Missing::Unlike(format!("no power meter: nothing in {DIR} counts energy"))),
    }
}

/// What is watched of the power of this machine, by the chosen meters, in cells of so many seconds.
///
/// # Errors
/// When one that was named cannot be used, or tells too little of such a cell.
pub fn subjects(node: &Arc<dyn Node>, choice: &PowerChoice, cell_seconds: f64) -> Result<Vec<ProbeSubject>, Refused> {
    let mut all = match choice.meters.as_slice() {
        [] => found(node, cell_seconds),
        named if named.contains(&MeterName::None) => Vec::new(),
        named => {
            let controllers = named.iter().filter(|name| matches!(name, MeterName::Redfish(_))).count();
            if controllers > 1 {
                return Err(Refused::TwoControllers);
            }
            let one = |name| self::named(node, choice, name, cell_seconds);
            named.iter().map(one).collect::<Result<Vec<_>, Refused>>()?
        }
    };
    if let Some(command) = &choice.command {
        let meter = ProbeSubject::Meter { command: command.clone() };
        tells(node, &meter, cell_seconds).map_err(|why| Refused::Command(Box::new(why)))?;
        all.push(meter);
    }
    Ok(all)
}

/// The probes by which the power of cells of so many seconds is likely measured, by name, as far as files tell that: no
/// meter is asked.
pub fn likely(reader: &dyn Reader, choice: &PowerChoice, cell_seconds: f64) -> Vec<String> {
    let mut all = match choice.meters.as_slice() {
        [] => likely_found(reader, cell_seconds),
        named if named.contains(&MeterName::None) => Vec::new(),
        named => named.iter().filter_map(MeterName::probe).collect(),
    };
    all.extend(choice.command.is_some().then_some("power-command"));
    all.into_iter().map(str::to_owned).collect()
}

/// The same where nobody names one.
fn likely_found(reader: &dyn Reader, cell_seconds: f64) -> Vec<&'static str> {
    let counted = counted(reader).is_ok();
    let sensors = vmio_node::linux::hwmon::sensors(reader);
    let sensed = sensors.iter().any(|sensor| !(counted && sensor.covers == Covers::Package));
    let enough = counted || sensors.iter().any(|sensor| sensor.covers != Covers::Part);
    let asked = || is_long(ipmi::AGAIN, cell_seconds) && ipmi::has_device(reader) && Dcmi::find(reader).is_some();
    let all = [(counted, "powercap"), (sensed, "hwmon"), (!enough && asked(), "ipmi")];
    all.into_iter().filter(|(there, _)| *there).map(|(_, name)| name).collect()
}

/// The names of the probes of meters.
pub fn names(meters: &[ProbeSubject]) -> Vec<String> {
    let named = |meter: &ProbeSubject| match meter.watched() {
        Watched::Other(name) => Some(name),
        _ => None,
    };
    meters.iter().filter_map(named).collect()
}

/// The meters of a machine where nobody names one.
fn found(node: &Arc<dyn Node>, cell_seconds: f64) -> Vec<ProbeSubject> {
    let counted = counted(node.reader()).ok();
    let sensors = sensors(node, counted.is_some(), cell_seconds);
    let enough = counted.is_some() || sensors.iter().any(|sensor| sensor.covers != Covers::Part);
    let asked = || {
        let can = ipmi::has_device(node.reader()) && is_long(ipmi::AGAIN, cell_seconds);
        Dcmi::find(node.reader()).filter(|tool| can && tool.answers(&**node).is_ok())
    };
    let controller = if enough { None } else { asked() };
    let sensors = (!sensors.is_empty()).then_some(ProbeSubject::Sensors(sensors));
    let all = [counted.map(ProbeSubject::Energy), sensors, controller.map(ProbeSubject::Controller)];
    all.into_iter().flatten().collect()
}

/// The usable sensors; none where reading them hangs.
fn sensors(node: &Arc<dyn Node>, counted: bool, cell_seconds: f64) -> Vec<Sensor> {
    let node = Arc::clone(node);
    machine::within(LIMIT, move || hwmon::usable(node.reader(), counted, cell_seconds)).unwrap_or_default()
}

/// Seconds of a cell that has enough readings of a meter that is asked so often.
fn least_seconds(every: Duration) -> f64 {
    f64::from(LEAST_READINGS) * every.as_secs_f64()
}

/// Whether a cell is so long.
fn is_long(every: Duration, cell_seconds: f64) -> bool {
    cell_seconds >= least_seconds(every)
}

fn named(
    node: &Arc<dyn Node>,
    choice: &PowerChoice,
    name: &MeterName,
    cell_seconds: f64,
) -> Result<ProbeSubject, Refused> {
    let reader = node.reader();
    let missing = |requirement: &Requirement, why: Missing| Refused::Missing {
        meter: name.to_string(),
        fix: requirement.fix_for(reader, &why),
        why,
    };
    let unseen = |why: Unseen, fix| Refused::Unseen { meter: name.to_string(), why: Box::new(why), fix };
    let long = |every: Duration| match is_long(every, cell_seconds) {
        true => Ok(()),
        false => {
            let (seconds, least) = (cell_seconds, least_seconds(every));
            // It says itself what to do.
            Err(unseen(Unseen::ShortCells { seconds, every: every.as_secs_f64(), least }, None))
        }
    };
    match name {
        MeterName::Powercap => counted(reader).map(ProbeSubject::Energy).map_err(|why| missing(&METER, why)),
        MeterName::Hwmon => {
            (hwmon::SENSOR.check)(reader).map_err(|why| missing(&hwmon::SENSOR, why))?;
            let counted = choice.meters.contains(&MeterName::Powercap) && counted(reader).is_ok();
            match sensors(node, counted, cell_seconds) {
                none if none.is_empty() => Err(unseen(Unseen::NoSensor { seconds: cell_seconds }, Some(METER.fix))),
                sensors => Ok(ProbeSubject::Sensors(sensors)),
            }
        }
        MeterName::Ipmi => {
            for requirement in ipmi::REQUIREMENTS {
                (requirement.check)(reader).map_err(|why| missing(requirement, why))?;
            }
            long(ipmi::AGAIN)?;
            let tool = Dcmi::find(reader).ok_or_else(|| missing(&ipmi::REQUIREMENTS[0], Missing::NotThere))?;
            tool.answers(&**node).map_err(|why| unseen(why, Some(ipmi::UNANSWERED)))?;
            Ok(ProbeSubject::Controller(tool))
        }
        MeterName::Redfish(address) => {
            long(redfish::EVERY)?;
            let login = login::read(choice, reader)?;
            let controller = Controller::connect(address, login, choice.ca_file.as_deref(), reader);
            let refused = |why: crate::redfish::Error| {
                let fix = why.remedy();
                unseen(why.into(), fix)
            };
            Ok(ProbeSubject::Redfish(Arc::new(controller.map_err(refused)?)))
        }
        MeterName::None => Err(Refused::Unknown),
    }
}

/// The mark of a sample in which one of these meters told nothing.
pub fn unmetered<'a>(watched: impl IntoIterator<Item = &'a ProbePoint>, seen: &[ProbeResult]) -> Option<Mark> {
    let mut meters = watched.into_iter().filter(|point| point.subject.is_metered());
    let silent = |point: &ProbePoint| seen.iter().all(|seen| seen.watched != point.subject.watched());
    meters.any(silent).then_some(Mark::Unmetered)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use vmio_node::Local;
    use vmio_node::fake::{Fake, says};

    use super::*;

    #[test]
    fn who_may_not_read_the_counters_is_told_so() {
        let package = |fake: Fake| fake.file(format!("{DIR}/intel-rapl:0/name"), "package-0\n");
        let energy = format!("{DIR}/intel-rapl:0/energy_uj");
        let found = |fake: Fake| (METER.check)(&fake).map_err(|missing| missing.to_string());
        let counts = package(Fake::new("fake")).file(&energy, "17\n");
        assert_eq!(found(counts), Ok(()));
        let refused = found(package(Fake::new("fake")).file(&energy, "17\n").refused(&energy));
        assert_eq!(refused, Err("/sys/class/powercap/*/energy_uj may be read by root only".into()));
        let none = found(Fake::new("fake").file(format!("{DIR}/intel-rapl/enabled"), "1\n")).unwrap_err();
        assert!(none.starts_with("no power meter"), "{none}");
        let node: Arc<dyn Node> = Arc::new(Fake::new("fake"));
        assert_eq!(subjects(&node, &PowerChoice::default(), 1.0).unwrap(), []);
    }

    #[test]
    fn a_meter_that_tells_too_little_is_refused_before_anything_is_measured() {
        let node: Arc<dyn Node> = Arc::new(Local::new());
        let of = |command: &str, seconds: f64| {
            let meter = ProbeSubject::Meter { command: command.into() };
            let choice = PowerChoice { command: Some(command.into()), ..PowerChoice::default() };
            subjects(&node, &choice, seconds).map(|all| all.contains(&meter))
        };
        assert!(of("while :; do echo 12.5; sleep 0.05; done", 1.5).unwrap());
        // It is run again each second.
        assert!(of("echo 12.5", 3.0).unwrap());
        let said = |command: &str, seconds: f64| of(command, seconds).unwrap_err().to_string();
        for slow in ["while :; do sleep 3; echo 12.5; done", "echo 12.5; sleep 60"] {
            let said = said(slow, 1.0);
            assert!(said.contains(": it is too slow for cells of 1 s, "), "{said}");
        }
        assert_eq!(
            said("echo no such meter >&2; exit 3", 2.0),
            "--power-command: `--power-command` failed: no such meter"
        );
        let words = said("echo 12 W", 2.0);
        assert!(words.contains("some lines contain no watts"), "{words}");
    }

    fn hwmon() -> Fake {
        Fake::new("fake").tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hwmon")).unwrap()
    }

    fn dcmi(fake: Fake) -> Fake {
        let answer = include_str!("../../tests/fixtures/ipmi/ipmitool.txt");
        fake.installed("ipmitool").program("ipmitool", says(answer)).file("/dev/ipmi0", "")
    }

    /// What is chosen on such a machine, in cells of 10 s.
    fn chosen(fake: Fake, meters: &[&str]) -> Result<Vec<String>, String> {
        let node: Arc<dyn Node> = Arc::new(fake);
        let meters = meters.iter().map(|name| name.parse().unwrap()).collect();
        let choice = PowerChoice { meters, ..PowerChoice::default() };
        let likely = likely(node.reader(), &choice, 10.0);
        let used = subjects(&node, &choice, 10.0).map(|all| names(&all)).map_err(|why| why.to_string());
        let unforeseen = used.iter().flatten().find(|name| !likely.contains(name));
        assert_eq!(unforeseen, None, "the plan names it, and counts the time at rest: {likely:?}");
        used
    }

    #[test]
    fn the_plan_names_meters_without_asking_them() {
        let likely = |fake: Fake, seconds: f64| likely(&fake, &PowerChoice::default(), seconds);
        assert_eq!(likely(Fake::new("fake"), 10.0), [""; 0]);
        assert_eq!(likely(dcmi(hwmon()), 10.0), ["hwmon"]);
        assert_eq!(likely(dcmi(Fake::new("fake")), 1.0), [""; 0], "it is asked once a second");
        // One that tells nothing is named by the plan, and not used by the run.
        let silent = || Fake::new("fake").installed("ipmitool").program("ipmitool", says("\n")).file("/dev/ipmi0", "");
        assert_eq!((likely(silent(), 10.0), chosen(silent(), &[])), (vec!["ipmi".to_owned()], Ok(Vec::new())));
    }

    #[test]
    fn the_machines_own_counters_come_before_its_controller() {
        let powercap = || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/powercap");
        let both = hwmon().tree(&powercap()).unwrap();
        assert_eq!(chosen(dcmi(both), &[]).unwrap(), ["powercap", "hwmon"]);
        assert_eq!(chosen(dcmi(hwmon()), &[]).unwrap(), ["hwmon"]);
        assert_eq!(chosen(dcmi(Fake::new("fake")), &[]).unwrap(), ["ipmi"]);
        let card = hwmon();
        ["name", "power1_average"].iter().for_each(|file| card.remove(format!("/sys/class/hwmon/hwmon1/{file}")));
        card.remove("/sys/class/hwmon/hwmon2/name");
        assert_eq!(chosen(dcmi(card), &[]).unwrap(), ["hwmon", "ipmi"], "a card is a part");
        assert_eq!(chosen(dcmi(hwmon()), &["ipmi", "hwmon"]).unwrap(), ["ipmi", "hwmon"]);
        assert_eq!(chosen(dcmi(hwmon()), &["none"]).unwrap(), [""; 0]);
        // A controller that does not measure is no meter.
        let silent = Fake::new("fake").installed("ipmitool").program("ipmitool", says("\n")).file("/dev/ipmi0", "");
        assert_eq!(chosen(silent, &[]).unwrap(), [""; 0]);
    }

    #[test]
    fn a_meter_that_is_named_and_missing_is_told_with_the_remedy() {
        let why = |meters: &[&str]| {
            chosen(Fake::new("fake").file("/proc/self/status", "Uid:\t0\t0\t0\t0\n"), meters).unwrap_err()
        };
        assert!(
            why(&["powercap"]).starts_with("powercap: no power meter: nothing in /sys/class/powercap"),
            "{}",
            why(&["powercap"])
        );
        assert!(why(&["hwmon"]).contains("help: load the driver of the machine's meter"), "{}", why(&["hwmon"]));
        assert_eq!(why(&["ipmi"]), "ipmi: none of ipmitool, ipmi-dcmi; help: apt install ipmitool (or freeipmi-tools)");
        let node: Arc<dyn Node> = Arc::new(dcmi(Fake::new("fake")));
        let short = subjects(&node, &PowerChoice { meters: vec![MeterName::Ipmi], ..PowerChoice::default() }, 1.0);
        let short = short.unwrap_err().to_string();
        assert!(
            short.starts_with("ipmi: a meter that is asked every 1 s needs cells of 3 s or more, and these are of 1 s"),
            "{short}"
        );
        let two = chosen(Fake::new("fake"), &["redfish:https://a", "redfish:https://b"]).unwrap_err();
        assert!(two.contains("one controller"), "{two}");
        assert!("rapl".parse::<MeterName>().is_err() && "redfish:bmc".parse::<MeterName>().is_err());
        assert_eq!("redfish:https://bmc".parse::<MeterName>().unwrap().to_string(), "redfish:https://bmc");
    }

    #[test]
    fn a_meter_that_does_not_answer_is_told_with_the_remedy() {
        let ipmi = |said: String| {
            let fake = Fake::new("fake").installed("ipmitool").program("ipmitool", says(said)).file("/dev/ipmi0", "");
            chosen(fake, &["ipmi"]).unwrap_err()
        };
        let recorded = include_str!("../../tests/fixtures/ipmi/ipmitool.txt");
        for (said, why) in [
            (String::new(), "its answer contains no power reading"),
            (recorded.replace("50 Watts", "65535 Watts"), "its answer contains no power reading"),
            (recorded.replace("activated", "deactivated"), "its power measurement is not active"),
        ] {
            let told = ipmi(said);
            assert!(told.contains(why) && told.contains("; help: ask it by hand"), "{told}");
        }
        let nobody = chosen(Fake::new("fake"), &["redfish:http://127.0.0.1:1"]).unwrap_err();
        assert!(nobody.contains("cannot be reached") && nobody.contains("; help: check the address"), "{nobody}");
    }

    #[test]
    fn a_sample_without_its_meter_is_marked() {
        let node: Arc<dyn Node> = Arc::new(Fake::new("fake"));
        let watched = [ProbeSubject::Processors, ProbeSubject::Controller(Dcmi::Ipmitool)]
            .map(|s| ProbePoint::here(node.clone(), s));
        let seen = |probe: &str| ProbeResult::here(Watched::Other(probe.into()), probe, Vec::new());
        assert_eq!(unmetered(&watched, &[seen("ipmi")]), None);
        assert_eq!(unmetered(&watched, &[seen("hwmon")]), Some(Mark::Unmetered));
        assert_eq!(unmetered(&watched[..1], &[]), None, "without a meter nothing is missing");
    }
}
