//! `vmio guard run`: the daemon.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::builder::{PossibleValuesParser, StringValueParser, TypedValueParser};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vmio_guard::api::{Token, Wish};
use vmio_guard::manager::{ManagerError, Unconfirmed};
use vmio_guard::planes::{self, Entry, linux, observe};
use vmio_guard::service::{Event, Service, ServiceError};
use vmio_model::allocate::dba::Measures;
use vmio_model::control::Allocator;
use vmio_model::failure::{Exit, Failure};
use vmio_model::policy::units;

use super::record::{self, Record};
use super::simulate::Measured;
use super::{Config, How, observed, texts, told};
use crate::context::{Context, Outcome};
use crate::paths::Paths;
use crate::report::format::{count, rate, time};
use crate::term::{self, Style};

/// The group that may use the socket by default, if it exists.
const GROUP: &str = "vmio";

const EXAMPLES: &str = "\
Examples:
  vmio guard run                 the policy in /etc/vmio/guard.d
  vmio guard run --config guard.toml --dry-run
                                 what it would limit; changes nothing
  vmio guard run --observe --uplink eth0 --for 600s
                                 what guests take, and a policy for it
  vmio guard run --algorithm dba the published loop instead of vmio's own
  vmio guard run --listen 127.0.0.1:9127 --token-file /etc/vmio/token
                                 also over TCP; clients need the token

Ctrl-C ends the daemon. Limits stay in force, however it ends: `vmio guard undo`
removes them. SIGHUP, or `vmio guard apply`, rereads the files.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    config: Config,
    /// Say what would be limited, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Change nothing: see what guests take and what would be held; propose a policy
    #[arg(long, conflicts_with_all = ["dry_run", "takeover", "plane", "algorithm", "measures"])]
    observe: bool,
    /// Observe what goes over this interface, without a policy
    #[arg(long, value_name = "NAME", requires = "observe", conflicts_with = "config")]
    uplink: Option<String>,
    /// Observe for this long [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", requires = "observe", value_parser = time_parser())]
    time: Option<Duration>,
    /// Replace queues that others have put on an uplink; `guard undo` puts them back
    #[arg(long)]
    takeover: bool,
    /// Group that may use the socket [default: vmio, where there is one]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Also serve the API by TCP at this address; clients need the token
    #[arg(long, value_name = "ADDRESS:PORT", requires = "token_file")]
    listen: Option<SocketAddr>,
    /// File with the token, at least 32 characters; only its owner may read it
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// Who sets the limits
    #[arg(long, value_enum, default_value = "exact")]
    algorithm: How,
    /// What the dba algorithm counts as a member's traffic [default: passed]
    ///
    /// A host does not see what a guest that is held back would have sent: with `offered` such a guest never gets more
    /// than it has.
    #[arg(long, value_enum, value_name = "WHAT")]
    measures: Option<Measured>,
    /// What puts limits in force
    #[arg(long, value_parser = plane_names(), default_value = "linux")]
    plane: &'static Entry,
}

/// A length of time.
pub fn time_parser() -> impl TypedValueParser<Value = Duration> {
    StringValueParser::new().try_map(|text| units::time(&text))
}

fn plane_names() -> impl TypedValueParser<Value = &'static Entry> {
    let names =
        planes::ALL.iter().map(|entry| clap::builder::PossibleValue::new(entry.abilities.plane).help(entry.about));
    PossibleValuesParser::new(names).try_map(|name| planes::find(&name).ok_or("no such plane"))
}

/// Names the state directory for commands that are given another one.
fn begin(record: Option<Record>, context: &Context) -> Box<dyn FnOnce()> {
    let state = context.paths.state.clone();
    Box::new(move || {
        if let Some(Err(e)) = record.map(|record| record.write(&state)) {
            let lost = "`vmio guard undo` with another --state will not name this one";
            term::note(&format!("warning: cannot record the state directory in /run/vmio: {e}; {lost}"));
        }
    })
}

