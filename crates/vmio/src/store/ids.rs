//! Names of runs on the command line, and the proofs of a run.

use vmio_model::kind::RunKind;
use vmio_model::run::Run;
use vmio_model::study::WordError;

use super::{Store, StoreError};

/// A run on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunId {
    /// The newest run that is no proof.
    Last,
    /// The run of this number.
    Number(i64),
}

impl std::str::FromStr for RunId {
    type Err = WordError;
    fn from_str(text: &str) -> Result<RunId, WordError> {
        let wrong = || WordError("a run is a number from `vmio runs list`, or `last`".to_owned());
        match text {
            "last" => Ok(RunId::Last),
            _ => text.parse().map(RunId::Number).map_err(|_| wrong()),
        }
    }
}

impl RunId {
    /// Its number in the store.
    pub fn find(self, store: &Store) -> Result<i64, StoreError> {
        match self {
            RunId::Number(id) => Ok(id),
            // The runs that `--prove` makes are shown with the run whose findings they prove. An empty
            // store says so in the same words as an unknown number does.
            RunId::Last => {
                let runs = store.list()?;
                let last = runs.iter().find(|r| !matches!(r.kind, RunKind::Proof(_))).or(runs.first());
                Ok(last.map_or(0, |r| r.id))
            }
        }
    }
}

/// The runs in which `vmio tax --prove` proved findings of a run, and the errors of those that cannot be read.
pub fn proofs_of(store: &Store, run: i64) -> Result<(Vec<Run>, Vec<StoreError>), StoreError> {
    let proofs = RunKind::Proof(run);
    let (mut read, mut unread) = (Vec::new(), Vec::new());
    for proof in store.list()?.iter().rev().filter(|r| r.kind == proofs) {
        match store.load(proof.id) {
            Ok(run) => read.push(run),
            Err(e) => unread.push(e),
        }
    }
    Ok((read, unread))
}
