//! `vmio volume serve`: the servers of volumes that guests have, until it is ended.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use vmio_model::failure::Exit;
use vmio_node::{Journal, Local};
use vmio_rig::volumes::{Error, Key, Listener, Name, Pool, Server};

use super::Chosen;
use crate::context::{Context, Outcome};
use crate::term;

/// How long a signal, a new attachment, or the end of a server may go unnoticed.
const HEARD: Duration = Duration::from_millis(100);

/// Arguments of `vmio volume serve`.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Serve this volume to another host [default: all, to guests of this host]
    #[arg(value_name = "NAME", requires = "listen")]
    name: Option<Name>,
    /// Where the other host reaches the volume by TCP: an address of this host, and a port of the volume's own
    #[arg(long, value_name = "ADDRESS:PORT", requires = "name", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Encrypt by TLS with this key, which the other host has, too: a file keys.psk, as psktool makes it. Required
    /// unless ADDRESS is loopback (docs/volumes.md)
    #[arg(long, value_name = "FILE", requires = "listen")]
    tls_key: Option<PathBuf>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let help = "not ADDRESS:PORT, as 192.0.2.20:10809 or [2001:db8::20]:10809";
    text.parse().ok().filter(|at: &SocketAddr| at.port() != 0).ok_or_else(|| help.to_owned())
}

/// Serves until a signal comes.
pub fn serve(args: &Serve, chosen: &Chosen, context: &Context) -> Outcome {
    let refused = |why| super::failed(&format!("the volumes in {} are not served", chosen.name.display()), why);
    let key = args.tls_key.as_deref().map(Key::open).transpose().map_err(refused)?;
    vmio_node::private_dir(&chosen.dir)?;
    let pool = super::open(chosen)?;
    // First, since a vmio that was killed may have left servers.
    let journals = context.recovered_journals()?;
    let journal = Arc::new(Journal::open(&journals, &format!("volume-serve-{}", std::process::id()))?);
    journal.start_reaper()?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&ended))?;
    }
    let node = Local::owned(Arc::clone(&journal));
    let served = match (&args.name, args.listen) {
        (Some(name), Some(at)) => listen(&node, &pool, (name, at, key.as_ref()), &ended),
        _ => run(&node, &pool, &chosen.name, &ended),
    };
    drop(node);
    journal.close().iter().for_each(|f| term::note(&format!("warning: could not be undone: {f}")));
    served.map_err(refused)?;
    term::note("ended; requests of guests to attached volumes wait 60 s for the next `vmio volume serve`");
    Ok(Exit::Done)
}

fn run(node: &Local, pool: &Pool, name: &Path, ended: &AtomicBool) -> Result<(), Error> {
    let mut server = Server::start(node, pool)?;
    term::note(&format!("the volumes in {} are served to guests of this host; Ctrl-C ends it", name.display()));
    let mut warned = String::new();
    while !ended.load(Ordering::Relaxed) {
        match server.tick() {
            Ok(events) => {
                warned.clear();
                events.iter().for_each(|event| term::note(&event.to_string()));
            }
            // One record that cannot be read takes no other guest's disk away: what is served stays so.
            Err(why) => warn(&why, &mut warned),
        }
        thread::sleep(HEARD);
    }
    Ok(())
}

/// Tells why nothing is served anew, once.
fn warn(why: &Error, warned: &mut String) {
    let warning = format!("warning: nothing further is served: {why}");
    if warning != *warned {
        term::note(&warning);
        *warned = warning;
    }
}

/// Serves a volume to another host, which has it until it is detached.
fn listen(
    node: &Local,
    pool: &Pool,
    (name, at, key): (&Name, SocketAddr, Option<&Key>),
    ended: &AtomicBool,
) -> Result<(), Error> {
    let mut listener = Listener::start(node, pool, name, at, key)?;
    let whom = key.map_or("programs of this host", |key| key.host.as_str());
    term::note(&format!("volume {name} is for {whom} at {at} until `vmio volume detach {name}`; Ctrl-C ends this"));
    let mut warned = String::new();
    while !ended.load(Ordering::Relaxed) {
        match listener.tick() {
            Ok(event) => {
                warned.clear();
                if let Some(event) = event {
                    term::note(&event.to_string());
                }
            }
            Err(why @ Error::Detached(_)) => return Err(why),
            Err(why) => warn(&why, &mut warned),
        }
        thread::sleep(HEARD);
    }
    Ok(())
}
