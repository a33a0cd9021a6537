//! `vmio image open`: an image of a store as a disk that a guest can boot from, until it is ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use vmio_model::failure::Exit;
use vmio_node::Local;
use vmio_rig::objects::{Disk, Error, Way};

use super::shared::{HEARD, failure, home, until_ended};
use super::transfer::Server;
use crate::context::{Context, Outcome};
use crate::term;

/// Arguments of `vmio image open`.
#[derive(Debug, clap::Args)]
pub struct Open {
    /// Where it is stored: s3://BUCKET/NAME
    #[arg(value_name = "URL")]
    url: String,
    /// Read the object's file on this host, not the server; only with the store of `vmio image serve`
    #[arg(long, conflicts_with = "endpoint")]
    in_place: bool,
    #[command(flatten)]
    server: Server,
}

/// Serves the disk until a signal comes, or its server ends.
pub fn open(args: &Open, context: &Context) -> Outcome {
    let failed = |why: Error| {
        let failure = failure(&format!("{} is not open", args.url), &why);
        anyhow::Error::new(why).context(failure)
    };
    let (client, url) = args.server.connect(&args.url, context).map_err(failed)?;
    let way = if args.in_place {
        Way::InPlace
    } else {
        Way::Ranges { pause: thread::sleep, tell: Box::new(|why| term::note(&format!("a read fails: {why}"))) }
    };
    // Several are open at once.
    let name = format!("image-open-{}", std::process::id());
    until_ended(&name, context, |journal, ended| {
        let home = home(context);
        vmio_node::private_dir(&home)?;
        // Short: the path of a socket has 107 bytes at most (unix(7)).
        let dir = home.join(format!("open-{}", std::process::id()));
        journal.scratch_dir(&dir)?;
        let node = Local::owned(Arc::clone(journal));
        let mut disk = Disk::open(&node, client, url.key(), &dir, way).map_err(failed)?;
        term::print(&format!("{}\n", disk.uri()))?;
        term::note("guests of this user boot from it; Ctrl-C ends it, and what they wrote is lost then");
        while !ended.load(Ordering::Relaxed) {
            disk.still_runs().map_err(failed)?;
            thread::sleep(HEARD);
        }
        Ok(())
    })?;
    term::note("ended; the image is as it was stored");
    Ok(Exit::Done)
}
