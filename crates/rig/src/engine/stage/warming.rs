//! How something becomes warm: it is read through the cache that is to hold it, once, or through a flash cache over a
//! disk of its own side as often as this needs ([`Passes`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use vmio_model::study::MIB;
use vmio_node::linux::block::{Counters, Device};
use vmio_node::{Exec, Node, Reader};

use super::flash::SMALL;

/// How long a program may take beside its reading.
pub const LIMIT: Duration = Duration::from_secs(60);
/// How often a cache is read through at most.
const MOST_PASSES: usize = 8;
/// What of the last pass the slow disk may serve: a fifth of what it may serve of a cell. Most of that is kept, too.
const MISSED: f64 = SMALL / 5.0;

/// A disk of a guest that is held open there, by a loop device: of a device that nobody has open the kernel forgets all
/// pages (`blkdev_put` of block/bdev.c).
pub struct Hold {
    node: Arc<dyn Node>,
    device: String,
}

impl Hold {
    /// Lets go of it.
    pub fn let_go(&self) -> anyhow::Result<()> {
        let command = Exec::new("losetup").args(["-d", &self.device]).limit(LIMIT);
        run(&*self.node, &command).map(drop)
    }
}

/// What was done for caches to be warm.
pub struct Warmed {
    /// What was held open until it was done or failed: to be let go.
    pub holds: Vec<Hold>,
    /// What flash caches missed of each pass, in words.
    pub missed: Vec<String>,
    /// Whether it was done.
    pub done: anyhow::Result<()>,
}

impl Warmed {
    /// Nothing was begun.
    pub fn nothing(done: anyhow::Result<()>) -> Self {
        Self { holds: Vec::new(), missed: Vec::new(), done }
    }

    /// Takes steps, up to the first that fails.
    pub fn by(steps: &[Step]) -> Self {
        let (mut holds, mut missed): (Vec<Hold>, Vec<String>) = (Vec::new(), Vec::new());
        let done: anyhow::Result<()> = steps.iter().try_for_each(|step| {
            missed.extend(step.take(&mut holds)?);
            Ok(())
        });
        Self { holds, missed, done: done.context("what was to be in a cache could not be read") }
    }
}

/// How something becomes warm.
pub struct Step {
    /// The actor's name in results.
    pub of: String,
    /// The machine whose cache it is.
    pub node: Arc<dyn Node>,
    /// What is held open there meanwhile.
    pub hold: Option<PathBuf>,
    /// What reads it.
    pub read: Exec,
    /// How often; `None`: once.
    pub passes: Option<Passes>,
    /// Takes what was read out of a page cache that is not to serve it, on another machine.
    pub forget: Option<(Arc<dyn Node>, Exec)>,
}

impl Step {
    /// Takes it; what its passes missed, in words.
    fn take(&self, holds: &mut Vec<Hold>) -> anyhow::Result<Option<String>> {
        if let Some(path) = &self.hold {
            let args = ["--find", "--show", "--read-only", &path.display().to_string()];
            let device = run(&*self.node, &Exec::new("losetup").args(args).limit(LIMIT))?;
            holds.push(Hold { node: Arc::clone(&self.node), device });
        }
        let read = || run(&*self.node, &self.read).map(drop);
        let missed = match &self.passes {
            Some(passes) => {
                let missed = passes.take(self.node.reader(), read)?;
                Some(format!("{}: {}", self.of, passes.shown(&missed)))
            }
            None => {
                read()?;
                None
            }
        };
        if let Some((node, forget)) = &self.forget {
            run(&**node, forget)?;
        }
        Ok(missed)
    }
}

/// How a disk is read through a flash cache, which need not keep all that it reads: until the slow disk is read no
/// more, as the kernel of its side counts (kernel document block/stat.rst).
#[derive(Debug, PartialEq, Eq)]
pub struct Passes {
    /// The slow disk, by its name in sysfs.
    pub slow: String,
    /// Bytes of a pass.
    pub bytes: u64,
    /// Bytes of a read.
    pub read_bytes: u64,
}

