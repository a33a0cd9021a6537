//! `vmio volume`: disks that outlive their guests, in a pool: a directory, a volume group or a thin pool.

mod attach;
mod policy;
mod serve;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use vmio_model::failure::{Exit, Failure};
use vmio_model::policy::units::{self, UnitError};
use vmio_model::sanitize;
use vmio_rig::disks::places;
use vmio_rig::volumes::{self, Attachment, Error, Name, Pool, Reach, State};

use crate::context::{Context, Outcome};
use crate::report::format;
use crate::term;

/// Keep disks that outlive their guests
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  vmio volume create data 20GiB
                              a volume of zeros, its space reserved
  vmio volume serve           serve the volumes to guests, until Ctrl-C
  vmio volume attach data web1
                              give it to a guest that runs, as a further disk
  vmio volume detach data     take it back; its bytes are kept
  vmio volume serve data --listen 192.0.2.20:10809 --tls-key web2/keys.psk
                              serve one to the host whose key it is
  vmio volume attach data web1 --from nbd://192.0.2.20:10809 \\
    --tls-key web2/keys.psk   on that host: give it to a guest there
  vmio volume snapshot data data-monday
                              a copy of it, under another name
  vmio volume list --pool lvmthin:vg0/pool
                              the volumes of a thin pool of LVM")]
pub struct Args {
    /// Where the volumes are: a directory, lvm:VG (a volume group) or lvmthin:VG/POOL (a thin pool of LVM) [default:
    /// volumes in the state directory]
    #[arg(long, global = true, value_name = "POOL")]
    pool: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make a volume of zeros and reserve its space
    Create {
        /// Its name: letters, digits, - and _
        #[arg(value_name = "NAME")]
        name: Name,
        /// Its size, as in 20GiB or 512MiB
        #[arg(value_name = "SIZE", value_parser = size)]
        size: u64,
    },
    /// List the volumes
    List,
    /// Serve the volumes to guests, or one to another host, until Ctrl-C
    Serve(serve::Serve),
    /// Print the guard's policy for volumes that are served to other hosts
    Policy(policy::Policy),
    /// Give a volume to a guest that runs, as a further disk
    Attach(attach::Attach),
    /// Take a volume from the guest, or the other host, that has it
    Detach {
        /// The volume
        #[arg(value_name = "NAME")]
        name: Name,
    },
    /// Copy a volume that no guest uses
    Snapshot {
        /// The volume
        #[arg(value_name = "NAME")]
        name: Name,
        /// Name of the copy
        #[arg(value_name = "NEW")]
        new: Name,
    },
    /// Make a volume larger; a guest that has it sees its new size
    Resize {
        /// The volume
        #[arg(value_name = "NAME")]
        name: Name,
        /// Its new size, as in 20GiB or 512MiB
        #[arg(value_name = "SIZE", value_parser = size)]
        size: u64,
    },
    /// Delete a volume that no guest uses, with all that is on it
    Delete {
        /// The volume
        #[arg(value_name = "NAME")]
        name: Name,
        /// Delete without asking
        #[arg(long, short)]
        yes: bool,
    },
}

/// The volumes of a pool.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Listed<'a> {
    /// Version of this document.
    pub schema_version: &'static str,
    /// The pool: its directory, lvm:VG or lvmthin:VG/POOL.
    pub pool: &'a Path,
    /// Its volumes, by name.
    pub volumes: Vec<Row>,
    /// Volumes of other hosts that guests of this one have, by name.
    pub remote: Vec<Remote>,
}

/// A volume that was made or changed.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Changed<'a> {
    /// Version of this document.
    pub schema_version: &'static str,
    /// The pool: its directory, lvm:VG or lvmthin:VG/POOL.
    pub pool: &'a Path,
    /// The volume as it is now.
    pub volume: Row,
}

/// A volume.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// The guest that has it.
    pub guest: Option<String>,
    /// The other host that may have it, by the name of its key.
    pub host: Option<String>,
    /// Where it is served to that host.
    pub at: Option<String>,
    /// The serial number by which that guest sees it.
    pub serial: Option<String>,
}

/// A volume of another host.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Remote {
    /// Its name.
    pub name: String,
    /// Where it is served.
    pub at: String,
    /// The guest of this host that has it.
    pub guest: String,
    /// The serial number by which that guest sees it.
    pub serial: String,
}

