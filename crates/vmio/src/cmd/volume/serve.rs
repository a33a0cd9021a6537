//! `vmio volume serve`: the servers of volumes that guests have, until it is ended.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use vmio_model::failure::Exit;
use vmio_node::{Journal, Local};
use vmio_rig::volumes::{Error, Pool, Server};

use crate::context::{Context, Outcome};
use crate::term;

/// How long a signal, a new attachment, or the end of a server may go unnoticed.
const HEARD: Duration = Duration::from_millis(100);

/// Serves until a signal comes.
pub fn serve(dir: &Path, context: &Context) -> Outcome {
    vmio_node::private_dir(dir)?;
    let pool = super::open(dir)?;
    // First, since a vmio that was killed may have left servers.
    let journals = context.recovered_journals()?;
    let journal = Arc::new(Journal::open(&journals, &format!("volume-serve-{}", std::process::id()))?);
    journal.start_reaper()?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&ended))?;
    }
    let served = run(&Local::owned(Arc::clone(&journal)), &pool, dir, &ended);
    journal.close().iter().for_each(|f| term::note(&format!("warning: could not be undone: {f}")));
    served.map_err(|why| super::failed(&format!("the volumes in {} are not served", dir.display()), why))?;
    term::note("ended; requests of guests to attached volumes wait 60 s for the next `vmio volume serve`");
    Ok(Exit::Done)
}

fn run(node: &Local, pool: &Pool, dir: &Path, ended: &AtomicBool) -> Result<(), Error> {
    let mut server = Server::start(node, pool)?;
    term::note(&format!("the volumes in {} are served to guests of this host; Ctrl-C ends it", dir.display()));
    let mut warned = String::new();
    while !ended.load(Ordering::Relaxed) {
        match server.tick() {
            Ok(events) => {
                warned.clear();
                events.iter().for_each(|event| term::note(&event.to_string()));
            }
            // One record that cannot be read takes no other guest's disk away: what is served stays so.
            Err(why) => {
                let warning = format!("warning: nothing further is served: {why}");
                if warning != warned {
                    term::note(&warning);
                    warned = warning;
                }
            }
        }
        thread::sleep(HEARD);
    }
    Ok(())
}
