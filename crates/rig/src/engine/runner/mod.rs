//! Runs cells on what was prepared: boots the guests, measures, stops.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use vmio_model::cell::{Actor, Cell, Kind, State};
use vmio_model::rate::ByteRate;
use vmio_model::result::Sample;
use vmio_model::study::plan::spans::hard_bytes;

use self::observe::UNCAPPED;
use super::bed::Bed;
use super::measure::Rig;
use super::stage::{Guests, RunLimits, Stager};
use crate::disks::targets;
use crate::engine::stop::StopCause;
use crate::nets;
use crate::workloads::{self, Gentle};

mod boot;
mod links;
mod observe;
mod rest;
#[cfg(test)]
pub(super) mod tests;

/// Length of the probe that a cap of `--gentle` comes from.
const PROBE_SECONDS: f64 = 0.5;
/// How a target is written for steady state: in large requests from its start to its end (SNIA SSS
/// PTS, "workload independent preconditioning": 128 KiB sequential writes).
const PRECONDITION: &str = "seq-write-128k-d8";
/// Slowest rate at which that is expected to go on.
const PRECONDITION_LEAST_RATE: ByteRate = ByteRate::new(1 << 20);

/// Runs cells.
pub struct Runner<'a> {
    pub bed: Bed<'a>,
    guests: Guests,
    /// `--gentle`: the cap of each workload that was probed.
    caps: BTreeMap<String, Gentle>,
    /// What probes could not read during the last cell, in words.
    unread: Vec<String>,
    /// What of that was told.
    told: BTreeSet<String>,
}

impl<'a> Runner<'a> {
    /// With no guest yet.
    pub fn on(bed: Bed<'a>) -> Self {
        Self { bed, guests: Guests::new(), caps: BTreeMap::new(), unread: Vec::new(), told: BTreeSet::new() }
    }

    /// Ends the guests, and takes down what they were on.
    pub fn finish(self) {
        for (_, running) in self.guests {
            let _ = running.guest.stop();
        }
        self.bed.take_down();
    }

    fn stager(&mut self) -> Stager<'_, 'a> {
        Stager { bed: &mut self.bed, guests: &self.guests }
    }

    /// The caps of a cell's actors: each found by a short native run of its workload when it is first needed.
    fn caps_of(&mut self, cell: &Cell) -> anyhow::Result<Vec<Option<Gentle>>> {
        cell.actors().map(|actor| self.cap_of(actor)).collect()
    }

    fn cap_of(&mut self, actor: &Actor) -> anyhow::Result<Option<Gentle>> {
        let share = self.bed.record.environment.cap_ratio;
        let Some(share) = share.filter(|_| actor.subject.is_disk() && !actor.side.is_afar()) else {
            return Ok(None);
        };
        let workload = &actor.workload;
        if let Some(&known) = self.caps.get(workload) {
            return Ok(Some(known));
        }
        let native = Cell::on(Kind::NATIVE.name, actor.target().unwrap_or_default(), None, workload);
        let limits = RunLimits { seconds: PROBE_SECONDS, most_bytes: None, caps: UNCAPPED };
        let probe = self.observe(&native, (0, 0), limits).context("the short probe for the cap failed")?;
        let work = probe.work();
        self.bed.record.record_extra_writes(work.write_bytes)?;
        let cap = crate::gentle::cap::cap(work.bandwidth(), share)?.bytes_per_second;
        (self.bed.progress)(&format!("gentle: {workload} is held to {:.2} MB/s", cap.bytes() as f64 / 1e6));
        let gentle = Gentle { cap };
        self.caps.insert(workload.clone(), gentle);
        Ok(Some(gentle))
    }

