//! The settings of a cell: put before it, taken back after it.

use std::collections::BTreeMap;

use anyhow::Context as _;
use vmio_model::cell::Cell;
use vmio_node::Journal;

use super::stage::Act;
use crate::engine::measure::Impossible;
use crate::settings::{self, Error, Fit, Setting, Undo, Where};

/// A setting of a cell, with its value.
pub(super) type Chosen<'a> = (&'a dyn Setting, &'a str);

/// The settings that a cell names.
pub(super) fn chosen(cell: &Cell) -> anyhow::Result<Vec<Chosen<'_>>> {
    let find = |name: &str| settings::find(name).with_context(|| format!("no setting {name}"));
    cell.settings.iter().map(|(name, value)| Ok((find(name)?, value.as_str()))).collect()
}

/// What was set for a cell.
#[derive(Default)]
pub(super) struct Put {
    /// How to take it back, with whether it is the host that it was set on.
    undo: Vec<(bool, Undo)>,
    /// What was in force, as read back, by whom it was set for.
    pub(super) effective: BTreeMap<String, BTreeMap<String, String>>,
}

/// What could not be taken back.
pub(super) struct Left {
    /// Whether it is the host's, where cells to come would meet it: a guest is booted anew.
    pub(super) on_host: bool,
    pub(super) error: anyhow::Error,
}

impl Put {
    /// Takes it back, the last one first.
    pub(super) fn take_back(&mut self, journal: &Journal) -> Result<(), Left> {
        let mut left: Option<Left> = None;
        while let Some((on_host, undo)) = self.undo.pop() {
            // One that fails does not keep the others from being undone.
            let Err(e) = undo(journal) else { continue };
            let error = anyhow::Error::new(e).context("what was set for a cell cannot be set back");
            let on_host = on_host || left.as_ref().is_some_and(|l| l.on_host);
            left = Some(Left { on_host, error: left.map_or(error, |l| l.error) });
        }
        left.map_or(Ok(()), Err)
    }
}

/// Puts settings for each actor that they are for. What was put until one failed is to be taken back all the same.
pub(super) fn put(chosen: &[Chosen<'_>], acts: &[Act], journal: &Journal) -> (Put, anyhow::Result<()>) {
    let mut put = Put::default();
    let all = chosen.iter().try_for_each(|one| acts.iter().try_for_each(|act| put_one(one, act, journal, &mut put)));
    (put, all)
}

fn put_one((setting, value): &Chosen<'_>, act: &Act, journal: &Journal, into: &mut Put) -> anyhow::Result<()> {
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
    match setting.apply(value, &Where { actor: &act.actor, end, ports: &act.ports, journal }) {
        Ok(applied) => {
            into.undo.push((act.actor.side.is_native(), applied.undo));
            let at = format!("{} [{name}={value}]", act.actor.place_key());
            into.effective.entry(at).or_default().insert(name.to_owned(), applied.effective);
            Ok(())
        }
        Err(Error::Refused(why)) => Err(Impossible(format!("{}: {why}", failed())).into()),
        Err(e) => Err(anyhow::Error::new(e).context(failed())),
    }
}
