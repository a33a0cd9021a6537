//! From a study to its cells.

use std::collections::BTreeSet;

use super::{Disks, Matrix, NamedCell, Paths, Study};
use crate::cell::{Attachment, Cell, Nic, Settings, Shape, Side, Subject};

impl Study {
    /// All cells, each once, in a stable order: by subject and workload as the study first names
    /// them, the baseline at the head of its group, then what is compared with it. Each cell's
    /// baseline is among them whether the study names it or not.
    pub fn cells(&self) -> Vec<Cell> {
        self.groups().into_iter().flatten().collect()
    }

    /// The cells as the study names them, each as often as it does.
    pub(super) fn named_cells(&self) -> impl Iterator<Item = Cell> {
        self.matrix.iter().flat_map(Matrix::cells).chain(self.named.iter().filter_map(NamedCell::cell))
    }

    /// The cells by what they are compared with: the cells of a group run next to each other. Where nothing is
    /// compared a group has what does the same work on the same thing.
    pub fn groups(&self) -> Vec<Vec<Cell>> {
        let mut seen = BTreeSet::new();
        let mut groups: Vec<(Cell, Vec<Cell>)> = Vec::new();
        for cell in self.named_cells() {
            let baseline = self.baseline.of(&cell);
            let head = baseline.clone().unwrap_or_else(|| cell.natively());
            let at = groups.iter().position(|(of, _)| *of == head).unwrap_or_else(|| {
                seen.extend(baseline.clone());
                groups.push((head, baseline.into_iter().collect()));
                groups.len() - 1
            });
            if seen.insert(cell.clone()) {
                groups[at].1.push(cell);
            }
        }
        groups.into_iter().map(|(_, cells)| cells).collect()
    }
}

impl Matrix {
    /// The cells of one side on one target: a guest with this attachment, or the native side with
    /// none.
    pub fn of(target: &str, side: &str, attachment: Option<&Attachment>, workloads: &[String]) -> Matrix {
        let disks = Disks {
            targets: vec![target.to_owned()],
            drivers: attachment.iter().map(|a| a.driver.clone()).collect(),
            caches: attachment.iter().map(|a| a.cache).collect(),
            aios: attachment.iter().map(|a| a.aio).collect(),
            iothreads: attachment.iter().map(|a| a.iothread).collect(),
            options: attachment.iter().map(|a| a.options.clone()).collect(),
        };
        Matrix { sides: vec![side.to_owned()], disks: Some(disks), workloads: workloads.to_vec(), ..Matrix::default() }
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        let settings = self.each_settings();
        for place in self.places() {
            for workload in &self.workloads {
                for settings in &settings {
                    for side in self.each_side() {
                        for subject in self.seen_from(&side, &place) {
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
                let side = Side { shape: shape.clone(), ..Side::of(kind.clone()) };
                let side = if side.is_native() { side.natively() } else { side };
                // Shapes that differ in what only a guest has are one natively.
                if !all.contains(&side) {
                    all.push(side);
                }
            }
        }
        all
    }

    /// The subjects as the native side has them.
    fn places(&self) -> Vec<Subject> {
        let mut all = Vec::new();
        if let Some(Disks { targets, .. }) = &self.disks {
            all.extend(targets.iter().map(|t| Subject::Disk { target: t.clone(), attachment: None }));
        }
        if let Some(Paths { networks, peers, .. }) = &self.paths {
            for network in networks {
                let to = |peer: &String| Subject::Path { network: network.clone(), peer: peer.clone(), nic: None };
                all.extend(peers.iter().map(to));
            }
        }
        all.extend(self.machine.then_some(Subject::Machine));
        all.extend(self.clusters.iter().map(|&nodes| Subject::Cluster { nodes }));
        all
    }

    /// A subject as a side sees it, in each way that the matrix names.
    fn seen_from(&self, side: &Side, place: &Subject) -> Vec<Subject> {
        match (place, &self.disks, &self.paths) {
            _ if side.is_native() => vec![place.clone()],
            (Subject::Disk { target, .. }, Some(disks), _) => {
                let by = |a: Attachment| Subject::Disk { target: target.clone(), attachment: Some(a) };
                disks.attachments().into_iter().map(by).collect()
            }
            (Subject::Path { network, peer, .. }, _, Some(paths)) => {
                let by = |nic: Nic| Subject::Path { network: network.clone(), peer: peer.clone(), nic: Some(nic) };
                paths.cards().into_iter().map(by).collect()
            }
            _ => vec![place.clone()],
        }
    }

    /// Each combination of settings.
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

impl Disks {
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
    fn cards(&self) -> Vec<Nic> {
        let mut all = Vec::new();
        let queues: Vec<Option<u32>> = match self.queues.is_empty() {
            true => vec![None],
            false => self.queues.iter().map(|&n| Some(n)).collect(),
        };
        for model in &self.nics {
            for &vhost in if self.vhost.is_empty() { &[false][..] } else { &self.vhost } {
                all.extend(queues.iter().map(|&queues| Nic { model: model.clone(), vhost, queues }));
            }
        }
        all
    }
}
