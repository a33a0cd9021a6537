//! What one who knows guests says of them.

use vmio_model::facts::{Guest, Unread};

/// What a kind of guest sees, or a manager says.
#[derive(Debug, Default)]
pub struct Managed {
    /// Its running guests. Each has a `pid` or a `uuid` or at least a name, by which
    /// the scan finds it among the processes; of a manager's the rest is what the
    /// configuration asks for.
    pub guests: Vec<Guest>,
    /// What of it could not be read.
    pub unread: Vec<Unread>,
}
