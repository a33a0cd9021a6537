//! The gains of the fixes in a run set up like a guest (`vmio tax --like`): each set-up against the guest's own, paired
//! by round. The study's first matrix is the guest's set-up.

use vmio_model::cell::Cell;
use vmio_model::facts::gain_ratio;
use vmio_model::kind::RunKind;
use vmio_model::run::Run;
use vmio_model::stats::Ratio;
use vmio_model::study::Study;

use super::format;

/// The gain of a set-up with fixes on one workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Gain {
    /// The workload.
    pub workload: String,
    /// The differences from the guest's set-up: `virtio-blk, cache=none, on preallocated`.
    pub what: String,
    /// Ratio to the guest's set-up: above 1 is faster.
    pub gain_ratio: Ratio,
}

impl Gain {
    /// `rand-read-32: 9.43 (8.10–10.90) times as fast with virtio-blk`.
    pub fn line(&self) -> String {
        format!("{}: {} times as fast with {}", self.workload, format::factor(&self.gain_ratio), self.what)
    }
}

/// The title of a study of `--like`: the guest, and when it was read.
pub fn title(run: &Run) -> Option<&str> {
    Some(&study(run)?.title)
}

/// The gains of a run, by workload; none for other studies.
pub fn gains(run: &Run) -> Vec<Gain> {
    let Some(study) = study(run) else { return Vec::new() };
    let set_ups: Vec<Cell> = study.matrix.iter().filter_map(|m| one(study, m)).collect();
    let Some((found, fixes)) = set_ups.split_first() else { return Vec::new() };
    let workloads = study.matrix.first().map(|m| m.workloads.as_slice()).unwrap_or_default();
    let each = workloads.iter().flat_map(|workload| {
        let at = |cell: &Cell| cell.clone().running(workload.clone());
        let gain = move |fix: &Cell| {
            let gain_ratio = gain_ratio(run, &at(found), &at(fix))?;
            Some(Gain { workload: workload.clone(), what: differs(found, fix), gain_ratio })
        };
        fixes.iter().filter_map(gain).collect::<Vec<_>>()
    });
    each.collect()
}

fn study(run: &Run) -> Option<&Study> {
    match run.kind {
        RunKind::Like(_) => Some(&run.study),
        RunKind::Study(_) | RunKind::Noise(_) | RunKind::Proof(_) => None,
    }
}

/// The guest's cell of a matrix of one set-up.
fn one(study: &Study, matrix: &vmio_model::study::Matrix) -> Option<Cell> {
    Study { matrix: vec![matrix.clone()], ..study.clone() }.cells().into_iter().find(|c| !c.is_native())
}

fn differs(found: &Cell, fix: &Cell) -> String {
    let mut words = Vec::new();
    if let (Some(a), Some(b)) = (found.attachment(), fix.attachment()) {
        if a.driver != b.driver {
            words.push(b.driver.clone());
        }
        if a.cache != b.cache {
            words.push(format!("cache={}", b.cache));
        }
        if a.aio != b.aio {
            words.push(format!("aio={}", b.aio));
        }
        if a.iothread != b.iothread {
            words.push((if b.iothread { "an I/O thread" } else { "no I/O thread" }).to_owned());
        }
        if a.options != b.options {
            words.push(format!("options {}", b.options));
        }
    }
    if let Some(target) = fix.target().filter(|target| found.target() != Some(target)) {
        words.push(format!("the disk on {target}"));
    }
    words.join(", ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vmio_model::cell::{Aio, Attachment, Cache};
    use vmio_model::study::Matrix;

    #[test]
    fn each_mend_is_set_against_the_guests_own_set_up() {
        let quick = crate::studies::named("quick").unwrap();
        let work = ["rand-read-32".to_owned()];
        let lsi = Attachment::new("lsi53c895a", Cache::Writeback, Aio::Threads);
        let virtio = Attachment::new("virtio-blk", Cache::None, Aio::Native).iothread(true);
        let of = |target: &str, a: &Attachment| Matrix::of(target, "qemu", Some(a), &work);
        let study = Study { matrix: vec![of("sparse", &lsi), of("preallocated", &virtio)], ..quick };
        let cells: Vec<Cell> = study.matrix.iter().map(|m| one(&study, m).unwrap()).collect();
        assert_eq!(
            differs(&cells[0], &cells[1]),
            "virtio-blk, cache=none, aio=native, an I/O thread, the disk on preallocated"
        );
        assert_eq!(cells[0].workload(), "rand-read-32");
    }
}
