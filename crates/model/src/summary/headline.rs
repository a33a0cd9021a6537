//! The headlines, one for each resource and kind of guest: the share of the best default guest; with another baseline
//! that of the study's first cells.

use super::shares::{overall, verdict};
use super::{CellRow, Headline, Share};
use crate::cell::{Aio, Attachment, Baseline, Cache, Cell};
use crate::modelled::ModelledDisk;
use crate::run::Run;
use crate::stats::{Convergence, Ratio, converged};
use crate::study::HostResource;
use crate::words::share_decimals;

/// The preferred set-up: a paravirtual disk on the whole device.
const TARGET: &str = "device";
/// See [`TARGET`].
const DRIVER: &str = "virtio-blk";

/// Distance of an attachment from the default; smaller is nearer.
fn distance(target: &str, a: &Attachment) -> u32 {
    let unlike = |differs: bool, weight: u32| if differs { weight } else { 0 };
    // A guest without durability is no default.
    unlike(a.cache.no_flush(), 32)
        + unlike(target != TARGET, 16)
        + unlike(a.driver != DRIVER, 8)
        + unlike(a.cache != Cache::None, 4)
        + unlike(a.aio != Aio::Native, 2)
        + unlike(a.iothread, 1)
}

/// The reference guest, which had the host for itself: on a disk the one nearest to the default with `virtio-blk`, else
/// the first one, paravirtual devices preferred.
fn reference<'a>(shares: &[&'a Share]) -> Option<&'a Share> {
    let alone = || shares.iter().copied().filter(|s| s.cell.is_alone());
    if alone().any(|s| s.cell.attachment().is_some()) {
        let far = |s: &&Share| {
            let distance = distance(s.cell.target()?, s.cell.attachment()?);
            // Cells that a page cache served come last.
            Some((s.cell.is_warm(), distance, s.cell.settings.len()))
        };
        let by_default = |s: &&Share| s.cell.attachment().is_some_and(|a| a.driver == DRIVER);
        return alone().filter(by_default).min_by_key(far);
    }
    alone().min_by_key(|s| {
        let by_another = s.cell.lead.subject.seen_by().is_some_and(|by| !by.starts_with("virtio"));
        (s.cell.is_warm(), by_another)
    })
}

/// Share of a cap from which a guest reaches it.
const REACHES: f64 = 0.95;

/// The headlines of a run, one for each resource and kind of guest with a pair.
pub(super) fn headlines(
    run: &Run,
    cells: &[CellRow],
    shares: &[Share],
    baseline: &Baseline,
    rule: &Convergence,
    emulated: bool,
) -> Vec<Headline> {
    let of = |nature| {
        let own = |share: &&Share| HostResource::of_cell(&share.cell, &run.workloads) == nature;
        let own: Vec<&Share> = shares.iter().filter(own).collect();
        // With another baseline the first cells represent all.
        let kinds = if baseline.is_native() { kinds(&own) } else { vec![own] };
        kinds.into_iter().filter_map(move |own| headline(run, cells, (nature, &own), baseline, rule, emulated))
    };
    HostResource::ALL.into_iter().flat_map(of).collect()
}

/// The shares by kind of guest: kinds with a machine first, else in order of appearance.
fn kinds<'a>(shares: &[&'a Share]) -> Vec<Vec<&'a Share>> {
    let mut kinds: Vec<Vec<&Share>> = Vec::new();
    for share in shares {
        match kinds.iter_mut().find(|own| own[0].cell.lead.side.kind == share.cell.lead.side.kind) {
            Some(own) => own.push(share),
            None => kinds.push(vec![share]),
        }
    }
    kinds.sort_by_key(|own| own[0].cell.lead.side.shares_kernel());
    kinds
}