fn size(text: &str) -> Result<u64, UnitError> {
    units::bytes(text)
}

/// The pool that is meant.
pub struct Chosen {
    /// As people name it.
    name: PathBuf,
    /// The directory of its records, and of its volumes unless LVM has those.
    dir: PathBuf,
    /// Where LVM has them.
    lvm: Option<places::Pool>,
}

impl Chosen {
    fn of(named: Option<&Path>, state: &Path) -> anyhow::Result<Self> {
        // As `--on` has it: a mistyped lvmthin: makes no directory.
        let is_place = |text: &&str| {
            let kind = text.split_once(':').map(|(kind, _)| kind);
            kind.is_some_and(|kind| !kind.is_empty() && !kind.contains(['/', '.']))
        };
        if let Some(text) = named.and_then(Path::to_str).filter(is_place) {
            let lvm = volumes::lvm_pool(text).map_err(|why| failed("the pool cannot be used", why))?;
            // No name of LVM's has a colon.
            let dir = state.join(format!("volumes-{}", text.replace('/', ":")));
            return Ok(Chosen { name: text.into(), dir, lvm: Some(lvm) });
        }
        let named = named.map_or_else(|| state.join("volumes"), Path::to_owned);
        let dir = std::path::absolute(&named)
            .with_context(|| Failure::new(Exit::Usage, format!("{} is no directory", named.display())))?;
        Ok(Chosen { name: dir.clone(), dir, lvm: None })
    }
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let chosen = Chosen::of(args.pool.as_deref(), &context.paths.state)?;
    match &args.verb {
        Verb::Create { name, size } => {
            vmio_node::private_dir(&chosen.dir)?;
            let failed = |why| failed(&format!("volume {name} was not made"), why);
            let pool = open(&chosen)?;
            pool.create(name, *size).map_err(failed)?;
            changed("made", name, &pool, &chosen, context)
        }
        Verb::List => list(&chosen, context),
        Verb::Serve(args) => serve::serve(args, &chosen, context),
        Verb::Policy(args) => policy::policy(args, &chosen),
        Verb::Attach(args) => attach::attach(args, &chosen, context),
        Verb::Detach { name } => attach::detach(name, &chosen, context),
        Verb::Snapshot { name, new } => {
            let failed = |why| failed(&format!("volume {name} was not copied"), why);
            let pool = open(&chosen)?;
            pool.snapshot(name, new).map_err(failed)?;
            changed("made", new, &pool, &chosen, context)
        }
        Verb::Resize { name, size } => attach::resize(name, *size, &chosen, context),
        Verb::Delete { name, yes } => delete(name, *yes, &chosen),
    }
}

/// The pool there, by a path without links.
fn open(chosen: &Chosen) -> anyhow::Result<Pool> {
    if !chosen.dir.is_dir() {
        let what = format!("there is no pool {}", chosen.name.display());
        return Err(Failure::new(Exit::Usage, what).help("`vmio volume create NAME SIZE` makes it").into());
    }
    let dir = vmio_node::trusted_dir(&chosen.dir)?;
    let opened = match &chosen.lvm {
        Some(lvm) => Pool::open_lvm(&dir, lvm),
        None => Pool::open(&dir),
    };
    opened.map_err(|why| failed(&format!("the pool {} cannot be used", chosen.name.display()), why))
}

/// The volumes, each with who has it, and those of other hosts.
fn rows(pool: &Pool, chosen: &Chosen) -> anyhow::Result<(Vec<Row>, Vec<Remote>)> {
    let failed = |why| failed(&format!("the volumes in {} cannot be listed", chosen.name.display()), why);
    let mut held: BTreeMap<Name, Attachment> = pool.attached().map_err(failed)?.into_iter().collect();
    held.retain(|_, there| matches!(there.reach, Reach::To { .. }) || there.holder.state() != State::Ended);
    let own = pool.list().map_err(failed)?.into_iter();
    let rows = own.map(|own| row(&own, held.get(&own.name))).collect();
    let remote = |(name, there): (&Name, &Attachment)| {
        let Reach::From { at } = there.reach else { return None };
        let (guest, serial) = (there.holder.guest.clone(), volumes::serial(name, there));
        Some(Remote { name: name.to_string(), at: at.to_string(), guest, serial })
    };
    Ok((rows, held.iter().filter_map(remote).collect()))
}

