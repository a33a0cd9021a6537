//! Why an actor's disk cannot be in the state that the study names, or have its cache.

use vmio_model::cell::{Actor, State};

use super::why_not::WhyNot;
use crate::disks::places::Pool;
use crate::disks::targets::{self, Unfit, own_client};
use crate::workloads;

/// Why not; `None` where it can be, and where none is named. `pool`: where its target is a volume of one.
pub(super) fn why_not(actor: &Actor, gentle: bool, pool: Option<&Pool>) -> Option<WhyNot> {
    let target = actor.target().and_then(targets::find)?;
    if gentle && target.flash_cache().is_some() {
        let unfit = "its flash cache takes more memory than the hypervisors of a gentle run have".to_owned();
        return Some(WhyNot::Gentle { unfit });
    }
    let state = actor.state()?;
    if state == State::WarmFlash && target.flash_cache().is_none() {
        let why = "no flash cache lies on it; use flash-cache, dm-cache, guest-bcache or guest-dm-cache";
        return Some(WhyNot::Target(Unfit::State { target: target.name(), state, why }));
    }
    if let Err(why) = target.can_be(state, actor.side.shares_kernel(), pool) {
        return Some(WhyNot::Target(Unfit::State { target: target.name(), state, why }));
    }
    if own_client::of(actor).is_some() && state.is_warm() {
        let why = "its guest reaches it by itself, and nobody outside counts what it reads; give the guest a driver";
        return Some(WhyNot::Target(Unfit::State { target: target.name(), state, why }));
    }
    let found = workloads::find(&actor.workload)?;
    let (disk, workload) = (found.traits().disk?, actor.workload.clone());
    if state == State::Fresh && disk.reads {
        return Some(WhyNot::ReadsFresh { workload });
    }
    if !state.is_warm() {
        return None;
    }
    if disk.writes {
        return Some(WhyNot::WritesWarm { workload });
    }
    if gentle {
        let unfit = "what should be in a cache is read first, at full speed".to_owned();
        return Some(WhyNot::Gentle { unfit });
    }
    match actor.attachment() {
        _ if state == State::WarmFlash => None,
        // The page cache is the one below the guest.
        Some(seen) if actor.is_warm_below() => {
            seen.cache.direct().then_some(WhyNot::PastHostCache { cache: seen.cache })
        }
        _ if disk.direct => Some(WhyNot::PastPageCache { workload }),
        _ => found.disk()?.drops_pages().then_some(WhyNot::DropsPages { workload }),
    }
}

#[cfg(test)]
mod tests {
    use vmio_model::cell::{Aio, Attachment, Cache, Cell, Subject};

    use super::*;

    /// An actor on a target in a state: natively, or in a guest by a cache mode.
    fn actor(cache: Option<Cache>, target: &str, state: State, workload: &str) -> Actor {
        let seen = cache.map(|cache| Attachment::new("virtio-blk", cache, Aio::Threads));
        let kind = if seen.is_some() { "qemu" } else { "native" };
        let mut actor = Cell::on(kind, target, seen, workload).lead;
        if let Subject::Disk { state: of, .. } = &mut actor.subject {
            *of = Some(state);
        }
        actor
    }

    #[test]
    fn what_no_page_cache_can_serve_is_left_out() {
        let why = |actor: &Actor| why_not(actor, false, None);
        let (host, guest) = (State::WarmHost, State::WarmGuest);
        for fits in [
            actor(None, "preallocated", host, "dd-read"),
            actor(None, "loop", host, "seq-read-64k-d1-buffered"),
            actor(Some(Cache::None), "preallocated", guest, "rand-read-4k-d1-buffered"),
            actor(Some(Cache::Writeback), "sparse", host, "seq-read"),
            actor(Some(Cache::Writeback), "device", host, "hdparm"),
            actor(Some(Cache::None), "flash-cache", State::WarmFlash, "seq-read"),
            actor(None, "dm-cache", State::WarmFlash, "seq-read"),
            actor(None, "flash-disk", State::Filled, "seq-read"),
            actor(None, "sparse", State::Filled, "seq-write"),
            actor(None, "sparse", State::Fresh, "seq-write"),
            actor(Some(Cache::None), "preallocated", State::Filled, "seq-read"),
        ] {
            assert_eq!(why(&fits), None, "{}", fits.key());
        }
        let workload = |name: &str| name.to_owned();
        let past = |name: &str| Some(WhyNot::PastPageCache { workload: workload(name) });
        assert_eq!(why(&actor(None, "preallocated", host, "seq-read")), past("seq-read"));
        assert_eq!(why(&actor(Some(Cache::Writeback), "preallocated", guest, "seq-read")), past("seq-read"));
        let drops = Some(WhyNot::DropsPages { workload: workload("hdparm") });
        assert_eq!(why(&actor(None, "device", host, "hdparm")), drops);
        assert_eq!(
            why(&actor(Some(Cache::None), "preallocated", host, "dd-read")),
            Some(WhyNot::PastHostCache { cache: Cache::None })
        );
        let writes = Some(WhyNot::WritesWarm { workload: workload("dd-write") });
        assert_eq!(why(&actor(None, "preallocated", host, "dd-write")), writes);
        let reads = Some(WhyNot::ReadsFresh { workload: workload("seq-read") });
        assert_eq!(why(&actor(None, "sparse", State::Fresh, "seq-read")), reads);
        let gentle = why_not(&actor(None, "preallocated", host, "dd-read"), true, None);
        assert!(matches!(gentle, Some(WhyNot::Gentle { .. })), "{gentle:?}");
        // Misses, too: bcache in the guest keeps what it reads.
        let misses = why_not(&actor(Some(Cache::None), "guest-bcache", State::Filled, "seq-read"), true, None);
        assert!(matches!(misses, Some(WhyNot::Gentle { .. })), "{misses:?}");
    }

    #[test]
    fn a_target_says_in_which_states_it_is_never() {
        let said = |actor: &Actor, pool: Option<&Pool>| {
            why_not(actor, false, pool).map(|why| why.to_string()).unwrap_or_default()
        };
        let fresh = said(&actor(None, "preallocated", State::Fresh, "seq-write"), None);
        assert!(fresh.starts_with("preallocated is never fresh there: it is written out by nature"), "{fresh}");
        let image = said(&actor(Some(Cache::Writeback), "qcow2", State::WarmHost, "seq-read"), None);
        assert!(image.starts_with("qcow2 is never warm-host there: its hypervisor opens an image"), "{image}");
        let flash = said(&actor(Some(Cache::None), "preallocated", State::WarmFlash, "seq-read"), None);
        assert!(flash.starts_with("preallocated is never warm-flash there: no flash cache"), "{flash}");
        let host = said(&actor(Some(Cache::Writeback), "flash-cache", State::WarmHost, "seq-read"), None);
        assert!(host.contains("use warm-flash"), "{host}");
        let lvm = Pool::Lvm { vg: "v".into() };
        let volume = said(&actor(None, "device", State::WarmHost, "dd-read"), Some(&lvm));
        assert!(volume.contains("drops what it has of a volume"), "{volume}");
        assert_eq!(said(&actor(Some(Cache::Writeback), "lvm", State::WarmHost, "dd-read"), Some(&lvm)), "");
    }
}