fn headline(
    run: &Run,
    cells: &[CellRow],
    (nature, shares): (HostResource, &[&Share]),
    baseline: &Baseline,
    rule: &Convergence,
    emulated: bool,
) -> Option<Headline> {
    let best = if baseline.is_native() { reference(shares)? } else { shares.first()? };
    let guest = best.cell.place_key();
    let of: Vec<&Share> = shares.iter().copied().filter(|s| s.cell.place_key() == guest).collect();
    let compared: Vec<(&Cell, Cell)> = of.iter().filter_map(|s| Some((&s.cell, baseline.of(&s.cell)?))).collect();
    let ratio = overall(run, compared.iter().map(|(test, base)| (base, *test)))?;
    let known = converged(&ratio, rule);
    let workloads: Vec<String> = of.iter().map(|s| workload(s, baseline)).collect();
    let enough = ratio.pairs >= rule.min_pairs && ratio.boots >= rule.min_boots;
    let figure = if enough || ratio.usable_interval().is_some() {
        percent_of(&ratio, known)
    } else {
        format!("{:.0} %", ratio.value * 100.0)
    };
    let figure = if enough { figure } else { format!("so far about {figure}") };
    let contained = best.cell.lead.side.shares_kernel();
    let who = if contained { "A container" } else { "A reference guest" };
    let emulation = if emulated && !contained { " under software emulation (TCG)" } else { "" };
    // A modelled disk says nothing about the host's own.
    let host = run.environment.modelled.as_ref().map_or_else(|| "this host".to_owned(), ModelledDisk::headline);
    // With --gentle both sides ran under a cap, so it is no share of the host.
    let cap = run.environment.cap_ratio.map(|cap| format!("a cap of {:.0} % of {host} (--gentle)", cap * 100.0));
    let seen_by = best.cell.lead.subject.seen_by().unwrap_or_else(|| best.cell.lead.side.to_string());
    let at = format!("{seen_by} on {}", best.cell.lead.subject.place());
    let sentence = if !baseline.is_native() {
        format!(
            "{guest} gets {figure} of what {} gets{emulation}{}",
            compared.first()?.1.place_key(),
            match (cap, &run.environment.modelled) {
                (Some(cap), _) => format!(", both under {cap}"),
                (None, Some(disk)) => format!(", both on {}", disk.headline()),
                (None, None) => String::new(),
            },
        )
    } else if cap.is_some() && enough && ratio.value >= REACHES {
        // Its speed above the cap is not known.
        format!(
            "{who} made by vmio reaches {}: at least that much it gets{emulation}; {at} got {figure} of \
             the cap",
            cap.unwrap_or_default(),
        )
    } else {
        format!("{who} made by vmio gets {figure} of {}{emulation}: {at}", cap.unwrap_or(host))
    };
    let doubt = if known { String::new() } else { format!("; {}", verdict(&ratio, rule)) };
    Some(Headline {
        nature,
        side: best.cell.lead.side.kind.clone(),
        guest,
        share_ratio: ratio,
        converged: known,
        cells: of.iter().map(|s| s.key.clone()).collect(),
        text: format!("{sentence}, geometric mean over {}{doubt}.", workloads.join(", ")),
        about_interval: about_interval(&of, &ratio),
        lines: of.iter().map(|s| line(s, baseline, cells)).collect(),
    })
}

/// A note that the interval is of the mean, with the range of the shares.
fn about_interval(of: &[&Share], mean: &Ratio) -> Option<String> {
    let shares = || of.iter().map(|s| s.share_ratio.value);
    let (low, high) = (shares().fold(f64::INFINITY, f64::min), shares().fold(0.0, f64::max));
    mean.usable_interval().filter(|_| of.len() > 1)?;
    let (low, high) = (low * 100.0, high * 100.0);
    let decimals = share_decimals(low, high);
    Some(format!(
        "95 % interval over {} rounds; the {} workloads get {low:.decimals$} to {high:.decimals$} %.",
        mean.pairs,
        of.len(),
    ))
}

/// `57 % (52 to 61 %)`, `3.0 % (2.9 to 3.1 %)`.
pub(crate) fn percent(ratio: &Ratio) -> String {
    percent_of(ratio, false)
}

/// The same; of a share that is known with its interval, from however few pairs.
fn percent_of(ratio: &Ratio, known: bool) -> String {
    match ratio.shown_interval(known) {
        Some(i) => {
            let [value, low, high] = [ratio.value, i.low, i.high].map(|x| x * 100.0);
            let decimals = share_decimals(low, high);
            format!("{value:.decimals$} % ({low:.decimals$} to {high:.decimals$} %)")
        }
        None => format!("{:.0} % (no interval yet)", ratio.value * 100.0),
    }
}

/// The workload, and the baseline's where it has another one.
fn workload(share: &Share, baseline: &Baseline) -> String {
    let own = share.cell.workload();
    let other = baseline.of(&share.cell).map(|base| base.lead.workload).filter(|other| other != own);
    other.map_or_else(|| own.to_owned(), |other| format!("{own} against {other}"))
}

fn line(share: &Share, baseline: &Baseline, cells: &[CellRow]) -> String {
    let doubt = if share.converged { String::new() } else { format!("; {}", share.verdict) };
    let doubt = share.stalls().map_or(doubt.clone(), |stalls| format!("{doubt}; {stalls}"));
    let cost = cost(share, cells).map_or_else(String::new, |cost| format!("; {cost}"));
    format!("{}: {}{doubt}{cost}", workload(share, baseline), percent_of(&share.share_ratio, share.converged))
}

/// Where the rest goes, as far as measured: CPU time of the whole host for each request, natively and through the
/// guest. Of several actors nobody knows whose it is.
fn cost(share: &Share, cells: &[CellRow]) -> Option<String> {
    let row = |key: &str| cells.iter().find(|c| c.key == key);
    let (native, guest) = (row(&share.baseline)?, row(&share.key)?);
    let alone = native.cell.is_alone() && guest.cell.is_alone();
    if !alone || !native.cell.is_native() || guest.cell.is_native() || native.cpu.clock != guest.cpu.clock {
        return None;
    }
    let way = if guest.cell.lead.side.shares_kernel() { "in the container" } else { "in the guest" };
    let (native, guest) = (native.cpu.host_seconds_per_request?, guest.cpu.host_seconds_per_request?);
    Some(format!("host CPU per request: {:.0} µs native, {:.0} µs {way}", native * 1e6, guest * 1e6))
}
