//! The depth at which the disk is full: the least number of reads in flight beyond which there is no gain. One read at
//! a time leaves a disk that serves many at once idle (shafer2010, section 3.3: avgqu-sz 0.5); asynchronous reads fill
//! it (section 4). Through the page cache the kernel's read-ahead fills it for a sequential reader; libaio is
//! synchronous there.
//!
//! The depth is stated only where it is certain: no deeper cell has a significant gain, and the intervals of all deeper
//! cells exclude a gain of [`UNSEEN`].

use super::support::{cite_estimate, cite_ratio, disk_key, mostly_cached, stalls};
use super::{Check, Cited, Finding, Need, Rule, Severity, change};
use crate::facts::{Gain, Measured};
use crate::result::{DiskTraits, IOPS};
use crate::stats::Ratio;
use crate::summary::CellRow;

/// Least gain that is worth a deeper queue.
const WORTH: f64 = 1.05;
/// Gain that all deeper cells must exclude before the disk is called full.
const UNSEEN: f64 = 1.25;
/// Fewest depths of a sweep.
const LEAST_DEPTHS: usize = 3;

pub(super) const RULE: Rule = Rule {
    id: "disk-full-depth",
    title: "Queue depth at which the disk is saturated",
    needs: Need::Measured,
    severity: Severity::Advice,
    references: &[
        "shafer2010, section 3.3 (synchronous reads: avgqu-sz 0.5, %util 57) and section 4 (asynchronous I/O)",
        "io_submit(2): libaio blocks unless the file was opened with O_DIRECT",
    ],
    checks: &[Check::Run(measured)],
    // Silent: so much scatter that depths cannot be distinguished.
    #[cfg(test)]
    fixture: (
        || fixture::sweep([600e6, 1000e6, 1500e6, 2000e6, 2010e6], 0.01),
        || fixture::sweep([600e6, 1000e6, 1500e6, 2000e6, 2010e6], 0.8),
    ),
    ..Rule::PLAIN
};

/// Cells of one disk that differ in depth alone, the shallowest first.
struct Sweep<'a> {
    traits: &'a DiskTraits,
    cells: Vec<(u32, &'a CellRow)>,
}

/// Result of a sweep.
struct Full<'a> {
    sweep: &'a Sweep<'a>,
    /// The depth at which it is full; `None` where the deepest still gained.
    depth: Option<u32>,
    /// The cell at that depth, or the deepest.
    cell: &'a CellRow,
    /// That cell over the shallowest; `None` where they are the same.
    over_first: Option<&'a Gain>,
    /// The greatest gain beyond; `None` where nothing deeper was tried.
    beyond: Option<&'a Gain>,
}

fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let sweeps = sweeps(m);
    let mut patterns: Vec<(String, (bool, u64))> = Vec::new();
    for sweep in &sweeps {
        let one = (disk_key(&sweep.cells[0].1.cell), pattern(sweep.traits));
        if !patterns.contains(&one) {
            patterns.push(one);
        }
    }
    patterns.iter().filter_map(|(disk, pattern)| finding(rule, m, disk, *pattern, &sweeps)).collect()
}

/// Pattern and size, for which there is one finding.
fn pattern(t: &DiskTraits) -> (bool, u64) {
    (t.sequential, t.block_bytes)
}

fn sweeps(m: &Measured) -> Vec<Sweep<'_>> {
    let mut all: Vec<Sweep<'_>> = Vec::new();
    for cell in m.cells.iter().filter(|c| !mostly_cached(m, &c.cell)) {
        let Some(traits) = m.job(cell.cell.workload()).filter(|t| t.reads && !t.writes) else { continue };
        let same = |s: &&mut Sweep<'_>| disk_key(&s.cells[0].1.cell) == disk_key(&cell.cell) && alike(s.traits, traits);
        match all.iter_mut().find(same) {
            // One workload by two names.
            Some(sweep) if sweep.cells.iter().any(|(depth, _)| *depth == traits.depth) => {}
            Some(sweep) => sweep.cells.push((traits.depth, cell)),
            None => all.push(Sweep { traits, cells: vec![(traits.depth, cell)] }),
        }
    }
    all.retain(|s| s.cells.len() >= LEAST_DEPTHS);
    all.iter_mut().for_each(|s| s.cells.sort_by_key(|(depth, _)| *depth));
    all
}

fn alike(a: &DiskTraits, b: &DiskTraits) -> bool {
    DiskTraits { depth: b.depth, ..a.clone() } == *b
}

