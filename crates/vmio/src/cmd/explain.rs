//! `vmio explain`: where the time of one request goes, layer by layer, of a stored run or of a running guest.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use vmio_look::top::Sampler;
use vmio_look::{HostView, kinds};
use vmio_model::facts::{Guest, Unread, tell_apart};
use vmio_model::failure::{Exit, Failure};
use vmio_model::sanitize;
use vmio_model::study::WordError;
use vmio_model::top::load::Device;
use vmio_model::waterfall::hypervisor::HypervisorCounts;
use vmio_model::waterfall::{Layer, host, hypervisor, live};
use vmio_node::Local;

use super::scan::pick;
use super::top::seconds_within;
use crate::context::{Context, Outcome};
use crate::report::document;
use crate::report::explain::{self, Document, GuestLayers, RunLayers, SCHEMA_VERSION, UNSEEN};
use crate::store::{RunId, Store, StoreError};
use crate::{files, term, top};

mod cost;
mod histograms;

const EXAMPLES: &str = "\
Examples:
  vmio explain last            the disk and network cells of the newest run,
                               from the store
  vmio explain 7 --cell rand-read-1
                               a cell of run 7 with all its layers
  vmio explain web1            a running guest, watched for 10 s from outside
  vmio explain web1 --for 30s  the same for 30 s
  vmio explain web1 --qmp      also the part of its hypervisor, by its monitor
  vmio explain web1 --qmp --histograms
                               with percentiles of that part
  vmio explain web1 --cost     also what watching it costs
  vmio explain --guest 101     the guest of this VMID, not the run

Changes no guest and no setting. For a running guest it loads eBPF programs at
tracepoints of the block layer and of ext4, as vmio top does, and at those of
system calls and io_uring; they are removed when it ends. With --histograms it
switches QEMU's latency histograms on, and off when it ends.
More in docs/explain.md.";

/// Show where the time of one disk request goes, layer by layer
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A stored run (its number, or `last`), or a guest that runs here
    #[arg(value_name = "RUN|GUEST")]
    what: String,
    /// Take the word for a guest's, even if a run has that number
    #[arg(long)]
    guest: bool,
    /// Of a run, only the cells with this text in their name
    #[arg(long, value_name = "TEXT", conflicts_with = "guest")]
    cell: Option<String>,
    /// How long to watch a guest, in seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds, default_value = "10s")]
    watch: Duration,
    /// Also read the counters of the guest's disks from the monitor (QMP) of its QEMU, twice
    #[arg(long, conflicts_with = "cell")]
    qmp: bool,
    /// With --qmp: switch QEMU's latency histograms on meanwhile, for percentiles
    #[arg(long, requires = "qmp")]
    histograms: bool,
    /// Also measure what watching costs: requests a second with it and without, in turns, for some 10 s
    #[arg(long, conflicts_with = "cell")]
    cost: bool,
    /// Show all cells of a run
    #[arg(long, short)]
    verbose: bool,
    /// Also write everything to one HTML file that loads nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Shortest and longest time to watch.
const SECONDS: RangeInclusive<f64> = 1.0..=3600.0;

fn seconds(text: &str) -> Result<Duration, WordError> {
    seconds_within(text, &SECONDS, "10").map(Duration::from_secs_f64)
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let stored = if args.guest { None } else { stored(&args.what, context)? };
    match stored {
        Some(_) if args.qmp => {
            let what = format!("only a running guest has a monitor, and {} is a stored run", args.what);
            Err(Failure::new(Exit::Usage, what).help("leave out --qmp, or add --guest").into())
        }
        Some(_) if args.cost => {
            let what = format!("only a running guest is watched, and {} is a stored run", args.what);
            Err(Failure::new(Exit::Usage, what).help("leave out --cost, or add --guest").into())
        }
        Some((store, id)) => {
            let layers = RunLayers::of(&store.load(id)?, &store.submissions(id)?, args.cell.as_deref())?;
            let doc = explain::run(&layers, args.verbose);
            show(&doc, Document { schema_version: SCHEMA_VERSION, run: Some(layers), guest: None }, args, context)
        }
        None if args.cell.is_some() => {
            let what = format!("only a run has cells, and {} is no stored run", args.what);
            Err(Failure::new(Exit::Usage, what).help("leave out --cell, or name a stored run").into())
        }
        None => {
            let layers = watched(args, context)?;
            let doc = explain::guest(&layers);
            show(&doc, Document { schema_version: SCHEMA_VERSION, run: None, guest: Some(&layers) }, args, context)
        }
    }
}

