//! The client of the daemon: `vmio guard status`, `apply`, `confirm` and `undo`; `set` is in `set.rs`.

use std::path::PathBuf;
use std::time::Duration;

use vmio_guard::api::client::{Client, ClientError};
use vmio_guard::api::{Apply, SocketFile, Stop};
use vmio_guard::groups::Groups;
use vmio_guard::manager::Manager;
use vmio_guard::manager::document::Status;
use vmio_guard::memory::Memory;
use vmio_guard::planes::{Options, Scope, linux};
use vmio_guard::undo_log::UndoLog;
use vmio_model::failure::{Exit, Failure};
use vmio_model::policy::units;

use super::record::{self, Record};
use super::{run, status};
use crate::context::{Context, Outcome};
use crate::paths::Paths;
use crate::term;

/// How long a daemon may take to undo all: a guest that is busy gives memory back slowly, for minutes.
const UNDONE: Duration = Duration::from_secs(360);

#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// Refresh every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Also notes, where each guest's excess waits and why, and its other settings
    #[arg(long)]
    verbose: bool,
}

#[derive(Debug, clap::Args)]
#[command(override_usage = "vmio guard apply [--confirm <TIME>]")]
pub struct ApplyArgs {
    /// Refused: the daemon rereads the files that it was started with
    #[arg(long, hide = true, num_args = 0..)]
    config: Option<Vec<PathBuf>>,
    /// Revert the change after this time unless `vmio guard confirm` comes before
    #[arg(long, value_name = "TIME", value_parser = run::time_parser())]
    confirm: Option<Duration>,
}

pub fn client(context: &Context) -> Client {
    Client::at(&context.paths.guard_socket())
}

/// The error with exit code and help.
pub fn failed(error: ClientError, context: &Context) -> anyhow::Error {
    match error {
        ClientError::Nobody(_) => nobody(&error, &context.paths.option()),
        ClientError::Refused(refusal) => {
            for problem in &refusal.problems {
                term::note(problem);
            }
            Failure::new(Exit::Usage, format!("{}; nothing was changed", refusal.error)).into()
        }
        // The error says what is in force now.
        ClientError::Failed(why) => {
            for problem in &why.problems {
                term::note(problem);
            }
            Failure::new(Exit::Failed, why.error).into()
        }
        ClientError::Io { ref source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Failure::new(Exit::Precondition, error.to_string())
                .help("be root, or in the group that may use the socket (vmio guard run --group)")
                .into()
        }
        other => Failure::new(Exit::Failed, other.to_string()).into(),
    }
}

/// No guard answers: who does, or what is left of one. `asked`: what a command needs to mean the directory that was
/// asked.
fn nobody(error: &ClientError, asked: &str) -> anyhow::Error {
    if let Some(pid) = record::other_guard() {
        return record::other_guard_runs(&format!("{error}, but "), pid);
    }
    let recorded = record::directory();
    // Without the right to ask the kernel (an error here) the general message is given.
    if recorded.is_none() && !linux::stands().unwrap_or(false) {
        // The unit has the default directory.
        let unit = if asked.is_empty() { " (or: systemctl start vmio-guard)" } else { "" };
        return Failure::new(Exit::Precondition, error.to_string())
            .help(format!("start it with: vmio guard run{asked}{unit}"))
            .into();
    }
    let state = recorded.as_deref().map(Paths::option_of).unwrap_or_default();
    Failure::new(Exit::Precondition, format!("{error}; limits of an earlier one are in force"))
        .help(format!("`vmio guard run{state}` resumes them, `vmio guard undo{state}` removes them"))
        .into()
}

