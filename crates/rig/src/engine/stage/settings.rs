//! The settings of a cell: put before it, taken back after it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use vmio_model::cell::Cell;
use vmio_model::read_at::ReadAt;
use vmio_model::result::Mark;
use vmio_model::study::GuardPolicy;
use vmio_node::Journal;

use super::{PreparedActor, Stager};
use crate::engine::measure::Impossible;
use crate::engine::stop::StopCause;
use crate::guests::Balloon;
use crate::nets::Port;
use crate::settings::{self, ByDefault, Error, Fit, Setting, Undos, Where};
use crate::workloads::End;

/// A setting of a cell, with its value.
pub type Chosen = (&'static dyn Setting, String);

/// The settings that a cell names.
pub fn chosen(cell: &Cell) -> anyhow::Result<Vec<Chosen>> {
    let find = |name: &str| settings::find(name).with_context(|| format!("no setting {name}"));
    let mut all: Vec<Chosen> =
        cell.settings.iter().map(|(name, value)| Ok((find(name)?, value.clone()))).collect::<anyhow::Result<_>>()?;
    // In the order of their list: a guard takes the link as the others have set it.
    all.sort_by_key(|(one, _)| settings::ALL.iter().position(|s| s.name() == one.name()));
    Ok(all)
}

impl Stager<'_, '_> {
    /// Puts settings for each actor that they are for. What was put until one failed is to be taken back all the
    /// same. A guest whose storage hangs gives no answer: then the run ends, and the journal takes back the host's.
    pub fn put_settings(
        &mut self,
        chosen: Vec<Chosen>,
        actors: &Arc<Vec<PreparedActor>>,
    ) -> anyhow::Result<(Put, anyhow::Result<()>)> {
        if chosen.is_empty() && actors.iter().all(|prepared| by_default(prepared, &chosen).is_empty()) {
            return Ok((Put::default(), Ok(())));
        }
        let (actors, journal) = (Arc::clone(actors), Arc::clone(&self.bed.journal));
        let (guards, run_dir) = (self.bed.study.guards.clone(), self.bed.run_dir.clone());
        let balloon = |prepared: &PreparedActor| self.guests.get(&prepared.actor.side)?.guest.balloon();
        let balloons: Vec<Option<Arc<dyn Balloon>>> = actors.iter().map(balloon).collect();
        self.bed.on_storage(move || {
            let on =
                Around { actors: &actors, balloons: &balloons, guards: &guards, run_dir: &run_dir, journal: &journal };
            put(&chosen, &on)
        })
    }

    /// Takes back what was put.
    pub fn take_back(&mut self, put: Put) -> anyhow::Result<()> {
        // Where the storage is sick guests may hang, and all is taken back in its own way.
        if put.undos.is_empty() || self.bed.storage_failed() {
            return Ok(());
        }
        let journal = Arc::clone(&self.bed.journal);
        self.bed.on_storage(move || put.undos.take_back(&journal))?.map_err(|left| {
            let error = anyhow::Error::new(left.error).context("what was set for a cell cannot be set back");
            if left.on_host {
                // Cells to come would run with what was set for this one.
                self.bed.stop_for(StopCause::SettingStuck(format!("{error:#}")));
            }
            error
        })
    }
}

/// What was set for a cell.
#[derive(Default)]
pub struct Put {
    undos: Undos,
    /// What was in force, as read back, by whom it was set for.
    pub effective: BTreeMap<ReadAt, BTreeMap<String, String>>,
    /// What a reader of the figures must know.
    pub marks: BTreeSet<Mark>,
}

/// What is put for an actor though its cell does not name it.
fn by_default(prepared: &PreparedActor, chosen: &[Chosen]) -> Vec<(&'static dyn Setting, ByDefault)> {
    let traits = prepared.workload.traits();
    let named = |setting: &dyn Setting| chosen.iter().any(|(one, _)| one.name() == setting.name());
    let free = settings::ALL.iter().copied().filter(|setting| !named(*setting));
    free.filter_map(|setting| Some((setting, setting.by_default(&prepared.actor, &traits)?))).collect()
}

/// What settings are put around.
struct Around<'a> {
    actors: &'a [PreparedActor],
    /// Those of their guests, in their order.
    balloons: &'a [Option<Arc<dyn Balloon>>],
    guards: &'a BTreeMap<String, GuardPolicy>,
    run_dir: &'a Path,
    journal: &'a Journal,
}

