//! What a plan reckons with: rates, and the space that targets take.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use vmio_look::backing::Backing;
use vmio_model::cell::{Actor, Attachment, Cell, Millis};
use vmio_model::modelled::ModelledDisk;
use vmio_model::result::DiskWork;
use vmio_model::run::Run;
use vmio_model::stats;
use vmio_model::study::plan::{Rates, TargetSpace};
use vmio_model::study::{Study, SubjectKind};
use vmio_node::Node;

use super::PlanOptions;
use crate::disks::places::PlaceBackend;
use crate::disks::targets::{self, Target};
use crate::hadoop::Jars;
use crate::image;
use crate::workloads::{self, DiskWorkload, Workload};

/// The targets that lose their data when a cell writes to them afresh, in this place.
pub(super) fn refilled(backend: &PlaceBackend, options: &PlanOptions) -> Vec<String> {
    let own = |target: &dyn Target| target.takes_device() && options.device.is_some();
    let loses = |target: &&&dyn Target| target.refilled(backend.pool().filter(|_| !own(**target)));
    let mut all: Vec<_> = targets::ALL.iter().filter(loses).collect();
    all.sort_by_key(|target| target.takes_device());
    all.into_iter().map(|target| target.name().to_owned()).collect()
}

/// Rates that are assumed of a machine that vmio has never measured: a fast flash disk, so that
/// bytes and space err on the high side.
fn assumed(study: &Study, refilled_targets: Vec<String>) -> Rates {
    Rates {
        write_bytes_per_second: 1.0e9,
        read_bytes_per_second: 1.0e9,
        small_ios_per_second: 20_000.0,
        cell_overhead_seconds: 1.0,
        boot_seconds: 4.0,
        fixed_bytes: workloads::ALL
            .iter()
            .filter_map(|workload| Some((workload.traits().name, buffered_bytes(study, workload.disk()?)?)))
            .collect(),
        fixed_seconds: workloads::ALL
            .iter()
            .filter_map(|workload| Some((workload.traits().name, fixed_seconds(study, *workload)?)))
            .collect(),
        written_targets: targets::ALL
            .iter()
            .filter(|target| target.written())
            .map(|target| target.name().to_owned())
            .collect(),
        target_space: target_space(study),
        refilled_targets,
        spare_ratio: 0.2,
        beside_bytes: 0,
        probed: false,
        metered: false,
        meters: Vec::new(),
    }
}

/// Bytes of the target for a workload that moves twice the memory, whatever the rate.
fn buffered_bytes(study: &Study, disk: &dyn DiskWorkload) -> Option<u64> {
    let needed = disk.bytes_needed(study.buffered_bytes() / 2).min(study.target_bytes());
    disk.moves_twice_the_memory().then_some(needed)
}

/// Seconds that a workload takes for itself, or more than the study says since it counts no parts of them.
fn fixed_seconds(study: &Study, workload: &dyn Workload) -> Option<f64> {
    let on_machine = study.repeat.machine_seconds.filter(|_| workload.works_on() == SubjectKind::Machine);
    let asked = Millis::from_seconds(on_machine.unwrap_or(study.repeat.seconds)).0;
    let tick = workload.tick().0;
    let rounded = (!asked.is_multiple_of(tick)).then(|| Millis(asked.div_ceil(tick) * tick).seconds());
    workload.own_seconds().or(rounded)
}

/// Bytes of a guest image that has to be built: fio and its libraries are most of it (docs/image.md).
const IMAGE_BYTES: u64 = 512 << 20;
/// The same of what it carries beside programs.
const BESIDE_BYTES: u64 = 512 << 20;
/// Bytes of the store, the journal and what else vmio keeps of a run.
const STORE_BYTES: u64 = 32 << 20;

/// Hadoop's jars that the work of these cells needs.
pub(super) fn jars(cells: &[Cell]) -> Option<Jars> {
    cells.iter().flat_map(Cell::actors).filter_map(|actor| workloads::find(&actor.workload)?.fetched()).max()
}

/// Bytes that are written beside the targets where the state directory lies on the same disks: the store, and the
/// guest image if there is none yet.
pub(super) fn beside(local: &dyn Node, study: &Study, options: &PlanOptions, backing: &Backing) -> u64 {
    let state = &options.state_dir;
    let there = state.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    let below = Backing::below(local, there).unwrap_or_default();
    if backing.modelled.is_some() {
        return 0;
    }
    let apart = |b: &Backing| b.not_visible.is_none() && b.nfs.is_none();
    if apart(&below) && apart(backing) && !below.leaves.keys().any(|leaf| backing.leaves.contains_key(leaf)) {
        return 0;
    }
    let built = std::fs::read_dir(state.join("images")).is_ok_and(|mut images| images.next().is_some());
    let missing = jars(&study.cells()).filter(|jars| jars.place(local.reader()).is_none());
    let fetched = missing.filter(|_| options.maven.is_some());
    let has_beside = fetched.is_some() || image::has_beside(local.reader());
    let image_bytes = IMAGE_BYTES + if has_beside { BESIDE_BYTES } else { 0 };
    let fetched_bytes = fetched.map_or(0, Jars::bytes);
    STORE_BYTES + fetched_bytes + if study.boots_nothing() || built { 0 } else { image_bytes }
}

