//! `vmio image serve`: an object store of this host's own, until it is ended.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Context as _;
use vmio_model::failure::{Exit, Failure};
use vmio_node::Local;
use vmio_rig::objects::{Error, Server};

use super::shared::{HEARD, failure, home, until_ended};
use crate::context::{Context, Outcome};
use crate::term;

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

/// Serves until a signal comes, or the server ends.
pub fn serve(args: &Serve, context: &Context) -> Outcome {
    let dir = std::path::absolute(&args.dir)
        .with_context(|| Failure::new(Exit::Usage, format!("{} is no directory", args.dir.display())))?;
    let home = home(context);
    let failed = |why: Error| {
        let failure = failure(&format!("{} is not served", dir.display()), &why);
        anyhow::Error::new(why).context(failure)
    };
    until_ended("image-serve", context, |journal, ended| {
        for own in [&dir, &home] {
            vmio_node::private_dir(own)?;
        }
        run(&Local::owned(Arc::clone(journal)), &dir, &home, args.port, ended).map_err(failed)
    })?;
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
