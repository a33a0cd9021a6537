//! `vmio doctor`: what this host has and lacks, by entry of each extension point. Only looks, unless told to try.

mod answer;
mod around;
mod document;
mod listing;
mod tried;
mod tries;
mod work;

use vmio_guard::planes::linux::{self, functions};
use vmio_look::HostView;
use vmio_look::neighbours;
use vmio_look::require::Requirement;
use vmio_look::trace;
use vmio_model::cell::Nic;
use vmio_node::{Local, Node};
use vmio_rig::disks::drivers;
use vmio_rig::disks::places::PlaceBackend;
use vmio_rig::disks::space;
use vmio_rig::disks::targets;
use vmio_rig::gentle::instance;
use vmio_rig::guests;
use vmio_rig::guests::qemu::NoKvm;
use vmio_rig::image;
use vmio_rig::lab;
use vmio_rig::nets;
use vmio_rig::nics;
use vmio_rig::probes;
use vmio_rig::settings;
use vmio_rig::workloads;

use crate::context::{Context, Outcome, with_elsewhere};
use crate::fit;
use around::{GuestSource, Places};
use document::{AbilityRow, Lacking};
use listing::{Checks, Entry, Unmet};
use tried::Tried;
use tries::Attempt;

pub use document::Document;

use crate::store::{Store, StoreError};
use crate::supervisor;
use crate::term;
use vmio_model::failure::Exit;
use vmio_model::words::count;

/// Columns before the description of an ability.
const ABOUT: usize = 36;

/// List what this host has and lacks for each thing vmio can do; changes nothing without --try
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Boot a guest, run the helper programs, load the eBPF programs, make a namespace: each once, about 30 s in all.
    /// Everything made is removed but the guest image (about 260 MB), which is kept for runs
    #[arg(long = "try")]
    tries: bool,
    /// List each item with its description, also untried ones
    #[arg(long, short)]
    verbose: bool,
}

/// Something that vmio can do, and what it needs.
struct Ability {
    point: &'static str,
    name: String,
    about: &'static str,
    requirements: Vec<&'static Requirement>,
    /// Whether a host without it is less than ready: measuring does not need what is optional.
    needed: bool,
}