/// The stored run that the word names; `None` where it names none.
fn stored(word: &str, context: &Context) -> anyhow::Result<Option<(Store, i64)>> {
    let Ok(run) = word.parse::<RunId>() else { return Ok(None) };
    let store = match Store::open_reading(&context.paths.db()) {
        Err(StoreError::Missing { .. }) if run != RunId::Last => return Ok(None),
        other => other?,
    };
    let id = run.find(&store)?;
    let there = run == RunId::Last || store.list()?.iter().any(|listed| listed.id == id);
    Ok(there.then_some((store, id)))
}

fn show(doc: &document::Document, json: Document<'_>, args: &Args, context: &Context) -> Outcome {
    if let Some(file) = &args.html {
        files::write(file, &doc.html())?;
        term::note(&format!("written to {}", file.display()));
    }
    if context.json {
        term::json(&json)?;
    } else {
        term::print(&doc.text(context.style, term::width()))?;
    }
    Ok(Exit::Done)
}

/// The running guests by what /proc and /sys show, as `vmio top` names them: neither their monitors nor their managers
/// are asked.
pub(super) fn running(host: &HostView<'_>) -> Vec<Guest> {
    let mut guests: Vec<Guest> = kinds::ALL.iter().flat_map(|kind| kind.running(host).guests).collect();
    let mut processes = BTreeSet::new();
    guests.retain(|guest| guest.pid.is_none_or(|pid| processes.insert(pid)));
    tell_apart(&mut guests);
    guests
}

/// What the guest's hypervisor has counted of its disks; otherwise why not, in words.
fn counted(local: &Local, guest: &Guest) -> Result<HypervisorCounts, String> {
    let kind = kinds::find(&guest.kind).and_then(|kind| kind.counts(&HostView::new(local), guest));
    kind.ok_or_else(|| no_monitor(guest))?.map_err(|refused| in_words(guest, &refused))
}

/// The socket of the guest's monitor; otherwise why it may not be used, in words.
pub(super) fn monitor(local: &Local, guest: &Guest) -> Result<PathBuf, String> {
    let kind = kinds::find(&guest.kind).and_then(|kind| kind.monitor(&HostView::new(local), guest));
    kind.ok_or_else(|| no_monitor(guest))?.map_err(|refused| in_words(guest, &refused))
}

fn no_monitor(guest: &Guest) -> String {
    format!("{} ({}) has no monitor that vmio knows", guest.name, guest.kind)
}

fn in_words(guest: &Guest, refused: &[Unread]) -> String {
    let words = |unread: &Unread| format!("{}: {}", unread.what, unread.why);
    let why = refused.iter().map(words).collect::<Vec<_>>().join("; ");
    let none = "it has no monitor (QMP) on a socket".to_owned();
    format!("{} cannot be queried: {}", guest.name, if why.is_empty() { none } else { why })
}

/// What the hypervisor counted since then, and in how many seconds; otherwise why that is not known.
fn since(
    local: &Local,
    guest: &Guest,
    (before, began): (HypervisorCounts, Instant),
) -> Result<(HypervisorCounts, f64), String> {
    let now = counted(local, guest)?;
    let anew = || "the counters of the hypervisor began at zero meanwhile".to_owned();
    Ok((now.since(&before).ok_or_else(anew)?, began.elapsed().as_secs_f64()))
}

/// Waits so long, and says each second on a terminal how far it is.
fn wait(name: &str, whole: Duration) {
    let began = Instant::now();
    loop {
        let passed = began.elapsed();
        let left = whole.saturating_sub(passed);
        if left.is_zero() {
            return term::end_transient();
        }
        term::transient(&progress(name, passed, whole));
        sleep(left.min(Duration::from_secs(1)));
    }
}

fn progress(name: &str, passed: Duration, whole: Duration) -> String {
    let text = format!("watching {name}: {} of {} s", passed.as_secs(), whole.as_secs_f64());
    sanitize::line(&text).into_owned()
}

