//! What is behind this machine's bridges, looked for once: a thousand guests may have the same bridge.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use vmio_model::facts::Hop;
use vmio_model::rate::BitRate;
use vmio_node::linux::net::Port;

/// What packets go on by from a bridge.
#[derive(Debug, Clone, Default)]
pub struct Behind {
    /// The ports by which they leave this host, each with what it sends by.
    pub leave: Vec<Hop>,
    /// How fast all of these ports are together; `None` where that is not known of each.
    pub speed: Option<BitRate>,
    /// Whether packets may leave it by others, too, that are no interfaces of the kernel's.
    pub others: bool,
    /// Its ends of veth pairs.
    pub pairs: Vec<Port>,
    /// The ways on from these ends, without those that lead to another's namespace; looked for where nothing leaves it.
    pub beyond: OnceLock<Vec<Vec<Hop>>>,
    /// Bridges at the other ends of its patch ports.
    pub patched: Vec<Hop>,
}

/// Answers by name, each looked for at the first question.
#[derive(Debug)]
pub struct Once<T>(Mutex<BTreeMap<String, Arc<OnceLock<T>>>>);

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Once<T> {
    /// The answer of this name, as `look` found it at the first question. Who asks meanwhile waits for it, so `look`
    /// must not ask here.
    pub fn get(&self, name: &str, look: impl FnOnce() -> T) -> T {
        let answer = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(known.entry(name.to_owned()).or_default())
        };
        answer.get_or_init(look).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn each_name_is_looked_for_once() {
        let once = Once::default();
        let looked = std::cell::Cell::new(0);
        let look = || {
            looked.set(looked.get() + 1);
            looked.get()
        };
        assert_eq!((once.get("a", look), once.get("a", look), once.get("b", look)), (1, 1, 2));
    }

    #[test]
    fn who_asks_meanwhile_waits() {
        const ASKING: usize = 8;
        let once = Once::default();
        let (asking, looked) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let look = || {
            while asking.load(Ordering::Relaxed) < ASKING {
                std::thread::yield_now();
            }
            looked.fetch_add(1, Ordering::Relaxed)
        };
        std::thread::scope(|scope| {
            for _ in 0..ASKING {
                scope.spawn(|| {
                    asking.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(once.get("a", look), 0);
                });
            }
        });
    }
}
