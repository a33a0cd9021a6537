//! `vmio volume attach`, `detach` and `resize`: a volume as a disk of a guest that runs.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use vmio_look::HostView;
use vmio_model::facts::Guest;
use vmio_model::failure::{Exit, Failure};
use vmio_model::sanitize;
use vmio_node::Local;
use vmio_rig::volumes::{self, Driver, Error, Holder, Key, Name, Origin, Reach, Running, State};

use super::{Chosen, changed, failed, open, told};
use crate::cmd::explain;
use crate::cmd::scan::pick;
use crate::context::{Context, Outcome};

/// Arguments of `vmio volume attach`.
#[derive(Debug, clap::Args)]
pub struct Attach {
    /// The volume
    #[arg(value_name = "NAME")]
    name: Name,
    /// The guest, as `vmio top` names it
    #[arg(value_name = "GUEST")]
    guest: String,
    /// What the guest has it as: a card of its own, or a disk at its SCSI controller
    #[arg(long, value_name = "DRIVER", default_value = "virtio-blk", value_parser = Driver::ALL.map(|(name, _)| name))]
    driver: String,
    /// Plug it into this bus of QEMU's, such as a free root port [default: QEMU's choice]
    #[arg(long, value_name = "BUS")]
    bus: Option<String>,
    /// Take the volume from another host, which serves it there: `vmio volume serve NAME --listen`
    #[arg(long, value_name = "nbd://HOST:PORT", value_parser = server)]
    from: Option<SocketAddr>,
    /// Encrypt by TLS with this key, which that host has, too: a file keys.psk, as psktool makes it. Required unless
    /// HOST is loopback (docs/volumes.md)
    #[arg(long, value_name = "FILE", requires = "from")]
    tls_key: Option<PathBuf>,
    /// Only check whether it can be attached: change nothing
    #[arg(long)]
    dry_run: bool,
}

/// The first address of a server.
fn server(text: &str) -> Result<SocketAddr, String> {
    let place = text.strip_prefix("nbd://").map(|place| place.trim_end_matches('/'));
    let place = place.ok_or("not nbd://HOST:PORT")?;
    let mut found = place.to_socket_addrs().map_err(|e| e.to_string())?;
    found.next().ok_or_else(|| format!("{place} has no address"))
}

/// Gives a volume to a guest.
pub fn attach(args: &Attach, chosen: &Chosen, context: &Context) -> Outcome {
    if args.from.is_some() {
        // It holds the records of what other hosts have lent.
        vmio_node::private_dir(&chosen.dir)?;
    }
    let (pool, local) = (open(chosen)?, Local::new());
    let failed = |why| failed(&format!("volume {} was not attached to {}", args.name, args.guest), why);
    let guest = named(&args.guest, &local)?;
    let key = args.tls_key.as_deref().map(Key::open).transpose().map_err(failed)?;
    let origin = args.from.map(|at| Origin { at, key });
    if args.dry_run {
        if let Some(origin) = &origin {
            volumes::check_from(&local, &pool, &args.name, &guest, origin).map_err(failed)?;
            return told(&format!("can be attached: {} of {}", args.name, origin.at), chosen, context);
        }
        volumes::check(&local, &pool, &args.name, &guest).map_err(failed)?;
        return changed("can be attached:", &args.name, &pool, chosen, context);
    }
    let driver = Driver::ALL.iter().find(|(name, _)| *name == args.driver).map_or(Driver::VirtioBlk, |(_, d)| *d);
    let as_what = (driver, args.bus.as_deref());
    if let Some(origin) = &origin {
        let attached = volumes::attach_from(&local, &pool, &args.name, &guest, as_what, origin).map_err(failed)?;
        let (name, serial) = (&args.name, volumes::serial(&args.name, &attached));
        let what = format!("attached {name} of {} to {}, serial {serial}", origin.at, guest.name);
        return told(&what, chosen, context);
    }
    volumes::attach(&local, &pool, &args.name, &guest, as_what).map_err(failed)?;
    changed("attached", &args.name, &pool, chosen, context)
}

