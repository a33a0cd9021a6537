//! `--diff`: reads the earlier scan, and keeps this one for the next time. That file is the only one that a scan ever
//! writes in the state directory, and only with `--diff`.

use std::fs::{DirBuilder, OpenOptions, rename};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use vmio_model::facts::{Guest, called};
use vmio_model::failure::{Exit, Failure};

use super::config;
use super::pick::Ignore;
use crate::context::Context;
use crate::report::scan::diff::{Diff, Earlier};
use crate::report::scan::{View, json};

/// Largest earlier scan that is read.
const MOST_BYTES: u64 = 64 << 20;

/// Compares with the scan in `named`, else with the last one that was kept; then keeps this one. A scan of named guests
/// is not kept, since the others would be missing from it.
pub fn compare(
    view: &View,
    named: Option<&Path>,
    guests: &[String],
    ignore: &[Ignore],
    context: &Context,
) -> anyhow::Result<Diff> {
    let kept = context.paths.last_scan();
    let path = named.unwrap_or(&kept);
    let mut diff = if path.exists() || named.is_some() {
        let earlier = restricted(read(path)?, guests, ignore);
        Diff::of(&view.rows, &earlier, &path.display().to_string())
    } else {
        Diff::first()
    };
    if named.is_none() && guests.is_empty() {
        keep(&kept, &json(view))?;
        diff.kept = true;
    }
    Ok(diff)
}

fn read(path: &Path) -> anyhow::Result<Earlier> {
    let text = config::text(path, MOST_BYTES)?;
    serde_json::from_str(&text).with_context(|| {
        Failure::new(Exit::Usage, format!("{} is not what `vmio scan --json` prints", path.display()))
            .help("name a file made by `vmio scan --json`; the one in the state directory can be removed")
    })
}

/// The earlier scan with only the guests that were asked for, without findings that are ignored now.
fn restricted(mut earlier: Earlier, words: &[String], ignore: &[Ignore]) -> Earlier {
    let guests: Vec<Guest> = earlier.guests.iter().map(|g| g.guest.clone()).collect();
    for one in ignore {
        let meant = one.guest.as_ref().map_or_else(|| (0..guests.len()).collect(), |word| called(&guests, word));
        meant.into_iter().for_each(|place| earlier.guests[place].findings.retain(|f| f.rule != one.rule));
    }
    if !words.is_empty() {
        let meant: Vec<usize> = words.iter().flat_map(|word| called(&guests, word)).collect();
        let mut place = 0..;
        earlier.guests.retain(|_| place.next().is_some_and(|place| meant.contains(&place)));
    }
    earlier
}

/// Puts a file in place in one step, for its owner alone.
fn keep(file: &Path, content: &str) -> anyhow::Result<()> {
    let why = || {
        Failure::new(Exit::Failed, format!("this scan cannot be kept as {}", file.display()))
            .help("name another state directory with --state DIR, or compare with a file: --diff=FILE")
    };
    if let Some(dir) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(why)?;
    }
    in_one_step(file, content, 0o600).with_context(why)
}

/// Writes a new file beside it, then renames, so that readers never find half of it. An existing file is not opened: in
/// a directory of other users it may be a link.
pub fn in_one_step(file: &Path, content: &str, mode: u32) -> std::io::Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(name);
    let mut new = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    let done = new.write_all(content.as_bytes()).and_then(|()| rename(&beside, file));
    if done.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    done
}
