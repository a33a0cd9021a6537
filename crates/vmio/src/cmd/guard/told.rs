//! Lines of the guard's log that sum up.

use std::collections::BTreeMap;

use vmio_guard::demand::DelayChange;
use vmio_guard::manager::{PoolChange, PoolState};

use crate::report::format::{count, time};

/// Interfaces that came and went together: how many of each class, and how many are gone.
pub fn many(came: &BTreeMap<String, usize>, went: usize) -> String {
    let classes: Vec<String> = came.iter().map(|(class, count)| format!("{count} of class {class}")).collect();
    let came: usize = came.values().sum();
    let came = (came > 0).then(|| format!("{} came: {}", count(came, "interface"), classes.join(", ")));
    let went = (went > 0).then(|| format!("{} with a class gone", count(went, "interface")));
    came.into_iter().chain(went).collect::<Vec<_>>().join("; ")
}

/// What happened to a pool; an error where a person has to look.
pub fn pool(change: &PoolChange) -> Result<String, String> {
    let pool = &change.pool;
    match &change.what {
        PoolState::Interrupted(why) => Err(format!("{pool}: not in force: {why}")),
        PoolState::PutRight(what) => Err(format!("{pool}: was not in force for a moment: {what}")),
        PoolState::Back => Ok(format!("{pool}: in force again")),
        PoolState::Claimed { member, claimed } => {
            let spoofed = (claimed.packets > 0).then(|| {
                let all = count(claimed.packets as usize, "packet");
                format!("{all} claimed addresses that are not its own ({} dropped)", claimed.dropped)
            });
            let floods = (claimed.floods > 0).then(|| {
                format!("{} of ARP or neighbour discovery dropped: too many", count(claimed.floods as usize, "packet"))
            });
            let all: Vec<String> = spoofed.into_iter().chain(floods).collect();
            Err(format!("{pool} {member}: {} so far", all.join("; ")))
        }
        PoolState::Delay(change) => delay(change),
    }
}

/// A target that is missed, or met again.
fn delay(change: &DelayChange) -> Result<String, String> {
    let who = format!("{} {}", change.pool, change.member);
    if let Some(lasted) = change.ended_after {
        let lasted = time(lasted.as_secs_f64());
        return Ok(format!("{who}: its targets of delay are met again; one was missed for {lasted}"));
    }
    let seconds = |target: Option<std::time::Duration>| target.map(|target| target.as_secs_f64());
    let of = |word, is, target| seconds(target).map(|target| measured(word, is, Some(target)));
    let waits = change.waits.iter();
    let all = waits.flat_map(|waits| {
        [of("delay", waits.p99, change.target.delay), of("jitter", waits.jitter, change.target.jitter)]
    });
    let all: Vec<String> = all.flatten().collect();
    let is = if all.is_empty() { "packets wait, and none passes".to_owned() } else { all.join(", ") };
    Err(format!("{who}: a target of delay is missed: {is}"))
}

/// `delay 1.20 ms of at most 5.00 ms`, in seconds.
pub fn measured(word: &str, is: f64, target: Option<f64>) -> String {
    let target = target.map(|target| format!(" of at most {}", time(target)));
    format!("{word} {}{}", time(is), target.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_changes_are_one_line() {
        let came = BTreeMap::from([("gold".to_owned(), 150), ("tin".to_owned(), 50)]);
        assert_eq!(many(&came, 0), "200 interfaces came: 150 of class gold, 50 of class tin");
        assert_eq!(many(&came, 3).split("; ").nth(1), Some("3 interfaces with a class gone"));
        assert_eq!(many(&BTreeMap::new(), 9), "9 interfaces with a class gone");
    }
}
