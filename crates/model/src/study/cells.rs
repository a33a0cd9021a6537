//! The cells of a study.

use std::collections::{BTreeMap, BTreeSet};

use super::{Disks, Matrix, NamedCell, Paths, Study};
use crate::cell::{Attachment, Cell, Kind, Nic, Settings, Shape, Side, State, Subject};

/// Most cells of a study: with that many each has less than a minute of a week.
pub const MOST_CELLS: u64 = 10_000;

impl Study {
    /// Number of named cells, duplicates included, calculated without making them: a few lines can multiply to more
    /// than fits in memory.
    pub fn named_count(&self) -> u64 {
        let of_matrices = self.matrix.iter().fold(0, |sum: u64, matrix| sum.saturating_add(matrix.count()));
        of_matrices.saturating_add(self.named.len() as u64)
    }

    /// All cells, each once, in a stable order: by subject and workload as first named, the baseline first in its
    /// group. Baselines are included, named or not. Empty for more than [`MOST_CELLS`], which a stored study may name.
    pub fn cells(&self) -> Vec<Cell> {
        self.groups().into_iter().flatten().collect()
    }

    /// The cells without these keys.
    pub fn cells_but(&self, skipped: &BTreeSet<String>) -> Vec<Cell> {
        self.cells().into_iter().filter(|cell| !skipped.contains(&cell.key())).collect()
    }

    /// The cells as named, with duplicates.
    pub(crate) fn named_cells(&self) -> impl Iterator<Item = Cell> {
        let fits = self.named_count() <= MOST_CELLS;
        let (matrix, named) = if fits { (&self.matrix[..], &self.named[..]) } else { (&[][..], &[][..]) };
        matrix.iter().flat_map(Matrix::cells).chain(named.iter().filter_map(NamedCell::cell))
    }

    /// The cells by baseline, whose groups run together. Without a baseline a group has the cells with the same work on
    /// the same subject.
    pub fn groups(&self) -> Vec<Vec<Cell>> {
        let mut seen = BTreeSet::new();
        let mut groups: Vec<Vec<Cell>> = Vec::new();
        let mut heads: BTreeMap<Cell, usize> = BTreeMap::new();
        for cell in self.named_cells() {
            let baseline = self.baseline.of(&cell);
            let head = baseline.clone().unwrap_or_else(|| cell.natively());
            let at = *heads.entry(head).or_insert_with(|| {
                seen.extend(baseline.clone());
                groups.push(baseline.into_iter().collect());
                groups.len() - 1
            });
            if seen.insert(cell.clone()) {
                groups[at].push(cell);
            }
        }
        groups
    }

    /// All cells of these groups' kind.
    pub(super) fn groups_of(&self, some: &[Vec<Cell>]) -> impl Iterator<Item = Cell> {
        let of = |group: &Vec<Cell>| some.iter().flatten().any(|cell| group.contains(cell));
        self.groups().into_iter().filter(of).flatten().collect::<Vec<_>>().into_iter()
    }
}

impl Matrix {
    /// The cells of one side on one target: a guest with this attachment, or the native side without one.
    pub fn of(target: &str, side: &str, attachment: Option<&Attachment>, workloads: &[String]) -> Matrix {
        let disks = Disks {
            targets: vec![target.to_owned()],
            states: Vec::new(),
            drivers: attachment.iter().map(|a| a.driver.clone()).collect(),
            caches: attachment.iter().map(|a| a.cache).collect(),
            aios: attachment.iter().map(|a| a.aio).collect(),
            iothreads: attachment.iter().map(|a| a.iothread).collect(),
            options: attachment.iter().map(|a| a.options.clone()).collect(),
        };
        Matrix { sides: vec![side.to_owned()], disks: Some(disks), workloads: workloads.to_vec(), ..Matrix::default() }
    }

    /// Upper limit of its number of cells.
    pub(super) fn count(&self) -> u64 {
        let places = self.disks.as_ref().map_or(0, |d| product([d.targets.len(), d.states.len().max(1)]))
            + self.paths.as_ref().map_or(0, |p| product([p.networks.len(), p.peers.len()]))
            + u64::from(self.machine);
        let ways = match (&self.disks, &self.paths) {
            (Some(disks), _) => disks.count(),
            (_, Some(paths)) => paths.count(),
            _ => 1,
        };
        let of = |kind: &String| if Kind::of(kind).shares_kernel { 1 } else { ways };
        let seen_by_all = self.sides.iter().map(of).fold(0, u64::saturating_add);
        let values = product(self.settings.values().map(Vec::len));
        let shapes = self.shapes.len().max(1) as u64;
        [places, seen_by_all, shapes, self.workloads.len() as u64, values].into_iter().fold(1, u64::saturating_mul)
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        let (settings, sides) = (self.each_settings(), self.each_side());
        for place in self.places() {
            for workload in &self.workloads {
                for settings in &settings {
                    for side in &sides {
                        for subject in self.seen_from(side, &place) {
                            let cell = Cell::of(side.clone(), subject, workload.clone());
                            cells.push(Cell { settings: settings.clone(), ..cell });
                        }
                    }
                }
            }
        }
        cells
    }

