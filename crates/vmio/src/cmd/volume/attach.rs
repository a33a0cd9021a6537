//! `vmio volume attach`, `detach` and `resize`: a volume as a disk of a guest that runs.

use std::path::Path;

use vmio_look::HostView;
use vmio_model::facts::Guest;
use vmio_model::failure::{Exit, Failure};
use vmio_model::sanitize;
use vmio_node::Local;
use vmio_rig::volumes::{self, Driver, Error, Holder, Name, Running, State};

use super::{changed, failed, open};
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
    /// Only check whether it can be attached: change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Gives a volume to a guest.
pub fn attach(args: &Attach, dir: &Path, context: &Context) -> Outcome {
    let (pool, local) = (open(dir)?, Local::new());
    let failed = |why| failed(&format!("volume {} was not attached to {}", args.name, args.guest), why);
    let guest = named(&args.guest, &local)?;
    if args.dry_run {
        volumes::check(&local, &pool, &args.name, &guest).map_err(failed)?;
        return changed("can be attached:", &args.name, &pool, dir, context);
    }
    let driver = Driver::ALL.iter().find(|(name, _)| *name == args.driver).map_or(Driver::VirtioBlk, |(_, d)| *d);
    volumes::attach(&local, &pool, &args.name, &guest, (driver, args.bus.as_deref())).map_err(failed)?;
    changed("attached", &args.name, &pool, dir, context)
}

/// Takes a volume from the guest that has it.
pub fn detach(name: &Name, dir: &Path, context: &Context) -> Outcome {
    let (pool, local) = (open(dir)?, Local::new());
    let failed = |why| failed(&format!("volume {name} was not detached"), why);
    let none = || failed(Error::Detached(name.clone()));
    let attachment = pool.attachment(name).map_err(failed)?.ok_or_else(none)?;
    let guest = match attachment.holder.state() {
        State::Runs => Some(of(&attachment.holder, &local)?),
        State::Ended | State::Elsewhere => None,
    };
    volumes::detach(&local, &pool, name, &attachment, guest.as_ref()).map_err(failed)?;
    changed("detached", name, &pool, dir, context)
}

/// Makes a volume larger, whether a guest has it or not.
pub fn resize(name: &Name, bytes: u64, dir: &Path, context: &Context) -> Outcome {
    let (pool, local) = (open(dir)?, Local::new());
    let failed = |why| failed(&format!("volume {name} was not resized"), why);
    match pool.attachment(name).map_err(failed)?.filter(|there| there.holder.state() == State::Runs) {
        Some(there) => {
            let guest = of(&there.holder, &local)?;
            let failed = |why| super::failed(&format!("volume {name} was not resized for its guest"), why);
            volumes::resize(&local, &pool, name, &there, &guest, bytes).map_err(failed)?;
        }
        None => {
            pool.resize(name, bytes).map_err(failed)?;
        }
    }
    changed("resized", name, &pool, dir, context)
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
