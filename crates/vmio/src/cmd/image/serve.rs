//! `vmio image serve`: an object store of this host's own, until it is ended.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use vmio_model::failure::{Exit, Failure};
use vmio_node::{Journal, Local};
use vmio_rig::objects::{Error, Server};

use crate::context::{Context, Outcome};
use crate::term;

/// How long a signal, or the end of the server, may go unnoticed.
const HEARD: Duration = Duration::from_millis(100);

/// Arguments of `vmio image serve`.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Where the images are kept, as DIR/BUCKET/NAME; made if it is missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The port, which only this host reaches; 0 is any that is free
    #[arg(long, value_name = "PORT", default_value_t = 7070)]
    port: u16,
}

/// The directory of what a store and those who use it share: its key, and what is served.
pub fn home(context: &Context) -> PathBuf {
    context.paths.state.join("store")
}

/// Serves until a signal comes, or the server ends.
pub fn serve(args: &Serve, context: &Context) -> Outcome {
    let dir = std::path::absolute(&args.dir)
        .with_context(|| Failure::new(Exit::Usage, format!("{} is no directory", args.dir.display())))?;
    let journals = context.recovered_journals()?;
    let home = home(context);
    for own in [&dir, &home] {
        vmio_node::private_dir(own)?;
    }
    let journal = Arc::new(Journal::open(&journals, "image-serve")?);
    journal.start_reaper()?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&ended))?;
    }
    let served = run(&Local::owned(Arc::clone(&journal)), &dir, &home, args.port, &ended);
    journal.close().iter().for_each(|f| term::note(&format!("warning: could not be undone: {f}")));
    let failed = |why: Error| {
        let exit = if why.is_precondition() { Exit::Precondition } else { Exit::Failed };
        let failure = Failure::new(exit, format!("{} is not served", dir.display()));
        anyhow::Error::new(why).context(failure)
    };
    served.map_err(failed)?;
    term::note("ended; the images are kept");
    Ok(Exit::Done)
}

fn run(node: &Local, dir: &Path, home: &Path, port: u16, ended: &AtomicBool) -> Result<(), Error> {
    let mut server = Server::start(node, dir, home, port)?;
    let endpoint = server.served.endpoint();
    term::note(&format!("{} is served at {endpoint}, for this host only; Ctrl-C ends it", dir.display()));
    term::note(&format!("`vmio image push` and `pull` use it; for other clients: {}", server.credentials.display()));
    while !ended.load(Ordering::Relaxed) {
        server.still_runs()?;
        thread::sleep(HEARD);
    }
    Ok(())
}
