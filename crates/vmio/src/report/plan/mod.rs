//! The plan as it is shown: to people before the question, to programs.

mod json;

use std::collections::BTreeMap;

use vmio_model::cell::{Cell, Subject};
use vmio_model::study::MIB;
use vmio_model::words::count;
use vmio_rig::disks::space::gib;
use vmio_rig::disks::targets::Identity;
use vmio_rig::engine::environment::of_measured;
use vmio_rig::engine::plan::{LeftOut, Placed, Planned, gib_for, takes_device};
use vmio_rig::gentle::instance::Unseen;

use super::document::{self, Block, In, Name, Pairs, Text, remarks};
use super::{versus, view};
use crate::fit::WIDTH;
use crate::term::Style;
use json::Device;

pub use json::Document;

/// Most other guests that are named.
const SHOWN: usize = 5;

/// `5 to 12`, or `8` where both are the same.
fn range(low: String, high: String) -> String {
    if low == high { low } else { format!("{low} to {high}") }
}

/// `40 s`, `3 min 20 s`.
pub fn duration(seconds: f64) -> String {
    let s = seconds.round().max(0.0) as u64;
    if s < 60 {
        format!("{s} s")
    } else if s < 600 {
        format!("{} min {} s", s / 60, s % 60)
    } else {
        format!("{} min", s / 60)
    }
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
        for (device, list) in &afar.known.settings {
            row("", format!("{device}: {list}"));
        }
        for finding in &afar.known.findings {
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
        match plan.study.boots_nothing() {
            true => row("guests", "containers alone: no image, and nothing is emulated".into()),
            false => row("guests on", known.unwrap_or_else(not_known)),
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
    let sides = match () {
        () if native_only => "limited to",
        () if natively => "both sides",
        () => "guests get",
    };
    if here {
        row(sides, has(plan));
    }
    if natively {
        row("", format!("natively: {}", plan.held.native));
    }
    if let Some(qemu) = &plan.held.qemu {
        row("", format!("QEMU: {}", view::qemu_held(qemu, plan.gentle)));
    }
    let nothing = plan.measures_nothing();
    row(
        "time",
        match c.first_round_seconds > c.max_seconds {
            _ if nothing => "none: nothing can be measured here (\"not run\" below)".to_owned(),
            true => format!(
                "at most {} of measuring: the first round alone takes about {}",
                duration(c.max_seconds),
                duration(c.first_round_seconds)
            ),
            false => format!(
                "{} of measuring, first figures after about {}",
                range(duration(c.min_seconds.min(c.max_seconds)), duration(c.max_seconds)),
                duration(c.first_round_seconds)
            ),
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
    let mut who: Vec<String> = plan.others.guests.iter().take(SHOWN).map(|g| g.label()).collect();
    if let Some(more) = plan.others.guests.len().checked_sub(SHOWN).filter(|n| *n > 0) {
        who.push(format!("{more} more"));
    }
    let who = who.join(", ");
    // What cannot be capped does not run.
    let any_runs = !nothing;
    match (who.is_empty(), plan.gentle) {
        (true, false) => {
            let seen = plan.others.unseen();
            row("others", seen.map_or("no other guest runs on this host".into(), str::to_owned));
        }
        (true, true) => {
            let capped = if any_runs { ": bandwidth is capped" } else { ", and no cell is left to run" };
            row("others", format!("no other guest runs on this host; gentle all the same{capped}"));
            if let Some(unseen) = plan.latency_unseen.as_ref().filter(|_| any_runs) {
                unseen_latency("should one start, the run goes on when it slows down", unseen, &mut row);
            }
        }
        (false, true) => {
            row("others", format!("{who} run here:"));
            match (any_runs, &plan.latency_unseen) {
                (true, None) => {
                    row("", "gentle, bandwidth is capped, the run ends when they slow down".into());
                }
                (true, Some(unseen)) => {
                    row("", "gentle, bandwidth is capped and one core is used: that is all they get".into());
                    unseen_latency("the run goes on when they slow down", unseen, &mut row);
                }
                (false, _) => row("", "gentle, and no cell is left to run".into()),
            }
        }
        (false, false) => row("others", format!("{who} run here and are not spared (--no-gentle)")),
    }
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

/// What follows where others' latency is not visible, why it is not, and what to do.
fn unseen_latency(what_follows: &str, unseen: &Unseen, row: &mut dyn FnMut(&str, String)) {
    row("", format!("{what_follows}, for their latency is not visible here: {}", unseen.why));
    if let Some(mend) = &unseen.mend {
        row("", format!("help: {mend}"));
    }
}

/// Who works over a path with no device of a guest's.
const NATIVELY: &str = "natively";
const CONTAINED: &str = "a container";
/// In the order in which they are told.
const OWN: [&str; 3] = [INSIDE, CONTAINED, NATIVELY];
const INSIDE: &str = "inside of guests";

/// The networks that cells work over, each with who does: `bridge: guests by virtio-net, e1000`, `veth: natively`.
fn networks(cells: &[Cell]) -> Vec<String> {
    let mut all: Vec<(&str, Vec<String>)> = Vec::new();
    for actor in cells.iter().flat_map(Cell::actors) {
        let Subject::Path { network, .. } = &actor.subject else { continue };
        let own = match &actor.side {
            side if side.is_native() => NATIVELY,
            side if side.shares_kernel() => CONTAINED,
            _ => INSIDE,
        };
        let who = actor.subject.seen_by().unwrap_or_else(|| own.to_owned());
        match all.iter_mut().find(|(name, _)| name == network) {
            Some((_, seen)) if !seen.contains(&who) => seen.push(who),
            Some(_) => {}
            None => all.push((network, vec![who])),
        }
    }
    let told = |(network, who): &(&str, Vec<String>)| {
        let guests: Vec<&str> = who.iter().map(String::as_str).filter(|who| !OWN.contains(who)).collect();
        let guests = (!guests.is_empty()).then(|| format!("guests by {}", guests.join(", ")));
        let others = OWN.into_iter().filter(|word| who.iter().any(|who| who == word)).map(str::to_owned);
        format!("{network}: {}", guests.into_iter().chain(others).collect::<Vec<_>>().join(" and "))
    };
    all.iter().map(told).collect()
}

/// What each side has, and what guests of other shapes have at most.
fn has(plan: &Planned) -> String {
    let (own, c) = (&plan.study.guest, &plan.cost);
    let cores = |n: u32| count(n as usize, "core");
    let both = format!("{}, {} MiB of memory", cores(own.vcpus), own.memory_mib);
    match (c.vcpus, c.memory_bytes / MIB) == (own.vcpus, u64::from(own.memory_mib)) {
        true => both,
        false => format!("{both}; some guests up to {}, {} MiB", cores(c.vcpus), c.memory_bytes / MIB),
    }
}

/// Where targets are made, and what is lost there.
fn where_targets_go(placed: &Placed, plan: &Planned, row: &mut dyn FnMut(&str, String)) {
    let made = if placed.place.ground.pool().is_some() || placed.dir.exists() {
        ""
    } else if placed.missing.is_some() {
        " (is not there)"
    } else {
        " (will be made)"
    };
    match placed.place.ground.modelled() {
        Some(disk) => {
            row("where", format!("{} that vmio serves from memory", disk.headline()));
            row("", format!("({disk}), with ext4 on it"));
            row("", "figures are those of the model, not of this host's storage".to_owned());
        }
        None => row("where", format!("{}{made} on {}", placed.place.describe(), placed.backing.describe())),
    }
    if let Some(device) = &placed.device {
        row("device", device.named());
        device_rows(plan, &device.identity, &placed.device_told, row);
    }
}

/// What the user's own device is, and what becomes of it.
fn device_rows(plan: &Planned, identity: &Identity, unseen: &[String], row: &mut dyn FnMut(&str, String)) {
    row("", identity.describe());
    for unseen in unseen {
        row("", format!("see that nothing uses it: {unseen}"));
    }
    row("", format!("all data in its first {} MiB is lost", plan.study.target_bytes() / MIB));
}

/// What is written to the place.
fn what_is_written(plan: &Planned, row: &mut dyn FnMut(&str, String)) {
    let c = &plan.cost;
    if let Some(budget) = plan.too_little_for_targets() {
        let making = gib(c.making_bytes_written);
        row("writes", format!("making the targets alone writes {making}, more than the {} of --gib", gib(budget)));
        return;
    }
    row(
        "writes",
        format!(
            "at most {} in all, {} of it before anything is measured",
            gib(c.max_bytes_written),
            gib(c.making_bytes_written)
        ),
    );
    let (likely, rates) = (gib(c.likely_bytes_written), &plan.rates_from);
    row(
        "",
        match c.over_time {
            true => format!("likely less than {likely}, what {} rounds write (rates {rates})", c.min_rounds),
            false => format!("likely {likely} for {} rounds (rates {rates})", c.min_rounds),
        },
    );
    for (span, workloads) in cut(plan) {
        row("", format!("no cell of {workloads} goes over more than {} of its target", gib(span)));
    }
    if c.over_bytes {
        row(
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
fn cut(plan: &Planned) -> BTreeMap<u64, String> {
    let whole = plan.study.target_bytes();
    let mut cut: BTreeMap<u64, String> = BTreeMap::new();
    let fixed = &plan.cost.rates.fixed_bytes;
    for (workload, &span) in plan.cost.spans.iter().filter(|(w, span)| **span < whole && !fixed.contains_key(*w)) {
        let names = cut.entry(span).or_default();
        *names += if names.is_empty() { "" } else { ", " };
        *names += workload;
    }
    cut
}

/// The plan for programs.
pub fn json(plan: &Planned) -> Document<'_> {
    let (placed, (machine, afar)) = (plan.placed.as_ref(), plan.nodes.measured().unzip());
    let (peer, ends) = plan.nodes.peer().unzip();
    Document {
        schema_version: "2.0",
        study: &plan.study.name,
        title: &plan.study.title,
        told: &plan.told,
        form: plan.form.as_deref(),
        place: placed.map(|p| p.place.name.as_str()).or(machine.map(|machine| machine.address.as_str())),
        directory: placed.map(|p| p.dir.as_path()).or(afar.map(|afar| afar.dir.as_path())),
        backing: placed.map(|p| p.backing.describe()),
        peer: peer.map(ToString::to_string),
        peer_told: ends.iter().flat_map(|ends| ends.served_at().into_iter().chain(ends.told.clone())).collect(),
        device: match (placed.and_then(|p| Some((p, p.device.as_ref()?))), afar.and_then(|afar| afar.device.as_ref())) {
            (Some((p, d)), _) => {
                Some(Device { path: &d.asked, node: &d.node, identity: (&d.identity).into(), not_seen: &p.device_told })
            }
            (None, Some(d)) => {
                Some(Device { path: &d.asked, node: &d.node, identity: (&d.identity).into(), not_seen: &d.told })
            }
            (None, None) => None,
        },
        baseline: &plan.study.baseline,
        cost: &plan.cost,
        rates_from: &plan.rates_from,
        space: placed.map(|_| plan.space.as_ref().map_or_else(ToString::to_string, String::clone)),
        gentle: plan.gentle,
        guest_kernel: plan.kernel.as_ref().map(|(kernel, _)| kernel.file.as_path()),
        latency_unseen: plan.latency_unseen.as_ref().map(ToString::to_string),
        held: &plan.held,
        other_guests: plan.others.guests.iter().map(|g| g.label()).collect(),
        skipped: plan.skipped(),
    }
}