fn abilities() -> Vec<Ability> {
    let mut all = Vec::new();
    let mut add = |point, name: &str, about, requirements: Vec<&'static Requirement>, needed| {
        all.push(Ability { point, name: name.to_owned(), about, requirements, needed });
    };
    let listed = |requirements: &'static [Requirement]| requirements.iter().collect::<Vec<_>>();
    let of_image = image::REQUIREMENTS.iter().chain([&image::OWN_AGENT]).collect();
    add("image", "guest image", "what reference guests boot from", of_image, true);
    let about = "a guest that acts as a host, for storage this kernel does not support";
    add("image", "lab host", about, listed(lab::REQUIREMENTS), false);
    for g in guests::ALL {
        add("guest", g.name(), g.about(), listed(g.requirements()), true);
    }
    let about = "a guest of 64-bit ARM under QEMU (machine virt), always emulated";
    add("guest", "qemu, aarch64", about, listed(guests::qemu::AARCH64), false);
    for d in drivers::ALL {
        add("driver", d.name, d.about, Vec::new(), true);
    }
    // Volumes are left out: `places` says whether this host has any.
    let files = PlaceBackend::Files("/".into());
    for t in targets::ALL.iter().filter(|t| t.fits(&files).is_ok() || t.flash_cache().is_some()) {
        let is_needed = !t.over_link() && t.flash_cache().is_none() && t.by_peer().is_none();
        add("target", t.name(), t.about(), listed(t.requirements()), is_needed);
        let of_hypervisors = t.block_client().into_iter().flat_map(|client| {
            let of_guests = guests::ALL.iter().map(move |guest| guest.requirements_for(client));
            of_guests.filter(|requirements| !requirements.is_empty())
        });
        for requirements in of_hypervisors {
            let about = "the same, reached by a guest's hypervisor";
            add("target", &format!("{}, host-side", t.name()), about, listed(requirements), false);
        }
        if let Some(client) = t.own_client() {
            let about = "the same, reached by the guest itself over a card of its own";
            add("target", &format!("{}, guest-side", t.name()), about, listed(client.requirements), false);
        }
        if !t.native_requirements().is_empty() {
            let about = "the same, reached by this host's own kernel";
            add("target", &format!("{}, natively", t.name()), about, listed(t.native_requirements()), false);
        }
    }
    // Optional: disks can be measured without networks.
    for n in nets::ALL {
        add("network", n.name(), n.about(), listed(n.requirements()), false);
    }
    for n in nics::ALL {
        add("nic", n.name, n.about, Vec::new(), false);
        if n.is_virtio {
            let vhost = Nic { vhost: true, ..Nic::new(n.name) }.label();
            add("nic", &vhost, "the same, its packets carried by the host's kernel", vec![&nets::VHOST], false);
        }
    }
    for s in settings::ALL {
        add("setting", s.name(), s.about(), listed(s.requirements()), false);
    }
    for w in workloads::ALL {
        // One that brings a runtime or a server of its own is optional.
        let needed = w.files().is_empty() && w.host_programs().is_empty();
        add("workload", &w.traits().name, w.about(), w.requirements().collect(), needed);
    }
    // Families of networks and processors are optional.
    let families = [
        (workloads::family::KINDS, true),
        (workloads::net::family::KINDS, false),
        (workloads::cpu::family::KINDS, false),
    ];
    for (kinds, needed) in families {
        for (name, about, requirements) in kinds {
            add("workload", name, about, listed(requirements), needed);
        }
    }
    let about = "a policy kept in force by `vmio guard run`";
    add("guard", "linux", about, listed(linux::REQUIREMENTS), false);
    let about = "how long packets wait in their class's queue, measured by `vmio guard run`";
    add("guard", "delays", about, listed(linux::delays::REQUIREMENTS), false);
    let about = "limits in a card for its virtual functions, for `vmio guard`";
    add("guard", "card limits", about, vec![&functions::CARD], false);
    let about = "disk use by process, for `vmio top`";
    add("probe", "block tracing", about, listed(trace::REQUIREMENTS), false);
    let about = "what hypervisors ask of the host, for `vmio explain` and `vmio top --calls`";
    add("probe", "call tracing", about, listed(trace::calls::REQUIREMENTS), false);
    let about = "the same, of requests by io_uring";
    add("probe", "io_uring tracing", about, vec![&trace::calls::RINGS], false);
    let about = "other guests' latency, for runs that end when they slow down";
    add("probe", "latency watch", about, listed(instance::REQUIREMENTS), false);
    // Probes without requirements work on every host.
    for p in probes::ALL.iter().filter(|p| !p.requirements().is_empty()) {
        add("probe", p.name(), p.about(), listed(p.requirements()), false);
    }
    all
}