fn finding(rule: &Rule, m: &Measured, disk: &str, of: (bool, u64), sweeps: &[Sweep<'_>]) -> Option<Finding> {
    let mine = sweeps.iter().filter(|s| disk_key(&s.cells[0].1.cell) == disk && pattern(s.traits) == of);
    let mut known: Vec<Full<'_>> = mine.filter_map(|s| full(m, s)).collect();
    // O_DIRECT measures the disk itself, so it comes first.
    known.sort_by_key(|f| !f.sweep.traits.direct);
    let first = known.first()?;
    let mut cause = format!("{} KiB {} reads.", of.1 as f64 / 1024.0, if of.0 { "sequential" } else { "random" });
    for full in &known {
        cause += &format!(" {}", sentence(full));
    }
    let cached: Vec<(&Gain, &CellRow)> = known.iter().filter_map(|f| read_ahead(m, f)).collect();
    if let Some((gain, _)) = cached.first().filter(|(g, _)| g.ratio.surely_above(1.0)) {
        cause += &format!(
            " Read-ahead: with one read in flight the page cache gives {} what goes past it.",
            gain.ratio.times()
        );
    }
    let mut finding = rule.finding(Severity::Note, disk.to_owned(), cause, advice(first));
    finding.figures = known.iter().flat_map(|f| figures(m, f)).collect();
    finding.figures.extend(cached.iter().map(|(gain, cell)| {
        cite_ratio(
            m,
            format!("through the page cache over past it: {}{}", cell.key, stalls(m, [&gain.before, &gain.after])),
            &gain.ratio,
        )
    }));
    finding.cost_ratio = first.over_first.map(|g| g.ratio);
    Some(finding)
}

/// Where the sweep is full, if known.
fn full<'a>(m: &'a Measured, sweep: &'a Sweep<'a>) -> Option<Full<'a>> {
    let cells = &sweep.cells;
    let gain = |i: usize, j: usize| m.gain(&cells[i].1.cell, &cells[j].1.cell);
    let worth = |r: &Ratio| r.surely_above(1.0) && r.value > WORTH;
    let mut at = cells.len() - 1;
    for i in 0..cells.len() - 1 {
        let deeper: Option<Vec<&Gain>> = (i + 1..cells.len()).map(|j| gain(i, j)).collect();
        if !deeper?.iter().any(|g| worth(&g.ratio)) {
            at = i;
            break;
        }
    }
    let beyond: Vec<&Gain> = (at + 1..cells.len()).filter_map(|j| gain(at, j)).collect();
    if !beyond.iter().all(|g| g.ratio.surely_below(UNSEEN)) {
        return None;
    }
    Some(Full {
        sweep,
        depth: (at + 1 < cells.len()).then_some(cells[at].0),
        cell: cells[at].1,
        over_first: if at > 0 { Some(gain(0, at)?) } else { None },
        beyond: beyond.into_iter().max_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value)),
    })
}

/// The page cache compared with O_DIRECT, one read in flight, same engine.
fn read_ahead<'a>(m: &'a Measured, full: &Full<'a>) -> Option<(&'a Gain, &'a CellRow)> {
    let cell = full.sweep.cells[0].1;
    if full.sweep.traits.direct || full.sweep.traits.depth != 1 && full.sweep.cells[0].0 != 1 {
        return None;
    }
    let past = DiskTraits { direct: true, depth: 1, ..full.sweep.traits.clone() };
    let workload = &m.workloads.iter().find(|t| t.disk.as_ref() == Some(&past))?.name;
    let before = cell.cell.clone().running(workload);
    Some((m.gain(&before, &cell.cell)?, cell))
}

fn sentence(full: &Full<'_>) -> String {
    let t = full.sweep.traits;
    let (least, deepest) = (full.sweep.cells[0].0, full.sweep.cells[full.sweep.cells.len() - 1].0);
    let way = format!(
        "{} by {}",
        if t.direct { "Past the page cache" } else { "Through the page cache" },
        if t.engine.is_empty() { "libaio" } else { &t.engine }
    );
    let rate = rate(full.cell);
    let part = full
        .over_first
        .map_or_else(String::new, |g| format!("; depth {least} gets {} of that", percent(&g.ratio.inverse())));
    match full.depth {
        None => format!("{way}: not full at depth {deepest}, which gives {rate}{part}."),
        Some(depth) if depth == least && !t.direct && t.engine == "libaio" => {
            format!("{way}: {rate} at any depth, since libaio is synchronous there.")
        }
        Some(depth) => {
            let more = full.beyond.and_then(|g| g.ratio.interval).map_or(0.0, |i| (i.high - 1.0).max(0.0) * 100.0);
            format!(
                "{way}: full at depth {depth} with {rate} (up to {deepest} nothing gains more than {more:.0} %){part}."
            )
        }
    }
}

fn percent(ratio: &Ratio) -> String {
    crate::summary::percent(ratio)
}

fn rate(cell: &CellRow) -> String {
    let Some(disk) = &cell.disk else { return String::new() };
    match disk.requests_per_second {
        Some(e) if cell.figure == IOPS => format!("{:.0} reads a second", e.value),
        _ => format!("{:.0} MB/s", disk.bandwidth_bytes_per_second.value / 1e6),
    }
}

