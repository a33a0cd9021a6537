//! `vmio scan --watch`: a scan again and again, with what changed since the first one.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use vmio_model::failure::{Exit, Failure};
use vmio_rig::engine::environment;

use super::pick::Ignore;
use super::{Args, text, view};
use crate::context::{Context, Outcome};
use crate::fit;
use crate::report::format;
use crate::report::scan::diff::{self, Diff, Earlier};
use crate::report::scan::{View, json};
use crate::term::{self, Style};

/// Where the earlier scan is, in the words of a comparison.
const FIRST: &str = "the first one here";

/// How long a signal may go unnoticed.
const HEARD: Duration = Duration::from_millis(100);

/// Shows scans until Ctrl-C. After the first one an error is shown in the place of a scan: a guest that ended may be
/// started again, and another host be reached again. Each one asks what a scan asks, QEMU's monitors included, so there
/// is time between two.
pub fn watch(args: &Args, seconds: u64, ignore: &[Ignore], context: &Context) -> Outcome {
    if !io::stdout().is_terminal() {
        return Err(Failure::new(Exit::Usage, "--watch needs a terminal")
            .help("elsewhere repeat `vmio scan --json`, or compare with `vmio scan --diff`")
            .into());
    }
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&ended))?;
    }
    let mut first: Option<Earlier> = None;
    while !ended.load(Ordering::Relaxed) {
        let viewed = view(args, ignore, context);
        // What the scan asks gets Ctrl-C, too.
        if viewed.is_err() && ended.load(Ordering::Relaxed) {
            break;
        }
        let shown = match viewed {
            Err(e) if first.is_none() => return Err(e),
            Err(e) => failed(&e, context.style),
            Ok(view) => {
                let changes = first.as_ref().map(|earlier| Diff::of(&view.rows, earlier, FIRST)).filter(has_changes);
                let changes = changes.map(|changes| format!("\n{}", diff::text(&view, &changes, context.style)));
                if first.is_none() {
                    first = Some(kept(&view)?);
                }
                text(args, &view, context) + &changes.unwrap_or_default()
            }
        };
        let when = format!("{}, every {seconds} s, Ctrl-C ends", format::utc(environment::now()));
        // Cursor home, then clear below: flickers less than clearing first.
        term::print_exact("\x1b[H\x1b[J")?;
        term::print(&format!("{}\n\n{shown}", context.style.dim(&when)))?;
        wait(Duration::from_secs(seconds), &ended);
    }
    Ok(Exit::Done)
}

/// A scan that failed, which is told and tried again.
fn failed(error: &anyhow::Error, style: Style) -> String {
    fit::notice(&format!("{} ", style.red("error:")), 7, &format!("{error:#}"))
}

/// Waits so long, or until a signal came.
fn wait(seconds: Duration, ended: &AtomicBool) {
    let due = Instant::now() + seconds;
    while !ended.load(Ordering::Relaxed) {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(HEARD));
    }
}

fn has_changes(diff: &Diff) -> bool {
    let lists = [&diff.new, &diff.gone, &diff.changed];
    lists.iter().any(|list| !list.is_empty()) || !diff.guests_new.is_empty() || !diff.guests_gone.is_empty()
}

/// The parts of a scan that a later one is compared with, as `--diff` keeps them.
fn kept(view: &View) -> anyhow::Result<Earlier> {
    Ok(serde_json::from_str(&json(view))?)
}
