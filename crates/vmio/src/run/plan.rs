//! What a run will do, found out without changing anything: where, how long, how much is written,
//! what is unmet. Printed before anything is measured; `--dry-run` stops here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use vmio_host::backing::Backing;
use vmio_host::gentle::neighbours::{self, Others};
use vmio_host::places::{self, Ground, Place};
use vmio_host::require::Requirement;
pub use vmio_host::targets::space::gib;
use vmio_host::{guests, targets, workloads};
use vmio_model::result::{Run, Skipped, WorkloadTraits};
use vmio_model::setup::Setup;
use vmio_model::study::plan::{self as reckon, Plan, Rates, TargetSpace};
use vmio_model::study::{MIB, Study};
use vmio_node::{Node, Reader};

use super::Wishes;
use crate::cli::{Context, Exit, Failure};

/// All that is known before the first change.
pub struct Planned {
    /// The study, with the user's budgets.
    pub study: Study,
    /// Traits of its workloads.
    pub traits: Vec<WorkloadTraits>,
    /// Where targets are made.
    pub place: Place,
    /// Where the scratch directory goes: the place, or beside the state where that holds volumes.
    pub dir: PathBuf,
    /// The user's own device, as the target `device`.
    pub device: Option<PathBuf>,
    /// The disks below.
    pub backing: Backing,
    /// Cells that cannot run here.
    pub skipped: Vec<Skipped>,
    /// What it costs.
    pub cost: Plan,
    /// Whether the rates behind it were measured here before.
    pub rates_from: String,
    /// Bytes that the scratch volume takes.
    pub needed_bytes: u64,
    /// Space left there, in words.
    pub space: Result<String, String>,
    /// What guests run on here, as far as it is known.
    pub accelerator: Option<guests::Accelerator>,
    /// Who else runs here.
    pub others: Others,
    /// Whether to spare them.
    pub gentle: bool,
}

/// Targets that lose their data when a cell writes to them afresh.
pub const REFILLED: [&str; 4] = ["sparse", "lvm-thin", "zvol", "rbd"];

/// Rates that are assumed of a machine that vmio has never measured: a fast flash disk, so that
/// bytes and space err on the high side.
fn assumed(study: &Study) -> Rates {
    Rates {
        write_bytes_per_second: 1.0e9,
        read_bytes_per_second: 1.0e9,
        small_ios_per_second: 20_000.0,
        cell_overhead_seconds: 1.0,
        boot_seconds: 4.0,
        fixed_bytes: ["dd-write", "dd-read"].map(|name| (name.to_owned(), study.buffered_bytes())).into(),
        written_targets: ["preallocated", "device", "sparse", "lvm"].map(str::to_owned).into(),
        target_space: target_space(study),
        refilled_targets: REFILLED.map(str::to_owned).into(),
        spare_ratio: 0.2,
    }
}

