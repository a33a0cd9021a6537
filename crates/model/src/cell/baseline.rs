//! The cell that a cell is compared with. A study declares once, for all its cells, what its baseline replaces.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cell, Settings, State, Subject};

/// The baseline of a study's cells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Baseline {
    /// The same cell on the host itself.
    #[default]
    Native,
    /// The same cell with these replacements.
    Like(Like),
    /// None: the figures are not compared.
    None,
}

/// What a baseline replaces of a cell. What is not named stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Like {
    /// Entry of `guests/`. `native` and `container` also remove attachments and cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<String>,
    /// Entry of `disks/targets/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The state of each target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Entry of `nets/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The leading actor's workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Only the leading actor works.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// All settings, replacing the cell's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
}

impl Baseline {
    /// Whether it is the default.
    pub fn is_native(&self) -> bool {
        *self == Baseline::Native
    }

    /// The baseline of a cell; `None` where it has none. A baseline's is itself.
    pub fn of(&self, cell: &Cell) -> Option<Cell> {
        match self {
            Baseline::Native => Some(cell.natively()),
            Baseline::Like(like) => Some(like.of(cell)),
            Baseline::None => None,
        }
    }

    /// Whether a cell is a baseline.
    pub fn is(&self, cell: &Cell) -> bool {
        self.of(cell).is_some_and(|baseline| baseline == *cell)
    }
}

impl Like {
    fn of(&self, cell: &Cell) -> Cell {
        let mut cell = cell.clone();
        if self.alone {
            cell.beside.clear();
        }
        for actor in cell.actors_mut() {
            if let Some(kind) = &self.side {
                actor.go_to(kind);
            }
            let bare = actor.side.shares_kernel();
            match &mut actor.subject {
                Subject::Disk { target, state, .. } => {
                    put(target, &self.target);
                    put(state, &self.state.map(|own| Some(if bare { own.natively() } else { own })));
                }
                Subject::Path { network, peer, .. } => {
                    put(network, &self.network);
                    put(peer, &self.peer);
                }
                Subject::Machine => {}
            }
        }
        put(&mut cell.lead.workload, &self.workload);
        put(&mut cell.settings, &self.settings);
        cell
    }
}

fn put<T: Clone>(place: &mut T, new: &Option<T>) {
    if let Some(new) = new {
        new.clone_into(place);
    }
}
