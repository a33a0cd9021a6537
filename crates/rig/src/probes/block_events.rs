//! How long requests are at the driver of a guest's disk, from issue to completion: by the events of the kernel's block
//! layer (include/trace/events/block.h), which the kernel itself sums up ([`histogram`]).
//!
//! Nothing is kept for a request: each event adds its time to a sum. The times of all ends less those of all issues are
//! the times of the requests added up, if as many ended as were issued. One that the driver hands back to the queue
//! ends there, and is issued again. Flushes have no sectors and are left out, since their data is told to end twice.

use std::sync::Arc;

use vmio_look::require::{Check, Missing, Requirement, kernel};
use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::result::{BLOCK_EVENTS, MOVED, REQUEST_SECONDS, REQUESTS};
use vmio_node::linux::block::{Device, SECTOR_BYTES};
use vmio_node::linux::device::kernel_dev;
use vmio_node::linux::histogram;
use vmio_node::{Node, Reader};

use super::{ByItself, Looking, Probe, ProbeMethod, ProbeSubject, Unseen};

/// The event that hands a request to the driver.
const ISSUE: &str = "block_rq_issue";
/// The events that end its time there.
const ENDS: [&str; 2] = ["block_rq_complete", "block_rq_requeue"];
/// What the kernel sums up of each, by disk. In nanoseconds of the kernel's own clock.
const TRIGGER: &[u8] = b"hist:keys=dev:vals=nr_sector,common_timestamp:size=128 if nr_sector > 0";

/// What the kernel of the guest must have.
const REQUIREMENTS: [Requirement; 2] = [EVENTS, HISTOGRAMS];
const EVENTS: Requirement = Requirement {
    name: "block events",
    why: "the guest's block layer apart from virtual I/O (--layers)",
    fix: "boot the guests with a kernel that has CONFIG_EVENT_TRACING (--guest-kernel; Debian's has it)",
    check: |reader| has(reader, "events of the block layer", "trigger"),
};
const HISTOGRAMS: Requirement = Requirement {
    name: "histogram triggers",
    why: "the guest's block layer apart from virtual I/O (--layers)",
    fix: "boot the guests with a kernel that has CONFIG_HIST_TRIGGERS (--guest-kernel; Debian's has it)",
    check: |reader| has(reader, "histograms of events", "hist"),
};

fn has(reader: &dyn Reader, feature: &str, file: &str) -> Result<(), Missing> {
    kernel(reader, feature, &histogram::block_file(ISSUE, file).display().to_string())
}

/// Entry of the list of probes.
pub struct BlockEvents;

impl Probe for BlockEvents {
    fn name(&self) -> &'static str {
        BLOCK_EVENTS
    }
    fn about(&self) -> &'static str {
        "requests at the driver of a guest's disk and their times from issue to completion, by events of its block \
         layer; blind to flushes, and where not as many end as begin"
    }
    fn figures(&self, _: &ProbeSubject) -> Vec<Figure> {
        vec![
            Figure::amount(REQUESTS, Unit::Requests),
            Figure::amount(MOVED, Unit::Bytes),
            Figure::amount(REQUEST_SECONDS, Unit::Seconds),
        ]
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::Driver(_))
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Own(&BlockEvents)
    }
}

impl ByItself for BlockEvents {
    fn start(&self, subject: &ProbeSubject, node: &Arc<dyn Node>) -> Result<Box<dyn Looking>, Unseen> {
        let ProbeSubject::Driver(disk) = subject else {
            return Err(Unseen::OtherSubject("it is not the driver of a disk"));
        };
        for requirement in &REQUIREMENTS {
            if let unmet @ Check::Unmet { .. } = requirement.look(node.reader()) {
                return Err(Unseen::Unmet(unmet));
            }
        }
        let number = Device::whole(node.reader(), disk).number();
        let dev = kernel_dev(number.ok_or_else(|| Unseen::NoDevice(disk.clone()))?);
        let counting = Counting { node: Arc::clone(node), disk: disk.clone(), dev, told: None };
        for event in ENDS.into_iter().chain([ISSUE]) {
            counting.node.write(&histogram::block_file(event, "trigger"), TRIGGER, None)?;
        }
        Ok(Box::new(counting))
    }
}

/// The kernel's sums of one disk and event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Sums {
    requests: u64,
    sectors: u64,
    /// Of the times of the events, in nanoseconds. It wraps.
    nanoseconds: u64,
}

