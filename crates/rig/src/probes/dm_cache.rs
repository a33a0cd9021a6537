//! What a dm-cache serves and takes up, in a guest or natively, as its kernel counts it (kernel document
//! admin-guide/device-mapper/cache.rst, "Status").

use vmio_model::figure::{Figure, Reading, Unit};
use vmio_node::Exec;

use super::{ByCommand, Heard, Probe, ProbeMethod, ProbeSubject, Runs, Unseen};
use crate::disks::targets::DMSETUP;

/// Its name in results.
pub const NAME: &str = "dm-cache";
/// Reads that it served.
pub const READ_HITS: &str = "read-hits";
/// Reads that the slow disk served.
pub const READ_MISSES: &str = "read-misses";
/// Blocks that it took up.
const PROMOTIONS: &str = "promotions";

/// What a cache says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Blocks that hold something.
    pub used_blocks: u64,
    /// Blocks that are to be written back.
    pub dirty_blocks: u64,
    read_hits: u64,
    read_misses: u64,
    promotions: u64,
}

impl Status {
    /// From what `dmsetup status` says of it: start, length, `cache`, the metadata's block size and used blocks of all,
    /// its own likewise, hits and misses of reads, hits and misses of writes, demotions, promotions, dirty blocks, and
    /// more. `None` of one that failed.
    pub fn read(said: &str) -> Option<Self> {
        let fields: Vec<&str> = said.split_ascii_whitespace().collect();
        let number = |at: usize| -> Option<u64> { fields.get(at)?.parse().ok() };
        let (used, _) = fields.get(6).filter(|_| fields.get(2) == Some(&"cache"))?.split_once('/')?;
        Some(Self {
            used_blocks: used.parse().ok()?,
            dirty_blocks: number(13)?,
            read_hits: number(7)?,
            read_misses: number(8)?,
            promotions: number(12)?,
        })
    }
}

/// Entry of the list of probes.
pub struct DmCache;

impl Probe for DmCache {
    fn name(&self) -> &'static str {
        NAME
    }
    fn about(&self) -> &'static str {
        "reads that a dm-cache served and did not serve, and blocks that it took up, as its kernel counts them; \
         blind to how large the reads are"
    }
    fn figures(&self, _: &ProbeSubject) -> Vec<Figure> {
        vec![
            Figure::amount(READ_HITS, Unit::Requests),
            Figure::amount(READ_MISSES, Unit::Requests),
            Figure::amount(PROMOTIONS, Unit::Count),
        ]
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::DmCache(_))
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Command(&DmCache)
    }
}

impl ByCommand for DmCache {
    fn command(&self, subject: &ProbeSubject) -> Result<Exec, Unseen> {
        let ProbeSubject::DmCache(name) = subject else { return Err(Unseen::OtherSubject("it is not a dm-cache")) };
        Ok(Exec::new(DMSETUP).args(["status", name]))
    }
    fn runs(&self) -> Runs {
        Runs::AtEnds
    }
    fn conclude(&self, subject: &ProbeSubject, heard: &Heard, _: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
        let command = self.command(subject)?.shown();
        let [(_, before), (_, after)] = heard.said.as_slice() else { return Err(Unseen::FewReadings) };
        let read = |said: &str| {
            let failed = || Unseen::Command { command: command.clone(), said: said.trim().to_owned() };
            Status::read(said).ok_or_else(failed)
        };
        let (before, after) = (read(before)?, read(after)?);
        let counts = [
            (READ_HITS, before.read_hits, after.read_hits),
            (READ_MISSES, before.read_misses, after.read_misses),
            (PROMOTIONS, before.promotions, after.promotions),
        ];
        let more = |(figure, before, after): (&str, u64, u64)| {
            let more = after.checked_sub(before).map(|more| Reading::scalar(figure, more as f64));
            more.ok_or_else(|| Unseen::Backwards(NAME.to_owned()))
        };
        counts.into_iter().map(more).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// In the order of the kernel's document, of a cache with the policy smq.
    fn status(hits: u64, misses: u64, promotions: u64) -> String {
        format!(
            "0 8192 cache 8 29/1280 128 60/176 {hits} {misses} 64 5 2 {promotions} 9 1 writethrough 2 \
             migration_threshold 2048 smq 0 rw - \n"
        )
    }

    #[test]
    fn a_status_is_read_by_the_kernels_document() {
        let read = Status { used_blocks: 60, dirty_blocks: 9, read_hits: 7, read_misses: 3, promotions: 62 };
        assert_eq!(Status::read(&status(7, 3, 62)), Some(read));
        for other in ["", "0 8192 cache Fail", "0 8192 linear", "0 8192 cache 8 29/1280 128 60/176 7 3"] {
            assert_eq!(Status::read(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_counted_meanwhile_is_told() {
        let subject = ProbeSubject::DmCache("vmio-vdb".into());
        assert_eq!(DmCache.command(&subject).unwrap().shown(), "dmsetup status vmio-vdb");
        let seen = |before: String, after: &str| {
            let heard = Heard { seconds: 1.0, said: vec![(0.0, before), (1.0, after.to_owned())], runs: Vec::new() };
            DmCache.conclude(&subject, &heard, &mut Vec::new()).map_err(|why| why.to_string())
        };
        let told = [(READ_HITS, 93.0), (READ_MISSES, 2.0), (PROMOTIONS, 1.0)];
        let expected = told.map(|(figure, count)| Reading::scalar(figure, count));
        assert_eq!(seen(status(7, 3, 62), &status(100, 5, 63)).unwrap(), expected);
        assert!(seen(status(7, 3, 62), &status(6, 5, 63)).unwrap_err().contains("dm-cache went backwards"));
        let failed = seen(status(7, 3, 62), "0 8192 cache Fail\n").unwrap_err();
        assert_eq!(failed, "`dmsetup status vmio-vdb` failed: 0 8192 cache Fail");
    }
}