pub fn status(args: &StatusArgs, context: &Context) -> Outcome {
    if context.json && args.watch {
        let failure = Failure::new(Exit::Usage, "--watch is for people");
        return Err(failure.help("with --json the status is printed once: ask again").into());
    }
    let client = client(context);
    loop {
        let status: Status = client.get("/v1/status").map_err(|e| failed(e, context))?;
        if context.json {
            term::json(&status)?;
        } else {
            if args.watch {
                // Cursor home, then clear below: flickers less than clearing first.
                term::print_exact("\x1b[H\x1b[J")?;
            }
            term::print(&status::text(&status, args.verbose, context.style, &context.paths.option()))?;
        }
        if !args.watch {
            return Ok(Exit::Done);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

pub fn apply(args: &ApplyArgs, context: &Context) -> Outcome {
    if args.config.is_some() {
        let what = "apply has no --config: the daemon rereads the files that it was started with";
        let help = format!(
            "edit those, which `vmio guard status{}` names; or start it with others: vmio guard run --config PATH",
            context.paths.option()
        );
        return Err(Failure::new(Exit::Usage, what).help(help).into());
    }
    let confirm_seconds = args.confirm.map(|limit| limit.as_secs_f64());
    let client = client(context);
    client.post("/v1/apply", &Apply { confirm_seconds }).map_err(|e| failed(e, context))?;
    let status = after_change(&client, context)?;
    done(&format!("the policy of the files is in force{}", status::except(&status)), args.confirm, &status, context)
}

pub fn confirm(context: &Context) -> Outcome {
    client(context).post("/v1/confirm", &()).map_err(|e| failed(e, context))?;
    term::note("it stays");
    Ok(Exit::Done)
}

/// The status after a change; notes the warnings of the policy that is in force now.
pub fn after_change(client: &Client, context: &Context) -> anyhow::Result<Status> {
    let status: Status = client.get("/v1/status").map_err(|e| failed(e, context))?;
    // The same warnings as those of `guard check`.
    status.policy.warnings.iter().for_each(|warning| term::note(&format!("warning: {warning}")));
    Ok(status)
}

/// Says that a change is in force, and how long it is kept unless it is confirmed; an earlier change may wait for that,
/// too.
pub fn done(what: &str, confirm: Option<Duration>, status: &Status, context: &Context) -> Outcome {
    let left = || status.policy.taken_back_in_seconds.map(|left| Duration::from_secs_f64(left.ceil()));
    match confirm.or_else(left) {
        None => term::note(what),
        Some(limit) => {
            let limit = units::show_time(limit);
            let state = context.paths.option();
            term::note(&format!("{what} for {limit}; to keep it: vmio guard confirm{state}"));
        }
    }
    Ok(Exit::Done)
}

/// Has the daemon take all limits off; without a daemon does it itself.
pub fn undo(context: &Context) -> Outcome {
    match client(context).within(UNDONE).post("/v1/stop", &Stop { undo: true }) {
        Ok(()) => {
            term::note("the limits are off, and the daemon has ended");
            return Ok(Exit::Done);
        }
        Err(ClientError::Nobody(_)) => {}
        Err(error) => return Err(failed(error, context)),
    }
    if !rustix::process::geteuid().is_root() {
        let failure = Failure::new(Exit::Precondition, "no guard runs; its limits can only be removed as root");
        return Err(failure.help("run it as root").into());
    }
    let (record, state) = (Record::here()?, &context.paths.state);
    if let Some(dir) = record.elsewhere(state) {
        return Err(record::is_elsewhere("nothing was removed: ", &dir));
    }
    let log = UndoLog::open_to_undo(&run::state(context)?)?;
    // That guard would set its limits again.
    if let Some(pid) = record::other_guard() {
        return Err(record::other_guard_runs("nothing was removed: ", pid));
    }
    let (stood, recorded) = (linux::stands()?, !log.is_empty());
    let mut plane = (linux::ENTRY.open)(Options { takeover: false, log: log.clone() })?;
    // An interface that cannot be restored does not keep the others' limits in force: its error is returned at the end.
    let off = plane.undo();
    for part in Manager::PARTS {
        log.clear(part)?;
    }
    let groups = Groups::open(&log)?.undo();
    let memory = Memory::open(&log, true)?.undo();
    let observation = plane.observe(Scope::Plane);
    for note in observation.iter().flat_map(|observation| &observation.notes).chain(&groups.notes).chain(&memory) {
        term::note(note);
    }
    off?;
    // A guard that was killed leaves its socket.
    if let Err((what, e)) = SocketFile::clear(&context.paths.own_guard_socket()) {
        term::note(&format!("cannot {what} {}: {e}", context.paths.own_guard_socket().display()));
    }
    observation?;
    record.forget(state);
    if stood && !recorded {
        let what = "the queues and filters of an earlier guard are off; what else it had changed is not recorded in \
                    this state directory and stays: send buffers of taps, processors and memory of guests, queues that \
                    it had replaced";
        return Err(Failure::new(Exit::Failed, what)
            .help("where it had another state directory: vmio guard undo --state DIR")
            .into());
    }
    let limits = if recorded { "; the limits are off" } else { ", and no limit of one was in force" };
    term::note(&format!("no daemon runs{limits}"));
    Ok(Exit::Done)
}
