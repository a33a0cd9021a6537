//! The power of the whole machine by its management controller (IPMI; DCMI 1.5, section 6.6.1, "Get Power Reading"), by
//! ipmitool(1) or ipmi-dcmi(8) of FreeIPMI through the kernel's driver.
//!
//! Only the current power is used: minimum, maximum and average are of the controller's own period, which may be years.
//! A reading with the time stamp of the one before is the same one, and used once.

use std::path::Path;
use std::time::Duration;

use vmio_look::require::{Missing, Requirement, find_program};
use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::result::DOMAIN;
use vmio_node::{Exec, Node, Reader};

use self::reading::{Record, records};
use super::energy::{self, Power};
use super::{ByCommand, Heard, Probe, ProbeMethod, ProbeSubject, Runs, Unseen};

mod reading;

/// How long after its start it is asked again. A controller measures about once a second.
pub const AGAIN: Duration = Duration::from_secs(1);
/// How long one question may take: through KCS a byte at a time.
const LIMIT: Duration = Duration::from_secs(10);
/// Seconds after which an answer is late: one, and what it takes to hear it.
const LATE: f64 = 1.2;
/// What is measured.
const MACHINE: &str = "machine";
/// The figure with the controller's own period.
const PERIOD: &str = "sampling-period";
/// Where the kernel's driver is.
const DEVICES: [&str; 3] = ["/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0"];

/// A program that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dcmi {
    /// ipmitool(1).
    Ipmitool,
    /// ipmi-dcmi(8).
    FreeIpmi,
}

/// Both, in the order in which they are looked for.
const TOOLS: [Dcmi; 2] = [Dcmi::Ipmitool, Dcmi::FreeIpmi];

impl Dcmi {
    fn program(self) -> &'static str {
        match self {
            Dcmi::Ipmitool => "ipmitool",
            Dcmi::FreeIpmi => "ipmi-dcmi",
        }
    }

    fn exec(self) -> Exec {
        let args: &[&str] = match self {
            Dcmi::Ipmitool => &["dcmi", "power", "reading"],
            Dcmi::FreeIpmi => &["--get-system-power-statistics"],
        };
        let mut exec = Exec::new(self.program()).args(args.iter().copied()).limit(LIMIT);
        exec.env.extend([("LC_ALL", "C"), ("TZ", "UTC")].map(|(name, value)| (name.to_owned(), value.to_owned())));
        exec
    }

    /// The one that is installed.
    pub fn find(reader: &dyn Reader) -> Option<Dcmi> {
        TOOLS.into_iter().find(|tool| find_program(reader, tool.program()).is_some())
    }

    /// Whether it tells the power now.
    ///
    /// # Errors
    /// Why not.
    pub fn answers(self, node: &dyn Node) -> Result<(), Unseen> {
        let exec = self.exec();
        let output = node.exec(&exec)?;
        let failed = |said: String| Unseen::Command { command: exec.shown(), said };
        if !output.ok() {
            let said = output.err();
            return Err(failed(said.lines().next().unwrap_or("no answer").trim().to_owned()));
        }
        let said: Vec<(f64, String)> = output.out().lines().map(|line| (0.0, line.to_owned())).collect();
        match records(&said).as_slice() {
            [Record { active: true, .. }] => Ok(()),
            [Record { active: false, .. }] => Err(failed("its power measurement is not active".to_owned())),
            _ => Err(failed("its answer contains no power reading".to_owned())),
        }
    }
}

/// Whether the kernel has a driver of a controller.
pub fn has_device(reader: &dyn Reader) -> bool {
    DEVICES.iter().any(|device| matches!(reader.stat(Path::new(device)), Ok(Some(_))))
}

/// What to do where a controller does not answer with a power, or too late.
pub const UNANSWERED: &str = "ask it by hand (ipmitool dcmi power reading, or ipmi-dcmi \
                              --get-system-power-statistics): its power measurement may have to be activated; or use \
                              another meter";

/// A program, and the kernel's driver.
pub const REQUIREMENTS: &[Requirement] = &[TOOL, DEVICE];
const TOOL: Requirement = Requirement {
    name: "IPMI tool",
    why: "power of the machine by its management controller",
    fix: "apt install ipmitool (or freeipmi-tools)",
    check: |reader| Dcmi::find(reader).map(drop).ok_or_else(|| Missing::NoneOf("ipmitool, ipmi-dcmi".to_owned())),
};
const DEVICE: Requirement = Requirement {
    name: "IPMI device",
    why: "power of the machine by its management controller",
    fix: "modprobe ipmi_devintf ipmi_si, on a machine with a management controller (or ask it over the network: \
          --power redfish:https://ADDRESS)",
    check: |reader| match has_device(reader) {
        true => Ok(()),
        false => Err(Missing::Feature { feature: "management controller".to_owned(), path: DEVICES[0].to_owned() }),
    },
};

