//! Asking a meter again and again on a thread of its own, so that one that answers late or never delays nothing else.
//! An answer that took longer than a second is not used: when it was measured is not known. A question that is never
//! answered keeps its thread, so there are few of those.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use vmio_model::figure::Reading;

use super::energy::{self, Power};
use super::{Looking, Unseen};

/// Time after which an answer is late.
const LATE: Duration = Duration::from_secs(1);
/// Most answers that are kept: seven hours at ten a second.
const MOST_ANSWERS: usize = 1 << 18;
/// Most questions without an answer at once; each cell would add one for a meter that hangs.
const MOST_OPEN: usize = 16;

/// Questions of this process that have no answer yet.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// What a meter tells of one domain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Amount {
    /// Power in watts.
    Watts(f64),
    /// Energy in joules since an unknown start.
    Joules(f64),
}

/// What it tells at once: domains with amounts. An error says why it is no reading.
pub(super) type Answer = Result<Vec<(String, Amount)>, Unseen>;

/// What was heard.
#[derive(Default)]
struct Heard {
    /// By domain, each with its seconds from the start.
    amounts: BTreeMap<String, Vec<(f64, Amount)>>,
    answers: usize,
    late: u32,
    /// Why the last answer that was no reading was none.
    refused: Option<Unseen>,
}

/// A meter that is asked. Its thread ends after its question when this goes, and nobody waits for it.
pub(super) struct Poll {
    name: &'static str,
    began: Instant,
    heard: Arc<Mutex<Heard>>,
    _stop: Sender<()>,
}

impl Poll {
    /// Asks at once, and again each `every`.
    ///
    /// # Errors
    /// Where too many questions wait for an answer, or the system gives no thread.
    pub(super) fn start(
        name: &'static str,
        every: Duration,
        mut ask: impl FnMut() -> Answer + Send + 'static,
    ) -> Result<Box<dyn Looking>, Unseen> {
        if OPEN.load(Ordering::Relaxed) >= MOST_OPEN {
            return Err(Unseen::Hangs);
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let (heard, began) = (Arc::new(Mutex::new(Heard::default())), Instant::now());
        let kept = Arc::clone(&heard);
        let work = move || loop {
            let asked = Instant::now();
            OPEN.fetch_add(1, Ordering::Relaxed);
            let answer = ask();
            OPEN.fetch_sub(1, Ordering::Relaxed);
            kept.lock().unwrap_or_else(PoisonError::into_inner).add(began, asked, answer);
            let rest = every.saturating_sub(asked.elapsed());
            if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        };
        thread::Builder::new().name("meter".to_owned()).spawn(work).map_err(Unseen::NoThread)?;
        Ok(Box::new(Poll { name, began, heard, _stop: stop }))
    }
}

impl Heard {
    fn add(&mut self, began: Instant, asked: Instant, answer: Answer) {
        let took = asked.elapsed();
        match answer {
            _ if self.answers >= MOST_ANSWERS => {}
            Err(why) => self.refused = Some(why),
            Ok(_) if took > LATE => self.late += 1,
            Ok(all) => {
                self.answers += 1;
                // In the middle between question and answer.
                let at = (asked - began + took / 2).as_secs_f64();
                for (domain, amount) in all {
                    self.amounts.entry(domain).or_default().push((at, amount));
                }
            }
        }
    }
}

impl Looking for Poll {
    fn stop(self: Box<Self>, notes: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
        let seconds = self.began.elapsed().as_secs_f64();
        let heard = std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner));
        conclude(self.name, heard, seconds, notes)
    }
}

fn conclude(name: &str, heard: Heard, seconds: f64, notes: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
    let (mut all, mut last) = (Vec::new(), None);
    for (domain, amounts) in &heard.amounts {
        match of_domain(domain, amounts, seconds) {
            Ok(readings) => all.extend(readings),
            Err(why) => {
                notes.push(format!("{name}: {domain}: {why}"));
                last = Some(why);
            }
        }
    }
    let late = (heard.late > 0).then_some(Unseen::Late { answers: heard.late });
    if all.is_empty() {
        // What was wrong with its answers is why there are too few.
        return Err(heard.refused.or(late).or(last).unwrap_or(Unseen::FewReadings));
    }
    notes.extend(heard.refused.into_iter().chain(late).map(|why| format!("{name}: {why}")));
    Ok(all)
}

fn of_domain(domain: &str, amounts: &[(f64, Amount)], seconds: f64) -> Result<[Reading; 2], Unseen> {
    let power = |&(at, amount): &(f64, Amount)| match amount {
        Amount::Watts(watts) => Some(Power { at, own: None, watts }),
        Amount::Joules(_) => None,
    };
    if let Some(power) = amounts.iter().map(power).collect::<Option<Vec<Power>>>() {
        return energy::of_power(domain, &power, seconds);
    }
    let counted = |&(at, amount): &(f64, Amount)| match amount {
        Amount::Joules(joules) => Some((at, joules)),
        Amount::Watts(_) => None,
    };
    energy::of_counter(domain, &amounts.iter().filter_map(counted).collect::<Vec<_>>(), seconds)
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn heard(said: &[(f64, &str, Amount)]) -> Heard {
        let mut heard = Heard::default();
        for (at, domain, amount) in said {
            heard.amounts.entry((*domain).to_owned()).or_default().push((*at, *amount));
        }
        heard
    }

    #[test]
    fn domains_are_told_apart_and_one_that_fails_leaves_the_others() {
        let said = [
            (0.1, "machine", Amount::Watts(100.0)),
            (0.1, "card", Amount::Joules(5.0)),
            (0.1, "odd", Amount::Watts(5.0)),
            (2.1, "machine", Amount::Watts(200.0)),
            (2.1, "card", Amount::Joules(25.0)),
        ];
        let mut notes = Vec::new();
        let told = conclude("hwmon", heard(&said), 3.0, &mut notes).unwrap();
        let wanted = [energy::readings("card", 30.0, 3.0), energy::readings("machine", 450.0, 3.0)].concat();
        assert_eq!(told, wanted);
        assert_eq!(notes, ["hwmon: odd: fewer than two readings"]);
    }

    #[test]
    fn late_answers_are_not_used() {
        let (began, mut all) = (Instant::now(), Heard::default());
        let asked = began.checked_sub(LATE + Duration::from_millis(10)).unwrap();
        all.add(asked, asked, Ok(vec![("machine".into(), Amount::Watts(1.0))]));
        assert_eq!((all.late, all.amounts.len()), (1, 0));
        let why = conclude("ipmi", all, 1.0, &mut Vec::new()).unwrap_err().to_string();
        assert_eq!(why, "the meter took over 1 s for 1 answer, of which none is used");
    }

    #[test]
    fn one_that_never_answers_holds_nobody_up() {
        let (let_go, held) = mpsc::channel::<()>();
        let began = Instant::now();
        let looking = Poll::start("redfish", Duration::from_secs(1), move || {
            let _ = held.recv();
            Ok(Vec::new())
        });
        let told = looking.unwrap().stop(&mut Vec::new());
        assert!(told.is_err() && began.elapsed() < Duration::from_secs(30), "{told:?}");
        drop(let_go);
    }
}
