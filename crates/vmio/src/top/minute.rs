//! The last minute of each guest, a value a second, for its page.

use std::collections::{BTreeMap, VecDeque};

use vmio_model::top::rows::GuestRow;

/// Seconds that are kept.
const KEPT: usize = 60;
/// Seconds after which a guest that has ended is forgotten.
const FORGOTTEN_SECONDS: f64 = 60.0;

/// A guest across intervals: by its process, else by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GuestId {
    /// Its process.
    pub pid: Option<u32>,
    name: String,
}

impl GuestId {
    /// Of a guest; its name may change while it runs, since others of that name come and go.
    pub fn of(guest: &GuestRow) -> GuestId {
        let name = if guest.pid.is_some() { String::new() } else { guest.name.clone() };
        GuestId { pid: guest.pid, name }
    }
}

/// A figure's title, and its value.
type Figure = (&'static str, fn(&GuestRow) -> Option<f64>);

/// What is kept of a guest.
pub const FIGURES: [Figure; 7] = [
    ("CPU %", |g| g.cpu_of_guest_ratio.or(g.cpu_ratio).map(|x| x * 100.0)),
    ("WAIT %", |g| g.steal_ratio.map(|x| x * 100.0)),
    ("disk MB/s", |g| Some((g.disk.read_bytes_per_second? + g.disk.write_bytes_per_second?) / 1e6)),
    ("p99 ms", |g| g.disk.latency_p99_seconds.map(|x| x * 1e3)),
    ("rx Mbit/s", |g| g.received_bps.map(|x| x / 1e6)),
    ("tx Mbit/s", |g| g.sent_bps.map(|x| x / 1e6)),
    ("drops/s", |g| g.drops_per_second),
];

/// Values of a second: the sum and number of those seen in it.
#[derive(Debug, Clone, Copy, Default)]
struct Second([(f32, u16); FIGURES.len()]);

/// A guest's last minute.
#[derive(Debug, Clone)]
pub struct Minute {
    /// Its name.
    pub name: String,
    seconds: VecDeque<Second>,
    /// Number of the last second.
    last: u64,
    seen: f64,
}

/// The last minutes of all guests.
#[derive(Debug, Clone, Default)]
pub struct Minutes {
    clock: f64,
    all: BTreeMap<GuestId, Minute>,
}

impl Minutes {
    /// Adds an interval of that length.
    pub fn add(&mut self, guests: &[GuestRow], seconds: f64) {
        self.clock += seconds.max(0.0);
        let now = self.clock as u64;
        for guest in guests {
            let new = || Minute { name: String::new(), seconds: VecDeque::new(), last: now, seen: 0.0 };
            let minute = self.all.entry(GuestId::of(guest)).or_insert_with(new);
            minute.name.clone_from(&guest.name);
            minute.seen = self.clock;
            minute.add(guest, now);
        }
        self.all.retain(|_, minute| self.clock - minute.seen <= FORGOTTEN_SECONDS);
    }

    /// That guest's, and how long ago it was seen.
    pub fn of(&self, id: &GuestId) -> Option<(&Minute, f64)> {
        self.all.get(id).map(|minute| (minute, self.clock - minute.seen))
    }
}

impl Minute {
    fn add(&mut self, guest: &GuestRow, now: u64) {
        // An interval longer than a second counts for each of them; at most a minute is missing.
        let missing = if self.seconds.is_empty() { 1 } else { (now - self.last).min(KEPT as u64) };
        for _ in 0..missing {
            self.seconds.push_back(Second::default());
        }
        self.last = now;
        let from = self.seconds.len().saturating_sub(missing.max(1) as usize);
        for second in self.seconds.iter_mut().skip(from) {
            for (kept, (_, value)) in second.0.iter_mut().zip(FIGURES) {
                if let Some(x) = value(guest) {
                    *kept = (kept.0 + x as f32, kept.1.saturating_add(1));
                }
            }
        }
        while self.seconds.len() > KEPT {
            self.seconds.pop_front();
        }
    }

    /// Means of a figure by second, the oldest first.
    pub fn values(&self, figure: usize) -> Vec<Option<f64>> {
        let mean = |(sum, n): (f32, u16)| (n > 0).then(|| f64::from(sum) / f64::from(n));
        self.seconds.iter().map(|second| mean(second.0[figure])).collect()
    }
}

/// A line of blocks from 0 to the largest value, a space where there is none.
pub fn spark(values: &[Option<f64>], ascii: bool) -> String {
    let blocks: Vec<char> = if ascii { ".:-=+*#%" } else { "▁▂▃▄▅▆▇█" }.chars().collect();
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    let block = |x: f64| {
        let part = if most > 0.0 { x / most } else { 0.0 };
        blocks[((part * blocks.len() as f64).ceil() as usize).clamp(1, blocks.len()) - 1]
    };
    values.iter().map(|x| x.map_or(' ', block)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn guest(cpu: f64) -> GuestRow {
        GuestRow { name: "a".into(), pid: Some(7), cpu_ratio: Some(cpu), ..GuestRow::default() }
    }

    #[test]
    fn seconds_are_kept_by_time_and_not_by_number() {
        let mut minutes = Minutes::default();
        let id = GuestId::of(&guest(0.0));
        // Five intervals a second are one value, their mean.
        for i in 0..10 {
            minutes.add(&[guest(if i % 2 == 0 { 1.0 } else { 0.0 })], 0.2);
        }
        let cpu = |minutes: &Minutes| minutes.of(&id).unwrap().0.values(0);
        assert!((2..=3).contains(&cpu(&minutes).len()), "{:?}", cpu(&minutes));
        // A long one counts for each of its seconds, and no more than a minute is kept.
        minutes.add(&[guest(0.5)], 3.0);
        assert_eq!(cpu(&minutes).iter().rev().take(3).collect::<Vec<_>>(), [&Some(50.0); 3]);
        for _ in 0..100 {
            minutes.add(&[guest(0.5)], 1.0);
        }
        assert_eq!(cpu(&minutes).len(), 60);
        assert_eq!(minutes.of(&id).unwrap().0.values(1), vec![None; 60]);
        // One that has ended is forgotten after a minute.
        minutes.add(&[], 3.0);
        assert_eq!(minutes.of(&id).map(|(minute, ago)| (minute.name.as_str(), ago.round())), Some(("a", 3.0)));
        minutes.add(&[], 60.0);
        assert!(minutes.of(&id).is_none());
    }

    #[test]
    fn lines_of_blocks() {
        let values = [Some(0.0), Some(5.0), None, Some(10.0)];
        assert_eq!((spark(&values, false).as_str(), spark(&values, true).as_str()), ("▁▄ █", ".= %"));
        assert_eq!(spark(&[Some(0.0); 2], false), "▁▁");
    }
}
