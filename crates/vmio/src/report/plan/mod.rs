//! The plan as text and as JSON.

mod cells;
mod json;
mod networks;
mod others;
mod targets;

use vmio_model::cell::Cell;
use vmio_rig::disks::space::gib;
use vmio_rig::engine::environment::of_measured;
use vmio_rig::engine::plan::{Planned, takes_device};
use vmio_rig::engine::watcher::QUIET;
use vmio_rig::hadoop::Fetch;

use super::document::{self, Block, In, Name, Pairs, Text, remarks};
use super::format::duration;
use super::versus;
use crate::fit::WIDTH;
use crate::term::Style;
use networks::{networks, of_two_senders};
use others::others;
use targets::{device_rows, what_is_written, where_targets_go};

pub use json::{Document, json};

/// `5 to 12`, or `8` where both are the same.
fn range(low: String, high: String) -> String {
    if low == high { low } else { format!("{low} to {high}") }
}

/// Rows of the plan, each under its head; one without a head belongs to the row before.
#[derive(Default)]
struct Rows(Vec<(In, Text, String)>);

impl Rows {
    fn put(&mut self, head: &str, text: impl Into<String>) {
        self.0.push((In::ALL, head.into(), text.into()));
    }

    fn block(self) -> Block {
        Block::Pairs(Pairs { indent: 2, width: 11, long: Name::Pushes, pairs: self.0 })
    }
}

/// One row more, as it is printed.
pub fn row(head: &str, text: &str) -> String {
    let mut rows = Rows::default();
    rows.put(head, text);
    let mut more = document::Document::new("");
    more.put(rows.block());
    more.text(Style::PLAIN, WIDTH)
}

/// The plan as it is printed.
pub fn text(plan: &Planned) -> String {
    document(plan).text(Style::PLAIN, WIDTH)
}

fn document(plan: &Planned) -> document::Document {
    let title = format!("{} ({})", plan.study.title, plan.study.name);
    let mut doc = document::Document::new(&title);
    doc.put(remarks((0, 6), [("Plan: ".to_owned(), title)]));
    doc.put(PlanContext::of(plan).rows().block());
    doc
}

/// A plan, with what several of its rows depend on.
struct PlanContext<'a> {
    plan: &'a Planned,
    cells: Vec<Cell>,
    /// The networks that cells work over, each with who does.
    networks: Vec<String>,
    /// Whether any actor works on this host.
    here: bool,
    /// Whether any actor works natively; one may also do so beside a guest.
    natively: bool,
}

impl<'a> PlanContext<'a> {
    fn of(plan: &'a Planned) -> Self {
        let cells = plan.study.cells();
        let sides = || cells.iter().flat_map(Cell::actors).map(|actor| &actor.side);
        let (here, natively) = (sides().any(|side| !side.is_afar()), sides().any(|side| side.is_native()));
        Self { plan, networks: networks(&cells), here, natively, cells }
    }

    fn rows(&self) -> Rows {
        let mut rows = Rows::default();
        self.study(&mut rows);
        if let Some(placed) = &self.plan.placed {
            where_targets_go(placed, self.plan, &mut rows);
        }
        self.machines(&mut rows);
        self.paths(&mut rows);
        if let Some(baseline) = versus::planned(&self.plan.study.baseline) {
            rows.put("baseline", baseline);
        }
        self.cells(&mut rows);
        self.sides(&mut rows);
        self.time(&mut rows);
        self.before(&mut rows);
        self.writes(&mut rows);
        self.root(&mut rows);
        self.power(&mut rows);
        self.components(&mut rows);
        self.layers(&mut rows);
        others(self.plan, &mut rows);
        self.undone(&mut rows);
        self.left_out(&mut rows);
        rows
    }

    /// Why it is this study, and what is said of it.
    fn study(&self, rows: &mut Rows) {
        if let Some(form) = &self.plan.form {
            rows.put("form", form);
            rows.put("", "the whole study: vmio tax --quick");
        }
        for (i, line) in self.plan.told.iter().enumerate() {
            rows.put(if i == 0 { "like" } else { "" }, line);
        }
    }