impl Sums {
    /// Of a disk, from a histogram; all nothing where that has no event of it. `None` where it is not whole.
    fn of(text: &str, dev: u64) -> Option<Self> {
        let rows = histogram::rows(text)?;
        let Some(row) = rows.iter().find(|row| row.get("dev") == Some(&dev)) else { return Some(Self::default()) };
        let of = |name: &str| row.get(name).copied();
        Some(Self { requests: of("hitcount")?, sectors: of("nr_sector")?, nanoseconds: of("common_timestamp")? })
    }
}

/// The triggers at work. They go with it; another disk of the guest has the same.
struct Counting {
    node: Arc<dyn Node>,
    disk: String,
    dev: u64,
    /// Once it is halted.
    told: Option<Result<Vec<Reading>, Unseen>>,
}

impl Counting {
    fn read(&self, event: &'static str) -> Result<Sums, Unseen> {
        let text = self.node.reader().read_text(&histogram::block_file(event, "hist"))?;
        Sums::of(&text, self.dev).ok_or(Unseen::NoHistogram(event))
    }

    fn readings(&self) -> Result<Vec<Reading>, Unseen> {
        let issued = self.read(ISSUE)?;
        let (mut ended, mut nanoseconds) = (0, 0u64.wrapping_sub(issued.nanoseconds));
        for event in ENDS {
            let sums = self.read(event)?;
            ended = sums.requests.saturating_add(ended);
            nanoseconds = nanoseconds.wrapping_add(sums.nanoseconds);
        }
        if ended != issued.requests {
            return Err(Unseen::NotPaired { disk: self.disk.clone(), issued: issued.requests, ended });
        }
        let nanoseconds = i64::try_from(nanoseconds).map_err(|_| Unseen::Backwards(self.disk.clone()))?;
        Ok(vec![
            Reading::scalar(REQUESTS, issued.requests as f64),
            Reading::scalar(MOVED, issued.sectors as f64 * SECTOR_BYTES as f64),
            Reading::scalar(REQUEST_SECONDS, nanoseconds as f64 * 1e-9),
        ])
    }
}

impl Looking for Counting {
    fn halt(&mut self) {
        if self.told.is_none() {
            self.told = Some(self.readings());
        }
    }