/// The same from the last run on the same backing device, where there is one.
pub(super) fn rates(
    study: &Study,
    last: Option<&Run>,
    backing: Option<&Backing>,
    disk: Option<&ModelledDisk>,
    refilled: Vec<String>,
) -> (Rates, String) {
    let mut rates = assumed(study, refilled);
    if let Some(disk) = disk {
        // What the model gives at most, in requests of 1 MiB; small ones are not contiguous.
        let best = f64::from(1 << 20) / disk.seconds(1 << 20);
        (rates.write_bytes_per_second, rates.read_bytes_per_second) = (best, best);
        rates.small_ios_per_second = 1.0 / (disk.seconds(4096) + disk.seek_microseconds / 1e6);
    }
    let same = |r: &&Run| backing.is_some_and(|b| r.environment.backing == b.describe());
    let Some(last) = last.filter(same).filter(|r| r.environment.cap_ratio.is_none()) else {
        let told =
            disk.map_or_else(|| "assumed: 1 GB/s, 20,000 small requests a second".into(), |_| "of the model".into());
        return (rates, told);
    };
    let best = |name: &str, of: fn(&DiskWork) -> f64| {
        last.samples
            .iter()
            .filter(|s| s.cell.workload() == name)
            .map(|s| of(&s.work()))
            .filter(|v| v.is_finite() && *v > 0.0)
            .max_by(f64::total_cmp)
    };
    if let Some(rate) = best("seq-write", |r| r.bandwidth()) {
        rates.write_bytes_per_second = rate;
    }
    if let Some(rate) = best("seq-read", |r| r.bandwidth()) {
        rates.read_bytes_per_second = rate;
    }
    if let Some(rate) = best("durable-append", |r| r.iops()) {
        rates.small_ios_per_second = rate;
    }
    pace(&mut rates, last);
    (rates, format!("from run {}", last.id))
}

/// Fewest gaps from which the time between two cells, and between two boots, is taken.
const GAPS: (usize, usize) = (10, 2);

/// What a cell and a boot took beside what was measured, by the times of the last run's samples.
fn pace(rates: &mut Rates, last: &Run) {
    let (mut cells, mut boots) = (Vec::new(), Vec::new());
    for two in last.samples.windows(2) {
        let gap = two[1].started_unix - two[0].started_unix - two[0].result.seconds;
        // A gap of minutes is a pause between two parts of a run.
        if (0.0..60.0).contains(&gap) {
            (if two[0].boot == two[1].boot { &mut cells } else { &mut boots }).push(gap);
        }
    }
    let of = |gaps: &[f64], fewest: usize| stats::median(gaps).filter(|_| gaps.len() >= fewest);
    if let Some(cell) = of(&cells, GAPS.0) {
        rates.cell_overhead_seconds = cell.max(0.1);
    }
    if let Some(boot) = of(&boots, GAPS.1) {
        let rest = if last.environment.at_rest.is_empty() { 0.0 } else { last.study.repeat.rest_phase_seconds() };
        rates.boot_seconds = (boot - rates.cell_overhead_seconds - rest).max(1.0);
    }
}

/// The targets of a study, with the number of disks by which guests see each, as far as `disk` tells them apart.
fn seen_by(study: &Study, disk: impl Fn(&Actor, &Attachment) -> String) -> BTreeMap<String, u64> {
    let mut seen_by: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for cell in study.cells() {
        for actor in cell.actors() {
            let Some(target) = actor.target() else { continue };
            seen_by.entry(target.to_owned()).or_default().extend(actor.attachment().map(|a| disk(actor, a)));
        }
    }
    seen_by.into_iter().map(|(name, by)| (name, by.len() as u64)).collect()
}

/// What each target of a study takes, by its own word.
fn target_space(study: &Study) -> BTreeMap<String, TargetSpace> {
    let of = |(name, attachments): (String, u64)| {
        let space = targets::find(&name)?.space(study.target_bytes(), attachments);
        let targets::Space { taken_bytes, prepared_bytes } = space;
        Some((name, TargetSpace { taken_bytes, prepared_bytes }))
    };
    seen_by(study, |_, attachment| attachment.label()).into_iter().filter_map(of).collect()
}

/// Memory of this host that caches of the targets take, of those that have their space in the place.
pub(super) fn cache_bytes(study: &Study, rates: &Rates) -> u64 {
    let disks = seen_by(study, |actor, attachment| format!("{}/{}", actor.side, attachment.label()));
    let there = disks.into_iter().filter(|(name, _)| rates.target_space.contains_key(name));
    let of = |(name, by): (String, u64)| Some(targets::find(&name)?.cache_bytes(study.target_bytes(), by));
    there.filter_map(of).sum()
}

/// Whether the target of this name is one for which the user may name a device.
pub fn takes_device(name: &str) -> bool {
    targets::find(name).is_some_and(|target| target.takes_device())
}

/// Bytes that the targets take in the place.
pub(super) fn needed_bytes(rates: &Rates, options: &PlanOptions) -> u64 {
    let named = options.device.is_some() || options.nodes.measured().is_some_and(|(_, own)| own.device.is_some());
    let ours = |name: &str| !named || !takes_device(name);
    rates.target_space.iter().filter(|(name, _)| ours(name)).map(|(_, space)| space.taken_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::places::Pool;

    #[test]
    fn a_device_loses_its_data_where_it_is_a_volume_that_allocates() {
        let (mine, none) =
            (PlanOptions { device: Some("/dev/sdx".into()), ..PlanOptions::default() }, PlanOptions::default());
        let thin = PlaceBackend::Volumes(Pool::LvmThin { vg: "v".into(), pool: "p".into() });
        let thick = PlaceBackend::Volumes(Pool::Lvm { vg: "v".into() });
        let files = PlaceBackend::Files("/srv".into());
        for (backend, options, loses) in
            [(&thin, &none, true), (&thin, &mine, false), (&thick, &none, false), (&files, &none, false)]
        {
            let all = refilled(backend, options);
            assert_eq!(all.iter().any(|t| t == "device"), loses, "{backend:?}");
            assert!(all.iter().any(|t| t == "sparse"));
        }
    }
}
