//! The papers' figures that come with vmio (`papers/*.toml`), in the binary.

use std::sync::LazyLock;

use vmio_model::kind::RunKind;
use vmio_model::paper::Paper;

/// One line a file of `papers/`.
const FILES: &[(&str, &str)] =
    &[("papers/shafer2010_storage.toml", include_str!("../../../papers/shafer2010_storage.toml"))];

static ALL: LazyLock<Vec<Paper>> = LazyLock::new(|| {
    let read = |(file, text): &(&str, &str)| {
        Paper::parse(text).unwrap_or_else(|why| panic!("{file}, which is tested to be whole: {why}"))
    };
    FILES.iter().map(read).collect()
});

/// All papers.
pub fn all() -> &'static [Paper] {
    &ALL
}

/// The paper that a run measures again.
pub fn of_run(kind: &RunKind) -> Option<&'static Paper> {
    of_study(kind.study()?)
}

/// The paper that a study measures again.
pub fn of_study(study: &str) -> Option<&'static Paper> {
    all().iter().find(|p| p.study == study)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_paper_is_whole_and_has_its_study() {
        assert_eq!(all().len(), FILES.len());
        for paper in all() {
            let study = crate::studies::named(&paper.study).unwrap_or_else(|e| panic!("{}: {e:#}", paper.key));
            let cells = study.cells();
            let has = |pattern: &vmio_model::paper::Pattern, workload: &str| {
                assert!(
                    pattern.find(workload, &cells).is_some(),
                    "{}: no {workload} of {}",
                    paper.key,
                    pattern.label()
                );
            };
            for row in &paper.rows {
                let table = paper.tables.iter().find(|t| t.direction == row.direction);
                if let (Some(pattern), Some(table)) = (&row.cell, table) {
                    has(pattern, &table.workload);
                }
            }
            for effect in &paper.effects {
                [Some(&effect.numerator), effect.denominator.as_ref()]
                    .into_iter()
                    .flatten()
                    .for_each(|p| has(p, &effect.workload));
            }
        }
    }
}
