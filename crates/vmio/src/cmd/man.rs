//! `vmio man`: a man page for vmio and for each verb, made from the command line's definition.

use std::path::PathBuf;

use anyhow::Context as _;
use vmio_model::failure::Exit;

use crate::context::{Context, Outcome};
use crate::term;

/// Write man pages, one for each command, into a directory
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  vmio man ~/.local/share/man/man1 && man vmio-runs")]
pub struct Args {
    /// The directory; created if it does not exist
    dir: PathBuf,
}

/// Writes the pages and prints their names.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let dir = &args.dir;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create the directory {}", dir.display()))?;
    clap_mangen::generate_to((context.command_line)(), dir)
        .with_context(|| format!("cannot write the man pages into {}", dir.display()))?;
    term::note(&format!("man pages written to {}", dir.display()));
    Ok(Exit::Done)
}
