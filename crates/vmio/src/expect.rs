//! The expected gain of a finding on a guest that was not measured: from the runs that are stored on this host, else
//! from the published figures that come with vmio. [`vmio_model::rules::expect`] decides which runs apply.

use std::time::{Duration, Instant};

use vmio_model::facts::Guest;
use vmio_model::result::Environment;
use vmio_model::rules::Finding;
use vmio_model::rules::expect::{RunFindings, by_papers, by_runs};
use vmio_node::Local;
use vmio_rig::engine::environment;

use crate::papers;
use crate::report::format;
use crate::store::Store;

/// How many of the newest runs are read.
const RUNS: usize = 20;
/// Time after which no further run is read, so that a large store does not slow down a scan.
const TIME: Duration = Duration::from_millis(300);

/// Results of this host's earlier runs, read once for all guests.
#[derive(Debug, Default)]
pub struct PastRuns {
    runs: Vec<RunFindings>,
}

impl PastRuns {
    /// Reads the newest runs of a store, as many as time allows. Runs that cannot be read are left out.
    pub fn of(store: Option<&Store>) -> PastRuns {
        let begun = Instant::now();
        let Some(store) = store else { return PastRuns::default() };
        let here = Machine::here();
        // An A/A run shows nothing of a change.
        let measured = store.list().unwrap_or_default();
        let measured = measured.iter().filter(|r| r.samples > 0 && r.kind.compares_cells()).take(RUNS);
        let in_time = measured.take_while(|_| begun.elapsed() < TIME);
        let runs = in_time.filter_map(|info| {
            let run = store.load(info.id).ok()?;
            // Gains on a modelled disk do not apply to the storage of guests.
            if run.environment.modelled.is_some() {
                return None;
            }
            let on = format::utc(run.started_unix);
            let learnt = RunFindings::of(&run, on.split(' ').next().unwrap_or_default());
            // A run of a lab host was made on this machine.
            let own = run.environment.node.is_some() || here.is_of(&run.environment);
            Some(if own { learnt } else { learnt.imported() })
        });
        PastRuns { runs: runs.collect() }
    }

    /// Fills in the gain that each finding's change may bring, where a run or a paper has one. Findings that rest on a
    /// measurement are left as they are.
    pub fn fill(&self, findings: &mut [Finding], guest: &Guest) {
        for finding in findings.iter_mut().filter(|f| f.expected.is_none() && f.cost_ratio.is_none()) {
            let disk = guest.disks.iter().find(|d| finding.subject.is(&d.subject));
            let by_runs = disk.and_then(|disk| by_runs(finding, disk, &self.runs));
            finding.expected = by_runs.or_else(|| by_papers(finding, disk?, papers::all()));
        }
    }
}

/// Tells runs of this host from imported ones, since a run's environment names no host.
struct Machine {
    cpu: String,
    memory_bytes: u64,
}

impl Machine {
    /// The memory that two kernels report for one host differs by less than one part in so many.
    const MEMORY_SHARE: u64 = 20;

    fn here() -> Machine {
        let local = Local::new();
        Machine { cpu: environment::cpu(&local), memory_bytes: environment::memory_bytes(&local) }
    }

    fn is_of(&self, run: &Environment) -> bool {
        run.cpu == self.cpu && run.memory_bytes.abs_diff(self.memory_bytes) <= self.memory_bytes / Machine::MEMORY_SHARE
    }
}