    /// The other machines: the one that is measured, and the peer.
    fn machines(&self, rows: &mut Rows) {
        let plan = self.plan;
        if let Some((machine, afar)) = plan.nodes.measured() {
            let below = plan.space.as_deref().map_or_else(|_| String::new(), |below| format!(" ({below})"));
            rows.put("measures", of_measured(machine, afar).to_string());
            match &afar.device {
                None => {
                    rows.put("", format!("files in {}{below}; this host's probes do not see it", afar.dir.display()));
                }
                Some(device) => {
                    rows.put("device", format!("{} there; this host's probes do not see it", device.named()));
                    device_rows(plan, &device.identity, &device.told, rows);
                }
            }
            for (device, list) in &afar.scan.settings {
                rows.put("", format!("{device}: {list}"));
            }
            for finding in &afar.scan.findings {
                rows.put("", format!("vmio scan finds: {finding}"));
            }
        }
        if let Some((machine, peer)) = plan.nodes.peer() {
            rows.put("peer", machine.to_string());
            peer.served_at().iter().chain(&peer.told).for_each(|line| rows.put("", line));
        }
    }

    /// The networks, and which paths have two senders.
    fn paths(&self, rows: &mut Rows) {
        if self.networks.is_empty() {
            return;
        }
        let own = self.networks.iter().any(|network| !network.starts_with("wire:"));
        let whose = if own { ", in namespaces of vmio's own" } else { "" };
        rows.put("networks", format!("{}{whose}", self.networks.join("; ")));
        of_two_senders(&self.cells).into_iter().for_each(|line| rows.put("", line));
    }

    /// How long it measures, and whether the time budget is likely to end it early.
    fn time(&self, rows: &mut Rows) {
        let (plan, c, nothing) = (self.plan, &self.plan.cost, self.plan.measures_nothing());
        let (most, first) = (duration(c.max_seconds), duration(c.first_round_seconds));
        rows.put(
            "time",
            if nothing {
                "none: nothing can be measured here (see \"not run\" below)".to_owned()
            } else if c.first_round_seconds > c.max_seconds {
                format!("at most {most} of measuring: the first round takes about {first}")
            } else {
                let least = duration(c.min_seconds.min(c.max_seconds));
                format!("{} of measuring, first figures after about {first}", range(least, most))
            },
        );
        if c.over_time && !nothing {
            let budget = duration(plan.study.repeat.max_minutes * 60.0);
            let shares = self.cells.iter().any(|cell| plan.study.compares(cell));
            let then = if shares { ": shares will not be known" } else { "" };
            rows.put(
                "cut short",
                format!(
                    "the time budget of {budget} will probably end the run before {} rounds{then} (--minutes)",
                    c.min_rounds
                ),
            );
        }
        if plan.study.repeat.steady_state {
            rows.put(
                "steady",
                format!(
                    "one workload at a time, {} written over their targets first; writing ones continue until five \
                     rounds agree (range 20 %, slope 10 %), at most {} rounds each or the budget",
                    gib(c.precondition_bytes_written),
                    c.max_rounds
                ),
            );
        }
    }

    /// What comes before the measuring, in no time budget.
    fn before(&self, rows: &mut Rows) {
        let plan = self.plan;
        let boots = self.here && plan.runnable().iter().flat_map(Cell::actors).any(|a| !a.side.shares_kernel());
        let watched = plan.gentle && plan.latency_unseen.is_none();
        let own = |text: &str| text.to_owned();
        let each = [
            plan.fetch.as_ref().map(Fetch::ahead),
            boots.then(|| {
                plan.image_ahead.clone().unwrap_or_else(|| own("a guest image, where none fits this host as it is now"))
            }),
            (boots && plan.accelerator.is_none()).then(|| own("a short boot that shows whether KVM works")),
            watched.then(|| format!("{} s of watching the other guests", QUIET.as_secs())),
        ];
        let each: Vec<String> = each.into_iter().flatten().collect();
        if !each.is_empty() && !plan.measures_nothing() {
            rows.put("before", each.join("; "));
        }
    }