/// Watches the guest that the word names.
fn watched(args: &Args, context: &Context) -> anyhow::Result<GuestLayers> {
    let local = Local::new();
    let named = pick::named(running(&HostView::new(&local)), true, std::slice::from_ref(&args.what))?;
    let [guest] = named.as_slice() else {
        let names: Vec<&str> = named.iter().map(|guest| guest.name.as_str()).collect();
        let what = format!("{} names several guests: {}", args.what, names.join(", "));
        return Err(Failure::new(Exit::Usage, what).help("name one").into());
    };
    let Some(pid) = guest.pid else {
        let what = format!("{} has no process on this host", guest.name);
        return Err(Failure::new(Exit::Precondition, what).help("only guests with a process here are watched").into());
    };
    // Refused before anything is loaded or switched on.
    let refused =
        |why: String| Failure::new(Exit::Precondition, why).help("leave out --qmp: the host's part needs no monitor");
    let (mut before, mut on) = (None, None);
    if args.qmp {
        // QEMU notices late that somebody has left its monitor, so that it is looked for before it is used.
        let socket = monitor(&local, guest).map_err(refused)?;
        before = Some((counted(&local, guest).map_err(refused)?, Instant::now()));
        if args.histograms {
            on = Some(histograms::Watched::start(guest, pid, socket, context)?);
        }
    }
    // What a container asks of the kernel is not a hypervisor's.
    let watched: BTreeSet<u32> = Some(pid).into_iter().filter(|_| !guest.shares_kernel()).collect();
    let calls = if watched.is_empty() { "" } else { " (for this guest also at those of system calls and io_uring)" };
    let mut sampler = Sampler::new(&local, true, top::tracing(false, calls));
    sampler.watch_calls(&watched);
    sampler.tick();
    wait(&guest.name, args.watch);
    let gone = || Failure::new(Exit::Failed, format!("{} ended while it was watched", guest.name));
    let interval = sampler.tick().ok_or_else(gone)?;
    let load = interval.guests.iter().find(|load| load.pid == Some(pid)).ok_or_else(gone)?;
    let calls = sampler.calls(pid).and_then(|calls| host::calls(calls, load, interval.seconds));
    let files = calls.is_none().then_some(Layer::HostFiles);
    let mut notes = interval.notes.clone();
    let asked = sampler.calls(pid).map(|calls| (calls, interval.seconds));
    let hypervisor = match before.map(|before| since(&local, guest, before)) {
        Some(Ok((counts, seconds))) => hypervisor::hypervisor(&counts, seconds, asked),
        Some(Err(why)) => {
            notes.push(why);
            None
        }
        None => None,
    };
    let percentiles = on.map(histograms::Watched::end).and_then(|read| read.map_err(|why| notes.push(why)).ok());
    let hypervisor = hypervisor.map(|told| percentiles.map_or(told, |percentiles| told.with(&percentiles)));
    let own = hypervisor.is_some_and(|hypervisor| hypervisor.own_ratio().is_some());
    let unseen = UNSEEN.into_iter().filter(|layer| !(own && *layer == Layer::Hypervisor));
    // Only the programs of its turns are loaded meanwhile.
    drop(sampler);
    let disks: BTreeSet<Device> = load.disks.iter().filter_map(|disk| disk.device).collect();
    let told = args.cost.then(|| cost::measure(&local, &watched, &disks));
    let unknown = |why: String| notes.push(format!("what watching costs is not known: {why}"));
    let tracing_cost = told.and_then(|told| told.map_err(unknown).ok());
    Ok(GuestLayers {
        name: load.name.clone(),
        pid: Some(pid),
        seconds: interval.seconds,
        hypervisor,
        calls,
        disks: live::disks(load, &interval),
        hypervisor_thread: load.cpu.as_ref().and_then(|cpu| live::thread(cpu, interval.seconds)),
        unseen: unseen.chain(files).collect(),
        tracing_cost,
        notes,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_watch() {
        assert_eq!((seconds("10s").unwrap(), seconds("2").unwrap()), (Duration::from_secs(10), Duration::from_secs(2)));
        for wrong in ["0", "0.5", "s", "4000", "nan", "-3"] {
            assert!(seconds(wrong).unwrap_err().to_string().contains("1 to 3600"), "{wrong}");
        }
    }

    #[test]
    fn how_far_it_is() {
        let said = |name, passed, whole| progress(name, Duration::from_millis(passed), Duration::from_millis(whole));
        assert_eq!(said("web1", 3_999, 10_000), "watching web1: 3 of 10 s");
        assert_eq!(said("web1", 0, 1_500), "watching web1: 0 of 1.5 s");
        assert!(!said("web\x1b[2J", 0, 1_000).contains('\x1b'), "a guest's name does not reach the terminal");
    }
}
