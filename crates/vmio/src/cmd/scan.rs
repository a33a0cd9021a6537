//! `vmio scan`, and `vmio` without a verb: what is wrong with the guests that run on this host now. Changes nothing.

mod config;
mod earlier;
pub mod pick;
mod watch;

use std::path::{Path, PathBuf};
use std::time::Instant;

use vmio_look::{HostView, parallel, scan};
use vmio_model::facts::{Fact, Guest, Source, Unread};
use vmio_model::failure::{Exit, Failure};
use vmio_model::result::Accel;
use vmio_model::rules::Severity;
use vmio_node::linux::process;
use vmio_node::{Local, Questions};
use vmio_rig::guests::qemu::known_accelerator;

use super::guard::in_force;
use crate::context::{Context, Outcome};
use crate::expect::PastRuns;
use crate::paths::Paths;
use crate::report::scan::{self as report, Row, View, diff, nagios};
use crate::run::like::differences;
use crate::store::{Store, StoreError};
use crate::{files, studies, term, transport};
use pick::Ignore;

const EXAMPLES: &str = "\
Examples:
  vmio scan                    every running guest with its worst finding
  vmio scan web1               what to do about web1, and the exact changes
  vmio scan 'web*' 101         by pattern, by VMID
  vmio scan web1 --verbose     every finding and setting of web1
  vmio scan web1 --sources     also where each setting was read
  vmio scan --watch            again every 30 s, with what changed
  vmio scan --on ssh://root@host
                               the guests of another host; nothing is installed
  vmio scan --diff             what changed since the last scan with --diff
  vmio scan --html guests.html all guests as one HTML file
  vmio scan --ignore no-discard --ignore 'sparse-file@db*'
                               without findings that are intended
  vmio scan --nagios           as a check plugin for Nagios or Icinga
  vmio scan --prometheus=/var/lib/prometheus/node-exporter/vmio.prom
                               for node_exporter's textfile collector
  vmio scan --fail-on warning  exit with code 5 at a warning or worse

Needs no agent in the guest and no guest password, works for Windows guests,
and sends nothing to a guest. Without root it sees less and says what is
missing. More in docs/scan.md.";

/// Look at the guests on this host and name the settings that slow them down
#[derive(Debug, Default, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Guests to show in full: name or pattern, VMID, pid, or beginning of the UUID
    #[arg(value_name = "GUEST")]
    guests: Vec<String>,
    /// Scan another machine: ssh://[USER@]HOST[:PORT] by your own ssh, or libvirt://DOMAIN inside a guest by its guest
    /// agent. vmio-agent runs there from memory during the scan; nothing is installed (docs/ssh.md, docs/libvirt.md)
    #[arg(long, value_name = "ADDRESS", value_parser = transport::address, conflicts_with = "diff")]
    on: Option<String>,
    /// Also write everything to one HTML file that loads nothing else
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nagios", "prometheus"])]
    html: Option<PathBuf>,
    /// Exit with code 5 if a finding is at or above this severity; with --nagios: the
    /// first severity that alerts
    #[arg(long, value_name = "SEVERITY", value_parser = super::severity())]
    fail_on: Option<Severity>,
    /// Act as a check plugin: severe is CRITICAL (2), warning is WARNING (1)
    #[arg(long, conflicts_with_all = ["json", "prometheus"])]
    nagios: bool,
    /// Print in Prometheus' text format, or write it to FILE atomically
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with = "json")]
    prometheus: Option<Option<PathBuf>>,
    /// Leave out the findings of a rule, with @GUEST only in that guest; repeatable
    #[arg(long, value_name = "RULE[@GUEST]")]
    ignore: Vec<String>,
    /// Also leave out what FILE lists, instead of the default file (docs/scan.md)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Show what changed since the last scan with --diff, or since FILE (from --json)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
          conflicts_with_all = ["nagios", "prometheus", "html", "sources"])]
    diff: Option<Option<PathBuf>>,
    /// Show all of a named guest: every finding with its commands, every setting. Without a name, also show what could
    /// not be read, and why
    #[arg(long, short)]
    verbose: bool,
    /// Show where each setting was read
    #[arg(long)]
    sources: bool,
    /// Repeat the scan until Ctrl-C, with SECONDS (at least 5) between two scans; stores nothing
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "30",
          value_parser = clap::value_parser!(u64).range(5..=3600),
          conflicts_with_all = ["json", "html", "nagios", "prometheus", "diff", "monitor", "fail_on"])]
    watch: Option<u64>,
    /// Let libvirt query QEMU's monitors too; this marks its guests as tainted
    #[arg(long)]
    monitor: bool,
    /// Also show guests started by vmio itself
    #[arg(long)]
    all: bool,
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    if let Some(seconds) = args.watch {
        return watch::watch(args, seconds, &check(args)?, context);
    }
    let viewed = check(args).and_then(|ignore| view(args, &ignore, context));
    if args.nagios {
        let (text, state) = match &viewed {
            Ok(view) => nagios::nagios(view, args.fail_on),
            Err(e) => (nagios::failed(&format!("{e:#}")), nagios::State::Unknown),
        };
        // A check plugin that cannot write its output ends with UNKNOWN: 1 would be a warning.
        let state = match term::print(&text) {
            Ok(()) => state,
            Err(e) => {
                term::note(&format!("error: {e}"));
                nagios::State::Unknown
            }
        };
        return Ok(Exit::Plugin(state as u8));
    }
    let view = viewed?;
    if let Some(file) = &args.html {
        files::write(file, &report::html(&view))?;
        term::note(&format!("report written to {}", file.display()));
    }
    match &args.prometheus {
        Some(None) => term::print(&report::prometheus(&view))?,
        Some(Some(file)) => {
            earlier::in_one_step(file, &report::prometheus(&view), 0o644).map_err(|e| files::with_help(file, e))?
        }
        None if context.json => term::print_exact(&report::json(&view))?,
        None => term::print(&text(args, &view, context))?,
    }
    Ok(exit(&view, args.fail_on))
}

