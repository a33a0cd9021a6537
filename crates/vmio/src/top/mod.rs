//! `vmio top`: who uses the disks, the wire and the processors now, and who suffers for it.
//!
//! `screen` is what is shown, `columns` the guests' table, `totals` the lines above them, `opened`, `minute` and `guest`
//! the page of a guest, `app` the state and its keys, `view` the drawing, `terminal` the loop.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::SystemTime;

use vmio_look::top::{Blocks, FlowSource, Sampler, flows};
use vmio_look::trace;
use vmio_model::failure::Exit;
use vmio_model::top::load::{GuestLoad, Interval};
use vmio_model::top::{History, waits};
use vmio_model::waterfall::host;
use vmio_node::Local;
use vmio_node::linux::process;

use crate::context::{Context, Outcome};
use crate::term;

pub mod app;
pub mod columns;
mod figures;
pub mod guard;
mod guest;
mod help;
pub mod minute;
pub mod opened;
pub mod screen;
mod stream;
mod terminal;
pub mod totals;
pub mod view;

#[cfg(test)]
mod tests;

use columns::{Column, Set};
use opened::Opened;
use screen::{GuestCalls, Screen};

/// The options of `vmio top`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of intervals to print as text or JSON. Without it JSON goes on, and text is one interval where there is
    /// no terminal.
    pub count: Option<u64>,
    /// Seconds of an interval.
    pub interval: f64,
    /// The columns of the guests.
    pub set: Set,
    /// What guests are sorted by.
    pub sort: &'static Column,
    /// Text that a guest's name must hold.
    pub filter: String,
    /// Load no eBPF programs.
    pub no_ebpf: bool,
    /// Time the calls of all hypervisors.
    pub calls: bool,
    /// Socket of the guard that is asked.
    pub guard: PathBuf,
}

/// Runs the verb.
pub fn run(options: &Options, context: &Context) -> Outcome {
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let prints = options.count.is_some() || context.json || !terminal;
    if prints && options.count.is_none() && !context.json {
        term::note("not a terminal: one interval, as with --once");
    }
    let local = Local::new();
    let hint = if options.calls {
        " (with --calls also at those of system calls and io_uring)"
    } else {
        " (--no-ebpf: do not load them)"
    };
    let mut sampler = Sampler::new(&local, true, tracing(options.no_ebpf, hint));
    let mut history = History::default();
    let mut guard = guard::Guard::at(&options.guard);
    let next = |opened: Option<u32>| {
        sampler.watch(opened);
        let interval = sampler.tick();
        let mut watched = sampler.hypervisors();
        watched.retain(|pid| options.calls || Some(*pid) == opened);
        sampler.watch_calls(&watched);
        let interval = interval?;
        let mut screen = Screen::of(&interval, &history, &sampler.about());
        screen.notes.extend(guard.ask(&interval, &mut screen.guests));
        screen.guests.iter_mut().for_each(waits::add_guard);
        screen.add_calls(calls(&sampler, &interval));
        screen.opened = opened.and_then(|pid| {
            let asked = screen.calls.iter().find(|one| one.pid == pid).map(|one| &one.calls);
            Opened::of(pid, sampler.guest(pid), &interval, sampler.threads(), asked)
        });
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        screen.at_unix_seconds = now.map_or(0.0, |now| now.as_secs_f64());
        history.remember(&interval);
        Some(screen)
    };
    if !prints {
        let mut app = app::App::new(options.set, options.sort, &options.filter, options.interval);
        app.ascii = !shows_blocks();
        terminal::run(app, next)?;
        return Ok(Exit::Done);
    }
    let count = options.count.or((!context.json).then_some(1));
    stream::run(options, count, context, next)
}

/// What hypervisors asked of the host in an interval, as far as that is counted.
fn calls(sampler: &Sampler<'_>, interval: &Interval) -> Vec<GuestCalls> {
    let of = |load: &GuestLoad| {
        let pid = load.pid?;
        let calls = host::calls(sampler.calls(pid)?, load, interval.seconds)?;
        Some(GuestCalls { guest: load.name.clone(), pid, calls })
    };
    interval.guests.iter().filter_map(of).collect()
}

/// Whether the terminal shows characters beyond ASCII: its locale is UTF-8 (locale(7)), and it is not the console of
/// Linux, whose font has no such blocks.
fn shows_blocks() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_lowercase();
    (locale.contains("utf-8") || locale.contains("utf8")) && set("TERM").is_none_or(|term| term != "linux")
}

/// The tracing of the block layer, or why there is none. `hint` says behind the note how it is done without.
pub fn tracing(no_ebpf: bool, hint: &str) -> flows::Result<Box<dyn FlowSource>> {
    if no_ebpf {
        return Err(flows::Error::Unwanted("--no-ebpf"));
    }
    let local = Local::new();
    // Another user than root may have the rights; root in a container may lack them.
    let may = trace::REQUIREMENTS.first().is_none_or(|rights| (rights.check)(&local).is_ok());
    if !may && !process::is_root(&local) {
        return Err(flows::Error::Other("not root".to_owned()));
    }
    if may {
        term::note(&format!(
            "loading eBPF programs at tracepoints of the block layer and of ext4; they are removed when vmio ends{hint}"
        ));
    }
    Ok(Box::new(Blocks::start(&local)?))
}
