//! Parallel map.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Fewest threads, also with fewer processors: the work waits now and then.
const LEAST: usize = 8;

/// Maps all items on as many threads as the machine has processors; results in the items' order.
pub fn map<T: Send, R: Send>(items: Vec<T>, act: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).max(LEAST).min(items.len());
    if threads < 2 {
        return items.into_iter().map(act).collect();
    }
    let slots: Vec<Mutex<(Option<T>, Option<R>)>> = items.into_iter().map(|t| Mutex::new((Some(t), None))).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Each slot is taken once, so no lock is contended or poisoned.
                    let item = slot.lock().ok().and_then(|mut s| s.0.take());
                    let result = item.map(&act);
                    if let Ok(mut slot) = slot.lock() {
                        slot.1 = result;
                    }
                }
            });
        }
    });
    slots.into_iter().filter_map(|slot| slot.into_inner().ok()?.1).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_in_the_items_order() {
        let items: Vec<u32> = (0..500).collect();
        let doubled: Vec<u32> = items.iter().map(|n| n * 2).collect();
        assert_eq!(super::map(items, |n| n * 2), doubled);
        assert_eq!(super::map(Vec::<u32>::new(), |n| n), [0u32; 0]);
    }
}
