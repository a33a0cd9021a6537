//! The plan as it is shown: to people before the question, to programs.

mod json;
mod networks;
mod others;
mod targets;

use vmio_model::cell::Cell;
use vmio_model::study::MIB;
use vmio_model::words::count;
use vmio_rig::disks::space::gib;
use vmio_rig::engine::environment::of_measured;
use vmio_rig::engine::plan::{LeftOut, Planned, takes_device};

use super::document::{self, Block, In, Name, Pairs, Text, remarks};
use super::format::duration;
use super::{versus, view};
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

/// Rows of the plan, each under a head or the one before.
fn rows(pairs: Vec<(In, Text, String)>) -> Block {
    Block::Pairs(Pairs { indent: 2, width: 11, long: Name::Pushes, pairs })
}

/// A row more, as it is printed.
pub fn row(name: &str, text: &str) -> String {
    let mut more = document::Document::new("");
    more.put(rows(vec![(In::ALL, name.into(), text.to_owned())]));
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
    doc.put(rows(told(plan)));
    doc
}

fn told(plan: &Planned) -> Vec<(In, Text, String)> {
    let c = &plan.cost;
    let cells = plan.study.cells();
    let guests = c.cells - c.native_cells;
    let mut told = Vec::new();
    let mut row = |name: &str, text: String| told.push((In::ALL, Text::from(name), text));
    if let Some(form) = &plan.form {
        row("form", form.clone());
        row("", "the whole study: vmio tax --quick".into());
    }
    for (i, line) in plan.told.iter().enumerate() {
        row(if i == 0 { "like" } else { "" }, line.clone());
    }
    if let Some(placed) = &plan.placed {
        where_targets_go(placed, plan, &mut row);
    }
    if let Some((machine, afar)) = plan.nodes.measured() {
        let below = plan.space.as_deref().map_or_else(|_| String::new(), |below| format!(" ({below})"));
        row("measures", of_measured(machine, afar).to_string());
        match &afar.device {
            None => row("", format!("files in {}{below}; this host's probes do not see it", afar.dir.display())),
            Some(device) => {
                row("device", format!("{} there; this host's probes do not see it", device.named()));
                device_rows(plan, &device.identity, &device.told, &mut row);
            }
        }
        for (device, list) in &afar.scan.settings {
            row("", format!("{device}: {list}"));
        }
        for finding in &afar.scan.findings {
            row("", format!("vmio scan finds: {finding}"));
        }
    }
    if let Some((machine, peer)) = plan.nodes.peer() {
        row("peer", machine.to_string());
        peer.served_at().iter().chain(&peer.told).for_each(|told| row("", told.clone()));
    }
    let paths = networks(&cells);
    let ours = paths.iter().any(|path| !path.starts_with("wire:"));
    if !paths.is_empty() {
        let whose = if ours { ", in namespaces of vmio's own" } else { "" };
        row("networks", format!("{}{whose}", paths.join("; ")));
        of_two_senders(&cells).into_iter().for_each(|told| row("", told));
    }
    if let Some(baseline) = versus::planned(&plan.study.baseline) {
        row("baseline", baseline);
    }
    let times = range(c.min_rounds.to_string(), c.max_rounds.to_string());
    let native_only = plan.study.is_native_only();
    let here = cells.iter().flat_map(Cell::actors).any(|actor| !actor.side.is_afar());
    if !here {
        row("cells", format!("{}, each {times} times, on that machine as it is", count(cells.len(), "cell")));
    } else if native_only {
        let native = count(c.native_cells as usize, "native cell");
        row("cells", format!("{native}, each {times} times; no guest is booted"));
    } else {
        let boots = count(plan.study.repeat.min_boots as usize, "boot");
        let native = if c.native_cells > 0 { format!("{} native and ", c.native_cells) } else { String::new() };
        let guests = count(guests as usize, "guest cell");
        let cells = format!("{native}{guests}, each {times} times, over at least {boots}");
        row("cells", cells);
        let known = plan.accelerator.as_ref().map(|known| known.reason.clone());
        let not_known =
            || "KVM if a short real boot proves it, else software emulation (the report says which)".to_owned();
        if plan.study.boots_nothing() {
            row("guests", "containers alone: no image, and nothing is emulated".into());
        } else {
            row("guests on", known.unwrap_or_else(not_known));
        }
    }
    if let Some((kernel, release)) = &plan.kernel {
        let modules =
            kernel.modules.as_ref().map_or("all built in".into(), |dir| format!("modules of {}", dir.display()));
        row("kernel", format!("guests boot {} ({release}), {modules}", kernel.file.display()));
    }
    if c.control_cells > 0 {
        let most = c.control_cells;
        let more = count(most as usize, "more cell");
        row(
            "controls",
            format!("at most {more}, natively and in the guest, from the second round on; the first one says which"),
        );
    }
    // Beside a guest one may work natively, too.
    let natively = cells.iter().flat_map(Cell::actors).any(|actor| actor.side.is_native());
    let sides = if native_only {
        "limited to"
    } else if natively {
        "both sides"
    } else {
        "guests get"
    };
    if here {
        row(sides, has(plan));
    }
    if natively {
        row("", format!("natively: {}", plan.cgroups.native));
    }
    if let Some(qemu) = &plan.cgroups.qemu {
        row("", format!("QEMU: {}", view::qemu_held(qemu, plan.gentle)));
    }
    let nothing = plan.measures_nothing();
    row(
        "time",
        if nothing {
            "none: nothing can be measured here (\"not run\" below)".to_owned()
        } else if c.first_round_seconds > c.max_seconds {
            format!(
                "at most {} of measuring: the first round alone takes about {}",
                duration(c.max_seconds),
                duration(c.first_round_seconds)
            )
        } else {
            format!(
                "{} of measuring, first figures after about {}",
                range(duration(c.min_seconds.min(c.max_seconds)), duration(c.max_seconds)),
                duration(c.first_round_seconds)
            )
        },
    );
    if c.over_time && !nothing {
        let ends =
            format!("the time budget of {} is likely to end the run", duration(plan.study.repeat.max_minutes * 60.0));
        let shares = cells.iter().any(|cell| plan.study.compares(cell));
        let then = if shares { ": shares will not be known" } else { "" };
        row("cut short", format!("{ends} before the fewest rounds ({}) are there{then} (--minutes)", c.min_rounds));
    }
    if plan.study.repeat.steady_state {
        row(
            "steady",
            format!(
                "one workload at a time, {} written over their targets before; writing ones go on until five rounds \
                 agree (range 20 %, slope 10 %), at most {} rounds each or the budget",
                gib(c.precondition_bytes_written),
                c.max_rounds
            ),
        );
    }
    match &plan.placed {
        Some(_) if nothing => row("writes", "nothing".into()),
        Some(_) => what_is_written(plan, &mut row),
        None if plan.nodes.measured().is_some() && !nothing => what_is_written(plan, &mut row),
        None => row("writes", "nothing but its own files: no cell is on a disk".into()),
    }
    if let Some(placed) = &plan.placed {
        // Why not is what the plan is refused with.
        let space = plan.space.as_ref().map_or("that much is not there, or not usable", String::as_str);
        row("space", format!("{} at a time; {space}", gib(placed.needed_bytes)));
    }
    let device = cells.iter().flat_map(Cell::targets).any(takes_device);
    let needs = [
        device.then_some("the block device"),
        (!paths.is_empty()).then_some("network namespaces"),
        Some(if natively { "holding the native side to the guest's memory" } else { "holding QEMU to its processors" }),
    ];
    let needs: Vec<String> = needs.into_iter().flatten().map(|need| format!("for {need}")).collect();
    if here {
        row("root", format!("needed {}", needs.join(" and ")));
    }
    if let Some(command) = &plan.power_command {
        row("power", format!("beside each cell a shell runs, with the rights of vmio: {command}"));
        row("", "and this host's own counters are read, where it has any that may be".into());
    }
    others(plan, &mut row);
    let namespace = if paths.is_empty() { "" } else { "network namespace, " };
    row(
        "undone",
        format!(
            "every file, volume, device, {namespace}process and control group that it makes; nothing else is changed"
        ),
    );
    for (at, left_out) in plan.left_out.iter().enumerate() {
        let LeftOut { cell, why } = left_out;
        if plan.left_out[..at].iter().all(|earlier| earlier.why != *why) {
            let same = plan.left_out.iter().filter(|other| other.why == *why).count();
            let more = if same > 1 { ", …" } else { "" };
            row("not run", format!("{same} of {} cells ({}{more}): {why}", cells.len(), cell.key()));
        }
    }
    let left: Vec<String> =
        cells.iter().filter(|cell| !plan.left_out.iter().any(|l| l.cell == **cell)).map(Cell::key).collect();
    if let Some(first) = left.first().filter(|_| nothing) {
        let more = if left.len() > 1 { ", …" } else { "" };
        let why = "nothing is left to compare them with";
        row("not run", format!("{} of {} cells ({first}{more}): {why}", left.len(), cells.len()));
    }
    told
}

/// What each side has, and what guests of other shapes have at most.
fn has(plan: &Planned) -> String {
    let (own, c) = (&plan.study.guest, &plan.cost);
    let cores = |n: u32| count(n as usize, "core");
    let both = format!("{}, {} MiB of memory", cores(own.vcpus), own.memory_mib);
    if (c.vcpus, c.memory_bytes / MIB) == (own.vcpus, u64::from(own.memory_mib)) {
        both
    } else {
        format!("{both}; some guests up to {}, {} MiB", cores(c.vcpus), c.memory_bytes / MIB)
    }
}
