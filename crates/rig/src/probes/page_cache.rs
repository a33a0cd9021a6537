//! What the host's page cache holds of the storage that a guest's disk is made of, before and after a cell; where a
//! side's own page cache is to serve it, what that holds. By cachestat(2) (Linux 6.5), which counts pages and reads
//! nothing.
//!
//! What a guest's disk takes of it the rest of the host has not (rasmusson2013, section 4). The caches are never dropped.

use std::path::PathBuf;
use std::sync::Arc;

use vmio_model::figure::Reading;
use vmio_model::result::{CACHED_AFTER, CACHED_BEFORE};
use vmio_node::Node;

use super::{ByItself, Looking, Probe, ProbeMethod, ProbeSubject, Unseen};

/// Entry of the list of probes.
pub struct PageCache;

impl Probe for PageCache {
    fn name(&self) -> &'static str {
        "page-cache"
    }
    fn about(&self) -> &'static str {
        "what the page cache holds of a guest's disk before and after (cachestat, Linux 6.5); blind to disk \
         images, to what a server opens in the hypervisor's place, and to what other files lost"
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::Storage { .. })
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Own(&PageCache)
    }
}

impl ByItself for PageCache {
    fn start(&self, subject: &ProbeSubject, node: &Arc<dyn Node>) -> Result<Box<dyn Looking>, Unseen> {
        let ProbeSubject::Storage { path, .. } = subject else { return Err(Unseen::OtherSubject("it is not storage")) };
        let before = node.reader().cached_bytes(path)?;
        Ok(Box::new(AtWork { before, node: Arc::clone(node), path: path.clone() }))
    }
}

struct AtWork {
    /// Bytes of it that were cached; `None` where the kernel does not count them.
    before: Option<u64>,
    node: Arc<dyn Node>,
    path: PathBuf,
}

impl Looking for AtWork {
    fn stop(self: Box<Self>, _: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
        let Some(before) = self.before else { return Ok(Vec::new()) };
        let after = self.node.reader().cached_bytes(&self.path)?;
        let told = [(CACHED_BEFORE, Some(before)), (CACHED_AFTER, after)];
        Ok(told.into_iter().filter_map(|(name, bytes)| Some(Reading::scalar(name, bytes? as f64))).collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use vmio_node::Local;

    use super::*;

    #[test]
    fn what_is_read_meanwhile_is_in_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        let node: Arc<dyn Node> = Arc::new(Local::new());
        let path = dir.path().join("disk");
        fs::write(&path, "").unwrap();
        let subject = ProbeSubject::Storage { target: "sparse".into(), path: path.clone() };
        let looking = PageCache.start(&subject, &node).unwrap();
        fs::write(&path, vec![7u8; 1 << 20]).unwrap();
        let seen = looking.stop(&mut Vec::new()).unwrap();
        let of = |name: &str| vmio_model::figure::scalar(&seen, name);
        match node.reader().cached_bytes(&path).unwrap() {
            Some(now) => assert_eq!((of(CACHED_BEFORE), of(CACHED_AFTER)), (Some(0.0), Some(now as f64))),
            None => assert_eq!(seen, []),
        }
        let gone = ProbeSubject::Storage { target: "sparse".into(), path: dir.path().join("none") };
        assert!(PageCache.start(&gone, &node).is_err_and(|why| why.to_string().contains("none")));
    }
}