fn allocator(args: &Args) -> Result<Allocator, Failure> {
    match (args.algorithm, args.measures) {
        (How::Exact, None) => Ok(Allocator::Exact),
        (How::ExactLoop, None) => Ok(Allocator::ExactLoop),
        (How::Exact | How::ExactLoop, Some(_)) => Err(Failure::new(Exit::Usage, "--measures is for --algorithm dba")),
        (How::Dba, measures) => Ok(Allocator::Dba(measures.map_or(Measures::Passed, Measures::from))),
    }
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    // Absolute, since the files are read again later.
    let config = args.config.config.iter().map(std::path::absolute).collect::<Result<Vec<_>, _>>()?;
    let plane = if args.observe { &observe::ENTRY } else { args.plane };
    let allocator = allocator(args)?;
    if args.dry_run {
        return super::dry::run(&config, plane, allocator, args.takeover, context);
    }
    let observes = plane.abilities.plane == observe::NAME;
    if !rustix::process::geteuid().is_root() && plane.abilities.plane != "fake" && !observes {
        let failure = Failure::new(Exit::Precondition, "the guard sets limits of the kernel, which needs root");
        return Err(failure.help("run it as root; `--dry-run` needs no root and shows what it would do").into());
    }
    let tcp = match (args.listen, &args.token_file) {
        (Some(address), Some(file)) => Some((address, token(file)?)),
        _ => None,
    };
    let group = group(args.group.as_deref())?;
    let texts = if args.observe { texts::observed(args.uplink.as_deref(), config)? } else { texts::policy(config)? };
    let enforces = plane.abilities.plane == linux::ENTRY.abilities.plane;
    let record = enforces.then(Record::here).transpose().context("cannot look at this network namespace")?;
    if let Some(dir) = record.as_ref().and_then(|record| record.elsewhere(&context.paths.state)) {
        return Err(record::is_elsewhere("the guard cannot start: ", &dir));
    }
    let made = record::missing(&[&Paths::guard_ledger(&context.paths.state), &context.paths.runtime]);
    let socket = socket(context)?;
    let service = Service {
        state: state(context)?,
        socket: socket.clone(),
        group,
        tcp,
        texts,
        plane,
        allocator,
        takeover: args.takeover,
        begin: begin(record.clone(), context),
    };
    let (wish, wishes) = mpsc::channel();
    let (begin, begun) = mpsc::channel::<()>();
    if let Some(time) = args.time {
        let wish = wish.clone();
        let end = move || {
            // What it takes to start does not count.
            if begun.recv().is_ok() {
                thread::sleep(time);
                // The guard may have ended already.
                let _ = wish.send(Wish::Stop { undo: false });
            }
        };
        thread::Builder::new().name("guard-time".into()).spawn(end).context("cannot start a thread")?;
    }
    signals(wish).context("cannot wait for signals")?;
    let (style, state) = (Style::stderr(), context.paths.option());
    let mut observation = None;
    let ended = service.run(wishes, |event| match event {
        Event::Observed(status) => observation = Some(status),
        event => {
            if matches!(event, Event::Ready { .. }) {
                // Nobody waits for it without a time.
                let _ = begin.send(());
            }
            say(&event, (socket.as_path(), state.as_str()), style, observes);
        }
    });
    let made = if ended.is_err() { made } else { Vec::new() };
    // Another guard has the network namespace, and may be naming its directory now.
    let record = record.filter(|_| !matches!(ended, Err(ServiceError::Another(_))));
    // Another guard has the ledger.
    if !matches!(ended, Err(ServiceError::UndoLog(_))) || !made.is_empty() {
        record::tidy(record.as_ref(), &context.paths.state, &made);
    }
    if let Some(status) = observation {
        if context.json { term::json(&*status)? } else { term::print(&observed::end(&status, context.style))? }
    }
    match ended {
        Ok(()) => Ok(Exit::Done),
        Err(ServiceError::Manager(e)) => Err(refused(e)),
        Err(e @ ServiceError::UndoLog(_)) => {
            let help = format!(
                "one guard runs in a network namespace: `vmio guard status{state}` shows it, `vmio guard undo{state}` \
                 ends it"
            );
            Err(Failure::new(Exit::Precondition, format!("the guard cannot start: {e}")).help(help).into())
        }
        Err(ServiceError::Another(pid)) => Err(record::other_guard_runs("the guard cannot start: ", pid)),
        Err(e @ (ServiceError::System { .. } | ServiceError::Groups(_))) => {
            Err(Failure::new(Exit::Precondition, e.to_string()).into())
        }
    }
}

/// Shows each problem of a policy; a wrong policy is a usage error.
fn refused(error: ManagerError) -> anyhow::Error {
    let style = Style::stderr();
    for problem in error.problems() {
        term::problem(problem, &style.red("error"));
    }
    let exit = match &error {
        ManagerError::Files(_) | ManagerError::Policy(_) => Exit::Usage,
        ManagerError::Core(vmio_guard::core::CoreError::Refused(_)) => Exit::Usage,
        ManagerError::Start(vmio_guard::daemon::StartError::Core(vmio_guard::core::CoreError::Refused(_))) => {
            Exit::Usage
        }
        _ => Exit::Failed,
    };
    // Errors of the plane have a help of their own.
    let failure = Failure::new(exit, error.to_string());
    if exit == Exit::Usage { failure.help("docs/guard.md has the keys; nothing was changed") } else { failure }.into()
}

