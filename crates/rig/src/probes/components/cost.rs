//! For how long a sample interrupts a processor, as a program sees it that only looks at the clock: between two looks
//! most time passes where an interrupt came. It is the median of as many of the longest such times as there were
//! samples, so that the few in which another program had the processor do not matter. Not in it: what an interrupt takes
//! out of caches.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::perf::HERTZ;

/// How long the clock is looked at: a hundred samples.
const TIME: Duration = Duration::from_millis(100);
/// Fewest samples that tell it.
const LEAST: usize = 20;

/// Seconds for which a sample interrupts this thread while its processor is sampled; `None` where it was seldom on one.
pub fn interrupt_seconds() -> Option<f64> {
    let most = samples(TIME.as_secs_f64());
    let (began, on_processor) = (Instant::now(), thread_seconds());
    let mut longest = BinaryHeap::new();
    let (mut looks, mut last) = (0u64, Duration::ZERO);
    while last < TIME {
        let now = began.elapsed();
        longest.push(Reverse(now - last));
        if longest.len() > most {
            longest.pop();
        }
        (looks, last) = (looks + 1, now);
    }
    let longest = longest.into_iter().map(|Reverse(time)| time.as_secs_f64()).collect();
    let one = typical(longest, samples(thread_seconds() - on_processor))?;
    // Looking takes its time, too.
    Some((one - last.as_secs_f64() / looks as f64).max(0.0))
}

/// Samples in so many seconds.
fn samples(seconds: f64) -> usize {
    (seconds * HERTZ as f64) as usize
}

/// The median of the longest of some times, as many as there were samples.
fn typical(mut longest: Vec<f64>, samples: usize) -> Option<f64> {
    longest.sort_unstable_by(|a, b| b.total_cmp(a));
    longest.truncate(samples);
    (longest.len() >= LEAST).then(|| longest[longest.len() / 2])
}

/// CPU seconds of this thread.
fn thread_seconds() -> f64 {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_ticks_nor_other_programs_change_what_is_typical() {
        let of = |time: f64, count: usize| vec![time; count];
        // A processor lost three times, 90 samples, 25 ticks, and looks without an interrupt.
        let all = [of(4e-3, 3), of(8e-6, 90), of(6e-6, 25), of(5e-8, 1000)].concat();
        assert_eq!(typical(all.clone(), 90), Some(8e-6));
        assert_eq!(typical(all, LEAST - 1), None, "too few to tell");
        assert_eq!(typical(of(8e-6, LEAST - 1), 90), None);
    }
}
