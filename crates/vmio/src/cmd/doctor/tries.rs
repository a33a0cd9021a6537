//! `vmio doctor --try`: what a measurement rests on is done once, within a time limit, and taken back. What is made is
//! in the journal of runs, or ends with this process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use vmio_look::require::{Check, Requirement};
use vmio_node::Reader;

use super::document::TryRow;
use super::work::{ALL, Bed, Failed, Trial};
use crate::context::Context;
use crate::term::{self, Style};

/// What is known of a trial.
#[derive(Debug)]
pub(super) enum State {
    /// Nothing is missing for it.
    Found,
    /// Something is missing for it.
    Lacking(Failed),
    /// It was done, in this time.
    Worked(Duration),
    /// It was done, and did not work.
    Broken(Failed),
}

/// A trial and what is known of it.
pub(super) struct Attempt {
    trial: &'static Trial,
    pub(super) state: State,
}

impl Attempt {
    /// Each trial, with what this host lacks for it. Only looks.
    pub(super) fn found(reader: &dyn Reader, checks: &mut BTreeMap<&'static str, Check>) -> Vec<Attempt> {
        let mut look = |requirement: &'static Requirement| {
            let check = checks.entry(requirement.name).or_insert_with(|| requirement.look(reader));
            match check {
                Check::Met => None,
                Check::Unmet { why, fix } => Some(Failed { why: why.clone(), mend: fix.clone() }),
            }
        };
        let attempt = |trial: &'static Trial| {
            let unmet = (trial.requirements)().into_iter().find_map(&mut look);
            Attempt { trial, state: unmet.map_or(State::Found, State::Lacking) }
        };
        ALL.iter().map(attempt).collect()
    }

    /// Tries all for which nothing is missing.
    ///
    /// # Errors
    /// When the journal cannot be used: another run is at work, or the state directory is not this user's.
    pub(super) fn each(all: &mut [Attempt], context: &Context) -> anyhow::Result<()> {
        let mut bed = Bed::make(context)?;
        for attempt in all.iter_mut().filter(|attempt| matches!(attempt.state, State::Found)) {
            term::transient(&format!("trying {}", attempt.trial.name));
            let began = Instant::now();
            let worked = (attempt.trial.work)(&mut bed);
            bed.end_if_stopped();
            attempt.state = worked.map_or_else(State::Broken, |()| State::Worked(began.elapsed()));
        }
        term::end_transient();
        bed.close().iter().for_each(|left| term::note(&format!("warning: could not be undone: {left}")));
        Ok(())
    }

    /// What worked, by extension point and name.
    pub(super) fn shown(&self) -> &'static [(&'static str, &'static str)] {
        if matches!(self.state, State::Worked(_)) { self.trial.shows } else { &[] }
    }

    /// The name of what measuring needs and did not work.
    pub(super) fn broken(&self) -> Option<&'static str> {
        (self.trial.needed && matches!(self.state, State::Broken(_))).then_some(self.trial.name)
    }

    pub(super) fn name(&self) -> &'static str {
        self.trial.name
    }

    /// The state in words.
    pub(super) fn text(&self, style: Style) -> String {
        match &self.state {
            State::Found => "found, not tried".to_owned(),
            State::Lacking(lack) => format!("not tried: {}; {}", lack.why, lack.mend),
            State::Worked(took) => format!("tried, worked in {:.1} s", took.as_secs_f64()),
            State::Broken(failed) => {
                format!("{}: {}; help: {}", style.yellow("tried, failed"), failed.why, failed.mend)
            }
        }
    }

    pub(super) fn json(&self) -> TryRow<'_> {
        let (state, seconds, failed) = match &self.state {
            State::Found => ("found", None, None),
            State::Lacking(lack) => ("lacking", None, Some(lack)),
            State::Worked(took) => ("worked", Some(took.as_secs_f64()), None),
            State::Broken(failed) => ("failed", None, Some(failed)),
        };
        let (why, mend) = (failed.map(|f| f.why.as_str()), failed.map(|f| f.mend.as_str()));
        let Trial { name, about, needed, .. } = *self.trial;
        TryRow { name, about, needed, state, seconds, why, mend }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_node::Fake;

    #[test]
    fn nothing_is_said_to_work_that_was_not_tried() {
        let all = Attempt::found(&Fake::new("bare"), &mut BTreeMap::new());
        assert_eq!(all.len(), ALL.len());
        for tried in &all {
            let said = tried.text(Style::PLAIN);
            assert!(said.starts_with("not tried: ") || said == "found, not tried", "{}: {said}", tried.name());
            assert!(tried.shown().is_empty() && tried.broken().is_none());
        }
        let fio = all.iter().find(|tried| tried.name() == "fio").unwrap();
        assert!(fio.text(Style::PLAIN).contains("apt install fio"), "{}", fio.text(Style::PLAIN));
        assert_eq!((fio.json().state, fio.json().mend), ("lacking", Some("apt install fio")));
    }

    #[test]
    fn what_was_tried_says_how_long_it_took_or_what_helps() {
        let trial = ALL.iter().find(|trial| trial.name == "fio").unwrap();
        let worked = Attempt { trial, state: State::Worked(Duration::from_millis(1_234)) };
        assert_eq!(worked.text(Style::PLAIN), "tried, worked in 1.2 s");
        assert!(worked.shown().contains(&("workload", "durable-append")) && worked.broken().is_none());
        let failed = Failed { why: "it ended".into(), mend: "install it anew".into() };
        let broken = Attempt { trial, state: State::Broken(failed) };
        assert_eq!(broken.text(Style::PLAIN), "tried, failed: it ended; help: install it anew");
        assert_eq!((broken.broken(), broken.shown()), (Some("fio"), &[][..]));
        let json = serde_json::to_value(broken.json()).unwrap();
        assert_eq!((&json["state"], &json["seconds"]), (&"failed".into(), &serde_json::Value::Null));
    }
}