    /// Writes over each target that cells of the group write to. The specification writes twice the device's capacity;
    /// making a target, and the workloads before, wrote it already.
    fn write_once_more(&mut self, group: &[Cell]) -> anyhow::Result<Option<StopCause>> {
        let bytes = self.bed.study.target_bytes();
        for target in self.bed.study.preconditions(group, self.bed.traits, &self.bed.targets.refilled) {
            if !self.bed.targets.made.contains_key(&target) {
                continue;
            }
            if let Some(reason) = self.must_stop() {
                return Ok(Some(reason));
            }
            (self.bed.progress)(&format!("steady state: writing {} MiB over the target {target}", bytes >> 20));
            let cell = Cell::on(Kind::NATIVE.name, &target, None, PRECONDITION);
            let caps = self.caps_of(&cell)?;
            let seconds = (bytes / PRECONDITION_LEAST_RATE.bytes()).max(60) as f64;
            let limits = RunLimits { seconds, most_bytes: Some(u64::MAX), caps: &caps };
            let written = self.observe(&cell, (0, 0), limits).context("cannot write for steady state")?;
            self.bed.record.record_extra_writes(written.work().write_bytes)?;
        }
        Ok(None)
    }

    /// Tells once what could not be read: its figures are of fewer samples.
    fn tell_unread(&mut self) {
        for note in std::mem::take(&mut self.unread) {
            if !self.told.contains(&note) {
                (self.bed.progress)(&note);
                self.told.insert(note);
            }
        }
    }

    /// Looks whether the peer of a cell that failed is still there. Without it every cell over a path to it fails, or on
    /// a disk that it serves, which says nothing of any.
    fn look_for_peer(&mut self, cell: &Cell) {
        let needs = |actor: &Actor| nets::is_over_wire(actor) || targets::of_peer(actor).is_some();
        let peer = self.bed.nodes.peer().filter(|_| cell.actors().any(needs));
        let Some(Err(e)) = peer.map(|(machine, _)| machine.node.clock_seconds()) else { return };
        self.bed.stop_for(StopCause::PeerLost(format!(
            "the machine at the other end of the network wire does not answer: {e}; once it can be reached, \
             continue with --resume and the same --peer"
        )));
    }
}

impl Rig for Runner<'_> {
    fn boot(&mut self, boot: u32) -> anyhow::Result<()> {
        let booted = self.boot_guests(boot);
        self.bed.find_stop_cause(booted)
    }

    fn cell(&mut self, cell: &Cell, round: u32, boot: u32) -> anyhow::Result<Sample> {
        let measured = self.caps_of(cell).and_then(|caps| {
            let seconds = self.bed.study.repeat.seconds_on(&cell.lead.subject);
            let limits = RunLimits { seconds, most_bytes: None, caps: &caps };
            self.observe(cell, (round, boot), limits)
        });
        match measured {
            Ok(_) => self.tell_unread(),
            Err(_) => self.look_for_peer(cell),
        }
        self.bed.find_stop_cause(measured)
    }

    fn precondition(&mut self, group: &[Cell]) -> anyhow::Result<Option<StopCause>> {
        let written = self.write_once_more(group);
        match self.bed.find_stop_cause(written) {
            Err(_) if self.bed.stop.is_some() => Ok(self.bed.stop.clone()),
            other => other,
        }
    }

    fn precondition_bytes(&self, group: &[Cell]) -> u64 {
        let Bed { study, traits, targets, .. } = &self.bed;
        study.preconditions(group, traits, &targets.refilled).len() as u64 * study.target_bytes()
    }

    fn written_beside(&self) -> u64 {
        self.bed.record.environment.written_beside_bytes
    }

    fn most_bytes(&self, cell: &Cell) -> u64 {
        let most = |actor: &Actor| {
            let Some(target) = actor.target() else { return 0 };
            let writes = workloads::find(&actor.workload).is_some_and(|w| w.traits().writes());
            let own = if writes { hard_bytes(self.bed.span_of(&actor.workload)) } else { 0 };
            // What is to find data on a target that others empty may have to write it out first.
            let fills = actor.state().map_or(!writes, |state| state != State::Fresh);
            let refills = fills && self.bed.targets.refilled.iter().any(|r| r == target);
            own + if refills { self.bed.study.target_bytes() } else { 0 }
        };
        cell.actors().map(most).sum()
    }

    fn ending(&self) -> bool {
        self.bed.journal.is_closed()
    }

    fn must_stop(&mut self) -> Option<StopCause> {
        self.bed.must_stop()
    }
}
