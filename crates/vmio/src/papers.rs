//! The papers' figures that come with vmio (`papers/*.toml`), in the binary.

use std::sync::LazyLock;

use vmio_model::kind::RunKind;
use vmio_model::paper::Paper;
use vmio_model::simulate::Scenario;
use vmio_model::simulate::paper::Paper as Experiment;

/// One line a file of `papers/`.
const FILES: &[(&str, &str)] = &[
    ("papers/shafer2010_storage.toml", include_str!("../../../papers/shafer2010_storage.toml")),
    ("papers/shafer2010_network.toml", include_str!("../../../papers/shafer2010_network.toml")),
    ("papers/shafer2010_hadoop.toml", include_str!("../../../papers/shafer2010_hadoop.toml")),
    ("papers/rasmusson2013.toml", include_str!("../../../papers/rasmusson2013.toml")),
    ("papers/rasmusson2013_network.toml", include_str!("../../../papers/rasmusson2013_network.toml")),
    ("papers/rasmusson2013_disk.toml", include_str!("../../../papers/rasmusson2013_disk.toml")),
    ("papers/lu2016.toml", include_str!("../../../papers/lu2016.toml")),
    ("papers/lu2016_flash.toml", include_str!("../../../papers/lu2016_flash.toml")),
];

/// Experiments over time: files of published figures, each the scenario for simulation and measurement, too.
const OVER_TIME: &[(&str, &str)] = &[("papers/amamou2012.toml", include_str!("../../../papers/amamou2012.toml"))];

static EXPERIMENTS: LazyLock<Vec<(Experiment, Scenario)>> = LazyLock::new(|| {
    let read = |(file, text): &(&str, &str)| {
        let whole = "is tested to be whole";
        let paper: Experiment = toml::from_str(text).unwrap_or_else(|why| panic!("{file}, which {whole}: {why}"));
        (paper, Scenario::from_toml(file, text).unwrap_or_else(|why| panic!("{file}, which {whole}: {why}")))
    };
    OVER_TIME.iter().map(read).collect()
});

/// The studies of all experiments over time.
pub fn experiments() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.iter().flat_map(|(paper, _)| &paper.studies).map(String::as_str)
}

/// The published experiment of that study, with its scenario.
pub fn experiment(study: &str) -> Option<(Experiment, Scenario)> {
    EXPERIMENTS.iter().find(|(paper, _)| paper.studies.iter().any(|one| one == study)).cloned()
}

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
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use vmio_model::cell::Cell;
    use vmio_model::paper::Pattern;
    use vmio_model::rate::MBIT;
    use vmio_rig::workloads;

    use super::*;

    fn named_cells(name: &str) -> Vec<Cell> {
        crate::studies::named(name).unwrap_or_else(|e| panic!("{name}: {e:#}")).cells()
    }

    /// Each has its studies, whose cells are at least as many actors as the scenario has members.
    #[test]
    fn every_experiment_is_whole_and_has_its_studies() {
        for name in experiments() {
            let (paper, scenario) = experiment(name).unwrap();
            assert!(name.starts_with(&paper.key), "{name}");
            assert!(named_cells(name).iter().all(|cell| cell.actors().count() >= scenario.vifs.len()), "{name}");
        }
    }

    /// Their minima fit, and so do those of many actors of one class.
    #[test]
    fn every_policy_of_an_experiment_passes_the_guards_check_on_its_link() {
        for name in experiments() {
            let study = crate::studies::named(name).unwrap_or_else(|e| panic!("{name}: {e:#}"));
            for cell in study.cells() {
                let Some(guard) = cell.settings.get("guard") else { continue };
                let mbit: u64 = cell.settings["rate"].trim_end_matches("mbit").parse().unwrap();
                let fit = study.guards[guard].contracts(cell.actors().count(), mbit * MBIT);
                assert!(fit.is_ok(), "{name}: {guard} at {mbit} Mbit/s: {fit:?}");
            }
        }
    }

    #[test]
    fn every_paper_is_whole_and_has_its_study() {
        assert_eq!(all().len(), FILES.len());
        for paper in all() {
            let studies: BTreeMap<&str, Vec<Cell>> =
                paper.all_studies().into_iter().map(|name| (name, named_cells(name))).collect();
            // All patterns of a comparison must be in one study, which measures that part of the paper.
            let has = |own: &[String], patterns: &[(&Pattern, &str)]| {
                let all = |cells: &Vec<Cell>| patterns.iter().all(|(p, workload)| p.find(workload, cells).is_some());
                let labels: Vec<String> =
                    patterns.iter().map(|(p, workload)| format!("{workload} of {}", p.label())).collect();
                let found = studies.iter().any(|(study, cells)| paper.covers(own, Some(*study)) && all(cells));
                assert!(found, "{}: no {}", paper.key, labels.join(" with "));
            };
            for row in &paper.rows {
                let table = paper.tables.iter().find(|t| t.direction == row.direction);
                if let (Some(pattern), Some(table)) = (&row.cell, table) {
                    has(&table.studies, &[(pattern, &table.workload)]);
                }
            }
            let workloads: Vec<_> = paper.studies.iter().flat_map(|name| named_cells(name)).collect();
            for score in &paper.scores {
                let of_group = |cell: &Cell| {
                    workloads::traits_of(cell.workload()).and_then(|t| t.group).as_ref() == Some(&score.group)
                };
                assert!(workloads.iter().any(of_group), "{}: nothing is of {}", paper.key, score.group);
            }
            for column in &paper.transfers {
                let all: Vec<Pattern> = column.wanted().collect();
                has(&[], &all.iter().map(|pattern| (pattern, &*column.workload)).collect::<Vec<_>>());
            }
            for of in &paper.series {
                // Rows are not compared with each other, so each may be of another study.
                let cells = of.rows.iter().filter_map(|row| row.cell.as_ref());
                cells.for_each(|pattern| has(&[], &[(pattern, &of.workload)]));
            }
            for of in &paper.events {
                has(&[], &of.columns.each_ref().map(|column| (&column.cell, &*column.workload)));
            }
            for effect in &paper.effects {
                let below = effect.denominator.as_ref().map(|p| (p, effect.below()));
                let than = effect.than.iter().flat_map(|than| {
                    let below = effect.denominator.as_ref().map(|p| (p, &*than.denominator_workload));
                    [Some((&effect.numerator, &*than.workload)), below]
                });
                let both = [Some((&effect.numerator, &*effect.workload)), below].into_iter().chain(than);
                has(&effect.studies, &both.flatten().collect::<Vec<_>>());
            }
        }
    }
}