impl Passes {
    /// Reads until a pass shows that the cache serves it, or often enough; the bytes that the slow disk served of each.
    fn take(&self, side: &dyn Reader, read: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<Vec<u64>> {
        let mut missed = Vec::new();
        while missed.len() < MOST_PASSES {
            let before = self.counters(side)?;
            read()?;
            let since = self.counters(side)?.since(&before);
            let failed = || format!("the counters of {} went backwards", self.slow);
            let bytes = since.with_context(failed)?.reads.bytes;
            missed.push(bytes);
            if bytes as f64 <= MISSED * self.bytes as f64 {
                break;
            }
        }
        Ok(missed)
    }

    fn counters(&self, side: &dyn Reader) -> anyhow::Result<Counters> {
        let counters = Counters::parse(&side.read_text(&Device::stat_file(&self.slow))?);
        counters.with_context(|| format!("the kernel does not say what is read of {}", self.slow))
    }

    fn shown(&self, missed: &[u64]) -> String {
        let mib = |bytes: &u64| format!("{:.1}", *bytes as f64 / MIB as f64);
        let each = missed.iter().map(mib).collect::<Vec<_>>().join(", ");
        format!("each pass through its cache read {} MiB, of which the slow disk served {each} MiB", self.bytes / MIB)
    }
}

/// Takes a file's pages out of the page cache, and no others (dd(1), `nocache`).
pub fn forget(path: &Path) -> Exec {
    let from = format!("if={}", path.display());
    Exec::new("dd").args([from.as_str(), "iflag=nocache", "count=0"]).limit(LIMIT)
}

fn run(node: &dyn Node, command: &Exec) -> anyhow::Result<String> {
    let output = node.exec(command)?;
    anyhow::ensure!(output.ok(), "{}: {} failed: {}", node.name(), command.shown(), output.err().trim());
    Ok(output.out().trim().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::Cell;
    use std::sync::Mutex;

    use vmio_node::fake::{Fake, says};

    use super::*;

    #[test]
    fn a_disk_of_a_guest_is_held_open_before_it_is_read() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&log);
        let guest = Fake::new("guest0").command(move |command| {
            heard.lock().unwrap().push(command.shown());
            Some(says("/dev/loop0\n"))
        });
        let there = Fake::new("fake").command(|_| Some(says("")));
        let step = Step {
            of: "a".into(),
            node: Arc::new(guest),
            hold: Some("/dev/vda".into()),
            read: Exec::new("dd").args(["if=/dev/vda"]),
            passes: None,
            forget: Some((Arc::new(there) as Arc<dyn Node>, forget(Path::new("/srv/slow")))),
        };
        let warmed = Warmed::by(&[step]);
        warmed.done.unwrap();
        assert_eq!(warmed.holds.iter().map(|hold| hold.device.as_str()).collect::<Vec<_>>(), ["/dev/loop0"]);
        assert_eq!(warmed.missed, [""; 0]);
        assert_eq!(*log.lock().unwrap(), ["losetup --find --show --read-only /dev/vda", "dd if=/dev/vda"]);
    }

    fn stat(read_mib: u64) -> String {
        format!("1 0 {} 0 0 0 0 0 0 0 0\n", read_mib * MIB / 512)
    }

    fn passes() -> Passes {
        Passes { slow: "vdb".into(), bytes: 100 * MIB, read_bytes: MIB }
    }

    /// What the slow disk serves of passes of 100 MiB, in MiB, where it could serve these, and of more as of the last.
    fn missed(served: &[u64]) -> Vec<u64> {
        let guest = Fake::new("guest0").file("/sys/block/vdb/stat", stat(7));
        let (passed, sum) = (Cell::new(0usize), Cell::new(7u64));
        let read = || {
            sum.set(sum.get() + served[passed.get().min(served.len() - 1)]);
            passed.set(passed.get() + 1);
            guest.set("/sys/block/vdb/stat", stat(sum.get()));
            Ok(())
        };
        let missed = passes().take(&guest, read).unwrap();
        assert_eq!(missed.len(), passed.get());
        missed.iter().map(|bytes| bytes / MIB).collect()
    }

    #[test]
    fn a_cache_is_read_through_until_the_slow_disk_is_read_no_more() {
        assert_eq!(missed(&[100, 15, 2, 0, 9]), [100, 15, 2, 0]);
        assert_eq!(missed(&[0]), [0], "one that holds everything");
        assert_eq!(missed(&[100, 40]), [100, 40, 40, 40, 40, 40, 40, 40], "one that keeps too little");
        let shown = passes().shown(&[100 * MIB, 3 * MIB / 2]);
        assert_eq!(shown, "each pass through its cache read 100 MiB, of which the slow disk served 100.0, 1.5 MiB");
    }

    #[test]
    fn what_passes_missed_is_told_and_a_step_that_fails_is_the_last() {
        let step = |guest: Fake, passes: Option<Passes>| {
            let (of, node) = ("guest-bcache/qemu".to_owned(), Arc::new(guest));
            Step { of, node, hold: None, read: Exec::new("dd"), passes, forget: None }
        };
        let held = Fake::new("guest0").file("/sys/block/vdb/stat", stat(7)).program("dd", says(""));
        // There is no dd.
        let bare = Fake::new("guest1").file("/sys/block/vdb/stat", stat(7));
        let never = Fake::new("guest2").program("dd", says(""));
        let warmed = Warmed::by(&[step(held, Some(passes())), step(bare, Some(passes())), step(never, None)]);
        let told = "guest-bcache/qemu: each pass through its cache read 100 MiB, of which the slow disk served 0.0 MiB";
        assert_eq!(warmed.missed, [told]);
        assert_eq!(warmed.done.unwrap_err().to_string(), "what was to be in a cache could not be read");
    }

    #[test]
    fn without_the_counters_of_the_slow_disk_nothing_is_taken_for_warm() {
        let said = |guest: &Fake, then: Option<&str>| {
            let read = || {
                then.iter().for_each(|text| guest.set("/sys/block/vdb/stat", *text));
                Ok(())
            };
            passes().take(guest, read).unwrap_err().to_string()
        };
        let none = Fake::new("guest0");
        assert!(said(&none, None).contains("/sys/block/vdb/stat"), "{}", said(&none, None));
        let other = Fake::new("guest0").file("/sys/block/vdb/stat", "1 0\n");
        assert_eq!(said(&other, None), "the kernel does not say what is read of vdb");
        let anew = Fake::new("guest0").file("/sys/block/vdb/stat", stat(9));
        assert_eq!(said(&anew, Some(&stat(0))), "the counters of vdb went backwards");
    }
}
