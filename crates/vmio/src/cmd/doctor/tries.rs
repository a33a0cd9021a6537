//! `vmio doctor --try`: what a measurement rests on is done once, within a time limit, and taken back. What is made is
//! in the journal of runs, or ends with this process.

use std::time::{Duration, Instant};

use vmio_node::Reader;
use vmio_rig::guests::Accelerator;
use vmio_rig::guests::qemu::NoKvm;

use super::around::rows;
use super::document::TryRow;
use super::listing::{Checks, Unmet};
use super::work::{ALL, Bed, Failed, KVM, Trial};
use crate::context::Context;
use crate::fit;
use crate::term::{self, Style};

/// What is known of a trial.
#[derive(Debug)]
pub(super) enum State {
    /// Nothing is missing for it.
    Found,
    /// A requirement of this name is not met.
    Lacking(&'static str, Failed),
    /// The trial of this name, which it builds on, did not work, or cannot be done.
    Waits(&'static str, Failed),
    /// It was done, in this time.
    Worked(Duration),
    /// It was done, and did not work.
    Broken(Failed),
    /// It was done for a run, or by an earlier try.
    Before(Result<(), Failed>),
}

/// A trial and what is known of it.
pub(super) struct Attempt {
    trial: &'static Trial,
    pub(super) state: State,
}

impl Attempt {
    /// Each trial, with what this host lacks for it; of KVM what a boot of a guest found before. Only looks.
    pub(super) fn found(reader: &dyn Reader, checks: &mut Checks, known: Option<&Accelerator>) -> Vec<Attempt> {
        let mut all: Vec<Attempt> = Vec::new();
        for trial in ALL {
            let unmet = (trial.requirements)().into_iter().find_map(|need| Unmet::of(need, reader, checks));
            let state = match unmet {
                Some(unmet) => State::Lacking(unmet.name, Failed { why: unmet.why(), mend: unmet.fix }),
                None if trial.name == KVM => of_kvm(reader, known),
                None => State::Found,
            };
            let waits = if matches!(state, State::Found) { waits(trial, &all) } else { None };
            all.push(Attempt { trial, state: waits.unwrap_or(state) });
        }
        all
    }

    /// Tries all for which nothing is missing.
    ///
    /// # Errors
    /// When the journal cannot be used: another run is at work, or the state directory is not this user's.
    pub(super) fn each(all: &mut [Attempt], context: &Context) -> anyhow::Result<()> {
        let mut bed = Bed::make(context)?;
        for at in 0..all.len() {
            let trial = all[at].trial;
            if !matches!(all[at].state, State::Found | State::Before(_)) {
                continue;
            }
            if let Some(waits) = waits(trial, all) {
                all[at].state = waits;
                continue;
            }
            term::transient(&format!("trying {}", trial.name));
            let began = Instant::now();
            let worked = (trial.work)(&mut bed);
            bed.end_if_stopped();
            all[at].state = worked.map_or_else(State::Broken, |()| State::Worked(began.elapsed()));
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

    /// The state in words. What is missing has its help in the list of what is lacking.
    fn text(&self, style: Style) -> String {
        match &self.state {
            State::Found => "found, not tried".to_owned(),
            State::Lacking(name, _) => format!("not tried: lacks {name}"),
            State::Waits(other, _) => format!("not tried: needs {other}"),
            State::Worked(took) => format!("tried, worked in {:.1} s", took.as_secs_f64()),
            State::Before(Ok(())) => "worked at an earlier boot".to_owned(),
            State::Broken(failed) | State::Before(Err(failed)) => {
                format!("{}: {}; help: {}", style.yellow("tried, failed"), failed.why, failed.mend)
            }
        }
    }

    pub(super) fn json(&self) -> TryRow<'_> {
        let (state, seconds, failed) = match &self.state {
            State::Found => ("found", None, None),
            State::Lacking(_, lack) | State::Waits(_, lack) => ("lacking", None, Some(lack)),
            State::Worked(took) => ("worked", Some(took.as_secs_f64()), None),
            State::Before(Ok(())) => ("worked", None, None),
            State::Broken(failed) | State::Before(Err(failed)) => ("failed", None, Some(failed)),
        };
        let (why, mend) = (failed.map(|f| f.why.as_str()), failed.map(|f| f.mend.as_str()));
        let Trial { name, about, needed, .. } = *self.trial;
        TryRow { name, about, needed, state, seconds, why, mend }
    }
}

/// What KVM's device and a boot of a guest with it, if there was one, say.
fn of_kvm(reader: &dyn Reader, known: Option<&Accelerator>) -> State {
    let failed = |no_kvm: NoKvm| Failed { why: no_kvm.reason, mend: no_kvm.mend.to_owned() };
    if let Some(no_device) = NoKvm::of(reader, None) {
        return State::Lacking(KVM, failed(no_device));
    }
    match (NoKvm::of(reader, known), known) {
        (Some(no_kvm), _) => State::Before(Err(failed(no_kvm))),
        (None, Some(_)) => State::Before(Ok(())),
        (None, None) => State::Found,
    }
}

/// The trial that one builds on, where that cannot be done or did not work.
fn waits(trial: &Trial, all: &[Attempt]) -> Option<State> {
    let other = all.iter().find(|other| Some(other.name()) == trial.after)?;
    match &other.state {
        State::Lacking(_, failed) | State::Waits(_, failed) | State::Broken(failed) => {
            let why = format!("it needs {}: {}", other.name(), failed.why);
            Some(State::Waits(other.name(), Failed { why, mend: failed.mend.clone() }))
        }
        _ => None,
    }
}

/// What came of the trials but that of KVM: what worked, what failed with its help, and what was not tried. Nothing
/// where nothing was; a line each if `verbose`.
pub(super) fn text(all: &[Attempt], verbose: bool, style: Style) -> String {
    let all: Vec<&Attempt> = all.iter().filter(|attempt| attempt.name() != KVM).collect();
    if verbose {
        return rows("tries", all.iter().map(|attempt| (attempt.name().to_owned(), attempt.text(style))));
    }
    let (mut worked, mut failed, mut untried) = (Vec::new(), String::new(), Vec::new());
    for attempt in &all {
        match &attempt.state {
            State::Worked(took) => worked.push(format!("{} ({:.1} s)", attempt.name(), took.as_secs_f64())),
            State::Broken(why) => {
                let lead = format!("{} ", style.yellow("failed "));
                failed += &fit::paragraph(&lead, 8, &format!("{}: {}", attempt.name(), why.why));
                failed += &fit::paragraph("        help: ", 14, &why.mend);
            }
            State::Lacking(name, _) => untried.push(format!("{} (lacks {name})", attempt.name())),
            State::Waits(other, _) => untried.push(format!("{} (needs {other})", attempt.name())),
            State::Found | State::Before(_) => {}
        }
    }
    if worked.is_empty() && failed.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    if !worked.is_empty() {
        text += &fit::paragraph(&format!("{} ", style.cyan("worked ")), 8, &worked.join("; "));
    }
    text += &failed;
    if !untried.is_empty() {
        text += &fit::paragraph("        ", 8, &format!("not tried: {}", untried.join("; ")));
    }
    text
}

/// What guests run on here: the one answer about KVM.
pub(super) fn accelerator(all: &[Attempt], known: Option<&Accelerator>, style: Style) -> String {
    let line = |text: &str| fit::paragraph("accelerator  ", 13, text);
    match all.iter().find(|attempt| attempt.name() == KVM).map(|attempt| &attempt.state) {
        Some(State::Worked(_) | State::Before(Ok(()))) => {
            line(known.map_or("KVM: a guest answered", |known| known.reason.as_str()))
        }
        Some(State::Lacking(KVM, failed) | State::Broken(failed) | State::Before(Err(failed))) => {
            line(&style.yellow(&failed.why)) + &fit::paragraph("  help: ", 8, &failed.mend)
        }
        Some(State::Lacking(name, _)) => line(&format!("KVM was not tried: a guest lacks {name}")),
        Some(State::Waits(other, _)) => line(&format!("KVM was not tried: it needs {other}")),
        Some(State::Found) | None => line("not known yet: the first guest finds out with a short test boot"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use vmio_model::result::Accel;
    use vmio_node::Fake;

    use super::*;

    fn bare() -> Vec<Attempt> {
        Attempt::found(&Fake::new("bare"), &mut Checks::new(), None)
    }

    fn failed() -> Failed {
        Failed { why: "it ended".into(), mend: "install it anew".into() }
    }

    #[test]
    fn nothing_is_said_to_work_that_was_not_tried() {
        let all = bare();
        assert_eq!(all.len(), ALL.len());
        for tried in &all {
            let said = tried.text(Style::PLAIN);
            assert!(said.starts_with("not tried: ") || said == "found, not tried", "{}: {said}", tried.name());
            assert!(tried.shown().is_empty() && tried.broken().is_none());
        }
        assert_eq!(text(&all, false, Style::PLAIN), "");
        let fio = all.iter().find(|tried| tried.name() == "fio").unwrap();
        assert_eq!(fio.text(Style::PLAIN), "not tried: lacks fio");
        assert_eq!((fio.json().state, fio.json().mend), ("lacking", Some("apt install fio")));
    }

    #[test]
    fn what_was_tried_says_how_long_it_took_or_what_helps() {
        let trial = ALL.iter().find(|trial| trial.name == "fio").unwrap();
        let worked = Attempt { trial, state: State::Worked(Duration::from_millis(1_234)) };
        assert_eq!(worked.text(Style::PLAIN), "tried, worked in 1.2 s");
        assert!(worked.shown().contains(&("workload", "durable-append")) && worked.broken().is_none());
        let broken = Attempt { trial, state: State::Broken(failed()) };
        assert_eq!(broken.text(Style::PLAIN), "tried, failed: it ended; help: install it anew");
        assert_eq!((broken.broken(), broken.shown()), (Some("fio"), &[][..]));
        let json = serde_json::to_value(broken.json()).unwrap();
        assert_eq!((&json["state"], &json["seconds"]), (&"failed".into(), &serde_json::Value::Null));
        let both = [worked, broken];
        let said = text(&both, false, Style::PLAIN);
        assert_eq!(said, "worked  fio (1.2 s)\nfailed  fio: it ended\n        help: install it anew\n");
    }

    /// A guest that has no image was not tried, whatever keeps the image from being there.
    #[test]
    fn what_builds_on_what_failed_is_not_tried() {
        let trial = |name: &str| ALL.iter().find(|trial| trial.name == name).unwrap();
        let emulated = trial("guest, emulated");
        for state in [State::Lacking("vmio-agent", failed()), State::Broken(failed())] {
            let all = [Attempt { trial: trial("guest image"), state }];
            let waits = Attempt { trial: emulated, state: waits(emulated, &all).unwrap() };
            assert_eq!(waits.text(Style::PLAIN), "not tried: needs guest image");
            let row = waits.json();
            assert_eq!((row.state, row.mend), ("lacking", Some("install it anew")));
            assert_eq!((row.why, waits.broken()), (Some("it needs guest image: it ended"), None));
            let kvm = Attempt { trial: trial(KVM), state: super::waits(trial(KVM), &[waits]).unwrap() };
            let said = accelerator(&[kvm], None, Style::PLAIN);
            assert_eq!(said, "accelerator  KVM was not tried: it needs guest, emulated\n");
        }
        let worked = Attempt { trial: trial("guest image"), state: State::Worked(Duration::ZERO) };
        assert!(waits(emulated, &[worked]).is_none());
    }

    #[test]
    fn there_is_one_answer_about_kvm() {
        let known = Accelerator { accel: Accel::Tcg, reason: "software emulation: a guest with KVM ended".into() };
        let state = of_kvm(&Fake::new("bare"), Some(&known));
        assert!(matches!(&state, State::Lacking(KVM, failed) if failed.why.contains("/dev/kvm does not exist")));
        let of = |state: State| {
            let trial = ALL.iter().find(|trial| trial.name == KVM).unwrap();
            let all = [Attempt { trial, state }];
            (all[0].json().state, accelerator(&all, Some(&known), Style::PLAIN))
        };
        assert_eq!(of(State::Found).0, "found");
        let (before, said) = of(State::Before(Err(failed())));
        assert_eq!((before, said.as_str()), ("failed", "accelerator  it ended\n  help: install it anew\n"));
        assert_eq!(of(State::Before(Ok(()))).0, "worked");
    }
}
