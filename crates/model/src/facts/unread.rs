//! Settings that could not be read.

use std::fmt;
use std::ops::Deref;

use schemars::JsonSchema;
use serde::Serialize;

/// [`Remedy::Root`] in words.
pub const AS_ROOT: &str = "run as root";

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Unread {
    /// What: `format of /images/a.qcow2`, `monitor /run/web1.qmp`.
    pub what: String,
    /// Why not.
    pub why: String,
    /// What would let it be read: `run as root`.
    #[schemars(with = "String")]
    pub mend: Remedy,
}

/// What would let something be read; shown and serialised in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum Remedy {
    /// Be root.
    Root,
    /// Anything else.
    Do(String),
}

impl Deref for Remedy {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Remedy::Root => AS_ROOT,
            Remedy::Do(words) => words,
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl From<String> for Remedy {
    fn from(words: String) -> Self {
        Remedy::Do(words)
    }
}

impl From<&str> for Remedy {
    fn from(words: &str) -> Self {
        Remedy::Do(words.to_owned())
    }
}

impl From<Remedy> for String {
    fn from(remedy: Remedy) -> Self {
        remedy.to_string()
    }
}
