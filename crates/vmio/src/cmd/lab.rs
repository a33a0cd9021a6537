//! `vmio lab`: a guest that plays a host, for storage that this machine's kernel lacks. vmio runs in it as on any host;
//! its runs are then imported into the store here.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vmio_model::failure::{Exit, Failure};
use vmio_node::{End, Exec, Journal, Local, Node};
use vmio_rig::guests::LaunchCtx;
use vmio_rig::image::Image;
use vmio_rig::lab::{self, LabHost};
use vmio_rig::nodes::Nodes;

use super::image::Document;
use super::runs;
use crate::context::{Context, Outcome};
use crate::store::{Import, Store};
use crate::term;

/// How long a lab host may take from its start to its first answer.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// How long a command may take to end after it was asked to.
const END_LIMIT: Duration = Duration::from_secs(20);
/// How often the command's output is polled.
const POLL: Duration = Duration::from_millis(20);
/// The lab host is killed first when this host runs out of memory.
const OOM_SCORE_ADJ: i32 = 1000;

/// Run vmio in a lab host: a guest that acts as a host with LVM, thin pools and NFS
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  vmio lab run -- vmio doctor
                              what a lab host has
  vmio lab run -- vmio study run backends --on lvmthin:lab/pool --yes
                              measure on LVM-thin; the run is stored here
  vmio lab run --with my.toml -- vmio study run my.toml --on /mnt/nfs --yes
  vmio lab run -- bash -c 'lvs; df -h /srv /mnt/nfs'")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Build the lab host's image, unless there is one for this vmio and this host
    Build,
    /// Boot a lab host, run a command in it, and import the runs stored there
    Run {
        /// Copy FILE into the directory where the command runs; repeatable
        #[arg(long = "with", value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The command and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    match &args.verb {
        Verb::Build => build(context),
        Verb::Run { files, command } => in_lab(files, command, context),
    }
}

fn image(context: &Context) -> anyhow::Result<Image> {
    lab::load_or_build(&Local::new(), &context.paths.state, &|text: &str| term::note(text)).map_err(|e| {
        anyhow::Error::new(e).context(Failure::new(Exit::Precondition, "the lab host's image cannot be built"))
    })
}

fn build(context: &Context) -> Outcome {
    let image = image(context)?;
    if context.json {
        // The same document as that of `vmio image build`.
        term::json(&Document { schema_version: "1.0", image: &image, directory: &image.dir })?;
    } else {
        let text = format!(
            "directory  {}\nkernel     {} from {}\n",
            image.dir.display(),
            image.kernel_release,
            image.kernel_origin
        );
        term::print(&text)?;
    }
    Ok(Exit::Done)
}

/// The command that runs in the lab host, once it does.
type Running = Arc<Mutex<Option<(Arc<dyn Node>, u32)>>>;

fn in_lab(files: &[PathBuf], command: &[String], context: &Context) -> Outcome {
    let journals = context.recovered_journals()?;
    for file in files {
        if !file.is_file() {
            return Err(Failure::new(Exit::Usage, format!("{} is not a file", file.display()))
                .help("--with takes a file on this host that the command needs")
                .into());
        }
    }
    let image = image(context)?;
    // One run at a time, in a lab host or not: two would measure each other.
    let journal = Arc::new(Journal::open(&journals, "run")?);
    journal.start_reaper()?;
    let running = Running::default();
    on_signals(&journal, &running).context("cannot set up signal handling")?;
    let ended = lab_run(&image, files, command, &journal, &running, context);
    if journal.is_closed() {
        // After a signal: the signal thread ends the process once all is undone.
        thread::sleep(END_LIMIT);
    }
    journal.close().iter().for_each(|f| term::note(&format!("warning: could not be undone: {f}")));
    Ok(match ended? {
        0 => Exit::Done,
        1 => Exit::Failed,
        2 => Exit::Usage,
        3 => Exit::Precondition,
        4 => Exit::Partial,
        5 => Exit::Finding,
        other => std::process::exit(other),
    })
}

