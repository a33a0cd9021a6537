//! What a guest does on its disk, as its hypervisor counts it ([`Drive`]): from outside of the guest, and also where
//! the host's page cache serves the hypervisor and no disk of the host is reached.

use std::sync::Arc;

use vmio_model::figure::Reading;
use vmio_model::result::{READ, REQUEST_SECONDS, REQUESTS, WRITTEN};
use vmio_node::Node;

use super::{ByItself, Looking, Probe, ProbeMethod, ProbeSubject, Unseen};
use crate::guests::{Drive, DriveCounts};

/// Entry of the list of probes.
pub struct Blockstats;

/// Where a disk is counted. Two are the same where they have the same name.
#[derive(Debug, Clone)]
pub struct Counter(pub Arc<dyn Drive>);

impl PartialEq for Counter {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl Probe for Blockstats {
    fn name(&self) -> &'static str {
        "blockstats"
    }
    fn about(&self) -> &'static str {
        "bytes, requests and their times on a guest's disk, as its hypervisor counts them; blind to what another \
         process serves in the hypervisor's place"
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::Drive { .. })
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Own(&Blockstats)
    }
}

impl ByItself for Blockstats {
    fn start(&self, subject: &ProbeSubject, _: &Arc<dyn Node>) -> Result<Box<dyn Looking>, Unseen> {
        let ProbeSubject::Drive { drive: Counter(drive), .. } = subject else {
            return Err(Unseen::OtherSubject("it is not a disk of a guest"));
        };
        Ok(Box::new(Counted { before: read(&**drive)?, drive: Arc::clone(drive) }))
    }
}

struct Counted {
    drive: Arc<dyn Drive>,
    before: DriveCounts,
}

impl Looking for Counted {
    fn stop(self: Box<Self>, _: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
        let backwards = || Unseen::Backwards(self.drive.to_string());
        let done = read(&*self.drive)?.since(&self.before).ok_or_else(backwards)?;
        Ok(vec![
            Reading::scalar(READ, done.read_bytes as f64),
            Reading::scalar(WRITTEN, done.written_bytes as f64),
            Reading::scalar(REQUESTS, done.requests as f64),
            Reading::scalar(REQUEST_SECONDS, done.nanoseconds as f64 * 1e-9),
        ])
    }
}

fn read(drive: &dyn Drive) -> Result<DriveCounts, Unseen> {
    drive.counts()?.ok_or_else(|| Unseen::NotCounted(drive.to_string()))
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fmt;
    use std::sync::Mutex;

    use vmio_node::Fake;

    use super::*;
    use crate::guests;

    /// A disk under a hypervisor that is in no list. It tells these counts, the last first.
    #[derive(Debug)]
    struct Bochs(Mutex<Vec<u64>>);

    impl fmt::Display for Bochs {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("disk0 of bochs")
        }
    }

    impl Drive for Bochs {
        fn counts(&self) -> guests::Result<Option<DriveCounts>> {
            let read = self.0.lock().unwrap().pop();
            let counts = |read_bytes| DriveCounts { read_bytes, requests: 5, ..DriveCounts::default() };
            Ok(read.map(counts))
        }
    }

    /// Such a disk as a subject to watch.
    pub fn drive(counts: &[u64]) -> ProbeSubject {
        let drive = Counter(Arc::new(Bochs(Mutex::new(counts.to_vec()))));
        ProbeSubject::Drive { target: "sparse".into(), drive }
    }

    #[test]
    fn what_any_hypervisor_counts_is_told() {
        let node: Arc<dyn Node> = Arc::new(Fake::new("fake"));
        let seen = |counts: &[u64]| Blockstats.start(&drive(counts), &node)?.stop(&mut Vec::new());
        let told = [(READ, 4096.0), (WRITTEN, 0.0), (REQUESTS, 0.0), (REQUEST_SECONDS, 0.0)];
        assert_eq!(seen(&[5096, 1000]).unwrap(), told.map(|(name, value)| Reading::scalar(name, value)));
        let said = [&[1, 2][..], &[]].map(|counts| seen(counts).unwrap_err().to_string());
        assert!(said[0].contains("disk0 of bochs went backwards") && said[1].contains("does not count"), "{said:?}");
    }
}
