//! What processes that are not vmio's own spent on the processors, by their `stat` before and after the cell. A cell
//! on a network or in a processor has no disk at which the work of others would show.
//!
//! Vmio's own are the process that looks and all below it. Their time and that of the kernel's threads are read by the same
//! clock, which is the one of a guest's threads too ([`super::cpu`]): a process's time is the scheduler's own sum of what
//! its threads ran (`sum_exec_runtime`; Linux kernel/sched/cputime.c, `cputime_adjust`), of which the ticks only say how
//! much was in the kernel. So the whole is told in the measure of its parts. Whose work a thread of the kernel does cannot
//! be told: it is a part by itself. What ended in between is told by the time of its parent's children that have ended
//! (proc_pid_stat(5), `cutime`); where the parent never waited for it, it is lost. This clock is blind to interrupts that
//! come while a processor idles, and where the kernel counts them apart (`CONFIG_IRQ_TIME_ACCOUNTING`) to all of them.
//!
//! The look begins before what reads files takes its first sample and ends after its last ([`super::watch`]), so that no
//! part has a longer time than the whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use vmio_model::figure::Reading;
use vmio_model::result::{BUSY, KERNEL, OWN, PART, SECONDS, SHARE};
use vmio_node::linux::cpu;
use vmio_node::linux::process::{self, Stat};
use vmio_node::{Node, Reader};

use super::{ByItself, Looking, Probe, ProbeMethod, ProbeSubject, Unseen};

/// Entry of the list of probes.
pub struct Others;

impl Probe for Others {
    fn name(&self) -> &'static str {
        "others"
    }
    fn about(&self) -> &'static str {
        "CPU seconds of other processes, and their share of the processors; of vmio's own, and of the kernel's \
         threads, which also work for others; blind to interrupts of idle processors"
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::Others { .. })
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Own(&Others)
    }
}

impl ByItself for Others {
    fn start(&self, subject: &ProbeSubject, node: &Arc<dyn Node>) -> Result<Box<dyn Looking>, Unseen> {
        let ProbeSubject::Others { than } = *subject else {
            return Err(Unseen::OtherSubject("these are not processes"));
        };
        let began = Instant::now();
        let before = Table::read(node.reader(), than)?;
        Ok(Box::new(Counted { node: node.clone(), than, before, began }))
    }
}

struct Counted {
    node: Arc<dyn Node>,
    than: u32,
    before: Table,
    began: Instant,
}

impl Looking for Counted {
    fn stop(self: Box<Self>, _: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
        let reader = self.node.reader();
        let processors = cpu::online(reader).len();
        let seconds = self.began.elapsed().as_secs_f64();
        let Spent { others: busy, ours, kernel } = self.before.spent_until(&Table::read(reader, self.than)?);
        if processors == 0 || seconds <= 0.0 {
            return Err(Unseen::NoProcessors);
        }
        let share = (busy / seconds / processors as f64).min(1.0);
        // By one clock for both: that of processes knows nothing of ticks, nor of what a hypervisor takes away.
        let part = if busy > 0.0 { busy / (busy + ours) } else { 0.0 };
        Ok(vec![
            Reading::scalar(SECONDS, seconds),
            Reading::scalar(BUSY, busy),
            Reading::scalar(SHARE, share),
            Reading::scalar(PART, part),
            Reading::scalar(OWN, ours),
            Reading::scalar(KERNEL, kernel),
        ])
    }
}

/// One process at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct One {
    parent: u32,
    /// Seconds that it ran.
    own: f64,
    /// Seconds that those of its children ran that it has waited for.
    reaped: f64,
    whose: Whose,
}

/// Whose a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Others,
    Ours,
    Kernel,
}

/// Seconds that were spent between two looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spent {
    pub(super) others: f64,
    pub(super) ours: f64,
    pub(super) kernel: f64,
}

