//! The settings of a cell: put before it, taken back after it.

use std::collections::BTreeMap;

use anyhow::Context as _;
use vmio_model::cell::Cell;
use vmio_node::Journal;

use super::Machine;
use super::stage::Act;
use crate::settings::{self, Applied, Where};

/// What was set for a cell.
#[derive(Default)]
pub(super) struct Put(Vec<Applied>);

impl Put {
    /// Takes it back, the last one first.
    pub(super) fn undo(mut self, journal: &Journal) -> anyhow::Result<()> {
        let mut first = Ok(());
        while let Some(applied) = self.0.pop() {
            let undone = applied.undo.map_or(Ok(()), |undo| undo(journal));
            // One that fails does not keep the others from being undone.
            first = first.and(undone);
        }
        first.context("what was set for a cell cannot be set back")
    }
}

impl Machine<'_> {
    /// Puts a cell's settings for each of its actors, and stores as what they read back.
    pub(super) fn put_settings(&self, cell: &Cell, acts: &[Act]) -> anyhow::Result<Put> {
        let mut put = Put::default();
        for (name, value) in &cell.settings {
            let setting = settings::find(name).with_context(|| format!("no setting {name}"))?;
            for act in acts {
                let target = act.actor.target().and_then(|target| self.targets.get(target));
                let Some(end) = act.stage.ends.values().next() else { continue };
                let on = Where { actor: &act.actor, end, native: target.map(|t| t.native()), journal: &self.journal };
                match setting.apply(value, &on) {
                    Ok(applied) => {
                        let at = format!("{} [{name}={value}]", act.actor.place_key());
                        let found = BTreeMap::from([(name.clone(), applied.effective.clone())]);
                        put.0.push(applied);
                        self.store.add_effective(self.run, &at, &found)?;
                    }
                    Err(e) => {
                        let failed = e.context(format!("cannot set {name} to {value} for {}", act.actor.key()));
                        put.undo(&self.journal)?;
                        return Err(failed);
                    }
                }
            }
        }
        Ok(put)
    }
}