/// Why the store cannot be used, and what to do.
fn store_error(e: &StoreError) -> String {
    format!("{e}; {}", with_elsewhere(e.help()))
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    if args.tries {
        supervisor::supervise(None, None, &context.paths.state);
    }
    let local = Local::new();
    let reader = local.reader();
    let mut checks = Checks::new();
    let mut rows = Vec::new();
    for ability in abilities() {
        let needs = ability.requirements.iter();
        let missing: Vec<Unmet> = needs.filter_map(|need| Unmet::of(need, reader, &mut checks)).collect();
        rows.push((ability, missing));
    }
    let known = || guests::qemu::known_accelerator(&local, &context.paths.state);
    let mut attempts = Attempt::found(reader, &mut checks, known().as_ref());
    if args.tries {
        Attempt::each(&mut attempts, context)?;
    }
    let broken = attempts.iter().any(|attempt| attempt.broken().is_some());
    // Where the device went away since, what was found then does not count.
    let accelerator = known().filter(|_| NoKvm::of(reader, None).is_none());
    let others = neighbours::others(reader, "")?;
    let scratch = space::default_dir(reader, &context.paths.state);
    let places = Places::of(&local);
    let host = HostView::new(&local);
    let watched = GuestSource::all(&host);
    let store = match Store::open_existing(&context.paths.db()) {
        Err(StoreError::Missing { .. }) => Ok(None),
        opened => opened.map(Some),
    };
    let stored = store.and_then(|store| {
        let runs = store.as_ref().map_or_else(|| Ok(Vec::new()), Store::list)?;
        let tried = Tried::here(store.as_ref(), &runs, accelerator.as_ref(), &local);
        Ok((tried, runs.len()))
    });
    let (mut tried, stored) = match stored {
        Ok((tried, runs)) => (tried, Ok(runs)),
        Err(e) => (Tried::here(None, &[], accelerator.as_ref(), &local), Err(e)),
    };
    attempts.iter().flat_map(Attempt::shown).for_each(|&(point, name)| tried.put(point, name));
    let entry = |(ability, missing): (Ability, Vec<Unmet>)| {
        let state = match (missing.is_empty(), tried.has(ability.point, &ability.name)) {
            (false, _) => "lacking",
            (true, true) => "ready",
            (true, false) => "untried",
        };
        Entry { ability, missing, state }
    };
    let entries: Vec<Entry> = rows.into_iter().map(entry).collect();
    let lacking = listing::lacking(&entries);
    let ready = lacking.is_empty() && !broken;
    if context.json {
        let lack = |unmet: &Unmet| Lacking { name: unmet.name, why: unmet.why(), mend: unmet.fix.clone() };
        let row = |entry: &Entry| AbilityRow {
            state: entry.state,
            point: entry.ability.point,
            name: entry.ability.name.clone(),
            about: entry.ability.about,
            ready: entry.missing.is_empty(),
            missing: entry.missing.iter().map(lack).collect(),
        };
        term::json(&Document {
            schema_version: "1.2",
            ready,
            abilities: entries.iter().map(row).collect(),
            tries: attempts.iter().map(Attempt::json).collect(),
            accelerator: accelerator.as_ref(),
            other_guests: others.guests.iter().map(|g| g.label()).collect(),
            other_guests_unseen: others.unseen(),
            scratch_directory: &scratch,
            places: places.json(),
            looks_at: watched.iter().map(GuestSource::json).collect(),
            state_directory: &context.paths.state,
            stored_runs: stored.as_ref().ok().copied(),
            store_error: stored.as_ref().err().map(store_error).as_deref(),
        })?;
    } else {
        let style = context.style;
        let mut text = listing::text(&entries, args.verbose, style);
        text += &tries::text(&attempts, args.verbose, style);
        text += &format!("\n{}", tries::accelerator(&attempts, accelerator.as_ref(), style));
        let who: Vec<String> = others.guests.iter().map(|g| g.label()).collect();
        let who = if who.is_empty() { "none seen on this host".into() } else { who.join(", ") };
        let unseen = others.unseen().map(|u| format!("; {u}")).unwrap_or_default();
        text += &fit::paragraph("other guests ", 13, &format!("{who}{unseen}"));
        text += &fit::paragraph("scratch in   ", 13, &format!("{} (change with --on)", scratch.display()));
        text += &places.text(args.verbose, style);
        text += &GuestSource::text(&watched, args.verbose);
        let stored = stored.map_or_else(|e| store_error(&e), |n| count(n, "stored run"));
        text += &fit::paragraph("state in     ", 13, &format!("{}, {stored}", context.paths.state.display()));
        // On a terminal the end is what is seen.
        text += &format!("\n{}", answer::text(&lacking, &attempts, &tried));
        term::print(&text)?;
    }
    Ok(if ready { Exit::Done } else { Exit::Precondition })
}
