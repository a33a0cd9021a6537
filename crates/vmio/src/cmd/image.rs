//! `vmio image`: the guest image that reference guests start from, and images of any guests in an object store.

mod open;
mod serve;
mod shared;
pub mod transfer;

use std::path::Path;
use std::sync::Arc;

use vmio_model::cell::Arch;
use vmio_model::failure::{Exit, Failure};
use vmio_node::Local;
use vmio_rig::image::Image;

use crate::context::{Context, Outcome};
use crate::term;

/// Build the image that reference guests boot from; store and fetch images
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  export AWS_ENDPOINT_URL=https://s3.example.org
  vmio image push web1.qcow2 s3://images/web1.qcow2
                              store an image; if it is cut off, the same command
                              sends only what is missing
  vmio image pull s3://images/web1.qcow2 copy.qcow2
                              fetch it, each part checked by its SHA-256
  vmio image open s3://images/web1.qcow2
                              print the address of a disk that guests boot from;
                              its bytes come from the store as they are read
  vmio image serve /srv/images
                              be the store of this host; push and pull find it")]
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
    /// Store an image in an object store (S3), with a manifest of digests
    Push(transfer::Push),
    /// Fetch an image from an object store (S3), and check it by its manifest
    Pull(transfer::Pull),
    /// Serve an image of an object store as a disk (NBD) that guests boot from, until Ctrl-C
    Open(open::Open),
    /// Serve a directory of images as an object store to this host, until Ctrl-C
    Serve(serve::Serve),
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
    match &args.verb {
        Verb::Build { arch } => build(arch, context),
        Verb::Push(args) => transfer::push(args, context),
        Verb::Pull(args) => transfer::pull(args, context),
        Verb::Open(args) => open::open(args, context),
        Verb::Serve(args) => serve::serve(args, context),
    }
}

fn build(arch: &str, context: &Context) -> Outcome {
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
