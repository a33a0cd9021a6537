//! Preconditions as data: what an entry needs of a machine, why, and how to mend it.

use vmio_node::Reader;

/// One precondition of an entry of an extension point.
#[derive(Clone, Copy)]
pub struct Requirement {
    /// Short name: `fio`, `root`, `loop devices`.
    pub name: &'static str,
    /// What it is needed for.
    pub why: &'static str,
    /// What a person does to meet it.
    pub mend: &'static str,
    /// `Ok` when met, else what was found.
    pub check: fn(&dyn Reader) -> Result<(), String>,
}
