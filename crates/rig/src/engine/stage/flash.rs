//! What counters show of a flash cache during a cell, below a guest, in it or without one: whether its reads were hits,
//! or misses.

use vmio_model::study::MIB;

/// What of the reads of a cell may be served elsewhere, or be missing in the cache that is to serve them: what others
/// read meanwhile, and the reading's own files.
pub const SMALL: f64 = 0.05;

/// What was counted during a cell, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FlashShown {
    /// Read of the slow disk below the cache, by whomever.
    pub slow: Option<f64>,
    /// What the host's page cache held of that disk, before or after the work, whichever is more.
    pub page_cache: Option<f64>,
    /// What came to the cache past the page cache of the actor's side; in a guest, what was read of its device.
    pub reached: Option<f64>,
    /// Of the reads that came to it, which part it counts as hits; `None` where it counts none.
    pub hit_ratio: Option<f64>,
}

impl FlashShown {
    /// Why it does not show that the cache served a workload that read so much of so many bytes; `None` where it does.
    pub fn lacks_hits(self, bytes: u64, read: u64) -> Option<String> {
        // What is gone over again and again is read from below once.
        let once = bytes.min(read) as f64;
        match self {
            Self { reached: None, .. } => {
                Some("nothing shows that it was not in the page cache of its own side".to_owned())
            }
            Self { reached: Some(reached), .. } if reached < (1.0 - SMALL) * read as f64 => {
                let (reached, read) = (mib(reached), mib(read as f64));
                Some(format!("{reached} of {read} came to it: the rest was in the page cache of its own side"))
            }
            Self { slow: None, .. } => Some("nothing shows what was read of the slow disk".to_owned()),
            Self { slow: Some(slow), .. } if slow > SMALL * once => {
                Some(format!("of the slow disk {} were read, and {} by itself", mib(slow), mib(once)))
            }
            Self { hit_ratio: Some(ratio), .. } if ratio < 1.0 - SMALL => Some(counted(ratio)),
            Self { page_cache: None, .. } => {
                Some("nothing shows that the host's page cache did not serve it".to_owned())
            }
            Self { page_cache: Some(cached), .. } if cached > SMALL * bytes as f64 => {
                Some(format!("the host's page cache held {} of the slow disk", mib(cached)))
            }
            _ => None,
        }
    }

    /// Why it does not show that the slow disk served all that was read; `None` where it does.
    pub fn lacks_misses(self, read: u64) -> Option<String> {
        match self {
            Self { slow: None, .. } => Some("nothing shows what was read of the slow disk".to_owned()),
            Self { slow: Some(slow), .. } if slow < (1.0 - SMALL) * read as f64 => {
                Some(format!("of {} the slow disk served {}", mib(read as f64), mib(slow)))
            }
            // What the cache takes up is read of the slow disk, too.
            Self { hit_ratio: Some(ratio), .. } if ratio > SMALL => Some(counted(ratio)),
            _ => None,
        }
    }
}

fn counted(hit_ratio: f64) -> String {
    format!("of the reads that came to it the cache counts {:.1} % as hits", hit_ratio * 100.0)
}

fn mib(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / MIB as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(slow: u64, page_cache: u64, reached: u64) -> FlashShown {
        let bytes = |mib: u64| Some((mib * MIB) as f64);
        FlashShown { slow: bytes(slow), page_cache: bytes(page_cache), reached: bytes(reached), hit_ratio: None }
    }

    #[test]
    fn a_hit_reads_nothing_of_the_slow_disk_and_is_in_no_page_cache() {
        let lacks = |of: FlashShown| of.lacks_hits(64 * MIB, 640 * MIB).unwrap_or_default();
        assert_eq!(lacks(shown(0, 0, 640)), "");
        assert_eq!(lacks(shown(3, 3, 700)), "", "the guest reads ahead, and a little is others'");
        assert_eq!(lacks(shown(4, 0, 640)), "of the slow disk 4.0 MiB were read, and 64.0 MiB by itself");
        assert_eq!(lacks(shown(0, 64, 640)), "the host's page cache held 64.0 MiB of the slow disk");
        assert!(lacks(shown(0, 0, 64)).ends_with("the rest was in the page cache of its own side"));
        for unseen in [
            FlashShown { slow: None, ..shown(0, 0, 640) },
            FlashShown { page_cache: None, ..shown(0, 0, 640) },
            FlashShown { reached: None, ..shown(0, 0, 640) },
        ] {
            assert!(lacks(unseen).starts_with("nothing shows"), "{unseen:?}");
        }
    }

    #[test]
    fn a_miss_is_read_of_the_slow_disk() {
        let lacks = |of: FlashShown| of.lacks_misses(64 * MIB).unwrap_or_default();
        assert_eq!(lacks(shown(64, 1, 64)), "");
        assert_eq!(lacks(shown(80, 1, 64)), "", "a read-ahead");
        assert_eq!(lacks(shown(60, 1, 64)), "of 64.0 MiB the slow disk served 60.0 MiB");
        assert!(lacks(FlashShown::default()).starts_with("nothing shows"));
    }

    #[test]
    fn what_the_cache_counts_itself_is_not_to_differ() {
        let of = |hit_ratio: f64| FlashShown { hit_ratio: Some(hit_ratio), ..shown(0, 0, 640) };
        assert_eq!(of(0.96).lacks_hits(64 * MIB, 640 * MIB), None);
        let few = of(0.94).lacks_hits(64 * MIB, 640 * MIB);
        assert_eq!(few.as_deref(), Some("of the reads that came to it the cache counts 94.0 % as hits"));
        // It took up much of what it read, and served a part of that.
        let missed = |hit_ratio: f64| FlashShown { slow: Some(1e9), ..of(hit_ratio) }.lacks_misses(64 * MIB);
        assert_eq!(missed(0.04), None);
        assert!(missed(0.06).is_some_and(|why| why.contains("6.0 % as hits")));
    }
}
