//! When a breach begins and when it ends: of a minimum, and of a target of delay. Pure.

use std::time::Duration;

/// A breach begins when a minimum was not met for this time in a row, and ends when it was met for as long.
pub(super) const LASTS: Duration = Duration::from_secs(2);

/// Begin or end of a breach.
pub(super) enum BreachChange {
    Begins,
    Ends(Duration),
}

/// Whether something begins or ends that was `missed` in this window: for how long it lasts, for how long windows have
/// contradicted that, and how often there was one.
pub(super) fn judge(
    (now, otherwise, total): (&mut Option<Duration>, &mut Duration, &mut u64),
    missed: bool,
    time: Duration,
) -> Option<BreachChange> {
    if let Some(so_far) = now {
        *so_far += time;
    }
    if missed == now.is_some() {
        *otherwise = Duration::ZERO;
        return None;
    }
    *otherwise += time;
    if *otherwise < LASTS {
        return None;
    }
    let change = match now {
        None => BreachChange::Begins,
        Some(so_far) => BreachChange::Ends(so_far.saturating_sub(*otherwise)),
    };
    *now = missed.then_some(*otherwise);
    *total += u64::from(missed);
    *otherwise = Duration::ZERO;
    Some(change)
}
