//! Subjects of findings.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::facts::{DeviceId, Subject};

/// Subject of a finding. Shown (and in JSON) as its key, or as `guest web1, disk vda`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// A cell of a run, or a disk of its cells, by the key ([`crate::cell::Cell::key`]).
    Cell(String),
    /// A running guest, or one of its devices.
    Guest(Subject),
}

impl About {
    /// Whether it is the cell, or the disk of cells, of this key.
    pub fn is_cell(&self, key: &str) -> bool {
        matches!(self, About::Cell(own) if own == key)
    }

    /// Whether it is this guest or device.
    pub fn is(&self, subject: &Subject) -> bool {
        matches!(self, About::Guest(own) if own == subject)
    }

    /// The device; `None` for a cell or a whole guest.
    pub fn device(&self) -> Option<&DeviceId> {
        match self {
            About::Cell(_) => None,
            About::Guest(subject) => subject.device.as_ref(),
        }
    }

    /// Text where the guest is already named: `disk vda`.
    pub fn within(&self) -> String {
        match self {
            About::Cell(key) => key.clone(),
            About::Guest(subject) => subject.within(),
        }
    }
}

impl From<String> for About {
    fn from(key: String) -> Self {
        About::Cell(key)
    }
}

impl From<Subject> for About {
    fn from(subject: Subject) -> Self {
        About::Guest(subject)
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            About::Cell(key) => f.write_str(key),
            About::Guest(subject) => subject.fmt(f),
        }
    }
}

crate::schema::as_text!(About);

impl Serialize for About {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
