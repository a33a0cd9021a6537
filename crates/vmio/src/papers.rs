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
    all().iter().find(|p| p.is_of(Some(study)))
}

#[cfg(test)]
mod tests {
    use vmio_model::paper::Pattern;

    use super::*;

    #[test]
    fn every_paper_is_whole_and_has_its_study() {
        assert_eq!(all().len(), FILES.len());
        for paper in all() {
            let named = |name: &String| crate::studies::named(name).unwrap_or_else(|e| panic!("{}: {e:#}", paper.key));
            let studies: Vec<_> = paper.studies.iter().map(|name| named(name).cells()).collect();
            // What is compared is of one study.
            let has = |patterns: &[(&Pattern, &str)]| {
                let all = |cells: &Vec<_>| patterns.iter().all(|(p, workload)| p.find(workload, cells).is_some());
                let labels: Vec<String> =
                    patterns.iter().map(|(p, workload)| format!("{workload} of {}", p.label())).collect();
                assert!(studies.iter().any(all), "{}: no {}", paper.key, labels.join(" with "));
            };
            for row in &paper.rows {
                let table = paper.tables.iter().find(|t| t.direction == row.direction);
                if let (Some(pattern), Some(table)) = (&row.cell, table) {
                    has(&[(pattern, &table.workload)]);
                }
            }
            for effect in &paper.effects {
                let below = effect.denominator.as_ref().map(|p| (p, effect.below()));
                has(&[Some((&effect.numerator, &*effect.workload)), below].into_iter().flatten().collect::<Vec<_>>());
            }
        }
    }
}