impl Around<'_> {
    /// Sets one for the actor at this place.
    fn apply(
        &self,
        setting: &dyn Setting,
        value: &str,
        place: usize,
        end: &End,
        undos: &mut Undos,
    ) -> settings::Result<String> {
        let ports: Vec<&[Port]> = self.actors.iter().map(|prepared| prepared.ports.as_slice()).collect();
        let prepared = &self.actors[place];
        let on = Where {
            actor: &prepared.actor,
            end,
            balloon: self.balloons.get(place).and_then(Option::as_ref),
            ports: &prepared.ports,
            card: prepared.card.as_ref(),
            cell: (&ports, place),
            guards: self.guards,
            run_dir: self.run_dir,
            journal: self.journal,
        };
        setting.apply(value, &on, undos)
    }
}

fn put(chosen: &[Chosen], on: &Around<'_>) -> (Put, anyhow::Result<()>) {
    let mut put = Put::default();
    let mut places = 0..on.actors.len();
    let named =
        chosen.iter().try_for_each(|one| (0..on.actors.len()).try_for_each(|place| put_one(one, on, place, &mut put)));
    let all = named.and_then(|()| places.try_for_each(|place| put_defaults(on, place, chosen, &mut put)));
    (put, all)
}

/// Puts what an actor gets without being named. Where it must not be put, what was found stays, and is told.
fn put_defaults(on: &Around<'_>, place: usize, chosen: &[Chosen], into: &mut Put) -> anyhow::Result<()> {
    let prepared = &on.actors[place];
    for (setting, ByDefault { value, otherwise }) in by_default(prepared, chosen) {
        let name = setting.name();
        let Some(end) = prepared.workload.roles().last().and_then(|role| prepared.stage.ends.get(role.name)) else {
            continue;
        };
        let applied = match setting.fits(value, &prepared.actor) {
            Fit::Sets => on.apply(setting, value, place, end, &mut into.undos),
            Fit::Nothing(_) => continue,
            Fit::Refused(why) => Err(Error::Refused(why)),
        };
        let told = match applied {
            Ok(effective) => effective,
            Err(Error::Refused(_)) => match setting.found(end) {
                Some(found) if found == value => found,
                Some(found) => {
                    into.marks.extend(otherwise);
                    format!("{found}, as it was found")
                }
                None => continue,
            },
            Err(e) => {
                return Err(anyhow::Error::new(e).context(format!("cannot set {name} for {}", prepared.actor.key())));
            }
        };
        into.effective.entry(ReadAt::kept(&prepared.actor)).or_default().insert(name.to_owned(), told);
    }
    Ok(())
}

fn put_one((setting, value): &Chosen, on: &Around<'_>, place: usize, into: &mut Put) -> anyhow::Result<()> {
    let prepared = &on.actors[place];
    let name = setting.name();
    let failed = || format!("cannot set {name} to {value} for {}", prepared.actor.key());
    match setting.fits(value, &prepared.actor) {
        Fit::Sets => {}
        Fit::Nothing(_) => return Ok(()),
        Fit::Refused(why) => return Err(Impossible(format!("{}: {why}", failed())).into()),
    }
    // The role that is measured is the actor's own.
    let end = prepared.workload.roles().last().and_then(|role| prepared.stage.ends.get(role.name));
    let end = end.with_context(|| format!("{}: nothing was prepared for its workload", failed()))?;
    match on.apply(*setting, value, place, end, &mut into.undos) {
        Ok(effective) => {
            into.effective
                .entry(ReadAt::set(&prepared.actor, name, value))
                .or_default()
                .insert(name.to_owned(), effective);
            Ok(())
        }
        Err(Error::Refused(why)) => Err(Impossible(format!("{}: {why}", failed())).into()),
        Err(e) => Err(anyhow::Error::new(e).context(failed())),
    }
}