/// All processes at one time, by number and beginning: numbers are used again.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Table(BTreeMap<(u32, u64), One>);

impl Table {
    pub(super) fn read(reader: &dyn Reader, than: u32) -> vmio_node::Result<Self> {
        let numbers = process::all(reader)?;
        // One that has ended since is not there.
        let stats = numbers.iter().filter_map(|pid| reader.read_text(&process::file(pid, "stat")).ok());
        Ok(Self::of(stats, than))
    }

    fn of(stats: impl IntoIterator<Item = String>, than: u32) -> Self {
        let mut all = BTreeMap::new();
        for text in stats {
            let Some(stat) = Stat::parse(&text) else { continue };
            let (Some(start), Some(parent), Some(own), Some(reaped)) =
                (stat.start_ticks(), stat.parent(), stat.run_seconds(), stat.reaped_seconds())
            else {
                continue;
            };
            let whose = if stat.is_of_kernel() { Whose::Kernel } else { Whose::Others };
            all.insert((stat.number, start), One { parent, own, reaped, whose });
        }
        let parents: BTreeMap<u32, u32> = all.iter().map(|((pid, _), one)| (*pid, one.parent)).collect();
        let ours =
            all.iter_mut().filter(|((pid, _), one)| one.whose != Whose::Kernel && is_below(*pid, than, &parents));
        ours.for_each(|(_, one)| one.whose = Whose::Ours);
        Self(all)
    }

    /// Seconds that each of them ran until then.
    pub(super) fn spent_until(&self, then: &Self) -> Spent {
        let mut ended: BTreeMap<u32, f64> = BTreeMap::new();
        for (id, one) in &self.0 {
            if !then.0.contains_key(id) {
                *ended.entry(one.parent).or_default() += one.own + one.reaped;
            }
        }
        let spent = |(id, now): (&(u32, u64), &One)| {
            let was = self.0.get(id).copied().unwrap_or(One { own: 0.0, reaped: 0.0, ..*now });
            // What its children had run before the first look is none of this time.
            let before = ended.get(&id.0).copied().unwrap_or(0.0);
            (now.own - was.own).max(0.0) + (now.reaped - was.reaped - before).max(0.0)
        };
        let of = |whose: Whose| then.0.iter().filter(|(_, now)| now.whose == whose).map(spent).sum();
        Spent { others: of(Whose::Others), ours: of(Whose::Ours), kernel: of(Whose::Kernel) }
    }
}

