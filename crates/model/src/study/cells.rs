//! From a study to its cells.

use std::collections::BTreeSet;

use super::{Matrix, Study};
use crate::setup::{Attachment, Setup};

impl Study {
    /// All cells, each once, in a stable order: by target and workload as the study first names
    /// them, the native baseline at the head of its group, then the guests. Each guest cell's
    /// baseline is among them whether the study names `native` or not.
    pub fn cells(&self) -> Vec<Setup> {
        self.groups().into_iter().flatten().collect()
    }

    /// The cells by target and workload: the cells of a group run next to each other.
    pub fn groups(&self) -> Vec<Vec<Setup>> {
        let mut seen = BTreeSet::new();
        let mut groups: Vec<Vec<Setup>> = Vec::new();
        for setup in self.matrix.iter().flat_map(Matrix::cells) {
            let baseline = setup.baseline();
            let at = groups.iter().position(|g| g[0] == baseline).unwrap_or_else(|| {
                seen.insert(baseline.clone());
                groups.push(vec![baseline]);
                groups.len() - 1
            });
            if seen.insert(setup.clone()) {
                groups[at].push(setup);
            }
        }
        groups
    }
}

impl Matrix {
    /// The cells of one side on one target: a guest with this attachment, or the native side with
    /// none.
    pub fn of(target: &str, guest: &str, attachment: Option<&Attachment>, workloads: &[String]) -> Matrix {
        Matrix {
            targets: vec![target.to_owned()],
            guests: vec![guest.to_owned()],
            drivers: attachment.iter().map(|a| a.driver.clone()).collect(),
            caches: attachment.iter().map(|a| a.cache).collect(),
            aios: attachment.iter().map(|a| a.aio).collect(),
            iothreads: attachment.iter().map(|a| a.iothread).collect(),
            options: attachment.iter().map(|a| a.options.clone()).collect(),
            workloads: workloads.to_vec(),
        }
    }

    fn cells(&self) -> Vec<Setup> {
        let mut cells = Vec::new();
        for target in &self.targets {
            for workload in &self.workloads {
                for guest in &self.guests {
                    let setup = |attachment| Setup {
                        guest: guest.clone(),
                        target: target.clone(),
                        attachment,
                        workload: workload.clone(),
                    };
                    if guest == "native" {
                        cells.push(setup(None));
                    } else {
                        cells.extend(self.attachments().into_iter().map(|a| setup(Some(a))));
                    }
                }
            }
        }
        cells
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
