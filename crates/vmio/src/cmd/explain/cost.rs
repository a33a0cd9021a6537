//! What watching costs a guest, measured in the same run: turns with the eBPF programs of `vmio explain` and without.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use vmio_look::top::{Blocks, FlowSource};
use vmio_model::stats::Pair;
use vmio_model::top::load::Device;
use vmio_model::waterfall::cost::TracingCost;
use vmio_node::{Local, Reader};

use crate::term;

/// Turns with and without.
const TURNS: u32 = 8;
/// How long each of both takes in a turn, besides loading and removing the programs.
const EACH: Duration = Duration::from_millis(500);

/// Of these disks of the host, while the calls of these hypervisors are watched and while they are not; otherwise why
/// it is not known, in words. No other programs of vmio's may be loaded meanwhile.
pub fn measure(local: &Local, hypervisors: &BTreeSet<u32>, disks: &BTreeSet<Device>) -> Result<TracingCost, String> {
    if disks.is_empty() {
        return Err("none of the guest's requests was seen at a disk of this host".to_owned());
    }
    let turns = (0..TURNS).map(|number| turn(local, hypervisors, disks, number)).collect::<Result<Vec<Pair>, String>>();
    term::end_transient();
    TracingCost::of(&turns?).ok_or_else(|| "the guest's disks were idle".to_owned())
}

/// One with and one without; the order alternates, so that a drift affects both alike.
fn turn(local: &Local, hypervisors: &BTreeSet<u32>, disks: &BTreeSet<Device>, number: u32) -> Result<Pair, String> {
    term::transient(&format!("what watching costs: turn {} of {TURNS}", number + 1));
    let traced_first = number % 2 == 1;
    let first = rate(local, hypervisors, disks, traced_first)?;
    let second = rate(local, hypervisors, disks, !traced_first)?;
    let (base, test) = if traced_first { (second, first) } else { (first, second) };
    Ok(Pair { boot: number, base, test })
}

/// Requests a second of the disks.
fn rate(local: &Local, hypervisors: &BTreeSet<u32>, disks: &BTreeSet<Device>, traced: bool) -> Result<f64, String> {
    let mut programs = traced.then(|| Blocks::start(local)).transpose().map_err(|why| why.to_string())?;
    if let Some(programs) = &mut programs {
        programs.watch_calls(local, hypervisors);
    }
    let (began, before) = (Instant::now(), requests(local, disks)?);
    sleep(EACH);
    let (after, seconds) = (requests(local, disks)?, began.elapsed().as_secs_f64());
    Ok(after.saturating_sub(before) as f64 / seconds)
}

/// Completed requests of all of them.
fn requests(reader: &dyn Reader, disks: &BTreeSet<Device>) -> Result<u64, String> {
    disks.iter().map(|disk| completed(reader, *disk)).sum()
}

/// Completed reads and writes of a disk: the first and the fifth figure of Documentation/block/stat.rst.
fn completed(reader: &dyn Reader, (major, minor): Device) -> Result<u64, String> {
    let path = format!("/sys/dev/block/{major}:{minor}/stat");
    let text = reader.read_text(Path::new(&path)).map_err(|why| why.to_string())?;
    let mut figures = text.split_whitespace().map(str::parse::<u64>);
    match (figures.next(), figures.nth(3)) {
        (Some(Ok(reads)), Some(Ok(writes))) => Ok(reads + writes),
        _ => Err(format!("{path} has no counters of requests")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmio_node::Fake;

    #[test]
    fn reads_and_writes_of_all_its_disks_are_counted() {
        let fake = Fake::new("host")
            .file("/sys/dev/block/254:0/stat", "   100    0   800    5    40    0   320   9   0   12   14\n")
            .file("/sys/dev/block/254:16/stat", "1 7 8 0 2 7 16 0 0 0 0 0 0 0 0 3 1\n")
            .file("/sys/dev/block/7:0/stat", "\n");
        let of = |disks: &[Device]| requests(&fake, &disks.iter().copied().collect());
        assert_eq!(of(&[(254, 0), (254, 16)]), Ok(143));
        assert!(of(&[(254, 0), (7, 0)]).is_err_and(|why| why.contains("7:0")), "no counters");
        assert!(of(&[(9, 9)]).is_err_and(|why| why.contains("9:9")), "no such disk");
    }
}
