//! The settings of a cell: put before it, taken back after it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use vmio_model::cell::Cell;
use vmio_model::result::Mark;
use vmio_node::Journal;

use super::Machine;
use super::stage::Act;
use crate::engine::measure::Impossible;
use crate::settings::{self, ByDefault, Error, Fit, Setting, Undos, Where};

/// A setting of a cell, with its value.
pub(super) type Chosen = (&'static dyn Setting, String);

/// The settings that a cell names.
pub(super) fn chosen(cell: &Cell) -> anyhow::Result<Vec<Chosen>> {
    let find = |name: &str| settings::find(name).with_context(|| format!("no setting {name}"));
    cell.settings.iter().map(|(name, value)| Ok((find(name)?, value.clone()))).collect()
}

impl Machine<'_> {
    /// Puts settings for each actor that they are for. What was put until one failed is to be taken back all the
    /// same. A guest whose storage hangs gives no answer: then the run ends, and the journal takes back the host's.
    pub(super) fn put_settings(
        &mut self,
        chosen: Vec<Chosen>,
        acts: &Arc<Vec<Act>>,
    ) -> anyhow::Result<(Put, anyhow::Result<()>)> {
        if chosen.is_empty() && acts.iter().all(|act| by_default(act, &chosen).is_empty()) {
            return Ok((Put::default(), Ok(())));
        }
        let (acts, journal) = (Arc::clone(acts), Arc::clone(&self.journal));
        self.on_storage(move || put(&chosen, &acts, &journal))
    }

    /// Takes back what was put.
    pub(super) fn take_back(&mut self, put: Put) -> anyhow::Result<()> {
        // Where the storage is sick guests may hang, and all is taken back in its own way.
        if put.undos.is_empty() || self.sick.is_some() {
            return Ok(());
        }
        let journal = Arc::clone(&self.journal);
        self.on_storage(move || put.undos.take_back(&journal))?.map_err(|left| {
            let error = anyhow::Error::new(left.error).context("what was set for a cell cannot be set back");
            if left.on_host {
                // Cells to come would run with what was set for this one.
                self.stuck = Some(format!("{error:#}"));
            }
            error
        })
    }
}

/// What was set for a cell.
#[derive(Default)]
pub(super) struct Put {
    undos: Undos,
    /// What was in force, as read back, by whom it was set for.
    pub(super) effective: BTreeMap<String, BTreeMap<String, String>>,
    /// What a reader of the figures must know.
    pub(super) marks: BTreeSet<Mark>,
}

/// What is put for an actor though its cell does not name it.
fn by_default(act: &Act, chosen: &[Chosen]) -> Vec<(&'static dyn Setting, ByDefault)> {
    let traits = act.workload.traits();
    let named = |setting: &dyn Setting| chosen.iter().any(|(one, _)| one.name() == setting.name());
    let free = settings::ALL.iter().copied().filter(|setting| !named(*setting));
    free.filter_map(|setting| Some((setting, setting.by_default(&act.actor, &traits)?))).collect()
}

fn put(chosen: &[Chosen], acts: &[Act], journal: &Journal) -> (Put, anyhow::Result<()>) {
    let mut put = Put::default();
    let named = chosen.iter().try_for_each(|one| acts.iter().try_for_each(|act| put_one(one, act, journal, &mut put)));
    let all = named.and_then(|()| acts.iter().try_for_each(|act| put_defaults(act, chosen, journal, &mut put)));
    (put, all)
}

/// Puts what an actor gets without being named. Where it must not be put, what was found stays, and is told.
fn put_defaults(act: &Act, chosen: &[Chosen], journal: &Journal, into: &mut Put) -> anyhow::Result<()> {
    for (setting, ByDefault { value, otherwise }) in by_default(act, chosen) {
        let name = setting.name();
        let Some(end) = act.workload.roles().last().and_then(|role| act.stage.ends.get(role.name)) else { continue };
        let on = Where { actor: &act.actor, end, ports: &act.ports, journal };
        let applied = match setting.fits(&act.actor) {
            Fit::Sets => setting.apply(value, &on, &mut into.undos),
            Fit::Nothing(_) => continue,
            Fit::Refused(why) => Err(Error::Refused(why)),
        };
        let told = match applied {
            Ok(effective) => effective,
            Err(Error::Refused(_)) => match setting.found(end) {
                Some(found) if found == value => found,
                Some(found) => {
                    into.marks.insert(otherwise);
                    format!("{found}, as it was found")
                }
                None => continue,
            },
            Err(e) => {
                return Err(anyhow::Error::new(e).context(format!("cannot set {name} for {}", act.actor.key())));
            }
        };
        let at = format!("{} ({})", act.actor.place_key(), act.actor.workload);
        into.effective.entry(at).or_default().insert(name.to_owned(), told);
    }
    Ok(())
}

fn put_one((setting, value): &Chosen, act: &Act, journal: &Journal, into: &mut Put) -> anyhow::Result<()> {
    let name = setting.name();
    let failed = || format!("cannot set {name} to {value} for {}", act.actor.key());
    match setting.fits(&act.actor) {
        Fit::Sets => {}
        Fit::Nothing(_) => return Ok(()),
        Fit::Refused(why) => return Err(Impossible(format!("{}: {why}", failed())).into()),
    }
    // The role that is measured is the actor's own.
    let end = act.workload.roles().last().and_then(|role| act.stage.ends.get(role.name));
    let end = end.with_context(|| format!("{}: nothing was prepared for its workload", failed()))?;
    match setting.apply(value, &Where { actor: &act.actor, end, ports: &act.ports, journal }, &mut into.undos) {
        Ok(effective) => {
            let at = format!("{} [{name}={value}]", act.actor.place_key());
            into.effective.entry(at).or_default().insert(name.to_owned(), effective);
            Ok(())
        }
        Err(Error::Refused(why)) => Err(Impossible(format!("{}: {why}", failed())).into()),
        Err(e) => Err(anyhow::Error::new(e).context(failed())),
    }
}