fn figures(m: &Measured, full: &Full<'_>) -> Vec<Cited> {
    let name = |g: &Gain| format!("{}: {} over {}", disk_key(&g.after), g.after.workload(), g.before.workload());
    let mut all: Vec<Cited> = full
        .over_first
        .into_iter()
        .chain(full.beyond)
        .map(|g| cite_ratio(m, name(g) + &stalls(m, [&g.before, &g.after]), &g.ratio))
        .collect();
    if let Some(device) = full.cell.device {
        let label = format!("requests in flight at the device: {}", full.cell.key);
        all.push(cite_estimate(m, label, "requests", &device.queue_depth));
    }
    all
}

fn advice(full: &Full<'_>) -> super::Change {
    let t = full.sweep.traits;
    let depth = full.depth.unwrap_or_else(|| full.sweep.cells[full.sweep.cells.len() - 1].0);
    let ahead = u64::from(depth) * t.block_bytes / 512;
    if depth == 1 {
        return change::in_guest(
            "Nothing: one read in flight fills this disk.",
            "# no change; more reads in flight only wait longer",
        );
    }
    let what = match full.depth {
        Some(depth) => format!("Keep {depth} reads in flight: asynchronous reads, as many readers, or read-ahead."),
        None => format!("Keep at least {depth} reads in flight; greater depths were not tested."),
    };
    let mut commands = String::new();
    if t.sequential {
        commands += &format!(
            "# sequential readers through the page cache: as much read-ahead, in sectors of 512 bytes\n\
             blockdev --setra {ahead} /dev/DISK\n"
        );
    }
    commands += &format!(
        "# others: asynchronous or parallel reads in the application, for example PostgreSQL\n\
         psql -c \"ALTER SYSTEM SET effective_io_concurrency = {depth}\" -c \"SELECT pg_reload_conf()\""
    );
    change::in_guest(what, &commands)
}

#[cfg(test)]
mod fixture {
    use crate::facts::Facts;
    use crate::testing::{Bench, native};

    pub fn sweep(rates: [f64; 5], scatter: f64) -> Facts {
        bench(rates).scatter(scatter).facts()
    }

    pub fn bench(rates: [f64; 5]) -> Bench {
        [1, 2, 4, 8, 16].iter().zip(rates).fold(Bench::new(), |bench, (depth, rate)| {
            bench.cell(native("device", &format!("seq-read-64k-d{depth}-uring")), rate)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::facts::Facts;
    use crate::testing::{native, virtio};

    fn cause(facts: &Facts) -> String {
        let found = RULE.check(facts);
        assert_eq!(found.len(), 1, "{found:#?}");
        found[0].cause.clone()
    }

    #[test]
    fn the_least_depth_that_nothing_beats_is_named() {
        let said = cause(&(RULE.fixture.0)());
        assert!(said.contains("Past the page cache by io_uring: full at depth 8 with 20"), "{said}");
        assert!(said.contains("depth 1 gets 30") || said.contains("depth 1 gets 29"), "{said}");
        let flat = cause(&fixture::sweep([2000e6, 2010e6, 1990e6, 2000e6, 1995e6], 0.01));
        assert!(flat.contains("full at depth 1 with") && !flat.contains("gets"), "{flat}");
        let rising = cause(&fixture::sweep([100e6, 200e6, 400e6, 800e6, 1600e6], 0.01));
        assert!(rising.contains("not full at depth 16"), "{rising}");
    }

    #[test]
    fn a_depth_that_is_worse_again_does_not_hide_the_best() {
        let said = cause(&fixture::sweep([600e6, 1000e6, 900e6, 2000e6, 1500e6], 0.01));
        assert!(said.contains("full at depth 8"), "{said}");
    }

    #[test]
    fn read_ahead_and_synchronous_libaio_are_told() {
        let mut bench = fixture::bench([600e6, 1000e6, 1500e6, 2000e6, 2010e6]);
        for depth in [1, 2, 4, 8, 16] {
            bench = bench
                .cell(native("device", &format!("seq-read-64k-d{depth}-uring-buffered")), 1500e6)
                .cell(native("device", &format!("seq-read-64k-d{depth}-buffered")), 1400e6);
        }
        let said = cause(&bench.facts());
        assert!(said.contains("Through the page cache by io_uring: full at depth 1 with 1"), "{said}");
        assert!(said.contains("by libaio: 1") && said.contains("at any depth, since libaio is synchronous"), "{said}");
        assert!(said.contains("Read-ahead: with one read in flight the page cache gives 2.5"), "{said}");
    }

    #[test]
    fn host_and_guest_are_told_apart() {
        let mut bench = fixture::bench([600e6, 1000e6, 1500e6, 2000e6, 2010e6]);
        for (depth, rate) in [(1, 300e6), (2, 550e6), (4, 800e6), (8, 805e6)] {
            bench = bench.cell(virtio("device", &format!("seq-read-64k-d{depth}-uring")), rate);
        }
        let found = RULE.check(&bench.facts());
        let subjects: Vec<String> = found.iter().map(|f| f.subject.to_string()).collect();
        assert_eq!(subjects, ["device/native", "device/qemu/virtio-blk,none,native"]);
        assert!(found[1].cause.contains("full at depth 4"), "{}", found[1].cause);
        assert!(found[1].change.what.contains("Keep 4 reads"));
    }
}
