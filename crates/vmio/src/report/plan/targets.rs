//! The targets of a plan: where they are made, what is lost there, and what is written.

use std::collections::BTreeMap;

use vmio_model::study::MIB;
use vmio_rig::disks::space::gib;
use vmio_rig::disks::targets::Identity;
use vmio_rig::engine::plan::{Placed, Planned, gib_for};

use super::Rows;

/// Where targets are made, and what is lost there.
pub(super) fn where_targets_go(placed: &Placed, plan: &Planned, rows: &mut Rows) {
    let made = if placed.place.backend.pool().is_some() || placed.dir.exists() {
        ""
    } else if placed.missing.is_some() {
        " (is not there)"
    } else {
        " (will be made)"
    };
    match placed.place.backend.modelled() {
        Some(disk) => {
            rows.put("where", format!("{} that vmio serves from memory", disk.headline()));
            rows.put("", format!("({disk}), with ext4 on it"));
            rows.put("", "figures are those of the model, not of this host's storage");
        }
        None => {
            let backing = &placed.backing;
            let below = match &backing.not_visible {
                Some(why) if backing.leaves.is_empty() && backing.own_counters.is_empty() => format!(" ({why})"),
                _ => format!(" on {}", backing.describe()),
            };
            rows.put("where", format!("{}{made}{below}", placed.place.describe()));
        }
    }
    if let Some(device) = &placed.device {
        rows.put("device", device.named());
        device_rows(plan, &device.identity, &placed.device_told, rows);
    }
}

/// The identity of the user's own device, and what is lost on it.
pub(super) fn device_rows(plan: &Planned, identity: &Identity, unseen: &[String], rows: &mut Rows) {
    rows.put("", identity.describe());
    for unseen in unseen {
        rows.put("", format!("see that nothing uses it: {unseen}"));
    }
    rows.put("", format!("ALL DATA in its first {} MiB WILL BE LOST", plan.study.target_bytes() / MIB));
}

/// How much is written to the place.
pub(super) fn what_is_written(plan: &Planned, rows: &mut Rows) {
    let c = &plan.cost;
    if let Some(budget) = plan.too_little_for_targets() {
        let making = gib(c.making_bytes_written);
        rows.put("writes", format!("creating the targets writes {making}, more than --gib {}", gib(budget)));
        return;
    }
    rows.put(
        "writes",
        format!(
            "at most {} in all, {} of it before anything is measured",
            gib(c.max_bytes_written),
            gib(c.making_bytes_written)
        ),
    );
    let (likely, rates) = (gib(c.likely_bytes_written), &plan.rates_from);
    rows.put(
        "",
        if c.over_time {
            format!("likely less than {likely}, what {} rounds write (rates {rates})", c.min_rounds)
        } else {
            format!("likely {likely} for {} rounds (rates {rates})", c.min_rounds)
        },
    );
    for (span, workloads) in cut(plan) {
        let (uses, its) = if workloads.len() == 1 { ("uses", "its target") } else { ("use", "their targets") };
        rows.put("", format!("{} {uses} at most {} of {its}", workloads.join(", "), gib(span)));
    }
    if c.over_bytes {
        rows.put(
            "",
            format!(
                "too little for {} rounds: shares will not converge (--gib, at least {})",
                c.min_rounds,
                gib_for(c.least_bytes_written)
            ),
        );
    }
}

/// Workloads that write less than their target, by how much they write.
fn cut(plan: &Planned) -> BTreeMap<u64, Vec<&str>> {
    let whole = plan.study.target_bytes();
    let mut cut: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    let fixed = &plan.cost.rates.fixed_bytes;
    for (workload, &span) in plan.cost.spans.iter().filter(|(w, span)| **span < whole && !fixed.contains_key(*w)) {
        cut.entry(span).or_default().push(workload);
    }
    cut
}
