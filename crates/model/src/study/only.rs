//! A part of a study: what of it is of some natures.

use super::{Matrix, Names, Sort, Study};
use crate::study::Nature;

/// The share of a study's time in which guests boot: as often for few cells as for many.
const BOOTS: f64 = 0.1;

impl Study {
    /// The study with those of its cells alone that are of these natures; `None` where none is. It keeps [`BOOTS`] of its
    /// time, and of the rest as much as they are of its cells. The groups of workloads are asked of `names`.
    pub fn only(&self, natures: &[Nature], names: &Names) -> Option<Study> {
        let wanted = |sort: Sort, workload: &str| {
            let traits = names.traits.and_then(|of| of(workload));
            let nature = Nature::of(sort, traits.as_ref().and_then(|traits| traits.group.as_deref()));
            nature.is_some_and(|nature| natures.contains(&nature))
        };
        let mut part = self.clone();
        for matrix in &mut part.matrix {
            let sort = matrix.sort();
            matrix.workloads.retain(|workload| wanted(sort, workload));
        }
        part.matrix.retain(|matrix| !matrix.workloads.is_empty());
        part.named.retain(|named| {
            let lead = named.cell().map(|cell| cell.lead);
            lead.is_some_and(|lead| wanted(Sort::of(&lead.subject), &lead.workload))
        });
        let (left, all) = (part.cells().len(), self.cells().len());
        if left == 0 {
            return None;
        }
        part.repeat.max_minutes = self.repeat.max_minutes * (BOOTS + (1.0 - BOOTS) * left as f64 / all as f64);
        if !part.has_disks() {
            (part.size, part.repeat.max_gib_written) = (None, None);
        }
        Some(part)
    }

    /// The natures of its cells, each once, in the order in which they are shown.
    pub fn natures(&self, names: &Names) -> Vec<Nature> {
        Nature::ALL.into_iter().filter(|nature| self.only(&[*nature], names).is_some()).collect()
    }
}

impl Matrix {
    /// The sort of its subjects.
    fn sort(&self) -> Sort {
        match self {
            Matrix { disks: Some(_), .. } => Sort::Disk,
            Matrix { paths: Some(_), .. } => Sort::Path,
            Matrix { machine: true, .. } => Sort::Machine,
            _ => Sort::Cluster,
        }
    }
}
