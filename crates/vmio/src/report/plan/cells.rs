//! What a plan says of its cells and their sides.

use vmio_model::cell::Cell;
use vmio_model::study::MIB;
use vmio_model::words::count;
use vmio_rig::engine::plan::Planned;

use super::{PlanContext, Rows, range};
use crate::report::view;

impl PlanContext<'_> {
    /// How many cells there are, how often each runs, and what the guests run on.
    pub(super) fn cells(&self, rows: &mut Rows) {
        let (plan, c) = (self.plan, &self.plan.cost);
        let times = range(c.min_rounds.to_string(), c.max_rounds.to_string());
        if !self.here {
            let cells = count(self.cells.len(), "cell");
            rows.put("cells", format!("{cells}, each {times} times, on that machine as it is"));
        } else if plan.study.is_native_only() {
            let native = count(c.native_cells as usize, "native cell");
            rows.put("cells", format!("{native}, each {times} times; no guest is booted"));
        } else {
            let boots = count(plan.study.repeat.min_boots as usize, "boot");
            let native = if c.native_cells > 0 { format!("{} native and ", c.native_cells) } else { String::new() };
            let guests = count((c.cells - c.native_cells) as usize, "guest cell");
            rows.put("cells", format!("{native}{guests}, each {times} times, over at least {boots}"));
            if plan.study.boots_nothing() {
                rows.put("guests", "containers only; no image is needed");
            } else {
                let known = plan.accelerator.as_ref().map(|known| known.reason.as_str());
                let unknown = "KVM if a short real boot proves it, else software emulation (the report says which)";
                rows.put("guests on", known.unwrap_or(unknown));
            }
        }
        if let Some((kernel, release)) = &plan.kernel {
            let modules =
                kernel.modules.as_ref().map_or("all built in".into(), |dir| format!("modules of {}", dir.display()));
            rows.put("kernel", format!("guests boot {} ({release}), {modules}", kernel.file.display()));
        }
        if c.control_cells > 0 {
            let more = count(c.control_cells as usize, "more cell");
            rows.put(
                "controls",
                format!(
                    "at most {more}, natively and in the guest, from the second round on; the first one says which"
                ),
            );
        }
    }

    /// The processors and memory of the sides, and what holds them to these.
    pub(super) fn sides(&self, rows: &mut Rows) {
        let plan = self.plan;
        let sides = if plan.study.is_native_only() {
            "limited to"
        } else if self.natively {
            "both sides"
        } else {
            "guests get"
        };
        if self.here {
            rows.put(sides, resources(plan));
        }
        if self.natively {
            rows.put("", format!("natively: {}", plan.cgroups.native));
        }
        if let Some(held) = &plan.cgroups.qemu {
            rows.put("", format!("{}: {}", Cell::hypervisor(&self.cells), view::hypervisor_held(held, plan.gentle)));
            if plan.gentle && self.natively && plan.cost.vcpus > 1 {
                let vcpus = plan.cost.vcpus;
                rows.put(
                    "",
                    format!(
                        "the guest's {vcpus} vCPUs share one core (gentle), natively there are {vcpus}: shares are too \
                         low"
                    ),
                );
            }
        }
    }
}

/// Processors and memory of each side, and the most that guests of other shapes have.
fn resources(plan: &Planned) -> String {
    let (own, c) = (&plan.study.guest, &plan.cost);
    let cores = |n: u32| count(n as usize, "core");
    let both = format!("{}, {} MiB of memory", cores(own.vcpus), own.memory_mib);
    if (c.vcpus, c.memory_bytes / MIB) == (own.vcpus, u64::from(own.memory_mib)) {
        both
    } else {
        format!("{both}; some guests up to {}, {} MiB", cores(c.vcpus), c.memory_bytes / MIB)
    }
}