    fn stop(mut self: Box<Self>, _: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
        self.told.take().unwrap_or_else(|| self.readings())
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        // Cut to nothing, the file has no trigger any more. The guest is vmio's own: nobody else has any there.
        for event in ENDS.into_iter().chain([ISSUE]) {
            let _ = self.node.write(&histogram::block_file(event, "trigger"), b"", None);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::Fake;

    use super::*;

    /// A histogram in the form of the kernel's document, of vdb (254:16) and of another disk.
    fn hist(requests: u64, nanoseconds: u64) -> String {
        let sectors = requests * 8;
        format!(
            "# event histogram\n#\n# trigger info: hist:keys=dev:vals=hitcount,nr_sector,common_timestamp:sort=hitcount:\
             size=128:clock=global if nr_sector > 0 [active]\n#\n\n\
             {{ dev:  266338304 }} hitcount:          2  nr_sector:         16  common_timestamp:  123456\n\
             {{ dev:  266338320 }} hitcount: {requests:10}  nr_sector: {sectors:10}  \
             common_timestamp: {nanoseconds:10}\n\n\
             Totals:\n    Hits: {}\n    Entries: 2\n    Dropped: 0\n",
            requests + 2
        )
    }

    fn file(event: &str, name: &str) -> std::path::PathBuf {
        histogram::block_file(event, name)
    }

    /// A guest whose kernel has counted this: issues, completions, and those that the driver handed back.
    fn guest(issued: &str, completed: &str, requeued: &str) -> Arc<Fake> {
        let counted = [(ISSUE, issued), (ENDS[0], completed), (ENDS[1], requeued)];
        let fake = Fake::new("web").file("/sys/block/vdb/dev", "254:16\n");
        let with = |fake: Fake, (event, text): (&str, &str)| {
            fake.file(file(event, "trigger"), "# Available triggers:\n").file(file(event, "hist"), text)
        };
        Arc::new(counted.into_iter().fold(fake, with))
    }

    fn seen(fake: &Arc<Fake>) -> Result<Vec<Reading>, String> {
        let node: Arc<dyn Node> = fake.clone();
        let looking = BlockEvents.start(&ProbeSubject::Driver("vdb".into()), &node).map_err(|why| why.to_string())?;
        for event in ENDS.into_iter().chain([ISSUE]) {
            assert_eq!(fake.read(&file(event, "trigger")).unwrap(), TRIGGER);
        }
        let told = looking.stop(&mut Vec::new()).map_err(|why| why.to_string());
        for event in ENDS.into_iter().chain([ISSUE]) {
            assert_eq!(fake.read(&file(event, "trigger")).unwrap(), b"", "it is taken away");
        }
        told
    }

    /// Without an event.
    const NONE: &str = "# event histogram\n#\n# trigger info: hist:keys=dev:vals=hitcount [active]\n#\n\n\n\
                        Totals:\n    Hits: 0\n    Entries: 0\n    Dropped: 0\n";

    fn figures(requests: f64, seconds: f64) -> Vec<Reading> {
        let all = [(REQUESTS, requests), (MOVED, requests * 4096.0), (REQUEST_SECONDS, seconds)];
        all.map(|(name, value)| Reading::scalar(name, value)).into()
    }

    #[test]
    fn the_times_of_all_ends_less_those_of_all_issues_are_told() {
        let before = 7_000_000_000_000;
        let told = seen(&guest(&hist(1000, before), &hist(1000, before + 250_000_000), NONE)).unwrap();
        assert_eq!(told, figures(1000.0, 0.25));
        // The sums have wrapped: 64 bits are full after 18 million requests of a machine that is up for 17 minutes.
        let told = seen(&guest(&hist(1000, u64::MAX - 99_999_999), &hist(1000, 150_000_000), NONE)).unwrap();
        assert_eq!(told, figures(1000.0, 0.25));
        // Ten were handed back, which makes them two each.
        let requeued = hist(10, 1_000_000);
        let told = seen(&guest(&hist(1010, before), &hist(1000, before + 249_000_000), &requeued)).unwrap();
        assert_eq!(told, figures(1010.0, 0.25));
        assert_eq!(seen(&guest(NONE, NONE, NONE)).unwrap(), figures(0.0, 0.0));
    }

    /// They share the triggers, which the first to stop takes away.
    #[test]
    fn two_disks_of_a_guest_are_told() {
        let fake = guest(&hist(1000, 0), &hist(1000, 250_000_000), NONE);
        let fake = Arc::new(Arc::into_inner(fake).unwrap().file("/sys/block/vda/dev", "254:0\n"));
        let node: Arc<dyn Node> = fake.clone();
        let start = |disk: &str| BlockEvents.start(&ProbeSubject::Driver(disk.into()), &node).unwrap();
        let mut both = ["vdb", "vda"].map(start);
        both.iter_mut().for_each(|looking| looking.halt());
        fake.set(file(ISSUE, "hist"), "");
        let told = both.map(|looking| looking.stop(&mut Vec::new()).unwrap());
        assert_eq!(told, [figures(1000.0, 0.25), figures(2.0, 0.0)]);
    }

    #[test]
    fn what_does_not_add_up_is_not_told() {
        let why = |issued: &str, completed: &str| seen(&guest(issued, completed, NONE)).unwrap_err();
        let one = why(&hist(1000, 0), &hist(999, 250_000_000));
        assert!(one.contains("1000 requests were issued to vdb and 999 ended"), "{one}");
        assert!(why(&hist(1000, 500), &hist(1000, 400)).contains("vdb went backwards"));
        assert!(why("", NONE).contains("block_rq_issue could not be read"));
    }

    #[test]
    fn a_kernel_without_them_is_told_with_its_remedy() {
        let without = |name: &str| {
            let fake = guest(NONE, NONE, NONE);
            fake.remove(file(ISSUE, name));
            seen(&fake).unwrap_err()
        };
        let (events, histograms) = (without("trigger"), without("hist"));
        assert!(events.contains("no events of the block layer") && events.contains("CONFIG_EVENT_TRACING"), "{events}");
        assert!(histograms.contains("histograms of events") && histograms.contains("CONFIG_HIST_TRIGGERS"));
        let fake = guest(NONE, NONE, NONE);
        fake.remove("/sys/block/vdb/dev");
        assert_eq!(seen(&fake).unwrap_err(), "vdb has no number");
    }
}
