//! Reading a policy: from its files, the links of the host, and what was set over them.

use std::collections::BTreeSet;

use vmio_model::policy::{Links, Loaded, Policy, PolicyError};
use vmio_model::problem::Problem;

use super::set::{OVER, named};
use super::{FilesError, ManagerError};

/// Where policies come from.
pub trait Texts: Send {
    /// The files, as (name, text).
    ///
    /// # Errors
    /// Which file cannot be read, and why.
    fn files(&self) -> Result<Vec<(String, String)>, FilesError>;
    /// Properties of the links of these names, or of all.
    fn links(&self, names: Option<&BTreeSet<String>>) -> Links;
}

/// A policy with its sources.
#[derive(Debug, Clone)]
pub(super) struct Read {
    pub(super) files: Vec<(String, String)>,
    /// Properties of its uplinks.
    pub(super) links: Links,
    pub(super) over: String,
    pub(super) loaded: Loaded,
}

/// Reads the files and the policy.
pub(super) fn read_now(texts: &dyn Texts, over: &str) -> Result<Read, ManagerError> {
    read(texts.files()?, texts.links(None), over)
}

/// Makes a policy of files.
pub(super) fn read(files: Vec<(String, String)>, mut links: Links, over: &str) -> Result<Read, ManagerError> {
    let texts: Vec<(&str, &str)> = files.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    let loaded = match over {
        "" => Policy::read(&texts, &links),
        over => Policy::read_under(&texts, (OVER, over), &links),
    };
    let all = |all: Vec<Problem>| -> Vec<Problem> { all.into_iter().map(|problem| named(over, problem)).collect() };
    let refused = |PolicyError { problems, warnings }| PolicyError { problems: all(problems), warnings: all(warnings) };
    let Loaded { policy, warnings } = loaded.map_err(|error| ManagerError::Policy(refused(error)))?;
    let loaded = Loaded { policy, warnings: all(warnings) };
    links.speeds.retain(|name, _| loaded.policy.uplinks.contains_key(name));
    links.physical.retain(|name| loaded.policy.uplinks.contains_key(name));
    Ok(Read { files, links, over: over.to_owned(), loaded })
}
