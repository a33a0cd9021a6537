//! Latency histograms of a guest's QEMU, switched on while it is watched and only because somebody asked for it. They are
//! in a journal: they are switched off however this ends, after SIGKILL by the next start that has one.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use vmio_model::facts::Guest;
use vmio_model::failure::{Exit, Failure};
use vmio_model::top::Latency;
use vmio_model::top::latency::{BUCKETS, floor_us};
use vmio_node::histograms::Histograms;
use vmio_node::{Change, Journal};

use crate::context::Context;
use crate::run::signals::{self, Stopping};
use crate::term;

/// Histograms that are on; off when it is dropped.
pub struct Watched {
    histograms: Histograms,
    journal: Arc<Journal>,
    stopping: Stopping,
}

impl Watched {
    /// Switches them on.
    pub fn start(guest: &Guest, pid: u32, monitor: PathBuf, context: &Context) -> anyhow::Result<Self> {
        let refused = |why: String| {
            let what = format!("the latency histograms of {} cannot be used: {why}", guest.name);
            Failure::new(Exit::Precondition, what).help("leave out --histograms: --qmp tells the means")
        };
        // First, since those that a killed vmio left on would be taken for another program's.
        let journals = context.recovered_journals()?;
        let histograms = Histograms::of(&guest.name, pid, monitor).map_err(refused)?;
        let journal = Arc::new(Journal::open(&journals, &format!("explain-{}", std::process::id()))?);
        let stopping = signals::on_signal({
            let journal = Arc::clone(&journal);
            move |name| {
                let left = journal.close();
                term::note(&format!("\n{name}: ended; the histograms are off"));
                tell(&left);
            }
        })
        .context("cannot set up signal handling")?;
        let all = Self { histograms, journal, stopping };
        // As buckets of the model: QEMU counts below the first boundary, between them, and from the last one on.
        let boundaries: Vec<u64> = (1..BUCKETS).map(|bucket| floor_us(bucket) * 1000).collect();
        // A signal meanwhile waits. Where only some could be switched on the change stays written down, and is undone.
        let set = || Ok::<_, Infallible>(all.histograms.set(&boundaries));
        let Ok((set, _)) = all.journal.make(Change::Histograms(all.histograms.clone()), set)?;
        set.map_err(refused)?;
        Ok(all)
    }

    /// What they counted, of reads and of writes; switches them off.
    pub fn end(self) -> Result<[Latency; 2], String> {
        let read = self.histograms.read();
        self.stopping.exit_or(());
        let latency = |mut counts: Vec<u64>| {
            counts.resize(BUCKETS, 0);
            Latency { counts }
        };
        Ok(read?.map(latency))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Where a signal came first it is being done.
        self.stopping.exit_or(());
        tell(&self.journal.close());
    }
}

fn tell(left: &[String]) {
    left.iter().for_each(|left| term::note(&format!("warning: could not be undone: {left}")));
}
