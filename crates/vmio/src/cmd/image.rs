//! `vmio image`: the guest image that reference guests start from.

use std::path::Path;
use std::sync::Arc;

use vmio_model::cell::Arch;
use vmio_model::failure::{Exit, Failure};
use vmio_node::Local;
use vmio_rig::image::Image;

use crate::context::{Context, Outcome};
use crate::term;

/// Build the image that reference guests boot from
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Build the image, unless there is a current one for this host
    Build {
        /// The guests' processor, as Debian names it: amd64, or arm64, which is emulated
        #[arg(long, value_name = "ARCH", default_value = "amd64", value_parser = Arch::ALL.map(Arch::debian))]
        arch: String,
    },
}

/// An image that guests boot from.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Document<'a> {
    /// Version of this document.
    pub schema_version: &'static str,
    /// What is in it.
    pub image: &'a Image,
    /// Where it lies.
    pub directory: &'a Path,
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let Verb::Build { arch } = &args.verb;
    let arch = Arch::ALL.into_iter().find(|known| known.debian() == arch).unwrap_or_default();
    let local = Arc::new(Local::new());
    let image =
        Image::with_kernel(arch, None, &*local, &context.paths.state, &|text: &str| term::note(text)).map_err(|e| {
            anyhow::Error::new(e).context(Failure::new(Exit::Precondition, "the guest image cannot be built"))
        })?;
    if context.json {
        term::json(&Document { schema_version: "1.0", image: &image, directory: &image.dir })?;
        return Ok(Exit::Done);
    }
    let mut text = format!("directory  {}\n", image.dir.display());
    text += &format!("kernel     {} from {}\n", image.kernel_release, image.kernel_origin);
    if let Some(why) = &image.compressed_because {
        text += &format!("           boots slower: {why}\n");
    }
    let libraries = if arch.is_own() { "the libraries of this host" } else { "their libraries" };
    text += &format!("tools      {}, dd, and {libraries}\n", image.fio_version);
    term::print(&text)?;
    Ok(Exit::Done)
}