/// The same from the last run on the same backing device, where there is one.
fn rates(study: &Study, last: Option<&Run>, backing: &Backing) -> (Rates, String) {
    let mut rates = assumed(study);
    let Some(last) = last.filter(|r| r.environment.backing == backing.describe() && r.environment.cap_ratio.is_none())
    else {
        return (rates, "assumed: 1 GB/s, 20,000 small requests a second".into());
    };
    let best = |name: &str, of: fn(&vmio_model::result::WorkloadResult) -> f64| {
        last.samples
            .iter()
            .filter(|s| s.setup.workload == name)
            .map(|s| of(&s.result))
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
    (rates, format!("from run {}", last.id))
}

/// Looks at the machine; changes nothing.
pub fn look(
    study: Study,
    wishes: &Wishes,
    last: Option<&Run>,
    context: &Context,
    local: &dyn Node,
) -> anyhow::Result<Planned> {
    let reader = local.reader();
    let place = match &wishes.on {
        Some(on) => places::resolve(local, on),
        None => places::directory(&targets::space::default_dir(reader, &context.paths.state)),
    }
    .map_err(refused)?;
    let dir = match &place.ground {
        Ground::Files(dir) => dir.clone(),
        Ground::Volumes(_) => context.paths.state.clone(),
    };
    let existing = existing_part(reader, &dir);
    if !existing.is_dir() {
        return Err(Failure::new(Exit::Precondition, format!("{} is no directory", existing.display()))
            .help("name a directory with --on")
            .into());
    }
    if let Some(device) = wishes.device.first() {
        targets::safety::check(local, device, wishes.force)
            .map_err(|e| Failure::new(Exit::Precondition, e.to_string()))?;
    }
    let backing = backing_of(local, &place, &existing, wishes)?;
    let traits = traits(&study);
    let (mut rates, rates_from) = rates(&study, last, &backing);
    rates.target_space.retain(|name, _| targets::find(name).is_none_or(|t| t.fits(&place.ground).is_ok()));
    if wishes.device.is_empty() && place.ground.pool().is_some_and(places::Pool::allocates) {
        if let Some(space) = rates.target_space.get_mut("device") {
            space.prepared_bytes = 0;
        }
        rates.refilled_targets.push("device".into());
    }
    let cost = reckon::estimate(&study, &traits, &rates);
    let needed_bytes = needed_bytes(&rates, wishes);
    let space = match &place.ground {
        Ground::Files(_) => targets::space::demand(local, &existing, needed_bytes)
            .and_then(|left| match needed_bytes {
                0 => Ok(left),
                _ => targets::not_in_memory(&existing).map(|()| left),
            })
            .map_err(|e| e.to_string()),
        Ground::Volumes(pool) => pool.demand(local, needed_bytes).map_err(|e| format!("{e}; {}", e.help)),
    };
    let space = space.map(|s| format!("{} left ({})", gib(s.free_bytes), s.of));
    let others = neighbours::others(reader, "").context("cannot look for other guests")?;
    let accelerator = guests::qemu::known_accelerator(reader, &context.paths.state);
    let gentle = wishes.gentle || (!wishes.no_gentle && !others.guests.is_empty());
    let skipped = unmet(&study, local, gentle, wishes, &place.ground);
    Ok(Planned {
        study,
        traits,
        place,
        dir,
        device: wishes.device.first().cloned(),
        backing,
        skipped,
        cost,
        rates_from,
        needed_bytes,
        space,
        accelerator,
        others,
        gentle,
    })
}

/// Traits of the study's workloads, in the order in which they are shown: those of the list first,
/// then the others as the study names them.
fn traits(study: &Study) -> Vec<WorkloadTraits> {
    let mut names: Vec<String> = workloads::ALL.iter().map(|w| w.traits().name).collect();
    let cells = study.cells();
    for cell in &cells {
        if !names.contains(&cell.workload) {
            names.push(cell.workload.clone());
        }
    }
    names.retain(|name| cells.iter().any(|c| c.workload == *name));
    names.iter().filter_map(|name| Some(workloads::find(name)?.traits())).collect()
}

/// What each target of a study takes, by its own word.
fn target_space(study: &Study) -> BTreeMap<String, TargetSpace> {
    let mut seen_by: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for cell in study.cells() {
        seen_by.entry(cell.target).or_default().extend(cell.attachment.map(|a| a.label()));
    }
    let of = |(name, attachments): (String, BTreeSet<String>)| {
        let space = targets::find(&name)?.space(study.target_bytes(), attachments.len() as u64);
        let targets::Space { taken_bytes, prepared_bytes } = space;
        Some((name, TargetSpace { taken_bytes, prepared_bytes }))
    };
    seen_by.into_iter().filter_map(of).collect()
}

/// An unmet precondition with what to do about it.
fn refused(e: places::Error) -> Failure {
    let exit = if e.kind == places::Kind::Unknown { Exit::Usage } else { Exit::Precondition };
    Failure::new(exit, e.to_string()).help(e.help)
}

/// The disks below the place, or below the user's own device.
fn backing_of(local: &dyn Node, place: &Place, existing: &Path, wishes: &Wishes) -> anyhow::Result<Backing> {
    let path = match (wishes.device.first(), &place.ground) {
        (Some(device), _) => device,
        (None, Ground::Volumes(pool)) => return Ok(pool.backing(local).map_err(refused)?),
        (None, Ground::Files(_)) => existing,
    };
    Backing::below(local, path).with_context(|| {
        Failure::new(Exit::Precondition, format!("cannot tell which disk is below {}", path.display()))
    })
}

/// Bytes that the targets take in the place.
fn needed_bytes(rates: &Rates, wishes: &Wishes) -> u64 {
    let ours = |name: &str| name != "device" || wishes.device.is_empty();
    rates.target_space.iter().filter(|(name, _)| ours(name)).map(|(_, space)| space.taken_bytes).sum()
}

/// The deepest part of the path that exists: what the scratch directory will lie in.
fn existing_part(reader: &dyn Reader, dir: &Path) -> PathBuf {
    dir.ancestors().find(|p| matches!(reader.stat(p), Ok(Some(_)))).unwrap_or(Path::new("/")).to_path_buf()
}

/// Cells that cannot run here, with the first unmet requirement of the entries that they name.
fn unmet(study: &Study, local: &dyn Node, gentle: bool, wishes: &Wishes, ground: &Ground) -> Vec<Skipped> {
    study
        .cells()
        .into_iter()
        .filter_map(|setup| Some(Skipped { reason: why_not(&setup, local, gentle, wishes, ground)?, setup }))
        .collect()
}

fn why_not(setup: &Setup, local: &dyn Node, gentle: bool, wishes: &Wishes, ground: &Ground) -> Option<String> {
    let mut needs: Vec<&Requirement> = Vec::new();
    if let Some(guest) = guests::find(&setup.guest) {
        needs.extend(guest.requirements());
    }
    if let Some(target) = targets::find(&setup.target)
        && (setup.target != "device" || wishes.device.is_empty())
    {
        if let Err(reason) = target.fits(ground) {
            return Some(reason);
        }
        match ground.pool() {
            Some(pool) => needs.extend(pool.requirements()),
            None => needs.extend(target.requirements()),
        }
    }
    let workload = workloads::find(&setup.workload)?;
    needs.extend(workload.requirements());
    let missing = needs
        .iter()
        .find_map(|r| (r.check)(local.reader()).err().map(|found| format!("{}: {found}; {}", r.name, r.mend)));
    missing
        .or_else(|| guests::qemu::why_not(local, setup.attachment.as_ref()?))
        .or_else(|| gentle.then(|| workload.can_be_gentle().err().map(str::to_owned)).flatten())
}

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

impl Planned {
    /// The plan as it is printed.
    pub fn text(&self) -> String {
        let mut t = String::new();
        let c = &self.cost;
        let cells = self.study.cells();
        let guests = c.cells - c.native_cells;
        let _ = writeln!(t, "Plan: {} ({})", self.study.title, self.study.name);
        let mut row = |name: &str, text: String| {
            let _ = writeln!(t, "  {name:<10} {text}");
        };
        let made = if self.place.ground.pool().is_some() || self.dir.exists() { "" } else { " (will be made)" };
        row("where", format!("{}{made} on {}", self.place.describe(), self.backing.describe()));
        let times = range(c.min_rounds.to_string(), c.max_rounds.to_string());
        let native_only = self.study.is_native_only();
        if native_only {
            row("cells", format!("{} native cells, each {times} times; no guest is booted", c.native_cells));
        } else {
            let boots = self.study.repeat.min_boots;
            let native = c.native_cells;
            let cells =
                format!("{native} native and {guests} guest cells, each {times} times, over at least {boots} boots");
            row("cells", cells);
            row(
                "guests on",
                match &self.accelerator {
                    Some(known) => known.reason.clone(),
                    None => {
                        "KVM if a short real boot proves it, else software emulation (the report says which)".into()
                    }
                },
            );
        }
        if c.control_cells > 0 {
            let most = c.control_cells;
            row(
                "controls",
                format!("at most {most} more native cells from the second round on; the first one says which"),
            );
        }
        row(
            if native_only { "held to" } else { "both sides" },
            format!("{} core{}, {} MiB of memory", c.vcpus, if c.vcpus == 1 { "" } else { "s" }, c.memory_bytes / MIB),
        );
        row(
            "time",
            format!(
                "{} of measuring, first figures after about {}",
                range(duration(c.min_seconds.min(c.max_seconds)), duration(c.max_seconds)),
                duration(c.first_round_seconds.min(c.max_seconds))
            ),
        );
        let space = match &self.space {
            Ok(left) => left.clone(),
            Err(why) => why.clone(),
        };
        if self.study.repeat.steady_state {
            row(
                "steady",
                format!(
                    "{} written first, once more over each target; then writing cells go on until five rounds agree \
                     (range 20 %, slope 10 %), at most {} rounds or the budget",
                    gib(c.precondition_bytes_written),
                    c.max_rounds
                ),
            );
        }
        row("writes", format!("at most {} (rates {})", gib(c.max_bytes_written), self.rates_from));
        if c.over_bytes || c.over_time {
            let which = if c.over_bytes { "write" } else { "time" };
            row("", format!("the {which} budget is likely to end the run before the fewest rounds are there"));
        }
        row("space", format!("{} at a time; {space}", gib(self.needed_bytes)));
        row(
            "root",
            if cells.iter().any(|s| s.target == "device") {
                "needed for the block device and for holding the native side to the guest's memory".into()
            } else {
                "needed for holding the native side to the guest's memory".into()
            },
        );
        let who: Vec<String> = self.others.guests.iter().map(|g| g.label()).collect();
        row(
            "others",
            match (who.is_empty(), self.gentle) {
                (true, false) => self.others.unseen().map_or("no other guest runs on this host".into(), str::to_owned),
                (true, true) => "no other guest runs on this host; gentle all the same: bandwidth is capped".into(),
                (false, true) => format!(
                    "{} run here: gentle, bandwidth is capped, the run ends when they slow down",
                    who.join(", ")
                ),
                (false, false) => format!("{} run here and are not spared (--no-gentle)", who.join(", ")),
            },
        );
        row(
            "undone",
            "every file, volume, device, process and control group that it makes; nothing else is changed".into(),
        );
        let mut told = BTreeSet::new();
        for s in &self.skipped {
            if told.insert(s.reason.as_str()) {
                let same = self.skipped.iter().filter(|o| o.reason == s.reason).count();
                row(
                    "not run",
                    format!(
                        "{same} of {} cells ({}{}): {}",
                        cells.len(),
                        s.setup.key(),
                        if same > 1 { ", …" } else { "" },
                        s.reason
                    ),
                );
            }
        }
        t
    }

    /// A run with nothing to measure, or guests without anything to compare them with, is refused
    /// before it begins.
    pub fn refuse(&self) -> anyhow::Result<()> {
        if let Err(why) = &self.space {
            return Err(Failure::new(Exit::Precondition, why.clone()).into());
        }
        let skipped: BTreeSet<String> = self.skipped.iter().map(|s| s.setup.key()).collect();
        let can_run = |c: &Setup| !skipped.contains(&c.key()) && !skipped.contains(&c.baseline().key());
        let native_only = self.study.is_native_only();
        if !self.study.cells().iter().any(|c| (native_only || !c.is_native()) && can_run(c)) {
            let why = self.skipped.first().map_or_else(String::new, |s| s.reason.clone());
            return Err(Failure::new(Exit::Precondition, format!("nothing can be measured here: {why}"))
                .help("`vmio doctor` lists what this host has and lacks")
                .into());
        }
        Ok(())
    }

    /// The plan for programs.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "schema_version": "1.0",
            "study": self.study.name,
            "place": self.place.name,
            "directory": self.dir,
            "backing": self.backing.describe(),
            "cost": self.cost,
            "rates_from": self.rates_from,
            "space": self.space.as_ref().map_or_else(Clone::clone, Clone::clone),
            "gentle": self.gentle,
            "other_guests": self.others.guests.iter().map(|g| g.label()).collect::<Vec<_>>(),
            "skipped": self.skipped,
        })
    }

    /// Device that holds the scratch volume, as (major, minor): what the gentle watch looks at.
    pub fn device_number(&self, local: &dyn Node) -> (u32, u32) {
        let (path, is_device) = match &self.device {
            Some(device) => (device.clone(), true),
            // Its volumes are not there yet: the first disk below them serves all.
            None if self.place.ground.pool().is_some() => {
                return self.backing.leaves.values().next().copied().unwrap_or_default();
            }
            None => (existing_part(local.reader(), &self.dir), false),
        };
        match local.stat(&path) {
            Ok(Some(stat)) if is_device => stat.rdev,
            Ok(Some(stat)) => stat.dev,
            _ => (0, 0),
        }
    }
}