/// Code 5 for a finding at or above the least severity that fails; after a comparison only for one that is new
/// or became worse.
pub fn exit(view: &View, fail_on: Option<Severity>) -> Exit {
    let worst = view.diff.as_ref().map_or_else(|| view.worst(), diff::Diff::worst);
    let fails = fail_on.is_some_and(|least| worst.is_some_and(|worst| worst >= least));
    if fails { Exit::Finding } else { Exit::Done }
}

/// `vmio` without a verb: a scan, and a hint at the other verbs.
pub fn bare(context: &Context) -> Outcome {
    let exit = run(&Args::default(), context)?;
    if !context.json {
        term::note("\n`vmio --help` lists the other commands.");
    }
    Ok(exit)
}

/// Refuses what can be refused before the scan. A file that cannot be written has the same exit code here as later.
fn check(args: &Args) -> anyhow::Result<Vec<Ignore>> {
    for file in args.html.iter().chain(args.prometheus.iter().flatten()) {
        let dir = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !dir.is_dir() || file.is_dir() {
            return Err(files::unwritable(file).into());
        }
    }
    let mut ignore = args.ignore.iter().map(|word| word.parse()).collect::<Result<Vec<Ignore>, Failure>>()?;
    ignore.extend(config::read(args.config.as_deref(), Paths::scan_config().as_deref())?);
    Ok(ignore)
}

fn view(args: &Args, ignore: &[Ignore], context: &Context) -> anyhow::Result<View> {
    let begun = Instant::now();
    let machine = args.on.as_deref().map(|on| transport::to(on).map(|there| there.machine)).transpose()?;
    let local = Local::new();
    let node: &dyn Questions = machine.as_ref().map_or(&local, |machine| machine.node());
    let mut host = HostView::new(node);
    host.monitor = args.monitor;
    let found = scan::scan(&host);
    let (mut guests, own_guests) = pick::own(found.guests, args.all, &args.guests);
    let mut of_guard = None;
    if machine.is_none() {
        let in_force = in_force::of_guard(context);
        in_force::add(&host, &in_force.held, &mut guests);
        of_guard = in_force.unread;
        apply_test_boot(&mut guests, &local, &context.paths.state);
    }
    let mut rows = parallel::map(pick::named(guests, args.all, &args.guests)?, Row::of);
    // Past runs of this host do not apply to another machine.
    let (past_runs, unread) = if machine.is_none() { past_runs(context) } else { (PastRuns::of(None), None) };
    let reference = studies::named("quick")?.guest;
    for row in &mut rows {
        past_runs.fill(&mut row.findings, &row.guest);
        row.differences = differences(&row.guest, reference);
    }
    let ignored_by = pick::ignored_by(&mut rows, ignore);
    let mut view = View {
        at_unix_seconds: host.at_unix_seconds,
        seconds: begun.elapsed().as_secs_f64(),
        on: args.on.clone(),
        root: process::is_root(node),
        rows,
        unread: found.unread.into_iter().chain(of_guard).chain(unread).collect(),
        own_guests,
        ignored: ignored_by.iter().map(|(_, n)| n).sum(),
        ignored_by,
        diff: None,
    }
    .sorted();
    if let Some(named) = &args.diff {
        view.diff = Some(earlier::compare(&view, named.as_deref(), &args.guests, ignore, context)?);
    }
    Ok(view)
}

/// Marks KVM as missing in the guests' facts where a test boot of vmio showed that it does not work here.
fn apply_test_boot(guests: &mut [Guest], local: &Local, state: &Path) {
    if known_accelerator(local, state).is_none_or(|known| known.accel != Accel::Tcg) {
        return;
    }
    for own in guests.iter_mut().filter_map(|g| g.processors.as_mut()).filter(|p| p.kvm_here == Some(true)) {
        own.kvm_here = Fact::read(Some(false), Source::TestBoot);
    }
}

/// Earlier runs on this host, from a store that is only read; or why it cannot be read.
fn past_runs(context: &Context) -> (PastRuns, Option<Unread>) {
    let unread = |e: StoreError| Unread {
        what: "results of earlier runs on this host".into(),
        why: e.to_string(),
        mend: e.help().unwrap_or_else(|| "`vmio runs list` says more".into()).into(),
    };
    match Store::open_reading(&context.paths.db()) {
        Ok(store) => (PastRuns::of(Some(&store)), None),
        Err(StoreError::Missing { .. }) => (PastRuns::of(None), None),
        Err(e) => (PastRuns::of(None), Some(unread(e))),
    }
}

fn text(args: &Args, view: &View, context: &Context) -> String {
    if let Some(diff) = &view.diff {
        return diff::text(view, diff, context.style);
    }
    if args.guests.is_empty() {
        let overview = report::overview(view, context.style, term::width());
        if !args.verbose && !args.sources {
            return overview;
        }
        return format!("{overview}\n{}", report::not_read(view, context.style, term::width()));
    }
    let one = |row: &Row| {
        if args.verbose || args.sources {
            report::detail(row, context.style, args.sources)
        } else {
            report::brief(row, view.on.as_deref(), context.style, term::width())
        }
    };
    view.rows.iter().map(one).collect::<Vec<_>>().join("\n")
}
