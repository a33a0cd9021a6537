//! What the verbs of `vmio image` share: where the store of this host tells of itself, what goes on until it is ended, and
//! the exit codes of errors.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use vmio_model::failure::{Exit, Failure};
use vmio_node::Journal;
use vmio_rig::objects::Error;

use crate::context::Context;
use crate::term;

/// How long a signal, or the end of a server, may go unnoticed.
pub const HEARD: Duration = Duration::from_millis(100);

/// The directory of what a store and those who use it share: its key, what is served, and disks that are open.
pub fn home(context: &Context) -> PathBuf {
    context.paths.state.join("store")
}

/// Does what goes on until the flag is set, by a signal, with a journal of that name.
pub fn until_ended(
    name: &str,
    context: &Context,
    work: impl FnOnce(&Arc<Journal>, &AtomicBool) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let journals = context.recovered_journals()?;
    let journal = Arc::new(Journal::open(&journals, name)?);
    journal.start_reaper()?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&ended))?;
    }
    let worked = work(&journal, &ended);
    journal.close().iter().for_each(|f| term::note(&format!("warning: could not be undone: {f}")));
    worked
}

/// What failed, with the exit code of why.
pub fn failure(what: &str, why: &Error) -> Failure {
    let exit = if why.is_usage() {
        Exit::Usage
    } else if why.is_precondition() {
        Exit::Precondition
    } else {
        Exit::Failed
    };
    Failure::new(exit, what)
}
