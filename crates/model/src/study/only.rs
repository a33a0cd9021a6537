//! Variants of a study: the cells of some resources, and the same cells with other guests.

use super::{Disks, Matrix, Names, Paths, Study, SubjectKind};
use crate::cell::{Aio, Cache, Kind, Options};
use crate::study::HostResource;

/// Share of a study's time for booting guests, which does not depend on the number of cells.
const BOOTS: f64 = 0.1;

impl Study {
    /// The study with the cells of these resources only; `None` without any. It keeps [`BOOTS`] of its time, and of the
    /// rest as much as its share of the cells. `names` has the groups of workloads.
    pub fn only(&self, resources: &[HostResource], names: &Names) -> Option<Study> {
        let wanted = |kind: SubjectKind, workload: &str| {
            let traits = names.traits.and_then(|of| of(workload));
            resources.contains(&HostResource::of(kind, traits.as_ref().and_then(|traits| traits.group.as_deref())))
        };
        let mut part = self.clone();
        for matrix in &mut part.matrix {
            let kind = matrix.subject_kind();
            matrix.workloads.retain(|workload| wanted(kind, workload));
        }
        part.matrix.retain(|matrix| !matrix.workloads.is_empty());
        part.named.retain(|named| {
            let lead = named.cell().map(|cell| cell.lead);
            lead.is_some_and(|lead| wanted(SubjectKind::of(&lead.subject), &lead.workload))
        });
        part.drop_what_only_disks_need();
        part.in_the_time_of(self)
    }

    /// Removes what only disks require or allow, where no cell is on a disk.
    pub(crate) fn drop_what_only_disks_need(&mut self) {
        if !self.has_disks() {
            (self.size, self.repeat.max_gib_written) = (None, None);
        }
        self.repeat.steady_state &= self.can_become_steady();
    }

    /// The study with guests of these kinds in place of its own, with the same baselines; `None` where it has no guests
    /// that vmio starts. Its time changes with the number of cells; its write budget does not.
    pub fn with_guests(&self, kinds: &[&str]) -> Option<Study> {
        let is_guest = |kind: &String| Kind::of(kind).is_guest();
        let mut other = self.clone();
        for matrix in &mut other.matrix {
            if !matrix.sides.iter().any(is_guest) {
                return None;
            }
            matrix.sides.retain(|kind| !is_guest(kind));
            matrix.sides.extend(kinds.iter().map(|kind| (*kind).to_owned()));
            if kinds.iter().all(|kind| Kind::of(kind).shares_kernel) {
                matrix.give_no_devices();
            }
        }
        other.in_the_time_of(self).filter(|_| self.named.is_empty())
    }

    /// Scales the time by the number of cells relative to another study; `None` without cells.
    fn in_the_time_of(mut self, whole: &Study) -> Option<Study> {
        let (own, all) = (self.cells().len(), whole.cells().len());
        self.repeat.max_minutes = whole.repeat.max_minutes * (BOOTS + (1.0 - BOOTS) * own as f64 / all as f64);
        (own > 0).then_some(self)
    }
}

impl Matrix {
    /// Removes attachments and cards, for guests without a machine.
    fn give_no_devices(&mut self) {
        if let Some(disks) = &mut self.disks {
            let (targets, states) = (std::mem::take(&mut disks.targets), std::mem::take(&mut disks.states));
            let (caches, aios) = (vec![Cache::None], vec![Aio::Native]);
            *disks = Disks {
                targets,
                states,
                drivers: Vec::new(),
                caches,
                aios,
                iothreads: vec![false],
                options: vec![Options::default()],
            };
        }
        if let Some(paths) = &mut self.paths {
            let (networks, peers) = (std::mem::take(&mut paths.networks), std::mem::take(&mut paths.peers));
            *paths = Paths { networks, peers, vhost: vec![false], ..Paths::default() };
        }
    }

    /// The kind of its subjects.
    fn subject_kind(&self) -> SubjectKind {
        match self {
            Matrix { disks: Some(_), .. } => SubjectKind::Disk,
            Matrix { paths: Some(_), .. } => SubjectKind::Path,
            _ => SubjectKind::Machine,
        }
    }
}
