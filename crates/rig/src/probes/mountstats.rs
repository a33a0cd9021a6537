//! Counters of an NFS mount on the client. What the server's disks do is not to be seen from here: a request is
//! one READ or WRITE call, its time is from its making to its answer, and the share of time that the
//! disks are busy is unknown.

use std::path::PathBuf;

use vmio_look::backing::Backing;
use vmio_model::figure::Reading;
use vmio_model::result::DeviceUse;
use vmio_node::FileSample;
use vmio_node::linux::nfs::{self, Counters};

use super::{ByFiles, Probe, ProbeMethod, ProbeSubject, Unseen, ends, seconds_between};

/// Entry of the list of probes.
pub struct Mountstats;

impl Probe for Mountstats {
    fn name(&self) -> &'static str {
        "mountstats"
    }
    fn about(&self) -> &'static str {
        "calls, bytes and queue depth of an NFS mount; blind to the server's disks, so their busy time is unknown"
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::Disk(Backing { nfs: Some(_), .. }))
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Files(&Mountstats)
    }
}

impl ByFiles for Mountstats {
    fn paths(&self, _: &ProbeSubject) -> Vec<PathBuf> {
        vec![nfs::stats_file().into()]
    }
    fn conclude(
        &self,
        subject: &ProbeSubject,
        ticks: &[FileSample],
        _: &mut Vec<String>,
    ) -> Result<Vec<Reading>, Unseen> {
        let ProbeSubject::Disk(backing) = subject else { return Err(Unseen::OtherSubject("it is not a disk")) };
        let (first, last) = ends(ticks)?;
        Ok(between(&backing.mount, first, last)?.readings())
    }
}

/// `Err` is why nothing can be said.
fn between(point: &str, first: &FileSample, last: &FileSample) -> Result<DeviceUse, Unseen> {
    let seconds = seconds_between(first, last)?;
    let counters = |sample: &FileSample| {
        let text = sample.contents.first().map(|c| String::from_utf8_lossy(c).into_owned()).unwrap_or_default();
        Counters::of(&text, point).ok_or_else(|| Unseen::NoMount { point: point.to_owned() })
    };
    let backwards = || Unseen::Backwards("the mount".to_owned());
    let d = counters(last)?.since(&counters(first)?).ok_or_else(backwards)?;
    let ios = d.read.count + d.write.count;
    Ok(DeviceUse {
        seconds,
        read_ios: d.read.count,
        write_ios: d.write.count,
        read_bytes: d.read_bytes,
        write_bytes: d.write_bytes,
        flush_ios: d.commit.count,
        request_bytes: if ios > 0 { (d.read_bytes + d.write_bytes) as f64 / ios as f64 } else { 0.0 },
        queue_depth: (d.read.execute_ms + d.write.execute_ms) as f64 / 1000.0 / seconds,
        busy_ratio: None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const BEFORE: &str = include_str!("../../tests/fixtures/mountstats/before.txt");
    const AFTER: &str = include_str!("../../tests/fixtures/mountstats/after.txt");

    fn tick(seconds: f64, text: &str) -> FileSample {
        FileSample { seconds, contents: vec![text.into()] }
    }

    #[test]
    fn what_crossed_the_wire_is_counted() {
        let got = between("/srv/nfs", &tick(10.0, BEFORE), &tick(12.0, AFTER)).unwrap();
        // 1000 writes of 64 KiB and 500 reads of 4 KiB; 3000 ms and 100 ms in flight.
        assert_eq!((got.write_ios, got.read_ios, got.flush_ios), (1000, 500, 3));
        assert_eq!((got.write_bytes, got.read_bytes), (65_536_000, 2_048_000));
        assert!((got.queue_depth - 1.55).abs() < 1e-12, "{}", got.queue_depth);
        assert!((got.request_bytes - 67_584_000.0 / 1500.0).abs() < 1e-9);
        assert_eq!(got.busy_ratio, None);
    }

    #[test]
    fn each_mount_has_its_own_counters() {
        let got = between("/mnt/with space", &tick(0.0, BEFORE), &tick(1.0, AFTER)).unwrap();
        assert_eq!((got.write_ios, got.read_ios, got.read_bytes), (0, 7, 28_672));
        let said = |point: &str, first: &str, last: &str| {
            between(point, &tick(0.0, first), &tick(1.0, last)).unwrap_err().to_string()
        };
        assert!(said("/", BEFORE, AFTER).contains("no NFS mount on /"));
        assert!(said("/srv/nfs", AFTER, BEFORE).contains("backwards"));
    }

    #[test]
    fn what_is_not_on_nfs_is_left_to_others() {
        assert!(
            !Mountstats.sees(&ProbeSubject::Disk(Backing::default())) && !Mountstats.sees(&ProbeSubject::Processors)
        );
    }
}