    /// What is written, and whether there is room for it.
    fn writes(&self, rows: &mut Rows) {
        let (plan, nothing) = (self.plan, self.plan.measures_nothing());
        match &plan.placed {
            Some(_) if nothing => rows.put("writes", "nothing"),
            Some(_) => what_is_written(plan, rows),
            None if plan.nodes.measured().is_some() && !nothing => what_is_written(plan, rows),
            None => rows.put("writes", "only its own files: no cell is on a disk"),
        }
        if let Some(placed) = &plan.placed {
            // The plan is refused with the reason.
            let space = plan.space.as_ref().map_or("not enough usable space", String::as_str);
            rows.put("space", format!("{} at a time; {space}", gib(placed.needed_bytes)));
        }
    }

    /// What root is needed for.
    fn root(&self, rows: &mut Rows) {
        if !self.here {
            return;
        }
        let device = self.cells.iter().flat_map(Cell::targets).any(takes_device);
        let hold = format!("holding {} to its processors", Cell::hypervisor(&self.cells));
        let needs = [
            device.then_some("the block device"),
            (!self.networks.is_empty()).then_some("network namespaces"),
            Some(if self.natively { "holding the native side to the guest's memory" } else { hold.as_str() }),
        ];
        let needs: Vec<String> = needs.into_iter().flatten().map(|need| format!("for {need}")).collect();
        rows.put("root", format!("needed {}", needs.join(" and ")));
    }

    /// The meters that the user names, else those that were found; that there is none.
    fn power(&self, rows: &mut Rows) {
        let power = &self.plan.power;
        let names: Vec<String> = power.meters.iter().map(ToString::to_string).collect();
        let found = &self.plan.cost.rates.meters;
        let mut lines: Vec<String> = Vec::new();
        if !names.is_empty() {
            lines.push(format!("by {}, next to each cell and at rest", names.join(", ")));
        } else if power.command.is_none() {
            match found.is_empty() {
                false => lines.push(format!("by {}, next to each cell and at rest, if usable", found.join(", "))),
                true if self.here => lines.push("not measured: no meter was found (vmio doctor)".to_owned()),
                true => {}
            }
        }
        if let Some(command) = &power.command {
            lines.push(format!("runs this command next to each cell, with vmio's privileges: {command}"));
            if names.is_empty() {
                lines.push("and this host's energy counters are read, where vmio may read them".to_owned());
            }
        }
        for (at, line) in lines.into_iter().enumerate() {
            rows.put(if at == 0 { "power" } else { "" }, line);
        }
    }

    /// Samples of the processors.
    fn components(&self, rows: &mut Rows) {
        if self.plan.study.components {
            rows.put("components", "all processors are sampled about 1,000 times a second next to each cell");
        }
    }

    /// Events of the guests' block layers.
    fn layers(&self, rows: &mut Rows) {
        if self.plan.study.layers {
            rows.put("layers", "the guests' kernels count two events of each request to a disk");
        }
    }

    /// What is taken back at the end.
    fn undone(&self, rows: &mut Rows) {
        let namespace = if self.networks.is_empty() { "" } else { "network namespace, " };
        rows.put(
            "undone",
            format!(
                "every file, volume, device, {namespace}process and control group that it creates; nothing else is \
                 changed"
            ),
        );
    }

    /// The cells that do not run, those of one reason together.
    fn left_out(&self, rows: &mut Rows) {
        let (left_out, all) = (&self.plan.left_out, self.cells.len());
        for (at, first) in left_out.iter().enumerate() {
            if left_out[..at].iter().all(|earlier| earlier.why != first.why) {
                let same = left_out.iter().filter(|other| other.why == first.why).count();
                rows.put("not run", not_run(same, all, &first.cell.key(), &first.why.to_string()));
            }
        }
        if !self.plan.measures_nothing() {
            return;
        }
        let rest: Vec<&Cell> =
            self.cells.iter().filter(|cell| left_out.iter().all(|left| left.cell != **cell)).collect();
        if let Some(first) = rest.first() {
            let why = "there is nothing left to compare them with";
            rows.put("not run", not_run(rest.len(), all, &first.key(), why));
        }
    }
}

/// `3 of 8 cells (qemu/…, …): why`.
fn not_run(some: usize, all: usize, first: &str, why: &str) -> String {
    let more = if some > 1 { ", …" } else { "" };
    format!("{some} of {all} cells ({first}{more}): {why}")
}