/// Entry of the list of probes.
pub struct Ipmi;

impl Probe for Ipmi {
    fn name(&self) -> &'static str {
        "ipmi"
    }
    fn about(&self) -> &'static str {
        "energy and mean power of the machine by its management controller, about once a second; blind to faster \
         changes; the kernel's driver takes processor time for each question"
    }
    fn figures(&self, _: &ProbeSubject) -> Vec<Figure> {
        let period = Figure::amount(PERIOD, Unit::Seconds).by(&[DOMAIN]);
        energy::figures().into_iter().chain([period]).collect()
    }
    fn requirements(&self) -> &'static [Requirement] {
        REQUIREMENTS
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::Controller(_))
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Command(&Ipmi)
    }
}

impl ByCommand for Ipmi {
    fn command(&self, subject: &ProbeSubject) -> Result<Exec, Unseen> {
        let ProbeSubject::Controller(tool) = subject else {
            return Err(Unseen::OtherSubject("it is not a management controller"));
        };
        Ok(tool.exec())
    }
    fn runs(&self) -> Runs {
        Runs::Meanwhile { again: AGAIN }
    }
    fn conclude(&self, _: &ProbeSubject, heard: &Heard, notes: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
        let mut all = records(&heard.said);
        let late = Some(take_late(&mut all, &heard.runs)).filter(|late| *late > 0);
        let late = late.map(|answers| Unseen::Late { answers });
        let told = all.len();
        all.retain(|record| record.active);
        if all.len() < told {
            notes.push("ipmi: the controller's power measurement was not active".to_owned());
        }
        all.dedup_by(|next, one| next.stamp.is_some() && next.stamp == one.stamp);
        let power = |record: &Record| Power { at: record.at, own: record.stamp, watts: f64::from(record.watts) };
        let found = energy::of_power(MACHINE, &all.iter().map(power).collect::<Vec<_>>(), heard.seconds);
        let mut readings: Vec<Reading> = match (found, late) {
            (Ok(found), late) => {
                notes.extend(late.map(|late| format!("ipmi: {late}")));
                found.into()
            }
            // That is why there are too few.
            (Err(why), late) => return Err(late.unwrap_or(why)),
        };
        let period = all.iter().rev().find_map(|record| record.period_seconds);
        readings.extend(period.map(|seconds| Reading::scalar(PERIOD, seconds).with(DOMAIN, MACHINE)));
        Ok(readings)
    }
}

