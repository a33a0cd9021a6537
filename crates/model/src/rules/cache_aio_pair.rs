//! Cache mode and AIO engine must fit. Linux AIO (`aio=native`) is asynchronous only with O_DIRECT (`cache=none` or
//! `directsync`); QEMU (tried with 7.2) refuses to start otherwise, older ones accept it and block. Also a valid pair
//! may be measured as slower.

use super::change::{self, DiskChange};
use super::live::seen;
use super::support::better;
use super::{Check, DiskRemedy, Finding, Need, Rule, Severity};
use crate::cell::Cache;
use crate::facts::{Changed, Disk, Gain, Measured};

/// Least gain for advice: `aio=threads` and io_uring differ by a few per cent from kernel to kernel.
const GAIN: f64 = 1.05;
/// Cache modes with O_DIRECT.
const DIRECT: [&str; 2] = ["none", "directsync"];

pub(super) const RULE: Rule = Rule {
    id: "cache-aio-pair",
    title: "Cache mode and AIO engine are a poor pair",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Advice,
    references: &[
        "QEMU, invocation manual, -drive: aio=native needs cache.direct=on",
        "Proxmox VE, qm.adoc, \"Cache Mode\"",
        "shafer2010, section 3.3 (asynchronous I/O needs O_DIRECT)",
    ],
    checks: &[Check::Run(measured), Check::Disk(live)],
    remedy: Some(DiskRemedy::Pair),
    // Silent: the host's page cache is faster than O_DIRECT, which is no matter of the pair.
    #[cfg(test)]
    fixture: (|| fixture::pair(6e3, 13e3), || fixture::pair(40e3, 13e3)),
    ..Rule::PLAIN
};

fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    // Only towards O_DIRECT: a gain by the host's page cache costs memory and is no better path.
    let direct = |g: &&Gain| g.after.attachment().is_some_and(|a| a.cache == Cache::None);
    rule.from_gains(m, m.sure_gains(Changed::CacheAio, GAIN).filter(direct), cause, |g| {
        let to = better(g);
        change::settings(format!("Use cache={} with aio={}.", to.cache, to.aio), &to)
    })
}

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    disk.aio.as_deref().filter(|aio| *aio == "native")?;
    // QEMU itself drops the engine for a temporary image (block.c, bdrv_temp_snapshot_options).
    let cache = disk.cache.as_deref().filter(|c| !DIRECT.contains(c) && !change::thrown_away(disk))?;
    let cause = format!(
        "aio=native with cache={cache}: Linux AIO is asynchronous only with O_DIRECT; without it each request blocks \
         the \
         thread that submits it, and newer QEMU refuses to start."
    );
    let (mode, engine) = (change::cache_mode(disk), change::engine(disk));
    let to = DiskChange { cache: Some(mode), aio: Some(engine), ..DiskChange::default() };
    let change = change::own_disk(format!("Use cache={mode} with aio={engine}."), disk, &to);
    Some(rule.advice(disk, &seen![disk; cache, aio], &cause, change))
}

fn cause(gain: &Gain) -> String {
    let pair = |s: &crate::cell::Cell| {
        s.attachment().map(|a| format!("cache={} with aio={}", a.cache, a.aio)).unwrap_or_default()
    };
    let flushes = gain.before.attachment().is_some_and(|a| matches!(a.cache, Cache::Writethrough | Cache::Directsync));
    let why = if flushes {
        " The first one flushes each write before the guest hears of it; with the other one the guest's own flushes \
         are passed on, so what it has been told is durable still is."
    } else {
        ""
    };
    format!(
        "The disk uses {}. With {}, {} ran {} as fast.{why}",
        pair(&gain.before),
        pair(&gain.after),
        gain.after.workload(),
        gain.ratio.times()
    )
}

#[cfg(test)]
mod fixture {
    use crate::cell::{Aio, Cache};
    use crate::facts::Facts;
    use crate::testing::{Bench, native, virtio};

    pub fn pair(buffered: f64, direct: f64) -> Facts {
        let mut writeback = virtio("device", "rand-write-32");
        if let Some(a) = writeback.attachment_mut() {
            (a.cache, a.aio) = (Cache::Writeback, Aio::Threads);
        }
        Bench::new()
            .cell(native("device", "rand-write-32"), 60e3)
            .cell(writeback, buffered)
            .cell(virtio("device", "rand-write-32"), direct)
            .facts()
    }
}