/// SIGHUP reads the files anew; SIGINT and SIGTERM end the guard and leave the limits in force.
fn signals(wish: Sender<Wish>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let run = move || {
        for signal in signals.forever() {
            let what = if signal == SIGHUP { Wish::Reload } else { Wish::Stop { undo: false } };
            if wish.send(what).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("guard-signals".into()).spawn(run).map(drop)
}

/// Most notes that are shown at the start.
const NOTES: usize = 20;

/// Prints a line for the event, and notifies systemd.
fn say(event: &Event, (socket, state): (&Path, &str), style: Style, observes: bool) {
    // Does nothing without systemd.
    let systemd = |state: &[NotifyState<'_>]| drop(sd_notify::notify(state));
    let warn = |text: &str| term::note(&format!("{}: {text}", style.yellow("warning")));
    match event {
        Event::Ready { interfaces, uplinks, notes } => {
            let what = if observes { "observing; no limits are set" } else { "in force" };
            let remove = if observes { String::new() } else { format!("; remove: `vmio guard undo{state}`") };
            term::note(&format!(
                "{what}: {} of {}; see: `vmio guard status{state}`{remove} (socket {})",
                count(*interfaces, "interface"),
                count(*uplinks, "uplink"),
                socket.display()
            ));
            for note in notes.iter().take(NOTES) {
                term::note(&format!("note: {note}"));
            }
            if notes.len() > NOTES {
                term::note(&format!("and {} more: vmio guard status{state}", notes.len() - NOTES));
            }
            systemd(&[NotifyState::Ready]);
        }
        Event::Reloaded { revision } => term::note(&format!("revision {revision} of the policy is in force")),
        Event::Refused(why) => {
            for line in why {
                warn(line);
            }
        }
        Event::BeganBefore(Unconfirmed::Files) => warn(&format!(
            "the previous guard ended before the policy of the files was confirmed: the policy before it is in force; \
             `vmio guard apply{state}` puts the files in force"
        )),
        Event::BeganBefore(Unconfirmed::Set) => warn(
            "the previous guard ended before what `vmio guard set --confirm` had set was confirmed: it is not in \
             force, and has to be set again",
        ),
        Event::TakenBack => warn("the change was not confirmed: the previous policy is in force again"),
        Event::Came { interface, class } => term::note(&format!("{interface}: class {class}")),
        Event::Went { interface } => term::note(&format!("{interface}: gone")),
        Event::ManyChanged { came, went } => term::note(&told::many(came, *went)),
        Event::Pool(change) => match told::pool(change) {
            Ok(good) => term::note(&good),
            Err(bad) => warn(&bad),
        },
        Event::Trouble(what) => warn(what),
        Event::Well => term::note("recovered"),
        Event::Breach(breach) => match breach.ended_after {
            None => warn(&format!(
                "{} {}: gets {}, less than the minimum of {} that it needs now",
                breach.pool,
                breach.member,
                rate(breach.rate_bps),
                rate(breach.min_bps)
            )),
            Some(lasted) => term::note(&format!(
                "{} {}: recovered; it did not get its minimum for {}",
                breach.pool,
                breach.member,
                time(lasted.as_secs_f64())
            )),
        },
        Event::MoreBreaches(more) => {
            warn(&format!("{more} more guarantees failed or recovered in this second: vmio guard status{state}"));
        }
        Event::Alive => systemd(&[NotifyState::Watchdog]),
        // Printed when the guard has ended.
        Event::Observed(_) => {}
        Event::Ended { .. } if observes => term::note("ended; nothing was changed"),
        Event::Ended { undone: true } => term::note("ended; the limits are off"),
        Event::Ended { undone: false } => {
            systemd(&[NotifyState::Stopping]);
            term::note(&format!("ended; the limits stay in force until `vmio guard undo{state}`"));
        }
    }
}

/// Directory of the guard's undo log, which is made where it is missing.
pub fn state(context: &Context) -> anyhow::Result<PathBuf> {
    let dir = Paths::guard_ledger(&context.paths.state);
    vmio_node::private_dir(&dir)?;
    Ok(dir)
}

/// The socket's path; its directory is made where it is missing.
fn socket(context: &Context) -> anyhow::Result<PathBuf> {
    let dir = &context.paths.runtime;
    use std::os::unix::fs::DirBuilderExt;
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(dir);
    made.with_context(|| Failure::new(Exit::Precondition, format!("cannot make the directory {}", dir.display())))?;
    Ok(context.paths.own_guard_socket())
}

fn group(named: Option<&str>) -> anyhow::Result<Option<u32>> {
    let text = fs::read_to_string("/etc/group").unwrap_or_default();
    let number = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
        line.split(':').nth(2)?.parse().ok()
    };
    match named {
        None => Ok(number(GROUP)),
        Some(name) => match number(name) {
            Some(number) => Ok(Some(number)),
            None => {
                let failure = Failure::new(Exit::Precondition, format!("group {name} does not exist"));
                Err(failure.help(format!("groupadd --system {name}")).into())
            }
        },
    }
}

fn token(file: &Path) -> anyhow::Result<Token> {
    use std::os::unix::fs::MetadataExt;
    let refused = |why: &str| Failure::new(Exit::Usage, format!("{}: {why}", file.display()));
    let meta = fs::metadata(file).with_context(|| refused("cannot be read"))?;
    if meta.mode() & 0o077 != 0 || (meta.uid() != 0 && meta.uid() != rustix::process::geteuid().as_raw()) {
        return Err(refused("others may read the token").help(format!("chmod 600 {}", file.display())).into());
    }
    let text = fs::read_to_string(file).with_context(|| refused("cannot be read"))?;
    let token = Token::of(&text);
    let help = format!("openssl rand -hex 32 > {}", file.display());
    Ok(token.ok_or_else(|| refused("a token has at least 32 characters, and no blanks").help(help))?)
}
