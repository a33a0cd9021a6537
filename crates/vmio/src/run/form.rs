//! The form of `vmio tax` where none is named: the quick study, or the light one where other guests use the disk or it
//! is flash with a volatile write cache, which wears and stalls.

use std::path::Path;

use vmio_look::backing::{Backing, flash_with_write_cache};
use vmio_look::neighbours;
use vmio_model::kind::RunKind;
use vmio_node::Node;
use vmio_rig::disks::places::{self, PlaceBackend};
use vmio_rig::disks::space;

use super::{Mode, RunOptions};
use crate::context::Context;
use crate::store::Store;

/// Name of the whole study.
const WHOLE: &str = "quick";
/// Name of the light study.
const LIGHT: &str = "light";

/// The study of `vmio tax` where no form is named, and the plan's note on the choice.
pub fn choose(
    options: &RunOptions,
    mode: &Mode,
    context: &Context,
    local: &dyn Node,
) -> (&'static str, Option<String>) {
    if options.resume {
        // Of two interrupted runs, the later one.
        let last = |name: &str| {
            let kind = match mode {
                Mode::Noise => RunKind::Noise(name.to_owned()),
                Mode::Study | Mode::Prove { .. } => RunKind::Study(name.to_owned()),
            };
            Store::open_existing(&context.paths.db()).ok()?.unfinished(&kind).ok()?
        };
        return (if last(LIGHT) > last(WHOLE) { LIGHT } else { WHOLE }, None);
    }
    match why_light(options, context, local) {
        Some(why) => (LIGHT, Some(format!("light, since {why}"))),
        None => (WHOLE, None),
    }
}

/// Why little should be written there. Storage that cannot be looked at is left to the plan, which refuses it.
fn why_light(options: &RunOptions, context: &Context, local: &dyn Node) -> Option<String> {
    let reader = local.reader();
    let backing = match (options.device.first(), &options.on) {
        (Some(device), _) => Backing::below(local, device).ok()?,
        (None, on) => {
            let default = || places::directory(&space::default_dir(reader, &context.paths.state));
            let place = on.as_ref().map_or_else(default, |on| places::resolve(local, on)).ok()?;
            match &place.backend {
                // Memory does not wear out, and no other guest uses it.
                PlaceBackend::Modelled(_) => return None,
                // Nothing is written there.
                PlaceBackend::PassedThrough(_) => return None,
                PlaceBackend::Volumes(pool) => pool.backing(local).ok()?,
                PlaceBackend::Files(dir) => {
                    let there = dir.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
                    Backing::below(local, there).ok()?
                }
            }
        }
    };
    // A device of the user's own is refused where a guest uses it.
    let others = neighbours::others(reader, "").unwrap_or_default();
    let on_it = |guest: &&neighbours::Neighbour| neighbours::uses(reader, guest, &backing);
    let guests: Vec<_> = others.guests.iter().filter(|_| options.device.is_empty()).filter(on_it).collect();
    if let Some(first) = guests.first() {
        return Some(match guests.len() {
            1 => format!("{} uses this storage", first.label()),
            n => format!("{} and {} more use this storage", first.label(), n - 1),
        });
    }
    let flash = flash_with_write_cache(reader, &backing)?;
    Some(format!("{flash} is flash with a volatile write cache"))
}
