//! The headline: what the best guest that one would make by default gets of this host.

use super::build::{overall, verdict};
use super::{Cell, Headline, Share};
use crate::result::Run;
use crate::setup::{Aio, Attachment, Cache, Setup};
use crate::stats::{Convergence, Ratio, converged};

/// The set-up that a headline prefers: a paravirtual disk on the whole device.
const TARGET: &str = "device";
/// See [`TARGET`].
const DRIVER: &str = "virtio-blk";

/// How far an attachment is from what one would make by default; smaller is nearer.
fn distance(target: &str, a: &Attachment) -> u32 {
    let unlike = |differs: bool, weight: u32| if differs { weight } else { 0 };
    // What is not durable is no guest that one would make.
    unlike(a.cache.no_flush(), 32)
        + unlike(target != TARGET, 16)
        + unlike(a.driver != DRIVER, 8)
        + unlike(a.cache != Cache::None, 4)
        + unlike(a.aio != Aio::Native, 2)
        + unlike(a.iothread, 1)
}

/// The headline of a run; `None` without a pair of a guest on its best target with `virtio-blk`.
pub(super) fn headline(
    run: &Run,
    cells: &[Cell],
    shares: &[Share],
    rule: &Convergence,
    emulated: bool,
) -> Option<Headline> {
    let best = shares
        .iter()
        .filter(|s| s.setup.attachment.as_ref().is_some_and(|a| a.driver == DRIVER))
        .min_by_key(|s| s.setup.attachment.as_ref().map(|a| distance(&s.setup.target, a)))?;
    let same = |s: &&Share| {
        s.setup.target == best.setup.target
            && s.setup.guest == best.setup.guest
            && s.setup.attachment == best.setup.attachment
    };
    let of: Vec<&Share> = shares.iter().filter(same).collect();
    let against_native: Vec<(&Setup, Setup)> = of.iter().map(|s| (&s.setup, s.setup.baseline())).collect();
    let ratio = overall(run, against_native.iter().map(|(test, base)| (base, *test)))?;
    let known = converged(&ratio, rule);
    let guest = best.setup.key();
    let guest = guest.trim_end_matches(&format!("/{}", best.setup.workload)).to_owned();
    let workloads: Vec<&str> = of.iter().map(|s| s.setup.workload.as_str()).collect();
    let enough = ratio.pairs >= rule.min_pairs && ratio.boots >= rule.min_boots;
    let figure = if enough { percent(&ratio) } else { format!("so far about {:.0} %", ratio.value * 100.0) };
    // With --gentle both sides ran under a cap: a share of the host it is not.
    let of_what = match run.environment.cap_ratio {
        Some(cap) => format!("a cap of {:.0} % of this host (--gentle)", cap * 100.0),
        None => "this host".to_owned(),
    };
    let text = format!(
        "A reference guest made by vmio gets {figure} of {of_what}{}: {} on {}, geometric mean over {}{}.",
        if emulated { " under software emulation (TCG)" } else { "" },
        best.setup.attachment.as_ref().map(Attachment::label).unwrap_or_default(),
        best.setup.target,
        workloads.join(", "),
        if known { String::new() } else { format!("; {}", verdict(&ratio, rule)) },
    );
    let lines = of.iter().map(|s| line(s, cells)).collect();
    Some(Headline {
        guest,
        share_ratio: ratio,
        converged: known,
        cells: of.iter().map(|s| s.key.clone()).collect(),
        text,
        lines,
    })
}

/// `57 % (52 to 61 %)`.
pub(crate) fn percent(ratio: &Ratio) -> String {
    match ratio.interval {
        // With two pairs Student's t is so wide that the interval says nothing.
        Some(i) if ratio.pairs > 2 => {
            format!("{:.0} % ({:.0} to {:.0} %)", ratio.value * 100.0, i.low * 100.0, i.high * 100.0)
        }
        _ => format!("{:.0} % (no interval yet)", ratio.value * 100.0),
    }
}

fn line(share: &Share, cells: &[Cell]) -> String {
    let doubt = if share.converged { String::new() } else { format!("; {}", share.verdict) };
    let cost = cost(share, cells).map_or_else(String::new, |cost| format!("; {cost}"));
    format!("{}: {}{doubt}{cost}", share.setup.workload, percent(&share.share_ratio))
}

/// Where the rest goes, as far as it was measured: CPU time of the whole host for each request,
/// natively and through the guest.
fn cost(share: &Share, cells: &[Cell]) -> Option<String> {
    let per_request = |key: &str| cells.iter().find(|c| c.key == key)?.cpu.host_seconds_per_request;
    let (native, guest) = (per_request(&share.baseline)?, per_request(&share.key)?);
    Some(format!("host CPU per request {:.0} µs natively, {:.0} µs through the guest", native * 1e6, guest * 1e6))
}