/// Boots the lab host and runs the command in it; its exit code.
fn lab_run(
    image: &Image,
    files: &[PathBuf],
    command: &[String],
    journal: &Arc<Journal>,
    running: &Running,
    context: &Context,
) -> anyhow::Result<i32> {
    let note = |text: &str| term::note(text);
    let ctx = LaunchCtx {
        enter: Vec::new(),
        node: Arc::new(Local::owned(Arc::clone(journal))),
        journal: Arc::clone(journal),
        image: Some(image),
        run_dir: &context.paths.runtime,
        state_dir: &context.paths.state,
        accel: None,
        nodes: &Nodes::default(),
        boot_limit: BOOT_LIMIT,
        oom_score_adj: OOM_SCORE_ADJ,
        cgroup_procs: Vec::new(),
        progress: &note,
    };
    let own = context.paths.state.join(format!("lab-{}", std::process::id()));
    let lab = LabHost::start(&ctx, &own).context("the lab host did not start")?;
    note(&format!("{} is up after {:.1} s", lab.label(), lab.boot_seconds()));
    for file in files {
        lab.bring(file).with_context(|| format!("cannot bring {}", file.display()))?;
    }
    let mut unwritten = None;
    let ended = follow(&lab, command, running, &mut unwritten);
    *running.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let code = match ended {
        Ok(code) => code,
        Err(vmio_node::Error::Gone { reason, .. }) => {
            return Err(anyhow::Error::new(lab.give_up(&format!("no longer answers: {reason}"))));
        }
        Err(e) => return Err(e.into()),
    };
    // The lab host's disks are deleted at the end, so its runs are exported first.
    let mut lost = false;
    let mut lose = |why: String| {
        term::note(&format!("warning: a run of the lab host is lost: {why}"));
        lost = true;
    };
    let exports = exports(&lab, &own, &mut lose).context("cannot bring the lab host's runs home")?;
    if !exports.is_empty() {
        let store = Store::open(&context.paths.db())?;
        let mut import = Import::of_ended_host();
        let (_, refused) = runs::import_all(&exports, &store, &mut import);
        refused.iter().for_each(|(_, e)| lose(runs::with_causes(e)));
        import.finish(&store)?;
    }
    lab.stop()?;
    match unwritten {
        None if code == 0 && lost => Ok(i32::from(Exit::Failed.code())),
        // A reader that has gone away does not end the measurement, but the exit code says so.
        Some(e) if code == 0 => Err(e.into()),
        _ => Ok(code),
    }
}

/// Exports the runs that vmio stored in the lab host, each into a file in `dir`. `lose` gets the reason for each run
/// that cannot be exported.
fn exports(lab: &LabHost, dir: &Path, lose: &mut dyn FnMut(String)) -> anyhow::Result<Vec<PathBuf>> {
    let vmio = |args: &[&str]| lab.output("vmio", &args.iter().map(ToString::to_string).collect::<Vec<_>>());
    let list: serde_json::Value = serde_json::from_slice(&vmio(&["runs", "list", "--json"])?)?;
    // Oldest first: the list has the newest first.
    let numbers = list["runs"].as_array().into_iter().flatten().rev().filter_map(|run| run["run"].as_i64());
    let mut files = Vec::new();
    for number in numbers {
        match vmio(&["runs", "export", &number.to_string()]) {
            Ok(export) => {
                let file = dir.join(format!("run-{number}.json"));
                std::fs::write(&file, export).with_context(|| format!("cannot write {}", file.display()))?;
                files.push(file);
            }
            Err(e) => lose(format!("{number}: {e}")),
        }
    }
    Ok(files)
}

/// Starts the command and passes its output on until it ends.
fn follow(
    lab: &LabHost,
    command: &[String],
    running: &Running,
    unwritten: &mut Option<term::Unwritten>,
) -> vmio_node::Result<i32> {
    let (program, args) = command.split_first().map_or(("true", &[][..]), |(p, a)| (p.as_str(), a));
    let mut process = lab.spawn(program, args)?;
    *running.lock().unwrap_or_else(PoisonError::into_inner) = Some((lab.node(), process.pid()));
    loop {
        let ended = process.try_wait()?;
        let said = match &ended {
            Some(output) => [output.stdout.clone(), output.stderr.clone()],
            None => process.take_said()?,
        };
        if !said[0].is_empty() && unwritten.is_none() {
            *unwritten = term::pass_on(&said[0]).err();
        }
        let _ = io::stderr().write_all(&said[1]);
        match ended.map(|o| o.end) {
            Some(End::Exit(code)) => return Ok(code),
            // As shells report it.
            Some(End::Signal(signal)) => return Ok(128 + signal),
            Some(End::TimedOut) => return Ok(1),
            None => thread::sleep(POLL),
        }
    }
}

/// The first signal ends the command, whose runs are then exported; a second one, or a command that does not end, ends
/// the lab host at once.
fn on_signals(journal: &Arc<Journal>, running: &Running) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let (journal, running) = (Arc::clone(journal), Arc::clone(running));
    let end = move || {
        journal.close().iter().for_each(|f| term::note(&format!("warning: could not be undone: {f}")));
        std::process::exit(Exit::Partial.code().into());
    };
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut asked = false;
        for _ in signals.forever() {
            let command = running.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let end = end.clone();
            match command.filter(|_| !asked) {
                None => thread::spawn(end),
                Some((node, pid)) => {
                    asked = true;
                    term::note("\nstopping the command in the lab host; press again to stop the lab host at once");
                    let running = Arc::clone(&running);
                    thread::spawn(move || {
                        // Commands run in process groups of their own.
                        let _ = node.exec(&Exec::new("kill").args(["-INT", "--", &format!("-{pid}")]));
                        thread::sleep(END_LIMIT);
                        // A command that has ended is left alone: its runs are being exported, which has no time limit.
                        let still_runs = running.lock().unwrap_or_else(PoisonError::into_inner).is_some();
                        if still_runs {
                            end();
                        }
                    })
                }
            };
        }
    })?;
    Ok(())
}