/// Whether a process is this one or comes from it.
fn is_below(pid: u32, than: u32, parents: &BTreeMap<u32, u32>) -> bool {
    let mut seen = BTreeSet::new();
    let mut at = Some(pid);
    while let Some(pid) = at.filter(|pid| seen.insert(*pid)) {
        if pid == than {
            return true;
        }
        at = parents.get(&pid).copied();
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::{Child, Command};
    use std::thread;
    use std::time::Duration;

    use vmio_model::figure::scalar;

    use super::*;

    /// A `stat` with times in ticks of 10 ms.
    fn stat(pid: u32, parent: u32, flags: u32, own: u32, reaped: u32, start: u32) -> String {
        format!("{pid} (a) b) S {parent} 1 1 0 -1 {flags} 0 0 0 0 {own} 0 {reaped} 0 20 0 1 0 {start} 0 0\n")
    }

    fn table<const N: usize>(stats: [String; N]) -> Table {
        Table::of(stats, 50)
    }

    #[test]
    fn what_is_not_vmios_own_is_counted() {
        let at = |ticks: u32| {
            table([
                stat(1, 0, 0, 0, 0, 1),
                stat(2, 0, 0x0020_0000, 5 * ticks, 0, 1),
                stat(40, 1, 0, 3 * ticks, 0, 5),
                stat(50, 40, 0, 7 * ticks, 0, 9),
                stat(51, 50, 0, 7 * ticks, 0, 9),
                stat(52, 51, 0, 7 * ticks, 0, 9),
            ])
        };
        let told: Vec<(u32, Whose)> = at(1).0.iter().map(|((pid, _), one)| (*pid, one.whose)).collect();
        let (others, ours) = (Whose::Others, Whose::Ours);
        assert_eq!(told, [(1, others), (2, Whose::Kernel), (40, others), (50, ours), (51, ours), (52, ours)]);
        let spent = at(100).spent_until(&at(200));
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(spent.others, 3.0) && near(spent.ours, 21.0) && near(spent.kernel, 5.0), "{spent:?}");
    }

    #[test]
    fn what_began_or_ended_in_between_counts_for_its_part() {
        // A child that had run 5 s ends after one more; another begins and ends; a third begins and runs on.
        let before = table([stat(1, 0, 0, 0, 0, 1), stat(40, 1, 0, 0, 0, 5), stat(41, 40, 0, 500, 0, 6)]);
        let after = table([stat(1, 0, 0, 0, 0, 1), stat(40, 1, 0, 0, 600 + 200, 5), stat(43, 40, 0, 50, 0, 8)]);
        assert!((before.spent_until(&after).others - 3.5).abs() < 1e-9);
        // Its number is used again: that one's time is its own.
        let again = table([stat(1, 0, 0, 0, 0, 1), stat(40, 1, 0, 0, 500, 5), stat(41, 40, 0, 10, 0, 9)]);
        assert!((before.spent_until(&again).others - 0.1).abs() < 1e-9);
        // Nobody waited for it: it takes nothing away from what others ran.
        let lost = table([stat(1, 0, 0, 100, 0, 1), stat(40, 1, 0, 0, 0, 5)]);
        assert!((before.spent_until(&lost).others - 1.0).abs() < 1e-9);
    }

    /// Ends with the test, whatever becomes of it.
    struct Spinner(Child);

    impl Spinner {
        fn new() -> Self {
            Self(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
        }
    }

    impl Drop for Spinner {
        fn drop(&mut self) {
            let _ = self.0.kill().and_then(|()| self.0.wait());
        }
    }

    #[test]
    fn a_real_process_is_seen_at_work_by_all_but_its_own() {
        let node: Arc<dyn Node> = Arc::new(vmio_node::Local::new());
        let (one, two) = (Spinner::new(), Spinner::new());
        let text = || node.reader().read_text(&process::file(one.0.id(), "stat")).unwrap();
        let spent = || Stat::parse(&text()).unwrap().run_seconds().unwrap();
        let looking = Others.start(&ProbeSubject::Others { than: two.0.id() }, &node).unwrap();
        let first = spent();
        for _ in 0..600 {
            if spent() >= first + 0.2 {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
        let ran = spent() - first;
        assert!(ran >= 0.2, "it ran {ran} s in 30 s");
        let seen = looking.stop(&mut Vec::new()).unwrap();
        assert!(scalar(&seen, BUSY).unwrap() >= ran - 1e-6 && scalar(&seen, SHARE).unwrap() > 0.0, "{seen:?} of {ran}");
        let ours = Table::read(node.reader(), std::process::id()).unwrap();
        let is_ours =
            |spinner: &Spinner| ours.0.iter().any(|((pid, _), one)| *pid == spinner.0.id() && one.whose == Whose::Ours);
        assert!(is_ours(&one) && is_ours(&two));
        let part = scalar(&seen, PART).unwrap();
        assert!(part > 0.0 && part < 1.0, "both were at work: {seen:?}");
        assert!(scalar(&seen, OWN).unwrap() > 0.0 && scalar(&seen, KERNEL).is_some(), "{seen:?}");
    }

    #[test]
    fn a_circle_of_parents_has_an_end() {
        assert_eq!(table([stat(60, 61, 0, 0, 0, 1), stat(61, 60, 0, 0, 0, 1)]).0.len(), 2);
    }
}
