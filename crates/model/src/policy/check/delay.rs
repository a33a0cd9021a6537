//! Targets of delay and jitter: chooses the queues of their classes, and refuses what cannot be met.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Check, DEFAULT, HOST};
use crate::policy::compile::waits::{Wait, Waits};
use crate::policy::delay::{DelayTarget, has_targets, shown};
use crate::policy::parse::{At, ClassDraft};
use crate::policy::pool::Pool;
use crate::policy::units::show_time;
use crate::policy::{Abilities, Direction, Policy};
use crate::problem::Problem;
use crate::rate::BitRate;

impl Check<'_> {
    /// The targets of a class as they are written; what rules them out is noted.
    pub fn delay(&mut self, class: &str, written: &ClassDraft) -> Option<DelayTarget> {
        let (word, at) = strictest(written)?;
        let key = format!("class.{class}.{word}");
        if [HOST, DEFAULT].contains(&class) {
            self.problem(at, &key, "targets are of guests: write a class and an [[interface]] for it");
            return None;
        }
        if written.min.as_ref().is_none_or(|min| min.value == BitRate::ZERO) {
            self.problem(at, &key, "needs a min: without one it is not certain when a packet is sent");
        }
        if written.flows.is_some() {
            self.problem(at, &key, "is not known for flow classes, which have queues of their own; leave one out");
        }
        if written.local.as_ref().is_some_and(|local| local.value) {
            let what = "is not known with local = \"limit\": packets wait in two queues, one after the other";
            self.problem(at, &key, what);
        }
        let time = |at: &Option<At<Duration>>| at.as_ref().map(|at| at.value);
        Some(DelayTarget { delay: time(&written.delay), jitter: time(&written.jitter), queue: None, longest: None })
    }

    /// Chooses queues for the targets of a policy that is good but for them.
    pub fn delays(&mut self, policy: &mut Policy) {
        if !self.problems.is_empty() || !has_targets(&policy.classes) {
            return;
        }
        let (mut queues, mut unmet) = (BTreeMap::<String, Duration>::new(), BTreeSet::new());
        for pool in pools(policy) {
            let waits = Waits::of(&pool, &Abilities::HTB);
            for (class, seat) in waits.targets() {
                let Some(target) = pool.seats[seat].delay.filter(|_| policy.class(class).queue.is_none()) else {
                    continue;
                };
                match waits.room(seat, target) {
                    Some(room) => {
                        let queue = queues.entry(class.to_owned()).or_insert(room);
                        *queue = room.min(*queue);
                    }
                    None if unmet.insert(class.to_owned()) => self.unmet(&pool, class, &waits.shortest(seat)),
                    None => {}
                }
            }
        }
        for (name, class) in &mut policy.classes {
            if let Some(delay) = &mut class.delay {
                delay.queue = queues.get(name).copied();
            }
        }
        for pool in pools(policy) {
            let waits = Waits::of(&pool, &Abilities::HTB);
            for (class, seat) in waits.targets() {
                if unmet.contains(class) {
                    continue;
                }
                let wait = waits.longest(seat);
                if let Some(delay) = policy.classes.get_mut(class).and_then(|class| class.delay.as_mut()) {
                    delay.longest = delay.longest.max(Some(wait.longest()));
                }
                if pool.seats[seat].delay.is_some_and(|target| wait.longest() > target) {
                    unmet.insert(class.to_owned());
                    self.unmet(&pool, class, &wait);
                }
            }
        }
    }

    /// A target below the longest wait.
    fn unmet(&mut self, pool: &Pool, class: &str, wait: &Wait) {
        let draft = self.draft;
        let Some((written, (word, at))) = draft.classes.get(class).and_then(|w| Some((w, strictest(w)?))) else {
            return;
        };
        let (target, longest) = (show_time(at.value), shown(wait.longest()));
        let place = format!("{} {}", pool.uplink, pool.direction.word());
        let problem = match &written.queue {
            Some(queue) => {
                let what = format!(
                    "{} is too long for a {word} of {target}: at {place} a packet may wait {longest}",
                    show_time(queue.value)
                );
                self.at(queue, &format!("class.{class}.queue"), what)
            }
            None => {
                let what = format!("{target} cannot be met at {place}: a packet may wait {longest}");
                self.at(at, &format!("class.{class}.{word}"), what)
            }
        };
        let problem = parts(problem, pool, wait).note(match &written.queue {
            Some(_) => "help: leave queue out, and it is chosen; or raise min, or allow more time",
            None => "help: raise min, come earlier (priority = 1 is first), or allow more time",
        });
        self.problems.push(problem);
    }
}

/// The stricter of the targets, with its key.
fn strictest(written: &ClassDraft) -> Option<(&'static str, &At<Duration>)> {
    let both = [("delay", &written.delay), ("jitter", &written.jitter)];
    both.into_iter().filter_map(|(key, at)| Some((key, at.as_ref()?))).min_by_key(|(_, at)| at.value)
}

/// All pools with the members that are certain, and with one interface for each pattern whose class has a target.
fn pools(policy: &Policy) -> Vec<Pool> {
    let labels: Vec<String> = policy.entries.iter().map(|entry| entry.matcher.label()).collect();
    let of = |(uplink, direction): (&String, Direction)| {
        let targeted = |class: &str| policy.class(class).delay.is_some();
        let all = labels.iter().map(String::as_str).zip(&policy.entries);
        let certain =
            all.filter(|(_, entry)| entry.matcher.is_exact() || entry.class_in(direction).is_some_and(targeted));
        Pool::of(policy, uplink, direction, certain)
    };
    let keys = policy.uplinks.keys().flat_map(|uplink| Direction::ALL.map(|direction| (uplink, direction)));
    keys.filter_map(of).collect()
}

/// Adds what the wait is made of to a problem.
fn parts(problem: Problem, pool: &Pool, wait: &Wait) -> Problem {
    let rows = [
        (wait.own, format!("behind its own: {} bytes of queue and a packet, at {}", wait.queue_bytes, wait.own_bps)),
        (
            wait.others,
            format!(
                "behind others: {} of its priority and before send what they may at once, and one packet has begun, \
                 at {}",
                wait.ahead, wait.left_bps
            ),
        ),
    ];
    let width = rows.iter().map(|(time, _)| shown(*time).len()).max().unwrap_or(0);
    let problem = rows.into_iter().fold(problem, |problem, (time, what)| {
        let time = shown(time);
        problem.note(format!("{time:>width$}  {what}"))
    });
    let bytes = Abilities::HTB.packet_bytes;
    problem.note(format!("a packet of {} may have {bytes} bytes (docs/guard.md, Delay and jitter)", pool.uplink))
}
