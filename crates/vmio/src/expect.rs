//! What a finding on a guest that runs now may cost it, although nobody measured that guest: from the
//! runs that are stored on this host, else from the published figures that come with vmio. What
//! counts as alike is decided in [`vmio_model::rules::expect`].

use std::time::{Duration, Instant};

use vmio_model::facts::Guest;
use vmio_model::result::Environment;
use vmio_model::rules::Finding;
use vmio_model::rules::expect::{Learnt, by_papers, by_runs};
use vmio_node::Local;
use vmio_rig::engine::environment;

use crate::papers;
use crate::report::format;
use crate::store::Store;

/// Runs that are looked at, the newest.
const RUNS: usize = 20;
/// Time after which no further run is read: a scan is to be quick whatever the store holds.
const TIME: Duration = Duration::from_millis(300);

/// Results of this host's earlier runs, read once for all guests.
#[derive(Debug, Default)]
pub struct PastRuns {
    runs: Vec<Learnt>,
}

impl PastRuns {
    /// Reads the newest runs of a store, as many as time allows. What cannot be read of it is as if
    /// it were not there: the papers remain.
    pub fn of(store: Option<&Store>) -> PastRuns {
        let begun = Instant::now();
        let Some(store) = store else { return PastRuns::default() };
        let here = Machine::here();
        // A run against itself has nothing to say of a change.
        let measured = store.list().unwrap_or_default();
        let measured = measured.iter().filter(|r| r.samples > 0 && r.kind.compares_cells()).take(RUNS);
        let in_time = measured.take_while(|_| begun.elapsed() < TIME);
        let runs = in_time.filter_map(|info| {
            let run = store.load(info.id).ok()?;
            // What was gained on a modelled disk says nothing of the storage that guests have.
            if run.environment.modelled.is_some() {
                return None;
            }
            let on = format::utc(run.started_unix);
            let learnt = Learnt::of(&run, on.split(' ').next().unwrap_or_default());
            // A lab host ran on this one, and says itself what it is.
            let own = run.environment.node.is_some() || here.is_of(&run.environment);
            Some(if own { learnt } else { learnt.imported() })
        });
        PastRuns { runs: runs.collect() }
    }

    /// Says of each finding on the guest what its change may be expected to bring, where anybody
    /// knows. Findings that a measurement decided stay as they are.
    pub fn fill(&self, findings: &mut [Finding], guest: &Guest) {
        for finding in findings.iter_mut().filter(|f| f.expected.is_none() && f.cost_ratio.is_none()) {
            let disk = guest.disks.iter().find(|d| finding.subject.is(&d.subject));
            let by_runs = disk.and_then(|disk| by_runs(finding, disk, &self.runs));
            finding.expected = by_runs.or_else(|| by_papers(finding, disk?, papers::all()));
        }
    }
}

/// What tells this host from one whose runs were imported: a run's environment names no host.
struct Machine {
    cpu: String,
    memory_bytes: u64,
}

impl Machine {
    /// Parts of its memory by which a host's may differ from one kernel to the next.
    const MEMORY_SHARE: u64 = 20;

    fn here() -> Machine {
        let local = Local::new();
        Machine { cpu: environment::cpu(&local), memory_bytes: environment::memory_bytes(&local) }
    }

    fn is_of(&self, run: &Environment) -> bool {
        run.cpu == self.cpu && run.memory_bytes.abs_diff(self.memory_bytes) <= self.memory_bytes / Machine::MEMORY_SHARE
    }
}

/// [`PastRuns::of`] and [`PastRuns::fill`] for one guest.
pub fn fill(findings: &mut [Finding], guest: &Guest, store: Option<&Store>) {
    PastRuns::of(store).fill(findings, guest);
}
