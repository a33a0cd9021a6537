//! The power that a meter of the user's tells (`--power-command`): a plug, a power supply, a management controller.
//! Only who named it knows what it is put to.

use std::time::Duration;

use vmio_model::figure::{Figure, Reading};
use vmio_model::result::is_power;
use vmio_node::Exec;

use super::energy::{self, Power};
use super::{ByCommand, Heard, Probe, ProbeMethod, ProbeSubject, Runs, Unseen};

/// How long after its start one that has ended is run again.
const AGAIN: Duration = Duration::from_secs(1);

/// Entry of the list of probes.
pub struct PowerCommand;

impl Probe for PowerCommand {
    fn name(&self) -> &'static str {
        "power-command"
    }
    fn about(&self) -> &'static str {
        "energy and mean power by a meter of the user; blind to what is not plugged into it, and to changes faster \
         than its readings"
    }
    fn figures(&self, _: &ProbeSubject) -> Vec<Figure> {
        energy::figures()
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::Meter { .. })
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Command(&PowerCommand)
    }
}

impl ByCommand for PowerCommand {
    fn command(&self, subject: &ProbeSubject) -> Result<Exec, Unseen> {
        let ProbeSubject::Meter { command } = subject else { return Err(Unseen::OtherSubject("it is not a meter")) };
        Ok(Exec::new("sh").args(["-c", command]))
    }
    fn runs(&self) -> Runs {
        Runs::Meanwhile { again: AGAIN }
    }
    fn conclude(&self, _: &ProbeSubject, heard: &Heard, notes: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
        let readings: Vec<Power> = heard.said.iter().filter_map(|(at, line)| parse(*at, line)).collect();
        if readings.len() < heard.said.len() {
            notes.push("power-command: some lines contain no watts".to_owned());
        }
        Ok(energy::of_power("meter", &readings, heard.seconds)?.into())
    }
}

/// `WATTS` or `SECONDS WATTS`; `None` for anything else.
fn parse(at: f64, line: &str) -> Option<Power> {
    let numbers = line.split_ascii_whitespace().map(|word| word.parse::<f64>().ok().filter(|n| n.is_finite()));
    let reading = match numbers.collect::<Option<Vec<f64>>>()?.as_slice() {
        [watts] => Power { at, own: None, watts: *watts },
        [seconds, watts] => Power { at, own: Some(*seconds), watts: *watts },
        _ => return None,
    };
    is_power(reading.watts).then_some(reading)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::thread;
    use std::time::Instant;

    use vmio_model::figure::Unit;
    use vmio_model::result::{ProbeResult, Watched};
    use vmio_node::{Local, Node};

    use super::super::{ProbePoint, Watch};
    use super::*;

    fn of(seconds: f64, said: &[(f64, &str)]) -> Result<[f64; 2], String> {
        let said = said.iter().map(|(at, line)| (*at, (*line).to_owned())).collect();
        let subject = ProbeSubject::Meter { command: "meter".into() };
        let found = PowerCommand.conclude(&subject, &Heard { seconds, said, runs: vec![0.0] }, &mut Vec::new());
        found.map(|all| [all[0].value.typical(), all[1].value.typical()]).map_err(|why| why.to_string())
    }

    #[test]
    fn energy_is_the_integral() {
        // From 100 W to 200 W in a second, and one more at 200 W: 350 J in two of the two and a half seconds.
        let ramp = [(0.25, "100"), (1.25, "200"), (2.25, "200.0")];
        assert_eq!(of(2.5, &ramp), Ok([437.5, 175.0]));
        // As the meter says, not as its lines came.
        let own = [(2.4, "1790000000.5 100"), (2.4, "1790000001.5 200"), (2.4, "1790000002.5 200")];
        assert_eq!(of(2.5, &own), Ok([437.5, 175.0]));
        // A clock that begins anew with each call tells nothing.
        assert_eq!(of(2.0, &[(0.0, "0.1 50"), (1.0, "0.1 50"), (2.0, "0.1 50")]), Ok([100.0, 50.0]));
    }

    #[test]
    fn what_was_not_measured_is_no_figure() {
        let few = Err("fewer than two readings".to_owned());
        assert_eq!((of(2.0, &[]), of(2.0, &[(1.0, "100")])), (few.clone(), few.clone()));
        assert_eq!(of(2.0, &[(0.0, "starting"), (1.0, "nan"), (1.5, "-3"), (1.6, "2e6"), (2.0, "1 2 3")]), few);
        // A log of yesterday's, all at once.
        assert_eq!(of(2.0, &[(0.1, "0 100"), (0.1, "3600 100")]), few);
        let seldom = of(60.0, &[(1.0, "100"), (2.0, "100")]).unwrap_err();
        assert_eq!(seldom, "the meter reported power for 1.0 s of 60.0 s");
        assert_eq!((parse(0.0, "12 W"), parse(0.0, "inf"), parse(0.0, "")), (None, None, None));
    }

    /// A made-up meter, for real: 40 W and 60 W by turns.
    #[test]
    fn a_script_is_a_meter() {
        let node: Arc<dyn Node> = Arc::new(Local::new());
        let meter = |script: &str, seconds: u64| -> (Vec<ProbeResult>, Vec<String>, f64) {
            let meter = ProbeSubject::Meter { command: script.into() };
            let watch = Watch::start(vec![ProbePoint::here(node.clone(), meter)]).unwrap();
            let began = Instant::now();
            thread::sleep(Duration::from_secs(seconds));
            let seen = watch.stop().unwrap();
            (seen.seen, seen.notes, began.elapsed().as_secs_f64())
        };
        let (seen, notes, seconds) = meter("while :; do echo 40; sleep 0.1; echo 60; sleep 0.1; done", 2);
        let [seen] = seen.as_slice() else { panic!("{seen:?} {notes:?}") };
        assert_eq!((&seen.watched, seen.probe.as_str()), (&Watched::Other("power-command".into()), "power-command"));
        let units = [("energy".to_owned(), Unit::Joules), ("power".to_owned(), Unit::Watts)];
        assert_eq!(seen.units, BTreeMap::from(units));
        let [joules, watts] = ["energy", "power"].map(|name| {
            let reading = seen.figures.iter().find(|reading| reading.figure == name).unwrap();
            assert_eq!(reading.labels["domain"], "meter");
            reading.value.typical()
        });
        assert!((40.0..=60.0).contains(&watts) && (joules / watts - seconds).abs() < 1.0, "{joules} J, {watts} W");
        let (none, notes, _) = meter("echo no meter >&2; exit 1", 0);
        assert_eq!((none, notes.len()), (Vec::new(), 1), "what is not measured is no figure");
    }
}
