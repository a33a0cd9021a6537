//! Findings of a run that a layer of a request shows: each cites the layer and its time, as `vmio explain` tells it.

use std::collections::BTreeMap;

use vmio_model::facts::Provenance;
use vmio_model::rules::{About, Cited, Finding};
use vmio_model::run::Run;
use vmio_model::waterfall::cells::{self, CellLayers};
use vmio_model::waterfall::{Layer, Part, Waterfall};

use super::format::{percent, time};

/// Rules, each with the layer of a guest's request in which what it finds takes time.
const BY_LAYER: &[(&str, Layer)] = &[
    ("emulated-driver", Layer::Virtual),
    ("iothread-saturated", Layer::Virtual),
    ("missing-iothread", Layer::Virtual),
    ("cache-aio-pair", Layer::Hypervisor),
    ("host-page-cache", Layer::Hypervisor),
    ("qcow2-l2-cache", Layer::Hypervisor),
    ("sparse-file", Layer::Hypervisor),
];

/// Adds to each of them what its layer takes, in that cell of its disk where it is the largest share of a request.
pub(super) fn cite(findings: &mut [Finding], run: &Run) {
    if findings.iter().all(|finding| layer_of(&finding.rule).is_none()) {
        return;
    }
    let cells = cells::of_run(run, &[]);
    let places: BTreeMap<String, String> = run.samples.iter().map(|s| (s.cell.key(), s.cell.place_key())).collect();
    for finding in findings {
        let (Some(layer), About::Cell(key)) = (layer_of(&finding.rule), &finding.subject) else { continue };
        let is_its_own = |cell: &&CellLayers| cell.in_guest && (cell.key == *key || places.get(&cell.key) == Some(key));
        let told = cells.iter().filter(is_its_own).filter_map(|cell| {
            let whole = cell.waterfall.as_ref()?;
            Some((cell, whole, whole.parts.iter().find(|part| is_told(part, layer))?))
        });
        let share = |(_, whole, part): &(&CellLayers, &Waterfall, &Part)| whole.most_ratio(part);
        let Some((cell, whole, part)) = told.max_by(|a, b| share(a).total_cmp(&share(b))) else { continue };
        let (name, ratio, seconds) = (part.words(), percent(whole.most_ratio(part)), time(part.seconds));
        finding.cause += &format!(" In {}, {name} takes {ratio} of a request ({seconds}).", cell.key);
        finding.figures.push(Cited {
            label: format!("{name} of one request: {}", cell.key),
            value: part.seconds,
            unit: "seconds".into(),
            interval: None,
            from: Provenance::Run { run: run.id },
        });
    }
}

fn layer_of(rule: &str) -> Option<Layer> {
    BY_LAYER.iter().find(|(id, _)| *id == rule).map(|(_, layer)| *layer)
}

/// Whether this part is the layer's. Only a run with `--layers` times the guest's block layer and virtual I/O apart.
fn is_told(part: &Part, layer: Layer) -> bool {
    let alone = part.layers == [layer];
    (alone || layer == Layer::Virtual && part.layers == [Layer::GuestBlock, Layer::Virtual]) && part.seconds > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmio_model::rules::Rule;

    #[test]
    fn each_of_them_is_a_rule() {
        for (id, _) in BY_LAYER {
            assert!(Rule::find(id).is_some(), "{id}");
        }
    }

    #[test]
    fn what_other_layers_are_told_with_is_no_layers_own() {
        let part = |layers: &[Layer], seconds: f64| Part { layers: layers.to_vec(), seconds };
        assert!(is_told(&part(&[Layer::GuestBlock, Layer::Virtual], 1e-3), Layer::Virtual));
        assert!(is_told(&part(&[Layer::Hypervisor], 1e-3), Layer::Hypervisor));
        let old = [Layer::GuestBlock, Layer::Virtual, Layer::Hypervisor];
        assert!([Layer::Virtual, Layer::Hypervisor].iter().all(|layer| !is_told(&part(&old, 1e-3), *layer)));
        assert!(!is_told(&part(&[Layer::Hypervisor], -1e-6), Layer::Hypervisor), "clocks differ by more");
    }
}
