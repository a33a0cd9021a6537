//! Why a workload gave no result.

/// Result of this folder.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a workload gave no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tool failed.
    #[error("{node}: `{command}` failed ({how}): {said}")]
    Failed {
        /// Where.
        node: String,
        /// The command line.
        command: String,
        /// Exit code, signal, time limit or fio's error field.
        how: String,
        /// What it said, on standard error where it said anything there.
        said: String,
    },
    /// Its output is not what the tool of a known version says.
    #[error("{node}: the output of `{command}` cannot be used: {reason}")]
    Output {
        /// Where.
        node: String,
        /// The command line.
        command: String,
        /// Why, with the start of the output.
        reason: String,
    },
    /// It cannot be run like this.
    #[error("{workload} cannot run here: {reason}")]
    Unfit {
        /// Which.
        workload: String,
        /// Why, and what to do.
        reason: String,
    },
    /// From the node.
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
}