fn row(own: &volumes::Volume, there: Option<&Attachment>) -> Row {
    let (name, size_bytes) = (own.name.to_string(), own.bytes);
    let free = Row { name, size_bytes, guest: None, host: None, at: None, serial: None };
    let Some(there) = there else { return free };
    if let Reach::To { host, at } = &there.reach {
        return Row { host: Some(host.clone()), at: Some(at.to_string()), ..free };
    }
    let (guest, serial) = (there.holder.guest.clone(), volumes::serial(&own.name, there));
    Row { guest: Some(guest), serial: Some(serial), ..free }
}

/// A volume on a line.
fn line(row: &Row, width: usize) -> String {
    let line = format!("{:<width$}  {}", row.name, format::bytes(row.size_bytes));
    if let (Some(guest), Some(serial)) = (&row.guest, &row.serial) {
        return format!("{line}, attached to {}, serial {serial}\n", sanitize::line(guest));
    }
    if let (Some(host), Some(at)) = (&row.host, &row.at) {
        return format!("{line}, for host {host} at {at}\n");
    }
    format!("{line}\n")
}

fn list(chosen: &Chosen, context: &Context) -> Outcome {
    let (rows, remote) = if chosen.dir.exists() { rows(&open(chosen)?, chosen)? } else { (Vec::new(), Vec::new()) };
    if context.json {
        term::json(&Listed { schema_version: "1.1", pool: &chosen.name, volumes: rows, remote })?;
        return Ok(Exit::Done);
    }
    if rows.is_empty() && remote.is_empty() {
        term::note(&format!("no volumes in {}", chosen.name.display()));
    }
    let names = rows.iter().map(|row| &row.name).chain(remote.iter().map(|remote| &remote.name));
    let width = names.map(String::len).max().unwrap_or(0);
    let afar = |remote: &Remote| {
        let (name, guest) = (&remote.name, sanitize::line(&remote.guest));
        format!("{name:<width$}  of {}, attached to {guest}, serial {}\n", remote.at, remote.serial)
    };
    let own = rows.iter().map(|row| line(row, width));
    term::print(&own.chain(remote.iter().map(afar)).collect::<String>())?;
    Ok(Exit::Done)
}

/// Tells what was done with a volume of another host; as JSON, which of them guests have now.
fn told(what: &str, chosen: &Chosen, context: &Context) -> Outcome {
    if context.json {
        return list(chosen, context);
    }
    term::print(&format!("{what}\n"))?;
    Ok(Exit::Done)
}

/// Tells what a volume is now.
fn changed(verb: &str, name: &Name, pool: &Pool, chosen: &Chosen, context: &Context) -> Outcome {
    let is_it = |row: &Row| row.name == name.to_string();
    let Some(volume) = rows(pool, chosen)?.0.into_iter().find(is_it) else {
        return Err(failed(&format!("volume {name} is gone"), Error::Missing(name.clone())));
    };
    if context.json {
        term::json(&Changed { schema_version: "1.1", pool: &chosen.name, volume })?;
    } else {
        term::print(&format!("{verb} {}", line(&volume, 0)))?;
    }
    Ok(Exit::Done)
}

fn delete(name: &Name, yes: bool, chosen: &Chosen) -> Outcome {
    let pool = open(chosen)?;
    match yes.then_some(true).or_else(|| term::confirm(&format!("delete volume {name} and all that is on it?"))) {
        Some(true) => {}
        Some(false) => {
            term::note("kept");
            return Ok(Exit::Done);
        }
        None => {
            let what = format!("volume {name} was not deleted: no terminal to ask on");
            return Err(Failure::new(Exit::Usage, what).help("use --yes to delete without confirmation").into());
        }
    }
    pool.delete(name).map_err(|why| failed(&format!("volume {name} was not deleted"), why))?;
    term::note(&format!("volume {name} deleted"));
    Ok(Exit::Done)
}

/// The error of a verb, with what to do where the cause does not say so.
fn failed(what: &str, why: Error) -> anyhow::Error {
    let exit = if why.is_usage() {
        Exit::Usage
    } else if why.is_precondition() {
        Exit::Precondition
    } else {
        Exit::Failed
    };
    let mut failure = Failure::new(exit, what);
    if matches!(why, Error::NoSpace { .. }) {
        failure = failure.help("free some space there; nothing was changed");
    }
    anyhow::Error::new(why).context(failure)
}