/// Leaves out answers that took too long after the question before them and have no time stamp: when they were measured
/// is not known. How many there were.
fn take_late(all: &mut Vec<Record>, runs: &[f64]) -> u32 {
    let told = all.len();
    all.retain(|record| {
        let before = runs.partition_point(|asked| *asked <= record.at);
        let asked = runs[..before].last().copied().unwrap_or(0.0);
        record.stamp.is_some() || record.at - asked <= LATE
    });
    (told - all.len()) as u32
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::{Fake, fails, says};

    use super::*;

    const IPMITOOL: &str = include_str!("../../tests/fixtures/ipmi/ipmitool.txt");
    const FREEIPMI: &str = include_str!("../../tests/fixtures/ipmi/ipmi-dcmi.txt");

    /// Answers at these seconds, each with its power and the seconds of its time stamp.
    fn said(text: &str, watts: &str, stamp: &str, all: &[(f64, u32, u32)]) -> Heard {
        let line = |at: f64, power: u32, second: u32, line: &str| {
            let line = line.replace(watts, &power.to_string());
            (at, line.replace(stamp, &format!("{}:{second:02}", &stamp[..stamp.len() - 3])))
        };
        let answer = |&(at, power, second): &(f64, u32, u32)| text.lines().map(move |l| line(at, power, second, l));
        Heard { seconds: 4.0, said: all.iter().flat_map(answer).collect(), runs: vec![0.0] }
    }

    fn told(tool: Dcmi, all: &[(f64, u32, u32)]) -> Result<Vec<Reading>, String> {
        let heard = match tool {
            Dcmi::Ipmitool => said(IPMITOOL, "50", "08:36:01", all),
            Dcmi::FreeIpmi => said(FREEIPMI, "164", "08:58:00", all),
        };
        let found = Ipmi.conclude(&ProbeSubject::Controller(tool), &heard, &mut Vec::new());
        found.map_err(|why| why.to_string())
    }

    #[test]
    fn both_programs_tell_the_mean_and_the_controllers_own_period() {
        for (tool, period) in [(Dcmi::Ipmitool, 1.0), (Dcmi::FreeIpmi, 1_473_439.0)] {
            let found = told(tool, &[(0.2, 200, 10), (1.2, 220, 11), (3.2, 220, 13)]).unwrap();
            let period = Reading::scalar(PERIOD, period).with(DOMAIN, MACHINE);
            // 210 W for a second and 220 W for two.
            let wanted = energy::readings(MACHINE, (210.0 + 440.0) / 3.0 * 4.0, 4.0).into_iter().chain([period]);
            assert_eq!(found, wanted.collect::<Vec<_>>(), "{tool:?}");
        }
    }

    #[test]
    fn a_reading_of_before_is_used_once() {
        for tool in TOOLS {
            let stale = told(tool, &[(0.2, 200, 10), (1.2, 200, 10), (2.2, 200, 10), (3.2, 200, 10)]).unwrap_err();
            assert_eq!(stale, "fewer than two readings");
            let slow = told(tool, &[(0.2, 200, 10), (1.2, 200, 10), (2.2, 200, 11), (3.2, 200, 11)]).unwrap_err();
            assert_eq!(slow, "the meter reported power for 1.0 s of 4.0 s");
        }
    }

    #[test]
    fn a_late_answer_without_a_time_stamp_is_not_used() {
        let unset = IPMITOOL.replace("Thu Feb 15 08:36:01 2024", "Thu Jan  1 00:00:00 1970");
        let unstamped = |runs: &[f64], all: &[(f64, u32, u32)]| {
            let (heard, mut notes) = (said(&unset, "50", "08:36:01", all), Vec::new());
            let heard = Heard { runs: runs.to_vec(), ..heard };
            let found = Ipmi.conclude(&ProbeSubject::Controller(Dcmi::Ipmitool), &heard, &mut notes);
            (found.map(|all| all[0].value.typical()).map_err(|why| why.to_string()), notes)
        };
        // The second is asked at 1.0 s and answered after 1.5 s.
        let all = [(0.2, 200, 0), (2.5, 900, 0), (2.8, 200, 0), (3.8, 200, 0)];
        let (found, notes) = unstamped(&[0.0, 1.0, 2.6, 3.6], &all);
        assert!((found.unwrap() - 800.0).abs() < 1e-6);
        assert_eq!(notes, ["ipmi: the meter took over 1 s for 1 answer, of which none is used"]);
        let (never, notes) = unstamped(&[0.0, 2.1], &[(2.0, 200, 0), (4.0, 200, 0)]);
        assert_eq!(never, Err("the meter took over 1 s for 2 answers, of which none is used".to_owned()));
        assert_eq!(notes, [""; 0]);
        // A question without an answer does not make the next answer late.
        let (found, notes) = unstamped(&[0.0, 1.0, 2.0, 3.0], &[(0.2, 200, 0), (2.3, 200, 0), (3.2, 200, 0)]);
        assert!((found.unwrap() - 800.0).abs() < 1e-6 && notes.is_empty(), "{notes:?}");
        // With a time stamp it counts for when it was measured.
        assert!(told(Dcmi::Ipmitool, &[(2.0, 200, 1), (4.0, 200, 3)]).is_ok());
    }

    #[test]
    fn a_controller_is_asked_before_it_is_taken() {
        let dcmi = |output| Fake::new("fake").program("ipmitool", output);
        let why = |output| Dcmi::Ipmitool.answers(&dcmi(output)).map_err(|why| why.to_string());
        assert_eq!(why(says(IPMITOOL)), Ok(()));
        let off = why(says(IPMITOOL.replace("activated", "deactivated"))).unwrap_err();
        assert_eq!(off, "`ipmitool dcmi power reading` failed: its power measurement is not active");
        assert!(why(says("DCMI request failed\n")).unwrap_err().ends_with("its answer contains no power reading"));
        let no = why(fails(1, "Could not open device at /dev/ipmi0\n")).unwrap_err();
        assert!(no.ends_with("failed: Could not open device at /dev/ipmi0"), "{no}");
    }

    #[test]
    fn what_is_missing_is_told_with_its_remedy() {
        let unmet = |fake: &Fake| Ipmi.requirements().iter().filter(|r| (r.check)(fake).is_err()).count();
        let bare = Fake::new("fake");
        assert_eq!(unmet(&bare), 2);
        assert_eq!(unmet(&bare.installed("ipmi-dcmi").file("/dev/ipmi0", "")), 0);
    }
}