    fn each_side(&self) -> Vec<Side> {
        let plain = [Shape::default()];
        let shapes = if self.shapes.is_empty() { &plain[..] } else { &self.shapes };
        let mut all: Vec<Side> = Vec::new();
        for kind in &self.sides {
            for shape in shapes {
                let shape = if Kind::of(kind).shares_kernel { shape.natively() } else { shape.clone() };
                let side = Side { shape, ..Side::of(kind.clone()) };
                // Shapes that differ in properties of a machine only are one under the host's kernel.
                if !all.contains(&side) {
                    all.push(side);
                }
            }
        }
        all
    }

    /// The subjects for the native side.
    fn places(&self) -> Vec<Subject> {
        let mut all = Vec::new();
        if let Some(disks) = &self.disks {
            for target in &disks.targets {
                let on = |state| Subject::Disk { target: target.clone(), attachment: None, state };
                all.extend(disks.each_state().into_iter().map(on));
            }
        }
        if let Some(Paths { networks, peers, .. }) = &self.paths {
            for network in networks {
                let to = |peer: &String| Subject::path(network, peer, None);
                all.extend(peers.iter().map(to));
            }
        }
        all.extend(self.machine.then_some(Subject::Machine));
        all
    }

    /// A subject with each attachment or card of the matrix, for a side.
    fn seen_from(&self, side: &Side, place: &Subject) -> Vec<Subject> {
        match (place, &self.disks, &self.paths) {
            _ if side.shares_kernel() => {
                let mut own = place.clone();
                own.see_no_device();
                vec![own]
            }
            (Subject::Disk { target, state, .. }, Some(disks), _) if !disks.drivers.is_empty() => {
                let by = |a| Subject::Disk { target: target.clone(), attachment: Some(a), state: *state };
                disks.attachments().into_iter().map(by).collect()
            }
            (Subject::Path { network, peer, .. }, _, Some(paths)) if !paths.nics.is_empty() => {
                let by = |nic: Nic| Subject::path(network, peer, Some(nic));
                paths.cards().into_iter().map(by).collect()
            }
            _ => vec![place.clone()],
        }
    }

    /// All combinations of settings.
    fn each_settings(&self) -> Vec<Settings> {
        let mut all = vec![Settings::new()];
        for (name, values) in &self.settings {
            let with = |settings: &Settings| {
                let settings = settings.clone();
                values.iter().map(move |value| {
                    let mut settings = settings.clone();
                    settings.insert(name.clone(), value.clone());
                    settings
                })
            };
            all = all.iter().flat_map(with).collect();
        }
        all
    }
}

/// The product of lengths, saturating.
fn product(lengths: impl IntoIterator<Item = usize>) -> u64 {
    lengths.into_iter().fold(1, |product: u64, length| product.saturating_mul(length as u64))
}

impl Disks {
    fn count(&self) -> u64 {
        let Self { targets: _, states: _, drivers, caches, aios, iothreads, options } = self;
        product([drivers.len().max(1), caches.len(), aios.len(), iothreads.len(), options.len()])
    }

    fn each_state(&self) -> Vec<Option<State>> {
        if self.states.is_empty() { vec![None] } else { self.states.iter().copied().map(Some).collect() }
    }

    fn attachments(&self) -> Vec<Attachment> {
        let mut all = Vec::new();
        for driver in &self.drivers {
            for &cache in &self.caches {
                for &aio in &self.aios {
                    for &iothread in &self.iothreads {
                        for options in &self.options {
                            let driver = driver.clone();
                            all.push(Attachment { driver, cache, aio, iothread, options: options.clone() });
                        }
                    }
                }
            }
        }
        all
    }
}

impl Paths {
    fn count(&self) -> u64 {
        product([self.nics.len().max(1), self.vhost.len().max(1), self.queues.len().max(1), self.rings.len().max(1)])
    }

    fn cards(&self) -> Vec<Nic> {
        let mut all = Vec::new();
        let each = |of: &[u32]| if of.is_empty() { vec![None] } else { of.iter().map(|&n| Some(n)).collect() };
        let (queues, rings) = (each(&self.queues), each(&self.rings));
        for model in &self.nics {
            for &vhost in if self.vhost.is_empty() { &[false][..] } else { &self.vhost } {
                for &queues in &queues {
                    all.extend(rings.iter().map(|&ring| Nic { model: model.clone(), vhost, queues, ring }));
                }
            }
        }
        all
    }
}