/// Takes a volume from the guest that has it.
pub fn detach(name: &Name, chosen: &Chosen, context: &Context) -> Outcome {
    let (pool, local) = (open(chosen)?, Local::new());
    let failed = |why| failed(&format!("volume {name} was not detached"), why);
    let none = || failed(Error::Detached(name.clone()));
    let attachment = pool.attachment(name).map_err(failed)?.ok_or_else(none)?;
    let guest = match (attachment.holder.state(), &attachment.reach) {
        (State::Runs, Reach::Here | Reach::From { .. }) => Some(of(&attachment.holder, &local)?),
        (State::Runs, Reach::To { .. }) | (State::Ended | State::Elsewhere, _) => None,
    };
    if let Reach::From { at } = attachment.reach {
        volumes::detach_from(&local, &pool, name, &attachment, guest.as_ref()).map_err(failed)?;
        return told(&format!("detached {name} of {at}, which keeps it for this host"), chosen, context);
    }
    volumes::detach(&local, &pool, name, &attachment, guest.as_ref()).map_err(failed)?;
    changed("detached", name, &pool, chosen, context)
}

/// Makes a volume larger, whether a guest has it or not.
pub fn resize(name: &Name, bytes: u64, chosen: &Chosen, context: &Context) -> Outcome {
    let (pool, local) = (open(chosen)?, Local::new());
    let failed = |why| failed(&format!("volume {name} was not resized"), why);
    let there = pool.attachment(name).map_err(failed)?.filter(|there| there.holder.state() == State::Runs);
    match there.as_ref().map(|there| (there, &there.reach)) {
        Some((_, Reach::From { at })) => return Err(failed(Error::Afar { name: name.clone(), at: *at })),
        Some((there, Reach::Here)) => {
            let guest = of(&there.holder, &local)?;
            let failed = |why| super::failed(&format!("volume {name} was not resized for its guest"), why);
            volumes::resize(&local, &pool, name, there, &guest, bytes).map_err(failed)?;
        }
        // That of another host is refused.
        Some((_, Reach::To { .. })) | None => {
            pool.resize(name, bytes).map_err(failed)?;
        }
    }
    changed("resized", name, &pool, chosen, context)
}

/// The guest that the word names.
fn named(word: &str, local: &Local) -> anyhow::Result<Running> {
    let named = pick::named(explain::running(&HostView::new(local)), true, &[word.to_owned()])?;
    let [guest] = named.as_slice() else {
        let names: Vec<_> = named.iter().map(|guest| sanitize::line(&guest.name)).collect();
        let what = format!("{word} names several guests: {}", names.join(", "));
        return Err(Failure::new(Exit::Usage, what).help("name one").into());
    };
    running(guest, local)
}

/// The guest that has a volume.
fn of(holder: &Holder, local: &Local) -> anyhow::Result<Running> {
    let all = explain::running(&HostView::new(local));
    let Some(guest) = all.iter().find(|guest| guest.pid == Some(holder.pid)) else {
        let what = format!("the process of guest {} (pid {}) is not seen as a guest", holder.guest, holder.pid);
        return Err(Failure::new(Exit::Precondition, what)
            .help("run this as the user of the guest, or as root")
            .into());
    };
    running(guest, local)
}

fn running(guest: &Guest, local: &Local) -> anyhow::Result<Running> {
    let refused = |why: String| {
        let help = "give the guest a monitor of its own: -qmp unix:PATH,server=on,wait=off";
        Failure::new(Exit::Precondition, why).help(help)
    };
    let monitor = explain::monitor(local, guest).map_err(refused)?;
    let pid = guest.pid.ok_or_else(|| refused(format!("{} has no process on this host", guest.name)))?;
    Ok(Running { name: sanitize::line(&guest.name).into_owned(), pid, monitor })
}
