//! `vmio top`: who uses the disks, the wire and the processors now, and who suffers for it.
//!
//! `screen` is what is shown, `columns` the guests' table, `app` the state and its keys, `view` the
//! drawing, `terminal` the loop.

use std::io::IsTerminal;
use std::time::SystemTime;

use vmio_look::top::{Blocks, FlowSource, Sampler, flows};
use vmio_model::failure::Exit;
use vmio_model::top::History;
use vmio_node::Local;

use crate::context::{Context, Outcome};
use crate::term;

pub mod app;
pub mod columns;
pub mod guard;
pub mod screen;
mod stream;
mod terminal;
pub mod view;

#[cfg(test)]
mod tests;

use columns::Column;
use screen::Screen;

/// The options of `vmio top`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of intervals to print as text or JSON. Without it JSON goes on, and text is one interval where there is
    /// no terminal.
    pub count: Option<u64>,
    /// Seconds of an interval.
    pub interval: f64,
    /// What guests are sorted by.
    pub sort: &'static Column,
    /// Text that a guest's name must hold.
    pub filter: String,
    /// Load no eBPF programs.
    pub no_ebpf: bool,
}

/// Runs the verb.
pub fn run(options: &Options, context: &Context) -> Outcome {
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let prints = options.count.is_some() || context.json || !terminal;
    if prints && options.count.is_none() && !context.json {
        term::note("not a terminal: one interval, as with --once");
    }
    let local = Local::new();
    let mut sampler = Sampler::new(&local, true, tracing(options.no_ebpf));
    let mut history = History::default();
    let mut guard = guard::Guard::at(&context.paths.guard_socket());
    let next = || {
        let interval = sampler.tick()?;
        let mut screen = Screen::of(&interval, &history, &sampler.about());
        screen.notes.extend(guard.ask(&interval, &mut screen.guests));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        screen.at_unix_seconds = now.map_or(0.0, |now| now.as_secs_f64());
        history.remember(&interval);
        Some(screen)
    };
    if !prints {
        terminal::run(app::App::new(options.sort, &options.filter, options.interval), next)?;
        return Ok(Exit::Done);
    }
    let count = options.count.or((!context.json).then_some(1));
    stream::run(options, count, context, next)
}

/// The tracing of the block layer, or why there is none.
fn tracing(no_ebpf: bool) -> flows::Result<Box<dyn FlowSource>> {
    if no_ebpf {
        return Err(flows::Error::Unwanted("--no-ebpf"));
    }
    term::note(
        "loading eBPF programs at the block layer's tracepoints; they go when vmio ends (--no-ebpf does without)",
    );
    Ok(Box::new(Blocks::start(&Local::new())?))
}
